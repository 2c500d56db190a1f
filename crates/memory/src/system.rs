//! The interface to the operating system: mappings, limits, nodes. No other module depends on the system.

use std::ptr::NonNull;
use std::sync::OnceLock;

pub(crate) const PAGE: usize = 4096;
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// Memory from the system, given back on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    /// Whether the system took the advice to use huge pages.
    pub(crate) huge: bool,
}

// SAFETY: a mapping owns its memory.
unsafe impl Send for Mapping {}
// SAFETY: a shared mapping gives away nothing but its address and size.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps memory, a multiple of [`PAGE`], that starts at a huge page's boundary if it is as large as one and `huge` is
    /// wanted. The memory is not touched; where it lies is decided by the node of the thread that touches it first.
    pub(crate) fn new(bytes: usize, huge: bool) -> Option<Self> {
        debug_assert!(bytes > 0 && bytes.is_multiple_of(PAGE));
        let huge = huge && bytes >= HUGE_PAGE;
        let base = imp::map(bytes, if huge { HUGE_PAGE } else { PAGE })?;
        let mut mapping = Self { base, bytes, huge: false };
        mapping.huge = huge && imp::advise(&mapping, 0, bytes, true);
        Some(mapping)
    }

    /// Advises the system to use a huge page at an offset, or small ones, where it took that advice before.
    pub(crate) fn advise(&self, offset: usize, huge: bool) {
        if self.huge && offset < self.bytes {
            // What is refused stays as it was.
            let _ = imp::advise(self, offset, HUGE_PAGE.min(self.bytes - offset), huge);
        }
    }

    /// Has the system empty it in a process that is forked from this one, where it can.
    pub(crate) fn is_wiped_on_fork(&self) -> bool {
        imp::wipe_on_fork(self)
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        imp::unmap(self);
    }
}

#[cfg(all(target_os = "linux", not(any(miri, polychron_slow))))]
mod imp {
    use std::ptr::{self, NonNull};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::{Mapping, PAGE};

    pub(super) fn map(bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let slack = align - PAGE;
        let total = bytes.checked_add(slack)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the system's choice touches nothing that exists.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), total, ProtFlags::READ | ProtFlags::WRITE, flags) }.ok()?;
        let before = start.addr().next_multiple_of(align) - start.addr();
        let base = start.cast::<u8>().wrapping_add(before);
        trim(start.cast(), before);
        trim(base.wrapping_add(bytes), slack - before);
        NonNull::new(base)
    }

    /// Gives back the part of a new mapping that only served to align the rest. A failure leaves address space unused.
    fn trim(start: *mut u8, bytes: usize) {
        if bytes > 0 {
            // SAFETY: the range is page-aligned, belongs to the mapping just made, and no thread knows of it.
            let _ = unsafe { munmap(start.cast(), bytes) };
        }
    }

    pub(super) fn wipe_on_fork(mapping: &Mapping) -> bool {
        // SAFETY: the advice changes no contents in this process.
        unsafe { madvise(mapping.base.as_ptr().cast(), mapping.bytes, Advice::LinuxWipeOnFork) }.is_ok()
    }

    pub(super) fn advise(mapping: &Mapping, offset: usize, bytes: usize, huge: bool) -> bool {
        let start = mapping.base.as_ptr().wrapping_add(offset);
        let advice = if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        // SAFETY: the advice changes no contents.
        unsafe { madvise(start.cast(), bytes, advice) }.is_ok()
    }

    pub(super) unsafe fn discard(base: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller owns the range and does not need its contents. A refusal only means that it keeps its memory.
        let _ = unsafe { madvise(base.as_ptr().cast(), bytes, Advice::LinuxDontNeed) };
    }

    pub(super) fn unmap(mapping: &Mapping) {
        // SAFETY: the mapping is ours alone, and its owner is being dropped. The only error is a wrong argument.
        let result = unsafe { munmap(mapping.base.as_ptr().cast(), mapping.bytes) };
        debug_assert!(result.is_ok());
    }
}

// The heap, where the system has no mappings, and for tools that do not see them: a sanitizer takes an address that is
// mapped again for the memory that lay there before.
#[cfg(not(all(target_os = "linux", not(any(miri, polychron_slow)))))]
mod imp {
    use std::alloc::{Layout, alloc, dealloc};
    use std::ptr::NonNull;

    use super::{Mapping, PAGE};

    pub(super) fn map(bytes: usize, _align: usize) -> Option<NonNull<u8>> {
        let layout = Layout::from_size_align(bytes, PAGE).ok()?;
        // SAFETY: the size is not zero.
        NonNull::new(unsafe { alloc(layout) })
    }

    pub(super) fn wipe_on_fork(_mapping: &Mapping) -> bool {
        false
    }

    pub(super) fn advise(_mapping: &Mapping, _offset: usize, _bytes: usize, _huge: bool) -> bool {
        false
    }

    pub(super) unsafe fn discard(_base: NonNull<u8>, _bytes: usize) {}

    pub(super) fn unmap(mapping: &Mapping) {
        let layout = Layout::from_size_align(mapping.bytes, PAGE).expect("it was valid when it was mapped");
        // SAFETY: the memory came from `map` with the same layout, and its owner is being dropped.
        unsafe { dealloc(mapping.base.as_ptr(), layout) }
    }
}

/// Gives the memory of whole pages of a mapping back to the system; the addresses stay mapped, the contents are lost.
///
/// # Safety
/// The range lies in a mapping, on page boundaries, and is the caller's own.
pub(crate) unsafe fn discard(base: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller promises the same.
    unsafe { imp::discard(base, bytes) };
}

/// The memory that the machine or its control group grants, in bytes, if it is known.
pub fn granted_bytes() -> Option<usize> {
    if cfg!(any(not(target_os = "linux"), miri)) {
        return None;
    }
    [machine_bytes(), group_bytes("/proc/self/cgroup", "/sys/fs/cgroup")].into_iter().flatten().min()
}

fn machine_bytes() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

/// The smallest limit of the process's control groups and their ancestors, of either version of the interface.
fn group_bytes(groups: &str, root: &str) -> Option<usize> {
    let text = std::fs::read_to_string(groups).ok()?;
    let mut least: Option<usize> = None;
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (folder, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            list if list.split(',').any(|name| name == "memory") => (format!("{root}/memory"), "memory.limit_in_bytes"),
            _ => continue,
        };
        for ancestor in std::path::Path::new(path).ancestors() {
            let group = ancestor.strip_prefix("/").unwrap_or(ancestor);
            let limit = std::fs::read_to_string(std::path::Path::new(&folder).join(group).join(file)).ok();
            let limit = limit.and_then(|text| text.trim().parse::<usize>().ok());
            least = least.into_iter().chain(limit).min();
        }
    }
    least
}

/// The processors of each memory node; one empty list where there is one node or none is known of.
pub(crate) fn nodes() -> Vec<Vec<usize>> {
    let online = std::fs::read_to_string("/sys/devices/system/node/has_memory");
    let nodes: Vec<Vec<usize>> = match online {
        Ok(text) if cfg!(all(target_os = "linux", not(miri))) => parse_list(&text)
            .into_iter()
            .filter_map(|node| std::fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist")).ok())
            .map(|text| parse_list(&text))
            .collect(),
        _ => Vec::new(),
    };
    if nodes.len() > 1 { nodes } else { vec![Vec::new()] }
}

/// The processor that the calling thread runs on just now, where the system tells.
pub(crate) fn current_processor() -> Option<usize> {
    #[cfg(all(target_os = "linux", not(miri)))]
    return Some(rustix::thread::sched_getcpu());
    #[cfg(not(all(target_os = "linux", not(miri))))]
    None
}

/// The processors that the process may use, as they were when this was asked first: later a thread may be pinned to one of them.
pub(crate) fn allowed_processors() -> &'static [usize] {
    static ALLOWED: OnceLock<Vec<usize>> = OnceLock::new();
    ALLOWED.get_or_init(|| {
        #[cfg(all(target_os = "linux", not(miri)))]
        if let Ok(allowed) = rustix::thread::sched_getaffinity(None) {
            return (0..rustix::thread::CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor)).collect();
        }
        Vec::new()
    })
}

/// Pins the calling thread to a processor. Whether that worked.
pub(crate) fn pin_to(processor: usize) -> bool {
    #[cfg(all(target_os = "linux", not(miri)))]
    if processor < rustix::thread::CpuSet::MAX_CPU {
        let mut one = rustix::thread::CpuSet::new();
        one.set(processor);
        return rustix::thread::sched_setaffinity(None, &one).is_ok();
    }
    let _ = processor;
    false
}

/// Reads the system's notation for sets of numbers: `0-3,8`.
fn parse_list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<usize>().ok()?..=last.trim().parse::<usize>().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(parse_list("0-2,5,7-8\n"), [0, 1, 2, 5, 7, 8]);
        assert!(parse_list("\n").is_empty());
        assert!(!nodes().is_empty());
    }

    #[test]
    #[cfg_attr(miri, ignore = "reads files")]
    fn the_smallest_limit_of_all_groups_counts() {
        let folder = std::env::temp_dir().join(format!("polychron-groups-{}", std::process::id()));
        let group = folder.join("memory/outer/inner");
        std::fs::create_dir_all(&group).unwrap();
        std::fs::write(folder.join("groups"), "5:cpu:/x\n4:memory:/outer/inner\n0::/\n").unwrap();
        std::fs::write(group.join("memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
        std::fs::write(folder.join("memory/outer/memory.limit_in_bytes"), "4096000\n").unwrap();
        std::fs::write(folder.join("memory.max"), "max\n").unwrap();
        let limit = group_bytes(folder.join("groups").to_str().unwrap(), folder.to_str().unwrap());
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(limit, Some(4_096_000));
    }

    #[test]
    fn mappings_are_aligned_and_writable() {
        for (bytes, huge) in [(PAGE, true), (HUGE_PAGE, true), (3 * HUGE_PAGE + PAGE, true), (HUGE_PAGE, false)] {
            let mapping = Mapping::new(bytes, huge).unwrap();
            assert_eq!(mapping.bytes(), bytes);
            if huge && bytes >= HUGE_PAGE && cfg!(all(target_os = "linux", not(any(miri, polychron_slow)))) {
                assert!(mapping.base().addr().get().is_multiple_of(HUGE_PAGE));
            }
            // SAFETY: the last byte belongs to the mapping.
            unsafe { mapping.base().add(bytes - 1).write(1) };
        }
    }
}
