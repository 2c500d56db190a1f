//! Values that stay in the thread that has made them, under handles that go anywhere.
//!
//! An open transaction belongs to its thread: the guard of its epoch, what the engine knows of transactions inside of others, and futures go by the thread.
//! A connection is to be `Send` all the same, so its transaction lies in a list of the thread, and the connection has a handle. Elsewhere the handle finds
//! nothing. What a handle has left behind in another thread, or in one that ends, is dropped there: by the thread's next use of the list, or with the
//! thread, so that a leaked connection holds its locks no longer than its thread lives.
//!
//! A value that is at rest has a time from which on its thread drops it, *parked*: when the thread uses the list for another value, or is asked to
//! ([`park_idle`]). Only its own thread does, so no other one has to stop for it. The handle sees that it is parked, wherever it is.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::{Arc, LazyLock, Weak};

use polychron_base::clock::{Clock, SystemClock};
use polychron_sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What times of rest are measured by.
static CLOCK: LazyLock<SystemClock> = LazyLock::new(SystemClock::new);

/// The time of a value that is not at rest.
const AWAKE: u64 = u64::MAX;

/// How long a look for values that are wanted lasts.
const LOOK_NS: u64 = 50_000_000;

/// The time by which values rest, in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    CLOCK.now_ns()
}

/// What follows when a value is parked.
pub(crate) trait Parked: Send + Sync {
    /// The value was dropped, and its handle does not know yet.
    fn parked(&self);

    /// Whether a value that may rest for longer is wanted back. It is parked then.
    fn is_wanted(&self) -> bool {
        false
    }
}

/// What handle and entry share. Its address names the value, and stays taken as long as the value's entry is there.
#[derive(Debug)]
struct Shared {
    /// When the value is parked. Only its thread changes it.
    rests_until: AtomicU64,
    /// Until then it is parked only if it is wanted.
    is_kept_until: AtomicU64,
    is_parked: AtomicBool,
}

/// The handle of a value.
#[derive(Debug)]
pub(crate) struct Resident<T: 'static> {
    shared: Arc<Shared>,
    /// No value of the type is in it.
    of: PhantomData<fn() -> T>,
}

struct Entry {
    /// Gone with the handle.
    shared: Weak<Shared>,
    value: Box<dyn Any>,
    then: Arc<dyn Parked>,
}

thread_local! {
    static ENTRIES: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
    /// No value of the thread is to be parked before.
    static NEXT: Cell<u64> = const { Cell::new(AWAKE) };
}

/// Lends the list of the calling thread; `None` in one whose own memory is gone.
fn with_entries<O>(work: impl FnOnce(&mut Vec<Entry>) -> O) -> Option<O> {
    ENTRIES.try_with(|entries| work(&mut entries.borrow_mut())).ok()
}

/// Drops what was left behind in this thread, and parks what has rested long enough. The list is free meanwhile.
pub(crate) fn maintain() {
    let is_abandoned = |entry: &mut Entry| entry.shared.strong_count() == 0;
    let abandoned = |entries: &mut Vec<Entry>| {
        if entries.is_empty() { None } else { entries.extract_if(.., is_abandoned).next() }
    };
    while let Some(Some(entry)) = with_entries(abandoned) {
        drop(entry);
    }
    park_idle();
}

/// Parks the transactions that connections hold in the calling thread and that have heard nothing for `park_after`, and answers how many. Those that have only read stay where they hold
/// nobody up. Using any connection in the
/// thread does the same.
pub fn park_idle() -> usize {
    let next = NEXT.try_with(Cell::get).unwrap_or(AWAKE);
    if next == AWAKE || now_ns() < next {
        return 0;
    }
    park_rested()
}

/// As [`park_idle`], whenever the list was looked through last.
pub(crate) fn park_rested() -> usize {
    let (now, mut count, mut left) = (now_ns(), 0, AWAKE);
    let mut idle = Vec::new();
    with_entries(|entries| {
        let is_idle = |entry: &mut Entry| {
            // Relaxed: this thread has set it.
            let times =
                |shared: Arc<Shared>| [&shared.rests_until, &shared.is_kept_until].map(|it| it.load(Ordering::Relaxed));
            let [mut until, kept_until] = entry.shared.upgrade().map_or([AWAKE; 2], times);
            if until <= now && now < kept_until && !entry.then.is_wanted() {
                until = kept_until.min(now + LOOK_NS);
            }
            if until > now {
                left = left.min(until);
            }
            until <= now
        };
        idle.extend(entries.extract_if(.., is_idle));
    });
    let _ = NEXT.try_with(|next| next.set(left));
    for entry in idle {
        entry.park();
        count += 1;
    }
    count
}

impl Entry {
    fn park(self) {
        let Self { shared, value, then } = self;
        drop(value);
        then.parked();
        if let Some(shared) = shared.upgrade() {
            // Release: pairs with `is_parked`, in whatever thread the handle is.
            shared.is_parked.store(true, Ordering::Release);
        }
    }
}

impl<T: 'static> Resident<T> {
    /// Keeps a value in the calling thread.
    ///
    /// # Errors
    /// The thread ends, and keeps nothing.
    pub(crate) fn new(value: T, then: Arc<dyn Parked>) -> Result<Self, T> {
        let shared = Arc::new(Shared {
            rests_until: AtomicU64::new(AWAKE),
            is_kept_until: AtomicU64::new(0),
            is_parked: AtomicBool::new(false),
        });
        let mut value = Some(value);
        let kept = with_entries(|entries| {
            let value = Box::new(value.take().expect("it is called once"));
            entries.push(Entry { shared: Arc::downgrade(&shared), value, then });
        });
        match value {
            Some(value) if kept.is_none() => Err(value),
            _ => Ok(Self { shared, of: PhantomData }),
        }
    }

    fn position(&self, entries: &[Entry]) -> Option<usize> {
        entries.iter().position(|entry| std::ptr::eq(entry.shared.as_ptr(), Arc::as_ptr(&self.shared)))
    }

    /// Whether the value is in the calling thread.
    pub(crate) fn is_here(&self) -> bool {
        with_entries(|entries| self.position(entries).is_some()).unwrap_or(false)
    }

    /// Whether the value was parked. It is nowhere then.
    pub(crate) fn is_parked(&self) -> bool {
        // Acquire: pairs with `Entry::park`.
        self.shared.is_parked.load(Ordering::Acquire)
    }

    /// The value, which is here, is at rest, and parked from this time on; up to the second time only if it is wanted.
    pub(crate) fn rest(&self, until: u64, is_kept_until: u64) {
        // Relaxed: only this thread looks.
        self.shared.is_kept_until.store(is_kept_until, Ordering::Relaxed);
        self.shared.rests_until.store(until, Ordering::Relaxed);
        let _ = NEXT.try_with(|next| next.set(next.get().min(until)));
    }

    /// The value, which is here, is used from now on.
    pub(crate) fn wake(&self) {
        self.shared.rests_until.store(AWAKE, Ordering::Relaxed);
    }

    /// Parks the value, if it is in the calling thread.
    pub(crate) fn park(&self) {
        if let Some(entry) = self.remove() {
            entry.park();
        }
    }

    /// Lends the value to the calling thread; `None`: it is in another one. The list is free meanwhile: other values may be used inside of `work`.
    pub(crate) fn with<O>(&mut self, work: impl FnOnce(&mut T) -> O) -> Option<O> {
        /// Brings an entry back, also when `work` panics.
        struct Lent(Option<Entry>);

        impl Drop for Lent {
            fn drop(&mut self) {
                with_entries(|entries| entries.extend(self.0.take()));
            }
        }

        let mut lent = Lent(self.remove());
        let value = lent.0.as_mut()?.value.downcast_mut::<T>()?;
        Some(work(value))
    }

    fn remove(&self) -> Option<Entry> {
        with_entries(|entries| self.position(entries).map(|position| entries.swap_remove(position)))?
    }

    /// The value.
    ///
    /// # Errors
    /// It is in another thread, or parked.
    pub(crate) fn take(self) -> Result<T, Self> {
        match self.remove().map(|entry| entry.value.downcast::<T>()) {
            Some(Ok(value)) => Ok(*value),
            _ => Err(self),
        }
    }
}

impl<T: 'static> Drop for Resident<T> {
    fn drop(&mut self) {
        drop(self.remove());
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::sync::mpsc;

    use super::*;

    /// Says that it is dropped, and in which thread. It stays there.
    struct Told(mpsc::Sender<std::thread::ThreadId>, Rc<u8>);

    impl Drop for Told {
        fn drop(&mut self) {
            let _ = self.0.send(std::thread::current().id());
        }
    }

    /// Counts what was parked.
    #[derive(Default)]
    struct Counted(AtomicU64);

    impl Parked for Counted {
        fn parked(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn resident() -> (Resident<Told>, mpsc::Receiver<std::thread::ThreadId>) {
        let (told, dropped) = mpsc::channel();
        (Resident::new(Told(told, Rc::new(7)), Arc::<Counted>::default()).ok().unwrap(), dropped)
    }

    #[test]
    fn a_value_stays_in_its_thread() {
        let (mut resident, dropped) = resident();
        assert_eq!(resident.with(|told| *told.1), Some(7));
        let elsewhere = std::thread::spawn(move || {
            assert!(!resident.is_here() && resident.with(|_| ()).is_none());
            let Err(resident) = resident.take() else { panic!("it is in another thread") };
            drop(resident);
        });
        elsewhere.join().unwrap();
        assert!(dropped.try_recv().is_err(), "nobody else may drop it");
        maintain();
        assert_eq!(dropped.recv(), Ok(std::thread::current().id()));
    }

    #[test]
    fn a_value_ends_with_its_thread() {
        let thread = std::thread::spawn(|| {
            let (resident, dropped) = resident();
            std::mem::forget(resident);
            (std::thread::current().id(), dropped)
        });
        let (id, dropped) = thread.join().unwrap();
        assert_eq!(dropped.recv(), Ok(id));
    }

    #[test]
    fn values_are_used_inside_of_each_other() {
        let (mut one, _) = resident();
        let (mut other, dropped) = resident();
        let both = one.with(|one| other.with(|other| *one.1 + *other.1));
        assert_eq!(both, Some(Some(14)));
        assert!(other.take().is_ok_and(|told| *told.1 == 7));
        assert!(dropped.recv().is_ok());
    }

    #[test]
    fn a_value_at_rest_is_parked_by_its_own_thread() {
        let counted = Arc::new(Counted::default());
        let (told, dropped) = mpsc::channel();
        let one = Resident::new(Told(told.clone(), Rc::new(1)), counted.clone()).ok().unwrap();
        let other = Resident::new(Told(told.clone(), Rc::new(2)), counted.clone()).ok().unwrap();
        one.rest(now_ns(), 0);
        other.rest(u64::MAX - 1, 0);
        std::thread::scope(|scope| scope.spawn(|| assert_eq!(park_idle(), 0)).join().unwrap());
        assert!(one.is_here() && !one.is_parked());
        assert_eq!((park_idle(), park_idle()), (1, 0));
        assert_eq!((one.is_here(), one.is_parked(), other.is_here(), other.is_parked()), (false, true, true, false));
        assert_eq!((dropped.recv(), counted.0.load(Ordering::Relaxed)), (Ok(std::thread::current().id()), 1));
        let one = std::thread::spawn(move || one.is_parked().then_some(one)).join().unwrap();
        assert!(one.is_some_and(|one| one.take().is_err()), "it is nowhere");
        // What is used is not parked, however late it is.
        other.rest(now_ns(), 0);
        other.wake();
        assert_eq!(park_idle(), 0);
        other.park();
        assert!(other.is_parked() && dropped.recv().is_ok());
    }
}
