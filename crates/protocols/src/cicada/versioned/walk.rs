//! Many lookups at once, a node of each in turn, so that their misses overlap: for keys that were asked for together. What they lead
//! to are hints (`find.rs`).

use std::sync::Arc;

use polychron_base::TableId;
use polychron_base::key::Key16;
use polychron_engine::redo::Redo;
use polychron_engine::stores::Hints;
use polychron_memory::Guard;

use super::Versioned;
use super::look_up::{CommittedView, Viewer};
use crate::cicada::kept::Kept;
use crate::cicada::protocol::Shared;
use crate::cicada::record::Reader;
use crate::cicada::table::CicadaTable;

/// Lines of a record that are fetched: longer rows are rarely read whole.
const MOST_LINES: usize = 4;

/// A key, and how far its lookup has come.
#[derive(Debug)]
struct Walk {
    /// Which of the hints it is.
    position: usize,
    key: Key16,
    /// The node that is looked at next; in the end the row's record.
    record: Option<Kept>,
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
    walks: Vec<Walk>,
}

fn versioned(tables: &[Option<Arc<CicadaTable>>], table: TableId) -> Option<(&CicadaTable, &Versioned)> {
    let table = polychron_engine::catalog::known(tables, table)?;
    Some((table, table.primary.versioned.as_ref()?))
}

impl Walk {
    /// Goes one node further.
    #[inline]
    fn step(&mut self, timestamp: &CommittedView<'_>) {
        let Some(record) = self.record else {
            self.is_done = true;
            return;
        };
        let spot = timestamp.look_at(record);
        self.record = timestamp.node(&spot).and_then(|node| {
            // A snapshot is of one timestamp, so no way leads past the key.
            if node.level() > 0 {
                let child = node.record(node.child(self.key, false));
                child.prefetch(self.node_lines);
                return Some(child.into());
            }
            self.is_done = true;
            let (position, is_there) = node.rank(self.key);
            let row = node.record(if is_there { position } else { return None });
            row.prefetch(self.row_lines);
            Some(row.into())
        });
        self.is_done |= self.record.is_none();
    }
}

impl Planned {
    /// As [`Planned::look_up`], at a snapshot. The caller runs no transaction.
    pub(in crate::cicada) fn look_up_now<R: Redo>(
        &mut self,
        shared: &Shared<R>,
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
    pub(in crate::cicada) fn look_up(
        &mut self,
        timestamp: CommittedView<'_>,
        tables: &[Option<Arc<CicadaTable>>],
        hints: &mut Hints,
        first: usize,
    ) {
        self.walks.clear();
        self.walks.extend(hints.keys_from(first).filter_map(|(position, table, key)| {
            let (stored, nodes) = versioned(tables, table)?;
            let (node_lines, row_lines) = (nodes.nodes.lines(), stored.primary.records.lines().min(MOST_LINES));
            Some(Walk { position, key, record: Some(nodes.root(key).into()), is_done: false, node_lines, row_lines })
        }));
        for walks in self.walks.chunks_mut(AT_A_TIME) {
            walks.iter().filter_map(|walk| walk.record).for_each(|root| root.address().prefetch(walks[0].node_lines));
            let mut under_way = true;
            while under_way {
                under_way = false;
                for walk in walks.iter_mut().filter(|walk| !walk.is_done) {
                    walk.step(&timestamp);
                    under_way |= !walk.is_done;
                }
            }
        }
        for walk in &self.walks {
            hints.set(walk.position, walk.record.map(|record| record.address().handle()));
        }
    }
}
