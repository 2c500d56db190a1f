//! A place for one value that threads put in and take out.

use std::marker::PhantomData;
use std::ptr;

use crate::atomic::{AtomicPtr, Ordering};

/// Holds one boxed value or none. Both operations are one sequentially consistent exchange, so a thread that puts a value in and then loads a
/// flag, and one that raises the flag and then takes, cannot miss each other: one of them sees what the other did.
#[derive(Debug)]
pub struct Exchange<T> {
    pointer: AtomicPtr<T>,
    owns: PhantomData<Box<T>>,
}

// SAFETY: a value is owned by the place or by the one thread that took it out, so sharing the place only sends values.
unsafe impl<T: Send> Sync for Exchange<T> {}
// SAFETY: as above; the place itself is a pointer.
unsafe impl<T: Send> Send for Exchange<T> {}

impl<T> Exchange<T> {
    /// An empty place.
    pub fn new() -> Self {
        Self { pointer: AtomicPtr::new(ptr::null_mut()), owns: PhantomData }
    }

    /// Puts a value in, and answers the one that was there.
    #[inline]
    pub fn put(&self, value: Box<T>) -> Option<Box<T>> {
        self.exchange(Box::into_raw(value))
    }

    /// Takes the value out.
    #[inline]
    pub fn take(&self) -> Option<Box<T>> {
        self.exchange(ptr::null_mut())
    }

    #[inline]
    fn exchange(&self, pointer: *mut T) -> Option<Box<T>> {
        // Pairs with the exchange of the thread that put the value in: what it wrote to the value is seen here.
        let before = self.pointer.swap(pointer, Ordering::SeqCst);
        // SAFETY: a pointer that is not null came from a box in `put`, and the exchange gave it to this call alone.
        (!before.is_null()).then(|| unsafe { Box::from_raw(before) })
    }
}

impl<T> Default for Exchange<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for Exchange<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn values_are_dropped_once() {
        let value = Arc::new(());
        let place = Exchange::new();
        assert!(place.take().is_none());
        assert!(place.put(Box::new(Arc::clone(&value))).is_none());
        drop(place.put(Box::new(Arc::clone(&value))));
        assert_eq!(Arc::strong_count(&value), 2);
        drop(place);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::Arc;
    use crate::atomic::AtomicUsize;
    use crate::model::explore;

    /// Two threads exchange values: each arrives once, whole.
    #[test]
    fn values_change_hands() {
        explore(3, || {
            let place = Arc::new(Exchange::new());
            let other = Arc::clone(&place);
            let thread = crate::thread::spawn(move || {
                let before = other.put(Box::new(AtomicUsize::new(1)));
                usize::from(before.is_some()) + usize::from(other.take().is_some())
            });
            let before = place.put(Box::new(AtomicUsize::new(2)));
            let own = usize::from(before.is_some()) + usize::from(place.take().is_some());
            let others = thread.join().unwrap();
            assert_eq!(own + others + usize::from(place.take().is_some()), 2);
        });
    }
}
