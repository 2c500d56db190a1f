//! Queues that many threads take rows from.

use polychron::protocols::{
    Cicada, Hyper, LazyCicada, LazyHyper, LazyLocking, LazyMaflingo, Locking, Maflingo, Serial,
};
use polychron::{Database, Error, Interactive, Operations, Protocol, Row};
use polychron_sync::atomic::{AtomicU64, Ordering};

#[derive(Row, Clone, Debug, PartialEq)]
struct Job {
    #[key]
    number: u64,
    tries: u32,
}

#[derive(Row, Clone, Debug, PartialEq)]
struct Outcome {
    #[key]
    number: u64,
    thread: u64,
}

/// Threads put jobs in, take them out and fail with some of them: each is done once, and none is left.
fn done_once<P: Protocol<Worker: Interactive>>() {
    const JOBS: u64 = 300;
    let database = Database::builder().small().with::<P>().in_memory().unwrap();
    let jobs = database.create_table::<Job>().unwrap();
    let outcomes = database.create_table::<Outcome>().unwrap();
    let (left, failed) = (AtomicU64::new(JOBS), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (database, left, failed) = (&database, &left, &failed);
        scope.spawn(move || {
            for number in 0..JOBS {
                database.transact(|transaction| transaction.insert(&jobs, &Job { number, tries: 0 })).unwrap();
            }
        });
        for thread in 0..4 {
            scope.spawn(move || {
                while left.load(Ordering::Relaxed) > 0 {
                    let outcome = database.claim_first(&jobs, |transaction, job| {
                        if (job.number + thread) % 7 == 0 && failed.fetch_add(1, Ordering::Relaxed) < 100 {
                            return Err(Error::RolledBack);
                        }
                        transaction.insert(&outcomes, &Outcome { number: job.number, thread })
                    });
                    match outcome {
                        Ok(Some(())) => _ = left.fetch_sub(1, Ordering::Relaxed),
                        Ok(None) => std::thread::yield_now(),
                        Err(Error::RolledBack) => {}
                        Err(error) => panic!("{}: {error}", P::NAME),
                    }
                }
            });
        }
    });
    let (waiting, done) = database
        .transact(|transaction| polychron::Ok((transaction.len(&jobs)?, transaction.scan(&outcomes, ..).rows()?)))
        .unwrap();
    assert_eq!(waiting, 0);
    assert!(done.iter().map(|outcome| outcome.number).eq(0..JOBS), "{}", P::NAME);
}

#[test]
fn each_row_is_taken_once() {
    done_once::<Cicada>();
    done_once::<Maflingo>();
    done_once::<Hyper>();
    done_once::<Locking>();
    done_once::<Serial>();
    done_once::<LazyCicada>();
    done_once::<LazyMaflingo>();
    done_once::<LazyHyper>();
    done_once::<LazyLocking>();
}

/// What another call is at is passed over, and comes again when that call fails.
#[test]
fn rows_that_others_are_at_are_passed_over() {
    let database = Database::in_memory().unwrap();
    let jobs = database.create_table::<Job>().unwrap();
    database
        .transact(|transaction| (0..3).try_for_each(|number| transaction.insert(&jobs, &Job { number, tries: 0 })))
        .unwrap();
    let mut order = Vec::new();
    let outer: Result<Option<()>, Error> = database.claim_first(&jobs, |_, job| {
        order.push(job.number);
        // In another thread, as a second worker would.
        let inner = std::thread::scope(|scope| {
            scope.spawn(|| database.claim_first(&jobs, |_, job| Ok::<_, Error>(job.number))).join().unwrap()
        })?;
        order.extend(inner);
        Err(Error::RolledBack)
    });
    assert!(matches!(outer, Err(Error::RolledBack)));
    // What failed comes again, and each row once. (Which row the inner call got is a matter of time: claims end.)
    let mut taken = order.split_off(1);
    assert_eq!(order, [0]);
    while let Some(number) = database.claim_first(&jobs, |_, job| Ok::<_, Error>(job.number)).unwrap() {
        taken.push(number);
    }
    taken.sort_unstable();
    assert_eq!(taken, [0, 1, 2]);
}
