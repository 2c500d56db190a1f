//! Many look-ups at once, a node of each in turn, so that their misses overlap: for the keys that the procedures of a batch
//! declare. The way is gone at a snapshot, before any of them begins. What it leads to is a hint (`prefetch.rs`).

use std::sync::Arc;

use polychron_base::TableId;
use polychron_base::key::{EncodedKey, Key16};
use polychron_engine::redo::Redo;
use polychron_engine::stores::Hints;
use polychron_engine::{Access, Declare, Procedure};

use super::Versioned;
use super::look_up::{Moment, Viewer};
use crate::cicada::clocks::Clocks;
use crate::cicada::protocol::Shared;
use crate::cicada::record::Record;
use crate::cicada::table::CicadaTable;

/// Lines of a record that are fetched: longer rows are rarely read whole.
const MOST_LINES: usize = 4;

/// A key that a procedure declares, and how far its look-up has come.
#[derive(Debug)]
struct Walk {
    procedure: usize,
    table: TableId,
    key: Key16,
    /// The node that is looked at next; in the end the row's record.
    record: Option<Record>,
    is_done: bool,
    /// Cache lines of nodes and of rows that are fetched.
    node_lines: usize,
    row_lines: usize,
}

/// Look-ups whose nodes are fetched at a time: more than these would push each other out of the nearest cache.
const AT_A_TIME: usize = 32;

/// Look-ups of a group of procedures; memory that is kept from one group to the next.
#[derive(Debug, Default)]
pub(in crate::cicada) struct Planned {
    walks: Vec<Walk>,
}

/// What procedures declare of tables with multi-version indexes.
struct Plan<'p> {
    tables: &'p [Option<Arc<CicadaTable>>],
    procedure: usize,
    walks: &'p mut Vec<Walk>,
}

fn versioned(tables: &[Option<Arc<CicadaTable>>], table: TableId) -> Option<(&CicadaTable, &Versioned)> {
    let table = tables.get(table.position())?.as_deref()?;
    Some((table, table.primary.versioned.as_ref()?))
}

impl Declare for Plan<'_> {
    #[inline]
    fn key<K: EncodedKey>(&mut self, table: TableId, key: K, _access: Access) {
        let Some((stored, nodes)) = versioned(self.tables, table) else { return };
        let Some(key) = Key16::from_key(key) else { return };
        let root = nodes.root(key);
        let (node_lines, row_lines) = (nodes.nodes.lines(), stored.primary.records.lines().min(MOST_LINES));
        let (procedure, record) = (self.procedure, Some(root));
        self.walks.push(Walk { procedure, table, key, record, is_done: false, node_lines, row_lines });
    }
}

impl Walk {
    /// Goes one node further.
    #[inline]
    fn step(&mut self, moment: &Moment) {
        let Some(record) = self.record else {
            self.is_done = true;
            return;
        };
        let spot = moment.look_at(record);
        self.record = moment.node(&spot).and_then(|node| {
            // A snapshot is of one moment, so no way leads past the key.
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

/// Ends the snapshot of a group's look-ups, whatever happens.
struct Held<'c>(&'c Clocks, usize);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.end(self.1);
    }
}

impl Planned {
    /// Finds the records of the keys that a group of procedures declares, in tables with multi-version indexes. Where there are
    /// such keys the hints are those alone; `ends` tells where each procedure's end. The caller runs no transaction, and keeps
    /// its guard for as long as the hints.
    pub(in crate::cicada) fn look_up<R: Redo, P: Procedure>(
        &mut self,
        shared: &Shared<R>,
        tables: &[Option<Arc<CicadaTable>>],
        worker: usize,
        group: &[P],
        hints: &mut Hints,
        ends: &mut [usize],
    ) {
        self.walks.clear();
        if !tables.iter().flatten().any(|table| table.primary.versioned.is_some()) {
            return;
        }
        let mut plan = Plan { tables, procedure: 0, walks: &mut self.walks };
        for (position, procedure) in group.iter().enumerate() {
            plan.procedure = position;
            procedure.declare(&mut plan);
        }
        if self.walks.is_empty() {
            return;
        }
        let moment = Moment { timestamp: shared.clocks.begin_snapshot(worker), wait: true };
        let _held = Held(&shared.clocks, worker);
        for walks in self.walks.chunks_mut(AT_A_TIME) {
            walks.iter().filter_map(|walk| walk.record).for_each(|root| root.prefetch(walks[0].node_lines));
            let mut under_way = true;
            while under_way {
                under_way = false;
                for walk in walks.iter_mut().filter(|walk| !walk.is_done) {
                    walk.step(&moment);
                    under_way |= !walk.is_done;
                }
            }
        }
        hints.clear();
        ends.fill(0);
        for walk in &self.walks {
            ends[walk.procedure] = hints.add(walk.table, walk.key, walk.record.map(Record::handle));
        }
    }
}
