//! What transactions cost that wait for others: how often procedures run, and which thread waits where.

use std::sync::{Arc, Barrier};

use polychron_base::Error;
use polychron_engine::{Access, Common, Declare, Operations, Procedure, Protocol, Table, Transaction, Worker};
use polychron_schema::{Key, KeyScratch, Row};
use polychron_sync::atomic::{AtomicUsize, Ordering};

use crate::bohm::execution::{Executor, ensure_complete};
use crate::bohm::protocol::Shared;
use crate::bohm::timestamp::Timestamp;
use crate::bohm::{Bohm, Options};

#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "item")]
struct Item {
    #[key]
    id: u64,
    count: i64,
}

struct First(Table<Item>);

impl Procedure for First {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        t.insert(&self.0, &Item { id: 1, count: 0 })
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.key(self.0.id(), 1_u64.encode(&mut KeyScratch::new()), Access::Insert);
    }
}

fn database(batch_size: usize) -> (Arc<Bohm>, Table<Item>) {
    let common = Common {
        memory: polychron_memory::Options { max_workers: 100, ..polychron_memory::Options::tiny() },
        ..Common::default()
    };
    let database = Bohm::open(Options { batch_size, ..Options::default() }, common).unwrap();
    let items = Table::from_id(database.create_table(Item::definition()).unwrap());
    database.worker().unwrap().execute(&mut First(items)).unwrap();
    (database, items)
}

/// Increments the one row, and counts its runs; before it ends another thread tries to execute transactions of its batch at some positions.
#[derive(Clone)]
struct Increment {
    items: Table<Item>,
    runs: Arc<AtomicUsize>,
    beside: Option<(Arc<Shared>, Vec<usize>)>,
}

impl Procedure for Increment {
    type Output = i64;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<i64, Error> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let mut answer = 0;
        t.update(&self.items, 1, |row| {
            answer = row.count() + 1;
            row.set_count(answer);
        })?;
        if let Some((shared, positions)) = self.beside.take() {
            let batch = shared.pipeline.planned();
            // SAFETY: this is executed in a chunk of the batch.
            let client_batch = unsafe { shared.pipeline.client_batches(batch) }[0].keep();
            let other = move || {
                let mut executor = Executor::new(&shared).unwrap();
                for position in positions {
                    let timestamp = Timestamp::new(batch, position);
                    let is_complete = ensure_complete(
                        &shared,
                        &mut executor.state,
                        &executor.local,
                        client_batch.planned(position),
                        timestamp,
                    );
                    assert!(!is_complete, "it needs this one's row");
                }
            };
            std::thread::spawn(other).join().unwrap();
        }
        Ok(answer)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.key(self.items.id(), 1_u64.encode(&mut KeyScratch::new()), Access::Update);
    }
}

/// How often the procedures of a chain run in all, while another thread tries to execute some of them before the first is complete.
fn runs_of_chain(links: usize, tried: Vec<usize>) -> usize {
    let (database, items) = database(links + 1);
    let runs = Arc::new(AtomicUsize::new(0));
    let link = |beside| Increment { items, runs: Arc::clone(&runs), beside };
    let mut chain = vec![link(Some((Arc::clone(&database.shared), tried)))];
    chain.extend((0..links).map(|_| link(None)));
    let mut answers = vec![0; chain.len()];
    let mut worker = database.worker().unwrap();
    worker.execute_batch(&mut chain, &mut |position, answer| answers[position] = answer.unwrap());
    assert_eq!(answers, (1..=links as i64 + 1).collect::<Vec<_>>());
    runs.load(Ordering::Relaxed)
}

/// A transaction that needs the row at the end of a chain whose first transaction another thread executes runs each of the others once, and leaves them all.
#[test]
fn chains_that_wait_are_tried_once() {
    let links = 6;
    let runs = runs_of_chain(links, vec![links]);
    assert!(runs <= 2 * links + 1, "{runs} runs of {} transactions", links + 1);
}

/// However often transactions are tried that wait for one which is being executed, none of them runs again before that one has ended.
#[test]
fn who_waits_runs_again_when_what_it_waits_for_has_ended() {
    let links = polychron_base::sizes::scaled(200, 70);
    let orders: [fn(usize, usize) -> usize; 3] =
        [|step, _| step, |step, links| links - step, |step, links| step * 7 % links];
    for (number, order) in orders.into_iter().enumerate() {
        let tried = (0..5 * links).map(|step| 1 + order(step % links, links - 1)).collect();
        let runs = runs_of_chain(links, tried);
        assert!(runs <= 4 * links + 1, "{runs} runs of {} transactions, order {number}", links + 1);
    }
}

/// Of many more threads than there are processors, all of which want one row, each gets it, and hardly any procedure runs more than once.
#[test]
#[cfg_attr(miri, ignore = "an interpreter runs its threads too slowly")]
fn crowds_run_each_procedure_about_once() {
    let (threads, each) = (64, polychron_base::sizes::scaled(50, 5));
    let (database, items) = database(Options::default().batch_size);
    let runs = Arc::new(AtomicUsize::new(0));
    let together = std::sync::Barrier::new(threads);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let together = &together;
            let mut worker = database.worker().unwrap();
            let mut increment = Increment { items, runs: Arc::clone(&runs), beside: None };
            scope.spawn(move || {
                together.wait();
                (0..each).for_each(|_| _ = worker.execute(&mut increment).unwrap());
            });
        }
    });
    let mut last = Increment { items, runs: Arc::default(), beside: None };
    let count = threads * each;
    assert_eq!(database.worker().unwrap().execute(&mut last).unwrap(), count as i64 + 1);
    let runs = runs.load(Ordering::Relaxed);
    assert!(runs <= 4 * count, "{runs} runs of {count} transactions");
}

/// Of a batch whose client executes a procedure that waits, another worker executes what does not need that one's row, and gives all answers
/// that are there.
#[test]
fn helpers_answer_beside_one_that_waits() {
    let (database, items) = database(Options::default().batch_size);
    let runs = Arc::new(AtomicUsize::new(0));
    let (arrived, open) = (Barrier::new(2), Barrier::new(2));
    let bump = |id, gate| Bump { items, id, gate, runs: Arc::clone(&runs) };
    // More than one chunk; those with an odd number need the row of the one that waits.
    let mut batch: Vec<_> =
        (0..40_u64).map(|number| bump(if number % 2 == 1 { 1 } else { 10 + number }, None)).collect();
    batch.insert(7, bump(1, Some((&arrived, &open))));
    let needs_it = |position: usize| position > 7 && batch_id(position) == 1;
    let answered: Vec<_> = batch.iter().map(|_| AtomicUsize::new(0)).collect();
    let (mut client, mut helper) = (database.worker().unwrap(), database.worker().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            client.execute_batch_with(
                &mut batch,
                &|position, answer| {
                    answer.unwrap();
                    answered[position].fetch_add(1, Ordering::Relaxed);
                },
                |_| (),
            );
        });
        arrived.wait();
        // Once it has looked at everything there is nothing left to do.
        assert_eq!(helper.help_others(), Some(true));
        while helper.help_others() == Some(true) {}
        for (position, answered) in answered.iter().enumerate() {
            let waits = position == 7 || needs_it(position);
            assert_eq!(answered.load(Ordering::Relaxed), usize::from(!waits), "number {position}");
        }
        open.wait();
    });
    assert!(answered.iter().all(|answered| answered.load(Ordering::Relaxed) == 1), "each is answered once");
    assert_eq!(helper.help_others(), Some(false));
    assert_eq!(database.statistics().commits, 42);
    let runs = runs.load(Ordering::Relaxed);
    assert!(runs <= 2 * answered.len(), "{runs} runs of {} procedures", answered.len());
}

/// The row of the procedure at a position behind the one that waits, in the test above.
fn batch_id(position: usize) -> u64 {
    let number = position as u64 - 1;
    if number % 2 == 1 { 1 } else { 10 + number }
}

/// Writes a row, and waits at two barriers if it is given some.
struct Bump<'b> {
    items: Table<Item>,
    id: u64,
    gate: Option<(&'b Barrier, &'b Barrier)>,
    runs: Arc<AtomicUsize>,
}

impl Procedure for Bump<'_> {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let count = t.get(&self.items, self.id)?.map_or(0, |row| row.count());
        t.upsert(&self.items, &Item { id: self.id, count: count + 1 })?;
        if let Some((arrived, open)) = self.gate {
            arrived.wait();
            open.wait();
        }
        Ok(())
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.key(self.items.id(), self.id.encode(&mut KeyScratch::new()), Access::Write);
    }
}
