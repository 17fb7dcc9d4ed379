//! The four machines that callers wait for, in the words of each.

/// How a key of one machine is held, waited for and let go.
pub struct Waited {
    pub name: &'static str,
    hold: &'static str,
    wait: &'static str,
    let_go: &'static str,
    /// What the next in the queue is reported.
    pub granted: &'static str,
}

pub const ALL: [Waited; 4] = [
    Waited {
        name: "lock",
        hold: "RES.LOCK ACQUIRE KEY OWNER 10s",
        wait: "RES.LOCK ACQUIRE KEY OWNER 10s WAIT 20s",
        let_go: "RES.LOCK RELEASE KEY OWNER",
        granted: "GRANTED",
    },
    Waited {
        name: "bulkhead",
        hold: "RES.BULKHEAD ENTER KEY OWNER 1 10s",
        wait: "RES.BULKHEAD ENTER KEY OWNER 1 10s WAIT 20s QUEUE 100",
        let_go: "RES.BULKHEAD LEAVE KEY OWNER",
        granted: "GRANTED",
    },
    Waited {
        name: "idempotency key",
        hold: "RES.IDEMP BEGIN KEY OWNER 10s",
        wait: "RES.IDEMP BEGIN KEY OWNER 10s WAIT 20s",
        let_go: "RES.IDEMP ABORT KEY OWNER",
        granted: "RUN",
    },
    Waited {
        name: "single flight",
        hold: "RES.SFLIGHT JOIN KEY OWNER 10s",
        wait: "RES.SFLIGHT JOIN KEY OWNER 10s WAIT 20s",
        let_go: "RES.SFLIGHT ABANDON KEY OWNER",
        granted: "LEAD",
    },
];

impl Waited {
    pub fn key(&self, part: &str) -> String {
        format!("{}:{part}", self.name.replace(' ', "-"))
    }

    pub fn hold(&self, part: &str, owner: &str) -> String {
        self.say(self.hold, part, owner)
    }

    pub fn wait(&self, part: &str, owner: &str) -> String {
        self.say(self.wait, part, owner)
    }

    pub fn let_go(&self, part: &str, owner: &str) -> String {
        self.say(self.let_go, part, owner)
    }

    fn say(&self, line: &str, part: &str, owner: &str) -> String {
        line.replace("KEY", &self.key(part)).replace("OWNER", owner)
    }
}
