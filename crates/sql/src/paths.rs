//! Scans of tables, and which index answers a condition.

mod implied;

use std::sync::{Arc, OnceLock};

use polychron_schema::{ColumnSpan, Projection};

use crate::bind::sort_key;
use crate::catalog::{Index, Table};
use crate::computed::Rule;
use crate::datum::{Datum, OwnedDatum};
use crate::expr::Expr;

pub(crate) use implied::is_implied;

/// Rows of a table.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    pub(crate) table: Arc<Table>,
    /// The columns that it gives, by their positions in the table.
    pub(crate) columns: Vec<usize>,
    pub(crate) path: Path,
    /// Rows are handed on while the transaction shows them: nothing behind the scan asks it for anything.
    pub(crate) is_in_place: bool,
    /// What [`Scan::projection`] answers.
    pub(crate) projections: OnceLock<[Projection; 2]>,
}

impl Scan {
    /// All columns of all rows.
    pub(crate) fn whole(table: &Arc<Table>) -> Self {
        let columns = (0..table.columns.len()).collect();
        Self { table: table.clone(), columns, path: Path::ALL, is_in_place: false, projections: OnceLock::new() }
    }

    /// What is read of the rows: the wanted columns, and those of the index's keys where `has_keys` says so. The columns stay as they are from the first
    /// call on.
    pub(crate) fn projection(&self, has_keys: bool) -> &Projection {
        let projections = self.projections.get_or_init(|| {
            let own = |at: usize| ColumnSpan { index: at as u16, slot: self.table.layout.columns()[at].slot };
            let with = |projection: Projection, &at: &usize| projection.with(own(at));
            let wanted = self.columns.iter().fold(Projection::NONE, with);
            let keys = [&self.table.indexes[self.path.index], self.table.primary()];
            [wanted, keys.into_iter().flat_map(|index| &index.columns).fold(wanted, with)]
        });
        &projections[usize::from(has_keys)]
    }
}

/// Which rows of a table are looked at. The expressions look at no row of the table itself.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    /// The position of the index.
    pub(crate) index: usize,
    /// What the first columns of its key are equal to.
    pub(crate) equal: Vec<Expr>,
    /// The bounds of the column behind these, each with whether it is included.
    pub(crate) lower: Option<(Expr, bool)>,
    pub(crate) upper: Option<(Expr, bool)>,
    /// Whether the last rows of the index come first.
    pub(crate) is_backward: bool,
}

impl Path {
    /// All rows, in the order of their primary keys.
    pub(crate) const ALL: Self = Self { index: 0, equal: Vec::new(), lower: None, upper: None, is_backward: false };

    /// Whether it has bounds.
    pub(crate) fn is_narrow(&self) -> bool {
        !self.equal.is_empty() || self.lower.is_some() || self.upper.is_some()
    }
}

/// A comparison of a column, or of the expression that one has, with what is known before a row is.
struct Bound<'e> {
    column: usize,
    sign: &'static str,
    value: &'e Expr,
    /// Both sides are of the same type.
    is_alike: bool,
}

/// What is known of the rows of a table.
struct Known<'e> {
    bounds: Vec<Bound<'e>>,
    /// The parts of the condition over the table's columns, where computed columns want them.
    parts: Vec<Expr>,
}

/// The best path to the rows of which all these parts hold; the parts stay to be tested. `column_of` says which column of the table a column of
/// the row is, and `is_known` whether an expression is known before the row.
pub(crate) fn choose(
    table: &Table,
    parts: &[Expr],
    column_of: &dyn Fn(usize) -> Option<usize>,
    is_known: &dyn Fn(&Expr) -> bool,
) -> Path {
    let rules = table.rules().unwrap_or_default();
    let bounds = parts.iter().filter_map(|part| bound(part, rules, column_of, is_known)).collect();
    let parts = match rules {
        [] => Vec::new(),
        _ => parts.iter().filter_map(|part| over_table(part, column_of)).collect(),
    };
    let known = Known { bounds, parts };
    let mut best = Path::ALL;
    let mut best_score = 0;
    for (position, index) in table.indexes.iter().enumerate() {
        let Some((path, score)) = along(table, (position, index), &known) else { continue };
        if score > best_score {
            (best, best_score) = (path, score);
        }
    }
    best
}

/// An expression over the columns of the table, if it looks at no others.
fn over_table(expr: &Expr, column_of: &dyn Fn(usize) -> Option<usize>) -> Option<Expr> {
    let (mut own, mut is_own) = (expr.clone(), true);
    // Nothing in here fails.
    let _ = own.replace(&mut |it| {
        if let Expr::Column(at) = it {
            match column_of(*at) {
                Some(column) => *at = column,
                None => is_own = false,
            }
        }
        Ok(false)
    });
    is_own.then_some(own)
}

fn bound<'e>(
    part: &'e Expr,
    rules: &[Rule],
    column_of: &dyn Fn(usize) -> Option<usize>,
    is_known: &dyn Fn(&Expr) -> bool,
) -> Option<Bound<'e>> {
    let Expr::Call(function, sides) = part else { return None };
    let column = |side: &Expr| match side {
        Expr::Column(at) => column_of(*at),
        _ if rules.is_empty() => None,
        side => {
            let own = over_table(side, column_of)?;
            rules.iter().find(|rule| rule.value.is_same(&own)).map(|rule| rule.column)
        }
    };
    let [left, right] = &**sides else { return None };
    let is_alike = function.arguments.first() == function.arguments.last();
    let sign = match function.name {
        sign @ ("=" | "<" | "<=" | ">" | ">=") => sign,
        _ => return None,
    };
    if is_known(right)
        && let Some(column) = column(left)
    {
        return Some(Bound { column, sign, value: right, is_alike });
    }
    let sign = match sign {
        "<" => ">",
        "<=" => ">=",
        ">" => "<",
        ">=" => "<=",
        sign => sign,
    };
    let column = is_known(left).then(|| column(right))??;
    Some(Bound { column, sign, value: left, is_alike })
}

/// The path along an index and how good it is, if the bounds say anything of it.
fn along(table: &Table, (position, index): (usize, &Index), known: &Known<'_>) -> Option<(Path, usize)> {
    let of = |column: usize, signs: [&str; 2]| {
        let source = table.source(column);
        let is_sorted = source == column;
        let is_of = |it: &&Bound<'_>| it.column == source && signs.contains(&it.sign) && (is_sorted || it.is_alike);
        let found = known.bounds.iter().find(is_of)?;
        let value = found.value.clone();
        Some((if is_sorted { value } else { sort_key(value) }, found.sign))
    };
    let mut equal = Vec::new();
    let condition = index.columns.len() - table.keys(index).len();
    if condition > 0 {
        let rule = table.rules().ok()?.iter().find(|rule| rule.column == index.columns[0])?;
        if !is_implied(&rule.value, &known.parts) {
            return None;
        }
        equal.push(Expr::Constant(OwnedDatum::Plain(Datum::Bool(true))));
    }
    for &column in table.keys(index) {
        match of(column, ["=", "="]) {
            Some((value, _)) => equal.push(value),
            None => break,
        }
    }
    let is_whole = equal.len() == index.columns.len();
    if !index.is_ordered && !is_whole {
        return None;
    }
    let next = index.columns.get(equal.len());
    // Bounds of a column that is sorted downwards would change places.
    let next = next.filter(|_| index.is_ascending(equal.len()));
    let lower = next.and_then(|&column| of(column, [">", ">="])).map(|(value, sign)| (value, sign == ">="));
    let upper = next.and_then(|&column| of(column, ["<", "<="])).map(|(value, sign)| (value, sign == "<="));
    let score = if is_whole && index.is_unique {
        1000 + usize::from(position == 0)
    } else {
        4 * equal.len() + usize::from(lower.is_some()) + usize::from(upper.is_some())
    };
    Some((Path { index: position, equal, lower, upper, is_backward: false }, score))
}
