//! `RES.WINDOW` and `RES.WINDOW.PEEK`. The reply is that of `RES.GCRA` with one tier.

use resil_core::limits::COST_MAX;
use resil_core::rate_limit::Ask;
use resil_core::window::Rule;

use crate::argv::{Argv, Refused};
use crate::duration::Shown;
use crate::gcra::period;

pub const NAME: &str = "RES.WINDOW";
pub const PEEK_NAME: &str = "RES.WINDOW.PEEK";
pub const USAGE: &str = "RES.WINDOW key limit period [COST n | UPTO n]";
pub const PEEK_USAGE: &str = "RES.WINDOW.PEEK key limit period";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Windowed<'a> {
    pub key: &'a [u8],
    pub rule: Rule,
    pub ask: Ask,
}

impl<'a> Windowed<'a> {
    /// Parses what follows `RES.WINDOW`; `limit_max` is the configured maximum.
    pub fn parse(args: &'a [&'a [u8]], limit_max: u32) -> Result<Self, Refused> {
        let mut argv = Argv::new(args, USAGE);
        let (key, rule) = Self::parse_rule(&mut argv, limit_max)?;
        let mut ask = None;
        while let Some(word) = argv.word() {
            let asked = if word.is("COST") {
                Ask::Take(argv.count("COST", COST_MAX)?)
            } else if word.is("UPTO") {
                Ask::UpTo(argv.count("UPTO", COST_MAX)?)
            } else {
                return Err(argv.unexpected(word.0));
            };
            if ask.replace(asked).is_some() {
                return Err(Refused::new("only one of COST and UPTO can be given, and once"));
            }
        }
        Ok(Self { key, rule, ask: ask.unwrap_or(Ask::Take(1)) })
    }

    /// Parses what follows `RES.WINDOW.PEEK`.
    pub fn parse_peek(args: &'a [&'a [u8]], limit_max: u32) -> Result<Self, Refused> {
        let mut argv = Argv::new(args, PEEK_USAGE);
        let (key, rule) = Self::parse_rule(&mut argv, limit_max)?;
        argv.finish()?;
        Ok(Self { key, rule, ask: Ask::Peek })
    }

    fn parse_rule(argv: &mut Argv<'a>, limit_max: u32) -> Result<(&'a [u8], Rule), Refused> {
        let key = argv.bytes("key")?;
        let limit = argv.count("limit", limit_max)?;
        Ok((key, Rule { limit, period: period(argv)? }))
    }

    /// The call as arguments, the command's name first.
    pub fn encode(&self) -> Vec<Vec<u8>> {
        let name = if self.ask == Ask::Peek { PEEK_NAME } else { NAME };
        let mut args = vec![
            name.as_bytes().to_vec(),
            self.key.to_vec(),
            self.rule.limit.to_string().into_bytes(),
            Shown(self.rule.period).to_string().into_bytes(),
        ];
        let option = match self.ask {
            Ask::Take(cells) if cells > 1 => Some(("COST", cells)),
            Ask::UpTo(cells) => Some(("UPTO", cells)),
            _ => None,
        };
        if let Some((word, cells)) = option {
            args.push(word.as_bytes().to_vec());
            args.push(cells.to_string().into_bytes());
        }
        args
    }
}
