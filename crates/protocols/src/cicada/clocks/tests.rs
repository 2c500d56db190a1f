//! A worker that is slow holds the others back, and nothing that is compared comes to lie half the clock's numbers apart (`docs/protocols/cicada.md`,
//! *wrapping around*): whichever worker is paused wherever, and however long.

use std::time::Duration;

use polychron_base::sizes::scaled;

use super::*;

/// So many that the machine's own time, which passes meanwhile, makes no difference.
const BITS: u32 = 40;
const NUMBERS: u64 = 1 << BITS;

fn clocks(change: impl FnOnce(&mut Options)) -> Clocks {
    // A worker that is slow is not overtaken here.
    let overtaking_after = Duration::from_secs(3600);
    let mut options = Options { clock_bits: Some(BITS), overtaking_after, ..Options::default() };
    change(&mut options);
    let shape = Shape::new(options.clock_bits, options.worker_bits).expect("it fits");
    Clocks::new(&options, shape, 4)
}

fn loose(options: &mut Options) {
    options.consistency = Consistency::Loose;
}

/// So few numbers that they are drawn one by one.
fn counted(options: &mut Options) {
    (options.central_clock, options.clock_bits) = (true, Some(12));
}

fn end(clocks: &Clocks, slot: usize) {
    clocks.end(slot);
}

/// The timestamp of what stays until [`end`].
fn keep(held: Held<'_>) -> Timestamp {
    let timestamp = held.timestamp();
    std::mem::forget(held);
    timestamp
}

/// Goes on as a round of renewal does, until the worker can begin.
fn begin_at_last(clocks: &Clocks, slot: usize, local: &mut LocalClock) -> Timestamp {
    for _ in 0..10_000 {
        if let Some(timestamp) = clocks.begin(slot, local).map(keep) {
            return timestamp;
        }
        assert!(clocks.lead());
        if !clocks.is_admitted(local) {
            clocks.set_renewed(clocks.bound());
        }
    }
    panic!("nothing holds the worker back, and it cannot begin");
}

/// By how many sixty-fourths of the numbers time leaps, and whether the next transaction has looked at the time before.
fn leaps() -> impl Iterator<Item = (u64, bool)> {
    (1..60).step_by(60 / scaled(60, 4)).flat_map(|part| [(part, false), (part, true)])
}

/// Time goes on while a transaction runs: in one leap, before or after the next one looks at the time.
#[test]
fn nobody_gets_far_ahead_of_a_transaction_that_runs() {
    for change in [(|_| ()) as fn(&mut Options), loose] {
        for (parts, looked_before) in leaps() {
            let clocks = clocks(change);
            let (mut slow, mut quick) = (clocks.join(2), clocks.join(3));
            clocks.advance(&mut slow, 2);
            let oldest = begin_at_last(&clocks, 2, &mut slow);
            if looked_before {
                clocks.advance(&mut quick, 3);
            }
            // The leader may come by at any time.
            for _ in 0..4 {
                clocks.pass_time(NUMBERS / 64 * parts);
                clocks.set_renewed(clocks.bound());
                assert!(clocks.lead());
            }
            if !looked_before {
                clocks.advance(&mut quick, 3);
            }
            if let Some(timestamp) = clocks.begin(3, &mut quick).map(keep) {
                assert!(timestamp.is_after(oldest), "leaps of {parts} sixty-fourths turn the order around");
                assert!(quick.adjusted - slow.adjusted < NUMBERS / 2);
                end(&clocks, 3);
            }
            assert!(!clocks.min_wts().is_after(oldest), "H1");
            end(&clocks, 2);
            let timestamp = begin_at_last(&clocks, 3, &mut quick);
            assert!(quick.adjusted > slow.adjusted);
            end(&clocks, 3);
            // The horizons follow, however far the time has gone.
            let follows = (0..1000).any(|_| {
                clocks.pass_time(NUMBERS / 64);
                clocks.set_renewed(clocks.bound());
                clocks.lead() && clocks.min_rts().is_after(timestamp)
            });
            assert!(follows, "the horizons stand still");
        }
    }
}

/// The leader stops in the middle of its work, and nobody else can lead.
#[test]
fn a_leader_that_is_paused_holds_everybody_back() {
    for change in [(|_| ()) as fn(&mut Options), loose, counted] {
        let clocks = clocks(change);
        let (mut slow, mut quick) = (clocks.join(2), clocks.join(3));
        let oldest = begin_at_last(&clocks, 2, &mut slow);
        clocks.leading.store(true, Ordering::Relaxed);
        let mut begun = 0u64;
        loop {
            assert!(!clocks.lead(), "somebody leads");
            clocks.pass_time(clocks.shape.clock_numbers() / 128);
            clocks.advance(&mut quick, 3);
            let Some(timestamp) = clocks.begin(3, &mut quick).map(keep) else { break };
            assert!(timestamp.is_after(oldest), "the order has turned around behind {begun} transactions");
            assert!(quick.adjusted - slow.adjusted < clocks.shape.clock_numbers() / 4);
            end(&clocks, 3);
            begun += 1;
        }
        assert!(begun > 10, "{begun}");
        clocks.leading.store(false, Ordering::Relaxed);
        end(&clocks, 2);
        assert!(begin_at_last(&clocks, 3, &mut quick).is_after(oldest));
    }
}

/// A round's transactions have room where others wait for it, and what was granted to them is granted to nobody else.
#[test]
fn a_round_goes_on_where_others_wait() {
    let clocks = clocks(loose);
    let mut local = clocks.join(2);
    clocks.pass_time(NUMBERS);
    local.time = clocks.limit();
    assert!(clocks.begin(2, &mut local).is_none());
    assert_eq!(clocks.slots[2].floor.load(Ordering::Relaxed), NONE, "who does not begin holds nothing back");
    let time = local.fall_back(clocks.bound());
    assert!(time > local.time);
    let in_round = keep(clocks.begin_in_round(2, &mut local));
    end(&clocks, 2);
    local.catch_up(time);
    assert!(clocks.begin(2, &mut local).is_none());
    clocks.set_renewed(local.adjusted);
    assert!(begin_at_last(&clocks, 2, &mut local).is_after(in_round));
}

/// What a worker follows is what another one has drawn, so that garbage does not lead past the limit.
#[test]
fn nobody_follows_past_the_limit() {
    let clocks = clocks(|_| ());
    let mut local = clocks.join(2);
    clocks.follow(&mut local, u64::MAX);
    assert!(local.adjusted < clocks.limit());
    begin_at_last(&clocks, 2, &mut local);
}

/// One-sided synchronisation (§3.1): a clock that is behind catches up within a round of partners, and the other one is not set back.
#[test]
fn slow_clocks_catch_up() {
    let clocks = clocks(loose);
    let (mut slow, mut quick) = (clocks.join(2), clocks.join(3));
    clocks.push(&mut quick, 1_000_000_000);
    begin_at_last(&clocks, 3, &mut quick);
    end(&clocks, 3);
    assert!(slow.time < quick.time);
    for _ in 0..3 {
        clocks.pass_time(100_000);
        clocks.advance(&mut slow, 2);
    }
    assert!(slow.time >= quick.time);
    let before = quick.time;
    for _ in 0..3 {
        clocks.pass_time(100_000);
        clocks.advance(&mut quick, 3);
    }
    assert!(quick.time > before);
}

/// After a conflict a timestamp is ahead of the clock by a microsecond, until a transaction commits (§3.1).
#[test]
fn a_boost_lasts_until_a_commit() {
    let clocks = clocks(loose);
    let mut local = clocks.join(2);
    let mut ahead = |is_calm: bool| {
        if is_calm {
            clocks.calm(&mut local);
        } else {
            clocks.boost(&mut local, 2);
        }
        clocks.pass_time(1_000_000);
        clocks.advance(&mut local, 2);
        begin_at_last(&clocks, 2, &mut local);
        end(&clocks, 2);
        local.adjusted - local.time
    };
    assert_eq!([ahead(true), ahead(false), ahead(false), ahead(true)], [0, 1000, 1000, 0]);
}
