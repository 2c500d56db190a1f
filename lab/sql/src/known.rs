//! What is known to differ from PostgreSQL, and why.

use crate::answer::Answer;

/// A difference that is known.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// What it is, and why it is there.
    pub why: &'static str,
    /// Whether it explains these answers, ours first, to a statement.
    pub explains: fn(&str, &Answer, &Answer) -> bool,
}

/// All of them.
pub const KNOWN: &[Known] = &[
    Known {
        why: "what functions and aggregates give of char(n) is shown without the blanks at its end, because it has no length",
        explains: |_, ours, theirs| shorn(ours).is_some() && shorn(ours) == shorn(theirs),
    },
    Known {
        why: "a subquery in RETURNING or behind DO UPDATE meets what the statement has written so far",
        explains: |statement, ours, theirs| {
            let behind = statement.find(" RETURNING ").or_else(|| statement.find(" DO UPDATE "));
            let has_subquery = behind.is_some_and(|at| statement[at..].contains("(SELECT "));
            has_subquery && ours.code().is_none() && theirs.code().is_none()
        },
    },
    Known {
        why: "the shortest text of a float may lie where two floats meet, which PostgreSQL avoids",
        explains: |statement, ours, theirs| {
            statement.contains("::real") && as_reals(ours).is_some() && as_reals(ours) == as_reals(theirs)
        },
    },
    Known {
        why: "numerics have 38 digits, and are not infinite, so that a field of an infinite time is NULL",
        explains: |_, ours, theirs| says(ours, "numeric format") || says(theirs, "cannot convert infinity"),
    },
    Known {
        why: "an update of several rows to keys that others of them have may fail or not by the order of the rows, \
              which differs",
        explains: |statement, ours, theirs| {
            statement.starts_with("UPDATE") && [ours, theirs].iter().any(|it| it.code() == Some("23505"))
        },
    },
];

/// Rows whose numbers are those of `real`.
fn as_reals(answer: &Answer) -> Option<Vec<Vec<Option<String>>>> {
    let Answer::Done { rows, .. } = answer else { return None };
    let real = |value: &Option<String>| {
        value.as_ref().map(|it| it.parse::<f32>().map_or_else(|_| it.clone(), |number| format!("{number:?}")))
    };
    let mut rows: Vec<Vec<_>> = rows.iter().map(|row| row.iter().map(real).collect()).collect();
    rows.sort_unstable();
    Some(rows)
}

fn says(answer: &Answer, what: &str) -> bool {
    matches!(answer, Answer::Failed { message, .. } if message.contains(what))
}

/// Rows without blanks at the ends of values.
fn shorn(answer: &Answer) -> Option<Vec<Vec<Option<String>>>> {
    let Answer::Done { rows, .. } = answer else { return None };
    let shorn = |value: &Option<String>| value.as_ref().map(|it| it.trim_end_matches(' ').to_owned());
    let mut rows: Vec<Vec<_>> = rows.iter().map(|row| row.iter().map(shorn).collect()).collect();
    rows.sort_unstable();
    Some(rows)
}

/// The first that explains a difference.
pub fn explanation(statement: &str, ours: &Answer, theirs: &Answer) -> Option<&'static str> {
    KNOWN.iter().find(|known| (known.explains)(statement, ours, theirs)).map(|known| known.why)
}
