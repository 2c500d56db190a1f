//! Two systems side by side.

use std::fmt;

use crate::answer::{Answer, System};
use crate::case::Statement;
use crate::known;

/// Two answers that should be one.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Which statement they answer.
    pub at: usize,
    /// Its text.
    pub text: String,
    /// The first system's.
    pub ours: Answer,
    /// The second system's.
    pub theirs: Answer,
}

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}\n  ours:   {}\n  theirs: {}", self.text, self.ours, self.theirs)
    }
}

/// What statements have come to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Those that were compared.
    pub compared: usize,
    /// Among them, those that have succeeded.
    pub done: usize,
    /// Among them, those where which of several errors comes first is left to chance.
    pub left_open: usize,
    /// Those that one system does not know.
    pub refused: usize,
    /// Those whose difference is known.
    pub known: usize,
}

/// What two answers are to each other.
enum Verdict {
    Same,
    /// Each is right, and what comes behind may differ.
    Open,
    Refused,
    Known,
    Different,
}

/// −0 is stored as 0, and shown as it is computed.
fn alike(one: &[Vec<Option<String>>], other: &[Vec<Option<String>>]) -> bool {
    let plain =
        |value: &Option<String>| value.as_deref().map(|it| if it == "-0" { "0".to_owned() } else { it.to_owned() });
    let rows =
        |of: &[Vec<Option<String>>]| of.iter().map(|row| row.iter().map(plain).collect::<Vec<_>>()).collect::<Vec<_>>();
    rows(one) == rows(other)
}

/// Whether values of the rows decide whether the error comes.
fn is_of_data(code: &str) -> bool {
    code.starts_with("22") || code.starts_with("23") || code == "21000"
}

fn verdict(statement: &Statement, ours: &Answer, theirs: &Answer) -> Verdict {
    let is_same = match (ours, theirs) {
        (Answer::Done { count, rows }, Answer::Done { count: other_count, rows: other_rows }) => {
            let has_order = statement.is_ordered && alike(rows, other_rows);
            count == other_count
                && (has_order || alike(&ours.sorted_rows(), &theirs.sorted_rows()) && !statement.is_ordered)
        }
        _ => ours == theirs,
    };
    if is_same {
        return Verdict::Same;
    }
    if ours.code() == Some("0A000") {
        return Verdict::Refused;
    }
    if known::explanation(statement, ours, theirs).is_some() {
        return Verdict::Known;
    }
    let is_open = match (ours.code(), theirs.code()) {
        (Some(one), Some(other)) => is_of_data(one) && is_of_data(other),
        // A condition that fails may be tested, or another one before it, which does not hold.
        (Some(code), None) | (None, Some(code)) => code.starts_with("22"),
        (None, None) => false,
    };
    if is_open && statement.has_rows || theirs.code() == Some("57014") { Verdict::Open } else { Verdict::Different }
}

fn run(system: &mut dyn System, statement: &Statement) -> Answer {
    if statement.parameters.is_empty() {
        return system.run(&statement.text);
    }
    system.run_prepared(&statement.text, &statement.parameters)
}

/// The first statement that the two systems answer differently, and what became of those before. What comes behind answers that may both be right
/// is not run where it would meet different rows.
pub fn differences(
    statements: &[Statement],
    ours: &mut dyn System,
    theirs: &mut dyn System,
    tally: &mut Tally,
) -> Option<Difference> {
    for (at, statement) in statements.iter().enumerate() {
        let [one, other] = [run(ours, statement), run(theirs, statement)];
        let is_query = statement.text.starts_with("SELECT");
        tally.compared += 1;
        match verdict(statement, &one, &other) {
            Verdict::Same => {
                tally.done += usize::from(one.code().is_none());
                continue;
            }
            Verdict::Open => tally.left_open += 1,
            Verdict::Refused => tally.refused += 1,
            // What is there is the same.
            Verdict::Known if one.code().is_none() && other.code().is_none() => {
                tally.known += 1;
                continue;
            }
            Verdict::Known => tally.known += 1,
            Verdict::Different => {
                return Some(Difference { at, text: statement.to_string(), ours: one, theirs: other });
            }
        }
        // An error ends what a transaction can do, so both end it.
        let rolled_back = [ours.run("ROLLBACK"), theirs.run("ROLLBACK")];
        let is_over = !is_query && (one.code().is_none() || other.code().is_none());
        if is_over || rolled_back.iter().any(|it| it.code().is_some()) {
            return None;
        }
    }
    None
}

/// The same statements without those that a failure does not need.
pub fn shrunk(statements: &[Statement], mut fails: impl FnMut(&[Statement]) -> bool) -> Vec<Statement> {
    let mut left = statements.to_vec();
    let mut width = left.len() / 2;
    while width > 0 {
        let mut at = 0;
        while at < left.len() {
            let end = (at + width).min(left.len());
            let without: Vec<_> = [&left[..at], &left[end..]].concat();
            if fails(&without) { left = without } else { at = end }
        }
        width /= 2;
    }
    left
}
