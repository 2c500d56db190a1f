//! What is wrong, all of it, so that it can be corrected at once.

use std::fmt::Display;

use proc_macro2::Span;
use syn::meta::ParseNestedMeta;
use syn::{Error, Ident, Result};

/// Errors that were found so far.
#[derive(Default)]
pub(crate) struct Problems(Option<Error>);

impl Problems {
    pub(crate) fn add(&mut self, span: Span, what: impl Display) {
        self.combine(Error::new(span, what));
    }

    fn combine(&mut self, error: Error) {
        match &mut self.0 {
            Some(all) => all.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// The value, or nothing when there is a problem instead.
    pub(crate) fn take<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.combine(error)).ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn finish(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}

/// The options of one attribute that were met, each of which may stand there once.
pub(crate) struct Options {
    known: &'static [&'static str],
    met: Vec<&'static str>,
}

impl Options {
    pub(crate) fn new(known: &'static [&'static str]) -> Self {
        Self { known, met: Vec::new() }
    }

    /// The name of the option.
    pub(crate) fn next(&mut self, meta: &ParseNestedMeta<'_>) -> Result<&'static str> {
        let Some(name) = self.known.iter().find(|name| meta.path.is_ident(name)) else {
            return Err(meta.error(format!("there is no such option: expected {}", listed(self.known.iter()))));
        };
        if self.met.contains(name) {
            return Err(meta.error(format!("`{name}` stands here twice: remove one")));
        }
        self.met.push(name);
        Ok(name)
    }
}

/// Names in a sentence.
pub(crate) fn listed<T: Display>(names: impl ExactSizeIterator<Item = T>) -> String {
    let count = names.len();
    let mut text = String::new();
    for (at, name) in names.enumerate() {
        text += match at {
            0 => "",
            _ if at + 1 == count => " or ",
            _ => ", ",
        };
        text += &format!("`{name}`");
    }
    text
}

/// That a name is not among those of the columns.
pub(crate) fn unknown_column(row: &Ident, wanted: &Ident, names: &[&Ident]) -> Error {
    let text = wanted.to_string();
    let nearest =
        names.iter().map(|name| (distance(&text, &name.to_string()), name)).min_by_key(|(distance, _)| *distance);
    let what = match nearest {
        Some((distance, name)) if distance <= text.len().div_ceil(3) => {
            format!("`{row}` has no column `{wanted}`: did you mean `{name}`?")
        }
        _ if names.len() <= 12 => format!("`{row}` has no column `{wanted}`: it has {}", listed(names.iter())),
        _ => format!("`{row}` has no column `{wanted}`: name one of its fields"),
    };
    Error::new(wanted.span(), what)
}

/// How many characters are to be put in, taken out or changed.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, character) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, candidate) in other.iter().enumerate() {
            let changed = diagonal + usize::from(character != *candidate);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}
