//! The simulated disk without faults and a directory of the file system answer alike, whatever is asked of them.
//!
//! `POLYCHRON_DISK_SEQUENCES` and `POLYCHRON_FIRST_SEED` say how many sequences of operations are tried, and from which seed; `TMPDIR` says where.

use polychron_base::random::Random;
use polychron_base::sizes::scaled;
use polychron_log::disk::{Access, BLOCK, Buffer, Directory, Disk, Entry, Error, File, Files};
use polychron_sim::{Fault, SimulatedDisk};

/// Paths that meet, so that files are where others want directories.
const PATHS: &[&str] = &["a", "d", "d/a", "d/e"];
/// Others: what is rarely there, and what is no path.
const RARE_PATHS: &[&str] = &["b", "d/b", "d/e/a", "a/b", "missing/a", "", "LOCK", "../a", "d/LOCK"];

/// How many handles are kept at a time.
const HANDLES: usize = 3;

#[derive(Clone, Debug)]
enum Action {
    Create { path: &'static str, bytes: u64, handle: usize },
    Open { path: &'static str, access: Access, handle: usize },
    Close { handle: usize },
    Measure { handle: usize },
    Read { handle: usize, offset: u64, bytes: usize },
    Write { handle: usize, offset: u64, bytes: usize, start: usize, fill: u8 },
    Sync { handle: usize },
    Remove(&'static str),
    List(&'static str),
    CreateDirectory(&'static str),
    RemoveDirectory(&'static str),
    SyncDirectory(&'static str),
    Lock,
    Unlock,
}

/// What an action answers.
#[derive(Debug, PartialEq)]
enum Answer {
    Done,
    NoHandle,
    Bytes(u64),
    /// Of each block its first byte, and whether all others are the same.
    Read(Vec<(u8, bool)>),
    Entries(Vec<Entry>),
    Failed(Error),
}

impl Action {
    fn draw(random: &mut Random) -> Self {
        const BLOCKS: u64 = BLOCK as u64;
        let paths = if random.chance(0.8) { PATHS } else { RARE_PATHS };
        let path = paths[random.below(paths.len() as u64) as usize];
        let handle = random.below(HANDLES as u64) as usize;
        // Now and then something that is not aligned.
        let odd = |random: &mut Random| if random.chance(0.05) { 512 } else { 0 };
        let offset = random.below(5).min(random.below(5)) * BLOCKS + odd(random);
        let bytes = [0, 1, 1, 1, 2, 3][random.below(6) as usize] * BLOCK + odd(random) as usize;
        match random.below(22) {
            0..=2 => Self::Create { path, bytes: bytes as u64, handle },
            3 | 4 => {
                let access = if random.chance(0.2) { Access::Read } else { Access::Write };
                Self::Open { path, access, handle }
            }
            5 => Self::Close { handle },
            6 => Self::Measure { handle },
            7..=9 => Self::Read { handle, offset, bytes },
            10..=12 => {
                let start = odd(random) as usize;
                Self::Write { handle, offset, bytes, start, fill: random.below(256) as u8 }
            }
            13 => Self::Sync { handle },
            14 => Self::Remove(path),
            15 => Self::List(path),
            16 | 17 => Self::CreateDirectory(path),
            18 | 19 => Self::RemoveDirectory(path),
            20 => Self::SyncDirectory(path),
            _ if random.chance(0.5) => Self::Lock,
            _ => Self::Unlock,
        }
    }
}

/// A disk, and what is open of it.
struct World<'d, D: Disk> {
    files: &'d Files<D>,
    handles: [Option<File<D::File>>; HANDLES],
    lock: Option<D::Lock>,
}

impl<'d, D: Disk> World<'d, D> {
    fn new(files: &'d Files<D>) -> Self {
        Self { files, handles: [None, None, None], lock: None }
    }

    fn act(&mut self, action: &Action) -> Answer {
        let result = match action {
            Action::Create { path, bytes, handle } => {
                self.files.create(path, *bytes).map(|file| self.handles[*handle] = Some(file))
            }
            Action::Open { path, access, handle } => {
                self.files.open(path, *access).map(|file| self.handles[*handle] = Some(file))
            }
            Action::Close { handle } => {
                self.handles[*handle] = None;
                Ok(())
            }
            Action::Remove(path) => self.files.remove(path),
            Action::CreateDirectory(path) => self.files.create_directory(path),
            Action::RemoveDirectory(path) => self.files.remove_directory(path),
            Action::SyncDirectory(path) => self.files.sync_directory(path),
            Action::List(path) => return self.files.list(path).map_or_else(Answer::Failed, Answer::Entries),
            // A lock that is held is refused; the same that is given back at once.
            Action::Lock => self.files.lock().map(|lock| self.lock = Some(lock)),
            Action::Unlock => {
                self.lock = None;
                Ok(())
            }
            Action::Measure { handle }
            | Action::Read { handle, .. }
            | Action::Write { handle, .. }
            | Action::Sync { handle } => {
                let file = self.handles[*handle].as_ref();
                return file.map_or(Answer::NoHandle, |file| act_on_file(file, action));
            }
        };
        result.map_or_else(Answer::Failed, |()| Answer::Done)
    }

    /// Everything that is there.
    fn content(&self) -> Vec<(String, Answer)> {
        let mut found = Vec::new();
        for (path, is_directory) in everything(self.files) {
            let answer = if is_directory {
                Answer::Done
            } else {
                let file = self.files.open(&path, Access::Read).expect("what is listed can be opened");
                let bytes = file.bytes().expect("a file has a length");
                let handle = 0;
                act_on_file(&file, &Action::Read { handle, offset: 0, bytes: bytes as usize })
            };
            found.push((path, answer));
        }
        found
    }
}

fn act_on_file<F: polychron_log::disk::DiskFile>(file: &File<F>, action: &Action) -> Answer {
    let result = match action {
        Action::Read { offset, bytes, .. } => {
            let mut buffer = Buffer::zeroed(*bytes);
            let read = file.read_at(*offset, &mut buffer[..*bytes]);
            return read.map_or_else(Answer::Failed, |()| Answer::Read(looks(&buffer[..*bytes])));
        }
        Action::Write { offset, bytes, start, fill, .. } => {
            let mut buffer = Buffer::zeroed(*start + *bytes);
            for (at, block) in buffer.chunks_mut(BLOCK).enumerate() {
                block.fill(fill.wrapping_add(at as u8));
            }
            file.write_at(*offset, &buffer[*start..*start + *bytes])
        }
        Action::Sync { .. } => file.sync(),
        _ => return file.bytes().map_or_else(Answer::Failed, Answer::Bytes),
    };
    result.map_or_else(Answer::Failed, |()| Answer::Done)
}

fn looks(bytes: &[u8]) -> Vec<(u8, bool)> {
    bytes.chunks(BLOCK).map(|block| (block[0], block.iter().all(|byte| *byte == block[0]))).collect()
}

/// All paths, each before what is in it, and whether it is a directory.
fn everything<D: Disk>(files: &Files<D>) -> Vec<(String, bool)> {
    let mut found: Vec<(String, bool)> = vec![(String::new(), true)];
    let mut at = 0;
    while at < found.len() {
        let (path, is_directory) = found[at].clone();
        if is_directory {
            for entry in files.list(&path).expect("a directory can be listed") {
                let inner = if path.is_empty() { entry.name } else { format!("{path}/{}", entry.name) };
                found.push((inner, entry.is_directory));
            }
        }
        at += 1;
    }
    found.remove(0);
    found
}

fn clear(files: &Files<Directory>) {
    for (path, is_directory) in everything(files).into_iter().rev() {
        let removed = if is_directory { files.remove_directory(&path) } else { files.remove(&path) };
        removed.expect("what is listed can be removed");
    }
}

/// The first difference between two disks that are asked the same, in words. The directory is empty before and after.
fn difference(actions: &[Action], simulated: &Files<SimulatedDisk>, real: &Files<Directory>) -> Option<String> {
    let (mut one, mut other) = (World::new(simulated), World::new(real));
    let mut difference = actions.iter().find_map(|action| {
        let answers = (one.act(action), other.act(action));
        (answers.0 != answers.1).then(|| format!("{action:?}: simulated {:?}, real {:?}", answers.0, answers.1))
    });
    if difference.is_none() {
        let contents = (one.content(), other.content());
        difference = (contents.0 != contents.1).then(|| format!("in the end: {contents:?}"));
    }
    drop(other);
    clear(real);
    difference
}

fn sequence(seed: u64) -> Vec<Action> {
    let mut random = Random::from_seed(seed);
    // Most begin with something that is there.
    let mut actions = Vec::new();
    if random.chance(0.8) {
        let bytes = random.below(4) * BLOCK as u64;
        actions.push(Action::CreateDirectory("d"));
        actions.push(Action::Create { path: "a", bytes, handle: 0 });
        actions.push(Action::Create { path: "d/a", bytes, handle: 1 });
        let fill = random.below(256) as u8;
        actions.push(Action::Write { handle: 1, offset: 0, bytes: BLOCK, start: 0, fill });
    }
    let count = random.range_inclusive(1, 24);
    actions.extend((0..count).map(|_| Action::draw(&mut random)));
    actions
}

/// The same without the actions that the difference does not need.
fn shrunk(mut actions: Vec<Action>, real: &Files<Directory>) -> (Vec<Action>, String) {
    let differ = |actions: &[Action]| difference(actions, &Files::new(SimulatedDisk::new(0)), real);
    let mut at = 0;
    while at < actions.len() {
        let mut fewer = actions.clone();
        fewer.remove(at);
        if differ(&fewer).is_some() { actions = fewer } else { at += 1 }
    }
    let text = differ(&actions).unwrap_or_default();
    (actions, text)
}

fn compare(real: &Files<Directory>, first: u64, count: u64) {
    for seed in first..first + count {
        let actions = sequence(seed);
        if difference(&actions, &Files::new(SimulatedDisk::new(seed)), real).is_some() {
            let (actions, text) = shrunk(actions, real);
            panic!("seed {seed}: {text}\nafter {actions:#?}");
        }
    }
}

fn directory(path: &std::path::Path) -> Directory {
    Directory::create_or_open(path).expect("a temporary directory can be used")
}

#[test]
fn the_simulated_disk_answers_as_a_directory() {
    let folder = tempfile::tempdir().expect("there is room for a temporary directory");
    let real = Files::new(directory(&folder.path().join("direct")));
    let seeds = polychron_sim::seeds("POLYCHRON_DISK_SEQUENCES", scaled(300, 1));
    let (first, count) = (seeds.start, seeds.end - seeds.start);
    compare(&real, first, count);
    println!("{count} sequences of operations answered alike, from seed {first}");
}

#[test]
fn the_same_through_the_systems_cache() {
    let folder = tempfile::tempdir().expect("there is room for a temporary directory");
    compare(&Files::new(directory(&folder.path().join("cached")).through_cache()), 1_000_000, scaled(100, 1) as u64);
}

/// The comparison can fail: it notices a disk that loses a write.
#[test]
fn a_disk_that_loses_a_write_is_noticed() {
    let folder = tempfile::tempdir().expect("there is room for a temporary directory");
    let real = Files::new(directory(&folder.path().join("direct")));
    let noticed = (0..100).any(|seed| {
        let disk = SimulatedDisk::new(seed);
        (0..200).for_each(|number| disk.plan(number, Fault::LoseWrite));
        difference(&sequence(seed), &Files::new(disk), &real).is_some()
    });
    assert!(noticed, "the comparison is blind");
}
/// The sequences are no mere refusals: each kind of operation succeeds often, and reads see what was written.
#[test]
fn the_sequences_do_something() {
    const SEQUENCES: u64 = 1000;
    let mut done = std::collections::HashMap::<std::mem::Discriminant<Action>, u64>::new();
    let mut read_back = 0;
    for seed in 0..SEQUENCES {
        let files = Files::new(SimulatedDisk::new(seed));
        let mut world = World::new(&files);
        for action in sequence(seed) {
            let answer = world.act(&action);
            read_back += u64::from(matches!(&answer, Answer::Read(looks) if looks.iter().any(|look| look.0 != 0)));
            let counts = !matches!(answer, Answer::Failed(_) | Answer::NoHandle);
            *done.entry(std::mem::discriminant(&action)).or_default() += u64::from(counts);
        }
    }
    assert_eq!(done.len(), 14, "each kind of operation is tried");
    assert!(done.values().all(|count| *count > SEQUENCES / 40), "{done:?}");
    assert!(read_back > SEQUENCES / 12, "{read_back}");
}

/// Threads commit to a log in a directory, which the next opening finds whole.
#[test]
fn a_log_in_a_directory_is_found_again() {
    use polychron_engine::redo::{Change, Log as _, Order};
    use polychron_log::manifest::{Manifest, Manifests};
    use polychron_log::{DatabaseId, Log, Options, Threads};
    use std::sync::Arc;

    const COMMITS: u64 = 40;
    let folder = tempfile::tempdir().expect("there is room for a temporary directory");
    let files = Files::new(directory(folder.path()));
    let first = Manifest {
        database: DatabaseId(1),
        incarnation: 0,
        first_log_file: 1,
        durable: 0,
        checkpoint: None,
        catalog: Vec::new(),
    };
    drop(Manifests::create(&files, first).unwrap());
    for opening in 0..3 {
        let mut manifests = Manifests::open(&files).unwrap().unwrap();
        let clock = Arc::new(polychron_base::clock::SystemClock::new());
        let mut found = Vec::new();
        let log = Log::open(&files, &mut manifests, Options::tiny(), clock, Box::new(Order::default), &mut |logged| {
            found.push((logged.incarnation, logged.record.order.timestamp));
        });
        let log = Arc::new(log.unwrap());
        found.sort_unstable();
        let expected = (1..=opening).flat_map(|incarnation| (0..3 * COMMITS).map(move |order| (incarnation, order)));
        assert_eq!(found, expected.collect::<Vec<_>>());
        let _threads = Threads::start(Arc::clone(&log)).unwrap();
        std::thread::scope(|scope| {
            for worker in 0..3 {
                let log = &log;
                scope.spawn(move || {
                    for number in 0..COMMITS {
                        log.admit(worker).unwrap();
                        let row = vec![number; 50];
                        log.stage(worker, polychron_base::TableId::new(1, 1), b"", Change::Put(&row)).unwrap();
                        log.wait(log.seal(worker, Order::from(3 * number + worker as u64))).unwrap();
                    }
                });
            }
        });
    }
}
