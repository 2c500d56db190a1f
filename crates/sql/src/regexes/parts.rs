//! Which part of a match each group has.
//!
//! The whole match is known when a group is looked for, so each part has a range to fill. Of several ways a part takes the longest or the shortest
//! one, as it prefers, that leaves the parts behind it something to match; parts in front come first. One pass forward over the range tells where
//! the part may end, and one pass backward where the rest may begin, so nothing is tried in vain.

use super::automata::{Automaton, Builder};
use super::tree::{Node, Preference};
use crate::error::SqlError;

/// A range of bytes for each group, if it has one.
pub(super) type Groups = [Option<(usize, usize)>];

/// A part with groups in it.
#[derive(Debug)]
pub(super) enum Part {
    /// It has no groups.
    Plain,
    Group(usize, Box<Part>),
    Either(Vec<(Automaton, Part)>),
    Sequence(Vec<Step>),
    Loop(Box<Step>),
}

/// What is first in a range, with what follows.
#[derive(Debug)]
pub(super) struct Step {
    first: Automaton,
    /// Matches backward what follows.
    rest: Automaton,
    is_shortest: bool,
    part: Part,
    /// What follows; of a loop the same again.
    last: Part,
}

impl Part {
    pub(super) fn new(node: &Node, builder: &mut Builder) -> Result<Self, SqlError> {
        if !node.has_groups() {
            return Ok(Self::Plain);
        }
        match node {
            Node::Empty | Node::Letter(_) | Node::Place(_) => Ok(Self::Plain),
            Node::Group(None, of) => Self::new(of, builder),
            Node::Group(Some(number), of) => Ok(Self::Group(*number, Box::new(Self::new(of, builder)?))),
            Node::Either(branches) => {
                let branches = branches.iter().map(|it| Ok((builder.forward(&it.hir())?, Self::new(it, builder)?)));
                Ok(Self::Either(branches.collect::<Result<_, SqlError>>()?))
            }
            Node::Sequence(parts) => Self::sequence(parts, builder),
            Node::Repeated { most: Some(0), .. } => Ok(Self::Plain),
            Node::Repeated { of, least: 1, most: Some(1), .. } => Self::new(of, builder),
            Node::Repeated { of, least: 0, most: Some(1), .. } => {
                let branches =
                    [&**of, &Node::Empty].map(|it| Ok((builder.forward(&it.hir())?, Self::new(it, builder)?)));
                Ok(Self::Either(branches.into_iter().collect::<Result<_, SqlError>>()?))
            }
            Node::Repeated { of, least: 0, most: None, .. } => Ok(Self::Loop(Box::new(Step {
                first: builder.forward(&of.hir())?,
                rest: builder.backward(&node.hir())?,
                is_shortest: of.preference() == Some(Preference::Shortest),
                part: Self::new(of, builder)?,
                last: Self::Plain,
            }))),
            // Only what the last time has counts, so all times before it are one part.
            Node::Repeated { of, least, most, prefers } => {
                let (least, most) = (least.saturating_sub(1), most.map(|most| most - 1));
                let before = Node::Repeated { of: of.clone(), least, most, prefers: *prefers };
                let step = Step::new((&before, Self::Plain), (of, Self::new(of, builder)?), builder)?;
                Ok(Self::Sequence(vec![step]))
            }
        }
    }

    fn sequence(parts: &[Node], builder: &mut Builder) -> Result<Self, SqlError> {
        // Behind the last group the rest of the range is as it is.
        let Some(last) = parts.iter().rposition(Node::has_groups) else { return Ok(Self::Plain) };
        let mut runs = runs(&parts[..=last]);
        if last + 1 < parts.len() {
            runs.push(Node::Sequence(parts[last + 1..].to_vec()));
        }
        let Some(end) = runs.pop() else { return Ok(Self::Plain) };
        let Some(before) = runs.pop() else { return Self::new(&end, builder) };
        let mut steps =
            vec![Step::new((&before, Self::new(&before, builder)?), (&end, Self::new(&end, builder)?), builder)?];
        let mut rest = Node::Sequence(vec![before, end]);
        while let Some(first) = runs.pop() {
            steps.push(Step::new((&first, Self::new(&first, builder)?), (&rest, Self::Plain), builder)?);
            rest = Node::Sequence(vec![first, rest]);
        }
        steps.reverse();
        Ok(Self::Sequence(steps))
    }

    /// Fills in the groups; the part matches the range.
    pub(super) fn fill(
        &mut self,
        text: &str,
        (mut start, end): (usize, usize),
        groups: &mut Groups,
    ) -> Result<(), SqlError> {
        match self {
            Self::Plain => Ok(()),
            Self::Group(number, of) => {
                groups[*number] = Some((start, end));
                of.fill(text, (start, end), groups)
            }
            Self::Either(branches) => {
                for (automaton, part) in branches {
                    if automaton.is_all(text, (start, end))? {
                        return part.fill(text, (start, end), groups);
                    }
                }
                Ok(())
            }
            Self::Sequence(steps) => {
                for step in &mut *steps {
                    let Some(middle) = step.middle(text, (start, end), false)? else { return Ok(()) };
                    step.part.fill(text, (start, middle), groups)?;
                    start = middle;
                }
                let last = steps.last_mut().map(|step| &mut step.last);
                last.map_or(Ok(()), |last| last.fill(text, (start, end), groups))
            }
            Self::Loop(step) => {
                // Where there is nothing to match, it is matched once, if that can be.
                let is_nothing = start == end && step.first.is_all(text, (start, end))?;
                let mut last = is_nothing.then_some((start, end));
                while start < end
                    && let Some(middle) = step.middle(text, (start, end), true)?
                {
                    last = Some((start, middle));
                    start = middle;
                }
                last.map_or(Ok(()), |range| step.part.fill(text, range, groups))
            }
        }
    }
}

impl Step {
    fn new((first, part): (&Node, Part), (rest, last): (&Node, Part), builder: &mut Builder) -> Result<Self, SqlError> {
        Ok(Self {
            first: builder.forward(&first.hir())?,
            rest: builder.backward(&rest.hir())?,
            is_shortest: first.preference() == Some(Preference::Shortest),
            part,
            last,
        })
    }

    /// Where the first part ends, if both can match; behind the beginning where it has to go on.
    fn middle(&mut self, text: &str, (start, end): (usize, usize), goes_on: bool) -> Result<Option<usize>, SqlError> {
        let ends = self.first.ends(text, (start, end))?;
        // From the last one on.
        let beginnings = self.rest.beginnings(text, (start, end))?;
        let fits = |at: &&usize| (**at > start || !goes_on) && beginnings.binary_search_by(|it| at.cmp(&it)).is_ok();
        let mut found = ends.iter();
        let found = if self.is_shortest { found.find(fits) } else { found.rfind(fits) };
        Ok(found.copied())
    }
}

/// Parts without groups beside each other match as one, as long as all in them prefer the same.
fn runs(parts: &[Node]) -> Vec<Node> {
    let mut runs: Vec<Node> = Vec::new();
    let mut open: Vec<Node> = Vec::new();
    let mut preferred = None;
    let close = |open: &mut Vec<Node>, runs: &mut Vec<Node>| {
        if !open.is_empty() {
            runs.push(Node::Sequence(std::mem::take(open)));
        }
    };
    for part in parts {
        let mut all = Vec::new();
        part.preferences(&mut all);
        all.dedup();
        if part.has_groups() || all.len() > 1 {
            close(&mut open, &mut runs);
            runs.push(part.clone());
            preferred = None;
            continue;
        }
        if preferred.is_some() && all.first().is_some_and(|it| Some(*it) != preferred) {
            close(&mut open, &mut runs);
            preferred = None;
        }
        preferred = preferred.or_else(|| all.first().copied());
        open.push(part.clone());
    }
    close(&mut open, &mut runs);
    runs
}
