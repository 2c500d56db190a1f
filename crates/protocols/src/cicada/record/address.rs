//! Where heads and versions lie, and what lies there for as long as something keeps it.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::num::NonZero;
use std::ptr::NonNull;

/// What lies at an address.
pub(in crate::cicada) trait Kind: Copy + Debug + Eq {
    /// The words that are always there; a row follows.
    type Words;
}

/// Where a head or a version lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cicada) struct Address<K> {
    start: NonNull<u8>,
    kind: PhantomData<K>,
}

// SAFETY: it is an address; what lies there is shared through atomics, and rows behind a link do not change.
unsafe impl<K> Send for Address<K> {}
// SAFETY: as above.
unsafe impl<K> Sync for Address<K> {}

impl<K: Kind> Address<K> {
    /// An address at which something lies or will lie.
    #[inline]
    pub(in crate::cicada) fn at(start: NonNull<u8>) -> Self {
        Self { start, kind: PhantomData }
    }

    /// The first byte.
    #[inline]
    pub(in crate::cicada) fn start(self) -> NonNull<u8> {
        self.start
    }

    /// The address as a number.
    #[inline]
    pub(in crate::cicada) fn number(self) -> u64 {
        self.start.addr().get() as u64
    }

    /// What lies there.
    ///
    /// # Safety
    /// It was made there, and stays for as long as `holder` is borrowed: a guard under which it was found, a latch, or what owns the memory. A version
    /// is at or above one that a reader of that guard sees, or was seen by one.
    #[inline]
    pub(in crate::cicada) unsafe fn under<H: ?Sized>(self, _holder: &H) -> Guarded<'_, K> {
        Guarded { address: self, holder: PhantomData }
    }

    /// Brings the first lines into the caches.
    #[inline]
    pub(in crate::cicada) fn prefetch(self, lines: usize) {
        let start = self.start.as_ptr().cast_const();
        for line in 0..lines {
            polychron_sync::prefetch_read(start.wrapping_add(64 * line));
        }
    }
}

/// An address with a flag in its lowest bit, which is zero in the address of everything that is aligned.
#[derive(Clone, Copy, Debug)]
pub(in crate::cicada) struct Tagged<K>(Address<K>);

impl<K: Kind> Tagged<K> {
    #[inline]
    pub(in crate::cicada) fn new(address: Address<K>, flag: bool) -> Self {
        debug_assert!(address.number().is_multiple_of(2), "the lowest bit is free");
        Self(Address::at(address.start.map_addr(|start| start | usize::from(flag))))
    }

    #[inline]
    pub(in crate::cicada) fn flag(self) -> bool {
        !self.0.number().is_multiple_of(2)
    }

    #[inline]
    pub(in crate::cicada) fn address(self) -> Address<K> {
        let even = |start: NonZero<usize>| NonZero::new(start.get() & !1).expect("nothing lies at the address 0");
        Address::at(self.0.start.map_addr(even))
    }
}

/// A head or a version, which stays for `'g`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cicada) struct Guarded<'g, K> {
    pub(super) address: Address<K>,
    pub(super) holder: PhantomData<&'g ()>,
}

impl<'g, K: Kind> Guarded<'g, K> {
    /// Where it lies.
    #[inline]
    pub(in crate::cicada) fn address(self) -> Address<K> {
        self.address
    }

    /// Brings the first lines into the caches.
    #[inline]
    pub(in crate::cicada) fn prefetch(self, lines: usize) {
        self.address.prefetch(lines);
    }

    /// Its words.
    #[inline]
    pub(super) fn words_of(self) -> &'g K::Words {
        // SAFETY: the code that made this value has seen to it that they lie there and stay for `'g`.
        unsafe { self.address.start.cast().as_ref() }
    }
}
