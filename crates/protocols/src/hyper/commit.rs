//! Validation and commit (§2.3 of the paper).
//!
//! 1. Compare what has committed since the start with the predicates: outside of any latch, beside others that do the same.
//! 2. Stage the changes for the log.
//! 3. Under the lock of the list: compare what has committed since step 1, which is little; draw the commit time; seal the changes; commit,
//!    which is one store; make the time the latest.
//! 4. Collect what no thread still undoes.

use hashbrown::HashTable;
use polychron_base::clock::Clock as _;
use polychron_base::{Error, IndexId, Reason, TableId};
use polychron_engine::mutations::{left_out, pass};
use polychron_engine::redo::Change;
use polychron_engine::stores::IndexRef;
use polychron_schema::RowBuffer;

use super::clock::{Committed, History};
use super::counts::add;
use super::predicates::{KEPT_RELATIONS, RelationLog};
use super::steps::{Point, Step};
use super::table::HyperTable;
use super::transaction::HyperTransaction;
use super::tree::{BeforeImages, Tree};
use super::undo::{FIRST_ID, Kind, Undo};
use super::view::{Seen, apply};
use super::worker::State;

/// What validation needs, kept from one transaction to the next.
#[derive(Debug, Default)]
pub(super) struct Validation {
    /// A tree for each relation that was touched, in the order of the log.
    trees: Vec<Tree>,
    built: bool,
    others: Vec<Committed>,
    /// Up to here before-images stand for others that have left their chains: only the chain of the row tells all that was changed.
    behind_by: u64,
    /// Rows whose chains were gone along, each once for all its before-images so far.
    rows: Rows,
    /// The fixed part of a row, while its before-images are undone one by one.
    words: Vec<u64>,
    after: RowBuffer,
    before: RowBuffer,
}

/// For some rows, by when all changes have been compared.
#[derive(Debug, Default)]
struct Rows(HashTable<Compared>);

#[derive(Clone, Copy, Debug)]
struct Compared {
    table: TableId,
    row: u64,
    by: u64,
}

impl Rows {
    fn hash(table: TableId, row: u64) -> u64 {
        (row ^ (table.position() as u64) << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    /// By when a row's changes have been compared, to be changed.
    fn by(&mut self, table: TableId, row: u64) -> &mut u64 {
        let is_same = |known: &Compared| known.table == table && known.row == row;
        let entry = self.0.entry(Self::hash(table, row), is_same, |known| Self::hash(known.table, known.row));
        &mut entry.or_insert(Compared { table, row, by: 0 }).into_mut().by
    }

    fn clear(&mut self) {
        self.0.clear();
        self.0.shrink_to(1 << 12, |known| Self::hash(known.table, known.row));
    }
}

/// Commits whose list is kept for the next transaction.
const LISTED: usize = 1 << 12;
/// Commits that are listed under the lock at once, and hardly more.
const LISTED_AT_ONCE: usize = 256;
/// So few that they are compared under the lock.
const FEW: u64 = 16;

/// What a transaction has met of another one's: a before-image, of which this is told.
#[derive(Debug)]
struct Met {
    index_ref: IndexRef,
    row: u64,
    kind: Kind,
    key: Vec<u8>,
}

impl Met {
    #[cold]
    fn of(before_image: Undo<'_>) -> Self {
        Self {
            index_ref: before_image.index_ref(),
            row: before_image.row(),
            kind: before_image.kind(),
            key: before_image.key().to_vec(),
        }
    }
}

impl Validation {
    /// Nothing is compared from now on. Whether anything was.
    pub(super) fn end(&mut self) -> bool {
        let was_built = self.built;
        if was_built {
            self.built = false;
            self.rows.clear();
            self.others.clear();
            self.others.shrink_to(LISTED);
            self.trees.truncate(KEPT_RELATIONS);
        }
        was_built
    }
}

impl HyperTransaction<'_> {
    /// Commits a transaction that wrote. After an error the transaction is undone when it is dropped.
    pub(super) fn commit_writes(&mut self) -> Result<(), Error> {
        self.know_all_indexes()?;
        self.state.log.close();
        self.state.validation.end();
        let mut compared = self.start;
        if self.has_logged() {
            compared = self.compare_most(compared)?;
        }
        pass(Point::Compared);
        self.stage_changes()?;
        self.shared.clock.held(&mut self.state.held);
        self.state.writing.seal();
        let shared = self.shared;
        let mut history = shared.clock.history();
        if self.has_logged() && shared.clock.latest() != compared && !left_out(Step::CompareInSection) {
            let by = self.list_since(compared, &history);
            self.compare_others(compared, by)?;
        }
        let State { base, writing, .. } = &mut *self.state;
        let seal = |at: u64| base.ticket.raise(shared.base.common.journal.seal(base.slot, || at.into()));
        let timestamp = shared.clock.commit(&mut history, writing, seal);
        let made = self.state.writing.len();
        self.state.writing.leave();
        let State { collector, held, .. } = &mut *self.state;
        collector.take_ready(held, &mut history, &shared.clock, made);
        self.state.base.nested.committed(self.database(), timestamp);
        Ok(())
    }

    /// A transaction that began before an index was added keeps no entries of it up, so it must not change a row whose
    /// entry was made by one that began later.
    #[inline]
    fn know_all_indexes(&mut self) -> Result<(), Error> {
        if left_out(Step::KnowAllIndexes) {
            return Ok(());
        }
        let written = || self.state.writing.before_images().map(Undo::index_ref);
        let outdated = self.state.base.tables.outdated(&self.shared.base.catalog, written);
        outdated.map_or(Ok(()), |index_ref| Err(self.conflict(Reason::Inconsistent, index_ref, None)))
    }

    /// Moves the start to the latest commit, if nothing that has committed since meets what this transaction has asked. What it has
    /// written is locked, so it is the same at both; what it has asked before is as good as asked now.
    pub(super) fn begin_later(&mut self) -> Result<(), Error> {
        self.state.log.close();
        let has_asked = !self.state.log.touched().is_empty() && !left_out(Step::CompareBeforeMoving);
        self.state.validation.end();
        let mut compared = self.start;
        if has_asked {
            compared = self.compare_most(compared)?;
        }
        self.shared.clock.announce_move(self.state.base.slot, self.start);
        let latest = {
            // A thread that commits stamps, and then makes the time known, under this lock: so a stamp that was seen before is not later.
            let shared = self.shared;
            let history = shared.clock.history();
            if has_asked { self.list_since(compared, &history) } else { shared.clock.latest() }
        };
        if has_asked {
            self.compare_others(compared, latest)?;
        }
        self.start = latest;
        self.shared.clock.move_on(self.state.base.slot, latest);
        self.shared.clock.forget_listed(self.state.base.slot);
        Ok(())
    }

    /// Compares what has committed since a timestamp with what this transaction has asked, until there is little left or others commit
    /// faster. Answers up to where.
    fn compare_most(&mut self, mut compared: u64) -> Result<u64, Error> {
        let (shared, mut before) = (self.shared, u64::MAX);
        loop {
            let latest = shared.clock.latest();
            let behind = latest - compared;
            if behind == 0 || before <= behind.max(FEW) {
                return Ok(compared);
            }
            before = behind;
            let since = compared;
            compared = self.list_in_slices(since);
            self.compare_others(since, compared)?;
        }
    }

    /// Notes the transactions that have committed after a timestamp. Returns up to which timestamp they are known now.
    fn list_since(&mut self, timestamp: u64, history: &History) -> u64 {
        let latest = self.shared.clock.latest();
        self.state.validation.others.clear();
        self.list(history, timestamp, latest);
        self.shared.clock.note_listed(self.state.base.slot, latest);
        latest
    }

    /// As [`Self::list_since`], with the lock for one slice after the other, and what is committed meanwhile with the last one. The
    /// timestamp of the last listing stays held until then. A commit that was not listed yet may leave the list between two slices, when an
    /// older before-image stands for it that was committed after that timestamp, too. That one was committed no later than `behind_by` of
    /// the last slice, so its row is compared by the chain, which has all that is left, and not by the before-image that was listed.
    fn list_in_slices(&mut self, timestamp: u64) -> u64 {
        let clock = &self.shared.clock;
        let (mut listed, first) = (timestamp, clock.latest());
        self.state.validation.others.clear();
        loop {
            let history = clock.history();
            let latest = clock.latest();
            let by = if listed < first { history.slice(listed, latest, LISTED_AT_ONCE) } else { latest };
            self.list(&history, listed, by);
            listed = by;
            if by == latest {
                clock.note_listed(self.state.base.slot, latest);
                return latest;
            }
        }
    }

    fn list(&mut self, history: &History, after: u64, by: u64) {
        self.state.validation.others.extend(history.between(after, by));
        self.state.validation.behind_by = history.behind_by;
    }

    /// Compares the changes of the others, all that committed after a timestamp up to a later one, with what this transaction
    /// has asked.
    fn compare_others(&mut self, since: u64, by: u64) -> Result<(), Error> {
        let mut validation = std::mem::take(&mut self.state.validation);
        if !validation.built {
            self.build_trees(&mut validation);
        }
        let (mut outcome, others) = (None, std::mem::take(&mut validation.others));
        for Committed { at, buffer, .. } in &others {
            if let Some(before_image) = buffer
                .before_images()
                .find_map(|before_image| self.meets(&mut validation, before_image, *at, (since, by)))
            {
                outcome = Some((before_image, *at));
                break;
            }
        }
        let tested = validation.trees.iter().map(Tree::take_tested).sum();
        add(&self.shared.counts[self.state.base.slot].tested, tested);
        let met = outcome.map(|(before_image, at)| (Met::of(before_image), at));
        self.state.validation = Validation { others, ..validation };
        met.map_or(Ok(()), |(met, at)| Err(self.is_behind(&met, at)))
    }

    /// Another transaction has changed a row under this one's reads.
    #[cold]
    fn is_behind(&mut self, met: &Met, at: u64) -> Error {
        let Met { index_ref, row, kind, .. } = *met;
        self.state.base.nested.is_behind(at);
        if let Ok(store) = self.state.base.tables.table(index_ref.table).and_then(|table| table.store(index_ref.index))
        {
            // The before-image is of a slot of these rows, whose page has perhaps left.
            store.rows.find(row).into_iter().for_each(|record| self.state.base.contested.note(record));
        }
        let reason = if kind == Kind::Insert { Reason::Phantom } else { Reason::StaleRead };
        self.conflict(reason, index_ref, Some(&met.key))
    }

    #[cold]
    fn build_trees(&mut self, validation: &mut Validation) {
        let began = self.shared.time.now_ns();
        let (log, counts) = (&self.state.log, &self.shared.counts[self.state.base.slot]);
        validation.trees.resize_with(log.touched().len().max(validation.trees.len()), Tree::default);
        for (position, (tree, &id)) in validation.trees.iter_mut().zip(log.touched()).enumerate() {
            if let Ok(table) = self.state.base.tables.table(id) {
                tree.build(log.relation_at(position), table);
                add(&counts.trees, 1);
                add(&counts.tree_nodes, tree.len() as u64);
            }
        }
        validation.built = true;
        add(&counts.logs, 1);
        add(&counts.log_bytes, log.bytes() as u64);
        add(&counts.build_ns, self.shared.time.now_ns().saturating_sub(began));
    }

    /// A change that meets a predicate: one that another transaction has committed at a timestamp, or another one of the same row, of those
    /// that were committed after a timestamp and by another one.
    fn meets<'g>(
        &'g self,
        validation: &mut Validation,
        before_image: Undo<'g>,
        at: u64,
        (since, listed): (u64, u64),
    ) -> Option<Undo<'g>> {
        let IndexRef { table: id, index } = before_image.index_ref();
        let log = &self.state.log;
        let position = log.position(id)?;
        let (relation, Ok(table)) = (log.relation_at(position), self.state.base.tables.table(id)) else { return None };
        // The entries of secondary indexes say nothing that their rows do not.
        if index != IndexId::PRIMARY {
            return None;
        }
        add(&self.shared.counts[self.state.base.slot].compared, 1);
        let tree = &validation.trees[position];
        if at > validation.behind_by {
            // A thread that fills an index writes rows without changing them.
            if before_image.columns().is_empty() {
                return None;
            }
            if tree.meets_point(relation, before_image, self.shared.options.level.goes_by_columns()) {
                return Some(before_image);
            }
            if !tree.may_meet(before_image, self.shared.options.level.goes_by_columns()) {
                return None;
            }
        } else if !tree.asks_of(relation, before_image.summary()) {
            return None;
        }
        let by = *validation.rows.by(id, before_image.row());
        if at <= by {
            return None;
        }
        self.row_meets(validation, (position, relation, table), before_image, (since.max(by), listed))
    }

    /// Goes along the chain of a before-image's row, once for all its before-images since a timestamp, which were listed up to another one.
    /// Later ones are listed later, even if they were here already: what comes after them may leave the chain, and they stand for it.
    fn row_meets<'g>(
        &'g self,
        validation: &mut Validation,
        (position, relation, table): (usize, &RelationLog, &HyperTable),
        before_image: Undo<'g>,
        (since, listed): (u64, u64),
    ) -> Option<Undo<'g>> {
        let Validation { trees, rows, words, after, before, .. } = validation;
        let tree = &trees[position];
        *rows.by(table.id, before_image.row()) = listed;
        words.resize(table.primary.rows.words(), 0);
        // The before-image is of a slot of these rows. Where its page has left, the row came and went.
        let record = table.primary.rows.find(before_image.row())?;
        let mut seen = Seen::in_place(record.read(0..words.len(), words, &self.guard));
        let (mut next, mut walked) = (seen.version, 0);
        while let Some(present) = next.filter(|present| present.stamp() > since) {
            walked += 1;
            next = present.older();
            let stamp = present.stamp();
            // A transaction that has not committed yet is not compared: the commit comes later, and is compared then, or compares with this one.
            let is_changed = stamp < FIRST_ID && !present.columns().is_empty();
            if is_changed && tree.meets_point(relation, present, self.shared.options.level.goes_by_columns()) {
                return Some(present);
            }
            let is_compared = is_changed && tree.may_meet(present, self.shared.options.level.goes_by_columns());
            let left = seen;
            if is_compared {
                whole_row(after, words, left);
            }
            apply(present, words, &mut seen);
            if is_compared {
                whole_row(before, words, seen);
                let before_images = BeforeImages {
                    before: seen.present.then(|| before.as_row()),
                    after: left.present.then(|| after.as_row()),
                    columns: present.columns(),
                };
                if tree.meets(relation, table, before_images, self.shared.options.level.goes_by_columns()) {
                    return Some(present);
                }
            }
        }
        add(&self.shared.counts[self.state.base.slot].walked, walked);
        // A before-image that has left the chain is of a row that came and went since the start: the answer at the commit is the
        // one at the start.
        None
    }

    /// Stages the changes of rows: of each row that was changed, what its before-images undo, as it is now.
    fn stage_changes(&mut self) -> Result<(), Error> {
        let (journal, guard) = (&self.shared.base.common.journal, &self.guard);
        if journal.is_empty() {
            return Ok(());
        }
        let State { base, writing, buffers, .. } = &mut *self.state;
        for newest in writing.before_images() {
            let IndexRef { table: id, index } = newest.index_ref();
            let Ok(table) = base.tables.table(id) else { continue };
            if index != IndexId::PRIMARY {
                continue;
            }
            let (words, row) = (table.primary.rows.words(), &mut buffers.row);
            // The before-image is of a slot of these rows, and in its chain.
            let record = table.primary.rows.record(newest.row());
            let in_place = record.read(0..0, &mut [], guard);
            if in_place.version != Some(newest) {
                // A later change of the same transaction comes yet.
                continue;
            }
            let stage = |change: Change<'_>| journal.stage(base.slot, id, newest.key(), change);
            if !in_place.present {
                stage(Change::Delete)?;
            } else if own(newest).all(|image| image.kind() == Kind::Update && image.out_of_line().is_none()) {
                for (word, before) in own(newest).flat_map(Undo::fragments) {
                    let changed = word..word + before.len();
                    record.read(changed.clone(), row.overwrite_words(words), guard);
                    stage(Change::Patch { word, words: &row.as_words()[changed] })?;
                }
            } else {
                record.read(0..words, row.overwrite_words(words), guard);
                let out_of_line = in_place.out_of_line.map_or(&[][..], |out_of_line| out_of_line.words());
                row.overwrite_words(words + out_of_line.len())[words..].copy_from_slice(out_of_line);
                stage(Change::Put(row.as_words()))?;
            }
        }
        Ok(())
    }
}

/// The before-images of a row that are of one transaction, which has written it last.
fn own(newest: Undo<'_>) -> impl Iterator<Item = Undo<'_>> {
    let is_own = move |image: &Undo<'_>| image.buffer() == newest.buffer();
    std::iter::successors(Some(newest), |image| image.older()).take_while(is_own)
}

/// Puts a row together from its fixed part and what is behind it.
fn whole_row(row: &mut RowBuffer, words: &[u64], seen: Seen<'_>) {
    let out_of_line = seen.out_of_line.map_or(&[][..], |out_of_line| out_of_line.words());
    let whole = row.overwrite_words(words.len() + out_of_line.len());
    whole[..words.len()].copy_from_slice(words);
    whole[words.len()..].copy_from_slice(out_of_line);
}
