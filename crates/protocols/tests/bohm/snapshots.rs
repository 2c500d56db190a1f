//! Snapshots that stay open, at different points, beside all that others do: what each sees stays as it is, and nothing else is held.

use std::sync::mpsc::{Receiver, Sender, channel};

use polychron_base::sizes::scaled;

use super::*;

/// What an open snapshot is told.
enum Command {
    /// To read everything again.
    Look,
    End,
}

/// Reads everything, and again whenever it is told to.
struct Open {
    contents: Contents,
    commands: Receiver<Command>,
    /// What it saw at first, and then each time whether that was the same.
    saw: Sender<Result<(), Vec<Vec<u8>>>>,
}

impl Procedure for Open {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        let first = self.contents.run(t)?;
        self.saw.send(Err(first.clone())).unwrap();
        while let Ok(Command::Look) = self.commands.recv() {
            let now = self.contents.run(t)?;
            self.saw.send(if now == first { Ok(()) } else { Err(now) }).unwrap();
        }
        Ok(())
    }

    fn declare<D: Declare>(&self, _: &mut D) {}
}

/// A snapshot that is open in a thread of its own.
struct Snapshot<'s> {
    command: Sender<Command>,
    saw: Receiver<Result<(), Vec<Vec<u8>>>>,
    thread: std::thread::ScopedJoinHandle<'s, ()>,
}

impl<'s> Snapshot<'s> {
    fn open<'e>(scope: &'s std::thread::Scope<'s, 'e>, stage: &Stage) -> (Self, Vec<Vec<u8>>) {
        let ((command, commands), (see, saw)) = (channel(), channel());
        let mut worker = stage.database.worker().unwrap();
        let mut open = Open { contents: Contents(stage.tables), commands, saw: see };
        let thread = scope.spawn(move || worker.snapshot(&mut open).unwrap());
        let first = saw.recv().unwrap().unwrap_err();
        (Self { command, saw, thread }, first)
    }

    fn check(&self) {
        self.command.send(Command::Look).unwrap();
        assert_eq!(self.saw.recv().unwrap(), Ok(()), "it sees what it saw first");
    }

    fn end(self) {
        self.check();
        self.command.send(Command::End).unwrap();
        self.thread.join().unwrap();
    }
}

/// A script, or a line that is named to be written, and is not: its row is passed on.
enum Any {
    Script(Script),
    Named(Tables, Line),
}

impl Procedure for Any {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        match self {
            Self::Script(script) => script.run(t).map(drop),
            Self::Named(..) => Ok(()),
        }
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        match self {
            Self::Script(script) => script.declare(declaration),
            Self::Named(tables, line) => {
                let key = (line.branch, &*line.name);
                declaration.key(tables.lines.id(), key.encode(&mut KeyScratch::new()), Access::Write);
            }
        }
    }
}

fn any(stage: &Stage, random: &mut Random) -> Any {
    let mut below = |count: u64| random.below(count);
    let (id, branch) = (below(8), below(2) as u32);
    let text = [0, 3, 40, 300, 3000][below(5) as usize];
    let step = match below(12) {
        0 => Do::Insert(account(id)),
        1 => Do::Put(Account { balance: below(9) as i64, ..account(id) }),
        2 => Do::Delete(id),
        3 => Do::Add(id, 1),
        4 => Do::SetOwner(id, below(3) as u32),
        5 => Do::Append(branch),
        6 => Do::Cut(branch),
        7 | 8 => Do::Text(branch, text),
        9 => Do::Undone(Box::new(Do::Text(branch, text))),
        10 => Do::Follow(id),
        _ => return Any::Named(stage.tables, line(branch, 1 + below(4))),
    };
    let steps = if below(6) == 0 { vec![step, Do::Fail] } else { vec![step] };
    let declares = if below(3) == 0 { Declares::Some } else { Declares::All };
    Any::Script(Script { declares, ..stage.script(steps) })
}

/// Snapshots are opened and closed at random beside random work: each sees the same until its end, and then nothing is left of it.
#[test]
fn each_sees_its_own() {
    for seed in 0..scaled(24, 2) as u64 {
        let mut random = Random::from_seed(seed);
        let partitions = 1 + seed as usize % 3;
        let mut stage =
            Stage::new(Options { partitions, batch_size: 1 + random.below(6) as usize, ..Options::default() });
        std::thread::scope(|scope| {
            let mut open: Vec<Snapshot<'_>> = Vec::new();
            for _ in 0..scaled(120, 30) {
                let mut batch: Vec<_> = (0..1 + random.below(12)).map(|_| any(&stage, &mut random)).collect();
                stage.worker.execute_batch(&mut batch, &mut |_, _| ());
                match random.below(8) {
                    0 | 1 if open.len() < 4 => {
                        let wanted = stage.contents();
                        let (snapshot, first) = Snapshot::open(scope, &stage);
                        assert_eq!(first, wanted);
                        open.push(snapshot);
                    }
                    2 if !open.is_empty() => open.swap_remove(random.below(open.len() as u64) as usize).end(),
                    3 => open.iter().for_each(Snapshot::check),
                    4 => _ = stage.quiesce(),
                    _ => {}
                }
            }
            open.into_iter().for_each(Snapshot::end);
        });
        let gone = (0..8).map(|id| stage.script(vec![Do::Delete(id)]));
        let gone: Vec<_> = gone.chain((0..400).map(|number| stage.script(vec![Do::Cut(number % 2)]))).collect();
        for _ in 0..4 {
            stage.run_batch(&gone);
        }
        assert_eq!(stage.contents(), Vec::<Vec<u8>>::new());
        let used = stage.quiesce();
        let fresh = Stage::new(Options { partitions, ..Options::default() }).quiesce();
        assert!(
            used <= fresh + (16 << 10),
            "seed {seed}: {fresh} bytes of an empty database, and {used} of an emptied one"
        );
    }
}

/// What is dropped beside a snapshot that is older than its rows goes at the latest with the snapshot; one that began before sees it.
#[test]
fn tables_are_dropped_beside_snapshots() {
    let mut stage = Stage::with_accounts(Options::default(), 4);
    stage.run(vec![Do::Append(1), Do::Append(1), Do::Text(1, 2000)]).unwrap();
    let texts = |stage: &Stage, lens: &[usize]| -> Vec<_> {
        lens.iter().map(|&len| stage.script(vec![Do::Text(1, len), Do::Cut(2), Do::Append(2)])).collect()
    };
    std::thread::scope(|scope| {
        let (first, _) = Snapshot::open(scope, &stage);
        stage.run_batch(&texts(&stage, &[3, 900]));
        let (second, _) = Snapshot::open(scope, &stage);
        stage.run_batch(&texts(&stage, &[0, 2, 800]));
        stage.database.drop_table(stage.tables.lines.id()).unwrap();
        stage.quiesce();
        stage.run(vec![Do::Add(1, 1)]).unwrap();
        first.end();
        stage.quiesce();
        second.end();
    });
    // A snapshot that asks for it is refused from then on.
    stage.database.drop_index(stage.tables.accounts.id(), IndexId(1)).unwrap();
    let used = stage.quiesce();
    stage.database.drop_table(stage.tables.accounts.id()).unwrap();
    let left = stage.quiesce();
    assert!(left <= used && left < 16 << 10, "{used} bytes with a table, and {left} without any");
}
