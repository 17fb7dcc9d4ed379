//! pybreaker on its Redis storage beside `RES.BREAKER` from the same language, by `peers/pybreaker_bench.py`.

use resil_harness::Server;

use crate::foreign;

/// What selects it, as a row's name would.
pub const NAME: &str = "breaker: pybreaker";

const SECONDS: &str = "3";
const SECONDS_QUICK: &str = "1";

/// Prints its table, or why there is none.
pub fn print(quick: bool) {
    println!("\n### Circuit breaker, from Python\n");
    match table(if quick { SECONDS_QUICK } else { SECONDS }) {
        Ok(table) => println!("{}", table.trim_end()),
        Err(reason) => println!("pybreaker was left out: {reason}"),
    }
}

fn table(seconds: &str) -> Result<String, String> {
    let program = foreign::python("pybreaker_bench.py")?;
    let server = Server::fresh();
    program.run(&[server.port().to_string(), seconds.to_owned()])
}
