//! A figure as data: what was measured, and whether it bears out what the paper says.

use serde::Serialize;

/// How a figure is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A line for each series.
    Lines,
    /// A bar for each point.
    Bars,
}

/// A figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Its number in the paper, or a word where it has none.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// What the paper says of it.
    pub claim: String,
    /// How it is drawn.
    pub kind: Kind,
    /// What differs from place to place on the horizontal axis.
    pub x_name: String,
    /// The places on the horizontal axis, in order.
    pub x_values: Vec<String>,
    /// One or more plots over the same places.
    pub panels: Vec<Panel>,
    /// What was found here of the paper's claims.
    pub findings: Vec<Finding>,
    /// Where what is measured here is not just what the paper measured.
    pub note: String,
}

/// One plot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Panel {
    /// What is measured, with its unit.
    pub y_name: String,
    /// The lines, or the bars of one colour.
    pub series: Vec<Series>,
}

/// One line, or the bars of one colour.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// What they stand for.
    pub name: String,
    /// A point for each place; nothing where nothing was measured.
    pub points: Vec<Option<Point>>,
}

/// A point.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The median of its runs.
    pub y: f64,
    /// The smallest.
    pub least: f64,
    /// The largest.
    pub most: f64,
}

/// Whether something that the paper says holds here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It does.
    Agrees,
    /// The difference is too small to tell.
    TooClose,
    /// It does not.
    Differs,
    /// It was not measured.
    NotMeasured,
}

impl Verdict {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Agrees => "holds here",
            Self::TooClose => "too close to tell",
            Self::Differs => "does not hold here",
            Self::NotMeasured => "not measured",
        }
    }
}

/// What was found of one of the paper's claims.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// What would have to hold.
    pub claim: String,
    /// Whether it does.
    pub verdict: Verdict,
    /// The numbers.
    pub numbers: String,
    /// Why this machine may differ, where it does, or cannot show it.
    pub why: String,
}

/// Differences below this share are none.
const TELLING: f64 = 0.1;

/// Up to so many times as high as the other, two things are alike.
const ALIKE: f64 = 1.25;

impl Point {
    /// Of some runs, at least one.
    pub fn of(mut runs: Vec<f64>) -> Self {
        runs.sort_by(f64::total_cmp);
        Self { y: runs[runs.len() / 2], least: runs[0], most: runs[runs.len() - 1] }
    }

    /// How many times as high as another one it is: infinitely many where the other one is 0.
    pub fn over(self, other: Self) -> Self {
        let ratio = |one: f64, other: f64| if other > 0.0 { one / other } else { f64::INFINITY };
        Self { y: ratio(self.y, other.y), least: ratio(self.least, other.most), most: ratio(self.most, other.least) }
    }

    /// Whether it can be drawn.
    pub(crate) fn is_finite(&self) -> bool {
        [self.y, self.least, self.most].iter().all(|value| value.is_finite())
    }
}

impl Figure {
    /// A figure without points.
    pub fn new(id: &str, title: &str, claim: &str, kind: Kind, x_name: &str) -> Self {
        let [id, title, claim, x_name] = [id, title, claim, x_name].map(str::to_owned);
        Self {
            id,
            title,
            claim,
            kind,
            x_name,
            x_values: Vec::new(),
            panels: Vec::new(),
            findings: Vec::new(),
            note: String::new(),
        }
    }

    /// Makes the plots, without points.
    pub fn frame(&mut self, x_values: &[String], panels: &[&str], series: &[&str]) {
        self.x_values = x_values.to_vec();
        let line = |name: &&str| Series { name: (*name).to_owned(), points: vec![None; x_values.len()] };
        let panel = |y_name: &&str| Panel { y_name: (*y_name).to_owned(), series: series.iter().map(line).collect() };
        self.panels = panels.iter().map(panel).collect();
    }

    /// The point of a series of the first plot at a place.
    pub fn point(&self, series: usize, x: usize) -> Option<Point> {
        *self.panels.first()?.series.get(series)?.points.get(x)?
    }

    /// The point of the series of this name of the first plot at a place.
    pub fn point_of(&self, series: &str, x: usize) -> Option<Point> {
        let position = self.panels.first()?.series.iter().position(|other| other.name == series)?;
        self.point(position, x)
    }

    /// The last place.
    pub fn last(&self) -> usize {
        self.x_values.len().saturating_sub(1)
    }

    /// Holds a claim against two points: the first is to be higher, in each of its runs than in each of the other's. `why`
    /// says what may make this machine differ.
    pub fn expect_higher(&mut self, claim: &str, points: [Option<Point>; 2], why: &str) {
        let [Some(higher), Some(lower)] = points else {
            return self.find(claim, Verdict::NotMeasured, String::new(), why);
        };
        let ratio = higher.over(lower).y;
        let verdict = if ratio >= 1.0 + TELLING && higher.least > lower.most {
            Verdict::Agrees
        } else if ratio <= 1.0 / (1.0 + TELLING) && higher.most < lower.least {
            Verdict::Differs
        } else {
            Verdict::TooClose
        };
        let numbers = format!("{} and {}: {ratio:.2} times", number(higher.y), number(lower.y));
        self.find(claim, verdict, numbers, why);
    }

    /// Holds a claim against two points: they are to be alike, up to a quarter.
    pub fn expect_alike(&mut self, claim: &str, points: [Option<Point>; 2], why: &str) {
        let [Some(one), Some(other)] = points else {
            return self.find(claim, Verdict::NotMeasured, String::new(), why);
        };
        let ratio = one.over(other).y;
        let apart = one.least > other.most || one.most < other.least;
        let verdict = match (1.0 / ALIKE..=ALIKE).contains(&ratio) {
            true => Verdict::Agrees,
            false if apart => Verdict::Differs,
            false => Verdict::TooClose,
        };
        let numbers = format!("{} and {}: {ratio:.2} times", number(one.y), number(other.y));
        self.find(claim, verdict, numbers, why);
    }

    /// Notes a claim that cannot be shown here, and why.
    pub fn cannot_show(&mut self, claim: &str, why: &str) {
        let (claim, why) = (claim.to_owned(), why.to_owned());
        self.findings.push(Finding { claim, verdict: Verdict::NotMeasured, numbers: String::new(), why });
    }

    /// Notes a finding; the reason is left out where the claim holds.
    pub fn find(&mut self, claim: &str, verdict: Verdict, numbers: String, why: &str) {
        let why = if matches!(verdict, Verdict::TooClose | Verdict::Differs) { why.to_owned() } else { String::new() };
        self.findings.push(Finding { claim: claim.to_owned(), verdict, numbers, why });
    }
}

/// A number as short as it can be read.
pub(crate) fn number(number: f64) -> String {
    match number.abs() {
        size if size >= 1e6 => format!("{} M", short(number / 1e6)),
        size if size >= 1e3 => format!("{} k", short(number / 1e3)),
        size if size >= 10.0 || number.fract() == 0.0 => format!("{number:.0}"),
        _ => format!("{number:.2}"),
    }
}

/// Three digits, of which none is a superfluous zero.
fn short(number: f64) -> String {
    let digits = match number.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{number:.digits$}");
    if digits == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_hold_or_not_or_cannot_be_decided() {
        let mut figure = Figure::new("1", "", "", Kind::Lines, "");
        let point = |runs: &[f64]| Some(Point::of(runs.to_vec()));
        let pairs: [[&[f64]; 2]; 5] =
            [[&[2.0, 3.0], &[1.0]], [&[1.0], &[2.0]], [&[1.05], &[1.0]], [&[1.0], &[1.05]], [&[0.5, 2.0, 2.0], &[1.0]]];
        for pair in pairs {
            figure.expect_higher("higher", pair.map(point), "two cores");
        }
        figure.expect_higher("higher", [point(&[1.0]), None], "two cores");
        let verdicts: Vec<_> = figure.findings.iter().map(|finding| finding.verdict).collect();
        let close = Verdict::TooClose;
        let expected = [Verdict::Agrees, Verdict::Differs, close, close, close, Verdict::NotMeasured];
        assert_eq!(verdicts, expected);
        assert_eq!((figure.findings[0].why.as_str(), figure.findings[1].why.as_str()), ("", "two cores"));
    }

    #[test]
    fn things_are_alike_or_not_or_cannot_be_decided() {
        let mut figure = Figure::new("1", "", "", Kind::Lines, "");
        let point = |runs: &[f64]| Some(Point::of(runs.to_vec()));
        let pairs: [[&[f64]; 2]; 4] =
            [[&[1.0], &[1.2]], [&[2.0, 2.1, 2.2], &[1.0]], [&[1.0], &[2.0]], [&[1.0, 2.0, 2.0], &[1.0, 1.0, 1.5]]];
        for pair in pairs {
            figure.expect_alike("alike", pair.map(point), "two cores");
        }
        figure.expect_alike("alike", [None, point(&[1.0])], "two cores");
        figure.cannot_show("forty cores", "there are two");
        let verdicts: Vec<_> = figure.findings.iter().map(|finding| finding.verdict).collect();
        let (differs, missing) = (Verdict::Differs, Verdict::NotMeasured);
        assert_eq!(verdicts, [Verdict::Agrees, differs, differs, Verdict::TooClose, missing, missing]);
        assert_eq!(figure.findings[5].why, "there are two");
    }

    #[test]
    fn series_are_found_by_name() {
        let mut figure = Figure::new("1", "", "", Kind::Lines, "");
        assert_eq!(figure.point_of("b", 0), None);
        figure.frame(&["1".to_owned()], &["y"], &["a", "b"]);
        figure.panels[0].series[1].points[0] = Some(Point::of(vec![4.0]));
        assert_eq!(figure.point_of("b", 0).map(|point| point.y), Some(4.0));
        assert_eq!((figure.point_of("a", 0), figure.point_of("c", 0), figure.point_of("b", 1)), (None, None, None));
    }

    #[test]
    fn a_point_is_the_median_of_its_runs() {
        assert_eq!(Point::of(vec![3.0, 1.0, 2.0]), Point { y: 2.0, least: 1.0, most: 3.0 });
        assert_eq!(Point::of(vec![5.0]), Point { y: 5.0, least: 5.0, most: 5.0 });
    }

    #[test]
    fn numbers_are_short() {
        let numbers = [1_234_567.0, 2e6, 1234.0, 20_000.0, 100_000.0, 12.3, 3.0, 0.456, -13.2];
        assert_eq!(numbers.map(number), ["1.23 M", "2 M", "1.23 k", "20 k", "100 k", "12", "3", "0.46", "-13"]);
    }
}
