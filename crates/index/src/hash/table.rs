//! A table: a header and an array of buckets in one allocation; and how a bucket moves to the table of twice the size.
//!
//! Buckets are chosen by the high bits of `hash * buckets`, so a table can have any size, and bucket `i` divides into
//! buckets `2 i` and `2 i + 1` of the table after it. Those two are initialised by the move itself; no thread looks at them
//! before. So a table of any size can be added without clearing it first.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use polychron_base::key::HashSeed;
use polychron_memory::{Guard, OutOfMemory};
use polychron_sync::Numbers;
use polychron_sync::atomic::{AtomicBool, AtomicIsize, AtomicPtr, AtomicUsize, Ordering};

use crate::stamp::Kind;
use crate::{Change, Changes, Stamp};

use super::bucket::{Bucket, Latched, SLOTS};
use super::entry::{EMPTY, LongKey, hash_of};

/// The fields that every operation reads and, on a separate cache line, those that insertions write now and then.
#[repr(C, align(64))]
pub(super) struct Header {
    pub(super) buckets: usize,
    pub(super) number: u32,
    /// The table of twice the size, once there is one.
    pub(super) next: AtomicPtr<Header>,
    pub(super) growth: Growth,
    /// The tables that this one has grown from, the youngest first. They may be freed already.
    pub(super) ancestors: [Option<Ancestor>; ANCESTORS],
}

/// A table that may be freed already: good for saying which of its buckets a stamp would name, not for looking at them.
#[derive(Clone, Copy)]
pub(super) struct Ancestor {
    raw: NonNull<Header>,
    pub(super) number: u32,
}

impl Ancestor {
    /// The address of a bucket. The table may have been freed.
    pub(super) fn bucket_at(self, index: usize) -> NonNull<Bucket> {
        let first = self.raw.as_ptr().wrapping_add(1).cast::<Bucket>();
        NonNull::new(first.wrapping_add(index)).expect("the bucket lies, or lay, in an allocation")
    }
}

/// So often an index may double in the midst of a transaction without making it fail by its own insertions.
const ANCESTORS: usize = 3;

/// Numbers tables through all indexes.
static NUMBERS: Numbers = Numbers::new();

#[repr(C, align(64))]
pub(super) struct Growth {
    /// First bucket that no thread has undertaken to move.
    pub(super) cursor: AtomicUsize,
    /// The number of moved buckets.
    pub(super) moved: AtomicUsize,
    /// Overflow buckets in the chains of this table; briefly below zero, when a removal overtakes a move's count.
    pub(super) overflow: AtomicIsize,
    /// The table grows when it has more overflow buckets than this.
    pub(super) overflow_mark: AtomicIsize,
    /// Set by the thread that allocates the next table.
    pub(super) claimed: AtomicBool,
}

/// A table that is kept alive by a guard.
#[derive(Clone, Copy)]
pub(super) struct Table<'g> {
    raw: NonNull<Header>,
    life: PhantomData<&'g Header>,
}

/// One overflow bucket for this many buckets makes a table grow: with evenly spread hashes that is 1.75 keys a bucket.
const BUCKETS_PER_OVERFLOW: usize = 10;
/// Overflow buckets that small tables may have beyond that.
const OVERFLOW_SLACK: isize = 8;

impl<'g> Table<'g> {
    /// # Safety
    /// `raw` points to a table whose whole allocation it may access and which stays allocated for `'g`.
    #[inline]
    pub(super) unsafe fn from_raw(raw: NonNull<Header>) -> Self {
        Self { raw, life: PhantomData }
    }

    pub(super) fn raw(self) -> NonNull<Header> {
        self.raw
    }

    fn bytes_for(buckets: usize) -> Option<usize> {
        let bytes = buckets.checked_mul(size_of::<Bucket>())?.checked_add(size_of::<Header>())?;
        (bytes <= isize::MAX as usize / 2).then_some(bytes)
    }

    /// Bytes that the table takes.
    pub(super) fn bytes(self) -> usize {
        size_of::<Header>() + self.header().buckets * size_of::<Bucket>()
    }

    /// A table without initialised buckets, of twice the size of `before`.
    pub(super) fn allocate_after(before: Table<'_>, guard: &'g Guard<'_>) -> Result<Self, OutOfMemory> {
        let parent = Ancestor { raw: before.raw, number: before.header().number };
        let mut ancestors = before.header().ancestors;
        ancestors.rotate_right(1);
        ancestors[0] = Some(parent);
        Self::allocate(2 * before.header().buckets, ancestors, guard)
    }

    fn allocate(
        buckets: usize,
        ancestors: [Option<Ancestor>; ANCESTORS],
        guard: &'g Guard<'_>,
    ) -> Result<Self, OutOfMemory> {
        let bytes = Self::bytes_for(buckets).ok_or_else(|| guard.refusal(usize::MAX))?;
        #[cfg(test)]
        if super::tests::REFUSE_TABLES.get() {
            return Err(guard.refusal(bytes));
        }
        let raw = guard.allocate(bytes)?.cast::<Header>();
        let growth = Growth {
            cursor: AtomicUsize::new(0),
            moved: AtomicUsize::new(0),
            overflow: AtomicIsize::new(0),
            overflow_mark: AtomicIsize::new((buckets / BUCKETS_PER_OVERFLOW) as isize + OVERFLOW_SLACK),
            claimed: AtomicBool::new(false),
        };
        let number = NUMBERS.next();
        // SAFETY: the allocation is a multiple of 64 bytes, thus aligned to 64, and large enough; no other thread has it yet.
        unsafe {
            let next = AtomicPtr::new(ptr::null_mut());
            raw.write(Header { buckets, number, next, growth, ancestors });
            Ok(Self::from_raw(raw))
        }
    }

    /// A table whose buckets are all empty.
    pub(super) fn allocate_empty(buckets: usize, guard: &'g Guard<'_>) -> Result<Self, OutOfMemory> {
        let table = Self::allocate(buckets, [None; ANCESTORS], guard)?;
        for index in 0..buckets {
            // SAFETY: the place is inside the allocation, which is not shared yet.
            unsafe { table.bucket_at(index).write(Bucket::new(0)) };
        }
        Ok(table)
    }

    #[inline]
    pub(super) fn header(self) -> &'g Header {
        // SAFETY: `from_raw` asks for a table that lives for `'g`; headers are initialised before they are published.
        unsafe { self.raw.as_ref() }
    }

    /// The stamp of one of the table's buckets.
    #[inline]
    pub(super) fn stamp(self, head: NonNull<Bucket>, state: u64) -> Stamp {
        hash_stamp(head, state, self.header().number)
    }

    /// Tells the holder of stamps how they change by its own insertion into the bucket at `index`, which had counted
    /// `before` insertions.
    ///
    /// A stamp of a moved bucket, an ancestor, that counted `before`, holds as long as its two successors count
    /// `before`; so it may be exchanged for their stamps, one generation after the other, down to this bucket.
    pub(super) fn report(self, index: usize, before: u64, changes: &mut impl Changes) {
        let Header { ancestors, number, .. } = self.header();
        for (distance, ancestor) in ancestors.iter().enumerate().rev() {
            let Some(ancestor) = ancestor else { continue };
            let stamp_of = |index: usize| match distance.checked_sub(1).and_then(|younger| ancestors[younger]) {
                Some(younger) => hash_stamp(younger.bucket_at(index), before, younger.number),
                None => hash_stamp(self.bucket_at(index), before, *number),
            };
            let of = hash_stamp(ancestor.bucket_at(index >> (distance + 1)), before, ancestor.number);
            changes.change(Change::Added { of, new: stamp_of((index >> distance) ^ 1) });
            changes.change(Change::Moved { before: of, after: stamp_of(index >> distance) });
        }
        let head = self.bucket_at(index);
        changes.change(Change::Moved { before: self.stamp(head, before), after: self.stamp(head, before + 1) });
    }

    /// The address of a bucket; it need not be initialised.
    #[inline]
    pub(super) fn bucket_at(self, index: usize) -> NonNull<Bucket> {
        debug_assert!(index < self.header().buckets);
        // SAFETY: the allocation has a header and `buckets` buckets.
        unsafe { self.raw.add(1).cast::<Bucket>().add(index) }
    }

    /// Which bucket covers a hash.
    #[inline]
    pub(super) fn index_of(self, hash: u64) -> usize {
        ((u128::from(hash) * self.header().buckets as u128) >> 64) as usize
    }

    /// The bucket that covers a hash.
    ///
    /// # Safety
    /// That bucket is initialised: the table was reached as the index's current one, or through a moved bucket that
    /// covers the same hash.
    #[inline]
    pub(super) unsafe fn bucket(self, hash: u64) -> &'g Bucket {
        // SAFETY: the caller says that the bucket is initialised; the table lives for `'g`.
        unsafe { self.bucket_at(self.index_of(hash)).as_ref() }
    }

    /// The table of twice the size, if growth has begun.
    #[inline]
    pub(super) fn next(self) -> Option<Self> {
        // Acquire pairs with the release in `set_next`: the header is initialised.
        let next = NonNull::new(self.header().next.load(Ordering::Acquire))?;
        // SAFETY: a table is retired only after its predecessor was, so who may use this one may use the next.
        Some(unsafe { Self::from_raw(next) })
    }

    pub(super) fn set_next(self, next: Self) {
        // Release pairs with the acquire in `next`.
        self.header().next.store(next.raw.as_ptr(), Ordering::Release);
    }

    /// Moves one bucket into its two successors in `next`, and returns how many overflow buckets they have. Overflow
    /// buckets are reused, so nothing is allocated and a move cannot fail.
    ///
    /// # Safety
    /// This thread alone has undertaken to move the bucket.
    pub(super) unsafe fn move_bucket(self, index: usize, next: Self, seed: HashSeed, guard: &Guard<'_>) -> isize {
        // SAFETY: buckets of a table that grows are initialised.
        let head = unsafe { self.bucket_at(index).as_ref() };
        let low = next.bucket_at(2 * index);
        let latched = head.latch().expect("only the caller moves this bucket");
        let insertions = latched.meta.insertions();
        // SAFETY: both successors lie in the next table, and no thread looks at them before the bucket is marked as moved.
        let (low_bucket, high_bucket) = unsafe {
            low.write(Bucket::new(insertions));
            low.add(1).write(Bucket::new(insertions));
            (low.as_ref(), low.add(1).as_ref())
        };
        let mut split =
            Split { low: Chain::new(low_bucket), high: Chain::new(high_bucket), spare: ptr::null_mut(), used: 0 };
        split.divide(&latched, next, 2 * index, seed);
        // Release pairs with the acquire of readers of the old chain: a thread that follows this pointer sees the latch, too.
        head.next.store(low.as_ptr(), Ordering::Release);
        latched.release_as_moved();
        let used = split.used;
        split.retire_spare(guard);
        used
    }
}

fn hash_stamp(head: NonNull<Bucket>, state: u64, number: u32) -> Stamp {
    Stamp { node: head.cast(), state, kind: Kind::Hash(number) }
}

/// A chain that is being built, not reachable yet.
struct Chain<'g> {
    tail: &'g Bucket,
    filled: usize,
}

impl<'g> Chain<'g> {
    fn new(head: &'g Bucket) -> Self {
        Self { tail: head, filled: 0 }
    }

    fn push(&mut self, kind: u64, word: u64, value: *mut LongKey) {
        self.tail.fill(self.filled, word, value);
        self.tail.set_meta(self.tail.meta().with_kind(self.filled, kind));
        self.filled += 1;
    }
}

/// The division of one chain into two. A chain of `n` overflow buckets never needs more than `n` when it is divided, nor
/// does any prefix of it, so the buckets emptied so far always suffice.
///
/// Readers of the old chain may still be in a bucket that is reused: what they read is discarded, because the words were
/// released after the old head was latched, and they look at that head before they believe anything.
struct Split<'g> {
    low: Chain<'g>,
    high: Chain<'g>,
    /// Emptied overflow buckets, linked through `next`.
    spare: *mut Bucket,
    used: isize,
}

impl<'g> Split<'g> {
    fn divide(&mut self, latched: &Latched<'g>, next: Table<'g>, low_index: usize, seed: HashSeed) {
        let mut current = ptr::from_ref(latched.head).cast_mut();
        // SAFETY: the pointer is the head or was found in the chain that we hold latched.
        while let Some(bucket) = unsafe { current.as_ref::<'g>() } {
            let kinds = latched.kinds(bucket);
            let entries: [_; SLOTS] = std::array::from_fn(|slot| {
                // Relaxed: the latch that we hold acquired all earlier changes.
                let words = &bucket.slots[slot];
                (kinds.kind(slot), words.word.load(Ordering::Relaxed), words.value.load(Ordering::Relaxed))
            });
            let following = bucket.next.load(Ordering::Relaxed);
            if !ptr::eq(bucket, latched.head) {
                // Release pairs with readers' acquire: they may follow this pointer before they look at the head again.
                bucket.next.store(self.spare, Ordering::Release);
                self.spare = current;
            }
            for (kind, word, value) in entries {
                if kind != EMPTY {
                    let high = next.index_of(hash_of(kind, word, seed)) != low_index;
                    self.push(high, kind, word, value);
                }
            }
            current = following;
        }
    }

    fn push(&mut self, high: bool, kind: u64, word: u64, value: *mut LongKey) {
        let chain = if high { &mut self.high } else { &mut self.low };
        if chain.filled == SLOTS {
            let current = self.spare;
            // SAFETY: spare buckets came from the latched chain; there is one, see the type's comment.
            let bucket = unsafe { current.as_ref::<'g>() }.expect("a divided chain needs no more buckets than before");
            self.spare = bucket.next.load(Ordering::Relaxed);
            bucket.next.store(ptr::null_mut(), Ordering::Release);
            bucket.set_meta(Bucket::new(0).meta());
            // Release pairs with the acquire of readers who follow the pointer.
            chain.tail.next.store(current, Ordering::Release);
            *chain = Chain::new(bucket);
            self.used += 1;
        }
        chain.push(kind, word, value);
    }

    fn retire_spare(mut self, guard: &Guard<'_>) {
        while let Some(current) = NonNull::new(self.spare) {
            // SAFETY: spare buckets are ours alone but for readers, and those hold guards.
            unsafe {
                self.spare = current.as_ref().next.load(Ordering::Relaxed);
                guard.retire(current.cast(), size_of::<Bucket>());
            }
        }
    }
}
