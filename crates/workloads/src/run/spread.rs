//! Summaries of several runs, and comparisons of two of them.

use serde::Serialize;

/// The results of several runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median of the runs.
    pub median: f64,
    /// The smallest.
    pub least: f64,
    /// The largest.
    pub most: f64,
    /// The number of runs.
    pub runs: usize,
}

/// How one thing compares with another, as far as their runs can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contest {
    /// It is higher.
    Higher,
    /// It is lower.
    Lower,
    /// The medians differ by less than a tenth.
    Alike,
    /// The medians differ by more than that, and some runs of the lower one were higher than some of the other.
    Overlap,
    /// There are fewer than three runs of one of them.
    TooFewRuns,
    /// A run of one of them measured nothing.
    Nothing,
}

impl Spread {
    /// Differences below this share are none.
    const TELLING: f64 = 0.1;

    /// The fewest runs of which anything can be told.
    pub const FEWEST_RUNS: usize = 3;

    /// Of some runs, at least one.
    ///
    /// # Panics
    /// There is none.
    pub fn of(mut runs: Vec<f64>) -> Self {
        runs.sort_by(f64::total_cmp);
        Self { median: runs[runs.len() / 2], least: runs[0], most: runs[runs.len() - 1], runs: runs.len() }
    }

    /// The ratio to another one: infinite if the other one is 0.
    pub fn over(self, other: Self) -> Self {
        let ratio = |one: f64, other: f64| if other > 0.0 { one / other } else { f64::INFINITY };
        Self {
            median: ratio(self.median, other.median),
            least: ratio(self.least, other.most),
            most: ratio(self.most, other.least),
            runs: self.runs.min(other.runs),
        }
    }

    /// Which one is higher. Anything can be told only from three runs each, all of which measured something.
    pub fn against(self, other: Self) -> Contest {
        let measured = |spread: Self| spread.least > 0.0 && spread.most.is_finite();
        if self.runs.min(other.runs) < Self::FEWEST_RUNS {
            return Contest::TooFewRuns;
        }
        if !measured(self) || !measured(other) {
            return Contest::Nothing;
        }
        let ratio = self.median / other.median;
        if ratio < 1.0 + Self::TELLING && ratio > 1.0 / (1.0 + Self::TELLING) {
            Contest::Alike
        } else if self.least > other.most {
            Contest::Higher
        } else if self.most < other.least {
            Contest::Lower
        } else {
            Contest::Overlap
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_median_of_its_runs() {
        assert_eq!(Spread::of(vec![3.0, 1.0, 2.0]), Spread { median: 2.0, least: 1.0, most: 3.0, runs: 3 });
        assert_eq!(Spread::of(vec![5.0]), Spread { median: 5.0, least: 5.0, most: 5.0, runs: 1 });
    }

    #[test]
    fn what_is_higher_shows_in_three_runs_that_measured_something() {
        let contest = |one: &[f64], other: &[f64]| Spread::of(one.to_vec()).against(Spread::of(other.to_vec()));
        assert_eq!(contest(&[3.0, 2.0, 2.5], &[1.0, 1.1, 1.9]), Contest::Higher);
        assert_eq!(contest(&[1.0, 1.1, 1.9], &[3.0, 2.0, 2.5]), Contest::Lower);
        assert_eq!(contest(&[3.0, 1.8, 2.5], &[1.0, 1.1, 1.9]), Contest::Overlap);
        assert_eq!(contest(&[1.0, 1.05, 1.05], &[1.0, 1.0, 1.0]), Contest::Alike);
        assert_eq!(contest(&[3.0, 3.0], &[1.0, 1.0, 1.0]), Contest::TooFewRuns);
        assert_eq!(contest(&[3.0, 3.0, 3.0], &[0.0, 1.0, 1.0]), Contest::Nothing);
        assert_eq!(contest(&[f64::INFINITY; 3], &[1.0; 3]), Contest::Nothing);
    }
}
