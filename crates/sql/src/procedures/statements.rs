//! A body as it is written, before its names stand for anything.

use sqlparser::ast;

/// Declarations, and statements that see them.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) label: Option<String>,
    pub(crate) declarations: Vec<Declaration>,
    pub(crate) body: Vec<Statement>,
}

#[derive(Debug)]
pub(crate) struct Declaration {
    pub(crate) name: String,
    pub(crate) of: DeclaredType,
    pub(crate) is_constant: bool,
    pub(crate) is_required: bool,
    pub(crate) initial: Option<ast::Expr>,
    pub(crate) line: u32,
}

#[derive(Debug)]
pub(crate) enum DeclaredType {
    Plain(ast::DataType),
    Record,
    /// `table%ROWTYPE`
    RowOf(String),
    /// `table.column%TYPE`, or that of a variable.
    TypeOf(Vec<String>),
}

/// A variable, or a field of one.
pub(crate) type Target = Vec<String>;

#[derive(Debug)]
pub(crate) struct Statement {
    /// Of the body, counted from 1.
    pub(crate) line: u32,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Block(Block),
    Assign {
        target: Target,
        value: ast::Expr,
    },
    If {
        branches: Vec<(ast::Expr, Vec<Statement>)>,
        otherwise: Vec<Statement>,
    },
    Loop {
        label: Option<String>,
        condition: Option<ast::Expr>,
        body: Vec<Statement>,
    },
    Range {
        label: Option<String>,
        variable: String,
        is_reverse: bool,
        /// From, to, and the step.
        bounds: Box<[ast::Expr; 3]>,
        body: Vec<Statement>,
    },
    Rows {
        label: Option<String>,
        targets: Vec<Target>,
        query: Box<ast::Statement>,
        body: Vec<Statement>,
    },
    Leave {
        label: Option<String>,
        is_continue: bool,
        when: Option<ast::Expr>,
    },
    Return,
    Nothing,
    Raise(Box<Raise>),
    /// A query whose rows are not wanted.
    Perform(Box<ast::Statement>),
    Run {
        statement: Box<ast::Statement>,
        into: Option<Into>,
    },
    /// `GET DIAGNOSTICS … = ROW_COUNT`
    CountRows(Target),
}

/// Where the row of a statement goes.
#[derive(Debug)]
pub(crate) struct Into {
    pub(crate) targets: Vec<Target>,
    pub(crate) is_strict: bool,
}

#[derive(Debug)]
pub(crate) struct Raise {
    pub(crate) level: Level,
    /// The name of a condition, or a code.
    pub(crate) condition: Option<String>,
    /// The parts between the values.
    pub(crate) format: Option<Vec<String>>,
    pub(crate) values: Vec<ast::Expr>,
    pub(crate) options: Vec<(RaiseOption, ast::Expr)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Clients are told nothing of it.
    Silent,
    Info,
    Notice,
    Warning,
    Exception,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RaiseOption {
    Message,
    Detail,
    Hint,
    Code,
}
