//! A job queue: threads put jobs in, others take them out, do them, and write what came of it, all in one transaction a job.
//!
//! `claim_first` gives each worker another job, so they do not conflict over the first one. A job that fails goes back, and is given up after
//! the third time.
//!
//! `cargo run --release -p polychron-examples --bin jobs [WORKERS] [JOBS] [first]` prints the jobs a second; with `first`, workers take the first job
//! in plain transactions instead, for comparison.

use std::env::args;
use std::time::Instant;

use polychron::TransactionOf;
use polychron::prelude::*;

#[derive(Row, Clone)]
struct Job {
    #[key]
    number: u64,
    tries: u32,
    payload: String,
}

#[derive(Row)]
struct Outcome {
    #[key]
    number: u64,
    tries: u32,
    text: Option<String>,
}

/// A connection of the pretended job's, which fails now and then.
fn perform(job: &Job) -> Result<String, String> {
    match job.payload.as_str() {
        "fail" => Err(format!("job {} cannot be done", job.number)),
        "stumble" if job.tries == 0 => Err("not now".to_owned()),
        payload => Ok(payload.to_uppercase()),
    }
}

struct Queue {
    database: Database,
    jobs: Table<Job>,
    outcomes: Table<Outcome>,
}

impl Queue {
    const MOST_TRIES: u32 = 3;

    fn open() -> Result<Self, Error> {
        let database = Database::in_memory()?;
        let (jobs, outcomes) = (database.create_table()?, database.create_table()?);
        Ok(Self { database, jobs, outcomes })
    }

    fn fill(&self, jobs: u64) -> Result<(), Error> {
        let payload = |number| match number % 100 {
            17 => "fail",
            42 => "stumble",
            _ => "work",
        };
        (0..jobs).try_for_each(|number| {
            let job = Job { number, tries: 0, payload: payload(number).to_owned() };
            self.database.transact(|transaction| transaction.insert(&self.jobs, &job))
        })
    }

    /// Does a job that was taken out of the queue: its outcome is there exactly when the job is gone.
    fn finish(&self, transaction: &mut TransactionOf<'_, polychron::DefaultProtocol>, job: &Job) -> Result<(), Error> {
        let tries = job.tries + 1;
        match perform(job) {
            Err(_) if tries < Self::MOST_TRIES => transaction.insert(&self.jobs, &Job { tries, ..job.clone() }),
            done => transaction.insert(&self.outcomes, &Outcome { number: job.number, tries, text: done.ok() }),
        }
    }

    /// Works until the queue is empty.
    fn work(&self) -> Result<(), Error> {
        let mut session = self.database.session()?;
        while session.claim_first(&self.jobs, |transaction, job| self.finish(transaction, job))?.is_some() {}
        Ok(())
    }

    /// The same without claims: the client that takes the first job conflicts with all others that do.
    fn work_on_the_first(&self) -> Result<(), Error> {
        let mut session = self.database.session()?;
        let mut goes_on = true;
        while goes_on {
            goes_on = session.transact(|transaction| match transaction.pop_first(&self.jobs)? {
                Some(job) => self.finish(transaction, &job).map(|()| true),
                None => Ok(false),
            })?;
        }
        Ok(())
    }
}

fn main() -> Result<(), Error> {
    let number = |position| args().nth(position).and_then(|text| text.parse().ok());
    let (workers, jobs) = (number(1).unwrap_or(2), number(2).unwrap_or(100_000));
    let queue = Queue::open()?;
    queue.fill(jobs)?;
    let begin = Instant::now();
    let work = if args().nth(3).as_deref() == Some("first") { Queue::work_on_the_first } else { Queue::work };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(|| work(&queue))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("workers do not panic"))
    })?;
    let seconds = begin.elapsed().as_secs_f64();
    let (left, done, given_up) = queue.database.transact(|transaction| {
        let done = transaction.scan(&queue.outcomes, ..).filter(|outcome| outcome.text().is_some()).count()?;
        let given_up = transaction.scan(&queue.outcomes, ..).filter(|outcome| outcome.text().is_none()).count()?;
        polychron::Ok((transaction.len(&queue.jobs)?, done, given_up))
    })?;
    assert_eq!((left, done + given_up), (0, jobs));
    println!("{:.0} jobs a second on {workers} threads", jobs as f64 / seconds);
    println!(
        "{done} done, {given_up} given up after {} tries, {} conflicts",
        Queue::MOST_TRIES,
        queue.database.statistics().conflicts()
    );
    Ok(())
}
