//! `RES.WINDOW` and `RES.WINDOW.PEEK`. The reply is that of `RES.GCRA` with one tier.

use resil_core::rate_limit::Ask;
use resil_core::window::Rule;

use crate::argv::{Argv, Refused};
use crate::bound::{Named, Number};
use crate::command::{Allowed, Arguments};
use crate::gcra::{COST, PERIOD, UPTO, check_ask};
use crate::words::Words;

/// A call of either command; PEEK is the one whose `ask` is [`Ask::Peek`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Windowed<'a> {
    pub key: &'a [u8],
    pub rule: Rule,
    /// A window neither reserves nor refunds.
    pub ask: Ask,
}

fn limit(allowed: &Allowed) -> Number {
    Number::count("limit", allowed.window_limit_max)
}

impl<'a> Arguments<'a> for Windowed<'a> {
    fn parse(mut argv: Argv<'a>, allowed: &Allowed) -> Result<Self, Refused> {
        let key = argv.bytes("key")?;
        let rule = Rule { limit: limit(allowed).take_u32(&mut argv)?, period: PERIOD.take(&mut argv)? };
        if argv.page().is_read_only {
            argv.finish()?;
            return Ok(Self { key, rule, ask: Ask::Peek });
        }
        let mut ask = None;
        while let Some(word) = argv.word() {
            let asked = if word.is("COST") {
                Ask::Take(COST.take_u32(&mut argv)?)
            } else if word.is("UPTO") {
                Ask::UpTo(UPTO.take_u32(&mut argv)?)
            } else {
                return Err(argv.unexpected(word.0));
            };
            if ask.replace(asked).is_some() {
                return Err(Refused::new("only one of COST and UPTO can be given, and once"));
            }
        }
        Ok(Self { key, rule, ask: ask.unwrap_or(Ask::Take(1)) })
    }

    fn check(&self, allowed: &Allowed) -> Result<(), Refused> {
        limit(allowed).check(self.rule.limit.into())?;
        PERIOD.check(self.rule.period)?;
        check_ask(self.ask)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.number(self.rule.limit.into());
        words.duration(self.rule.period);
        match self.ask {
            Ask::Take(1) | Ask::Peek | Ask::Refund(_) | Ask::Reserve { .. } => {}
            Ask::Take(cells) => COST.write_given(Some(cells), words),
            Ask::UpTo(cells) => UPTO.write_given(Some(cells), words),
        }
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }

    fn is_peek(&self) -> bool {
        self.ask == Ask::Peek
    }
}
