//! Values that stay in the thread that has made them, under handles that go anywhere.
//!
//! An open transaction belongs to its thread: the guard of its epoch, what the engine knows of transactions inside of others, and futures go by the thread.
//! A connection is to be `Send` all the same, so its transaction lies in a list of the thread, and the connection has a handle. Elsewhere the handle finds
//! nothing. What a handle has left behind in another thread, or in one that ends, is dropped there: by the thread's next use of the list, or with the
//! thread, so that a leaked connection holds its locks no longer than its thread lives.

use std::any::Any;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};

/// The handle of a value.
#[derive(Debug)]
pub(crate) struct Resident<T: 'static> {
    /// Whose address names the value. It stays taken as long as the value's entry is there.
    name: Arc<()>,
    /// No value of the type is in it.
    of: PhantomData<fn() -> T>,
}

struct Entry {
    /// Gone with the handle.
    name: Weak<()>,
    value: Box<dyn Any>,
}

thread_local! {
    static ENTRIES: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

/// Lends the list of the calling thread; `None` in one whose own memory is gone.
fn with_entries<O>(work: impl FnOnce(&mut Vec<Entry>) -> O) -> Option<O> {
    ENTRIES.try_with(|entries| work(&mut entries.borrow_mut())).ok()
}

/// Drops what was left behind in this thread. The list is free meanwhile.
pub(crate) fn drop_abandoned() {
    let is_abandoned = |entry: &mut Entry| entry.name.strong_count() == 0;
    let abandoned = |entries: &mut Vec<Entry>| {
        if entries.is_empty() { None } else { entries.extract_if(.., is_abandoned).next() }
    };
    while let Some(Some(entry)) = with_entries(abandoned) {
        drop(entry);
    }
}

impl<T: 'static> Resident<T> {
    /// Keeps a value in the calling thread.
    ///
    /// # Errors
    /// The thread ends, and keeps nothing.
    pub(crate) fn new(value: T) -> Result<Self, T> {
        let (name, mut value) = (Arc::new(()), Some(value));
        let kept = with_entries(|entries| {
            let value = Box::new(value.take().expect("it is called once"));
            entries.push(Entry { name: Arc::downgrade(&name), value });
        });
        match value {
            Some(value) if kept.is_none() => Err(value),
            _ => Ok(Self { name, of: PhantomData }),
        }
    }

    fn position(&self, entries: &[Entry]) -> Option<usize> {
        entries.iter().position(|entry| std::ptr::eq(entry.name.as_ptr(), Arc::as_ptr(&self.name)))
    }

    /// Whether the value is in the calling thread.
    pub(crate) fn is_here(&self) -> bool {
        with_entries(|entries| self.position(entries).is_some()).unwrap_or(false)
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
    /// It is in another thread.
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

    fn resident() -> (Resident<Told>, mpsc::Receiver<std::thread::ThreadId>) {
        let (told, dropped) = mpsc::channel();
        (Resident::new(Told(told, Rc::new(7))).ok().unwrap(), dropped)
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
        drop_abandoned();
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
}
