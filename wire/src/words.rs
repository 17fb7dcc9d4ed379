//! Where a call is written: word after word, its numbers and durations spelled off the heap.
//!
//! # The promise
//! What is written here is what [`crate::argv`] reads: a number has one spelling, a duration is in the coarsest unit
//! that says it exactly. An option that is as if it were not given is not written.

use resil_core::Span;

use crate::duration;

/// The words of a call, in order.
pub trait Words {
    fn word(&mut self, word: &[u8]);

    fn number(&mut self, number: i64) {
        self.word(Spelled::number(number).as_bytes());
    }

    fn duration(&mut self, span: Span) {
        self.word(Spelled::duration(span).as_bytes());
    }
}

impl Words for Vec<Vec<u8>> {
    fn word(&mut self, word: &[u8]) {
        self.push(word.to_vec());
    }
}

/// Bytes that mean nothing when they are empty.
pub(crate) fn unless_empty(bytes: &[u8]) -> Option<&[u8]> {
    (!bytes.is_empty()).then_some(bytes)
}

/// A span that means nothing when it is zero.
pub(crate) fn unless_zero(span: Span) -> Option<Span> {
    (!span.is_zero()).then_some(span)
}

/// A number or a duration as text, off the heap. It is written from its end: no number has to be measured first.
#[derive(Debug, Clone, Copy)]
pub struct Spelled {
    bytes: [u8; Self::MAX],
    start: usize,
}

impl Spelled {
    /// A sign, nineteen digits, a unit of two letters; rounded up.
    const MAX: usize = 24;

    pub fn number(number: i64) -> Self {
        let mut spelled = Self::empty();
        spelled.prepend_number(number.unsigned_abs());
        if number < 0 {
            spelled.prepend(b"-");
        }
        spelled
    }

    /// In the coarsest unit that says it exactly: `90s`, `1500us`.
    pub fn duration(span: Span) -> Self {
        let mut spelled = Self::empty();
        let us = span.as_us();
        if us == 0 {
            spelled.prepend(b"0");
            return spelled;
        }
        let (name, unit_us) = duration::coarsest_unit(us);
        spelled.prepend(name.as_bytes());
        spelled.prepend_number((us / unit_us).unsigned_abs());
        spelled
    }

    /// Thousandths as a decimal number, without zeros at its end: `2`, `1.5`, `1.001`.
    pub fn thousandths(milli: u32) -> Self {
        let mut spelled = Self::empty();
        let (whole, mut places) = (milli / 1_000, milli % 1_000);
        if places > 0 {
            let mut digits = 3;
            while places.is_multiple_of(10) {
                (places, digits) = (places / 10, digits - 1);
            }
            let end = spelled.start;
            spelled.prepend_number(places.into());
            while end - spelled.start < digits {
                spelled.prepend(b"0");
            }
            spelled.prepend(b".");
        }
        spelled.prepend_number(whole.into());
        spelled
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    fn empty() -> Self {
        Self { bytes: [0; Self::MAX], start: Self::MAX }
    }

    fn prepend(&mut self, text: &[u8]) {
        let start = self.start - text.len();
        self.bytes[start..self.start].copy_from_slice(text);
        self.start = start;
    }

    fn prepend_number(&mut self, mut number: u64) {
        loop {
            self.prepend(&[b'0' + (number % 10) as u8]);
            number /= 10;
            if number == 0 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spelled_as_they_are_everywhere() {
        for number in [0, 1, -1, 9, 10, 1_234_567_890, i64::MAX, i64::MIN] {
            assert_eq!(Spelled::number(number).as_bytes(), number.to_string().as_bytes());
        }
    }

    #[test]
    fn the_longest_duration_fits() {
        assert_eq!(Spelled::duration(Span::from_us(i64::MAX)).as_bytes(), b"9223372036854775807us");
        assert_eq!(Spelled::duration(Span::ZERO).as_bytes(), b"0");
        assert_eq!(Spelled::duration(Span::from_secs(90)).as_bytes(), b"90s");
    }

    #[test]
    fn thousandths_have_no_zeros_at_their_end() {
        for (milli, text) in
            [(1_000, "1"), (1_500, "1.5"), (1_050, "1.05"), (1_001, "1.001"), (100_000, "100"), (7, "0.007")]
        {
            assert_eq!(Spelled::thousandths(milli).as_bytes(), text.as_bytes());
        }
        assert_eq!(Spelled::thousandths(u32::MAX).as_bytes(), b"4294967.295");
    }
}
