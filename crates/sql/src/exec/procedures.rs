//! Runs the bodies of procedures.
//!
//! Each statement of a body is an execution of its own in the call's transaction. The rows of a loop are gathered before its body runs first, so that it
//! does not meet what the body writes.

use bumpalo::Bump;
use polychron_engine::limits;

use super::{Exec, Flow, Rows, Shared, Sink, execute, owned};
use crate::access::Access;
use crate::context::{Context, Now};
use crate::datum::{Datum, OwnedDatum};
use crate::error::{SqlError, SqlState};
use crate::exec::Failure;
use crate::outcome::Notice;
use crate::plan::Plan;
use crate::procedures::raise::state_of;
use crate::procedures::statements::{Level, RaiseOption};
use crate::procedures::tree::{Act, Destination, FOUND, Put, Query, Raising, Routine, Step, Value};
use crate::procedures::{Call, Unit};
use crate::text::Zone;

/// How deeply statements and calls may be in each other.
const DEPTH: usize = 200;

/// How many steps a call may take.
const STEPS: u64 = if cfg!(test) { 100_000 } else { 1_000_000_000 };

/// How many steps are taken between two looks at the limits of the thread.
const STEPS_UNSEEN: u64 = 256;

/// What comes behind a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Step,
    /// What is behind the loop or the block of this number.
    Behind(usize),
    /// The next round of the loop of this number.
    Round(usize),
    Return,
}

/// A call under way.
struct Machine<'t> {
    unit: &'t Unit,
    /// The statement that the whole call is: it has the memory and the notices.
    whole: Exec<'t>,
    access: &'t dyn Access,
    zone: &'t Zone,
    now: Now<'t>,
    depth: usize,
    steps: u64,
    arenas: Vec<Bump>,
}

/// The variables of a routine under way.
struct Frame<'t> {
    routine: &'t Routine,
    slots: Vec<OwnedDatum>,
    /// Bytes that they take.
    bytes: usize,
    row_count: u64,
    /// The step that runs.
    line: u32,
    title: &'static str,
}

/// Runs a call, and gives its outputs to `out`.
pub(super) fn call(
    call: &Call,
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<u64, Failure> {
    let mut inputs = Vec::with_capacity(call.arguments.len());
    for argument in &call.arguments {
        inputs.push(argument.eval(&[], context)?.owned());
    }
    let mut machine = Machine {
        unit: &call.unit,
        whole: *exec,
        access: exec.access,
        zone: context.zone,
        now: context.now,
        depth: 0,
        steps: 0,
        arenas: Vec::new(),
    };
    let outputs = machine.routine(0, inputs)?;
    if outputs.is_empty() {
        return Ok(0);
    }
    let row: Vec<_> = outputs.iter().map(OwnedDatum::get).collect();
    out(exec, &row)?;
    Ok(1)
}

/// Bytes of a value beside the variable itself.
fn is_true(value: &OwnedDatum) -> bool {
    matches!(value.get(), Datum::Bool(true))
}

fn too_deep() -> SqlError {
    SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
        .with_hint(format!("Statements and calls of procedures may be {DEPTH} times in each other."))
}

// Calls and statements nest. What is not inlined does not add to the stack of those that are around others.
impl<'t> Machine<'t> {
    /// Runs a procedure, and gives its outputs.
    #[inline(never)]
    fn routine(&mut self, at: usize, inputs: Vec<OwnedDatum>) -> Result<Vec<OwnedDatum>, Failure> {
        let routine = &self.unit.routines[at];
        let mut slots = vec![OwnedDatum::NULL; routine.slots.len()];
        if let Some(found) = slots.get_mut(FOUND) {
            *found = OwnedDatum::Plain(Datum::Bool(false));
        }
        let mut frame = Frame { routine, slots, bytes: 0, row_count: 0, line: 1, title: "statement block" };
        for (slot, value) in routine.inputs.iter().zip(inputs) {
            self.set(&mut frame, *slot, value)?;
        }
        let done = self.steps(&mut frame, &routine.body);
        self.whole.forget(frame.bytes);
        match done {
            Ok(_) => Ok(routine.outputs.iter().map(|slot| frame.slots[*slot].clone()).collect()),
            Err(Failure::Sql(error)) => {
                let Frame { line, title, .. } = frame;
                let place = if routine.title.starts_with("SQL") {
                    format!("{} statement {line}", routine.title)
                } else {
                    format!("{} line {line} at {title}", routine.title)
                };
                Err(error.with_context(place).into())
            }
            Err(failure) => Err(failure),
        }
    }

    /// Counts a step: an endless loop ends with the limits of the thread, or with the number of its steps.
    fn count_step(&mut self) -> Result<(), Failure> {
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS_UNSEEN) {
            limits::check()?;
        }
        if self.steps > STEPS {
            let message = format!("a call of a procedure takes at most {STEPS} steps");
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message).into());
        }
        Ok(())
    }

    fn steps(&mut self, frame: &mut Frame<'t>, steps: &'t [Step]) -> Result<Next, Failure> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(too_deep().into());
        }
        let mut next = Next::Step;
        for step in steps {
            self.count_step()?;
            (frame.line, frame.title) = (step.line, step.act.title());
            next = self.act(frame, &step.act)?;
            if next != Next::Step {
                break;
            }
        }
        self.depth -= 1;
        Ok(next)
    }

    fn act(&mut self, frame: &mut Frame<'t>, act: &'t Act) -> Result<Next, Failure> {
        match act {
            Act::Nothing => {}
            Act::Fail(error) => return Err(error.clone().into()),
            Act::Return => return Ok(Next::Return),
            Act::Set { slot, value, .. } => {
                let value = self.value(frame, value)?;
                self.set(frame, *slot, value)?;
            }
            Act::Block { id, body } => {
                let next = self.steps(frame, body)?;
                return Ok(if next == Next::Behind(*id) { Next::Step } else { next });
            }
            Act::If { branches, otherwise } => {
                for (condition, body) in branches {
                    if is_true(&self.value(frame, condition)?) {
                        return self.steps(frame, body);
                    }
                }
                return self.steps(frame, otherwise);
            }
            Act::Loop { id, condition, body } => return self.endless(frame, *id, condition.as_ref(), body),
            Act::Range { .. } => return self.range(frame, act),
            Act::Rows { id, query, puts, body } => return self.rows(frame, *id, query, (puts, body)),
            Act::Leave { id, is_continue, when } => {
                let goes = match when {
                    Some(when) => is_true(&self.value(frame, when)?),
                    None => true,
                };
                return Ok(match (goes, is_continue) {
                    (false, _) => Next::Step,
                    (true, true) => Next::Round(*id),
                    (true, false) => Next::Behind(*id),
                });
            }
            Act::Raise(raising) => self.raise(frame, raising)?,
            Act::Run { query, into } => self.run(frame, query, into)?,
            Act::Call { routine, arguments, puts } => {
                let inputs = arguments.iter().map(|it| self.value(frame, it)).collect::<Result<_, _>>()?;
                let outputs = self.routine(*routine, inputs)?;
                self.put(frame, puts, Some(&outputs))?;
            }
            Act::CountRows(put) => {
                let count = OwnedDatum::Plain(Datum::Int(i64::try_from(frame.row_count).unwrap_or(i64::MAX)));
                self.put(frame, std::slice::from_ref(put), Some(&[count]))?;
            }
        }
        Ok(Next::Step)
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

    #[inline(never)]
    fn endless(
        &mut self,
        frame: &mut Frame<'t>,
        id: usize,
        condition: Option<&'t Value>,
        body: &'t [Step],
    ) -> Result<Next, Failure> {
        let (line, title) = (frame.line, frame.title);
        loop {
            self.count_step()?;
            (frame.line, frame.title) = (line, title);
            if let Some(condition) = condition
                && !is_true(&self.value(frame, condition)?)
            {
                return Ok(Next::Step);
            }
            let next = self.steps(frame, body)?;
            if let Some(next) = Self::behind_round(next, id) {
                return Ok(next);
            }
        }
    }

    #[inline(never)]
    fn range(&mut self, frame: &mut Frame<'t>, act: &'t Act) -> Result<Next, Failure> {
        let Act::Range { id, slot, is_reverse, bounds, body } = act else { return Ok(Next::Step) };
        let mut numbers = [0_i64; 3];
        for ((number, bound), name) in numbers.iter_mut().zip(&**bounds).zip(["lower bound", "upper bound", "BY value"])
        {
            let value = self.value(frame, bound)?;
            let Datum::Int(known) = value.get() else {
                let message = format!("{name} of FOR loop cannot be null");
                return Err(SqlError::new(SqlState("22004"), message).into());
            };
            *number = known;
        }
        let [mut at, end, step] = numbers;
        if step <= 0 {
            let message = "BY value of FOR loop must be greater than zero";
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).into());
        }
        let (mut found, mut next) = (false, Next::Step);
        while if *is_reverse { at >= end } else { at <= end } {
            found = true;
            self.count_step()?;
            frame.slots[*slot] = OwnedDatum::Plain(Datum::Int(at));
            let round = self.steps(frame, body)?;
            if let Some(behind) = Self::behind_round(round, *id) {
                next = behind;
                break;
            }
            // Both are of 32 bits.
            at += if *is_reverse { -step } else { step };
        }
        Self::set_found(frame, found);
        Ok(next)
    }

    #[inline(never)]
    fn rows(
        &mut self,
        frame: &mut Frame<'t>,
        id: usize,
        query: &'t Query,
        (puts, body): (&'t [Put], &'t [Step]),
    ) -> Result<Next, Failure> {
        let (mut rows, mut bytes, whole) = (Rows::new(), 0, self.whole);
        self.execute(frame, query, &mut |row| {
            bytes += whole.keep(row)?;
            rows.push(owned(row));
            Ok(Flow::More)
        })?;
        let (found, mut next) = (!rows.is_empty(), Next::Step);
        if rows.is_empty() {
            self.put(frame, puts, None)?;
        }
        for row in rows {
            self.count_step()?;
            self.put(frame, puts, Some(&row))?;
            let round = self.steps(frame, body)?;
            if let Some(behind) = Self::behind_round(round, id) {
                next = behind;
                break;
            }
        }
        whole.forget(bytes);
        Self::set_found(frame, found);
        Ok(next)
    }

    #[inline(never)]
    fn run(&mut self, frame: &mut Frame<'t>, query: &'t Query, into: &'t Destination) -> Result<(), Failure> {
        let is_query = matches!(query.plan, Plan::Query { .. });
        let (puts, is_strict, is_of_outputs) = match into {
            Destination::Variables { puts, is_strict } => (puts, *is_strict, false),
            Destination::Outputs(puts) => (puts, false, true),
            Destination::Nowhere => {
                let count = self.execute(frame, query, &mut |_| Ok(Flow::More))?;
                let count = if matches!(query.plan, Plan::Truncate(_)) { 0 } else { count };
                frame.row_count = count;
                Self::set_found(frame, count > 0);
                return Ok(());
            }
        };
        let (mut first, mut seen) = (None, 0_u64);
        let most = if is_strict { 2 } else { 1 };
        let changed = self.execute(frame, query, &mut |row| {
            seen += 1;
            if seen == 1 {
                first = Some(owned(row));
            }
            // A change is made whole.
            Ok(if is_query && seen >= most { Flow::Enough } else { Flow::More })
        })?;
        let is_checked = !is_of_outputs && (is_strict || !is_query);
        if seen > 1 && is_checked {
            let hint = "Make sure the query returns a single row, or use LIMIT 1.";
            return Err(SqlError::new(SqlState::TOO_MANY_ROWS, "query returned more than one row")
                .with_hint(hint)
                .into());
        }
        if seen == 0 && is_of_outputs {
            return Err(SqlError::internal("procedure returned null record").into());
        }
        if seen == 0 && is_strict {
            return Err(SqlError::new(SqlState::NO_DATA_FOUND, "query returned no rows").into());
        }
        self.put(frame, puts, first.as_deref())?;
        frame.row_count = if is_query { seen } else { changed };
        Self::set_found(frame, frame.row_count > 0);
        Ok(())
    }

    fn set_found(frame: &mut Frame<'t>, found: bool) {
        frame.slots[FOUND] = OwnedDatum::Plain(Datum::Bool(found));
    }

    fn set(&mut self, frame: &mut Frame<'t>, slot: usize, value: OwnedDatum) -> Result<(), Failure> {
        if let Some(name) = frame.routine.slots[slot].required.as_ref().filter(|_| value.get().is_null()) {
            let message = format!("null value cannot be assigned to variable \"{name}\" declared NOT NULL");
            return Err(SqlError::new(SqlState("22004"), message).into());
        }
        let (old, new) = (frame.slots[slot].bytes(), value.bytes());
        if new > 0 {
            self.whole.take(new)?;
        }
        self.whole.forget(old);
        frame.bytes = frame.bytes + new - old;
        frame.slots[slot] = value;
        Ok(())
    }

    /// Sets variables from a row; without one they become NULL.
    #[inline(never)]
    fn put(&mut self, frame: &mut Frame<'t>, puts: &'t [Put], row: Option<&[OwnedDatum]>) -> Result<(), Failure> {
        for put in puts {
            let value = match row {
                None => OwnedDatum::NULL,
                Some(row) => self.within(frame, &[], |_, context| {
                    let row: Vec<_> = row.iter().map(OwnedDatum::get).collect();
                    Ok(put.expr.eval(&row, context)?.owned())
                })?,
            };
            self.set(frame, put.slot, value)?;
        }
        Ok(())
    }

    #[inline(never)]
    fn value(&mut self, frame: &Frame<'t>, value: &Value) -> Result<OwnedDatum, Failure> {
        let expr = value.expr.as_ref().map_err(Clone::clone)?;
        self.within(frame, &value.uses, |_, context| Ok(expr.eval(&[], context)?.owned()))
    }

    #[inline(never)]
    fn execute(
        &mut self,
        frame: &Frame<'t>,
        query: &Query,
        each: &mut dyn FnMut(&[Datum<'_>]) -> Result<Flow, Failure>,
    ) -> Result<u64, Failure> {
        self.within(frame, &query.uses, |exec, context| execute(&query.plan, exec, context, &mut |_, row| each(row)))
    }

    /// Runs something as a statement of its own that has these variables as parameters.
    fn within<O>(
        &mut self,
        frame: &Frame<'_>,
        uses: &[usize],
        run: impl FnOnce(&mut Exec<'_>, &Context<'_>) -> Result<O, Failure>,
    ) -> Result<O, Failure> {
        let shared = Shared::with_arenas(std::mem::take(&mut self.arenas));
        let mut arena = shared.arenas.borrow_mut().pop().unwrap_or_default();
        let parameters: Vec<_> = uses.iter().map(|slot| frame.slots[*slot].get()).collect();
        let mut exec = Exec::new(self.access, &shared);
        let (zone, now) = (self.zone, self.now);
        let context = Context { arena: &arena, parameters: &parameters, outer: None, zone, now, exec: Some(exec) };
        let done = run(&mut exec, &context);
        let failure = shared.failure.take();
        arena.reset();
        self.arenas = shared.into_arenas(arena);
        match failure {
            Some(error) if done.is_err() => Err(Failure::Engine(error)),
            _ => done,
        }
    }

    #[inline(never)]
    fn raise(&mut self, frame: &Frame<'t>, raising: &Raising) -> Result<(), Failure> {
        if raising.condition.is_none() && raising.format.is_none() && raising.options.is_empty() {
            let message = "RAISE without parameters cannot be used outside an exception handler";
            return Err(SqlError::new(SqlState("0Z002"), message).into());
        }
        let mut message = raising.format.as_ref().map(|parts| parts[0].clone());
        let rest = raising.format.iter().flat_map(|parts| &parts[1..]);
        for (value, part) in raising.values.iter().zip(rest) {
            let text = self.words(frame, value)?;
            let message = message.get_or_insert_default();
            message.push_str(text.as_deref().unwrap_or("<NULL>"));
            message.push_str(part);
        }
        let mut condition = raising.condition.clone();
        let (mut detail, mut hint) = (None, None);
        for (option, value) in &raising.options {
            let text = self
                .words(frame, value)?
                .ok_or_else(|| SqlError::new(SqlState("22004"), "RAISE statement option cannot be null"))?;
            let (place, is_twice) = match option {
                RaiseOption::Message => (&mut message, raising.format.is_some()),
                RaiseOption::Detail => (&mut detail, false),
                RaiseOption::Hint => (&mut hint, false),
                RaiseOption::Code => (&mut condition, raising.condition.is_some()),
            };
            if is_twice || (place.is_some() && !matches!(option, RaiseOption::Message | RaiseOption::Code)) {
                let name = format!("{option:?}").to_uppercase().replace("CODE", "ERRCODE");
                return Err(
                    SqlError::new(SqlState::SYNTAX_ERROR, format!("RAISE option already specified: {name}")).into()
                );
            }
            *place = Some(text);
        }
        let state = match (&condition, raising.level) {
            (Some(condition), _) => state_of(condition)?,
            (None, Level::Exception) => SqlState::RAISE_EXCEPTION,
            (None, Level::Warning) => SqlState("01000"),
            (None, _) => SqlState::SUCCESS,
        };
        let message = message.or(condition).unwrap_or_else(|| state.code().to_owned());
        self.tell(raising.level, Notice { severity: "", state, message, detail, hint })
    }

    /// Ends with an error, or notes what the client is to be told.
    #[inline(never)]
    fn tell(&mut self, level: Level, notice: Notice) -> Result<(), Failure> {
        let severity = match level {
            Level::Silent => return Ok(()),
            Level::Info => "INFO",
            Level::Notice => "NOTICE",
            Level::Warning => "WARNING",
            Level::Exception => {
                let mut error = SqlError::new(notice.state, notice.message);
                if let Some(detail) = notice.detail {
                    error = error.with_detail(detail);
                }
                if let Some(hint) = notice.hint {
                    error = error.with_hint(hint);
                }
                return Err(error.into());
            }
        };
        self.whole.take(notice.message.len() + size_of::<Notice>())?;
        self.whole.shared.notices.borrow_mut().push(Notice { severity, ..notice });
        Ok(())
    }

    fn words(&mut self, frame: &Frame<'t>, value: &Value) -> Result<Option<String>, Failure> {
        let value = self.value(frame, value)?;
        Ok(match value.get() {
            Datum::Text(text) => Some(text.to_owned()),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use polychron_engine::{Common, Protocol};
    use polychron_protocols::serial::Serial;

    use super::STEPS;
    use crate::{Connection, SqlDatabase};

    #[test]
    fn steps_of_a_call_are_counted() {
        let options = <Serial as Protocol>::Options::default();
        let database = SqlDatabase::open(Serial::open(options, Common::default()).unwrap());
        let mut connection = Connection::open(&database).unwrap();
        for (body, ends) in [
            ("LOOP END LOOP", true),
            ("LOOP CALL p(); END LOOP", true),
            ("FOR i IN 1..200000 LOOP END LOOP", true),
            ("FOR i IN SELECT generate_series(1, 200000) LOOP END LOOP", true),
            ("FOR i IN 1..1000 LOOP NULL; END LOOP", false),
        ] {
            let text = format!("CREATE PROCEDURE q() LANGUAGE plpgsql AS $$ DECLARE i int; BEGIN {body}; END $$");
            connection.execute("CREATE OR REPLACE PROCEDURE p() LANGUAGE sql AS 'SELECT 1'", &[]).unwrap();
            connection.execute(&text, &[]).unwrap();
            let ended = connection.execute("CALL q()", &[]).map(drop).map_err(|error| error.state().code());
            assert_eq!(ended, if ends { Err("54000") } else { Ok(()) }, "{STEPS}: {body}");
            connection.execute("DROP PROCEDURE q", &[]).unwrap();
        }
    }
}
