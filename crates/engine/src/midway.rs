//! When a running transaction validates what it has read so far, before its end: a procedure that loops on reads that were not mutually consistent is
//! stopped there. A snapshot, whose reads always are, goes over to the present epoch instead.

/// After how many operations a snapshot leaves its epoch for the present one: often enough that a slow reader holds back little of what is
/// retired, seldom enough that the barrier costs nothing.
const RENEW_EVERY: u32 = 64;

/// Operations until then.
#[derive(Debug)]
pub struct Midway(u32);

impl Midway {
    /// The state of a transaction that validates every `every` operations, or is a snapshot.
    #[inline]
    pub fn new(every: u32, is_snapshot: bool) -> Self {
        Self(if is_snapshot { every.min(RENEW_EVERY) } else { every })
    }

    /// The state of a transaction that validates at its next operation.
    #[inline]
    pub fn at_once() -> Self {
        Self(1)
    }

    /// Whether the operation that begins is the one. The caller then sets another one.
    #[inline(always)]
    pub fn is_due(&mut self) -> bool {
        self.0 -= 1;
        self.0 == 0
    }

    /// The running operation has read so many records, each of which counts like an operation.
    #[inline]
    pub fn pass(&mut self, records: usize) {
        self.0 = self.0.saturating_sub(records as u32).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operations(mut midway: Midway) -> u32 {
        1 + (0..).take_while(|_| !midway.is_due()).count() as u32
    }

    #[test]
    fn it_comes_after_so_many_operations_and_for_snapshots_soon() {
        assert_eq!(operations(Midway::new(100, false)), 100);
        assert_eq!(operations(Midway::new(100, true)), RENEW_EVERY);
        assert_eq!(operations(Midway::new(3, true)), 3);
        assert_eq!(operations(Midway::at_once()), 1);
    }

    #[test]
    fn records_count_and_the_next_operation_is_the_last_one_that_is_left() {
        let passing = |records| {
            let mut midway = Midway::new(100, false);
            midway.pass(records);
            operations(midway)
        };
        assert_eq!([0, 99, 100, 1000].map(passing), [100, 1, 1, 1]);
    }
}
