//! Samples of all rounds, and ratios that hold on a noisy machine: each sample is a ratio to the reference that ran
//! beside it, two rows are compared within a round, and the median over the rounds counts.

use std::collections::HashMap;

use crate::stage::Sample;

/// Not a row, but what runs beside every row.
pub const REFERENCE: &str = "reference";

#[derive(Default)]
pub struct Figures {
    /// Per row, one sample a round.
    samples: HashMap<&'static str, Vec<Sample>>,
}

/// How many times faster one row is than another.
#[derive(Clone, Copy, Debug)]
pub struct Faster {
    /// By calls per second.
    pub by_rate: f64,
    /// By the server's CPU time per call.
    pub by_cpu: f64,
}

impl Figures {
    pub fn add(&mut self, row: &'static str, sample: Sample) {
        self.samples.entry(row).or_default().push(sample);
    }

    /// The medians of a row; `None` if it was not run.
    pub fn median_of(&self, row: &str) -> Option<Sample> {
        self.samples.get(row).map(|samples| Sample::median(samples))
    }

    /// The smallest and the largest ratio to the reference, by CPU time.
    pub fn cpu_ratio_range(&self, row: &str) -> Option<(f64, f64)> {
        let ratios = self.samples.get(row)?.iter().map(|sample| sample.cpu_ratio);
        Some((ratios.clone().fold(f64::INFINITY, f64::min), ratios.fold(0.0, f64::max)))
    }

    /// `None` if one of the two was not run.
    pub fn faster(&self, row: &str, than: &str) -> Option<Faster> {
        let (row, than) = (self.ratios(row)?, self.ratios(than)?);
        let pairs = || row.iter().zip(&than);
        Some(Faster {
            by_rate: median(pairs().map(|(row, than)| row.by_rate / than.by_rate)),
            by_cpu: median(pairs().map(|(row, than)| row.by_cpu / than.by_cpu)),
        })
    }

    /// How much more CPU time `row` takes than `than`, beyond what `peer` takes more than `peer_than`, in percentage
    /// points: the median over the rounds.
    pub fn extra_points(&self, (row, than): (&str, &str), (peer, peer_than): (&str, &str)) -> Option<f64> {
        let slowdowns = |slow: &str, fast: &str| -> Option<Vec<f64>> {
            let (slow, fast) = (self.ratios(slow)?, self.ratios(fast)?);
            Some(slow.iter().zip(&fast).map(|(slow, fast)| fast.by_cpu / slow.by_cpu).collect())
        };
        let (ours, theirs) = (slowdowns(row, than)?, slowdowns(peer, peer_than)?);
        Some(median(ours.iter().zip(&theirs).map(|(ours, theirs)| (ours - theirs) * 100.0)))
    }

    /// A row beside the reference, round by round.
    fn ratios(&self, row: &str) -> Option<Vec<Faster>> {
        if row == REFERENCE {
            let rounds = self.samples.values().map(Vec::len).max()?;
            return Some(vec![Faster { by_rate: 1.0, by_cpu: 1.0 }; rounds]);
        }
        let ratio = |sample: &Sample| Faster { by_rate: sample.rate_ratio, by_cpu: sample.cpu_ratio };
        self.samples.get(row).map(|samples| samples.iter().map(ratio).collect())
    }
}

pub fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    if numbers.len() % 2 == 1 { numbers[middle] } else { (numbers[middle - 1] + numbers[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(cpu_us: f64) -> Sample {
        Sample { calls_per_s: 1e6 / cpu_us, cpu_us, rate_ratio: 1.0 / cpu_us, cpu_ratio: 1.0 / cpu_us }
    }

    #[test]
    fn a_slow_round_does_not_move_a_ratio() {
        let mut figures = Figures::default();
        for slowness in [1.0, 5.0, 1.0] {
            figures.add("fast", sample(1.0 * slowness));
            figures.add("slow", sample(2.0 * slowness));
        }
        figures.add("fast", sample(1.0));
        figures.add("slow", sample(9.0));
        let faster = figures.faster("fast", "slow").expect("both were run");
        assert_eq!((faster.by_cpu, faster.by_rate), (2.0, 2.0));
        assert_eq!(figures.cpu_ratio_range("fast"), Some((0.2, 1.0)));
        assert_eq!(figures.faster("fast", REFERENCE).expect("it was run").by_cpu, 1.0);
        assert!(figures.faster("fast", "absent").is_none());
    }

    #[test]
    fn extra_points_compare_two_slowdowns() {
        let mut figures = Figures::default();
        for (row, cpu_us) in [("ours", 1.0), ("ours+", 1.5), ("set", 2.0), ("set+", 2.8)] {
            figures.add(row, sample(cpu_us));
        }
        let points = figures.extra_points(("ours+", "ours"), ("set+", "set")).expect("all were run");
        assert!((points - 10.0).abs() < 1e-9);
    }
}
