//! Transactions of several connections, in drawn orders of their steps, on the protocols whose transactions one thread can interleave: what they answer is what a serial order answers.
//! `POLYCHRON_SQL_PLAYS` says how many orders, `POLYCHRON_FIRST_SEED` from which seed.

use polychron_engine::{Interactive, Protocol};
use polychron_lab_sql::{Ours, sessions, wanted};
use polychron_protocols::serial::Serial;

/// Plays what the seeds draw.
fn plays_are_serial<P: Protocol<Worker: Interactive>>() {
    let first = wanted("POLYCHRON_FIRST_SEED", 1);
    let count = wanted("POLYCHRON_SQL_PLAYS", 150);
    let (mut all, mut committed) = (0, 0);
    for seed in first..first + count {
        let play = sessions::drawn(seed);
        let mut connections = Ours::<P>::several(play.transactions.len());
        let (done, fault) = play.check(&mut connections, &mut Ours::<Serial>::new());
        assert_eq!(fault, None, "{}, seed {seed}:\n{}", P::NAME, fault.clone().unwrap_or_default());
        all += play.transactions.len();
        committed += done;
    }
    println!("{}: {committed} of {all} transactions committed", P::NAME);
    assert!(committed * 5 > all, "{}: {committed} of {all} transactions committed", P::NAME);
}

/// The same with definitions and others that change more than rows.
fn broad_plays_are_serial<P: Protocol<Worker: Interactive>>() {
    let first = wanted("POLYCHRON_FIRST_SEED", 1);
    let count = wanted("POLYCHRON_SQL_PLAYS", 60);
    let (mut all, mut committed) = (0, 0);
    for seed in first..first + count {
        let play = sessions::broad::drawn(seed);
        let mut connections = Ours::<P>::several(play.transactions.len());
        let (done, fault) = play.check_anew(&mut connections, Ours::<Serial>::several);
        if let Some(fault) = fault {
            panic!("{}, seed {seed}:\n{fault}", P::NAME);
        }
        all += play.transactions.len();
        committed += done;
    }
    println!("{}: {committed} of {all} transactions committed", P::NAME);
    assert!(committed * 5 > all, "{}: {committed} of {all} transactions committed", P::NAME);
}

macro_rules! plays {
    ($($name:ident: $protocol:ty;)*) => {
        mod broad {
            $(
                #[test]
                fn $name() {
                    super::broad_plays_are_serial::<$protocol>();
                }
            )*
        }
        $(
        #[test]
        fn $name() {
            plays_are_serial::<$protocol>();
        }
    )*};
}

plays! {
    cicada: polychron_protocols::cicada::Cicada;
    maflingo: polychron_protocols::maflingo::Maflingo;
    hyper: polychron_protocols::hyper::Hyper;
    locking: polychron_protocols::locking::Locking;
}
