//! What is known to differ from PostgreSQL, and why.

use crate::answer::Answer;
use crate::case::Statement;

/// A difference that is known.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// What it is, and why it is there.
    pub why: &'static str,
    /// Whether it explains these answers, ours first, to a statement.
    pub explains: fn(&Statement, &Answer, &Answer) -> bool,
}

/// All of them.
pub const KNOWN: &[Known] = &[
    Known {
        why: "what is made of char(n) of different lengths is shown without the blanks at its end, because it has no length",
        explains: |statement, ours, theirs| alike(statement, ours, theirs, is_shorn),
    },
    Known {
        why: "the shortest text of a float may lie where two floats meet, which PostgreSQL avoids",
        explains: |statement, ours, theirs| {
            statement.text.contains("::real") && alike(statement, ours, theirs, is_same_real)
        },
    },
    Known {
        why: "numerics of columns have 38 digits, and are not infinite; a field of an infinite time is NULL",
        explains: |_, ours, theirs| says(ours, "numeric format") || says(theirs, "cannot convert infinity"),
    },
    Known {
        why: "a change of several rows to keys that others of them have may fail or not by the order of the rows, \
              which differs",
        explains: |statement, ours, theirs| {
            let changes_keys = ["UPDATE", "MERGE", "WITH changed AS (UPDATE"];
            changes_keys.iter().any(|it| statement.text.starts_with(it))
                && [ours, theirs].iter().any(|it| it.code() == Some("23505"))
        },
    },
];

/// Whether the answers have the same rows, in the same order where they have one, but for values that are alike. Rows without an order are
/// paired, equal ones first.
fn alike(statement: &Statement, ours: &Answer, theirs: &Answer, values: fn(&str, &str) -> bool) -> bool {
    let (Answer::Done { count, rows }, Answer::Done { count: other, rows: others }) = (ours, theirs) else {
        return false;
    };
    let of_rows = |one: &[Option<String>], other: &[Option<String>]| {
        let pairs = one.iter().zip(other);
        one.len() == other.len()
            && pairs.into_iter().all(|pair| match pair {
                (Some(one), Some(other)) => one == other || values(one, other),
                (one, other) => one.is_none() && other.is_none(),
            })
    };
    if count != other || rows.len() != others.len() {
        return false;
    }
    if statement.is_ordered {
        return rows.iter().zip(others).all(|(one, other)| of_rows(one, other));
    }
    let mut left: Vec<_> = others.iter().collect();
    rows.iter().all(|row| {
        let same = left.iter().position(|other| row == *other);
        let at = same.or_else(|| left.iter().position(|other| of_rows(row, other)));
        at.map(|at| left.swap_remove(at)).is_some()
    })
}

/// Whether the second text is the first one, padded to the length of a `char(n)`.
fn is_shorn(ours: &str, theirs: &str) -> bool {
    theirs.strip_prefix(ours).is_some_and(|blanks| blanks.bytes().all(|byte| byte == b' '))
}

/// Whether the texts are of one `real`.
fn is_same_real(ours: &str, theirs: &str) -> bool {
    let [ours, theirs] = [ours, theirs].map(str::parse::<f32>);
    ours.is_ok_and(|ours| theirs.is_ok_and(|theirs| ours.to_bits() == theirs.to_bits()))
}

fn says(answer: &Answer, what: &str) -> bool {
    matches!(answer, Answer::Failed { message, .. } if message.contains(what))
}

/// The first that explains a difference.
pub fn explanation(statement: &Statement, ours: &Answer, theirs: &Answer) -> Option<&'static str> {
    KNOWN.iter().find(|known| (known.explains)(statement, ours, theirs)).map(|known| known.why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(rows: &[&[&str]]) -> Answer {
        let rows: Vec<Vec<_>> = rows.iter().map(|row| row.iter().map(|it| Some((*it).to_owned())).collect()).collect();
        Answer::Done { count: rows.len() as u64, rows }
    }

    fn is_known(text: &str, is_ordered: bool, ours: &[&[&str]], theirs: &[&[&str]]) -> bool {
        let statement = Statement { text: text.into(), parameters: Vec::new(), is_ordered, has_rows: true };
        explanation(&statement, &done(ours), &done(theirs)).is_some()
    }

    #[test]
    fn blanks_explain_no_other_order_and_no_other_value() {
        let (ours, theirs): (&[&[&str]], &[&[&str]]) = (&[&["a"], &["b"]], &[&["a   "], &["b   "]]);
        let turned: &[&[&str]] = &[&["b   "], &["a   "]];
        assert!(is_known("SELECT", true, ours, theirs) && is_known("SELECT", false, ours, turned));
        assert!(!is_known("SELECT", true, ours, turned));
        // Blanks that the database has and PostgreSQL has not are a fault, as are those in front.
        assert!(!is_known("SELECT", false, theirs, ours));
        assert!(!is_known("SELECT", false, &[&["a"]], &[&[" a"]]));
        assert!(!is_known("SELECT", false, &[&["a"], &["a"]], &[&["a   "]]));
        assert!(!is_known("SELECT", false, &[&["a"], &["a"]], &[&["a   "], &["b   "]]));
    }

    #[test]
    fn texts_of_floats_explain_no_other_order() {
        let (ours, theirs): (&[&[&str]], &[&[&str]]) = (&[&["1.0000001"], &["2"]], &[&["1.00000012"], &["2"]]);
        assert!(is_known("SELECT 1::real", true, ours, theirs));
        assert!(!is_known("SELECT 1::real", true, ours, &[&["2"], &["1.00000012"]]));
        assert!(!is_known("SELECT 1::real", true, ours, &[&["1.1"], &["2"]]));
    }
}
