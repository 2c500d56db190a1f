//! Size classes: which block size an allocation of so many bytes is served from.
//!
//! Steps of 16 bytes up to 1 KiB, then eight classes to a doubling (at most 12.5 % is lost) up to 4 MiB. Sizes that are
//! multiples of 64 stay multiples of 64, so blocks laid end to end from a 64-byte boundary keep the promised alignment.

/// The step between the small classes, and the alignment of every block.
const STEP: usize = 16;

/// The largest size of the evenly spaced classes.
pub(crate) const FINE_MAX: usize = 1024;

/// The number of evenly spaced classes.
const FINE: usize = FINE_MAX / STEP;

/// The number of classes.
pub(crate) const CLASSES: usize = class_of(MAX_POOLED) + 1;

/// The largest allocation that comes from a class; larger ones are mapped one by one.
pub(crate) const MAX_POOLED: usize = 4 << 20;

/// The largest block that workers keep in lists of their own; larger ones always pass through the shared stash.
pub(crate) const MAX_LOCAL: usize = 64 << 10;

/// The number of classes for which workers keep lists.
pub(crate) const LOCAL_CLASSES: usize = class_of(MAX_LOCAL) + 1;

/// The class of an allocation of `bytes` bytes, at most [`MAX_POOLED`].
#[inline]
pub(crate) const fn class_of(bytes: usize) -> usize {
    let last = bytes.saturating_sub(1);
    if last < FINE_MAX {
        return last / STEP;
    }
    let log = last.ilog2() as usize;
    FINE + (log - FINE_MAX.ilog2() as usize) * 8 + ((last >> (log - 3)) & 7)
}

/// The size of a class's blocks.
const fn compute_size(class: usize) -> usize {
    if class < FINE {
        return (class + 1) * STEP;
    }
    let (doubling, eighth) = ((class - FINE) / 8, (class - FINE) % 8);
    (8 + eighth + 1) << (FINE_MAX.ilog2() as usize + doubling - 3)
}

const SIZES: [u32; CLASSES] = {
    let mut sizes = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        sizes[class] = compute_size(class) as u32;
        class += 1;
    }
    sizes
};

/// The size of a class's blocks.
#[inline]
pub(crate) const fn size_of_class(class: usize) -> usize {
    SIZES[class] as usize
}

const BATCHES: [u32; CLASSES] = {
    let mut batches = [1; CLASSES];
    let mut class = 0;
    while class < CLASSES && SIZES[class] <= BATCH_BYTES {
        let fit = BATCH_BYTES / SIZES[class];
        batches[class] = if fit > 64 { 64 } else { fit };
        class += 1;
    }
    batches
};

/// The maximum size of a batch of blocks: a worker keeps up to two batches of each class.
const BATCH_BYTES: u32 = 16 << 10;

/// The number of blocks of a class that move between a worker and the stash at once: enough to make the latch cheap, few enough
/// that workers hoard little.
#[inline]
pub(crate) const fn batch_of_class(class: usize) -> u32 {
    BATCHES[class]
}

/// The largest class whose blocks fit in `bytes` bytes at an address aligned to 64 bytes.
pub(crate) const fn class_within(bytes: usize) -> Option<usize> {
    if bytes < STEP {
        return None;
    }
    let class = class_of(if bytes < MAX_POOLED { bytes } else { MAX_POOLED });
    if size_of_class(class) <= bytes { Some(class) } else { class.checked_sub(1) }
}

/// The alignment of a block of `size` bytes, `size` being a class's.
#[inline]
pub(crate) const fn align_of_size(size: usize) -> usize {
    if size.is_multiple_of(64) { 64 } else { STEP }
}

/// Whether each block of class `larger` holds one of `class`, a smaller or the same one: a block that is less aligned needs room to skip to
/// the alignment.
pub(crate) const fn fits_in(class: usize, larger: usize) -> bool {
    let (size, of) = (size_of_class(class), size_of_class(larger));
    align_of_size(of) >= align_of_size(size) || of >= size + 64
}

const _: () = {
    assert!(size_of_class(CLASSES - 1) == MAX_POOLED);
    assert!(size_of_class(LOCAL_CLASSES - 1) == MAX_LOCAL);
    assert!(size_of_class(0) >= 2 * size_of::<*const u8>(), "a free block holds two pointers");
};

#[cfg(test)]
mod tests {
    use polychron_base::sizes::scaled;

    use super::*;

    #[test]
    fn every_size_fits_its_class_tightly() {
        let each = scaled(70_000, 3000);
        for bytes in (1..each).chain((each..=MAX_POOLED).step_by(997)) {
            let class = class_of(bytes);
            let size = size_of_class(class);
            assert!(size >= bytes);
            assert!(class == 0 || size_of_class(class - 1) < bytes, "a smaller class does");
            assert!(size - bytes < STEP || (size - bytes) * 8 <= bytes, "{bytes} in {size}");
            if bytes.is_multiple_of(64) {
                assert_eq!(align_of_size(size), 64);
            }
        }
    }

    #[test]
    fn classes_within_a_span_fit() {
        assert_eq!(class_within(15), None);
        for bytes in 16..5000 {
            let size = size_of_class(class_within(bytes).expect("at least the smallest class"));
            assert!(size <= bytes);
        }
        assert_eq!(class_within(usize::MAX), Some(CLASSES - 1));
    }
}
