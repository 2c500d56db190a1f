//! A log in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError};
use std::thread::ThreadId;

use polychron_base::random::Random;
use polychron_engine::definitions::StoredCatalog;
use polychron_engine::redo::{Change, Durability, Log, Order, Ticket};
use polychron_engine::{Error, Protocol, TableId};
use polychron_sync::{Condvar, Mutex, MutexGuard};

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
    /// How many seals are durable.
    durable: usize,
    /// Nothing becomes durable by itself.
    is_held: bool,
    is_stopped: bool,
    /// How many threads wait, and how many transactions were admitted.
    waiting: usize,
    admitted: usize,
    /// What begins is refused.
    is_full: bool,
    /// Up to where all have ended, as far as the database has told.
    ended: Order,
}

type ThreadIds = Option<ThreadId>;

type OnSeal = Box<dyn FnMut() + Send>;

type AskEnded = Box<dyn Fn() -> Order + Send + Sync>;

/// A [`Log`] that keeps all that is handed to it, refuses some changes, and notes where its contract is broken. Each seal is a log epoch, which becomes
/// durable when a thread waits for it, or on command.
pub struct Recorder {
    state: Mutex<State>,
    changed: Condvar,
    durability: Durability,
    on_seal: Mutex<Option<OnSeal>>,
    ask_ended: OnceLock<AskEnded>,
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
        Self::of(Durability::Immediate)
    }

    /// One that refuses nothing, of a database with this durability.
    pub fn of(durability: Durability) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            durability,
            on_seal: Mutex::new(None),
            ask_ended: OnceLock::new(),
        }
    }

    /// Asks a database at each seal up to where all have ended.
    pub fn watch<P: Protocol>(&self, database: &Arc<P>) {
        let database = Arc::downgrade(database);
        let ask = move || database.upgrade().map_or(Order::default(), |database| database.storage().ended());
        assert!(self.ask_ended.set(Box::new(ask)).is_ok(), "it is watched already");
    }

    /// The highest order of all that have sealed changes.
    pub fn last_order(&self) -> Order {
        let state = self.state();
        let changing = state.sealed.iter().filter(|sealed| !sealed.changes.is_empty());
        changing.map(|sealed| sealed.order).max().unwrap_or_default()
    }

    /// From now on nothing becomes durable.
    pub fn hold(&self) {
        self.state().is_held = true;
    }

    /// What was sealed so far is durable, and nothing else is.
    pub fn flush(&self) {
        let mut state = self.state();
        state.durable = state.sealed.len();
        self.changed.notify_all();
    }

    /// The first seals are durable.
    pub fn flush_to(&self, seals: usize) {
        let mut state = self.state();
        state.durable = state.durable.max(seals);
        self.changed.notify_all();
    }

    /// What was sealed so far is durable, and so is what is waited for.
    pub fn let_go(&self) {
        self.state().is_held = false;
        self.flush();
    }

    /// From now on nothing becomes durable, and nothing is staged.
    pub fn stop(&self) {
        self.state().is_stopped = true;
        self.changed.notify_all();
    }

    /// Nothing but deletions is staged while there is no room.
    pub fn fill(&self, is_full: bool) {
        self.state().is_full = is_full;
    }

    /// How many seals there were.
    pub fn seals(&self) -> usize {
        self.state().sealed.len()
    }

    /// How many threads wait until something is durable.
    pub fn waiting(&self) -> usize {
        self.state().waiting
    }

    /// How often it was asked whether a transaction may begin.
    pub fn admitted(&self) -> usize {
        self.state().admitted
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
    fn define(&self, _: &StoredCatalog) -> Result<(), Error> {
        Ok(())
    }

    fn admit(&self, worker: usize) -> Result<(), Error> {
        let mut state = self.state();
        state.admitted += 1;
        if state.staged.contains_key(&worker) {
            state.flaws.push(format!("worker {worker} asks to begin, and has staged something"));
        }
        Ok(())
    }

    fn stage(&self, worker: usize, table: TableId, key: &[u8], change: Change<'_>) -> Result<(), Error> {
        let mut state = self.state();
        match (state.is_stopped, state.is_full, change) {
            (true, ..) => return Err(Error::log_stopped("on command".to_owned())),
            (_, true, Change::Put(_) | Change::Patch { .. }) => {
                return Err(Error::disk_full("nowhere".to_owned(), "there is none".to_owned()));
            }
            _ => {}
        }
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
        let ended = self.ask_ended.get().map_or(Order::default(), |ask| ask());
        let mut state = self.state();
        let (thread, changes) = state.staged.remove(&worker).unwrap_or_default();
        state.ended = state.ended.max(ended);
        if order <= state.ended && !changes.is_empty() {
            let ended = state.ended;
            state.flaws.push(format!("{order:?} is sealed, and all up to {ended:?} had ended"));
        }
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

    /// The last seal of what was read.
    fn ticket(&self, read: Order) -> Ticket {
        let state = self.state();
        let last = state.sealed.iter().rposition(|sealed| sealed.order <= read);
        state.ticket_of(last.map_or(0, |last| last + 1))
    }

    fn sealed(&self) -> Ticket {
        let state = self.state();
        state.ticket_of(state.sealed.len())
    }

    fn wait(&self, ticket: Ticket) -> Result<(), Error> {
        let mut state = self.state();
        state.waiting += 1;
        let waited = loop {
            if state.durable as u64 >= ticket.0 {
                break Ok(());
            }
            if state.is_stopped {
                break Err(Error::log_stopped("on command".to_owned()));
            }
            if state.is_held {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else {
                state.durable = state.sealed.len();
            }
        };
        state.waiting -= 1;
        waited
    }

    fn durability(&self) -> Durability {
        self.durability
    }
}

impl State {
    fn ticket_of(&self, seals: usize) -> Ticket {
        if seals <= self.durable { Ticket::DONE } else { Ticket(seals as u64) }
    }
}
