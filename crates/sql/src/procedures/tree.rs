//! A body whose names and types are decided: what `exec::procedures` runs.

use std::sync::Arc;

use polychron_base::TableId;

use super::statements::{Level, RaiseOption};
use crate::bind::Need;
use crate::error::SqlError;
use crate::expr::Expr;
use crate::plan::{OutputColumn, Plan};

/// A call of a procedure.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) unit: Arc<Unit>,
    /// The values of the inputs.
    pub(crate) arguments: Vec<Expr>,
    /// The outputs.
    pub(crate) columns: Vec<OutputColumn>,
}

/// A procedure with all that it may call. Its first routine is the procedure itself.
#[derive(Debug, Default)]
pub(crate) struct Unit {
    pub(crate) routines: Vec<Routine>,
    /// The tables that they use.
    pub(crate) tables: Vec<TableId>,
    /// The privileges that its statements need.
    pub(crate) needs: Vec<Need>,
    /// What its first statement that changes rows is called.
    pub(crate) changes: Option<&'static str>,
}

/// The body of a procedure.
#[derive(Debug, Default)]
pub(crate) struct Routine {
    /// What messages call it.
    pub(crate) title: String,
    /// Its variables. The first one says whether the latest statement has found a row.
    pub(crate) slots: Vec<Slot>,
    /// Variables that a call gives values, and those that it answers with.
    pub(crate) inputs: Vec<usize>,
    pub(crate) outputs: Vec<usize>,
    pub(crate) body: Vec<Step>,
}

/// The variable that says whether the latest statement has found a row.
pub(crate) const FOUND: usize = 0;

/// A variable of one value.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// Its name, where it cannot be NULL.
    pub(crate) required: Option<String>,
}

/// An expression over variables, or why there is none.
#[derive(Debug)]
pub(crate) struct Value {
    pub(crate) expr: Result<Expr, SqlError>,
    /// The variables that its parameters are.
    pub(crate) uses: Vec<usize>,
}

/// A statement over variables.
#[derive(Debug)]
pub(crate) struct Query {
    pub(crate) plan: Plan,
    /// The variables that its parameters are.
    pub(crate) uses: Vec<usize>,
}

/// A variable, and what it becomes of a row.
#[derive(Debug)]
pub(crate) struct Put {
    pub(crate) slot: usize,
    pub(crate) expr: Expr,
}

#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) line: u32,
    pub(crate) act: Act,
}

/// What a step does. Loops and blocks have numbers, which those that leave them name.
#[derive(Debug)]
pub(crate) enum Act {
    Nothing,
    /// The statement cannot be bound.
    Fail(SqlError),
    Set {
        slot: usize,
        value: Value,
        is_initial: bool,
    },
    Block {
        id: usize,
        body: Vec<Step>,
    },
    If {
        branches: Vec<(Value, Vec<Step>)>,
        otherwise: Vec<Step>,
    },
    Loop {
        id: usize,
        condition: Option<Value>,
        body: Vec<Step>,
    },
    Range {
        id: usize,
        slot: usize,
        is_reverse: bool,
        bounds: Box<[Value; 3]>,
        body: Vec<Step>,
    },
    Rows {
        id: usize,
        query: Box<Query>,
        puts: Vec<Put>,
        body: Vec<Step>,
    },
    Leave {
        id: usize,
        is_continue: bool,
        when: Option<Value>,
    },
    Return,
    Raise(Box<Raising>),
    Run {
        query: Box<Query>,
        into: Destination,
    },
    Call {
        routine: usize,
        arguments: Vec<Value>,
        /// Over the outputs.
        puts: Vec<Put>,
    },
    CountRows(Put),
}

/// Where the rows of a statement go.
#[derive(Debug)]
pub(crate) enum Destination {
    Nowhere,
    Variables {
        puts: Vec<Put>,
        is_strict: bool,
    },
    /// The outputs of a procedure in SQL, which must get a row.
    Outputs(Vec<Put>),
}

#[derive(Debug)]
pub(crate) struct Raising {
    pub(crate) level: Level,
    pub(crate) condition: Option<String>,
    pub(crate) format: Option<Vec<String>>,
    pub(crate) values: Vec<Value>,
    pub(crate) options: Vec<(RaiseOption, Value)>,
}

impl Act {
    /// What PostgreSQL calls it in messages.
    pub(crate) fn title(&self) -> &'static str {
        match self {
            Self::Nothing => "NULL",
            Self::Fail(_) | Self::Run { .. } => "SQL statement",
            Self::Set { is_initial: true, .. } => "statement block",
            Self::Set { .. } => "assignment",
            Self::Block { .. } => "statement block",
            Self::If { .. } => "IF",
            Self::Loop { condition: None, .. } => "LOOP",
            Self::Loop { .. } => "WHILE",
            Self::Range { .. } => "FOR with integer loop variable",
            Self::Rows { .. } => "FOR over SELECT rows",
            Self::Leave { is_continue: true, .. } => "CONTINUE",
            Self::Leave { .. } => "EXIT",
            Self::Return => "RETURN",
            Self::Raise(_) => "RAISE",
            Self::Call { .. } => "CALL",
            Self::CountRows(_) => "GET DIAGNOSTICS",
        }
    }
}

impl Plan {
    /// As [`Plan::changes`], but for rows of temporary tables, which a read-only transaction may change.
    pub(crate) fn changes_kept(&self) -> Option<&'static str> {
        match self {
            Self::Insert { table, .. } | Self::Update { table, .. } | Self::Delete { table, .. } => {
                self.changes().filter(|_| !table.name.is_temporary())
            }
            Self::Merge(merge) => self.changes().filter(|_| !merge.table.name.is_temporary()),
            Self::With(with) => with.plans().find_map(Self::changes_kept).map(|_| self.verb()),
            Self::Analyze(analyzed) => analyzed.plan.changes_kept(),
            _ => self.changes(),
        }
    }

    /// What its first part that changes rows is called, if it has one.
    pub(crate) fn changes(&self) -> Option<&'static str> {
        match self {
            Self::Query { .. } | Self::Lock => None,
            Self::Call(call) => call.unit.changes,
            Self::Analyze(analyzed) => analyzed.plan.changes(),
            Self::With(with) => with.plans().find_map(Self::changes).map(|_| self.verb()),
            _ => Some(self.verb()),
        }
    }
}
