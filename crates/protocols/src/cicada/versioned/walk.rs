//! Many lookups at once, a node of each in turn, so that their misses overlap: for keys that were asked for together. What they lead
//! to are hints (`find.rs`).

use std::sync::Arc;

use polychron_base::TableId;
use polychron_base::key::Key16;
use polychron_engine::stores::Hints;
use polychron_memory::Guard;

use super::Versioned;
use super::look_up::{CommittedView, Viewer};
use crate::cicada::protocol::Shared;
use crate::cicada::record::{Reader, Record};
use crate::cicada::table::CicadaTable;

/// Lines of a record that are fetched: longer rows are rarely read whole.
const MOST_LINES: usize = 4;

/// A key, and how far its lookup has come.
#[derive(Debug)]
struct Walk<'g> {
    /// Which of the hints it is.
    position: usize,
    key: Key16,
    /// The node that is looked at next; in the end the row's record.
    record: Option<Record<'g>>,
    is_done: bool,
    /// Cache lines of nodes and of rows that are fetched.
    node_lines: usize,
    row_lines: usize,
}

/// Lookups whose nodes are fetched at a time: more than these would push each other out of the nearest cache.
const AT_A_TIME: usize = 32;

/// Lookups of several keys; memory that is kept from one time to the next.
#[derive(Debug, Default)]
pub(in crate::cicada) struct Planned {
    /// Empty between two times.
    walks: Vec<Walk<'static>>,
}

fn versioned(tables: &[Option<Arc<CicadaTable>>], table: TableId) -> Option<(&CicadaTable, &Versioned)> {
    let table = polychron_engine::catalog::known(tables, table)?;
    Some((table, table.primary.versioned.as_ref()?))
}

impl<'g> Walk<'g> {
    /// Goes one node further.
    #[inline]
    fn step(&mut self, view: CommittedView<'g>) {
        let Some(record) = self.record else {
            self.is_done = true;
            return;
        };
        let sight = view.look_at(record);
        self.record = view.node(&sight).and_then(|node| {
            // A snapshot is of one timestamp, so no way leads past the key.
            if node.level() > 0 {
                let child = node.record(node.child(self.key, false));
                child.prefetch(self.node_lines);
                return Some(child);
            }
            self.is_done = true;
            let (position, is_there) = node.rank(self.key);
            let row = node.record(if is_there { position } else { return None });
            row.prefetch(self.row_lines);
            Some(row)
        });
        self.is_done |= self.record.is_none();
    }
}

impl Planned {
    /// As [`Planned::look_up`], at a snapshot. The caller runs no transaction.
    pub(in crate::cicada) fn look_up_now(
        &mut self,
        shared: &Shared,
        tables: &[Option<Arc<CicadaTable>>],
        guard: &Guard<'_>,
        hints: &mut Hints,
    ) {
        let worker = guard.worker_id().position();
        if tables.iter().flatten().any(|table| table.primary.versioned.is_some()) {
            let held = shared.clocks.hold(worker);
            self.look_up(CommittedView { reader: Reader::at(&held, guard), wait: true }, tables, hints, 0);
        }
    }

    /// Finds the records of those keys from position `first` of the hints on that lie in multi-version indexes. The caller holds the
    /// timestamp, and keeps its guard for as long as the hints.
    pub(in crate::cicada) fn look_up<'g>(
        &mut self,
        view: CommittedView<'g>,
        tables: &'g [Option<Arc<CicadaTable>>],
        hints: &mut Hints,
        first: usize,
    ) {
        let mut walks: Vec<Walk<'g>> = std::mem::take(&mut self.walks);
        walks.extend(hints.keys_from(first).filter_map(|(position, table, key)| {
            let (stored, nodes) = versioned(tables, table)?;
            let (node_lines, row_lines) = (nodes.nodes.lines(), stored.primary.records.lines().min(MOST_LINES));
            Some(Walk { position, key, record: Some(nodes.root(key)), is_done: false, node_lines, row_lines })
        }));
        for walks in walks.chunks_mut(AT_A_TIME) {
            walks.iter().filter_map(|walk| walk.record).for_each(|root| root.prefetch(walks[0].node_lines));
            let mut under_way = true;
            while under_way {
                under_way = false;
                for walk in walks.iter_mut().filter(|walk| !walk.is_done) {
                    walk.step(view);
                    under_way |= !walk.is_done;
                }
            }
        }
        for walk in &walks {
            hints.set(walk.position, walk.record.map(Record::handle));
        }
        walks.clear();
        // An iterator of the same layout leaves its room to the list that it is collected into.
        self.walks = walks.into_iter().map(|_| unreachable!("the list is empty")).collect();
    }
}
