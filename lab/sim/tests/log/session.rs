//! Workers that stage and seal transactions in one thread, in turns that a seed decides.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use polychron_base::TableId;
use polychron_base::clock::ManualClock;
use polychron_base::random::Random;
use polychron_engine::mutations::interrupt;
use polychron_engine::redo::{Log as _, Ticket};
use polychron_log::disk::Files;
use polychron_log::frame::Order;
use polychron_log::manifest::{Manifest, Manifests};
use polychron_log::steps::Point;
use polychron_log::{Beat, DatabaseId, Error, Log, Options};
use polychron_sim::SimulatedDisk;

use crate::ledger::{Found, Id, Ledger, Sealed, Told};

pub(crate) const DATABASE: DatabaseId = DatabaseId(77);
const WORKERS: usize = 3;

/// A log that is open, with transactions in progress.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) log: Arc<Log<SimulatedDisk>>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) incarnation: u64,
    disk: SimulatedDisk,
    manifests: Rc<RefCell<Manifests<SimulatedDisk>>>,
    workers: Rc<RefCell<[Option<Open>; WORKERS]>>,
    within: Rc<RefCell<Vec<(Id, Ticket)>>>,
    pub(crate) ledger: Rc<RefCell<Ledger>>,
    /// The next order, and those that are not sealed: where all before have ended.
    orders: Arc<std::sync::Mutex<(u64, Vec<u64>)>>,
}

/// A transaction that is not sealed.
struct Open {
    order: u64,
    changes: Vec<Told>,
}

/// Opens the manifests, or makes a database.
pub(crate) fn manifests(disk: &SimulatedDisk) -> Result<Manifests<SimulatedDisk>, Error> {
    let files = Files::new(disk.clone());
    let first = Manifest {
        database: DATABASE,
        incarnation: 0,
        first_log_file: 1,
        durable: 0,
        checkpoint: None,
        catalog: Vec::new(),
    };
    match Manifests::open(&files)? {
        Some(manifests) => Ok(manifests),
        None => Ok(Manifests::create(&files, first)?),
    }
}

/// What is there, without changing anything. An error is what is wrong with it.
pub(crate) fn look(disk: &SimulatedDisk) -> Result<Found, Error> {
    let files = Files::new(disk.clone());
    let mut found = Found::default();
    let manifests = match Manifests::open(&files)? {
        Some(manifests) => manifests,
        None => return Ok(found),
    };
    let visit = &mut |logged: polychron_log::Logged<'_>| found.visit(logged);
    polychron_log::read(&files, manifests.current(), manifests.generation(), visit)?;
    Ok(found)
}

impl Session {
    /// Opens a log, and decides with it what was unknown.
    ///
    /// # Panics
    /// When it has what it must not have, or has not what it must.
    pub(crate) fn open(disk: &SimulatedDisk, ledger: &mut Ledger, options: Options) -> Result<Self, Error> {
        let mut manifests = manifests(disk)?;
        let clock = Arc::new(ManualClock::new());
        let mut found = Found::default();
        let orders = Arc::new(std::sync::Mutex::new((1, Vec::new())));
        let seen = Arc::clone(&orders);
        let ended = move || {
            let (next, open): &(u64, Vec<u64>) = &seen.lock().unwrap();
            Order { era: 0, timestamp: open.iter().min().unwrap_or(next) - 1 }
        };
        let log = Log::open(
            &Files::new(disk.clone()),
            &mut manifests,
            options,
            clock.clone(),
            Box::new(ended),
            &mut |logged| found.visit(logged),
        )?;
        assert_eq!(ledger.complaint(&found), None, "an opening");
        ledger.decide(&found);
        Ok(Self {
            log: Arc::new(log),
            clock,
            incarnation: manifests.current().incarnation,
            disk: disk.clone(),
            manifests: Rc::new(RefCell::new(manifests)),
            workers: Rc::default(),
            within: Rc::default(),
            ledger: Rc::new(RefCell::new(ledger.clone())),
            orders,
        })
    }

    /// Begins a transaction of a worker that has none, and stages a change.
    pub(crate) fn begin(&self, worker: usize, first: Told) -> Result<(), polychron_base::Error> {
        self.log.admit(worker)?;
        let order = {
            let (next, open) = &mut *self.orders.lock().unwrap();
            open.push(*next);
            *next += 1;
            *next - 1
        };
        self.workers.borrow_mut()[worker] = Some(Open { order, changes: Vec::new() });
        self.stage(worker, first)
    }

    pub(crate) fn stage(&self, worker: usize, told: Told) -> Result<(), polychron_base::Error> {
        self.log.stage(worker, TableId::new(9, told.table()), told.key(), told.change())?;
        let mut workers = self.workers.borrow_mut();
        workers[worker].as_mut().expect("it has begun").changes.push(told);
        Ok(())
    }

    pub(crate) fn is_open(&self, worker: usize) -> bool {
        self.workers.borrow()[worker].is_some()
    }

    fn end(&self, worker: usize) -> Open {
        let open = self.workers.borrow_mut()[worker].take().expect("it has begun");
        self.orders.lock().unwrap().1.retain(|order| *order != open.order);
        open
    }

    pub(crate) fn discard(&self, worker: usize) {
        self.end(worker);
        self.log.discard(worker);
    }

    pub(crate) fn seal(&self, worker: usize) -> (Id, Ticket) {
        let order = self.workers.borrow()[worker].as_ref().expect("it has begun").order;
        let ticket = self.log.seal(worker, Order { era: 0, timestamp: order });
        let open = self.end(worker);
        let id = (self.incarnation, open.order);
        let sealed = Sealed { worker, epoch: ticket.0, changes: open.changes };
        self.ledger.borrow_mut().sealed.insert(id, sealed);
        (id, ticket)
    }

    /// Waits for a transaction, which is acknowledged then.
    pub(crate) fn wait(&self, (id, ticket): (Id, Ticket)) -> Result<(), polychron_base::Error> {
        self.log.wait(ticket)?;
        self.ledger.borrow_mut().certain.insert(id);
        Ok(())
    }

    /// A whole transaction, acknowledged.
    pub(crate) fn commit(&self, worker: usize, changes: &[Told]) -> Result<Id, polychron_base::Error> {
        let sealed = self.sealed(worker, changes)?;
        self.wait(sealed)?;
        Ok(sealed.0)
    }

    /// A whole transaction that nobody waits for.
    pub(crate) fn sealed(&self, worker: usize, changes: &[Told]) -> Result<(Id, Ticket), polychron_base::Error> {
        self.begin(worker, changes[0].clone())?;
        for change in &changes[1..] {
            self.stage(worker, change.clone())?;
        }
        Ok(self.seal(worker))
    }

    /// Somebody reads what some transaction has written, and is answered.
    fn read(&self, random: &mut Random) -> Result<(), polychron_base::Error> {
        let ids: Vec<Id> = self.ledger.borrow().sealed.keys().filter(|id| id.0 == self.incarnation).copied().collect();
        if ids.is_empty() {
            return Ok(());
        }
        let id = ids[random.below(ids.len() as u64) as usize];
        let ticket = self.log.ticket(Order { era: 0, timestamp: id.1 });
        self.wait((id, ticket))
    }

    /// While the next flush closes its epoch, some workers seal what they have staged.
    pub(crate) fn seal_within(&self, point: Point, workers: &[usize]) {
        let (session, workers) = (self.clone(), workers.to_vec());
        interrupt(point, move || {
            for worker in workers.into_iter().filter(|worker| session.is_open(*worker)) {
                let sealed = session.seal(worker);
                session.within.borrow_mut().push(sealed);
            }
        });
    }

    /// What was sealed so.
    pub(crate) fn sealed_within(&self) -> Vec<(Id, Ticket)> {
        self.within.take()
    }

    /// What was sealed and acknowledged so far.
    pub(crate) fn told(&self) -> Ledger {
        self.ledger.borrow().clone()
    }

    /// As if a checkpoint had all that is durable: the log no longer needs a file that has nothing else.
    pub(crate) fn release(&self) -> Result<(), Error> {
        let durable = self.log.durable();
        let first_log_file = self.log.first_needed(durable).expect("the log has a file");
        let mut manifests = self.manifests.borrow_mut();
        let released =
            |(id, sealed): (&Id, &Sealed)| (id.0 < self.incarnation || sealed.epoch <= durable).then_some(*id);
        let ledger = &mut *self.ledger.borrow_mut();
        ledger.released.extend(ledger.sealed.iter().filter_map(released));
        let next = Manifest { first_log_file, ..manifests.current().clone() };
        manifests.write(next)?;
        // What is there all the same stays.
        if let Ok(found) = look(&self.disk.after_restart()) {
            ledger.released = &ledger.released - &found.ids();
        }
        Ok(self.log.release(first_log_file, manifests.generation())?)
    }

    /// Ends the log.
    pub(crate) fn close(&self) {
        self.log.close().unwrap();
        self.log.note_end(&mut self.manifests.borrow_mut()).unwrap();
    }

    /// The log's threads look so often, each time after so long.
    pub(crate) fn idle(&self, times: usize, millis: u64) {
        let mut beat = Beat::default();
        for _ in 0..times {
            self.log.make_files();
            self.log.tick(&mut beat);
            self.clock.advance_ns(millis * 1_000_000);
        }
    }

    /// So many steps of workers that a seed chooses.
    pub(crate) fn run(&self, random: &mut Random, steps: usize) -> Result<(), polychron_base::Error> {
        let result = self.steps(random, steps);
        // What waits to interrupt holds this session.
        interrupt(Point::Closing, || {});
        result
    }

    fn steps(&self, random: &mut Random, steps: usize) -> Result<(), polychron_base::Error> {
        let (mut pending, mut beat) = (Vec::new(), Beat::default());
        for _ in 0..steps {
            let worker = random.below(WORKERS as u64) as usize;
            if random.chance(0.3) {
                let point = if random.chance(0.5) { Point::Closing } else { Point::FirstHeadRead };
                self.seal_within(point, &[random.below(WORKERS as u64) as usize]);
                pending.append(&mut self.within.borrow_mut());
            }
            match random.below(10) {
                _ if !self.is_open(worker) && random.chance(0.7) => self.begin(worker, Told::draw(random))?,
                // Longer than its ring, and than a frame or a file.
                0 if self.is_open(worker) && random.chance(0.1) => {
                    (0..40 + random.below(100)).try_for_each(|_| self.stage(worker, Told::draw(random)))?;
                }
                0..4 if self.is_open(worker) => self.stage(worker, Told::draw(random))?,
                4 if self.is_open(worker) => self.discard(worker),
                5 | 6 if self.is_open(worker) => pending.push(self.seal(worker)),
                7 => self.read(random)?,
                8 if random.chance(0.1) => {
                    // What the manifest cannot be written for stops nothing.
                    let _ = self.release();
                }
                8 => {
                    self.log.make_files();
                    self.clock.advance_ns(random.below(20_000_000));
                    self.log.tick(&mut beat);
                }
                _ if !pending.is_empty() => {
                    let sealed = pending.swap_remove(random.below(pending.len() as u64) as usize);
                    self.wait(sealed)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}
