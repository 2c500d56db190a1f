//! Cicada. Timestamps are drawn when transactions begin, so of two the *earlier* is the one that began first, whatever else
//! happens when.

use polychron_base::key::Key8;
use polychron_check::journal::answer_too_early;
use polychron_engine::mutations::{interrupt, leave_out, left_out};
use polychron_engine::{
    Commit, Common, Error, Insertion, Interactive, Mode, Operations, Projection, Protocol, Table, TableDefinition,
    Worker, drive,
};
use polychron_protocols::cicada::{
    Cicada, CicadaTransaction, CicadaWorker, Consistency, Indexes, Options, Point, Snapshots, Step,
};
use polychron_schema::{Index, Row};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

#[derive(Row, Clone, Copy, Debug, PartialEq)]
struct Item {
    #[key]
    id: u64,
    value: i64,
}

#[derive(Row, Clone, Copy, Debug, PartialEq)]
#[index(name = "by_code", columns(code), unique)]
struct Member {
    #[key]
    id: u64,
    code: u32,
}

/// A row by which one transaction tells of another: far from all ranges.
const FLAG: u64 = 1 << 40;

/// A database whose horizons the tests move.
#[derive(Clone)]
struct Stage {
    database: Arc<Cicada>,
    items: Table<Item>,
    members: Table<Member>,
}

type Tx<'w> = CicadaTransaction<'w>;

fn stage(rows: &[(u64, i64)]) -> Stage {
    Stage::open(rows, |_| ())
}

impl Stage {
    fn open(rows: &[(u64, i64)], change: impl FnOnce(&mut Options)) -> Self {
        let still = Duration::from_secs(3600);
        let mut options = Options {
            collection_interval: still,
            background_interval: still,
            synchronization_interval: still,
            pruning_after: Duration::ZERO,
            ..Options::default()
        };
        change(&mut options);
        let memory = polychron_memory::Options {
            limit_bytes: Some(64 << 20),
            max_workers: 32,
            ..polychron_memory::Options::tiny()
        };
        let database = Cicada::open(options, Common { memory, ..Common::default() }).unwrap();
        let items = Table::from_id(database.create_table(Item::definition()).unwrap());
        let members = Table::from_id(database.create_table(Member::definition()).unwrap());
        let stage = Self { database, items, members };
        assert!(stage.once(|t| {
            rows.iter().try_for_each(|&(id, value)| t.insert(&items, &Item { id, value }))?;
            t.insert(&items, &Item { id: FLAG, value: 0 })?;
            t.insert(&members, &Member { id: 1, code: 1 })
        }));
        stage.database.tick();
        stage
    }

    fn worker(&self) -> CicadaWorker {
        self.database.worker().unwrap()
    }

    /// A transaction that an interruption may use: its worker stays for ever.
    fn lasting(&self, mode: Mode) -> Tx<'static> {
        Box::leak(Box::new(self.worker())).begin(mode).unwrap()
    }

    /// One attempt at a transaction, which stays in its epoch, by a worker of its own; whether it committed.
    fn once(&self, body: impl FnOnce(&mut Tx<'_>) -> Result<(), Error>) -> bool {
        attempt(self.worker().begin_in_epoch(Mode::ReadWrite).unwrap(), body)
    }

    /// Whatever the background can do is done, by this worker.
    fn quiesce(&self, worker: &mut CicadaWorker) {
        for _ in 0..4 {
            self.database.tick();
            worker.maintain();
        }
    }

    fn value(&self, id: u64) -> Option<i64> {
        let mut value = None;
        assert!(self.once(|t| {
            value = present(t, &self.items, id)?;
            Ok(())
        }));
        value
    }

    fn put(&self, t: &mut Tx<'_>, id: u64, value: i64) -> Result<(), Error> {
        t.upsert(&self.items, &Item { id, value })
    }

    fn set(&self, id: u64, value: i64) {
        assert!(self.once(|t| self.put(t, id, value)));
    }

    /// A deleted row 5 whose record is due to leave the index: when this worker collects.
    fn tombstone(&self) -> CicadaWorker {
        let mut cleaner = self.worker();
        drive::transact(&mut cleaner, Mode::ReadWrite, &mut |t| t.delete(&self.items, 5)).unwrap();
        self.database.tick();
        cleaner
    }

    /// Plays: a later transaction observes, an earlier one writes there and raises the flag and commits, and the later one looks at
    /// the flag. It went wrong when that commits on the old observation and the new flag.
    fn half_of_an_earlier<O>(
        &self,
        observe: impl FnOnce(&mut Tx<'_>) -> Result<O, Error>,
        write: impl FnOnce(&mut Tx<'_>) -> Result<(), Error>,
    ) -> bool {
        let (mut left, mut right) = (self.worker(), self.worker());
        let earlier = left.begin(Mode::ReadWrite).unwrap();
        self.half_of(earlier, right.begin_in_epoch(Mode::ReadWrite).unwrap(), observe, write)
    }

    /// The same, where the later one leaves its epoch as soon as it has observed.
    fn half_of_an_earlier_elsewhere<O>(
        &self,
        observe: impl FnOnce(&mut Tx<'_>) -> Result<O, Error>,
        write: impl FnOnce(&mut Tx<'_>) -> Result<(), Error>,
    ) -> bool {
        let (mut left, mut right) = (self.worker(), self.worker());
        let earlier = left.begin(Mode::ReadWrite).unwrap();
        let observe = |t: &mut Tx<'_>| {
            let seen = observe(t);
            self.quiesce(&mut self.worker());
            seen
        };
        self.half_of(earlier, right.begin(Mode::ReadWrite).unwrap(), observe, write)
    }

    fn half_of<'w, O>(
        &self,
        earlier: Tx<'w>,
        mut later: Tx<'w>,
        observe: impl FnOnce(&mut Tx<'_>) -> Result<O, Error>,
        write: impl FnOnce(&mut Tx<'_>) -> Result<(), Error>,
    ) -> bool {
        observe(&mut later).unwrap();
        let wrote = attempt(earlier, |t| {
            write(t)?;
            self.put(t, FLAG, 1)
        });
        assert!(wrote, "nobody is in its way");
        let mut seen = 0;
        let committed = attempt(later, |t| {
            seen = present(t, &self.items, FLAG)?.unwrap();
            Ok(())
        });
        committed && seen == 1
    }

    /// Plays: a later transaction observes, raises the flag and commits; then an earlier one, which saw no flag, writes where the
    /// later one looked. It went wrong when that commits.
    fn skew<O>(
        &self,
        observe: impl FnOnce(&mut Tx<'_>) -> Result<O, Error>,
        write: impl FnOnce(&mut Tx<'_>) -> Result<(), Error>,
    ) -> bool {
        let (mut left, mut right) = (self.worker(), self.worker());
        let (mut earlier, later) = (left.begin(Mode::ReadWrite).unwrap(), right.begin(Mode::ReadWrite).unwrap());
        assert_eq!(present(&mut earlier, &self.items, FLAG).unwrap(), Some(0));
        assert!(attempt(later, |t| self.raise_flag_after(t, observe)));
        attempt(earlier, write)
    }

    fn raise_flag_after<O>(
        &self,
        t: &mut Tx<'_>,
        observe: impl FnOnce(&mut Tx<'_>) -> Result<O, Error>,
    ) -> Result<(), Error> {
        observe(t)?;
        self.put(t, FLAG, 1)
    }

    /// Plays a snapshot that looks at row 1, and again when `change` was made and time has passed. It went wrong when it sees
    /// something else.
    fn snapshot_that_changes(&self, change: impl FnOnce(&mut Tx<'_>) -> Result<(), Error>) -> bool {
        let mut worker = self.worker();
        let mut snapshot = worker.begin(Mode::Snapshot).unwrap();
        let before = present(&mut snapshot, &self.items, 1).unwrap();
        assert!(self.once(change));
        self.quiesce(&mut self.worker());
        present(&mut snapshot, &self.items, 1).unwrap() != before
    }
}

/// Goes on with a transaction and commits it; whether it did.
fn attempt<'w>(mut transaction: Tx<'w>, body: impl FnOnce(&mut Tx<'w>) -> Result<(), Error>) -> bool {
    let outcome = match body(&mut transaction) {
        Ok(()) => transaction.commit(),
        Err(error) => Err(error),
    };
    outcome.map_or_else(
        |stopped| {
            assert!(matches!(stopped, Error::Conflict), "{stopped:?}");
            false
        },
        |()| true,
    )
}

fn present(t: &mut Tx<'_>, table: &Table<Item>, id: u64) -> Result<Option<i64>, Error> {
    Ok(t.get(table, id)?.map(|row| row.value()))
}

/// A thread that has come to where it waits for being told to go on.
struct Beside<O> {
    go: Sender<()>,
    done: Receiver<O>,
}

/// Starts `work` in a thread that leaves out what this one does, and waits until it calls what it is given.
fn beside<O: Send + 'static>(step: Step, work: impl FnOnce(&dyn Fn()) -> O + Send + 'static) -> Beside<O> {
    let ((reached, reaching), (go, going), (finished, done)) = (mpsc::channel(), mpsc::channel(), mpsc::channel());
    let careless = left_out(step);
    std::thread::spawn(move || {
        let _without = careless.then(|| leave_out(step));
        let pause = || {
            reached.send(()).unwrap();
            going.recv().unwrap();
        };
        finished.send(work(&pause)).unwrap();
    });
    reaching.recv().unwrap();
    Beside { go, done }
}

impl<O: 'static> Beside<O> {
    /// Lets the thread go on when this one comes to `point`. With the step it waits for this thread, so this one waits for it only
    /// without. The answer is what to ask afterwards for its output.
    fn go_on_at(self, point: Point, step: Step) -> impl FnOnce() -> O {
        let output = Rc::new(Cell::new(None));
        let done = Rc::new(self.done);
        interrupt(point, {
            let (output, done, go) = (Rc::clone(&output), Rc::clone(&done), self.go);
            move || {
                go.send(()).unwrap();
                if left_out(step) {
                    output.set(Some(done.recv().unwrap()));
                }
            }
        });
        move || output.take().unwrap_or_else(|| done.recv().unwrap())
    }
}

// Timestamps and horizons.

/// A worker whose next timestamp is ahead by the boost that a conflict brings: with a writer whose clock is ahead by so much.
fn boosted(stage: &Stage, head_start: Duration) -> CicadaWorker {
    let mut worker = stage.worker();
    let mut earlier = worker.begin(Mode::ReadWrite).unwrap();
    let (validated, validating) = mpsc::channel();
    std::thread::scope(|scope| {
        // It may have to wait for the earlier one before it is acknowledged.
        let writer = scope.spawn(|| {
            interrupt(Point::Ended, move || validated.send(()).unwrap());
            let mut writer = ahead(stage, head_start);
            assert!(attempt(writer.begin(Mode::ReadWrite).unwrap(), |t| stage.put(t, 1, 10)));
        });
        validating.recv().unwrap();
        let refused = earlier.update(&stage.items, 1, |row| row.set_value(0));
        assert!(refused.is_err_and(|error| error.is_conflict()));
        drop(earlier);
        writer.join().unwrap();
    });
    worker
}

/// A worker does not see what it has committed itself.
fn second_before_the_first() -> bool {
    let stage = Stage::open(&[(1, 10)], |options| {
        (options.consistency, options.clock_boost) = (Consistency::Loose, Duration::from_secs(7200));
    });
    let mut worker = boosted(&stage, Duration::from_secs(3600));
    drive::transact(&mut worker, Mode::ReadWrite, &mut |t| stage.put(t, 1, 11)).unwrap();
    drive::transact(&mut worker, Mode::ReadWrite, &mut |t| present(t, &stage.items, 1)).unwrap() != Some(11)
}

/// A client that begins after a commit was acknowledged does not see it.
fn acknowledged_too_early(consistency: Consistency) -> bool {
    let stage = Stage::open(&[(1, 10)], |options| {
        (options.consistency, options.clock_boost) = (consistency, Duration::from_millis(10));
    });
    let mut value = 10;
    // A machine that is busy elsewhere may hide it.
    (0..10).any(|_| {
        let mut worker = boosted(&stage, Duration::ZERO);
        value += 1;
        drive::transact(&mut worker, Mode::ReadWrite, &mut |t| stage.put(t, 1, value)).unwrap();
        stage.value(1) != Some(value)
    })
}

fn acknowledged_before_the_clock() -> bool {
    acknowledged_too_early(Consistency::Clock)
}

fn acknowledged_before_the_horizon() -> bool {
    acknowledged_too_early(Consistency::External)
}

/// A leader has looked at the timestamps and not published what it found, when a transaction begins that drew its own before.
fn writer_behind_the_horizon() -> bool {
    let stage = stage(&[(1, 10)]);
    let leading = Rc::new(RefCell::new(None));
    interrupt(Point::Drawn, {
        let (stage, leading) = (stage.clone(), Rc::clone(&leading));
        move || {
            let (scanned, scanning) = mpsc::channel();
            let (go, going) = mpsc::channel();
            let leader = std::thread::spawn(move || {
                interrupt(Point::Scanned, move || {
                    scanned.send(()).unwrap();
                    going.recv().unwrap();
                });
                stage.database.tick();
            });
            scanning.recv().unwrap();
            leading.replace(Some((go, leader)));
        }
    });
    let mut worker = stage.worker();
    let writer = worker.begin(Mode::ReadWrite).unwrap();
    let (go, leader) = leading.take().unwrap();
    go.send(()).unwrap();
    leader.join().unwrap();
    snapshot_beside(&stage, writer)
}

/// Whether a snapshot that begins now changes when the writer commits.
fn snapshot_beside(stage: &Stage, writer: Tx<'_>) -> bool {
    let mut worker = stage.worker();
    let mut snapshot = worker.begin(Mode::Snapshot).unwrap();
    let before = present(&mut snapshot, &stage.items, 1).unwrap();
    assert!(attempt(writer, |t| stage.put(t, 1, 11)));
    present(&mut snapshot, &stage.items, 1).unwrap() != before
}

fn snapshot_beside_an_earlier_writer() -> bool {
    let stage = stage(&[(1, 10)]);
    let mut worker = stage.worker();
    let writer = worker.begin(Mode::ReadWrite).unwrap();
    stage.database.tick();
    snapshot_beside(&stage, writer)
}

/// The horizon moves on, and what is behind it is collected, while a snapshot begins.
fn snapshot_at_a_horizon_that_has_passed() -> bool {
    let stage = stage(&[(1, 10)]);
    interrupt(Point::Drawn, {
        let stage = stage.clone();
        move || {
            stage.set(1, 11);
            stage.quiesce(&mut stage.worker());
        }
    });
    let mut worker = stage.worker();
    let mut snapshot = worker.begin(Mode::Snapshot).unwrap();
    present(&mut snapshot, &stage.items, 1).unwrap().is_none()
}

fn snapshot_of_a_row_that_is_overwritten() -> bool {
    let stage = stage(&[(1, 10)]);
    stage.snapshot_that_changes(|t| stage.put(t, 1, 11))
}

/// A leader is about to publish a horizon when a worker joins and begins a snapshot at the one before it.
fn snapshot_of_a_worker_that_joins() -> bool {
    let stage = stage(&[(1, 10)]);
    // On another thread: a snapshot contains what its own thread has committed.
    std::thread::scope(|scope| scope.spawn(|| stage.set(1, 11)).join().unwrap());
    // All slots that were ever used are taken: the next worker has one that no leader knows.
    let used: Vec<_> = (0..4).map(|_| stage.worker()).collect();
    let (resume, leader) = pause_at(Point::Scanned, {
        let database = Arc::clone(&stage.database);
        let without = left_out(Step::AwaitJoined);
        move || {
            let _without = without.then(|| leave_out(Step::AwaitJoined));
            database.tick();
        }
    });
    let mut worker = stage.worker();
    let mut snapshot = worker.begin(Mode::Snapshot).unwrap();
    resume.send(()).unwrap();
    leader.join().unwrap();
    for mut cleaner in used {
        cleaner.maintain();
    }
    present(&mut snapshot, &stage.items, 1).unwrap() != Some(10)
}

/// A transaction has made an outdated timestamp known, and is about to take another, when a leader looks.
fn horizon_that_goes_back() -> bool {
    let stage = Stage::open(&[(1, 10)], |options| options.snapshots = Snapshots::Settled);
    let seen = Rc::new(Cell::new(None));
    interrupt(Point::Drawn, {
        let (stage, seen) = (stage.clone(), Rc::clone(&seen));
        move || {
            stage.set(1, 11);
            stage.quiesce(&mut stage.worker());
            interrupt(Point::Published, move || {
                stage.database.tick();
                let mut snapshot = stage.lasting(Mode::Snapshot);
                seen.set(present(&mut snapshot, &stage.items, 1).unwrap());
            });
        }
    });
    drop(stage.worker().begin(Mode::ReadWrite).unwrap());
    seen.get() != Some(11)
}

/// A snapshot begins between the validation of a writer and the writing of its statuses. It does not wait.
fn snapshot_in_the_middle_of_a_commit() -> bool {
    let stage = Stage::open(&[(1, 10)], |options| options.ablation.wait_for_pending = false);
    let open = Rc::new(RefCell::new(None));
    interrupt(Point::Validated, {
        let (stage, open) = (stage.clone(), Rc::clone(&open));
        move || {
            stage.database.tick();
            let mut snapshot = stage.lasting(Mode::Snapshot);
            let before = present(&mut snapshot, &stage.items, 1).unwrap();
            open.replace(Some((snapshot, before)));
        }
    });
    stage.set(1, 11);
    let (mut snapshot, before) = open.take().unwrap();
    present(&mut snapshot, &stage.items, 1).unwrap() != before
}

// Validation.

/// Row 1 is written by a transaction that fails its validation because an earlier one changes row 2 meanwhile. `meanwhile` is done when
/// the versions are installed.
fn write_that_fails(stage: &Stage, meanwhile: impl FnOnce() + 'static) {
    let earlier = stage.lasting(Mode::ReadWrite);
    let mut worker = stage.worker();
    let mut failing = worker.begin(Mode::ReadWrite).unwrap();
    present(&mut failing, &stage.items, 2).unwrap();
    interrupt(Point::Installed, {
        let stage = stage.clone();
        move || {
            assert!(attempt(earlier, |t| stage.put(t, 2, 21)));
            meanwhile();
        }
    });
    assert!(!attempt(failing, |t| stage.put(t, 1, 11)));
}

/// A transaction reads what is installed and then given up.
fn read_of_what_is_not_validated() -> bool {
    let stage = Stage::open(&[(1, 10), (2, 20)], |options| options.ablation.wait_for_pending = false);
    let dirty = Rc::new(Cell::new(false));
    write_that_fails(&stage, {
        let (stage, dirty) = (stage.clone(), Rc::clone(&dirty));
        move || {
            let mut reader = stage.lasting(Mode::ReadWrite);
            if present(&mut reader, &stage.items, 1).unwrap() == Some(11) {
                dirty.set(reader.commit().is_ok());
            }
        }
    });
    dirty.get()
}

fn read_of_what_was_given_up() -> bool {
    let stage = stage(&[(1, 10), (2, 20)]);
    write_that_fails(&stage, || ());
    stage.value(1) != Some(10)
}

/// An earlier transaction overwrites blindly what a later one is about to write.
fn earlier_write_on_top() -> bool {
    let stage = stage(&[(1, 10)]);
    let earlier = stage.lasting(Mode::ReadWrite);
    interrupt(Point::Installed, {
        let stage = stage.clone();
        move || assert!(attempt(earlier, |t| stage.put(t, 1, 11)), "blind writes may come late")
    });
    stage.set(1, 12);
    stage.value(1) != Some(12)
}

fn write_under_a_later_reader() -> bool {
    let stage = stage(&[(1, 10)]);
    stage.skew(|t| present(t, &stage.items, 1), |t| t.update(&stage.items, 1, |row| row.set_value(11)).map(drop))
}

/// The later transaction of a skew runs to `point`, where the earlier one commits whole.
fn skew_inside(point: Point, later_is_inside: bool) -> bool {
    let stage = stage(&[(1, 10)]);
    let mut earlier = stage.lasting(Mode::ReadWrite);
    let later = stage.lasting(Mode::ReadWrite);
    assert_eq!(present(&mut earlier, &stage.items, FLAG).unwrap(), Some(0));
    let write = |stage: &Stage, earlier: Tx<'_>| {
        attempt(earlier, |t| t.update(&stage.items, 1, |row| row.set_value(11)).map(drop))
    };
    let read =
        |stage: &Stage, later: Tx<'_>| attempt(later, |t| stage.raise_flag_after(t, |t| present(t, &stage.items, 1)));
    let inner = Rc::new(Cell::new(false));
    let (there, result) = (stage.clone(), Rc::clone(&inner));
    let outer = if later_is_inside {
        interrupt(point, move || result.set(read(&there, later)));
        write(&stage, earlier)
    } else {
        interrupt(point, move || result.set(write(&there, earlier)));
        read(&stage, later)
    };
    outer && inner.get()
}

fn write_between_check_and_raising() -> bool {
    skew_inside(Point::Checked, false)
}

fn reader_between_look_and_installation() -> bool {
    skew_inside(Point::Linking, true)
}

fn read_skew() -> bool {
    let stage = stage(&[(1, 10)]);
    stage.half_of_an_earlier(|t| present(t, &stage.items, 1), |t| stage.put(t, 1, 11))
}

/// A later transaction checks what it read while an earlier one, which has passed its validation, is about to say what became of its
/// version.
fn pending_version_of_what_was_read() -> bool {
    const STEP: Step = Step::AwaitPendingReads;
    let stage = stage(&[(1, 10)]);
    let mut worker = stage.worker();
    let mut earlier = worker.begin(Mode::ReadWrite).unwrap();
    assert_eq!(present(&mut earlier, &stage.items, FLAG).unwrap(), Some(0));
    let later = beside(STEP, {
        let stage = stage.clone();
        move |pause| {
            stage.once(|t| {
                stage.raise_flag_after(t, |t| {
                    let seen = present(t, &stage.items, 1);
                    pause();
                    seen
                })
            })
        }
    });
    let later = later.go_on_at(Point::Validated, STEP);
    let committed = attempt(earlier, |t| t.update(&stage.items, 1, |row| row.set_value(11)).map(drop));
    let later_committed = later();
    committed && later_committed
}

fn inserted(stage: &Stage, t: &mut Tx<'_>, value: i64) -> Result<bool, Error> {
    Ok(t.try_insert(&stage.items, &Item { id: 5, value })? == Insertion::Inserted)
}

/// A later transaction inserts a key whose earlier insertion has passed its validation.
fn pending_insertion() -> bool {
    const STEP: Step = Step::AwaitPendingBelow;
    let stage = stage(&[]);
    let mut worker = stage.worker();
    let earlier = worker.begin(Mode::ReadWrite).unwrap();
    let later = beside(STEP, {
        let stage = stage.clone();
        move |pause| {
            let mut new = false;
            let committed = stage.once(|t| {
                new = inserted(&stage, t, 2)?;
                pause();
                Ok(())
            });
            committed && new
        }
    });
    let later = later.go_on_at(Point::Validated, STEP);
    let mut new = false;
    let committed = attempt(earlier, |t| {
        new = inserted(&stage, t, 1)?;
        Ok(())
    });
    let later_inserted = later();
    committed && new && later_inserted
}

fn insert_insert() -> bool {
    let stage = stage(&[]);
    let (mut left, mut right) = (stage.worker(), stage.worker());
    let (mut earlier, mut later) = (left.begin(Mode::ReadWrite).unwrap(), right.begin(Mode::ReadWrite).unwrap());
    let both = inserted(&stage, &mut earlier, 1).unwrap() && inserted(&stage, &mut later, 2).unwrap();
    both && attempt(earlier, |_| Ok(())) && attempt(later, |_| Ok(()))
}

/// Single reads, one after the other, while a commit has said of one version what it is, and not of the other.
fn reads_in_the_middle_of_a_commit() -> bool {
    const STEP: Step = Step::AwaitPendingAlone;
    let stage = stage(&[(1, 10), (2, 10)]);
    let reader = beside(STEP, {
        let stage = stage.clone();
        move |pause| {
            let mut worker = stage.worker();
            let mut read = |id| {
                let (table, key) = (stage.items.id(), Key8::new(id, 8));
                worker.read_one(table, key, &Projection::ALL, |row| Item::VALUE.get(row.unwrap())).unwrap()
            };
            pause();
            [read(1), read(2), read(1)]
        }
    });
    let reader = reader.go_on_at(Point::Ended, STEP);
    assert!(stage.once(|t| (1..3).try_for_each(|id| stage.put(t, id, 11))));
    !reader().is_sorted()
}

fn write_of_what_was_read() -> bool {
    let stage = stage(&[(1, 10)]);
    !stage.once(|t| {
        present(t, &stage.items, 1)?;
        stage.put(t, 1, 11)
    })
}

/// Reads two rows whose sum is always 30, between which the sum moves from one to the other the first time: by a transaction that
/// began before.
fn move_between(stage: &Stage, t: &mut Tx<'_>, mover: &mut Option<Tx<'_>>) -> Result<i64, Error> {
    let first = present(t, &stage.items, 1)?.unwrap();
    if let Some(mover) = mover.take() {
        assert!(attempt(mover, |t| {
            stage.put(t, 1, 20)?;
            stage.put(t, 2, 10)
        }));
    }
    Ok(first)
}

fn error_that_inconsistent_reads_made() -> bool {
    let stage = stage(&[(1, 10), (2, 20)]);
    let mut worker = stage.worker();
    let mut mover = Some(worker.begin(Mode::ReadWrite).unwrap());
    let outcome = drive::transact(&mut stage.worker(), Mode::ReadWrite, &mut |t| {
        let sum = move_between(&stage, t, &mut mover)? + present(t, &stage.items, 2)?.unwrap();
        if sum == 30 { Ok(()) } else { Err(Error::definition(format!("the sum is {sum}"))) }
    });
    outcome.is_err()
}

fn insertion_that_is_rolled_back() -> bool {
    let stage = stage(&[(1, 10)]);
    let earlier = stage.lasting(Mode::ReadWrite);
    let mut later = stage.lasting(Mode::ReadWrite);
    insert(&stage, &mut later).unwrap();
    let both = |t: &mut Tx<'_>| {
        insert(&stage, t)?;
        t.update(&stage.items, 1, |row| row.set_value(11)).map(drop)
    };
    assert!(attempt(earlier, both), "nobody has read what the earlier one changes");
    assert_eq!(present(&mut later, &stage.items, 1).unwrap(), Some(11));
    later.roll_back()
}

fn loop_over_inconsistent_reads() -> bool {
    let stage = Stage::open(&[(1, 10), (2, 20)], |options| options.check_every = 16);
    let mut worker = stage.worker();
    let (mut mover, mut turns) = (Some(worker.begin(Mode::ReadWrite).unwrap()), 0);
    let _ = drive::transact(&mut stage.worker(), Mode::ReadWrite, &mut |t| {
        let first = move_between(&stage, t, &mut mover)?;
        // It would never end.
        while first + present(t, &stage.items, 2)?.unwrap() != 30 && turns < 1000 {
            turns += 1;
        }
        Ok::<_, Error>(())
    });
    turns == 1000
}

fn conflict_that_the_procedure_ignores() -> bool {
    let stage = stage(&[(1, 10)]);
    let mut worker = stage.worker();
    let earlier = worker.begin(Mode::ReadWrite).unwrap();
    stage.set(1, 11);
    attempt(earlier, |t| {
        let lost = t.update(&stage.items, 1, |row| row.set_value(12));
        assert!(lost.is_err_and(|error| error.is_conflict()));
        Ok(())
    })
}

// What is not there.

fn insert(stage: &Stage, t: &mut Tx<'_>) -> Result<(), Error> {
    t.insert(&stage.items, &Item { id: 5, value: 1 })
}

fn count(stage: &Stage, t: &mut Tx<'_>) -> Result<u64, Error> {
    t.scan(&stage.items, 0..10).count()
}

fn absent_key() -> bool {
    let stage = stage(&[]);
    stage.half_of_an_earlier(|t| present(t, &stage.items, 5), |t| insert(&stage, t))
}

/// An absent key whose tombstone goes before the key comes back.
fn absent_key_without_its_tombstone() -> bool {
    let stage = stage(&[(5, 1)]);
    let mut cleaner = stage.tombstone();
    let observe = |t: &mut Tx<'_>| {
        let seen = present(t, &stage.items, 5);
        stage.quiesce(&mut cleaner);
        seen
    };
    stage.half_of_an_earlier(observe, |t| insert(&stage, t))
}

/// The same, where a batch has found the tombstone before.
fn absent_key_behind_a_hint() -> bool {
    let stage = stage(&[(5, 1)]);
    let mut cleaner = stage.tombstone();
    let observe = |t: &mut Tx<'_>| {
        t.prefetch(&stage.items, 5);
        let seen = present(t, &stage.items, 5);
        stage.quiesce(&mut cleaner);
        seen
    };
    stage.half_of_an_earlier(observe, |t| insert(&stage, t))
}

fn count_of_a_range() -> bool {
    let stage = stage(&[(3, 1)]);
    stage.half_of_an_earlier(|t| count(&stage, t), |t| insert(&stage, t))
}

/// A database in which no client is overtaken.
fn patient(rows: &[(u64, i64)]) -> Stage {
    Stage::open(rows, |options| options.overtaking_after = Duration::from_secs(3600))
}

fn absent_key_of_an_epoch_that_was_left() -> bool {
    let stage = patient(&[]);
    stage.half_of_an_earlier_elsewhere(|t| present(t, &stage.items, 5), |t| insert(&stage, t))
}

fn count_of_a_range_in_an_epoch_that_was_left() -> bool {
    let stage = patient(&[(3, 1)]);
    stage.half_of_an_earlier_elsewhere(|t| count(&stage, t), |t| insert(&stage, t))
}

/// An earlier transaction inserts the key, a later one deletes it, and the row moves beside the index.
fn absent_key_that_comes_and_goes() -> bool {
    let stage = Stage::open(&[], |options| options.overtaking_after = Duration::ZERO);
    let (mut left, mut right) = (stage.worker(), stage.worker());
    let (earlier, mut later) = (left.begin(Mode::ReadWrite).unwrap(), right.begin(Mode::ReadWrite).unwrap());
    assert_eq!(present(&mut later, &stage.items, 5).unwrap(), None);
    assert!(attempt(earlier, |t| {
        insert(&stage, t)?;
        stage.put(t, FLAG, 1)
    }));
    assert!(stage.once(|t| t.delete(&stage.items, 5).map(drop)));
    stage.quiesce(&mut stage.worker());
    assert_eq!(present(&mut later, &stage.items, FLAG).unwrap(), Some(1));
    later.commit().is_ok()
}

fn absent_key_that_was_inserted_and_given_up() -> bool {
    let stage = stage(&[]);
    let observe = |t: &mut Tx<'_>| {
        let savepoint = t.savepoint();
        insert(&stage, t)?;
        t.roll_back_to(savepoint)
    };
    stage.half_of_an_earlier(observe, |t| insert(&stage, t))
}

fn absent_key_that_was_inserted_and_deleted() -> bool {
    let stage = stage(&[]);
    let observe = |t: &mut Tx<'_>| {
        insert(&stage, t)?;
        t.delete(&stage.items, 5)
    };
    stage.half_of_an_earlier(observe, |t| insert(&stage, t))
}

fn insertion_that_a_later_one_missed() -> bool {
    let stage = stage(&[]);
    stage.skew(|t| present(t, &stage.items, 5), |t| insert(&stage, t))
}

fn insertion_under_a_later_one() -> bool {
    let stage = stage(&[]);
    stage.skew(|t| insert(&stage, t), |t| insert(&stage, t))
}

fn insertion_into_a_range_of_a_later_one() -> bool {
    let stage = stage(&[(3, 1)]);
    stage.skew(|t| count(&stage, t), |t| insert(&stage, t))
}

// Nodes of multi-version indexes.

/// Rows 0, 10, …, 590: more than one leaf holds, and fewer than three leaves are sure to.
fn versioned() -> Stage {
    let rows: Vec<_> = (0..60).map(|number| (10 * number, 0)).collect();
    Stage::open(&rows, |options| options.indexes = Indexes::MultiVersion)
}

/// Plays: a later transaction changes an index, an earlier one inserts a row and commits, and the later one commits as well. It went
/// wrong when the row is not there.
fn row_beside(id: u64, change: impl FnOnce(&Stage, &mut Tx<'_>) -> Result<(), Error>) -> bool {
    let stage = versioned();
    let (mut left, mut right) = (stage.worker(), stage.worker());
    let (earlier, mut later) = (left.begin(Mode::ReadWrite).unwrap(), right.begin(Mode::ReadWrite).unwrap());
    change(&stage, &mut later).unwrap();
    assert!(attempt(earlier, |t| stage.put(t, id, 1)), "nobody is in its way");
    attempt(later, |_| Ok(())) && stage.value(id) != Some(1)
}

fn insertions_into_one_leaf() -> bool {
    row_beside(5, |stage, t| stage.put(t, 6, 1))
}

/// The first leaf becomes empty, and takes over what the next one covers, into which the earlier transaction inserts.
fn insertion_into_a_leaf_that_is_merged() -> bool {
    row_beside(505, |stage, t| (0..30).try_for_each(|number| t.delete(&stage.items, 10 * number).map(drop)))
}

/// The later of two transactions writes a row unread that the earlier one deletes.
fn write_of_an_earlier_deletion() -> bool {
    let stage = versioned();
    let (mut left, mut right) = (stage.worker(), stage.worker());
    let (earlier, mut later) = (left.begin(Mode::ReadWrite).unwrap(), right.begin(Mode::ReadWrite).unwrap());
    stage.put(&mut later, 10, 1).unwrap();
    assert!(attempt(earlier, |t| t.delete(&stage.items, 10).map(drop)), "nobody is in its way");
    attempt(later, |_| Ok(())) && stage.value(10) != Some(1)
}

/// Whether a transaction that has missed a row sees the flag, and commits.
fn sees_the_flag(stage: &Stage, t: Tx<'_>) -> bool {
    let mut flag = 0;
    let committed = attempt(t, |t| {
        flag = present(t, &stage.items, FLAG)?.unwrap();
        Ok(())
    });
    committed && flag == 1
}

/// Between the root and the leaf an earlier transaction divides the leaf, with the wanted key on the other side.
fn key_in_a_leaf_that_is_divided() -> bool {
    let stage = versioned();
    let (earlier, mut later) = (stage.lasting(Mode::ReadWrite), stage.lasting(Mode::ReadWrite));
    interrupt(Point::Led, {
        let stage = stage.clone();
        move || {
            assert!(attempt(earlier, |t| {
                (101..140).filter(|id| id % 10 != 0).try_for_each(|id| stage.put(t, id, 1))?;
                stage.put(t, FLAG, 1)
            }));
        }
    });
    let missed = present(&mut later, &stage.items, 139).unwrap().is_none();
    missed && sees_the_flag(&stage, later)
}

/// Between a leaf and a record an earlier transaction deletes the row. Another earlier one then gives its key a new record.
fn row_that_goes_and_comes_back() -> bool {
    let stage = versioned();
    let (first, second) = (stage.lasting(Mode::ReadWrite), stage.lasting(Mode::ReadWrite));
    let mut later = stage.lasting(Mode::ReadWrite);
    interrupt(Point::Led, {
        let stage = stage.clone();
        // The first time a node leads to a node, and the second time a leaf to the row.
        move || {
            interrupt(Point::Led, move || assert!(attempt(first, |t| t.delete(&stage.items, 10).map(drop))));
        }
    });
    let missed = present(&mut later, &stage.items, 10).unwrap().is_none();
    assert!(attempt(second, |t| {
        stage.put(t, 10, 1)?;
        stage.put(t, FLAG, 1)
    }));
    missed && sees_the_flag(&stage, later)
}

// Collection and pruning.

/// A key that came back on its tombstone is there when the tombstone would have been due.
fn key_that_came_back() -> bool {
    let stage = stage(&[(5, 1)]);
    let mut cleaner = stage.tombstone();
    assert!(stage.once(|t| insert(&stage, t)));
    stage.quiesce(&mut cleaner);
    stage.value(5) != Some(1)
}

/// The record of a tombstone leaves the index while a key is installed in it.
fn insertion_on_a_tombstone() -> bool {
    let stage = stage(&[(5, 7)]);
    let mut cleaner = stage.tombstone();
    interrupt(Point::Linking, {
        let stage = stage.clone();
        move || stage.quiesce(&mut cleaner)
    });
    !(stage.once(|t| insert(&stage, t)) && stage.value(5) == Some(1))
}

/// An absent key whose tombstone goes.
fn tombstone_that_goes() -> bool {
    let stage = stage(&[(5, 1)]);
    let mut cleaner = stage.tombstone();
    !stage.once(|t| {
        assert_eq!(present(t, &stage.items, 5)?, None);
        stage.quiesce(&mut cleaner);
        Ok(())
    })
}

/// Overwrites row 1 and passes the time, by a worker that thins.
fn overwrite(stage: &Stage, cleaner: &mut CicadaWorker, value: i64) {
    drive::transact(cleaner, Mode::ReadWrite, &mut |t| stage.put(t, 1, value)).unwrap();
    stage.database.tick();
}

/// Two snapshots are open, of which the second sees a version in the middle.
fn version_in_the_middle() -> bool {
    let stage = stage(&[(1, 10)]);
    let (mut cleaner, mut left, mut right) = (stage.worker(), stage.worker(), stage.worker());
    let _oldest = left.begin(Mode::Snapshot).unwrap();
    overwrite(&stage, &mut cleaner, 11);
    let mut snapshot = right.begin(Mode::Snapshot).unwrap();
    overwrite(&stage, &mut cleaner, 12);
    stage.quiesce(&mut cleaner);
    present(&mut snapshot, &stage.items, 1).unwrap() != Some(11)
}

/// A transaction has read a version in a head; an earlier one replaces it, and another one comes to lie in its place.
fn version_that_was_read_and_replaced() -> bool {
    let stage = patient(&[(1, 8)]);
    let mut cleaner = stage.worker();
    // The head is free.
    stage.set(1, 9);
    stage.quiesce(&mut cleaner);
    let mut workers = [(); 4].map(|()| stage.worker());
    let mut transactions = workers.iter_mut().map(|worker| worker.begin(Mode::ReadWrite).unwrap());
    let [first, second, third] = std::array::from_fn(|_| transactions.next().unwrap());
    let mut reader = transactions.next().unwrap();
    assert!(attempt(first, |t| stage.put(t, 1, 10)));
    assert_eq!(present(&mut reader, &stage.items, 1).unwrap(), Some(10));
    assert!(attempt(second, |t| stage.put(t, 1, 11)));
    stage.quiesce(&mut cleaner);
    assert!(attempt(third, |t| stage.put(t, 1, 12)));
    attempt(reader, |t| stage.put(t, FLAG, 10))
}

fn deleted_row_that_a_snapshot_sees() -> bool {
    let stage = stage(&[(1, 10)]);
    let (mut cleaner, mut reader) = (stage.worker(), stage.worker());
    let mut snapshot = reader.begin(Mode::Snapshot).unwrap();
    drive::transact(&mut cleaner, Mode::ReadWrite, &mut |t| t.delete(&stage.items, 1)).unwrap();
    stage.quiesce(&mut cleaner);
    present(&mut snapshot, &stage.items, 1).unwrap() != Some(10)
}

fn latest_version_behind_a_snapshot() -> bool {
    let stage = stage(&[(1, 10)]);
    let (mut cleaner, mut reader) = (stage.worker(), stage.worker());
    let _oldest = reader.begin(Mode::Snapshot).unwrap();
    overwrite(&stage, &mut cleaner, 11);
    stage.quiesce(&mut cleaner);
    stage.value(1) != Some(11)
}

/// Somebody has written ahead of his time; what is visible until then is thinned away behind a snapshot.
fn version_before_one_of_the_future() -> bool {
    let stage = Stage::open(&[(1, 10)], |options| options.consistency = Consistency::Loose);
    let (mut cleaner, mut reader, mut hasty) = (stage.worker(), stage.worker(), stage.worker());
    let _oldest = reader.begin(Mode::Snapshot).unwrap();
    overwrite(&stage, &mut cleaner, 11);
    hasty.follow(hasty.clock_reading() + 1_000_000_000_000);
    overwrite(&stage, &mut hasty, 12);
    stage.quiesce(&mut cleaner);
    stage.value(1) != Some(11)
}

/// A snapshot begins, and its version is overwritten, while the times are collected at which some client reads.
fn snapshot_that_begins_while_moments_are_counted() -> bool {
    let stage = stage(&[(1, 10)]);
    let (mut cleaner, mut reader) = (stage.worker(), stage.worker());
    let _oldest = reader.begin(Mode::Snapshot).unwrap();
    overwrite(&stage, &mut cleaner, 11);
    let open = Rc::new(RefCell::new(None));
    interrupt(Point::Counted, {
        let (stage, open) = (stage.clone(), Rc::clone(&open));
        move || {
            open.replace(Some(stage.lasting(Mode::Snapshot)));
            stage.set(1, 12);
            stage.database.tick();
        }
    });
    cleaner.maintain();
    let mut snapshot = open.take().unwrap();
    present(&mut snapshot, &stage.items, 1).unwrap() != Some(11)
}

// Indexes that are made while transactions run.

/// So many members without their index.
fn plain_members(stage: &Stage, rows: u64) -> Table<Member> {
    let plain = TableDefinition { name: "plain".into(), indexes: Vec::new(), ..Member::definition() };
    let table = Table::from_id(stage.database.create_table(plain).unwrap());
    assert!(stage.once(|t| (1..=rows).try_for_each(|id| t.insert(&table, &Member { id, code: 10 + id as u32 }))));
    table
}

const BY_CODE: Index<Member, u32> = Index::new("by_code", 0, true, false);

fn create_index(stage: &Stage, table: Table<Member>) {
    stage.database.create_index(table.id(), Member::definition().indexes[0].clone()).unwrap();
}

/// Begins to make the index of members in another thread; it is in the catalog before older transactions are waited for.
fn index_under_way(stage: &Stage, table: Table<Member>) -> std::thread::JoinHandle<()> {
    let making = std::thread::spawn({
        let stage = stage.clone();
        move || create_index(&stage, table)
    });
    while stage.database.definition(table.id()).unwrap().indexes.is_empty() {
        std::thread::yield_now();
    }
    making
}

/// Whether the index leads to every member and to nothing else, as a worker sees it that comes after all.
fn index_differs(stage: &Stage, table: Table<Member>, moment: u64) -> bool {
    let mut worker = stage.worker();
    worker.follow(moment);
    let seen = drive::transact(&mut worker, Mode::ReadWrite, &mut |t| {
        let rows = t.scan(&table, ..).rows()?;
        let found = t.scan_range_by::<_, _, u32>(&table, BY_CODE, ..).rows()?;
        Ok::<_, Error>(found.len() != rows.len() || rows.iter().any(|row| !found.contains(row)))
    });
    // An entry that leads to no row ends the scan as a conflict, again and again.
    seen.unwrap_or(true)
}

/// A transaction begins, an index is made, another changes the row and its entry, and the first overwrites the row.
fn entry_left_behind() -> bool {
    let stage = stage(&[]);
    let table = plain_members(&stage, 3);
    let making = Rc::new(RefCell::new(None));
    interrupt(Point::Beginning, {
        let (stage, making) = (stage.clone(), Rc::clone(&making));
        move || {
            making.replace(Some(index_under_way(&stage, table)));
            let mut change = |t: &mut Tx<'_>| t.update(&table, 1, |row| row.set_code(20)).map(drop);
            drive::transact(&mut stage.worker(), Mode::ReadWrite, &mut change).unwrap();
        }
    });
    let mut worker = stage.worker();
    let unknowing = worker.begin(Mode::ReadWrite).unwrap();
    attempt(unknowing, |t| t.update(&table, 1, |row| row.set_code(30)).map(drop));
    making.take().unwrap().join().unwrap();
    index_differs(&stage, table, 0)
}

/// A worker whose clock is ahead of those of others.
fn ahead(stage: &Stage, by: Duration) -> CicadaWorker {
    let mut worker = stage.worker();
    worker.follow(worker.clock_reading() + by.as_nanos() as u64);
    worker
}

/// A head start that a busy machine does not catch up with, and that can be waited for.
const HEAD_START: Duration = Duration::from_secs(1);

fn loose(options: &mut Options) {
    options.consistency = Consistency::Loose;
}

/// A worker whose clock is ahead overwrites a row blindly; then an index is made, and who knows it inserts the row at an earlier
/// time.
fn entry_of_an_earlier_row() -> bool {
    let stage = Stage::open(&[], loose);
    let table = plain_members(&stage, 3);
    let mut ahead = ahead(&stage, HEAD_START);
    let mut older = stage.worker();
    let older = older.begin(Mode::ReadWrite).unwrap();
    drive::transact(&mut ahead, Mode::ReadWrite, &mut |t| t.upsert(&table, &Member { id: 9, code: 30 })).unwrap();
    let making = index_under_way(&stage, table);
    // In vain, or under the row that is there.
    stage.once(|t| t.try_insert(&table, &Member { id: 9, code: 20 }).map(drop));
    drop(older);
    making.join().unwrap();
    index_differs(&stage, table, ahead.clock_reading())
}

/// A worker whose clock is ahead inserts the first row, and then an index is made.
fn index_of_what_was_before() -> bool {
    let stage = Stage::open(&[], loose);
    let table = plain_members(&stage, 0);
    let mut ahead = ahead(&stage, HEAD_START);
    let mut first = |t: &mut Tx<'_>| t.insert(&table, &Member { id: 1, code: 30 });
    drive::transact(&mut ahead, Mode::ReadWrite, &mut first).unwrap();
    create_index(&stage, table);
    index_differs(&stage, table, ahead.clock_reading())
}

fn index_that_is_being_filled() -> bool {
    let stage = stage(&[]);
    let table = plain_members(&stage, 3);
    let (mut worker, mut reader) = (stage.worker(), stage.worker());
    // The filling waits for its epoch.
    let older = worker.begin_in_epoch(Mode::ReadWrite).unwrap();
    let making = index_under_way(&stage, table);
    let mut snapshot = reader.begin(Mode::Snapshot).unwrap();
    drop(older);
    // Now and then a snapshot renews its guard, so that the filling does not wait for its end.
    while !making.is_finished() {
        assert_eq!(present(&mut snapshot, &stage.items, FLAG).unwrap(), Some(0));
    }
    making.join().unwrap();
    snapshot.scan_range_by::<_, _, u32>(&table, BY_CODE, ..).count().is_ok_and(|found| found != 3)
}

/// A snapshot that begins after an index was made reads by it.
fn index_that_was_filled() -> bool {
    let stage = Stage::open(&[], |options| options.snapshots = Snapshots::Settled);
    let table = plain_members(&stage, 3);
    create_index(&stage, table);
    let mut worker = stage.worker();
    let mut snapshot = worker.begin(Mode::Snapshot).unwrap();
    !snapshot.scan_range_by::<_, _, u32>(&table, BY_CODE, ..).count().is_ok_and(|found| found == 3)
}

// The clock wraps around.

/// A database whose clock is a counter of twelve bits, and whose workers look after it before every transaction.
fn narrow(rows: &[(u64, i64)]) -> Stage {
    Stage::open(rows, narrow_options)
}

fn narrow_options(options: &mut Options) {
    (options.central_clock, options.clock_bits) = (true, Some(12));
    options.collection_interval = Duration::ZERO;
}

/// Lets more than half the clock's numbers pass.
fn pass_half_a_turn(stage: &Stage) {
    pass_numbers(stage, 2600);
}

fn pass_numbers(stage: &Stage, count: usize) {
    let mut worker = stage.worker();
    for _ in 0..count {
        drop(worker.begin(Mode::ReadWrite).unwrap());
    }
}

fn row_that_is_not_written_for_half_a_turn() -> bool {
    let stage = narrow(&[(1, 10)]);
    pass_half_a_turn(&stage);
    stage.value(1) != Some(10)
}

/// The head of a deleted record keeps a version that failed, for as long as an epoch lasts, so that the record cannot leave the index.
fn deletion_that_stays_for_half_a_turn() -> bool {
    let stage = Stage::open(&[(1, 10)], |options| {
        narrow_options(options);
        options.ablation.check_early = false;
    });
    // The second row lies outside of the head, and the first one is collected.
    stage.set(1, 11);
    stage.database.tick();
    let (mut winner, mut loser) = (stage.worker(), stage.worker());
    let earlier = winner.begin(Mode::ReadWrite).unwrap();
    let lost = !attempt(loser.begin(Mode::ReadWrite).unwrap(), |t| {
        present(t, &stage.items, FLAG)?;
        assert!(attempt(earlier, |earlier| stage.put(earlier, FLAG, 1)));
        stage.put(t, 1, 12)
    });
    assert!(lost, "it has read what was replaced");
    drop(loser);
    stage.database.tick();
    assert!(stage.once(|t| t.delete(&stage.items, 1).map(drop)));
    pass_half_a_turn(&stage);
    // What is inserted below the deletion cannot be written on.
    let inserted = stage.once(|t| stage.put(t, 1, 20));
    let updated = inserted && stage.once(|t| t.update(&stage.items, 1, |item| item.set_value(21)).map(drop));
    !updated || stage.value(1) != Some(21)
}

fn key_that_is_not_there_for_half_a_turn() -> bool {
    let stage = narrow(&[]);
    pass_half_a_turn(&stage);
    !stage.once(|t| insert(&stage, t))
}

fn index_that_is_half_a_turn_old() -> bool {
    let stage = narrow(&[]);
    let table = plain_members(&stage, 3);
    create_index(&stage, table);
    pass_half_a_turn(&stage);
    let mut worker = stage.worker();
    let mut snapshot = worker.begin(Mode::Snapshot).unwrap();
    !snapshot.scan_range_by::<_, _, u32>(&table, BY_CODE, ..).count().is_ok_and(|found| found == 3)
}

/// A snapshot stays open until some client is held back because of it.
fn snapshot_for_half_a_turn() -> bool {
    let stage = narrow(&[(1, 10)]);
    let open = Rc::new(RefCell::new(Some(stage.lasting(Mode::Snapshot))));
    interrupt(Point::HeldBack, {
        let open = Rc::clone(&open);
        move || drop(open.take())
    });
    pass_half_a_turn(&stage);
    stage.set(1, 11);
    let snapshot = open.take();
    snapshot.is_some_and(|mut snapshot| present(&mut snapshot, &stage.items, 1).unwrap() != Some(10))
}

/// A thread that pauses where it comes to `point` until it is told to go on, or the other end is gone.
fn pause_at(point: Point, work: impl FnOnce() + Send + 'static) -> (Sender<()>, std::thread::JoinHandle<()>) {
    let (paused, is_paused) = mpsc::channel();
    let (resume, resumed) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        interrupt(point, move || {
            paused.send(()).unwrap();
            let _ = resumed.recv();
        });
        work();
    });
    is_paused.recv().unwrap();
    (resume, thread)
}

/// The leader is paused while a transaction runs, and goes on when some client is held back because of it.
fn leader_that_is_paused() -> bool {
    let stage = narrow(&[(1, 10)]);
    let open = Rc::new(RefCell::new(Some(stage.lasting(Mode::ReadWrite))));
    let (resume, leader) = pause_at(Point::Scanned, {
        let database = Arc::clone(&stage.database);
        move || database.tick()
    });
    interrupt(Point::HeldBack, {
        let (open, resume) = (Rc::clone(&open), resume.clone());
        move || {
            drop(open.take());
            // A leader that has ended does not mind.
            let _ = resume.send(());
        }
    });
    pass_half_a_turn(&stage);
    stage.set(1, 11);
    // Where no client was held back, it goes on now.
    let _ = resume.send(());
    let read = open.take().map(|mut open| present(&mut open, &stage.items, 1).unwrap());
    leader.join().unwrap();
    read.is_some_and(|value| value != Some(10))
}

/// A reader, and a leader, that are slow are waited for alike.
#[test]
fn a_leader_that_is_paused_turns_no_order_around() {
    assert!(!leader_that_is_paused(), "a transaction sees what comes after it");
    let _without = leave_out(Step::HoldBack);
    assert!(leader_that_is_paused(), "the test shows nothing");
}

/// A worker is paused when it knows up to when it collects; a snapshot begins far behind that, and the row that it sees is
/// written half a turn after the worker's horizon.
fn collector_that_is_paused() -> bool {
    let stage = narrow(&[(1, 10)]);
    let leaves_out = left_out(Step::HoldToCollect);
    let mut collector = stage.worker();
    drive::transact(&mut collector, Mode::ReadWrite, &mut |t| stage.put(t, 1, 10)).unwrap();
    stage.database.tick();
    let (resume, collector) = pause_at(Point::Collecting, move || {
        let _without = leaves_out.then(|| leave_out(Step::HoldToCollect));
        drop(collector.begin(Mode::ReadWrite).unwrap());
    });
    interrupt(Point::HeldBack, {
        let resume = resume.clone();
        move || {
            let _ = resume.send(());
        }
    });
    pass_numbers(&stage, 1600);
    let mut snapshot = stage.lasting(Mode::Snapshot);
    pass_numbers(&stage, 600);
    stage.set(1, 11);
    // Where no client was held back, it goes on now.
    let _ = resume.send(());
    collector.join().unwrap();
    present(&mut snapshot, &stage.items, 1).unwrap() != Some(10)
}

// Rows and their entries.

/// Tries to insert a member whose code is taken, and counts them in the same transaction.
fn members_with_one_code() -> u64 {
    let stage = stage(&[]);
    let mut count = 0;
    assert!(stage.once(|t| {
        let _ = t.try_insert(&stage.members, &Member { id: 2, code: 1 })?;
        count = t.scan(&stage.members, ..).count()?;
        Ok(())
    }));
    count
}

fn row_whose_entry_was_refused() -> bool {
    members_with_one_code() != 1
}

fn loaded_row_is_missed() -> bool {
    crate::loaded_row_is_missed(crate::setups::cicada())
}

fn answer_that_missed_a_row() -> bool {
    answer_too_early(&crate::setups::cicada()).is_some()
}

crate::killers! { Step:
    ExceedLast: second_before_the_first, "a worker with a boosted clock does not see its own commit";
    BeginAfterBound: writer_behind_the_horizon, "a writer begins before a snapshot's timestamp";
    BeginAtHorizon: snapshot_at_a_horizon_that_has_passed, "a beginning snapshot loses an overwritten row";
    AwaitWriters: snapshot_beside_an_earlier_writer, "a snapshot sees the commit of an earlier writer";
    AwaitReaders: snapshot_of_a_row_that_is_overwritten, "a snapshot loses a row that is overwritten";
    AwaitJoined: snapshot_of_a_worker_that_joins, "a new worker's first snapshot loses rows";
    NeverGoBack: horizon_that_goes_back, "a snapshot begins at a collected timestamp";
    AwaitClock: acknowledged_before_the_clock, "an acknowledged commit is not seen";
    AwaitHorizon: acknowledged_before_the_horizon, "the same with external consistency";
    EndLast: snapshot_in_the_middle_of_a_commit, "a snapshot sees half of a commit";
    InstallPending: read_of_what_is_not_validated, "aborted read";
    InstallInOrder: earlier_write_on_top, "the later of two writes is lost";
    RaiseVersions: write_under_a_later_reader, "write skew: an earlier transaction writes what a later one has read";
    RaiseFirst: write_between_check_and_raising, "the same, between the check and the raising";
    CompareVersions: read_skew, "read skew";
    AwaitPendingReads: pending_version_of_what_was_read, "write skew with a validated, unfinished writer";
    RefuseReadLater: reader_between_look_and_installation, "write skew with a reader before the installation";
    AwaitPendingBelow: pending_insertion, "one key is inserted twice, concurrently";
    RefuseInsertedFirst: insert_insert, "the same, one after the other";
    AwaitPendingAlone: reads_in_the_middle_of_a_commit, "single reads see a commit, lose it, and see it";
    PassOverAborted: read_of_what_was_given_up, "an undone version is read";
    PassOverOwn: write_of_what_was_read, "an update never commits";
    CompareNodes: absent_key, "phantom under an absent key";
    RaiseGaps: insertion_that_a_later_one_missed, "write skew: an earlier transaction inserts a key that a later one has missed";
    AdmitKeys: insertion_that_a_later_one_missed, "the same";
    AdmitRanges: insertion_into_a_range_of_a_later_one, "the same with a range";
    NoteLengths: insertion_into_a_range_of_a_later_one, "the same with a range";
    ValidateReaders: read_skew, "read skew of a read-only transaction";
    ValidateRollBack: error_that_inconsistent_reads_made, "an error caused by inconsistent reads is returned";
    ProtectRolledBack: insertion_that_is_rolled_back, "the same, where an insertion found its key absent";
    ValidateRunning: loop_over_inconsistent_reads, "a loop over inconsistent reads never ends";
    StayDoomed: conflict_that_the_procedure_ignores, "a doomed procedure commits";
    NodesOfMisses: absent_key, "phantom under an absent key";
    NodesOfTombstones: absent_key_without_its_tombstone, "phantom under an unlinked tombstone";
    NodesOfRanges: count_of_a_range, "phantom in a counted range";
    NodesOfUndone: absent_key_that_was_inserted_and_given_up, "phantom under the key of an undone insertion";
    NodesOfDeleted: absent_key_that_was_inserted_and_deleted, "the same, where the transaction itself deleted the row";
    NodesOfChanges: insertions_into_one_leaf, "multi-version index: one of two insertions into a leaf is lost";
    NodesOfMerges: insertion_into_a_leaf_that_is_merged, "an insertion into a leaf is lost that an empty neighbour takes over";
    NodesOfBlindWrites: write_of_an_earlier_deletion, "a write is lost: no leaf leads to its record";
    FollowSiblings: key_in_a_leaf_that_is_divided, "a key is missed that a split has moved to the right";
    LookAgain: row_that_goes_and_comes_back, "a key is missed that has a new record";
    PartsOfMisses: insertion_that_a_later_one_missed, "as without `RaiseGaps`";
    PartsOfInsertions: insertion_under_a_later_one, "one key is inserted twice, the later one first";
    PartsOfRanges: insertion_into_a_range_of_a_later_one, "as without `AdmitRanges`";
    MissAgain: absent_key_of_an_epoch_that_was_left, "phantom under a key that an idle client had missed";
    CountAgain: count_of_a_range_in_an_epoch_that_was_left, "phantom in a range that an idle client had counted";
    LookBesideAgain: absent_key_that_comes_and_goes, "as without `MissAgain`, where the row has been deleted again since";
    RefuseEmptyHints: absent_key_behind_a_hint, "phantom under a declared key whose tombstone was unlinked";
    CollectSuperseded: snapshot_of_a_row_that_is_overwritten, "a snapshot loses a row that is overwritten";
    CloseOnlyDeleted: key_that_came_back, "a row inserted on its tombstone disappears";
    CloseRecords: insertion_on_a_tombstone, "an insertion goes to an unlinked record and is lost";
    ReplaceClosed: insertion_on_a_tombstone, "unlinking a tombstone aborts an insertion";
    TolerateClosed: tombstone_that_goes, "the background aborts a reader of a tombstone";
    KeepSeen: version_in_the_middle, "a snapshot goes back to an older row";
    KeepSpans: version_that_was_read_and_replaced, "lost update: the position of a read version was reused";
    KeepRows: deleted_row_that_a_snapshot_sees, "a snapshot loses a row deleted later";
    KeepLatest: latest_version_behind_a_snapshot, "a row goes back to an older one";
    KeepUnsettled: version_before_one_of_the_future, "a row goes back to an older one for a while";
    HorizonBeforeMoments: snapshot_that_begins_while_moments_are_counted, "a beginning snapshot goes back to an older row";
    KnowAllIndexes: entry_left_behind, "a stale secondary entry remains";
    FollowUnknowing: entry_of_an_earlier_row, "the same, where a clock is ahead and the writers come in the other order";
    FillAfterUnknowing: index_of_what_was_before, "a new index lacks a row whose writer's clock was ahead";
    AwaitIndexes: index_that_is_being_filled, "a snapshot reads a new index before it is complete";
    AwaitFilling: index_that_was_filled, "a new snapshot cannot use the index";
    AwaitMissed: answer_that_missed_a_row, "a row is told to be gone whose deletion is not durable";
    LoadInThePast: loaded_row_is_missed, "the first snapshot does not find what was loaded";
    RenewRows: row_that_is_not_written_for_half_a_turn, "an old row disappears after half a turn of the clock";
    RenewDeletions: deletion_that_stays_for_half_a_turn, "an insertion lies below an old deletion, half a turn later";
    RenewGaps: key_that_is_not_there_for_half_a_turn, "a key that was missed half a turn ago can never be inserted";
    RenewReadiness: index_that_is_half_a_turn_old, "snapshots cannot use an index half a turn later";
    HoldBack: snapshot_for_half_a_turn, "a long snapshot sees later commits, half a turn later";
    HoldToCollect: collector_that_is_paused, "a paused collector takes a row from a newer snapshot";
    UndoOperations: row_whose_entry_was_refused, "a refused row remains";
    RefuseDuplicates: row_whose_entry_was_refused, "a unique value occurs twice";
}
