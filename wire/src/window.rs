//! `RES.WINDOW` and `RES.WINDOW.PEEK`. The reply is that of `RES.GCRA` with one tier.

use resil_core::limits::COST_MAX;
use resil_core::rate_limit::Ask;
use resil_core::window::Rule;

use crate::argv::{Argv, Refused};
use crate::gcra::period;
use crate::words::{Words, named_number};

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

    /// Which of the two commands it is.
    pub fn name(&self) -> &'static str {
        if self.ask == Ask::Peek { PEEK_NAME } else { NAME }
    }

    /// Writes what follows the command's name. A window neither reserves nor refunds.
    pub fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.number(self.rule.limit.into());
        words.duration(self.rule.period);
        match self.ask {
            Ask::Take(cells) if cells > 1 => named_number(words, "COST", Some(cells)),
            Ask::UpTo(cells) => named_number(words, "UPTO", Some(cells)),
            _ => {}
        }
    }
}
