//! A log in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::PoisonError;
use std::thread::ThreadId;

use polychron_base::random::Random;
use polychron_engine::redo::{Change, Log, Order, Ticket};
use polychron_engine::{Error, TableId};
use polychron_sync::{Mutex, MutexGuard};

/// Of so many changes one is refused.
const REFUSED: u64 = 25;

/// The rows of a table, by their keys.
pub(super) type Rows = BTreeMap<Vec<u8>, Vec<u64>>;

#[derive(Clone, Debug)]
enum Kept {
    Put(Vec<u64>),
    Patch { word: usize, words: Vec<u64> },
    Delete,
}

#[derive(Clone, Debug)]
struct Staged {
    table: TableId,
    key: Vec<u8>,
    change: Kept,
}

#[derive(Debug)]
struct Sealed {
    order: Order,
    changes: Vec<Staged>,
}

#[derive(Default)]
struct State {
    /// Of each worker, and the thread that has staged them.
    staged: BTreeMap<usize, (ThreadIds, Vec<Staged>)>,
    /// In the order of their sealing.
    sealed: Vec<Sealed>,
    flaws: Vec<String>,
    random: Option<Random>,
    bytes: usize,
}

type ThreadIds = Option<ThreadId>;

type OnSeal = Box<dyn FnMut() + Send>;

/// A [`Log`] that keeps all that is handed to it, refuses some changes, and notes where its contract is broken. Each seal is a log epoch.
pub struct Recorder {
    state: Mutex<State>,
    on_seal: Mutex<Option<OnSeal>>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Recorder").finish_non_exhaustive()
    }
}

/// What the changes make of empty tables.
#[derive(Debug)]
pub(super) struct Replayed {
    pub(super) rows: BTreeMap<TableId, Rows>,
    pub(super) flaws: Vec<String>,
}

impl Recorder {
    /// One that refuses changes as the seed says.
    pub fn new(seed: u64) -> Self {
        let recorder = Self::patient();
        recorder.state().random = Some(Random::stream(17, seed));
        recorder
    }

    /// One that refuses nothing.
    pub fn patient() -> Self {
        Self { state: Mutex::new(State::default()), on_seal: Mutex::new(None) }
    }

    /// Has this done at each seal, in the thread that seals.
    pub fn on_seal(&self, act: impl FnMut() + Send + 'static) {
        *self.on_seal.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(act));
    }

    /// How many transactions were sealed that had changes, and how many bytes those have.
    pub fn sealed(&self) -> (usize, usize) {
        let state = self.state();
        (state.sealed.iter().filter(|sealed| !sealed.changes.is_empty()).count(), state.bytes)
    }

    /// How many changes there were at each seal.
    pub fn changes_sealed(&self) -> Vec<usize> {
        self.state().sealed.iter().map(|sealed| sealed.changes.len()).collect()
    }

    /// The row that the changes make of a key. No transaction runs.
    pub fn row(&self, table: TableId, key: &[u8]) -> Option<Vec<u64>> {
        self.replay().rows.get(&table)?.get(key).cloned()
    }

    /// Where the contract was broken so far.
    pub fn flaws(&self) -> Vec<String> {
        self.state().flaws.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the rows again. No transaction runs.
    pub(super) fn replay(&self) -> Replayed {
        let mut state = self.state();
        let State { staged, sealed, flaws, .. } = &mut *state;
        let mut flaws = flaws.clone();
        for (worker, (_, changes)) in staged.iter().filter(|(_, (_, changes))| !changes.is_empty()) {
            flaws.push(format!("worker {worker} has left {} changes", changes.len()));
        }
        sealed.sort_by_key(|sealed| sealed.order);
        let mut rows: BTreeMap<TableId, Rows> = BTreeMap::new();
        let mut last: BTreeMap<(TableId, &[u8]), (Order, usize)> = BTreeMap::new();
        for (number, sealed) in sealed.iter().enumerate() {
            for staged in &sealed.changes {
                let before = last.insert((staged.table, &staged.key), (sealed.order, number));
                if before.is_some_and(|(order, other)| order == sealed.order && other != number) {
                    flaws.push(format!("two transactions have changed {:?} at {:?}", staged.key, sealed.order));
                }
                flaws.extend(apply(rows.entry(staged.table).or_default(), staged));
            }
        }
        Replayed { rows, flaws }
    }
}

fn apply(rows: &mut Rows, Staged { key, change, .. }: &Staged) -> Option<String> {
    match change {
        Kept::Put(row) => _ = rows.insert(key.clone(), row.clone()),
        Kept::Delete => _ = rows.remove(key),
        Kept::Patch { word, words } => match rows.get_mut(key).and_then(|row| row.get_mut(*word..word + words.len())) {
            Some(patched) => patched.copy_from_slice(words),
            None => return Some(format!("a patch of {key:?} finds no row, or a shorter one")),
        },
    }
    None
}

impl Log for Recorder {
    fn admit(&self, _: usize) -> Result<(), Error> {
        Ok(())
    }

    fn stage(&self, worker: usize, table: TableId, key: &[u8], change: Change<'_>) -> Result<(), Error> {
        let mut state = self.state();
        if state.random.as_mut().is_some_and(|random| random.below(REFUSED) == 0) {
            return Err(Error::Cancelled);
        }
        let (change, words) = match change {
            Change::Put(row) => (Kept::Put(row.to_vec()), row.len()),
            Change::Patch { word, words } => (Kept::Patch { word, words: words.to_vec() }, words.len() + 1),
            Change::Delete => (Kept::Delete, 0),
        };
        state.bytes += 8 + 8 * words + key.len();
        let State { staged, flaws, .. } = &mut *state;
        let (thread, changes) = staged.entry(worker).or_default();
        let here = std::thread::current().id();
        if *thread.get_or_insert(here) != here {
            flaws.push(format!("two threads stage as worker {worker}"));
        }
        changes.push(Staged { table, key: key.to_vec(), change });
        Ok(())
    }

    fn discard(&self, worker: usize) {
        self.state().staged.remove(&worker);
    }

    fn seal(&self, worker: usize, order: Order) -> Ticket {
        let mut state = self.state();
        let (thread, changes) = state.staged.remove(&worker).unwrap_or_default();
        if thread.is_some_and(|thread| thread != std::thread::current().id()) {
            state.flaws.push(format!("one thread stages as worker {worker}, and another one seals"));
        }
        state.sealed.push(Sealed { order, changes });
        let ticket = Ticket(state.sealed.len() as u64);
        drop(state);
        // Not while it is at work: what it does may seal, too.
        let act = self.on_seal.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut act) = act {
            act();
            *self.on_seal.lock().unwrap_or_else(PoisonError::into_inner) = Some(act);
        }
        ticket
    }

    /// The last seal of what was read, as if nothing were durable.
    fn ticket(&self, read: Order) -> Ticket {
        let state = self.state();
        let last = state.sealed.iter().rposition(|sealed| sealed.order <= read);
        last.map_or(Ticket::DONE, |last| Ticket(last as u64 + 1))
    }

    fn define(&self, _: &polychron_engine::definitions::StoredCatalog) -> Result<(), Error> {
        Ok(())
    }
}
