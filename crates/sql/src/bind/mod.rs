//! Binding: what names stand for, and which types values have, by PostgreSQL's rules.

mod aggregates;
mod alter;
mod alter_sequences;
mod arrays;
mod assignments;
mod bodies;
mod calls;
mod changes;
mod changing;
mod comments;
mod comparable;
mod configure;
mod declarations;
mod default_privileges;
mod definitions;
mod drop_constraints;
mod drops;
mod enums;
mod expressions;
mod foreign_keys;
mod generated;
mod grantors;
mod grants;
mod groups;
mod identities;
mod indexes;
mod joins;
mod json_records;
mod late_checks;
mod likes;
mod literals;
mod locks;
mod naming;
mod needs;
mod operators;
mod patterns;
pub(crate) mod places;
mod procedures;
mod query;
mod records;
mod renames;
mod roles;
mod row_comparisons;
mod rows;
mod schemas;
mod scope;
mod sequences;
mod sets;
mod subqueries;
mod system;
mod table_as;
mod traces;
mod types;
mod variables;
mod view_columns;
mod views;
mod windows;

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;

use polychron_base::TableId;
use sqlparser::ast;

use crate::catalog::{Catalog, Object, Table};
use crate::error::SqlError;
use crate::expr::Expr;
use crate::names::{Name, Path};
use crate::plan::SortKey;
use crate::roles::{RoleId, Roles, SharedAccess};
use crate::sequences::Drawn;
use crate::types::Type;

pub(crate) use changing::check_reads_only;
pub(crate) use definitions::{NewTable, stored};
pub(crate) use indexes::sort_key;
pub(crate) use joins::beyond;
pub(crate) use naming::Written;
pub(crate) use needs::Need;
pub(crate) use roles::no_role;
pub(crate) use scope::{Scope, ScopeColumn};
pub(crate) use system::{DATABASE, Names, ROLE, quoted};
pub(crate) use table_as::TABLE_AS;
pub(crate) use types::column_type;
pub(crate) use windows::{Edge, Exclusion, Offset, Units, Window, WindowCall, WindowFunction};

/// What is known while a statement is bound.
pub(crate) struct Binder<'c> {
    pub(crate) catalog: Recorded<'c>,
    /// What the connection knows of sequences.
    pub(crate) drawn: Arc<Drawn>,
    /// The types of the parameters, as far as something told them.
    pub(crate) parameters: Vec<Type>,
    /// The scopes around, the innermost one last.
    pub(crate) scopes: Vec<Scope>,
    /// What aggregates may be used, and those that were: `None` where none may stand.
    pub(crate) aggregates: Option<Vec<Aggregate>>,
    /// The same of what comes behind groups.
    pub(crate) behind: Option<Behind>,
    /// The windows of the WINDOW clause.
    pub(crate) named_windows: Vec<windows::NamedWindow>,
    /// A column of a query stays of unknown type: the other side of a UNION tells.
    pub(crate) keeps_unknown: bool,
    /// How many relations were bound, those within views and named queries each time.
    pub(crate) relations: u64,
    /// The queries of `WITH` that are known, the innermost one last.
    pub(crate) tables: Vec<sets::Named>,
    /// The changes in WITH so far, and the numbers of their rows: `None` where none may stand.
    pub(crate) changes: Option<Vec<(usize, crate::plan::Plan)>>,
    /// The number of scopes around the FROM that is bound.
    pub(crate) from_start: usize,
    /// How many numbered parts the statement has so far.
    pub(crate) part_count: usize,
    /// Where none may stand, the name of the place.
    pub(crate) place: &'static str,
    /// Those of the procedure that the statement is one of.
    pub(crate) variables: Option<variables::Variables>,
    /// The views whose queries are around, the innermost one last.
    pub(crate) views: Vec<Name>,
    /// Something was bound whose value may change with what is set.
    pub(crate) is_mutable: bool,
    /// The columns of the rows that are values, by the numbers that their types have.
    pub(crate) shapes: Vec<rows::Shape>,
}

/// What comes behind groups: window functions, and functions that give several rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Behind {
    pub(crate) windows: Vec<WindowCall>,
    pub(crate) sets: Vec<Expr>,
}

/// A catalog, and which of its tables a statement uses.
pub(crate) struct Recorded<'c> {
    catalog: &'c Catalog,
    /// Where names without a schema are looked for.
    pub(crate) path: Arc<Path>,
    pub(crate) used: RefCell<Vec<TableId>>,
    /// The names that were looked up.
    pub(crate) named: RefCell<Vec<Name>>,
    /// The privileges that the statement needs.
    pub(crate) needs: RefCell<Vec<Need>>,
    /// Whose privileges count: `None` for the session's.
    pub(crate) check_as: Cell<Option<RoleId>>,
    /// A text is bound that was bound before, by those who may use the schemas that it names.
    pub(crate) is_kept_text: Cell<bool>,
    /// The roles, and what all objects share, once they were wanted.
    known_roles: OnceCell<(Roles, Arc<SharedAccess>)>,
    /// What names without a schema have stood for by the path alone: what is not in `public`.
    pub(crate) found_by_path: RefCell<Vec<Name>>,
    /// The enums that were named.
    pub(crate) enums_named: RefCell<Vec<Name>>,
    /// The tables whose primary keys say that other columns are the same in all rows of a group.
    pub(crate) grouped_by_key: RefCell<Vec<TableId>>,
    /// The statement shows what goes on now.
    pub(crate) is_live: Cell<bool>,
    /// What the query of a view names, where that is asked.
    pub(crate) trace: RefCell<Option<traces::Trace>>,
}

impl std::ops::Deref for Recorded<'_> {
    type Target = Catalog;

    fn deref(&self) -> &Catalog {
        self.catalog
    }
}

impl<'c> Recorded<'c> {
    pub(crate) fn new(catalog: &'c Catalog, path: Arc<Path>) -> Self {
        let (used, named, found_by_path, needs, known_roles) = Default::default();
        let (check_as, is_kept_text, enums_named, grouped_by_key, is_live, trace) = Default::default();
        Self {
            catalog,
            path,
            used,
            named,
            needs,
            check_as,
            is_kept_text,
            known_roles,
            found_by_path,
            enums_named,
            grouped_by_key,
            is_live,
            trace,
        }
    }

    pub(crate) fn object(&self, name: &Name) -> Result<Option<Object>, SqlError> {
        let object = self.catalog.object(name)?;
        self.used.borrow_mut().extend(object.as_ref().and_then(Object::table).map(|table| table.id));
        Ok(object)
    }

    pub(crate) fn table(&self, name: &Name) -> Result<Arc<Table>, SqlError> {
        let table = self.catalog.table(name)?;
        table.prepare(self.catalog)?;
        self.named.borrow_mut().push(name.clone());
        self.used.borrow_mut().push(table.id);
        Ok(table)
    }
}

/// An aggregate that an expression uses.
#[derive(Clone, Debug)]
pub(crate) struct Aggregate {
    pub(crate) kind: AggregateKind,
    pub(crate) arguments: Vec<Expr>,
    /// The order in which it takes the rows.
    pub(crate) order: Vec<SortKey>,
    pub(crate) is_distinct: bool,
    pub(crate) filter: Option<Expr>,
    pub(crate) result: Type,
}

impl Aggregate {
    /// The expressions over rows. The arguments of GROUPING are none: they name keys.
    pub(crate) fn parts_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let is_grouping = self.kind == AggregateKind::Grouping;
        let arguments = self.arguments.iter_mut().filter(move |_| !is_grouping);
        arguments.chain(self.order.iter_mut().map(|key| &mut key.expr)).chain(&mut self.filter)
    }
}

impl Aggregate {
    /// Whether it takes rows as they are.
    pub(crate) fn is_of_rows(&self) -> bool {
        matches!(self.kind, AggregateKind::CountRows | AggregateKind::Grouping)
    }

    /// Whether it remembers the values of all rows.
    pub(crate) fn keeps_values(&self) -> bool {
        self.is_distinct || !self.order.is_empty() || self.kind.has_order()
    }
}

/// The aggregates that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AggregateKind {
    CountRows,
    Count,
    Sum,
    Average,
    Least,
    Greatest,
    All,
    Any,
    BitAnd,
    BitOr,
    BitXor,
    /// `string_agg`
    Join,
    /// `array_agg`
    Gather,
    /// `json_agg`, `jsonb_agg`
    JsonList {
        is_binary: bool,
    },
    /// `json_object_agg`, `jsonb_object_agg`
    JsonObject {
        is_binary: bool,
    },
    Variance {
        is_sample: bool,
        is_root: bool,
    },
    Regression(Regression),
    /// The value at a fraction of the sorted ones, or between two of them.
    PercentileBetween,
    Percentile,
    Mode,
    /// Which of the keys the row's set does not have, as bits.
    Grouping,
}

/// What is known of pairs of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Regression {
    Correlation,
    Covariance { is_sample: bool },
    Count,
    AverageX,
    AverageY,
    SquaresX,
    SquaresY,
    Products,
    Slope,
    Intercept,
    Determination,
}

impl Regression {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "corr" => Self::Correlation,
            "covar_pop" => Self::Covariance { is_sample: false },
            "covar_samp" => Self::Covariance { is_sample: true },
            "regr_count" => Self::Count,
            "regr_avgx" => Self::AverageX,
            "regr_avgy" => Self::AverageY,
            "regr_sxx" => Self::SquaresX,
            "regr_syy" => Self::SquaresY,
            "regr_sxy" => Self::Products,
            "regr_slope" => Self::Slope,
            "regr_intercept" => Self::Intercept,
            "regr_r2" => Self::Determination,
            _ => return None,
        })
    }
}

impl<'c> Binder<'c> {
    pub(crate) fn new(catalog: &'c Catalog, parameters: &[Type], drawn: &Arc<Drawn>) -> Self {
        Self {
            catalog: Recorded::new(catalog, drawn.path()),
            drawn: drawn.clone(),
            parameters: parameters.to_vec(),
            scopes: Vec::new(),
            aggregates: None,
            behind: None,
            named_windows: Vec::new(),
            keeps_unknown: false,
            relations: 0,
            tables: Vec::new(),
            changes: None,
            from_start: 0,
            part_count: 0,
            views: Vec::new(),
            place: "WHERE",
            variables: None,
            is_mutable: false,
            shapes: Vec::new(),
        }
    }

    /// The names' own scope while `bind` runs.
    pub(crate) fn within<O>(
        &mut self,
        scope: Scope,
        bind: impl FnOnce(&mut Self) -> Result<O, SqlError>,
    ) -> Result<O, SqlError> {
        self.scopes.push(scope);
        let bound = bind(self);
        self.scopes.pop();
        bound
    }
}

/// A name as PostgreSQL folds it: in small letters unless it is quoted.
pub(crate) fn folded(name: &ast::Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() }
}

/// A name that has no schema in front of it.
pub(crate) fn plain_name(name: &ast::ObjectName) -> Result<String, SqlError> {
    match &name.0[..] {
        [one] if let Some(one) = one.as_ident() => Ok(folded(one)),
        _ => Err(SqlError::unsupported(format!("the name {name}"))),
    }
}
