//! What statements declare to a protocol that plans: the keys of the rows that they write, as far as they follow from the values of their parameters.
//!
//! The keys are computed before the statements run, by the thread of the client. What is not known there is announced by the first columns of the key, or as unknown.
//! So a declaration is complete: `docs/sql.md`, "Planned protocols".

mod bodies;
mod statements;

use std::ops::Range;

use bumpalo::Bump;
use polychron_base::TableId;
use polychron_engine::{Access, Declare};
use polychron_schema::{KeyScratch, ValueRef};

use crate::catalog::Table;
use crate::codec::to_stored;
use crate::context::{Context, Now};
use crate::datum::{Datum, OwnedDatum};
use crate::expr::Expr;
use crate::functions::Volatility;
use crate::plan::Plan;
use crate::sequences::Drawn;
use crate::text::{self, Zone};

/// The most keys that are named, and the most steps that are taken for that. What has more is unknown.
const MOST_KEYS: usize = 20_000;
const MOST_STEPS: usize = 100_000;

/// What statements declare.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys {
    bytes: Vec<u8>,
    named: Vec<Named>,
    /// There may be writes besides those that are named.
    is_unknown: bool,
}

#[derive(Clone, Debug)]
struct Named {
    table: TableId,
    key: Range<usize>,
    access: Access,
    /// It is the first columns of keys.
    is_prefix: bool,
}

impl Keys {
    pub(crate) fn declare(&self, declaration: &mut impl Declare) {
        for Named { table, key, access, is_prefix } in &self.named {
            let key = &self.bytes[key.clone()];
            if *is_prefix {
                declaration.prefix(*table, key, *access);
            } else {
                declaration.key(*table, key, *access);
            }
        }
        if self.is_unknown {
            declaration.unknown();
        }
    }
}

/// Parameters, of which only some may be known.
#[derive(Clone, Copy)]
struct Given<'p> {
    values: &'p [Datum<'p>],
    /// Those that are not known have any value.
    is_known: &'p dyn Fn(usize) -> bool,
}

/// Finds out what statements declare.
pub(crate) struct Declaring<'t> {
    keys: Keys,
    /// What is declared in words, where somebody asks.
    words: Option<Vec<String>>,
    arena: &'t Bump,
    zone: &'t Zone,
    now: Now<'t>,
    /// Where numbers of rows come from, which are drawn beforehand; nowhere where nothing will run.
    drawn: Option<&'t Drawn>,
    steps: usize,
    /// How many calls are in each other.
    depth: usize,
    /// In how many loops of unknown length this is.
    rounds: usize,
}

impl<'t> Declaring<'t> {
    /// Of statements that are to run.
    pub(crate) fn new(arena: &'t Bump, zone: &'t Zone, now: Now<'t>, drawn: &'t Drawn) -> Self {
        Self { keys: Keys::default(), words: None, arena, zone, now, drawn: Some(drawn), steps: 0, depth: 0, rounds: 0 }
    }

    /// Adds what a plan declares.
    pub(crate) fn add(&mut self, plan: &Plan, values: &[Datum<'_>]) {
        self.plan(plan, Given { values, is_known: &|_| true });
    }

    pub(crate) fn finish(self) -> Keys {
        self.keys
    }

    /// There may be other writes, and it is said where.
    fn unknown(&mut self, what: &str, table: Option<&Table>) {
        self.keys.is_unknown = true;
        if let Some(words) = &mut self.words {
            let of = table.map_or_else(String::new, |table| format!(" on {}", table.name));
            words.push(format!("Unknown: {what}{of}"));
        }
    }

    /// Counts a step, and tells whether there may be more.
    fn step(&mut self) -> bool {
        self.steps += 1;
        let is_enough = self.steps > MOST_STEPS || self.keys.named.len() > MOST_KEYS;
        if is_enough && !self.keys.is_unknown {
            self.unknown("more steps than are followed", None);
        }
        !is_enough
    }

    /// The value of an expression over no row, if it follows from what is known. An error is met again, by the statement itself.
    fn value(&self, expr: &Expr, given: Given<'_>) -> Option<Datum<'t>> {
        self.value_over(expr, given, None)
    }

    /// The same over a row, of which each value may be known.
    fn value_over(&self, expr: &Expr, given: Given<'_>, row: Option<&[Option<OwnedDatum>]>) -> Option<Datum<'t>> {
        match expr {
            Expr::Constant(value) => return Some(value.get().within(self.arena)),
            Expr::Parameter(at) => return (given.is_known)(*at).then(|| given.values[*at].within(self.arena)),
            _ => {}
        }
        let mut is_known = true;
        expr.walk(&mut |part| {
            is_known &= match part {
                Expr::Parameter(at) => (given.is_known)(*at),
                Expr::Column(at) => row.and_then(|row| row.get(*at)).is_some_and(Option::is_some),
                Expr::Call(function, _) => function.volatility() != Volatility::Volatile,
                Expr::Outer { .. } | Expr::Aggregate(_) | Expr::Window(_) | Expr::Set(_) => false,
                Expr::Lookup { .. } | Expr::Subquery(_) | Expr::Drawn(..) => false,
                _ => true,
            };
        });
        if !is_known {
            return None;
        }
        let (arena, row) = (Bump::new(), row.unwrap_or_default());
        let row: Vec<_> = row.iter().map(|value| value.as_ref().map_or(Datum::Null, OwnedDatum::get)).collect();
        let context = Context { parameters: given.values, now: self.now, ..Context::of(&arena, self.zone) };
        expr.eval(&row, &context).ok().map(|value| value.within(self.arena))
    }

    /// Names the row, or the rows, whose primary key begins with these values.
    fn name(&mut self, table: &Table, values: &[Datum<'t>], access: Access) {
        let primary = table.primary();
        let is_prefix = values.len() < primary.columns.len();
        match access {
            Access::Read if is_prefix => return,
            _ if values.is_empty() => return self.unknown(verb(access), Some(table)),
            _ => {}
        }
        let mut stored = Vec::with_capacity(values.len());
        for (value, column) in values.iter().zip(&primary.columns) {
            // A row without this value, or with one that no column holds, is not there, and is not written.
            match to_stored(*value, table.layout.columns()[*column].column_type, self.arena) {
                None | Some(ValueRef::Null) => return,
                Some(value) => stored.push(value),
            }
        }
        let mut scratch = KeyScratch::new();
        let Ok(key) = primary.keys.encode_values(stored.iter().copied(), &mut scratch) else { return };
        let from = self.keys.bytes.len();
        self.keys.bytes.extend_from_slice(key);
        self.keys.named.push(Named { table: table.id, key: from..self.keys.bytes.len(), access, is_prefix });
        if let Some(words) = &mut self.words {
            let columns = values.iter().zip(&primary.columns).map(|(value, column)| {
                if table.columns[*column].is_hidden {
                    return "a new row".to_owned();
                }
                let mut shown = String::new();
                text::write(table.columns[*column].of.base, *value, self.zone, &mut shown);
                format!("{} = {shown}", table.columns[*column].name)
            });
            let columns: Vec<_> = columns.collect();
            words.push(format!("Declared: {} on {} ({})", verb(access), table.name, columns.join(", ")));
        }
    }
}

/// What is done with a row.
fn verb(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Update => "update",
        Access::Write => "write",
        Access::Insert => "insert",
    }
}

/// What a plan declares in words, as far as it follows from the plan alone.
pub(crate) fn in_words(plan: &Plan) -> Vec<String> {
    let (arena, zone) = (Bump::new(), Zone::utc());
    let mut declaring = Declaring {
        keys: Keys::default(),
        words: Some(Vec::new()),
        arena: &arena,
        zone: &zone,
        now: Now::At(crate::context::now()),
        drawn: None,
        steps: 0,
        depth: 0,
        rounds: 0,
    };
    declaring.plan(plan, Given { values: &[], is_known: &|_| false });
    declaring.words.unwrap_or_default()
}
