//! Exact fractions. Overflow panics: a model that is wrong must not be quiet about it.

use std::cmp::Ordering;
use std::ops::{Add, Mul, Neg, Sub};

/// `over / under` in lowest terms, `under` positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio {
    over: i128,
    under: i128,
}

impl Ratio {
    pub const ZERO: Self = Self { over: 0, under: 1 };

    pub fn new(over: i128, under: i128) -> Self {
        assert!(under > 0, "a denominator is positive");
        let divisor = gcd(over.unsigned_abs(), under.unsigned_abs()) as i128;
        Self { over: over / divisor, under: under / divisor }
    }

    pub fn whole(number: i64) -> Self {
        Self { over: number as i128, under: 1 }
    }

    pub fn floor(self) -> i64 {
        self.over.div_euclid(self.under).try_into().expect("a small number")
    }

    pub fn ceil(self) -> i64 {
        -(-self).floor()
    }

    /// The largest multiple of `1 / parts` that is not above.
    pub fn floor_to(self, parts: i64) -> Self {
        let scaled = self.over.checked_mul(parts as i128).expect("no overflow");
        Self::new(scaled.div_euclid(self.under), parts as i128)
    }

    /// `self / divisor`.
    pub fn per(self, divisor: Self) -> Self {
        assert!(divisor.over > 0, "only ever divided by a rate");
        Self::product((self.over, self.under), (divisor.under, divisor.over))
    }

    fn product(a: (i128, i128), b: (i128, i128)) -> Self {
        // Reducing crosswise first keeps the products small.
        let (left, right) = (Self::new(a.0, b.1), Self::new(b.0, a.1));
        let over = left.over.checked_mul(right.over).expect("no overflow");
        let under = left.under.checked_mul(right.under).expect("no overflow");
        Self { over, under }
    }
}

fn gcd(a: u128, b: u128) -> u128 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

impl Add for Ratio {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        let over = |a: Self, b: Self| a.over.checked_mul(b.under).expect("no overflow");
        let sum = over(self, other).checked_add(over(other, self)).expect("no overflow");
        Self::new(sum, self.under.checked_mul(other.under).expect("no overflow"))
    }
}

impl Neg for Ratio {
    type Output = Self;
    fn neg(self) -> Self {
        Self { over: -self.over, under: self.under }
    }
}

impl Sub for Ratio {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl Mul for Ratio {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        Self::product((self.over, self.under), (other.over, other.under))
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> Ordering {
        (*self - *other).over.cmp(&0)
    }
}
