use polychron_base::random::Random;

use super::*;

const LIMITS: Limits = Limits {
    ring_words: 64,
    rings_bytes: 1 << 20,
    parts: 1,
    transaction_bytes: 4096,
    piece_bytes: 1024,
    memory_bytes: 1 << 16,
};

fn order(timestamp: u64) -> Order {
    Order { era: 1, timestamp }
}

/// Everything that is sealed, epoch by epoch, as worker, order and bytes.
fn drained(rings: &Rings) -> Vec<(u32, u64, Vec<u8>)> {
    let (mut heads, mut records) = (Vec::new(), Vec::new());
    let epoch = rings.close(&mut heads);
    for mut ring in heads {
        while let Some(sealed) = rings.take(&mut ring, epoch) {
            let mut bytes = Vec::new();
            rings.copy(&ring, &sealed, &mut bytes);
            records.push((ring.worker(), sealed.order.timestamp, bytes));
        }
        rings.free(&ring);
    }
    records
}

/// Transactions of random lengths through small rings: what is drained is what a body would have had, in the order of the seals.
#[test]
fn records_come_out_as_they_went_in() {
    let mut random = Random::from_seed(7);
    let rings = Rings::new(3, 1, LIMITS);
    let mut expected = Vec::new();
    for timestamp in 0..polychron_base::sizes::scaled(5000, 100) as u64 {
        let worker = random.below(3) as usize;
        let mut bytes = Vec::new();
        for _ in 0..=random.below(3) {
            let words: Vec<u64> = (0..random.below(9)).map(|_| random.below(3) << 60).collect();
            Edit::Put(&words).write(5, &mut bytes);
            rings.stage(worker, 5, &Edit::Put(&words)).unwrap();
        }
        if random.chance(0.2) {
            rings.discard(worker);
            continue;
        }
        let epoch = rings.seal(worker, order(timestamp));
        assert_eq!((epoch, rings.last_sealed()), (rings.current(), epoch));
        expected.push((worker as u32, timestamp, bytes));
        if rings.is_behind(worker) || random.chance(0.1) {
            expected.sort_by_key(|(worker, timestamp, _)| (*worker, *timestamp));
            assert_eq!(drained(&rings), std::mem::take(&mut expected));
        }
    }
}

#[test]
fn a_long_transaction_takes_memory_until_it_is_copied() {
    let rings = Rings::new(2, 1, LIMITS);
    assert_eq!(rings.memory_bytes(), 0);
    rings.stage(0, 1, &Edit::Put(&[1; 20])).unwrap();
    let usual = rings.memory_bytes();
    assert_eq!(usual, 8 * LIMITS.ring_words);
    rings.seal(0, order(1));
    // The first change fits the ring, and moves when the second one does not.
    for count in [20, 100, 100] {
        rings.stage(0, 1, &Edit::Put(&vec![2; count])).unwrap();
    }
    assert!(rings.memory_bytes() > usual && !rings.is_behind(0));
    rings.seal(0, order(2));
    assert!(rings.is_behind(0));
    rings.stage(0, 1, &Edit::Put(&[3; 200])).unwrap();
    rings.discard(0);
    rings.stage(0, 1, &Edit::Put(&[4])).unwrap();
    rings.seal(0, order(3));
    let mut lengths: Vec<_> = drained(&rings).iter().map(|(_, timestamp, bytes)| (*timestamp, bytes.len())).collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [(1, 164), (2, 164), (2, 804), (2, 804), (3, 12)]);
    assert_eq!(rings.memory_bytes(), usual);
}

#[test]
fn what_does_not_fit_is_refused_and_what_was_staged_stays() {
    let rings = Rings::new(2, 1, Limits { memory_bytes: 2 * 512 + 2432 + 800, ..LIMITS });
    rings.stage(0, 1, &Edit::Put(&[1; 300])).unwrap();
    let long = rings.stage(0, 1, &Edit::Put(&[1; 300]));
    assert!(matches!(long, Err(Unstaged::TooLong { .. })), "{long:?}");
    let full = rings.stage(1, 1, &Edit::Put(&[1; 100]));
    assert_eq!(full, Err(Unstaged::OutOfMemory { requested: 832, used: 2 * 512 + 2432 }));
    rings.stage(1, 1, &Edit::Put(&[1; 10])).unwrap();
    assert_eq!(rings.seal(0, order(1)), 1);
    assert_eq!(rings.seal(0, order(2)), 0, "nothing is still staged");
    assert_eq!(drained(&rings).len(), 1);
    assert_eq!(rings.seal(1, order(3)), 2);
    assert_eq!(drained(&rings).len(), 1);
}

/// Few workers have long rings however many there may be, all together have what they share, and nobody gets none.
#[test]
fn rings_share_their_memory() {
    let limits = Limits {
        ring_words: 1 << 17,
        rings_bytes: 64 << 20,
        parts: 64,
        transaction_bytes: 16 << 20,
        piece_bytes: 1 << 18,
        memory_bytes: 128 << 20,
    };
    let rings = Rings::new(1024, 1, limits);
    let mut lengths = Vec::new();
    for worker in 0..1024 {
        let (before, next) = (rings.memory_bytes(), rings.ring_bytes());
        rings.stage(worker, 1, &Edit::Put(&[1; 20])).unwrap();
        assert_eq!(rings.memory_bytes() - before, next);
        lengths.push(next);
    }
    assert!(lengths[..16].iter().all(|length| *length >= 512 << 10), "{lengths:?}");
    assert!(lengths.is_sorted_by(|first, next| first >= next) && lengths[1023] == 4 << 10, "{lengths:?}");
    // Those that come when nothing is left have 4 KiB each.
    assert!(rings.memory_bytes() <= 68 << 20, "{}", rings.memory_bytes());
    // One whose memory is refused takes nothing of what the others share.
    let rings = Rings::new(3, 1, Limits { memory_bytes: 1 << 20, ..limits });
    let next = rings.ring_bytes();
    rings.stage(0, 1, &Edit::Put(&[1; 20])).unwrap();
    for _ in 0..1000 {
        assert!(matches!(rings.stage(1, 1, &Edit::Put(&[1; 20])), Err(Unstaged::OutOfMemory { .. })));
    }
    assert_eq!((next, rings.ring_bytes()), (1 << 20, 512 << 10));
}

/// The changes of a long transaction come in pieces, one behind the other, each with the number of its first change; and nothing is left of the memory.
#[test]
fn a_long_transaction_comes_in_pieces() {
    let mut random = Random::from_seed(3);
    for _ in 0..polychron_base::sizes::scaled(200, 5) {
        let rings = Rings::new(1, 1, Limits { transaction_bytes: 1 << 16, memory_bytes: 1 << 17, ..LIMITS });
        let (mut expected, mut count) = (Vec::new(), 0);
        while expected.len() < 6000 {
            let longest = if random.chance(0.02) { 200 } else { 30 };
            let words = vec![random.next_u64() | 1; random.below(longest) as usize];
            Edit::Put(&words).write(1, &mut expected);
            rings.stage(0, 1, &Edit::Put(&words)).unwrap();
            count += 1;
        }
        assert!(rings.memory_bytes() < 8 * LIMITS.ring_words + expected.len() + 3 * LIMITS.piece_bytes);
        let epoch = rings.seal(0, order(1));
        let mut heads = Vec::new();
        assert_eq!(rings.close(&mut heads), epoch);
        let (mut bytes, mut next, mut goes_on, mut pieces) = (Vec::new(), 0, true, 0);
        while let Some(sealed) = rings.take(&mut heads[0], epoch) {
            assert_eq!((sealed.order, sealed.piece.first, goes_on), (order(1), next, true));
            let begin = bytes.len();
            rings.copy(&heads[0], &sealed, &mut bytes);
            let changes = changes_of(&bytes[begin..]).count() as u32;
            assert!(sealed.bytes <= LIMITS.piece_bytes || changes == 1);
            (next, goes_on, pieces) = (next + changes, sealed.piece.goes_on, pieces + 1);
        }
        assert_eq!((bytes, next, goes_on), (expected, count, false));
        assert!(pieces > 5 && rings.memory_bytes() == 8 * LIMITS.ring_words);
    }
}
