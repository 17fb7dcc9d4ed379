//! HELP: the lines that are generated from a command's page.

use resil_wire::argv::Argv;
use resil_wire::reply::Sink;

use crate::call::{Call, Command, Failure};

/// Replies to a HELP with `lines`.
pub fn reply<C: Command>(call: &Call<'_>, lines: &[&str]) -> Result<(), Failure> {
    Argv::new(&call.args(), C::PAGE).finish()?;
    let mut reply = call.reply();
    reply.array(lines.len());
    lines.iter().for_each(|line| reply.text(line.as_bytes()));
    Ok(())
}

/// Makes the handler of each HELP, and the list of them.
macro_rules! help {
    ($($page:ident, $lines:ident;)*) => {
        pub const HELP: &[(&str, $crate::call::Entry)] = &[$({
            struct Help;

            impl $crate::call::Command for Help {
                const PAGE: &'static resil_wire::command::Page = &pages::$page;

                fn run(call: &$crate::call::Call<'_>) -> Result<(), $crate::call::Failure> {
                    $crate::commands::help::reply::<Self>(call, pages::$lines)
                }
            }

            (pages::$page.name, $crate::call::entry::<Help> as $crate::call::Entry)
        },)*];
    };
}
pub(super) use help;
