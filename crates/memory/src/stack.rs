//! The stack that the calling thread has left, for code that calls user code inside of other user code.

use std::cell::Cell;

/// The stack that a thread is assumed to have below its first request, if the system does not tell.
const ASSUMED: usize = 512 << 10;

/// The address of a local variable, which is where the stack has come to.
#[inline(never)]
fn here() -> usize {
    let local = 0_u8;
    (&raw const local).addr()
}

/// Bytes of stack that the calling thread has left. The first call of a thread asks the system, which takes some microseconds; the others
/// look at an address.
///
/// ```
/// let before = polychron_memory::stack_left();
/// assert!(before > 1000 && before < 1 << 40);
/// ```
#[must_use]
pub fn stack_left() -> usize {
    thread_local! {
        /// The lowest address of the stack; zero before it is known.
        static END: Cell<usize> = const { Cell::new(0) };
    }
    let here = here();
    END.with(|end| {
        if end.get() == 0 || end.get() > here {
            // Above the present place it is another stack: that of a coroutine.
            end.set(imp::end_of_stack(here).unwrap_or(here.saturating_sub(ASSUMED)).max(1));
        }
        here - end.get().min(here)
    })
}

#[cfg(all(target_os = "linux", not(miri)))]
mod imp {
    use std::fs;

    /// The assumed size of the main thread's stack, if the system sets no limit.
    const UNLIMITED: usize = 8 << 20;

    /// The lowest address of the stack that this one belongs to.
    pub(super) fn end_of_stack(here: usize) -> Option<usize> {
        let maps = fs::read_to_string("/proc/self/maps").ok()?;
        maps.lines().find_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (start, end) = range.split_once('-')?;
            let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
            // The main thread's is mapped as far as it was used.
            let is_growing = rest.ends_with("[stack]");
            (start..end).contains(&here).then(|| if is_growing { end.saturating_sub(longest()) } else { start })
        })
    }

    /// The maximum size of the main thread's stack.
    fn longest() -> usize {
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max stack size"));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(UNLIMITED)
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod imp {
    pub(super) fn end_of_stack(_here: usize) -> Option<usize> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses up stack, a kibibyte or more at each level, and answers what the deepest had left.
    fn deeper(levels: usize) -> usize {
        let page = std::hint::black_box([0_u8; 1024]);
        let left = if levels == 0 { stack_left() } else { deeper(levels - 1) };
        left + usize::from(page[levels % 1024])
    }

    #[test]
    #[cfg_attr(miri, ignore = "an interpreter's stack is not the system's")]
    fn what_is_used_is_not_left() {
        for size in [256 << 10, 3 << 20] {
            let thread = std::thread::Builder::new().stack_size(size);
            let check = move || {
                let before = stack_left();
                assert!(before <= size + (64 << 10) && before > size / 2, "{before} bytes are left of {size}");
                let after = deeper(100);
                assert!(after < before - (100 << 10), "{before} bytes are left, and {after} further down");
                assert!(after > before - (200 << 10) || cfg!(debug_assertions));
            };
            thread.spawn(check).unwrap().join().unwrap();
        }
        assert!(stack_left() > 64 << 10);
    }
}
