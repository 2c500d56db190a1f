//! The two indexes: an ordered one (trie of B+-trees) and a hash index, both from encoded keys to 64-bit handles.
//!
//! An index knows no visibility. It hands out handles, and [`Stamp`]s of the nodes that were looked at, so that a
//! protocol can tell later whether a key that was absent, or a range that was scanned, is still as it was seen.

mod any;
pub mod hash;
mod measured;
#[cfg(all(test, loom))]
mod model;
pub mod ordered;

mod stamp;

use std::ptr::NonNull;

pub use any::AnyIndex;
pub use stamp::{Change, Changes, Stamp};

/// The value of a key in an index: 64 bits whose meaning only the protocol knows (a record's address, a record id, a row
/// number). Never zero.
pub type Handle = std::num::NonZeroU64;

/// The handle of what lies at an address.
#[inline]
pub fn handle_of<T>(pointer: NonNull<T>) -> Handle {
    Handle::new(pointer.as_ptr().expose_provenance() as u64).expect("a pointer that is not null")
}

/// The address that a handle came from ([`handle_of`]). Whether anything still lies there is for the caller to know.
#[inline]
pub fn pointer_of<T>(handle: Handle) -> NonNull<T> {
    let address = std::num::NonZeroUsize::try_from(handle).expect("addresses have the machine's width");
    NonNull::with_exposed_provenance(address)
}

/// The result of a lookup: the handle, and the stamp of the node that was searched.
#[derive(Clone, Copy, Debug)]
pub struct Lookup {
    /// The key's handle, or `None` when the key is absent.
    pub handle: Option<Handle>,
    /// The node that covers the key. As long as the stamp holds, no key was inserted there.
    pub stamp: Stamp,
}

/// The result of an insertion.
#[derive(Clone, Copy, Debug)]
pub enum Inserted {
    /// The key was absent and is now present.
    New,
    /// The key was present already; nothing changed.
    Existing(Lookup),
}
