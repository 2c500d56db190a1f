//! Every interleaving of two threads in the words of the clock, of undo buffers and of slots, under loom: a commit beside a reader that
//! begins, collection beside a reader, and two commits that each read what the other one writes.
//!
//! A commit goes the way of `commit.rs` without an index and without predicates.

use std::sync::Arc;

use polychron_base::{IndexId, TableId};
use polychron_engine::stores::IndexRef;
use polychron_memory::{Guard, Memory, Options as MemoryOptions};
use polychron_schema::ColumnSet;
use polychron_sync::model::explore;

use polychron_memory::model::beside;

use super::super::collect::replace;
use super::super::options::Options;
use super::super::rows::Rows;
use super::super::undo::{Copies, Draft, Kind, Undo, Writing, fragment_head};
use super::super::view::{SNAPSHOT, view};
use super::{Clock, Held};

/// The writer is worker 0, the other one worker 1.
const WRITER: usize = 0;
const OTHER: usize = 1;
/// As both know it at first.
const FIRST: u64 = 1;

/// What both threads share: rows of one word, which is 1 at first.
struct World {
    clock: Clock,
    rows: Rows,
}

impl World {
    fn new(rows: u64, guard: &Guard<'_>, memory: &Memory) -> Self {
        let world = Self { clock: Clock::new(2), rows: Rows::new(1, false, &Options::default()) };
        (0..rows).for_each(|_| {
            let slot = world.rows.allocate(memory.epochs(), guard).expect("memory is there");
            let mut latched = slot.latch();
            latched.store(0, &[1]);
            latched.set_present(true);
        });
        [WRITER, OTHER].into_iter().for_each(|slot| world.clock.enter(slot));
        world
    }

    /// What a row shows at a timestamp, by the paper's rule.
    fn read(&self, row: u64, timestamp: u64, own: u64, guard: &Guard<'_>) -> u64 {
        let mut word = [0];
        assert!(view(self.rows.record(row), 0..1, &mut word, (timestamp, own), guard).present);
        word[0]
    }

    /// What stands in a row.
    fn in_place(&self, row: u64) -> u64 {
        self.rows.record(row).row_word(0)
    }

    /// Makes a row 2, as `overwrite` does.
    fn write(&self, row: u64, id: u64, writing: &mut Writing, guard: &Guard<'_>) {
        let draft = Draft {
            kind: Kind::Update,
            index_ref: IndexRef { table: TableId::new(1, 0), index: IndexId::PRIMARY },
            row,
            summary: row,
            columns: ColumnSet::ALL,
            fragment_words: 2,
            has_out_of_line: false,
        };
        let before_image = writing.draft(id, draft, &[][..], guard).expect("memory is there");
        let mut latched = self.rows.record(row).latch();
        // SAFETY: no other thread has the before-image yet.
        unsafe { before_image.fragments_mut() }.copy_from_slice(&[fragment_head(0, 1), latched.load(0)]);
        latched.store(0, &[2]);
        before_image.set_older(latched.version(guard));
        latched.set_version(Some(before_image));
        drop(latched);
        writing.keep(before_image);
    }

    /// Commits, unless `meets` says of a before-image that was committed since the start that it conflicts; answers with the commit time.
    fn commit(&self, start: u64, writing: &mut Writing, meets: impl Fn(Undo<'_>) -> bool) -> Option<u64> {
        let mut compared = start;
        if self.clock.latest() != compared {
            let others: Vec<_> = self.clock.history().between(compared, u64::MAX).collect();
            compared = others.last().map_or(compared, |last| last.at);
            if others.iter().any(|other| other.buffer.before_images().any(|before_image| meets(before_image))) {
                return None;
            }
        }
        writing.seal();
        let mut history = self.clock.history();
        if self.clock.latest() != compared
            && history
                .between(compared, u64::MAX)
                .any(|other| other.buffer.before_images().any(|before_image| meets(before_image)))
        {
            return None;
        }
        Some(self.clock.commit(&mut history, writing, |_| ()))
    }
}

/// Runs both beside each other.
fn play(
    rows: u64,
    writer: impl Fn(&World, &Guard<'_>) + Copy + Send + Sync + 'static,
    other: impl Fn(&World, &Guard<'_>) + Copy + Send + Sync + 'static,
    after: impl Fn(&World) + Copy + Send + Sync + 'static,
) {
    explore(2, move || {
        let memory = Memory::new(MemoryOptions { max_workers: 3, ..MemoryOptions::tiny() }).expect("sound options");
        let local = memory.register().expect("a slot is free");
        let world = Arc::new(World::new(rows, &local.pin(), &memory));
        let (by_writer, by_other) = (Arc::clone(&world), Arc::clone(&world));
        beside(
            |_| (),
            move |(), guard| writer(&by_writer, guard),
            move |(), guard| other(&by_other, guard),
            |(), _| (),
        );
        after(&world);
    });
}

/// Writes rows from 0 on and commits.
fn write_all(world: &World, rows: u64, guard: &Guard<'_>) {
    let (id, start) = (Clock::id(WRITER, 1), world.clock.begin(WRITER, FIRST, false));
    let mut writing = Writing::default();
    (0..rows).for_each(|row| world.write(row, id, &mut writing, guard));
    world.commit(start, &mut writing, |_| false).expect("nothing conflicts");
    writing.leave();
    world.clock.end(WRITER);
}

/// A commit is seen whole or not at all, and what was seen is seen again.
#[test]
fn a_timestamp_shows_commits_whole() {
    play(
        2,
        |world, guard| write_all(world, 2, guard),
        |world, guard| {
            let start = world.clock.begin(OTHER, FIRST, true);
            let expected = if start == FIRST { 1 } else { 2 };
            for row in [0, 1, 0] {
                assert_eq!(world.read(row, start, 0, guard), expected, "at {start}");
            }
            world.clock.end(OTHER);
        },
        |_| (),
    );
}

/// A before-image stays as long as anybody reads a timestamp at which it is undone: of a snapshot, and of a transaction that may write.
#[test]
fn who_reads_keeps_what_it_undoes() {
    for (is_snapshot, has_exchange) in [(false, false), (true, false), (false, true)] {
        play(
            1,
            |world, guard| {
                write_all(world, 1, guard);
                let mut held = Held::default();
                world.clock.held(&mut held);
                // As `Collector::take_ready` does with what is old.
                if world.clock.history().recent.pop_front_if(|next| next.at <= held.oldest()).is_some() {
                    world.rows.record(0).latch().set_version(None);
                }
            },
            move |world, guard| {
                let start = if has_exchange {
                    world.clock.announce(OTHER, FIRST);
                    world.clock.begin_behind_exchange(OTHER, is_snapshot)
                } else {
                    world.clock.begin(OTHER, FIRST, is_snapshot)
                };
                let expected = if start == FIRST { 1 } else { 2 };
                assert_eq!(world.read(0, start, 0, guard), expected, "at {start}");
                world.clock.end(OTHER);
            },
            |_| (),
        );
    }
}

/// A snapshot that reads while a before-image moves out of its buffer finds the before-image or its copy.
#[test]
fn what_moves_out_is_found() {
    play(
        1,
        |world, guard| {
            write_all(world, 1, guard);
            // As `Collector::prune_buffers` does with a buffer of which little is needed.
            let Some(committed) = world.clock.history().recent.pop_front() else { return };
            for before_image in committed.buffer.before_images() {
                let mut copies = Copies::new(committed.buffer, before_image.bytes(), guard).expect("memory is there");
                let copy = copies.copy(before_image).expect("there is room");
                assert!(replace(world.rows.record(before_image.row()), before_image, copy, guard));
            }
            // SAFETY: its only before-image has left its chain.
            unsafe { committed.buffer.retire(guard) };
        },
        |world, guard| {
            let start = world.clock.begin(OTHER, FIRST, true);
            let expected = if start == FIRST { 1 } else { 2 };
            for _ in 0..2 {
                assert_eq!(world.read(0, start, SNAPSHOT, guard), expected, "at {start}");
            }
            world.clock.end(OTHER);
        },
        |_| (),
    );
}

/// A thread that may write does not look at an all-visible before-image, and yet sees what its timestamp shows.
#[test]
fn all_visible_images_are_older_than_every_writer() {
    play(
        1,
        |world, guard| {
            write_all(world, 1, guard);
            let mut held = Held::default();
            world.clock.held(&mut held);
            // As `to_prune` does with what a snapshot needs.
            let mut latched = world.rows.record(0).latch();
            if latched.version(guard).is_some_and(|before_image| before_image.stamp() <= held.from) {
                latched.mark_all_visible();
            }
        },
        |world, guard| {
            let (id, start) = (Clock::id(OTHER, 1), world.clock.begin(OTHER, FIRST, false));
            let expected = if start == FIRST { 1 } else { 2 };
            assert_eq!(world.read(0, start, id, guard), expected, "at {start}");
            world.clock.end(OTHER);
        },
        |_| (),
    );
}

/// Of two transactions that each read what the other one writes, one fails: any thread that comes to the lock second finds the other one.
#[test]
fn of_two_that_read_what_the_other_writes_one_fails() {
    /// Reads one row, and writes the other one if that is still as it was.
    fn cross(world: &World, slot: usize, guard: &Guard<'_>) {
        let (own, others) = (slot as u64, 1 - slot as u64);
        let (id, start) = (Clock::id(slot, 1), world.clock.begin(slot, FIRST, false));
        let mut writing = Writing::default();
        if world.read(others, start, id, guard) == 1 {
            world.write(own, id, &mut writing, guard);
            if world.commit(start, &mut writing, |before_image| before_image.row() == others).is_none() {
                // Undone, as `undo` does.
                let mut latched = world.rows.record(own).latch();
                latched.store(0, &[1]);
                latched.set_version(None);
            }
            writing.leave();
        }
        world.clock.end(slot);
    }
    play(
        2,
        |world, guard| cross(world, WRITER, guard),
        |world, guard| cross(world, OTHER, guard),
        |world| {
            // The before-images went with the threads' memory.
            assert_eq!([0, 1].map(|row| world.in_place(row)).iter().sum::<u64>(), 3, "one of the two has written");
        },
    );
}
