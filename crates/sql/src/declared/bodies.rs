//! What a call declares: its body is followed with the values of the arguments, as far as they lead.
//!
//! What a row decides is not known. Of a branch that depends on it all ways are followed, and a loop that does is followed once; afterwards the variables that were set
//! there are unknown. So all that the call may write is met.

use super::{Declaring, Given};
use crate::datum::{Datum, OwnedDatum};
use crate::procedures::statements::Level;
use crate::procedures::tree::{Act, Destination, FOUND, Put, Query, Routine, Step, Value};
use crate::procedures::{Call, Unit};

/// How many calls in each other are followed.
const DEPTH: usize = 50;

/// What comes behind a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Step,
    Behind(usize),
    Round(usize),
    Return,
    /// The call fails, and nothing of it remains.
    Fails,
}

/// The variables of a routine, as far as they are known.
struct Frame<'r> {
    unit: &'r Unit,
    slots: Vec<Option<OwnedDatum>>,
    /// The variables that were set, in the order in which they were.
    set: Vec<usize>,
    /// In how many parts that may not run this is.
    doubts: usize,
    /// Something was left that may not have been: what is set behind it may not have been set.
    may_have_left: bool,
}

impl Frame<'_> {
    fn set(&mut self, slot: usize, value: Option<OwnedDatum>) {
        self.slots[slot] = value;
        self.set.push(slot);
    }

    /// Forgets what was set since then.
    fn forget(&mut self, since: usize) {
        for at in since..self.set.len() {
            self.slots[self.set[at]] = None;
        }
    }
}

impl Declaring<'_> {
    pub(super) fn call(&mut self, call: &Call, given: Given<'_>) {
        let inputs = call.arguments.iter().map(|expr| self.value(expr, given).map(|value| value.owned())).collect();
        self.routine(&call.unit, 0, inputs);
    }

    /// Follows a routine, and tells what is known of its outputs.
    fn routine(&mut self, unit: &Unit, at: usize, inputs: Vec<Option<OwnedDatum>>) -> Vec<Option<OwnedDatum>> {
        let routine: &Routine = &unit.routines[at];
        self.depth += 1;
        if self.depth > DEPTH {
            self.unknown("calls deep in each other", None);
            self.depth -= 1;
            return vec![None; routine.outputs.len()];
        }
        let mut slots = vec![Some(OwnedDatum::NULL); routine.slots.len()];
        if let Some(found) = slots.get_mut(FOUND) {
            *found = Some(OwnedDatum::Plain(Datum::Bool(false)));
        }
        let mut frame = Frame { unit, slots, set: Vec::new(), doubts: 0, may_have_left: false };
        for (slot, value) in routine.inputs.iter().zip(inputs) {
            frame.slots[*slot] = value;
        }
        self.steps(&mut frame, &routine.body);
        if frame.may_have_left {
            frame.forget(0);
        }
        self.depth -= 1;
        routine.outputs.iter().map(|slot| frame.slots[*slot].clone()).collect()
    }

    fn steps(&mut self, frame: &mut Frame<'_>, steps: &[Step]) -> Next {
        for step in steps {
            if !self.step() {
                return Next::Fails;
            }
            match self.act(frame, &step.act) {
                Next::Step => {}
                // Nothing remains of a call that ends so.
                Next::Fails => return Next::Fails,
                // Where it is not known whether this is reached, what follows may be.
                _ if frame.doubts > 0 => frame.may_have_left = true,
                next => return next,
            }
        }
        Next::Step
    }

    /// Follows something that may not run, or not as often.
    fn in_doubt(&mut self, frame: &mut Frame<'_>, steps: &[Step]) {
        frame.doubts += 1;
        self.steps(frame, steps);
        frame.doubts -= 1;
    }

    fn evaluated(&self, frame: &Frame<'_>, value: &Value) -> Option<OwnedDatum> {
        let expr = value.expr.as_ref().ok()?;
        Self::with(frame, &value.uses, |given| self.value(expr, given).map(|value| value.owned()))
    }

    /// Lends the variables as parameters.
    fn with<O>(frame: &Frame<'_>, uses: &[usize], run: impl FnOnce(Given<'_>) -> O) -> O {
        let known = |at: usize| uses.get(at).is_some_and(|slot| frame.slots[*slot].is_some());
        let values: Vec<_> =
            uses.iter().map(|slot| frame.slots[*slot].as_ref().map_or(Datum::Null, OwnedDatum::get)).collect();
        run(Given { values: &values, is_known: &known })
    }

    fn query(&mut self, frame: &Frame<'_>, query: &Query) {
        Self::with(frame, &query.uses, |given| self.plan(&query.plan, given));
    }

    /// Whether a condition holds, if that is known.
    fn holds(&self, frame: &Frame<'_>, condition: &Value) -> Option<bool> {
        self.evaluated(frame, condition).map(|value| matches!(value.get(), Datum::Bool(true)))
    }

    fn act(&mut self, frame: &mut Frame<'_>, act: &Act) -> Next {
        match act {
            Act::Nothing => {}
            Act::Fail(_) => return Next::Fails,
            Act::Return => return Next::Return,
            Act::Set { slot, value, .. } => {
                let value = self.evaluated(frame, value);
                frame.set(*slot, value);
            }
            Act::Block { id, body } => {
                let since = frame.set.len();
                let next = self.steps(frame, body);
                if frame.may_have_left {
                    frame.forget(since);
                }
                return if next == Next::Behind(*id) { Next::Step } else { next };
            }
            Act::If { branches, otherwise } => return self.branches(frame, branches, otherwise),
            Act::Loop { id, condition, body } => return self.endless(frame, *id, condition.as_ref(), body),
            Act::Range { .. } => return self.range(frame, act),
            Act::Rows { query, puts, body, .. } => {
                self.query(frame, query);
                self.some_rounds(frame, body, |frame| puts.iter().for_each(|put| frame.set(put.slot, None)));
                frame.set(FOUND, None);
            }
            Act::Leave { id, is_continue, when } => {
                let goes = when.as_ref().map_or(Some(true), |when| self.holds(frame, when));
                let next = if *is_continue { Next::Round(*id) } else { Next::Behind(*id) };
                match goes {
                    Some(true) => return next,
                    Some(false) => {}
                    None => frame.may_have_left = true,
                }
            }
            Act::Raise(raising) if raising.level == Level::Exception => return Next::Fails,
            Act::Raise(_) => {}
            Act::Run { query, into } => {
                self.query(frame, query);
                if let Destination::Variables { puts, .. } | Destination::Outputs(puts) = into {
                    puts.iter().for_each(|put| frame.set(put.slot, None));
                }
                frame.set(FOUND, None);
            }
            Act::Call { routine, arguments, puts } => {
                let inputs = arguments.iter().map(|value| self.evaluated(frame, value)).collect();
                let outputs = self.routine(frame.unit, *routine, inputs);
                self.put(frame, puts, &outputs);
            }
            Act::CountRows(put) => frame.set(put.slot, None),
        }
        Next::Step
    }

    fn put(&self, frame: &mut Frame<'_>, puts: &[Put], row: &[Option<OwnedDatum>]) {
        for put in puts {
            let nothing = Given { values: &[], is_known: &|_| false };
            let value = self.value_over(&put.expr, nothing, Some(row)).map(|value| value.owned());
            frame.set(put.slot, value);
        }
    }

    fn branches(&mut self, frame: &mut Frame<'_>, branches: &[(Value, Vec<Step>)], otherwise: &[Step]) -> Next {
        let since = frame.set.len();
        let mut before = None;
        for (condition, body) in branches {
            match (self.holds(frame, condition), &before) {
                (Some(false), _) => continue,
                (Some(true), None) => return self.steps(frame, body),
                _ => {}
            }
            let slots = before.get_or_insert_with(|| frame.slots.clone()).clone();
            self.in_doubt(frame, body);
            frame.slots = slots;
        }
        if before.is_none() {
            return self.steps(frame, otherwise);
        }
        self.in_doubt(frame, otherwise);
        frame.slots = before.unwrap_or_default();
        frame.forget(since);
        Next::Step
    }

    /// A loop whose rounds are not known: what it sets is unknown in each of them, and behind it.
    fn some_rounds(&mut self, frame: &mut Frame<'_>, body: &[Step], begin: impl Fn(&mut Frame<'_>)) {
        let since = frame.set.len();
        begin(frame);
        for slot in assigned(body) {
            frame.set(slot, None);
        }
        self.rounds += 1;
        self.in_doubt(frame, body);
        self.rounds -= 1;
        frame.forget(since);
    }

    /// What comes behind a round of a loop: `None` is the next round.
    fn behind_round(next: Next, id: usize) -> Option<Next> {
        match next {
            Next::Step => None,
            Next::Round(own) if own == id => None,
            Next::Behind(own) if own == id => Some(Next::Step),
            other => Some(other),
        }
    }

    fn endless(&mut self, frame: &mut Frame<'_>, id: usize, condition: Option<&Value>, body: &[Step]) -> Next {
        let since = frame.set.len();
        loop {
            if !self.step() {
                return Next::Fails;
            }
            let goes_on = condition.map_or(Some(true), |condition| self.holds(frame, condition));
            match goes_on {
                Some(false) => break,
                Some(true) if !frame.may_have_left => {}
                _ => {
                    self.some_rounds(frame, body, |_| ());
                    break;
                }
            }
            let next = self.steps(frame, body);
            if frame.may_have_left {
                // How many rounds there are is not known.
                self.some_rounds(frame, body, |_| ());
                break;
            }
            if let Some(next) = Self::behind_round(next, id) {
                return next;
            }
        }
        if frame.may_have_left {
            frame.forget(since);
        }
        Next::Step
    }

    fn range(&mut self, frame: &mut Frame<'_>, act: &Act) -> Next {
        let Act::Range { id, slot, is_reverse, bounds, body } = act else { return Next::Step };
        let number = |own: &Self, frame: &Frame<'_>, at: usize| match own.evaluated(frame, &bounds[at])?.get() {
            Datum::Int(number) => Some(number),
            _ => None,
        };
        let numbers = [number(self, frame, 0), number(self, frame, 1), number(self, frame, 2)];
        let [Some(mut at), Some(end), Some(step)] = numbers else {
            self.some_rounds(frame, body, |frame| frame.set(*slot, None));
            frame.set(FOUND, None);
            return Next::Step;
        };
        if step <= 0 {
            return Next::Fails;
        }
        let (since, mut found, mut next) = (frame.set.len(), false, Next::Step);
        while if *is_reverse { at >= end } else { at <= end } {
            found = true;
            if !self.step() {
                return Next::Fails;
            }
            frame.set(*slot, Some(OwnedDatum::Plain(Datum::Int(at))));
            let round = self.steps(frame, body);
            if frame.may_have_left {
                // The next round may come after any part of this one.
                frame.forget(since);
            }
            if let Some(behind) = Self::behind_round(round, *id) {
                next = behind;
                break;
            }
            let Some(following) = at.checked_add(if *is_reverse { -step } else { step }) else { break };
            at = following;
        }
        frame.set(FOUND, Some(OwnedDatum::Plain(Datum::Bool(found))).filter(|_| !frame.may_have_left));
        next
    }
}

/// The variables that steps may set.
fn assigned(steps: &[Step]) -> Vec<usize> {
    let mut slots = vec![FOUND];
    let puts = |puts: &[Put], slots: &mut Vec<usize>| slots.extend(puts.iter().map(|put| put.slot));
    for step in steps {
        match &step.act {
            Act::Set { slot, .. } => slots.push(*slot),
            Act::Block { body, .. } | Act::Loop { body, .. } => slots.extend(assigned(body)),
            Act::If { branches, otherwise } => {
                branches.iter().for_each(|(_, body)| slots.extend(assigned(body)));
                slots.extend(assigned(otherwise));
            }
            Act::Range { slot, body, .. } => {
                slots.push(*slot);
                slots.extend(assigned(body));
            }
            Act::Rows { puts: own, body, .. } => {
                puts(own, &mut slots);
                slots.extend(assigned(body));
            }
            Act::Run { into: Destination::Variables { puts: own, .. } | Destination::Outputs(own), .. } => {
                puts(own, &mut slots);
            }
            Act::Call { puts: own, .. } => puts(own, &mut slots),
            Act::CountRows(put) => slots.push(put.slot),
            Act::Nothing | Act::Fail(_) | Act::Leave { .. } | Act::Return | Act::Raise(_) | Act::Run { .. } => {}
        }
    }
    slots
}
