//! A future is its transaction's: wherever it is freed to another one, it is refused, whatever it may be worth there. What its own takes it
//! takes at any time, also in a thread that ends.

use std::sync::Arc;

use polychron_base::Error;
use polychron_engine::futures::{FutureError, Resolved};
use polychron_engine::{
    Becomes, Declare, Future, Futures, Interactive, Mode, Operations, Procedure, Protocol, Table, Transaction, Worker,
    drive,
};
use polychron_schema::Row;

use super::clients::at_end;
use crate::Setup;
use crate::rows::{Item, value};
use crate::setup::{all, create, done, items, run};
use crate::watch::watched;

/// A row under a number that may be a future.
#[derive(Row, Clone, Debug, PartialEq, Eq)]
#[index(name = "by_weight", columns(weight), unique)]
struct Ticket {
    #[key]
    shop: u16,
    #[key]
    number: i64,
    weight: i64,
    price: i64,
}

fn is_foreign<O>(outcome: Result<O, Error>) -> bool {
    matches!(outcome, Err(Error::NoValue(failed)) if failed.why == FutureError::Foreign)
}

/// Gives a future back in every way there is.
fn refuses<T: Transaction>(
    t: &mut T,
    table: &Table<Item>,
    tickets: &Table<Ticket>,
    foreign: Future<i64>,
) -> Result<(), Error> {
    let own = t.future(table, 2, Item::VALUE)?;
    let chosen = [
        own.at_least(0).then(foreign).otherwise(1),
        own.at_least(0).then(own).otherwise(foreign),
        own.at_least(0).then(1).otherwise(foreign + 1),
        // Which side it is tells of the value, too.
        foreign.at_least(0).then(1).otherwise(2),
        foreign.at_least(0).then(own).otherwise(own + 1),
    ];
    for given in [foreign, foreign + 1, own + foreign, (own - foreign).max(3)].into_iter().chain(chosen) {
        assert!(is_foreign(t.resolve(given)), "{given:?}");
        assert!(is_foreign(t.set_future(table, 2, Item::VALUE, given)));
        assert!(is_foreign(t.set_futures(table, 2, [Item::VALUE.becomes(given)])));
        assert!(is_foreign(t.is_true(given.at_least(0))));
        assert!(is_foreign(t.is_true_assuming(given.at_least(0), true)));
        assert!(is_foreign(t.future_at(tickets, (1_u16, given), Ticket::PRICE).map(drop)));
        assert!(is_foreign(t.set_futures_at(tickets, (1_u16, given), [Ticket::PRICE.becomes(1)])));
        for column in [Ticket::PRICE.becomes(given), Ticket::WEIGHT.becomes(given)] {
            assert!(is_foreign(t.set_futures_at(tickets, (1_u16, own), [column])));
        }
        let ticket = Ticket { shop: 1, number: 77, weight: 77, price: 0 };
        for column in [Ticket::NUMBER.becomes(given), Ticket::PRICE.becomes(given), Ticket::WEIGHT.becomes(given)] {
            assert!(is_foreign(t.insert_future(tickets, &ticket, [column])));
        }
    }
    // What was refused has left nothing, and plain values are all's.
    assert!(t.get(tickets, (1, 77))?.is_none());
    t.set_future(table, 2, Item::VALUE, own + Future::from(3) * 4)
}

/// The items (1, 1), (2, 2) and (3, 3), and a ticket with the number 2.
fn open<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) -> (Arc<P>, Table<Item>, Table<Ticket>) {
    let (database, table) = items(setup, &[(1, 1), (2, 2), (3, 3)]);
    let tickets = create::<P, Ticket>(&database);
    done(&mut database.worker().unwrap(), |t| t.insert(&tickets, &Ticket { shop: 1, number: 2, weight: 1, price: 0 }));
    (database, table, tickets)
}

/// Futures of a transaction before are refused, those of a snapshot, of another thread, and of a thread that has ended, too.
pub fn of_earlier_transactions<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table, tickets) = open(setup);
    let mut worker = database.worker().unwrap();
    let kept = |worker: &mut P::Worker, mode| {
        drive::transact(worker, mode, &mut |t| t.future(&table, 1, Item::VALUE)).expect("it commits")
    };
    // A client that comes to life in the memory of one that has gone is not the same.
    let of_thread = || {
        let database = Arc::clone(&database);
        let thread = std::thread::spawn(move || {
            let mut worker = database.worker().unwrap();
            done(&mut worker, |t| t.future(&table, 1, Item::VALUE))
        });
        thread.join().unwrap()
    };
    let earlier =
        [kept(&mut worker, Mode::ReadWrite), kept(&mut worker, Mode::Snapshot), of_thread(), of_thread(), of_thread()];
    for (number, kept) in earlier.into_iter().enumerate() {
        done(&mut worker, |t| refuses(t, &table, &tickets, kept));
        assert_eq!(done(&mut worker, |t| value(t, &table, 2)), Some(2 + 12 * (number as i64 + 1)));
        let seen = drive::transact(&mut worker, Mode::Snapshot, &mut |t| t.resolve(kept));
        assert!(is_foreign(seen));
    }
    let of_ended = of_thread();
    let database = Arc::clone(&database);
    let thread = std::thread::spawn(move || {
        done(&mut database.worker().unwrap(), |t| refuses(t, &table, &tickets, of_ended));
    });
    thread.join().unwrap();
}

/// A transaction inside of another one refuses the futures of that, which takes them meanwhile, and not those of the inner one.
pub fn of_outer_and_inner_transactions<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.interleaves {
        return;
    }
    let setup = setup.clone();
    watched(move |_| {
        let (database, table, tickets) = open(&setup);
        let (mut one, mut two) = (database.worker().unwrap(), database.worker().unwrap());
        let mut seen = None;
        done(&mut one, |outer| {
            let of_outer = outer.future(&table, 1, Item::VALUE)?;
            let of_inner = run(&mut two, |inner| {
                let of_inner = inner.future(&table, 2, Item::VALUE)?;
                // The outer one's turn, in the midst of the inner one.
                assert!(is_foreign(outer.resolve(of_inner)) && is_foreign(outer.resolve(of_outer + of_inner)));
                assert!(outer.is_true((of_outer + 5).at_least(6))?);
                let observed = outer.resolve(of_outer + 1)?;
                refuses(inner, &table, &tickets, of_outer)?;
                assert!(inner.is_true(of_inner.at_least(2))?);
                Ok((of_inner, observed))
            });
            let (of_inner, observed) = of_inner?;
            assert!(is_foreign(outer.resolve(of_inner)) && is_foreign(outer.is_true(of_inner.at_least(0))));
            seen = Some((observed, outer.resolve(of_outer)?));
            outer.set_future(&table, 3, Item::VALUE, of_outer + 10)
        });
        assert_eq!(seen, Some((2, 1)));
        let rows = all(&mut one, &table);
        assert_eq!((rows[0].value, rows[2].value), (1, 11));
    });
}

/// Answers with a future, its own or one of before, and looks at both when it has committed.
struct Answers {
    table: Table<Item>,
    kept: Option<Future<i64>>,
    own: Option<Future<i64>>,
    observed: Option<[Result<i64, FutureError>; 2]>,
}

impl Procedure for Answers {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        self.own = Some(t.future(&self.table, 1, Item::VALUE)? + 1);
        Ok(())
    }

    fn committed(&mut self, (): &mut (), resolved: &Resolved) {
        let get = |future: Option<Future<i64>>| resolved.get(future.unwrap_or(Future::from(0)));
        self.observed = Some([get(self.own), get(self.kept)]);
    }

    fn declare<D: Declare>(&self, _: &mut D) {}
}

/// What a transaction is told after its commit is told of its own futures alone.
pub fn in_answers<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table, _) = open(setup);
    let mut worker = database.worker().unwrap();
    let mut kept = None;
    let given: Result<_, Error> = drive::transact_resolved(&mut worker, &mut |t| {
        let future = t.future(&table, 2, Item::VALUE)?;
        kept = Some(future);
        Ok((future, Some(future + 1), Future::from(9)))
    });
    assert_eq!(given.unwrap(), (2, Some(3), 9));
    let kept = kept.expect("it has run");
    for foreign in [kept, kept + 1] {
        let given = drive::transact_resolved(&mut worker, &mut |t| Ok((t.future(&table, 1, Item::VALUE)?, foreign)));
        assert!(is_foreign(given));
    }
    let mut answers = Answers { table, kept: Some(kept), own: None, observed: None };
    worker.execute(&mut answers).unwrap();
    assert_eq!(answers.observed, Some([Ok(2), Err(FutureError::Foreign)]));
    (answers.kept, answers.observed) = (answers.own, None);
    worker.snapshot(&mut answers).unwrap();
    assert_eq!(answers.observed, Some([Ok(2), Err(FutureError::Foreign)]));
}

/// Futures serve in transactions that run while a thread ends, after the commit too; many threads may end at a time.
pub fn at_the_end_of_a_thread<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    const THREADS: i64 = 8;
    let setup = setup.clone();
    watched(move |_| {
        let (database, table, tickets) = open(&setup);
        let (sender, receiver) = std::sync::mpsc::channel();
        let count = |worker: &mut P::Worker, table| -> Result<(i64, i64), Error> {
            drive::transact_resolved(worker, &mut |t| {
                let count = t.future(&table, 1, Item::VALUE)?;
                assert!(t.is_true(count.at_least(1))?);
                t.set_future(&table, 1, Item::VALUE, count + 1)?;
                Ok((count, count * 2))
            })
        };
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (of_thread, sender) = (Arc::clone(&database), sender.clone());
                std::thread::spawn(move || {
                    at_end(|| {
                        let mut worker = of_thread.worker().unwrap();
                        let kept = done(&mut worker, |t| t.future(&table, 2, Item::VALUE));
                        count(&mut worker, table).unwrap();
                        // A panic would end the process.
                        move || {
                            let counted = count(&mut worker, table);
                            let refused = drive::catch(|| done(&mut worker, |t| refuses(t, &table, &tickets, kept)));
                            let _ = sender.send((counted, refused.map_err(|panic| panic.text())));
                        }
                    });
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let outcomes: Vec<_> = receiver.try_iter().collect();
        assert_eq!(outcomes.len() as i64, THREADS);
        for (counted, refused) in outcomes {
            let (count, double) = counted.unwrap();
            assert_eq!(count * 2, double);
            refused.unwrap();
        }
        let rows = all(&mut database.worker().unwrap(), &table);
        assert_eq!((rows[0].value, rows[1].value), (1 + 2 * THREADS, 2 + 12 * THREADS));
    });
}
