//! The disk itself: operations, with what happens to each.

use std::collections::{BTreeMap, BTreeSet};

use polychron_base::random::Random;
use polychron_log::disk::{Access, BLOCK, Cause, Disk, DiskFile, Entry, Operation};
use polychron_sync::{Arc, Mutex, MutexGuard};

use crate::content::{Content, bytes_of};
use crate::damage::{self, Damage};
use crate::faults::{Fault, Faults, Step, Verdict};
use crate::survival::{Survival, survive};
use crate::tree::{Id, Names, Node, Tree};

/// The room that a directory takes, in bytes.
const DIRECTORY: u64 = BLOCK as u64;

/// A disk in memory. Clones are the same disk.
#[derive(Clone)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
}

struct State {
    tree: Tree,
    faults: Faults,
    random: Random,
    steps: Vec<Step>,
    /// The room that all files may take together, in bytes.
    room: Option<u64>,
    is_locked: bool,
    /// How many have locked it to read, and whether it was ever locked to write.
    readers: usize,
    was_locked: bool,
    /// How many handles a file has.
    open: BTreeMap<Id, usize>,
}

impl State {
    /// Counts a handle, if the operation that opens it does not fail.
    fn count_handle(&mut self, id: Id, verdict: Verdict) -> Id {
        if !verdict.is_failure() {
            *self.open.entry(id).or_default() += 1;
        }
        id
    }
}

impl SimulatedDisk {
    /// An empty disk, of which the seed decides how operations fail.
    pub fn new(seed: u64) -> Self {
        Self::of(Tree::new(), seed)
    }

    fn of(tree: Tree, seed: u64) -> Self {
        let state = State {
            tree,
            faults: Faults::default(),
            random: Random::from_seed(seed),
            steps: Vec::new(),
            room: None,
            is_locked: false,
            readers: 0,
            was_locked: false,
            open: BTreeMap::new(),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// The operations so far: the next one has the number of how many these are.
    pub fn steps(&self) -> Vec<Step> {
        self.state().steps.clone()
    }

    /// Lets the operation of this number have a fault, counted from 0 since the disk was made.
    pub fn plan(&self, number: usize, fault: Fault) {
        self.state().faults.plan.insert(number, fault);
    }

    /// Bounds the room of all files and directories together, in bytes, or lifts the bound.
    pub fn set_room(&self, bytes: Option<u64>) {
        self.state().room = bytes;
    }

    /// The room that files take, in bytes. Directories take some when they are made, and are not counted after that.
    pub fn used(&self) -> u64 {
        self.state().tree.room()
    }

    /// Whether the power has failed.
    pub fn is_off(&self) -> bool {
        self.state().faults.is_off
    }

    /// The disk as it would be found after a power failure now. This one goes on.
    #[must_use]
    pub fn after_power_failure(&self, survival: Survival, seed: u64) -> Self {
        let mut tree = self.state().tree.clone();
        let mut random = Random::stream(seed, survival as u64);
        survive(&mut tree, survival, &mut random);
        Self::of(tree, random.next_u64())
    }

    /// Every outcome of a power failure now that these seeds give. Where nothing or everything survives, one seed is enough.
    pub fn outcomes(&self, seeds: std::ops::Range<u64>) -> impl Iterator<Item = Self> {
        Survival::ALL.into_iter().flat_map(move |survival| {
            let is_certain = matches!(survival, Survival::Nothing | Survival::Everything);
            let seeds = if is_certain { seeds.start..seeds.start + 1 } else { seeds.clone() };
            seeds.map(move |seed| self.after_power_failure(survival, seed))
        })
    }

    /// The disk as the next process would find it if this one ended now: nothing is lost, and nothing is synced by that.
    #[must_use]
    pub fn after_restart(&self) -> Self {
        let state = self.state();
        Self::of(state.tree.clone(), state.random.clone().next_u64())
    }

    /// The paths of all files that have blocks, and how many these are.
    pub fn files(&self) -> Vec<(String, u64)> {
        self.state().tree.files()
    }

    /// Damages a block of any file. Directories are as likely as single files beside them, however many files they have, and first blocks are the likeliest,
    /// since most files are used at their beginning. Answers what was done where.
    pub fn damage_any(&self, random: &mut Random) -> (String, u64, Damage) {
        let mut groups: BTreeMap<String, Vec<(String, u64)>> = BTreeMap::new();
        for (path, blocks) in self.files() {
            let group = path.rsplit_once('/').map_or(path.as_str(), |(directory, _)| directory).to_owned();
            groups.entry(group).or_default().push((path, blocks));
        }
        let groups: Vec<_> = groups.into_values().collect();
        let files = &groups[random.below(groups.len() as u64) as usize];
        let (path, blocks) = files[random.below(files.len() as u64) as usize].clone();
        let reach = if random.chance(0.5) { blocks } else { blocks.min(2) };
        let at = random.below(reach);
        let damage = Damage::draw(random, blocks);
        // Another damage may have cut the file before that block.
        let _ = self.damage(&path, at, damage);
        (path, at, damage)
    }

    /// Damages a block that is on the medium, by its number in the file. Answers whether that made a difference.
    ///
    /// # Errors
    /// When there is no such file, or it has no such block.
    pub fn damage(&self, path: &str, block: u64, damage: Damage) -> Result<bool, Cause> {
        let state = &mut *self.state();
        let (id, _) = state.tree.file(path)?;
        damage::damage(state.tree.content_mut(id), block, damage, &mut state.random)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Counts an operation, decides what happens to it, and does it.
    fn run<T>(
        &self,
        operation: Operation,
        path: &str,
        allocates: u64,
        act: impl FnOnce(&mut State, Verdict) -> Result<T, Cause>,
    ) -> Result<T, Cause> {
        let state = &mut *self.state();
        let step = Step { operation, path: path.to_owned(), allocates };
        let verdict = state.faults.verdict(state.steps.len(), &step)?;
        state.steps.push(step);
        let is_full = allocates > 0 && state.room.is_some_and(|room| state.tree.room() + allocates > room);
        match verdict {
            Verdict::Fail | Verdict::SyncFull => {
                if state.random.chance(0.5) {
                    let _ = act(state, Verdict::Fail);
                }
                Err(if verdict == Verdict::Fail { Cause::Device } else { Cause::Full })
            }
            Verdict::PowerFailure => {
                let _ = act(state, verdict);
                Err(Cause::Device)
            }
            Verdict::Go if is_full => act(state, Verdict::Full),
            _ => act(state, verdict),
        }
    }

    /// A handle of a file, which must not be made or dropped inside an operation: it takes the same latch.
    fn handle(&self, path: &str, opened: Result<Id, Cause>) -> Result<SimulatedFile, Cause> {
        opened.map(|id| SimulatedFile { disk: self.clone(), id, path: path.to_owned() })
    }

    /// Adds a file or directory under a name that is free.
    fn add(state: &mut State, path: &str, verdict: Verdict, node: Node) -> Result<Id, Cause> {
        let (parent, name) = state.tree.parent(path)?;
        if state.tree.names_mut(parent).cache.contains_key(name) {
            return Err(Cause::Exists);
        }
        if verdict == Verdict::Full {
            return Err(Cause::Full);
        }
        let id = state.tree.add(node);
        state.tree.names_mut(parent).set(name, Some(id));
        Ok(id)
    }

    fn take_away(state: &mut State, path: &str) -> Result<(), Cause> {
        let (parent, name) = state.tree.parent(path)?;
        state.tree.names_mut(parent).set(name, None);
        Ok(())
    }
}

impl Disk for SimulatedDisk {
    type File = SimulatedFile;
    type Lock = SimulatedLock;

    fn create(&self, path: &str, bytes: u64) -> Result<SimulatedFile, Cause> {
        let opened = self.run(Operation::Create, path, bytes, |state, verdict| {
            let mut content = Content::zeroed(bytes / BLOCK as u64);
            if verdict.is_failure() {
                content.durable.blocks = 0;
            }
            let id = Self::add(state, path, verdict, Node::File(content))?;
            Ok(state.count_handle(id, verdict))
        });
        self.handle(path, opened)
    }

    fn open(&self, path: &str, _access: Access) -> Result<SimulatedFile, Cause> {
        let opened = self.run(Operation::Open, path, 0, |state, verdict| {
            let (id, _) = state.tree.file(path)?;
            Ok(state.count_handle(id, verdict))
        });
        self.handle(path, opened)
    }

    fn remove(&self, path: &str) -> Result<(), Cause> {
        self.run(Operation::Remove, path, 0, |state, _| {
            state.tree.file(path)?;
            Self::take_away(state, path)
        })
    }

    fn list(&self, path: &str) -> Result<Vec<Entry>, Cause> {
        self.run(Operation::List, path, 0, |state, _| {
            let (_, names) = state.tree.directory(path)?;
            let is_directory = |id: &Id| matches!(state.tree.nodes[id], Node::Directory(_));
            let entries = names.cache.iter();
            Ok(entries.map(|(name, id)| Entry { name: name.clone(), is_directory: is_directory(id) }).collect())
        })
    }

    fn names(&self) -> Result<Vec<String>, Cause> {
        self.run(Operation::List, "", 0, |state, _| Ok(state.tree.directory("")?.1.cache.keys().cloned().collect()))
    }

    fn create_directory(&self, path: &str) -> Result<(), Cause> {
        self.run(Operation::CreateDirectory, path, DIRECTORY, |state, verdict| {
            Self::add(state, path, verdict, Node::Directory(Names::default())).map(drop)
        })
    }

    fn remove_directory(&self, path: &str) -> Result<(), Cause> {
        self.run(Operation::RemoveDirectory, path, 0, |state, _| {
            let (_, names) = state.tree.directory(path)?;
            if names.cache.is_empty() { Self::take_away(state, path) } else { Err(Cause::NotEmpty) }
        })
    }

    fn sync_directory(&self, path: &str) -> Result<(), Cause> {
        self.run(Operation::SyncDirectory, path, 0, |state, verdict| {
            let (id, _) = state.tree.directory(path)?;
            let State { tree, random, .. } = state;
            let names = tree.names_mut(id);
            match verdict {
                Verdict::PowerFailure | Verdict::LoseSync => return Ok(()),
                // Some changes are on the medium, and the rest never will be.
                Verdict::Fail => names.pending.retain(|_| random.chance(0.5)),
                _ => {}
            }
            names.sync();
            let open: BTreeSet<Id> = state.open.keys().copied().collect();
            state.tree.collect(&open);
            Ok(())
        })
    }

    /// It is no operation that could have a fault.
    fn room(&self) -> Option<u64> {
        let state = self.state();
        state.room.map(|room| room.saturating_sub(state.tree.room()))
    }

    fn lock(&self) -> Result<SimulatedLock, Cause> {
        self.run(Operation::Lock, "", 0, |state, verdict| {
            if state.is_locked || state.readers > 0 {
                return Err(Cause::Locked { holder: Some(std::process::id()) });
            }
            state.is_locked = !verdict.is_failure();
            state.was_locked |= state.is_locked;
            Ok(())
        })?;
        Ok(SimulatedLock { disk: self.clone(), reads: false })
    }

    fn lock_to_read(&self) -> Result<Option<SimulatedLock>, Cause> {
        let was_locked = self.run(Operation::Lock, "", 0, |state, verdict| {
            if state.is_locked {
                return Err(Cause::Locked { holder: Some(std::process::id()) });
            }
            state.readers += usize::from(state.was_locked && !verdict.is_failure());
            Ok(state.was_locked)
        })?;
        Ok(was_locked.then(|| SimulatedLock { disk: self.clone(), reads: true }))
    }
}

/// An open file of a [`SimulatedDisk`].
pub struct SimulatedFile {
    disk: SimulatedDisk,
    id: Id,
    path: String,
}

impl DiskFile for SimulatedFile {
    fn bytes(&self) -> Result<u64, Cause> {
        self.disk.run(Operation::Measure, &self.path, 0, |state, _| Ok(state.tree.content_mut(self.id).room()))
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Cause> {
        self.disk.run(Operation::Read, &self.path, 0, |state, verdict| {
            let content = state.tree.content_mut(self.id);
            if content.room() < offset + into.len() as u64 {
                return Err(Cause::Ended);
            }
            for (number, bytes) in (offset / BLOCK as u64..).zip(into.chunks_exact_mut(BLOCK)) {
                if content.unreadable.contains(&number) {
                    return Err(Cause::Device);
                }
                bytes.copy_from_slice(bytes_of(content.cache.get(number)));
            }
            if verdict == Verdict::FlipBit {
                let bit = state.random.below(8 * into.len() as u64) as usize;
                into[bit / 8] ^= 1 << (bit % 8);
            }
            Ok(())
        })
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), Cause> {
        let before = self.disk.state().tree.content_mut(self.id).room();
        let allocates = (offset + from.len() as u64).saturating_sub(before);
        self.disk.run(Operation::Write, &self.path, allocates, |state, verdict| {
            let State { tree, random, .. } = state;
            let content = tree.content_mut(self.id);
            let at = offset / BLOCK as u64;
            match verdict {
                Verdict::Full => {
                    let count = random.below((from.len() / BLOCK) as u64) as usize;
                    content.write(at, &from[..count * BLOCK], &mut || true);
                    return Err(Cause::Full);
                }
                Verdict::Fail => content.write(at, from, &mut || random.chance(0.5)),
                Verdict::LoseWrite => content.write(at, from, &mut || false),
                Verdict::Misdirect => {
                    let (first, rest) = from.split_at(BLOCK);
                    content.write(at, first, &mut || false);
                    content.write(at + 1, rest, &mut || true);
                    let last = content.cache.blocks - 1;
                    content.write(last, first, &mut || true);
                }
                _ => content.write(at, from, &mut || true),
            }
            Ok(())
        })
    }

    fn sync(&self) -> Result<(), Cause> {
        self.disk.run(Operation::Sync, &self.path, 0, |state, verdict| {
            let State { tree, random, .. } = state;
            match verdict {
                Verdict::PowerFailure | Verdict::LoseSync => {}
                Verdict::Fail => tree.content_mut(self.id).fail_sync(random),
                _ => tree.content_mut(self.id).sync(),
            }
            Ok(())
        })
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if let Some(handles) = state.open.get_mut(&self.id) {
            *handles -= 1;
            if *handles == 0 {
                state.open.remove(&self.id);
            }
        }
    }
}

/// The lock of a [`SimulatedDisk`].
pub struct SimulatedLock {
    disk: SimulatedDisk,
    reads: bool,
}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if self.reads {
            state.readers -= 1;
        } else {
            state.is_locked = false;
        }
    }
}
