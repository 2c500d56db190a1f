//! What a regular expression is made of, and which of several matches each part prefers.

use regex_syntax::hir::{Class, ClassUnicode, Hir, Look, Repetition};

/// Which of several matches that begin at one place is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preference {
    Longest,
    Shortest,
}

/// A part of an expression.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// Nothing, which matches everywhere.
    Empty,
    /// One character of these.
    Letter(ClassUnicode),
    /// A place in the text.
    Place(Look),
    /// What stands in parentheses, with the number of the group where it is one.
    Group(Option<usize>, Box<Node>),
    /// So often what is within; a number that is given alone prefers nothing.
    Repeated { of: Box<Node>, least: u32, most: Option<u32>, prefers: Option<Preference> },
    /// One behind the other.
    Sequence(Vec<Node>),
    /// One of them.
    Either(Vec<Node>),
}

impl Node {
    /// What it prefers: a sequence what its first part with a preference does, and a choice the longest match.
    pub(super) fn preference(&self) -> Option<Preference> {
        match self {
            Self::Empty | Self::Letter(_) | Self::Place(_) => None,
            Self::Group(_, of) => of.preference(),
            Self::Repeated { of, prefers, .. } => prefers.or_else(|| of.preference()),
            Self::Sequence(parts) => parts.iter().find_map(Self::preference),
            Self::Either(_) => Some(Preference::Longest),
        }
    }

    /// What it and all in it prefer.
    pub(super) fn preferences(&self, all: &mut Vec<Preference>) {
        match self {
            Self::Empty | Self::Letter(_) | Self::Place(_) => {}
            Self::Group(_, of) => of.preferences(all),
            Self::Repeated { of, prefers, .. } => {
                all.extend(*prefers);
                of.preferences(all);
            }
            Self::Sequence(parts) => parts.iter().for_each(|it| it.preferences(all)),
            Self::Either(parts) => {
                all.push(Preference::Longest);
                parts.iter().for_each(|it| it.preferences(all));
            }
        }
    }

    /// Whether it has groups with numbers.
    pub(super) fn has_groups(&self) -> bool {
        match self {
            Self::Empty | Self::Letter(_) | Self::Place(_) => false,
            Self::Group(number, of) => number.is_some() || of.has_groups(),
            Self::Repeated { of, .. } => of.has_groups(),
            Self::Sequence(parts) | Self::Either(parts) => parts.iter().any(Self::has_groups),
        }
    }

    /// The same for an automaton, which knows neither groups nor preferences.
    pub(super) fn hir(&self) -> Hir {
        match self {
            Self::Empty => Hir::empty(),
            Self::Letter(class) => Hir::class(Class::Unicode(class.clone())),
            Self::Place(look) => Hir::look(*look),
            Self::Group(_, of) => of.hir(),
            Self::Repeated { of, least, most, .. } => {
                Hir::repetition(Repetition { min: *least, max: *most, greedy: true, sub: Box::new(of.hir()) })
            }
            Self::Sequence(parts) => Hir::concat(parts.iter().map(Self::hir).collect()),
            Self::Either(parts) => Hir::alternation(parts.iter().map(Self::hir).collect()),
        }
    }
}
