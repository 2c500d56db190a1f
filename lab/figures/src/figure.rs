//! A figure as data: what was measured, and whether it bears out what the paper says.

use std::ops::RangeInclusive;

use polychron_workloads::run::{Contest, Spread};
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
    /// How it is drawn.
    pub kind: Kind,
    /// What differs from place to place on the horizontal axis.
    pub x_name: String,
    /// The places on the horizontal axis, in order.
    pub x_values: Vec<String>,
    /// One or more plots over the same places.
    pub panels: Vec<Panel>,
    /// What the paper says of it, and what was found of that here.
    pub quotes: Vec<Quote>,
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

/// A point: the median, the smallest and the largest of its runs.
pub type Point = Spread;

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
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Agrees, Self::Differs, Self::TooClose, Self::NotMeasured];

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

/// What the paper says, and what was found of it here. A text is here because a finding names it, so that none is without.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Quote {
    /// One sentence in the paper's words, or what its figure shows in ours.
    pub text: String,
    /// One at least.
    pub findings: Vec<Finding>,
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
    /// Why there is no verdict, or none is possible here.
    pub why: String,
}

/// Up to so many times as high as the other, two things are alike.
const ALIKE: f64 = 1.25;

/// Whether a point can be drawn.
pub(crate) fn is_finite(point: &Point) -> bool {
    [point.median, point.least, point.most].iter().all(|value| value.is_finite())
}

/// What the paper measured, as a point.
pub(crate) fn of_paper(value: f64) -> Point {
    Point::of(vec![value])
}

impl Figure {
    /// A figure without points.
    pub fn new(id: &str, title: &str, kind: Kind, x_name: &str) -> Self {
        let [id, title, x_name] = [id, title, x_name].map(str::to_owned);
        Self {
            id,
            title,
            kind,
            x_name,
            x_values: Vec::new(),
            panels: Vec::new(),
            quotes: Vec::new(),
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

    /// The point of the series of this name of a plot at a place.
    pub fn point_in(&self, panel: usize, series: &str, x: usize) -> Option<Point> {
        *self.panels.get(panel)?.series.iter().find(|other| other.name == series)?.points.get(x)?
    }

    /// The last place.
    pub fn last(&self) -> usize {
        self.x_values.len().saturating_sub(1)
    }

    /// Holds a claim against two points: the first is to be higher, in each of its runs than in each of the other's.
    pub fn expect_higher(&mut self, quote: &str, claim: &str, points: [Option<Point>; 2]) {
        self.expect_order(quote, claim, points, (Verdict::TooClose, "The medians differ by less than a tenth."));
    }

    /// Holds a claim against two points: the first is to be higher, or the two differ by less than a tenth.
    pub fn expect_not_lower(&mut self, quote: &str, claim: &str, points: [Option<Point>; 2]) {
        self.expect_order(quote, claim, points, (Verdict::Agrees, ""));
    }

    /// Holds a claim against two points: the first is to be higher; `alike` is the verdict where the two differ by less than a tenth.
    fn expect_order(&mut self, quote: &str, claim: &str, points: [Option<Point>; 2], alike: (Verdict, &str)) {
        let (contest, numbers) = contest(points);
        let (verdict, why) = match contest {
            Contest::Higher => (Verdict::Agrees, ""),
            Contest::Lower => (Verdict::Differs, ""),
            Contest::Alike => alike,
            Contest::Overlap => (Verdict::TooClose, OVERLAP),
            Contest::TooFewRuns => (Verdict::NotMeasured, TOO_FEW_RUNS),
            Contest::Nothing => (Verdict::NotMeasured, NOTHING),
        };
        self.find(quote, claim, verdict, numbers, why);
    }

    /// Holds a claim against two points: they are to be alike, up to a quarter.
    pub fn expect_alike(&mut self, quote: &str, claim: &str, points: [Option<Point>; 2]) {
        let (contest, numbers) = contest(points);
        let ratio = match points {
            [Some(one), Some(other)] => one.over(other).median,
            _ => f64::INFINITY,
        };
        let (verdict, why) = match contest {
            Contest::TooFewRuns => (Verdict::NotMeasured, TOO_FEW_RUNS),
            Contest::Nothing => (Verdict::NotMeasured, NOTHING),
            _ if (1.0 / ALIKE..=ALIKE).contains(&ratio) => (Verdict::Agrees, ""),
            Contest::Overlap => (Verdict::TooClose, OVERLAP),
            _ => (Verdict::Differs, ""),
        };
        self.find(quote, claim, verdict, numbers, why);
    }

    /// Holds a claim against two points: the first is to be so many times as high as the other one.
    pub fn expect_times(
        &mut self,
        quote: &str,
        claim: &str,
        [one, other]: [Option<Point>; 2],
        bounds: RangeInclusive<f64>,
    ) {
        let times = one.zip(other).map(|(one, other)| one.over(other));
        self.expect_within(quote, claim, times, bounds);
    }

    /// Holds a claim against one point: all its runs are to lie within bounds.
    pub fn expect_within(&mut self, quote: &str, claim: &str, point: Option<Point>, bounds: RangeInclusive<f64>) {
        let Some(point) = point else { return self.find(quote, claim, Verdict::NotMeasured, String::new(), NOTHING) };
        let Point { median, least, most, runs } = point;
        let [median_text, least_text, most_text] = [median, least, most].map(fine);
        let numbers = format!("{median_text} ({least_text} to {most_text})");
        let (verdict, why) = if runs < Point::FEWEST_RUNS {
            (Verdict::NotMeasured, TOO_FEW_RUNS)
        } else if !is_finite(&point) || (least, most) == (0.0, 0.0) {
            (Verdict::NotMeasured, NOTHING)
        } else if bounds.contains(&least) && bounds.contains(&most) {
            (Verdict::Agrees, "")
        } else if most < *bounds.start() || least > *bounds.end() {
            (Verdict::Differs, "")
        } else {
            (Verdict::TooClose, "Some runs lie on either side.")
        };
        self.find(quote, claim, verdict, numbers, why);
    }

    /// Notes a claim that cannot be shown here, and why.
    pub fn cannot_show(&mut self, quote: &str, claim: &str, why: &str) {
        self.find(quote, claim, Verdict::NotMeasured, String::new(), why);
    }

    /// Notes a finding of what the paper says. `why` is what the measurement itself says of it, if anything.
    fn find(&mut self, quote: &str, claim: &str, verdict: Verdict, numbers: String, why: &str) {
        debug_assert!(is_one_sentence(quote), "of which sentence is this a finding? {quote}");
        let finding = Finding { claim: claim.to_owned(), verdict, numbers, why: why.to_owned() };
        match self.quotes.iter_mut().find(|it| it.text == quote) {
            Some(quote) => quote.findings.push(finding),
            None => self.quotes.push(Quote { text: quote.to_owned(), findings: vec![finding] }),
        }
    }

    /// What was found, of all that the paper says.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.quotes.iter().flat_map(|quote| &quote.findings)
    }

    /// How many findings there are of a verdict.
    pub(crate) fn count(&self, verdict: Verdict) -> usize {
        self.findings().filter(|finding| finding.verdict == verdict).count()
    }
}

const OVERLAP: &str = "The runs overlap.";
const TOO_FEW_RUNS: &str = "There is no verdict from fewer than three runs.";
const NOTHING: &str = "A run measured nothing.";

/// Whether a text has one quotation at most, of one sentence.
fn is_one_sentence(text: &str) -> bool {
    let mut quoted = text.split('“').skip(1);
    let sentence = quoted.next().unwrap_or_default();
    let mut rests = sentence.split(". ").skip(1);
    quoted.next().is_none() && !rests.any(|rest| rest.starts_with(char::is_uppercase))
}

/// What two points say of each other, with the numbers; nothing where one is missing.
fn contest(points: [Option<Point>; 2]) -> (Contest, String) {
    let [Some(one), Some(other)] = points else { return (Contest::Nothing, String::new()) };
    let ratio = one.over(other).median;
    let times = if ratio.is_finite() { format!(": {ratio:.2} times") } else { String::new() };
    (one.against(other), format!("{} and {}{times}", number(one.median), number(other.median)))
}

/// A number with what small differences show in.
fn fine(value: f64) -> String {
    if value.abs() < 10.0 { format!("{value:.3}") } else { number(value) }
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

    const SAYS: &str = "“This is so.”";

    fn findings(figure: &Figure) -> Vec<&Finding> {
        figure.findings().collect()
    }

    #[test]
    fn findings_stand_under_the_sentence_that_they_are_of() {
        let mut figure = Figure::new("1", "", Kind::Lines, "");
        let points = [2.0, 1.0].map(|y| Some(Point::of(vec![y; 3])));
        figure.expect_higher(SAYS, "first", points);
        figure.cannot_show("“Another one.” (§2)", "second", "nobody knows");
        figure.expect_times(SAYS, "third", points, 2.5..=f64::MAX);
        let found =
            figure.quotes.iter().map(|quote| quote.findings.iter().map(|it| (&*it.claim, it.verdict)).collect());
        let found: Vec<Vec<_>> = found.collect();
        let [holds, differs, missing] = [Verdict::Agrees, Verdict::Differs, Verdict::NotMeasured];
        assert_eq!(found, [vec![("first", holds), ("third", differs)], vec![("second", missing)]]);
        assert_eq!(figure.quotes[0].text, SAYS);
    }

    #[test]
    fn a_quotation_is_one_sentence() {
        for one in [
            "“At roughly 15%, e.g. here, it drops (§6.5).” (§6)",
            "In Figure 5 it is faster. So it is in ours.",
            "“Is 1.5 […] so.”",
        ] {
            assert!(is_one_sentence(one), "{one}");
        }
        for more in ["“It is so. And so.”", "“It is so.” “And so.”"] {
            assert!(!is_one_sentence(more), "{more}");
        }
    }

    #[test]
    fn claims_hold_or_not_or_cannot_be_decided() {
        let mut figure = Figure::new("1", "", Kind::Lines, "");
        let point = |runs: &[f64]| Some(Point::of(runs.to_vec()));
        let pairs: [[&[f64]; 2]; 6] = [
            [&[2.0, 3.0, 3.0], &[1.0; 3]],
            [&[1.0; 3], &[2.0; 3]],
            [&[1.05; 3], &[1.0; 3]],
            [&[0.5, 2.0, 2.0], &[1.0; 3]],
            [&[2.0, 3.0], &[1.0, 1.0]],
            [&[2.0; 3], &[0.0; 3]],
        ];
        for pair in pairs {
            figure.expect_higher(SAYS, "higher", pair.map(point));
        }
        figure.expect_higher(SAYS, "higher", [point(&[1.0; 3]), None]);
        let verdicts: Vec<_> = figure.findings().map(|finding| finding.verdict).collect();
        let (close, missing) = (Verdict::TooClose, Verdict::NotMeasured);
        assert_eq!(verdicts, [Verdict::Agrees, Verdict::Differs, close, close, missing, missing, missing]);
        assert_eq!((findings(&figure)[0].why.as_str(), findings(&figure)[3].why.as_str()), ("", OVERLAP));
        assert_eq!((findings(&figure)[4].why.as_str(), findings(&figure)[5].why.as_str()), (TOO_FEW_RUNS, NOTHING));
        assert_eq!((figure.count(Verdict::Agrees), figure.count(missing)), (1, 3));
    }

    #[test]
    fn things_are_alike_or_not_or_cannot_be_decided() {
        let mut figure = Figure::new("1", "", Kind::Lines, "");
        let point = |runs: &[f64]| Some(Point::of(runs.to_vec()));
        let pairs: [[&[f64]; 2]; 4] = [
            [&[1.0; 3], &[1.2; 3]],
            [&[2.0, 2.1, 2.2], &[1.0; 3]],
            [&[1.0; 3], &[2.0; 3]],
            [&[1.0, 2.0, 2.0], &[1.0, 1.0, 1.5]],
        ];
        for pair in pairs {
            figure.expect_alike(SAYS, "alike", pair.map(point));
        }
        figure.expect_alike(SAYS, "alike", [None, point(&[1.0; 3])]);
        figure.cannot_show(SAYS, "forty cores", "there are two");
        let verdicts: Vec<_> = figure.findings().map(|finding| finding.verdict).collect();
        let (differs, missing) = (Verdict::Differs, Verdict::NotMeasured);
        assert_eq!(verdicts, [Verdict::Agrees, differs, differs, Verdict::TooClose, missing, missing]);
        assert_eq!(findings(&figure)[5].why, "there are two");
        for pair in [[3.0, 1.0], [1.0, 1.05], [1.0, 3.0]] {
            figure.expect_not_lower(SAYS, "as high", pair.map(|run| point(&[run; 3])));
        }
        let verdicts: Vec<_> = findings(&figure)[6..].iter().map(|finding| finding.verdict).collect();
        assert_eq!(verdicts, [Verdict::Agrees, Verdict::Agrees, differs]);
    }

    #[test]
    fn points_lie_within_bounds_or_beyond_or_on_either_side() {
        let mut figure = Figure::new("1", "", Kind::Lines, "");
        let runs: [&[f64]; 5] = [&[1.0; 3], &[2.0; 3], &[0.5, 1.5, 1.5], &[1.0; 2], &[f64::INFINITY; 3]];
        for runs in runs {
            figure.expect_within(SAYS, "within", Some(Point::of(runs.to_vec())), 0.0..=1.2);
        }
        figure.expect_within(SAYS, "within", None, 0.0..=1.2);
        let verdicts: Vec<_> = figure.findings().map(|finding| finding.verdict).collect();
        let missing = Verdict::NotMeasured;
        let expected = [Verdict::Agrees, Verdict::Differs, Verdict::TooClose, missing, missing, missing];
        assert_eq!(verdicts, expected);
    }

    #[test]
    fn series_are_found_by_name() {
        let mut figure = Figure::new("1", "", Kind::Lines, "");
        assert_eq!(figure.point_of("b", 0), None);
        figure.frame(&["1".to_owned()], &["y"], &["a", "b"]);
        figure.panels[0].series[1].points[0] = Some(Point::of(vec![4.0]));
        assert_eq!(figure.point_of("b", 0).map(|point| point.median), Some(4.0));
        assert_eq!((figure.point_of("a", 0), figure.point_of("c", 0), figure.point_of("b", 1)), (None, None, None));
    }

    #[test]
    fn numbers_are_short() {
        let numbers = [1_234_567.0, 2e6, 1234.0, 20_000.0, 100_000.0, 12.3, 3.0, 0.456, -13.2];
        assert_eq!(numbers.map(number), ["1.23 M", "2 M", "1.23 k", "20 k", "100 k", "12", "3", "0.46", "-13"]);
    }
}
