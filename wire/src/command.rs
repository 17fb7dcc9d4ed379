//! Every command an SDK can send as one type, and its reply as another: what a backend takes and gives, a server or
//! memory alike. What is the same for all is made here, from the lists in `lib.rs`, which name each once.
//!
//! # The promises
//! - [`Command::parse`] of what [`Command::encode`] wrote is the same command. What is not valid (a limit above its
//!   maximum) is written as it is, and refused by the parser.
//! - [`Command::check`] refuses what the parser refuses, in the same sentence, without words.
//! - [`Command::read`] of what [`Reply::write`] wrote is the same reply.

use resil_core::Span;
use resil_core::limits::{
    LEASE_CEILING, LEASE_DEFAULT_MAX, PAYLOAD_CEILING, PAYLOAD_DEFAULT_MAX, RESULT_CEILING, VALUE_DEFAULT_MAX,
    WAIT_CEILING, WAIT_DEFAULT_MAX, WINDOW_LIMIT_CEILING, WINDOW_LIMIT_DEFAULT,
};

use crate::argv::{Argv, Refused, Word, quoted};
use crate::holding::Wait;
use crate::words::Words;
pub use crate::{Command, PAGES, Reply};

/// What is known of a command without its arguments; [`pages`](crate::pages) has all of them, made from `commands/*.json`.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    /// With its subcommand: `RES.LOCK ACQUIRE`.
    pub name: &'static str,
    pub usage: &'static str,
    /// A replica may reply: it is flagged `readonly`, and changes nothing.
    pub is_read_only: bool,
}

impl Page {
    /// Its name, and the subcommand if it is one.
    pub fn words(&self) -> (&'static str, Option<&'static str>) {
        match self.name.split_once(' ') {
            None => (self.name, None),
            Some((family, subcommand)) => (family, Some(subcommand)),
        }
    }

    /// What follows the name, if `words` begin with it. Names are the same in any case.
    pub(crate) fn follows<'a>(&self, words: &'a [&'a [u8]]) -> Option<&'a [&'a [u8]]> {
        match (self.words(), words) {
            ((name, None), [first, args @ ..]) if Word(first).is(name) => Some(args),
            ((family, Some(name)), [first, second, args @ ..]) if Word(first).is(family) && Word(second).is(name) => {
                Some(args)
            }
            _ => None,
        }
    }
}

/// The arguments of a command. Its file has all of this side by side, with the reply.
pub trait Arguments<'a>: Sized {
    /// Reads what follows the command's name.
    fn parse(argv: Argv<'a>, allowed: &Allowed) -> Result<Self, Refused>;

    /// Refuses what `parse` refuses, for a call that never was words.
    fn check(&self, allowed: &Allowed) -> Result<(), Refused>;

    /// Writes what follows the command's name.
    fn encode(&self, words: &mut impl Words);

    /// The first key: in a cluster it says where the command goes.
    fn key(&self) -> Option<&'a [u8]>;

    /// For how long the call may wait in the server, and how.
    fn wait(&self) -> Wait {
        Wait::NONE
    }

    /// True for the command's PEEK, if it has one.
    fn is_peek(&self) -> bool {
        false
    }
}

/// The arguments of what needs nothing but a key.
impl<'a> Arguments<'a> for &'a [u8] {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let key = argv.bytes("key")?;
        argv.finish()?;
        Ok(key)
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        Ok(())
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self)
    }
}

/// What a server is configured to allow. The default is that of a server without configuration.
#[derive(Debug, Clone, Copy)]
pub struct Allowed {
    pub lease_max: Span,
    pub wait_max: Span,
    pub window_limit_max: u32,
    pub value_max: usize,
    pub payload_max: usize,
}

impl Allowed {
    /// The most that any server can be configured to allow.
    pub const CEILING: Self = Self {
        lease_max: LEASE_CEILING,
        wait_max: WAIT_CEILING,
        window_limit_max: WINDOW_LIMIT_CEILING,
        value_max: RESULT_CEILING,
        payload_max: PAYLOAD_CEILING,
    };
    pub const DEFAULT: Self = Self {
        lease_max: LEASE_DEFAULT_MAX,
        wait_max: WAIT_DEFAULT_MAX,
        window_limit_max: WINDOW_LIMIT_DEFAULT,
        value_max: VALUE_DEFAULT_MAX,
        payload_max: PAYLOAD_DEFAULT_MAX,
    };
}

impl Default for Allowed {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Makes [`Reply`] from the list of replies in `lib.rs`.
macro_rules! replies {
    ($($(#[$doc:meta])* $variant:ident($reply:ty) = |$value:ident, $sink:ident| $write:expr;)*) => {
        /// The reply to a [`Command`] that is not refused, durations in whole milliseconds.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Reply {
            $($(#[$doc])* $variant($reply),)*
        }

        impl Reply {
            /// Writes it as a server does.
            pub fn write(&self, sink: &mut (impl $crate::reply::Sink + ?Sized)) {
                match self {
                    $(Self::$variant($value) => {
                        let $sink = sink;
                        $write
                    })*
                }
            }
        }
    };
}
pub(crate) use replies;

/// Makes everything that is the same for each command from the list of commands in `lib.rs`.
macro_rules! commands {
    ($($variant:ident($arguments:ty) = $page:ident $(| $peek:ident)?, $reply:ident = $read:expr;)*) => {
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Command<'a> {
            $($variant($arguments),)*
        }

        /// The page of every command in the list.
        pub const PAGES: &[&$crate::command::Page] = &[$(&$crate::pages::$page, $(&$crate::pages::$peek,)?)*];

        impl<'a> Command<'a> {
            /// Reads a command, its name first.
            pub fn parse(words: &'a [&'a [u8]], allowed: $crate::command::Allowed) -> Result<Self, $crate::Refused> {
                $(for page in [&$crate::pages::$page, $(&$crate::pages::$peek)?] {
                    if let Some(args) = page.follows(words) {
                        return <$arguments as $crate::command::Arguments>::parse($crate::argv::Argv::new(args, page), &allowed).map(Self::$variant);
                    }
                })*
                Err($crate::command::unknown(words))
            }

            /// Refuses what the parser refuses, in the same sentence.
            pub fn check(&self, allowed: &$crate::command::Allowed) -> Result<(), $crate::Refused> {
                match self {
                    $(Self::$variant(arguments) => $crate::command::Arguments::check(arguments, allowed),)*
                }
            }

            pub fn page(&self) -> &'static $crate::command::Page {
                match self {
                    $(Self::$variant(arguments) => match $crate::command::Arguments::is_peek(arguments) {
                        $(true => &$crate::pages::$peek,)?
                        _ => &$crate::pages::$page,
                    })*
                }
            }

            /// Writes what follows the command's name.
            pub(crate) fn encode_arguments(&self, words: &mut impl $crate::Words) {
                match self {
                    $(Self::$variant(arguments) => $crate::command::Arguments::encode(arguments, words),)*
                }
            }

            /// The first key it names: in a cluster it says where the command goes.
            pub fn key(&self) -> Option<&'a [u8]> {
                match self {
                    $(Self::$variant(arguments) => $crate::command::Arguments::key(arguments),)*
                }
            }

            pub(crate) fn wait(&self) -> $crate::holding::Wait {
                match self {
                    $(Self::$variant(arguments) => $crate::command::Arguments::wait(arguments),)*
                }
            }

            /// Reads a server's reply to this command. Strict: a reply of another shape, or with an unknown word, is
            /// [`Unexpected`].
            pub fn read(&self, value: $crate::reply::Value) -> Result<Reply, $crate::reply::Unexpected> {
                if self.wait().is_async() && let Some(position) = $crate::late::read_queued(&value) {
                    return Ok(Reply::Queued(position));
                }
                match self {
                    $(Self::$variant(arguments) => {
                        let read: fn($crate::reply::Value, &$arguments) -> Result<_, $crate::reply::Unexpected> = $read;
                        read(value, arguments).map(Reply::$reply)
                    })*
                }
            }
        }
    };
}
pub(crate) use commands;

impl Command<'_> {
    /// The command as words, its name first.
    pub fn words(&self) -> Vec<Vec<u8>> {
        let mut words = Vec::with_capacity(8);
        self.encode(&mut words);
        words
    }

    /// Writes the command, its name first.
    pub fn encode(&self, words: &mut impl Words) {
        let (name, subcommand) = self.page().words();
        words.word(name.as_bytes());
        if let Some(subcommand) = subcommand {
            words.word(subcommand.as_bytes());
        }
        self.encode_arguments(words);
    }

    /// Its name, with its subcommand.
    pub fn name(&self) -> &'static str {
        self.page().name
    }

    pub fn is_read_only(&self) -> bool {
        self.page().is_read_only
    }

    /// For how long its connection is blocked at most; `None` if the reply comes at once.
    pub fn waits(&self) -> Option<Span> {
        let blocks = self.wait().blocks();
        (!blocks.is_zero()).then_some(blocks)
    }
}

#[cold]
pub(crate) fn unknown(words: &[&[u8]]) -> Refused {
    let Some((name, args)) = words.split_first() else {
        return Refused::new("no command was given");
    };
    let is_family = PAGES.iter().any(|page| matches!(page.words(), (family, Some(_)) if Word(name).is(family)));
    match args.first() {
        Some(subcommand) if is_family => {
            let (name, subcommand) = (name.escape_ascii(), quoted(subcommand));
            Refused::new(format_args!("unknown subcommand {subcommand} of {name}"))
        }
        None if is_family => Refused::new(format_args!("{} needs a subcommand", name.escape_ascii())),
        _ => Refused::new(format_args!("unknown command {}", quoted(name))),
    }
}
