//! The children of rows whose foreign key has no index: a statement reads their table once, however many parents it asks for.

use std::sync::Arc;

use bumpalo::Bump;
use hashbrown::HashMap;
use polychron_schema::{KeyScratch, Projection};

use super::aggregates::group_key;
use super::changes::{Row, gathered, key_of};
use super::scans::values;
use super::{Exec, Failure, Flow, run};
use crate::catalog::Table;
use crate::context::{Context, Outer};
use crate::datum::{Datum, OwnedDatum};
use crate::plan::{Link, Node, Scan};

/// What a statement knows of children.
#[derive(Default)]
pub(super) struct Children {
    /// By the addresses of the links.
    known: HashMap<usize, Known>,
}

/// What is known of the children of one foreign key.
struct Known {
    link: Arc<Link>,
    /// The primary keys of children, by the values of the foreign key that they have, or have had. `None`: one parent was asked for, which is
    /// not worth this.
    keys: Option<HashMap<Vec<u8>, Vec<Vec<u8>>>>,
}

/// The rows that a node finds by these values, which are its next outer row.
pub(super) fn found<'a>(
    node: &Node,
    values: &[OwnedDatum],
    exec: &mut Exec<'_>,
    context: &Context<'a>,
) -> Result<bumpalo::collections::Vec<'a, Row<'a>>, Failure> {
    let row: Vec<_> = values.iter().map(OwnedDatum::get).collect();
    let outer = Outer { row: &row, next: None };
    gathered(node, exec, &Context { outer: Some(&outer), ..*context }, context.arena)
}

/// Whether all rows are looked at, and values that are equal have the same form on both sides.
fn is_kept(link: &Link) -> bool {
    let Node::Filter { input, .. } = &link.find_children else { return false };
    let Node::Scan(scan) = &**input else { return false };
    !scan.path.is_narrow() && link.find_by_own.is_none()
}

fn key_in<'r>(row: &[Datum<'r>], columns: &[usize]) -> Option<Vec<u8>> {
    let values: Vec<_> = columns.iter().map(|&at| row[at]).collect();
    (!values.iter().any(|value| value.is_null())).then(|| group_key(&values))
}

impl Children {
    /// The children of a parent with these values, which are of its types or of the child's.
    pub(super) fn of<'a>(
        &mut self,
        link: &Arc<Link>,
        (values, is_of_child): (&[OwnedDatum], bool),
        exec: &mut Exec<'_>,
        context: &Context<'a>,
    ) -> Result<bumpalo::collections::Vec<'a, Row<'a>>, Failure> {
        if !is_kept(link) {
            return found(link.children_node(is_of_child), values, exec, context);
        }
        let known = match self.known.entry(Arc::as_ptr(link) as usize) {
            hashbrown::hash_map::Entry::Occupied(known) => known.into_mut(),
            hashbrown::hash_map::Entry::Vacant(free) => {
                free.insert(Known { link: link.clone(), keys: None });
                return found(&link.find_children, values, exec, context);
            }
        };
        if known.keys.is_none() {
            known.keys = Some(all(link, exec, context)?);
        }
        let wanted: Vec<_> = values.iter().map(OwnedDatum::get).collect();
        let mut rows = bumpalo::collections::Vec::new_in(context.arena);
        let Some(keys) = known.keys.as_mut().and_then(|keys| keys.get_mut(&group_key(&wanted))) else {
            return Ok(rows);
        };
        keys.sort_unstable();
        keys.dedup();
        for key in keys.iter() {
            let Some(row) = row_of(&link.child, key, exec, context.arena)? else { continue };
            // It may have got other values since.
            let is_same = link
                .columns
                .iter()
                .zip(&wanted)
                .all(|(&at, value)| !row[at].is_null() && row[at].compare(*value).is_eq());
            if is_same {
                exec.keep(row)?;
                rows.push(row);
            }
        }
        Ok(rows)
    }

    /// The statement has changed a child.
    pub(super) fn changed(
        &mut self,
        table: &Table,
        row: &[Datum<'_>],
        exec: &Exec<'_>,
        context: &Context<'_>,
    ) -> Result<(), Failure> {
        for known in self.known.values_mut().filter(|known| known.link.child.id == table.id) {
            let (Some(keys), Some(key)) = (&mut known.keys, key_in(row, &known.link.columns)) else { continue };
            note(keys, key, (table, row), exec, context.arena)?;
        }
        Ok(())
    }
}

fn note(
    keys: &mut HashMap<Vec<u8>, Vec<Vec<u8>>>,
    key: Vec<u8>,
    (table, row): (&Table, &[Datum<'_>]),
    exec: &Exec<'_>,
    arena: &Bump,
) -> Result<(), Failure> {
    let mut scratch = KeyScratch::new();
    let primary = key_of(table, row, &mut scratch, arena)?.to_vec();
    exec.take(key.len() + primary.len() + 2 * size_of::<Vec<u8>>())?;
    keys.entry(key).or_default().push(primary);
    Ok(())
}

/// The primary keys of all rows of the child, by the values of the foreign key.
fn all(link: &Link, exec: &mut Exec<'_>, context: &Context<'_>) -> Result<HashMap<Vec<u8>, Vec<Vec<u8>>>, Failure> {
    let mut keys = HashMap::new();
    let scan = Node::Scan(Scan::whole(&link.child));
    run(&scan, exec, context, &mut |exec, row| {
        exec.tick()?;
        if let Some(key) = key_in(row, &link.columns) {
            let arena = exec.take_arena();
            note(&mut keys, key, (&link.child, row), exec, &arena)?;
            exec.give_arena(arena);
        }
        Ok(Flow::More)
    })?;
    Ok(keys)
}

/// The row of a primary key.
fn row_of<'a>(
    table: &Arc<Table>,
    key: &[u8],
    exec: &mut Exec<'_>,
    arena: &'a Bump,
) -> Result<Option<Row<'a>>, Failure> {
    let (scan, mut row) = (Scan::whole(table), None);
    exec.tick()?;
    exec.access.get(table.id, key, &Projection::ALL, &mut |found| {
        let mut own = bumpalo::collections::Vec::with_capacity_in(table.columns.len(), arena);
        own.extend(values(&scan, found).map(|value| value.within(arena)));
        let own: Row<'a> = own.into_bump_slice();
        row = Some(own);
    })?;
    Ok(row)
}
