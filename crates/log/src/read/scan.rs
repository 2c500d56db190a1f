//! The blocks behind a log's end.

use super::walk::{Walk, read_at};
use crate::disk::{Access, BLOCK, Buffer, Disk};
use crate::error::Error;
use crate::flush::pool::path_of;
use crate::frame::Frame;

/// How much is read at once, in bytes.
const STEP: usize = 1 << 20;

/// The highest epoch of which some header behind the end says that it was durable; 0 if there is none. A header is enough: it is written with the frame,
/// and what it says was durable before.
pub(super) fn known_behind<D: Disk>(walk: &Walk<'_, D>) -> Result<u64, Error> {
    let mut known = 0;
    let mut buffer = Buffer::zeroed(STEP);
    for slot in &walk.slots {
        let file = walk.files.open(&path_of(*slot), Access::Read)?;
        let unread = walk.unread(*slot, file.bytes()?);
        let mut offset = *unread.start();
        while offset + BLOCK as u64 <= *unread.end() {
            let bytes = (*unread.end() - offset).min(STEP as u64) as usize / BLOCK * BLOCK;
            if buffer.len() != bytes {
                buffer = Buffer::zeroed(bytes);
            }
            if !read_at(&file, offset, &mut buffer)? {
                break;
            }
            for (block, at) in buffer.chunks_exact(BLOCK).zip((offset..).step_by(BLOCK)) {
                if let Ok((header, _)) = Frame::peek(block)
                    && (header.place.database, header.place.offset) == (walk.database, at)
                    // Lower numbers were left from before.
                    && header.place.file >= walk.number
                {
                    known = known.max(header.durable);
                }
            }
            offset += bytes as u64;
        }
    }
    Ok(known)
}
