//! The last look at a plan: what it need not do.
//!
//! Parts of a condition that a path answers are not tested again. Columns that nothing looks at are not read, and a list of columns is the scan's own. A
//! scan behind which nothing asks the transaction hands its rows on where they lie.

use crate::bind::{Aggregate, beyond};
use crate::catalog::Table;
use crate::changing::Merge;
use crate::expr::Expr;
use crate::plan::{JoinKind, Node, Plan, Scan, all_of, conjuncts};
use crate::types::Type;
use polychron_schema::ColumnType as Stored;

/// The plan without what it need not do.
pub(crate) fn finished(plan: Plan) -> Plan {
    match plan {
        Plan::Query { node, columns } => Plan::Query { node: finished_node(node), columns },
        Plan::Insert { table, source, checks, keys, on_conflict, returning } => {
            Plan::Insert { table, source: finished_node(source), checks, keys, on_conflict, returning }
        }
        Plan::Update { table, source, is_joined, set, checks, keys, returning } => {
            Plan::Update { table, source: finished_node(source), is_joined, set, checks, keys, returning }
        }
        Plan::Delete { table, source, is_joined, keys, returning } => {
            Plan::Delete { table, source: finished_node(source), is_joined, keys, returning }
        }
        Plan::With(with) => Plan::With(with.map_plans(finished).into()),
        Plan::Merge(merge) => {
            let Merge { table, source, clauses, checks, keys } = *merge;
            Plan::Merge(Merge { table, source: finished_node(source), clauses, checks, keys }.into())
        }
        // What is run was finished when it was bound.
        Plan::Analyze(analyzed) => Plan::Analyze(analyzed),
        Plan::Lock => Plan::Lock,
        Plan::Call(call) => Plan::Call(call),
        Plan::Truncate(tables) => {
            let finished = |(table, source)| (table, finished_node(source));
            Plan::Truncate(tables.into_iter().map(finished).collect())
        }
    }
}

/// What takes the rows of a whole plan only keeps them.
fn finished_node(node: Node) -> Node {
    let mut node = untested(node);
    let all = vec![true; node.width()];
    narrow(&mut node, &all);
    let mut node = folded(node);
    mark(&mut node, true);
    node
}

/// Applies `change` to the nodes below one that hands rows on, joins or gathers them.
fn within(node: Node, change: &dyn Fn(Node) -> Node) -> Node {
    let inner = |input: Box<Node>| Box::new(change(*input));
    match node {
        Node::Filter { input, condition } => Node::Filter { input: inner(input), condition },
        Node::Project { input, columns } => Node::Project { input: inner(input), columns },
        Node::Join { left, right, on, kind, right_width, keys } => {
            Node::Join { left: inner(left), right: inner(right), on, kind, right_width, keys }
        }
        Node::Aggregate { input, groups, sets, aggregates } => {
            Node::Aggregate { input: inner(input), groups, sets, aggregates }
        }
        Node::Sort { input, keys } => Node::Sort { input: inner(input), keys },
        Node::Limit { input, limit, offset } => Node::Limit { input: inner(input), limit, offset },
        Node::Distinct { input, keys } => Node::Distinct { input: inner(input), keys },
        other => other,
    }
}

/// Leaves out parts of conditions that a path answers.
fn untested(node: Node) -> Node {
    match within(node, &untested) {
        Node::Filter { input, condition } => {
            let mut parts = Vec::new();
            conjuncts(condition, &mut parts);
            if let Node::Scan(scan) = &*input {
                parts.retain(|part| !is_answered(scan, part, 0));
            }
            match all_of(parts) {
                Some(condition) => Node::Filter { input, condition },
                None => *input,
            }
        }
        Node::Join { left, right, on, kind, right_width, keys: None } if kind != JoinKind::Full => {
            let (mut parts, width) = (Vec::new(), left.width());
            on.into_iter().for_each(|on| conjuncts(on, &mut parts));
            if let Node::Scan(scan) = &*right {
                parts.retain(|part| !is_answered(scan, part, width));
            }
            Node::Join { left, right, on: all_of(parts), kind, right_width, keys: None }
        }
        other => other,
    }
}

/// Whether a condition holds for all rows on the path of a scan, whose columns come behind so many others.
fn is_answered(scan: &Scan, part: &Expr, behind: usize) -> bool {
    let Expr::Call(function, sides) = part else { return false };
    let [one, other] = &**sides else { return false };
    let column_of = |side: &Expr| match side {
        Expr::Column(at) => at.checked_sub(behind).map(|at| scan.columns[at]),
        _ => None,
    };
    let [of_one, of_other] = *function.arguments else { return false };
    let (column, value, sign, types) = match (column_of(one), column_of(other)) {
        (Some(column), None) => (column, other, function.name, (of_one, of_other)),
        (None, Some(column)) => (column, one, mirrored(function.name), (of_other, of_one)),
        _ => return false,
    };
    let base = scan.table.columns[column].of.base;
    let compared = if base == Type::Varchar { Type::Text } else { base };
    // Integers of all widths are compared as they are.
    let is_wider = matches!((integer(types.0), integer(types.1)), (Some(own), Some(of_value)) if own < of_value);
    let is_alike = types.0 == types.1 || integer(types.0).is_some() && integer(types.1).is_some();
    if types.0 != compared || !is_alike {
        return false;
    }
    let value = if behind == 0 { value.clone() } else { beyond(value.clone(), behind) };
    let positions = &scan.table.indexes[scan.path.index].columns;
    let is_equal = |(at, equal): (usize, &Expr)| positions[at] == column && equal.is_same(&value);
    let is_bound = |bound: &Option<(Expr, bool)>, includes: bool| {
        let is_next = positions.get(scan.path.equal.len()) == Some(&column);
        is_next && matches!(bound, Some((own, own_includes)) if *own_includes == includes && own.is_same(&value))
    };
    match sign {
        "=" => is_found_exactly(base) && scan.path.equal.iter().enumerate().any(is_equal),
        _ if is_wider || !holds_all(&scan.table, column) => false,
        ">" | ">=" => is_bound(&scan.path.lower, sign == ">="),
        "<" | "<=" => is_bound(&scan.path.upper, sign == "<="),
        _ => false,
    }
}

/// The width of an integer.
fn integer(of: Type) -> Option<u8> {
    match of {
        Type::Int2 => Some(2),
        Type::Int4 => Some(4),
        Type::Int8 => Some(8),
        _ => None,
    }
}

/// The comparison with its sides exchanged.
fn mirrored(sign: &str) -> &str {
    match sign {
        "<" => ">",
        "<=" => ">=",
        ">" => "<",
        ">=" => "<=",
        same => same,
    }
}

/// Whether values of the type are equal where their bytes in a key are, and only there.
fn is_found_exactly(of: Type) -> bool {
    use Type::{Bool, Date, Int2, Int4, Int8, Text, Timestamp, Timestamptz, Uuid, Varchar};
    matches!(of, Bool | Int2 | Int4 | Int8 | Date | Timestamp | Timestamptz | Text | Varchar | Uuid)
}

/// Whether a column holds each value of its type and no NULL, so that no bound of it is left out.
fn holds_all(table: &Table, column: usize) -> bool {
    let is_whole = matches!(
        (table.columns[column].of.base, table.layout.columns()[column].column_type),
        (Type::Int2, Stored::I16)
            | (Type::Int4, Stored::I32)
            | (Type::Int8, Stored::I64)
            | (Type::Date, Stored::Date)
            | (Type::Timestamp | Type::Timestamptz, Stored::Timestamp)
    );
    is_whole && !table.columns[column].nullable
}

/// Where the columns of a row are to be found afterwards.
type Moved = Vec<Option<usize>>;

/// The new positions of the columns that are kept.
fn positions(kept: &[bool]) -> Moved {
    let mut next = 0;
    let position = |kept: &bool| {
        kept.then(|| {
            next += 1;
            next - 1
        })
    };
    kept.iter().map(position).collect()
}

fn unmoved(width: usize) -> Moved {
    (0..width).map(Some).collect()
}

/// Notes the columns that an expression looks at.
fn note(expr: &Expr, looked_at: &mut [bool]) {
    expr.walk(&mut |it| {
        if let Expr::Column(at) = it {
            looked_at[*at] = true;
        }
    });
}

/// Has an expression look where its columns are now.
fn follow(expr: &mut Expr, moved: &Moved) {
    // Nothing in here fails.
    let _ = expr.replace(&mut |it| {
        if let Expr::Column(at) = it {
            *at = moved[*at].unwrap_or(*at);
        }
        Ok(false)
    });
}

/// Leaves out columns that are not wanted, as far as the node can, and tells where those are that are left.
fn narrow(node: &mut Node, wanted: &[bool]) -> Moved {
    match node {
        Node::Scan(scan) => {
            let columns = scan.columns.iter().zip(wanted).filter(|(_, wanted)| **wanted);
            scan.columns = columns.map(|(column, _)| *column).collect();
            positions(wanted)
        }
        Node::Filter { input, condition } => {
            let mut all = wanted.to_vec();
            note(condition, &mut all);
            let moved = narrow(input, &all);
            follow(condition, &moved);
            moved
        }
        Node::Project { input, columns } => {
            // What could fail is computed.
            let kept: Vec<_> =
                columns.iter().zip(wanted).map(|(it, wanted)| *wanted || !matches!(it, Expr::Column(_))).collect();
            let mut keeps = kept.iter();
            columns.retain(|_| keeps.next() == Some(&true));
            let mut all = vec![false; input.width()];
            columns.iter().for_each(|column| note(column, &mut all));
            let moved = narrow(input, &all);
            columns.iter_mut().for_each(|column| follow(column, &moved));
            positions(&kept)
        }
        Node::Sort { input, keys } => {
            let mut all = wanted.to_vec();
            keys.iter().for_each(|key| note(&key.expr, &mut all));
            let moved = narrow(input, &all);
            keys.iter_mut().for_each(|key| follow(&mut key.expr, &moved));
            moved
        }
        Node::Limit { input, .. } => narrow(input, wanted),
        Node::Aggregate { input, groups, aggregates, .. } => {
            let mut all = vec![false; input.width()];
            let mut exprs: Vec<_> = groups.iter_mut().collect();
            exprs.extend(aggregates.iter_mut().flat_map(Aggregate::parts_mut));
            exprs.iter().for_each(|expr| note(expr, &mut all));
            let moved = narrow(input, &all);
            exprs.into_iter().for_each(|expr| follow(expr, &moved));
            unmoved(wanted.len())
        }
        Node::Join { .. } => narrow_join(node, wanted),
        other => unmoved(other.width()),
    }
}

fn narrow_join(node: &mut Node, wanted: &[bool]) -> Moved {
    let Node::Join { left, right, on, right_width, keys, .. } = node else { return unmoved(wanted.len()) };
    let width = left.width();
    let mut all = wanted.to_vec();
    on.iter().for_each(|on| note(on, &mut all));
    let (of_left, of_right) = all.split_at_mut(width);
    for (left, right) in keys.iter().flatten() {
        note(left, of_left);
        note(right, of_right);
    }
    // The right side sees the left row.
    right.each_outer(&mut |it, depth| match it {
        Expr::Outer { level, column } if *level - depth == 1 => of_left[*column] = true,
        _ => {}
    });
    let (on_left, on_right) = (narrow(left, of_left), narrow(right, of_right));
    right.each_outer(&mut |it, depth| match it {
        Expr::Outer { level, column } if *level - depth == 1 => *column = on_left[*column].unwrap_or(*column),
        _ => {}
    });
    for (left, right) in keys.iter_mut().flatten() {
        follow(left, &on_left);
        follow(right, &on_right);
    }
    let behind = left.width();
    *right_width = right.width();
    let moved = on_left.into_iter().chain(on_right.into_iter().map(|at| at.map(|at| at + behind))).collect();
    on.iter_mut().for_each(|on| follow(on, &moved));
    moved
}

/// Leaves out lists of columns that a scan can give by itself, or that are all of a row.
fn folded(node: Node) -> Node {
    let (input, columns) = match within(node, &folded) {
        Node::Project { input, columns } => (input, columns),
        other => return other,
    };
    let at = |column: &Expr| if let Expr::Column(at) = column { Some(*at) } else { None };
    match (columns.iter().map(at).collect::<Option<Vec<_>>>(), *input) {
        (Some(plain), input) if plain.iter().copied().eq(0..input.width()) => input,
        (Some(plain), Node::Scan(mut scan)) => {
            scan.columns = plain.iter().map(|&at| scan.columns[at]).collect();
            Node::Scan(scan)
        }
        (_, input) => Node::Project { input: Box::new(input), columns },
    }
}

/// Marks scans whose rows are handed on where they lie. `is_quiet`: what takes the rows of this node asks the transaction for nothing.
fn mark(node: &mut Node, is_quiet: bool) {
    match node {
        Node::Scan(scan) => scan.is_in_place = is_quiet,
        Node::Filter { input, condition } => mark(input, is_quiet && is_apart(condition)),
        Node::Project { input, columns } => mark(input, is_quiet && columns.iter().all(is_apart)),
        Node::Limit { input, .. } => mark(input, is_quiet),
        Node::Append(inputs) => inputs.iter_mut().for_each(|input| mark(input, is_quiet)),
        // They keep what comes in, and then hand on.
        Node::Sort { input, keys } => mark(input, keys.iter().all(|key| is_apart(&key.expr))),
        Node::Aggregate { input, groups, aggregates, .. } => {
            let are_apart = aggregates.iter_mut().flat_map(Aggregate::parts_mut).all(|part| is_apart(part));
            mark(input, are_apart && groups.iter().all(is_apart));
        }
        Node::Join { left, right, on, keys, .. } => {
            let is_quiet = is_quiet && on.iter().all(is_apart);
            let are_apart = keys.iter().flatten().all(|(left, right)| is_apart(left) && is_apart(right));
            // Where the right side is not kept it is asked for each left row.
            mark(left, keys.is_some() && is_quiet && are_apart);
            mark(right, if keys.is_some() { are_apart } else { is_quiet });
        }
        _ => {}
    }
}

/// Whether an expression is computed without the database.
fn is_apart(expr: &Expr) -> bool {
    let mut is_apart = true;
    expr.walk(&mut |it| is_apart &= !matches!(it, Expr::Subquery(_) | Expr::Drawn(..)));
    is_apart
}
