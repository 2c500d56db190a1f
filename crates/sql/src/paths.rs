//! Scans of tables, and which index answers a condition.

use std::sync::{Arc, OnceLock};

use polychron_schema::{ColumnSpan, Projection};

use crate::catalog::{Index, Table};
use crate::expr::Expr;

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

/// A comparison of a column with what is known before a row is.
struct Bound<'e> {
    column: usize,
    sign: &'static str,
    value: &'e Expr,
}

/// The best path to the rows of which all these parts hold; the parts stay to be tested. `column_of` says which column of the table a column of
/// the row is, and `is_known` whether an expression is known before the row.
pub(crate) fn choose(
    table: &Table,
    parts: &[Expr],
    column_of: &dyn Fn(usize) -> Option<usize>,
    is_known: &dyn Fn(&Expr) -> bool,
) -> Path {
    let bounds: Vec<_> = parts.iter().filter_map(|part| bound(part, column_of, is_known)).collect();
    let mut best = Path::ALL;
    let mut best_score = 0;
    for (position, index) in table.indexes.iter().enumerate() {
        let Some((path, score)) = along(table, (position, index), &bounds) else { continue };
        if score > best_score {
            (best, best_score) = (path, score);
        }
    }
    best
}

fn bound<'e>(
    part: &'e Expr,
    column_of: &dyn Fn(usize) -> Option<usize>,
    is_known: &dyn Fn(&Expr) -> bool,
) -> Option<Bound<'e>> {
    let Expr::Call(function, sides) = part else { return None };
    let column = |side: &Expr| if let Expr::Column(at) = side { column_of(*at) } else { None };
    let [left, right] = &**sides else { return None };
    if let Some(column) = column(left)
        && is_known(right)
    {
        return Some(Bound { column, sign: function.name, value: right });
    }
    let sign = match function.name {
        "=" => "=",
        "<" => ">",
        "<=" => ">=",
        ">" => "<",
        ">=" => "<=",
        _ => return None,
    };
    let column = column(right).filter(|_| is_known(left))?;
    Some(Bound { column, sign, value: left })
}

/// The path along an index and how good it is, if the bounds say anything of it.
fn along(table: &Table, (position, index): (usize, &Index), bounds: &[Bound<'_>]) -> Option<(Path, usize)> {
    let of = |column: usize, signs: [&str; 2]| {
        let found = bounds.iter().find(|bound| bound.column == column && signs.contains(&bound.sign));
        found.map(|bound| (bound.value.clone(), bound.sign))
    };
    let mut equal = Vec::new();
    for (at, &column) in index.columns.iter().enumerate() {
        match of(column, ["=", "="]).filter(|_| index.is_comparable(table, at)) {
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
    let next = next.filter(|_| index.is_ascending(equal.len()) && index.is_comparable(table, equal.len()));
    let lower = next.and_then(|&column| of(column, [">", ">="])).map(|(value, sign)| (value, sign == ">="));
    let upper = next.and_then(|&column| of(column, ["<", "<="])).map(|(value, sign)| (value, sign == "<="));
    let score = if is_whole && index.is_unique {
        1000 + usize::from(position == 0)
    } else {
        4 * equal.len() + usize::from(lower.is_some()) + usize::from(upper.is_some())
    };
    Some((Path { index: position, equal, lower, upper, is_backward: false }, score))
}
