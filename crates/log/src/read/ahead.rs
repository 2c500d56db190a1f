//! Reads a file of the log in long windows, and the next one while a window is looked at.
//!
//! Frames may be short, and a device takes as long for one block as for many. What comes from here is as good as what a frame's own read gives: what does
//! not decode is read again without this.

use std::sync::Arc;
use std::thread::JoinHandle;

use super::walk::read_at;
use crate::disk::{BLOCK, Buffer, Disk, File};

/// How much is read at once, in bytes.
const WINDOW: u64 = 4 << 20;

/// A part of a file.
struct Window {
    offset: u64,
    bytes: Buffer,
}

/// A file that is read from some place on.
pub(super) struct Ahead<D: Disk> {
    file: Arc<File<D::File>>,
    file_bytes: u64,
    present: Option<Window>,
    next: Option<JoinHandle<Option<Window>>>,
    /// Whether another thread reads the next window.
    by_thread: bool,
}

impl<D: Disk> Ahead<D> {
    pub(super) fn new(file: Arc<File<D::File>>, file_bytes: u64, by_thread: bool) -> Self {
        Self { file, file_bytes, present: None, next: None, by_thread }
    }

    /// Fills a buffer from an offset on, which is not before the last one. `false`: that cannot be done here.
    pub(super) fn read(&mut self, mut offset: u64, into: &mut Buffer) -> bool {
        let mut into = &mut into[..];
        while !into.is_empty() {
            if !self.has(offset) && !self.move_to(offset) {
                return false;
            }
            let Some(Window { offset: begin, bytes }) = &self.present else { return false };
            let here = &bytes[(offset - begin) as usize..];
            let count = here.len().min(into.len());
            into[..count].copy_from_slice(&here[..count]);
            into = &mut into[count..];
            offset += count as u64;
        }
        true
    }

    fn has(&self, offset: u64) -> bool {
        let is_in = |it: &Window| (it.offset..it.offset + it.bytes.len() as u64).contains(&offset);
        self.present.as_ref().is_some_and(is_in)
    }

    /// Has the window that begins here, or has this place in it, and begins with the one behind.
    fn move_to(&mut self, offset: u64) -> bool {
        self.present = match self.next.take() {
            Some(next) => next.join().ok().flatten(),
            None => None,
        };
        if !self.has(offset) {
            self.present = window::<D>(&self.file, offset, self.file_bytes);
        }
        let Some(present) = &self.present else { return false };
        let behind = present.offset + present.bytes.len() as u64;
        if self.by_thread && behind < self.file_bytes {
            let (file, file_bytes) = (Arc::clone(&self.file), self.file_bytes);
            let builder = std::thread::Builder::new().name("polychron-read".to_owned());
            // Without it, reading takes longer.
            self.next = builder.spawn(move || window::<D>(&file, behind, file_bytes)).ok();
        }
        self.has(offset)
    }
}

impl<D: Disk> Drop for Ahead<D> {
    fn drop(&mut self) {
        if let Some(next) = self.next.take() {
            // Nobody still wants it.
            let _ = next.join();
        }
    }
}

/// The bytes of a file from an offset on; `None` where it ends, or cannot be read as a whole.
fn window<D: Disk>(file: &File<D::File>, offset: u64, file_bytes: u64) -> Option<Window> {
    let bytes = file_bytes.checked_sub(offset)?.min(WINDOW) / BLOCK as u64 * BLOCK as u64;
    let mut buffer = Buffer::zeroed(bytes as usize);
    let is_read = bytes > 0 && read_at(file, offset, &mut buffer).ok()?;
    is_read.then_some(Window { offset, bytes: buffer })
}
