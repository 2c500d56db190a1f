//! Validation and commit (§2.3 of the paper).
//!
//! 1. Compare what has committed since the start with the predicates: outside of any latch, beside others that do the same.
//! 2. Under the lock of the list: compare what has committed since step 1, which is little; draw the commit time; hand the changes to the
//!    log; commit, which is one store; make the time the latest.
//! 3. Collect what nobody undoes any more.

use polychron_base::clock::Clock as _;
use polychron_base::{IndexId, Reason, Stop};
use polychron_engine::mutations::{left_out, pass};
use polychron_engine::redo::{self, Redo};
use polychron_engine::stores::Place;
use polychron_schema::RowBuffer;

use super::clock::{Committed, History};
use super::counts::add;
use super::level::Level;
use super::steps::{Point, Step};
use super::table::HyperTable;
use super::transaction::HyperTransaction;
use super::tree::{Images, Tree};
use super::undo::{Kind, Undo};
use super::view::{Seen, sides};

/// What validation needs, kept from one transaction to the next.
#[derive(Debug, Default)]
pub(super) struct Validation {
    /// A tree for each relation that was touched, in the order of the log.
    trees: Vec<Tree>,
    built: bool,
    others: Vec<Committed>,
    after: RowBuffer,
    before: RowBuffer,
}

impl<L: Level, R: Redo> HyperTransaction<'_, L, R> {
    /// Commits a transaction that wrote. After an error the transaction is undone when it is dropped.
    pub(super) fn commit_writes(&mut self) -> Result<(), Stop> {
        self.know_all_indexes()?;
        self.state.log.close();
        self.state.validation.built = false;
        let mut compared = self.start;
        if self.has_logged() && self.shared.clock.latest() != compared {
            compared = self.list_since(compared, None);
            self.compare_others()?;
        }
        pass(Point::Compared);
        self.shared.clock.held(&mut self.state.held);
        self.state.writing.seal();
        let shared = self.shared;
        let mut history = shared.clock.history();
        if self.has_logged() && shared.clock.latest() != compared && !left_out(Step::CompareInSection) {
            self.list_since(compared, Some(&history));
            self.compare_others()?;
        }
        shared.clock.commit(&mut history, &self.state.writing, |at| self.log_changes(at));
        self.state.writing.leave();
        self.state.collector.take_ready(&self.state.held, &mut history);
        Ok(())
    }

    /// A transaction that began before an index was added keeps no entries of it up, so it must not change a row whose
    /// entry was made by one that began later.
    #[inline]
    fn know_all_indexes(&mut self) -> Result<(), Stop> {
        let known = self.state.tables.is_present(&self.shared.catalog) || left_out(Step::KnowAllIndexes);
        if known { Ok(()) } else { self.compare_catalogs() }
    }

    #[cold]
    fn compare_catalogs(&mut self) -> Result<(), Stop> {
        let written = self.state.writing.images().iter().map(|image| image.place());
        let place = self.state.tables.outdated(&self.shared.catalog, written);
        place.map_or(Ok(()), |place| Err(self.conflict(Reason::Inconsistent, place, None)))
    }

    /// Moves the start to the latest commit, if nothing that has committed since meets what this transaction has asked. What it has
    /// written is locked, so it is the same at both; what it has asked before is as good as asked now.
    pub(super) fn begin_later(&mut self) -> Result<(), Stop> {
        self.state.log.close();
        let has_asked = !self.state.log.touched().is_empty() && !left_out(Step::CompareBeforeMoving);
        let latest = {
            // Who commits stamps, and then makes the time known, under this lock: so a stamp that was seen before is not later.
            let shared = self.shared;
            let history = shared.clock.history();
            let latest = shared.clock.latest();
            if has_asked {
                self.list_since(self.start, Some(&history));
            }
            latest
        };
        if has_asked {
            self.state.validation.built = false;
            self.compare_others()?;
        }
        self.start = latest;
        self.shared.clock.move_on(self.state.slot, latest);
        Ok(())
    }

    /// Notes who has committed after a moment; answers up to which one that is known now.
    fn list_since(&mut self, moment: u64, history: Option<&History>) -> u64 {
        let others = &mut self.state.validation.others;
        others.clear();
        match history {
            Some(history) => others.extend(history.since(moment)),
            None => others.extend(self.shared.clock.history().since(moment)),
        }
        others.last().map_or(moment, |last| last.at)
    }

    /// Compares what those others have changed with what this transaction has asked.
    fn compare_others(&mut self) -> Result<(), Stop> {
        let mut validation = std::mem::take(&mut self.state.validation);
        if !validation.built {
            self.build_trees(&mut validation);
        }
        let mut outcome = Ok(());
        for other in 0..validation.others.len() {
            let mut images = validation.others[other].buffer.images();
            if let Some(image) = images.find(|image| self.meets(&mut validation, *image)) {
                outcome = Err(image);
                break;
            }
        }
        self.state.validation = validation;
        outcome.map_err(|image| {
            let reason = if image.kind() == Kind::Insert { Reason::Phantom } else { Reason::StaleRead };
            self.conflict(reason, image.place(), Some(image.key()))
        })
    }

    #[cold]
    fn build_trees(&mut self, validation: &mut Validation) {
        let began = self.shared.time.now_ns();
        let (log, counts) = (&self.state.log, &self.shared.counts[self.state.slot]);
        validation.trees.resize_with(log.touched().len().max(validation.trees.len()), Tree::default);
        for (tree, &id) in validation.trees.iter_mut().zip(log.touched()) {
            if let (Some(relation), Ok(table)) = (log.relation(id), self.table(id)) {
                tree.build(relation, table);
                add(&counts.trees, 1);
                add(&counts.tree_nodes, tree.len() as u64);
            }
        }
        validation.built = true;
        add(&counts.logs, 1);
        add(&counts.log_bytes, log.bytes() as u64);
        add(&counts.build_ns, self.shared.time.now_ns().saturating_sub(began));
    }

    /// Whether a change that another transaction has committed meets a predicate.
    fn meets(&self, validation: &mut Validation, image: Undo) -> bool {
        let Place { table: id, index } = image.place();
        let log = &self.state.log;
        let Some(position) = log.touched().iter().position(|touched| *touched == id) else { return false };
        let (Some(relation), Ok(table)) = (log.relation(id), self.table(id)) else { return false };
        // The entries of secondary indexes say nothing that their rows do not; who fills an index writes rows without changing them.
        if index != IndexId::PRIMARY || image.columns().is_empty() {
            return false;
        }
        add(&self.shared.counts[self.state.slot].compared, 1);
        let Validation { trees, after, before, .. } = validation;
        let tree = &trees[position];
        if tree.meets_point(relation, image, L::BY_COLUMNS) {
            return true;
        }
        if !tree.may_meet(image, L::BY_COLUMNS) {
            return false;
        }
        let Some((left, was)) = Self::sides_of(table, image, after, before) else { return true };
        let images = Images {
            before: was.present.then(|| before.as_row()),
            after: left.present.then(|| after.as_row()),
            columns: image.columns(),
        };
        tree.meets(relation, table, images, L::BY_COLUMNS)
    }

    /// Both sides of a change, as rows.
    fn sides_of(
        table: &HyperTable,
        image: Undo,
        after: &mut RowBuffer,
        before: &mut RowBuffer,
    ) -> Option<(Seen, Seen)> {
        let words = table.primary.rows.words();
        // SAFETY: the image is of a slot of these rows.
        let record = unsafe { table.primary.rows.record(image.row()) };
        let (left, was) = sides(record, image, after.overwrite_words(words), before.overwrite_words(words))?;
        for (seen, row) in [(left, after), (was, before)] {
            if let Some(tail) = seen.tail {
                let tail = tail.words();
                row.overwrite_words(words + tail.len())[words..].copy_from_slice(tail);
            }
        }
        Some((left, was))
    }

    /// Hands the changes of rows to the log: for each row that was changed, as it is now.
    fn log_changes(&self, at: u64) {
        if !R::ENABLED {
            return;
        }
        let (redo, worker) = (&self.shared.redo, self.state.slot);
        let mut row = RowBuffer::new();
        for &image in self.state.writing.images() {
            let Place { table: id, index } = image.place();
            let Ok(table) = self.table(id) else { continue };
            if index != IndexId::PRIMARY {
                continue;
            }
            let words = table.primary.rows.words();
            // SAFETY: the image is of a slot of these rows.
            let record = unsafe { table.primary.rows.record(image.row()) };
            let in_place = record.read(0..words, row.overwrite_words(words));
            if in_place.version != Some(image) {
                // A later change of the same transaction comes yet.
                continue;
            }
            if !in_place.present {
                redo.change(worker, at.into(), id, image.key(), redo::Change::Delete);
                continue;
            }
            let tail = in_place.tail.map_or(&[][..], |tail| tail.words());
            row.overwrite_words(words + tail.len())[words..].copy_from_slice(tail);
            redo.change(worker, at.into(), id, image.key(), redo::Change::Put(row.as_words()));
        }
        redo.committed(worker, at.into());
    }
}
