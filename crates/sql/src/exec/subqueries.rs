//! Subqueries in expressions. One that looks at no row around it runs once a statement; others run for each row, and end as soon as the answer is known.

use hashbrown::{HashMap, HashSet};

use super::aggregates::group_key;
use super::{Exec, Failure, Flow, run};
use crate::arrays::Array;
use crate::context::{Context, Outer};
use crate::datum::{Datum, OwnedDatum};
use crate::error::{SqlError, SqlState};
use crate::expr::Expr;
use crate::functions::Function;
use crate::plan::{Question, Subquery};

/// What subqueries have answered, by their numbers.
#[derive(Default)]
pub(super) struct Answers {
    values: HashMap<usize, OwnedDatum>,
    rows: HashMap<usize, Rows>,
}

/// The rows of a subquery that values are compared with.
#[derive(Default)]
struct Rows {
    /// Those without NULL, for comparisons that are all `=`.
    equal: HashSet<Vec<u8>>,
    /// The same as values, where they have several: one of these may be NULL on the other side.
    whole: Vec<Vec<OwnedDatum>>,
    /// The others.
    others: Vec<Vec<OwnedDatum>>,
}

impl Subquery {
    pub(crate) fn answer<'a>(&'a self, row: &[Datum<'a>], context: &Context<'a>) -> Result<Datum<'a>, SqlError> {
        let Some(exec) = context.exec else { return Err(SqlError::unsupported("a subquery in this place")) };
        self.answer_in(exec, row, context).map_err(|failure| match failure {
            Failure::Sql(error) => error,
            Failure::Engine(error) => {
                exec.shared.failure.set(Some(error));
                SqlError::new(SqlState::INTERNAL_ERROR, "the transaction has failed in a subquery")
            }
        })
    }

    fn answer_in<'a>(
        &'a self,
        mut exec: Exec<'a>,
        row: &[Datum<'a>],
        context: &Context<'a>,
    ) -> Result<Datum<'a>, Failure> {
        let is_same = self.inputs.is_empty();
        if let Question::Any { comparisons, needs_all } = &self.question {
            let values = comparisons.iter().map(|(_, value)| value.eval(row, context));
            let values = values.collect::<Result<Vec<_>, _>>()?;
            if is_same {
                return self.among_kept(&values, (comparisons, *needs_all), exec, context);
            }
            let mut verdict = Verdict::new(*needs_all);
            self.each_row(&mut exec, row, context, &mut |other| verdict.add(&values, comparisons, other, context))?;
            return Ok(verdict.answer());
        }
        if is_same && let Some(value) = exec.shared.answers.borrow().values.get(&self.id) {
            return Ok(value.get().within(context.arena));
        }
        let value = if let Question::Array { is_nested } = self.question {
            self.gathered(&mut exec, row, context, is_nested)?
        } else if matches!(self.question, Question::Exists) {
            let mut is_found = false;
            self.each_row(&mut exec, row, context, &mut |_| {
                is_found = true;
                Ok(Flow::Enough)
            })?;
            OwnedDatum::Plain(Datum::Bool(is_found))
        } else {
            self.only_value(&mut exec, row, context)?
        };
        let answer = value.get().within(context.arena);
        if is_same {
            let before = exec.shared.memory.get();
            exec.keep(&[answer])?;
            exec.shared.answers.borrow_mut().values.insert(self.id, value);
            exec.lasts(before);
        }
        Ok(answer)
    }

    fn gathered<'a>(
        &'a self,
        exec: &mut Exec<'_>,
        row: &[Datum<'a>],
        context: &Context<'a>,
        is_nested: bool,
    ) -> Result<OwnedDatum, Failure> {
        let mut found = Vec::new();
        let own = *exec;
        self.each_row(exec, row, context, &mut |other| {
            own.keep(other)?;
            found.push(other[0].owned());
            Ok(Flow::More)
        })?;
        let items: Vec<_> = found.iter().map(OwnedDatum::get).collect();
        let arena = bumpalo::Bump::new();
        Ok(if is_nested { crate::arrays::nested(&arena, &items)? } else { Array::list(&arena, &items) }.owned())
    }

    fn only_value<'a>(
        &'a self,
        exec: &mut Exec<'_>,
        row: &[Datum<'a>],
        context: &Context<'a>,
    ) -> Result<OwnedDatum, Failure> {
        let mut found = None;
        self.each_row(exec, row, context, &mut |other| match found.replace(other[0].owned()) {
            None => Ok(Flow::More),
            Some(_) => {
                let message = "more than one row returned by a subquery used as an expression";
                Err(SqlError::new(SqlState::CARDINALITY_VIOLATION, message).into())
            }
        })?;
        Ok(found.unwrap_or(OwnedDatum::NULL))
    }

    fn each_row<'a>(
        &'a self,
        exec: &mut Exec<'_>,
        row: &[Datum<'a>],
        context: &Context<'a>,
        visit: &mut dyn FnMut(&[Datum<'_>]) -> Result<Flow, Failure>,
    ) -> Result<(), Failure> {
        let inputs = self.inputs.iter().map(|input| input.eval(row, context)).collect::<Result<Vec<_>, _>>()?;
        let outer = Outer { row: &inputs, next: None };
        let inner = Context { outer: Some(&outer), ..*context };
        let (before, lasting) = (exec.shared.memory.get(), exec.shared.lasting.get());
        run(&self.node, exec, &inner, &mut |_, row| visit(row))?;
        if !self.inputs.is_empty() {
            // What its operators have kept is gone, but for what is computed once a statement.
            exec.shared.memory.set(before.saturating_sub(exec.shared.lasting.get() - lasting));
        }
        Ok(())
    }

    /// The answer by rows that are kept for the whole statement.
    fn among_kept<'a>(
        &'a self,
        values: &[Datum<'a>],
        (comparisons, needs_all): (&[(&'static Function, Expr)], bool),
        exec: Exec<'a>,
        context: &Context<'a>,
    ) -> Result<Datum<'a>, Failure> {
        let has_rows = exec.shared.answers.borrow().rows.contains_key(&self.id);
        let is_equality = !needs_all && comparisons.iter().all(|(function, _)| function.name == "=");
        if !has_rows {
            let before = exec.shared.memory.get();
            let mut rows = Rows::default();
            self.each_row(&mut { exec }, &[], context, &mut |row| {
                if is_equality && !row.iter().any(|it| it.is_null()) {
                    let key = group_key(row);
                    if !rows.equal.contains(&key) {
                        exec.keep(row)?;
                        rows.equal.insert(key);
                        if row.len() > 1 {
                            exec.keep(row)?;
                            rows.whole.push(row.iter().map(|it| it.owned()).collect());
                        }
                    }
                } else {
                    exec.keep(row)?;
                    rows.others.push(row.iter().map(|it| it.owned()).collect());
                }
                Ok(Flow::More)
            })?;
            exec.shared.answers.borrow_mut().rows.insert(self.id, rows);
            exec.lasts(before);
        }
        let answers = exec.shared.answers.borrow();
        let rows = &answers.rows[&self.id];
        let mut verdict = Verdict::new(needs_all);
        if is_equality && !values.iter().any(|it| it.is_null()) {
            if rows.equal.contains(&group_key(values)) {
                return Ok(Datum::Bool(true));
            }
        } else if is_equality && values.len() == 1 && !rows.equal.is_empty() {
            return Ok(Datum::Null);
        }
        let whole = if values.iter().any(|it| it.is_null()) { &rows.whole[..] } else { &[] };
        for row in rows.others.iter().chain(whole) {
            let row: Vec<_> = row.iter().map(OwnedDatum::get).collect();
            if verdict.add(values, comparisons, &row, context)? == Flow::Enough {
                break;
            }
        }
        Ok(verdict.answer())
    }
}

/// What is known of `ANY` or `ALL` after some rows.
struct Verdict {
    needs_all: bool,
    is_decided: bool,
    has_null: bool,
}

impl Verdict {
    fn new(needs_all: bool) -> Self {
        Self { needs_all, is_decided: false, has_null: false }
    }

    fn add(
        &mut self,
        values: &[Datum<'_>],
        comparisons: &[(&'static Function, Expr)],
        row: &[Datum<'_>],
        context: &Context<'_>,
    ) -> Result<Flow, Failure> {
        let mut holds = Some(true);
        for ((value, other), (function, _)) in values.iter().zip(row).zip(comparisons) {
            if value.is_null() || other.is_null() {
                holds = holds.filter(|holds| !holds);
            } else if !matches!((function.eval)(&[*value, *other], context)?, Datum::Bool(true)) {
                holds = Some(false);
            }
        }
        self.has_null |= holds.is_none();
        self.is_decided |= holds == Some(!self.needs_all);
        Ok(if self.is_decided { Flow::Enough } else { Flow::More })
    }

    fn answer<'a>(&self) -> Datum<'a> {
        match self {
            Self { is_decided: true, needs_all, .. } => Datum::Bool(!needs_all),
            Self { has_null: true, .. } => Datum::Null,
            Self { needs_all, .. } => Datum::Bool(*needs_all),
        }
    }
}
