//! Being built.
use std::ptr::NonNull;

pub(crate) unsafe fn stamp_holds(_node: NonNull<()>, _state: u64) -> bool {
    unimplemented!()
}
