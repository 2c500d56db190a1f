//! Versions, chains, keys and fronts are freed when no thread still wants them.
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use polychron_base::sizes::scaled;
use polychron_schema::RowBuffer;

use super::*;

/// Rows come, are changed and go; nothing is left at the end of a round.
fn round(stage: &mut Stage, rows: u64) {
    let scripts = |step: &dyn Fn(u64) -> Vec<Do>| -> Vec<_> { (0..rows).map(|id| stage.script(step(id))).collect() };
    let branch = |id: u64| id as u32 % 7;
    let steps = [
        scripts(&|id| vec![Do::Insert(account(id)), Do::Append(branch(id))]),
        scripts(&|id| vec![Do::Add(id, 1), Do::SetOwner(id, 8), Do::Text(branch(id), 300), Do::Text(branch(id), 3)]),
        scripts(&|id| vec![Do::Add(id / 2, 1), Do::Add(0, 1), Do::Text(branch(id), id as usize)]),
        scripts(&|id| vec![Do::Delete(id), Do::Insert(account(id)), Do::Append(branch(id)), Do::Fail]),
        scripts(&|id| vec![Do::Delete(id), Do::Cut(branch(id))]),
    ];
    for scripts in steps {
        stage.run_batch(&scripts);
    }
}

#[test]
fn memory_comes_back() {
    for (partitions, batch_size) in [(1, 16), (3, 64), (1, 1)] {
        let mut stage = Stage::new(Options { partitions, batch_size, ..Options::default() });
        let mut used = Vec::new();
        for _ in 0..4 {
            round(&mut stage, scaled(60, 3) as u64);
            assert_eq!(stage.contents().len(), 0);
            used.push(stage.quiesce());
        }
        assert_eq!(stage.database.memory().statistics().retired_bytes, 0);
        assert!(used[1..].iter().all(|now| *now == used[1]), "in use after each round: {used:?}");
    }
}

/// Without a tick, too: what one batch supersedes a later one gives back.
#[test]
fn updates_do_not_pile_up() {
    let mut stage = Stage::with_accounts(Options { batch_size: 16, ..Options::default() }, 4);
    let before = stage.quiesce();
    let scripts: Vec<_> =
        (0..scaled(4000, 100) as u64).map(|number| stage.script(vec![Do::Add(number % 4, 1)])).collect();
    assert!(stage.run_batch(&scripts).iter().all(Result::is_ok));
    let after = stage.database.memory().statistics().used_bytes;
    assert!(after < before + (64 << 10), "{before} bytes were in use, and now {after}");
}

#[test]
fn rows_outgrow_their_room_and_shrink() {
    let mut stage = Stage::new(Options { batch_size: 5, ..Options::default() });
    stage.run(vec![Do::Append(1)]).unwrap();
    let before = stage.quiesce();
    let lens = [0, 10, 40, 41, 3000, 20, 500, 0, 7000, 1];
    let scripts: Vec<_> = lens
        .iter()
        .flat_map(|&len| {
            let grow = vec![Do::Text(1, len)];
            let twice = vec![Do::Text(1, 900), Do::Undone(Box::new(Do::Text(1, 9))), Do::Text(1, len)];
            let given_up = vec![Do::Text(1, 600), Do::Fail];
            [grow, twice, given_up].map(|steps| stage.script(steps))
        })
        .collect();
    let answers = stage.run_batch(&scripts);
    for (script, answer) in scripts.iter().zip(&answers) {
        assert_eq!(answer.is_err(), matches!(script.steps.last(), Some(Do::Fail)));
    }
    let mut row = RowBuffer::new();
    Line { text: "x".into(), ..line(1, 1) }.encode(&mut row).unwrap();
    assert_eq!(stage.contents(), [row.as_row().as_bytes()]);
    stage.run(vec![Do::Text(1, 0)]).unwrap();
    assert_eq!(stage.quiesce(), before);
}

/// A snapshot, in the middle of which others write.
struct Long<'a> {
    contents: Contents,
    meanwhile: &'a mut (dyn FnMut() + Send),
}

impl Procedure for Long<'_> {
    type Output = [Vec<Vec<u8>>; 2];
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<Self::Output, Error> {
        let before = self.contents.run(t)?;
        (self.meanwhile)();
        Ok([before, self.contents.run(t)?])
    }
}

#[test]
fn snapshots_stay_as_they_are_and_their_memory_comes_back() {
    const ROWS: u64 = scaled(20, 6) as u64;
    for (partitions, batch_size) in [(1, 4), (2, 1024)] {
        let mut stage = Stage::new(Options { partitions, batch_size, ..Options::default() });
        let tables = stage.tables;
        let mut reader = stage.database.worker().unwrap();
        round(&mut stage, ROWS);
        let kept: Vec<_> =
            (0..ROWS).map(|id| stage.script(vec![Do::Insert(account(id)), Do::Append(id as u32 % 3)])).collect();
        let gone: Vec<_> = (0..ROWS).map(|id| stage.script(vec![Do::Delete(id), Do::Cut(id as u32 % 3)])).collect();
        let mut used = Vec::new();
        for _ in 0..3 {
            assert!(stage.run_batch(&kept).iter().all(Result::is_ok));
            let wanted = stage.contents();
            let mut changed = Vec::new();
            let mut meanwhile = || {
                for rows in [ROWS, ROWS + ROWS / 2] {
                    round(&mut stage, rows);
                    stage.quiesce();
                }
                assert!(stage.run_batch(&kept[..ROWS as usize / 3]).iter().all(Result::is_ok));
                changed = stage.contents();
            };
            let contents = Contents(tables);
            let [before, after] = reader.snapshot(&mut Long { contents, meanwhile: &mut meanwhile }).unwrap();
            assert_eq!(before, wanted);
            assert_eq!(after, wanted);
            assert_ne!(changed, wanted);
            for _ in 0..2 {
                assert!(stage.run_batch(&gone).iter().all(Result::is_ok));
            }
            assert_eq!(stage.contents().len(), 0);
            used.push(stage.quiesce());
        }
        assert_eq!(used[1], used[2], "in use after each snapshot: {used:?}");
    }
}

/// Fills the memory with rows of this length until one is refused, and answers how many there are.
fn fill(stage: &mut Stage, branch: u32, len: usize) -> u64 {
    (0..)
        .find(|&number| {
            let row = Line { text: "x".repeat(len), ..line(branch, number) };
            match stage.worker.execute(&mut InsertLine { table: stage.tables.lines, line: row }) {
                Ok(()) => false,
                Err(Error::OutOfMemory(_)) => true,
                Err(error) => panic!("{error}"),
            }
        })
        .unwrap()
}

/// At a small limit rows that were deleted, one by one or many in a batch, are freed whole, and their memory is reused.
#[test]
fn what_was_deleted_at_the_limit_serves_again() {
    for (len, at_once) in [(3000, false), (3000, true), (100, false), (100, true)] {
        let limit_bytes = Some(2 << 20);
        let memory =
            polychron_memory::Options { limit_bytes, reserve_bytes: None, ..polychron_memory::Options::tiny() };
        let mut stage = Stage::over(Options::default(), Common { memory, ..Common::default() });
        let before = stage.quiesce();
        let first = fill(&mut stage, 0, len);
        let table = stage.tables.lines;
        let delete = |number| DeleteLine { table, line: line(0, number) };
        let mut deletions: Vec<_> = (0..first).map(delete).collect();
        if at_once {
            stage.worker.execute_batch(&mut deletions, &mut |_, answer| assert!(answer.unwrap()));
        } else {
            deletions.iter_mut().for_each(|deletion| assert!(stage.worker.execute(deletion).unwrap()));
        }
        let again = fill(&mut stage, 1, len);
        assert!(again >= first * 3 / 4, "{first} rows of {len} bytes found room, and then {again}");
        let mut deletions: Vec<_> = (0..again).map(|number| DeleteLine { table, line: line(1, number) }).collect();
        stage.worker.execute_batch(&mut deletions, &mut |_, answer| assert!(answer.unwrap()));
        let after = stage.quiesce();
        assert!(after <= before + (4 << 10), "{before} bytes in use before, and {after} afterwards");
    }
}

/// Loses a long row to a savepoint for which no memory is left to go back to.
struct Restores {
    tables: Tables,
    runs: usize,
}

impl Procedure for Restores {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        self.runs += 1;
        assert!(self.runs < 50, "it is executed again and again");
        let lines = self.tables.lines;
        t.insert(&lines, &Line { text: "x".repeat(3000), ..line(1, 0) })?;
        for _ in 0..50 {
            let savepoint = t.savepoint();
            t.update(&lines, (1, &*line(1, 0).name), |row| row.set_text("").unwrap())?;
            let insert = |number| t.insert(&lines, &Line { text: "y".repeat(3000), ..line(1, number) });
            // What is refused once may fit later: a refusal makes room for the next.
            let refused = (1..).map(insert).filter_map(Result::err).nth(15).expect("the memory ends");
            assert!(matches!(refused, Error::OutOfMemory(_)));
            // Memory that other threads give back in the meantime may be enough; then it tries again.
            if let Err(error) = t.roll_back_to(savepoint) {
                // Whether it gives up then makes no difference.
                return if self.runs.is_multiple_of(2) { Err(error) } else { Ok(()) };
            }
        }
        panic!("there is always memory left to go back");
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let mut scratch = KeyScratch::new();
        declaration.prefix(self.tables.lines.id(), 1_u32.encode_prefix(&mut scratch), Access::Write);
    }
}

/// What cannot go back to a savepoint for want of memory is refused like what cannot go on, and leaves nothing.
#[test]
fn going_back_without_memory_is_refused() {
    let mut stage =
        Stage::over(Options::default(), Common { memory: polychron_memory::Options::tiny(), ..Common::default() });
    let before = stage.quiesce();
    let mut restores = Restores { tables: stage.tables, runs: 0 };
    let answer = stage.worker.execute(&mut restores);
    assert!(matches!(answer, Err(Error::OutOfMemory(_))), "{answer:?}");
    assert_eq!(stage.contents().len(), 0);
    let after = stage.quiesce();
    assert!(after <= before + (4 << 10), "{before} bytes before, {after} after");
}

struct InsertLine {
    table: Table<Line>,
    line: Line,
}

impl Procedure for InsertLine {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        t.insert(&self.table, &self.line)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let key = (self.line.branch, &*self.line.name);
        declaration.key(self.table.id(), key.encode(&mut KeyScratch::new()), Access::Insert);
    }
}

struct DeleteLine {
    table: Table<Line>,
    line: Line,
}

impl Procedure for DeleteLine {
    type Output = bool;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<bool, Error> {
        t.delete(&self.table, (self.line.branch, &*self.line.name))
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let key = (self.line.branch, &*self.line.name);
        declaration.key(self.table.id(), key.encode(&mut KeyScratch::new()), Access::Write);
    }
}

/// Panics where it is dropped.
#[derive(Debug)]
struct Loud;

impl Drop for Loud {
    fn drop(&mut self) {
        // Without the hook that writes about it.
        resume_unwind(Box::new("a destructor panics"));
    }
}

#[derive(Debug)]
enum Failed {
    Engine(#[allow(dead_code, reason = "it is shown")] Error),
    Loudly(Loud),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

/// Asks for memory until there is no more, and then fails with an error of its own; or does nothing.
struct Wants {
    table: Table<Line>,
    is_content: bool,
}

impl Procedure for Wants {
    type Output = ();
    type Error = Failed;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Failed> {
        if self.is_content {
            return Ok(());
        }
        let mut insert = |number| t.insert(&self.table, &Line { text: "y".repeat(3000), ..line(1, number) });
        let refused = (0..).find_map(|number| insert(number).err());
        assert!(matches!(refused, Some(Error::OutOfMemory(_))), "{refused:?}");
        Err(Failed::Loudly(Loud))
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let mut scratch = KeyScratch::new();
        declaration.prefix(self.table.id(), 1_u32.encode_prefix(&mut scratch), Access::Write);
    }
}

/// Errors of procedures that wait for another try do not end the process where their client panics, whatever their destructors do.
#[test]
#[cfg_attr(miri, ignore = "memory that fills up takes an interpreter too long")]
fn errors_that_wait_for_memory_are_dropped_one_by_one() {
    for panics_at in 0..4 {
        let memory = polychron_memory::Options::tiny();
        let mut stage = Stage::over(Options::default(), Common { memory, ..Common::default() });
        let table = stage.tables.lines;
        let mut batch: Vec<_> = (0..4).map(|position| Wants { table, is_content: position == 3 }).collect();
        let mut observed = Vec::new();
        let executed = catch_unwind(AssertUnwindSafe(|| {
            stage.worker.execute_batch(&mut batch, &mut |position, answer| {
                observed.push(position);
                match answer {
                    Ok(()) => assert_eq!(position, 3),
                    Err(Failed::Loudly(loud)) => std::mem::forget(loud),
                    Err(Failed::Engine(error)) => panic!("{error}"),
                }
                if position == panics_at {
                    resume_unwind(Box::new("who is told panics"));
                }
            });
        }));
        assert!(executed.is_err());
        // Those that wait come after the others.
        let all = [3, 0, 1, 2];
        assert!(observed.last() == Some(&panics_at) && all.starts_with(&observed), "{observed:?}");
        assert_eq!(stage.contents().len(), 0);
    }
}
