//! Standbys under failures: whatever either side loses and whatever becomes of messages, a standby shows a prefix of what its primary has in serial order.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use polychron_base::random::Random;
use polychron_engine::mutations::{interrupt, leave_out};
use polychron_engine::redo::Durability;
use polychron_log::catalog::StoredCatalog;
use polychron_log::checkpoint::Options as CheckpointOptions;
use polychron_log::disk::{Files, Operation};
use polychron_log::frame::Change;
use polychron_log::recover::Batch;
use polychron_log::ship::{
    Apply, Base, Changes, Hearing, Point, Sender, Showing, Source, Standby, StandbyOpening, Trouble,
};
use polychron_log::steps::{Point as Pass, ShipStep, Step};
use polychron_log::{Load, Options, Settings, Wanted};
use polychron_sim::{At, Fault, SimulatedDisk, Survival, each_step_is_needed, stride};

use crate::faults::row;
use crate::ledger::{Done, Ledger, Rows, replay};
use crate::world::{World, look};
use crate::{is_small, runs, seeds, trials};

mod replicas;

/// What readers of a standby see.
#[derive(Default)]
struct Seen {
    rows: Rows,
    tables: BTreeSet<u32>,
    point: Option<Point>,
    /// How often it changed.
    points: u64,
    /// Its log has no point yet, and nothing is shown.
    is_early: bool,
    /// If it is known, what the primary has done.
    told: Option<Ledger>,
}

impl Seen {
    /// What is wrong with it.
    fn wrong(&self, ledger: &Ledger) -> Option<String> {
        let Self { rows, tables, point, .. } = self;
        let point = (*point)?;
        let last = (point.incarnation, point.consistent.timestamp);
        let expected = replay(ledger.sealed.iter().filter(|it| (it.incarnation, it.order) <= last), tables);
        (*rows != expected).then(|| format!("{point:?}: {rows:?} in place of {expected:?}"))
    }
}

impl Apply for Seen {
    fn apply(&mut self, tables: &StoredCatalog, changes: &Changes, point: &Point) -> Result<(), polychron_base::Error> {
        if self.is_early {
            return Ok(());
        }
        for (key, change) in changes.iter() {
            let id = u64::from_be_bytes(key.try_into().expect("it is a number"));
            let (table, done) = match change {
                Change::Put { table, row } => (table, vec![Done::Put(row.collect())]),
                Change::Delete { table, .. } => (table, vec![Done::Delete]),
                Change::Patch { table, ranges, .. } => {
                    (table, ranges.map(|(first, words)| Done::Patch(first, words.collect())).collect())
                }
            };
            for done in done {
                match done.apply(self.rows.get(&(table, id))) {
                    Some(row) => self.rows.insert((table, id), row),
                    None => self.rows.remove(&(table, id)),
                };
            }
        }
        self.tables = tables.tables().keys().copied().collect();
        self.rows.retain(|(table, _), _| self.tables.contains(table));
        (self.point, self.points) = (Some(*point), self.points + 1);
        assert_eq!(self.told.as_ref().and_then(|ledger| self.wrong(ledger)), None, "each step is to a point");
        Ok(())
    }
}

#[derive(Default)]
struct Loaded(Mutex<Rows>);

impl Load for Loaded {
    fn load(&self, batch: &Batch<'_>) -> Result<(), polychron_base::Error> {
        let mut rows = self.0.lock().unwrap();
        for row in batch.rows() {
            let id = u64::from_be_bytes(row.key.try_into().expect("it is a number"));
            assert!(rows.insert((batch.table(), id), row.words.to_vec()).is_none(), "a row comes twice");
        }
        Ok(())
    }
}

/// A standby and what it shows.
pub(crate) struct Follower {
    pub(crate) disk: SimulatedDisk,
    pub(crate) standby: Standby<SimulatedDisk>,
    showing: Showing,
    seen: Seen,
}

fn source(world: &World) -> Source<'_, SimulatedDisk> {
    Source { log: &world.log, manifests: &world.manifests, checkpoints: &world.checkpoints }
}

fn settings() -> Settings {
    Settings {
        path: "a standby".to_owned(),
        wanted: Wanted::Existing,
        log: Options::tiny(),
        checkpoints: CheckpointOptions::tiny(),
        threads: 0,
        has_threads: false,
    }
}

/// Has a new standby made of what the primary sends, up to so many messages. Whether it is whole.
fn send_base(disk: &SimulatedDisk, world: &World, most: usize) -> Result<bool, Trouble> {
    let Some(mut base) = Base::begin(&Files::new(disk.clone()))? else { return Ok(true) };
    let mut sender = Sender::new();
    sender.receive(&base.hello())?;
    for _ in 0..most {
        let Some(message) = sender.next(source(world))? else { break };
        if base.receive(&message)? {
            sender.end(source(world), None);
            return Ok(true);
        }
    }
    sender.end(source(world), None);
    Ok(false)
}

impl Follower {
    pub(crate) fn new(world: &World, seed: u64) -> Self {
        let disk = SimulatedDisk::new(seed);
        assert!(send_base(&disk, world, usize::MAX).unwrap(), "all was sent");
        Self::open(&disk, Some(world)).unwrap()
    }

    /// Opens a standby; it is gone on with first if it has to be.
    pub(crate) fn open(disk: &SimulatedDisk, world: Option<&World>) -> Result<Self, Trouble> {
        loop {
            let mut opening = StandbyOpening::begin(&Files::new(disk.clone()), &settings(), &|_| ())?;
            let Some(point) = opening.point() else {
                let world = world.expect("its log has a point");
                let ((standby, showing), seen) = (opening.finish(), Seen { is_early: true, ..Seen::default() });
                let mut early = Self { disk: disk.clone(), standby, showing, seen };
                // A transaction that is open may hold the point back.
                let mut link = Link::connect(&mut early, world)?;
                link.pump(&mut early, world, &mut Noise::none())?;
                if early.showing.point().is_none() {
                    return Ok(early);
                }
                continue;
            };
            let loaded = Loaded::default();
            opening.load(&loaded).map_err(|error| Trouble::Apply(Arc::new(error)))?;
            let tables = opening.catalog().tables().keys().copied().collect();
            let rows = loaded.0.into_inner().unwrap();
            let seen = Seen { rows, tables, point: Some(point), points: 0, is_early: false, told: None };
            let (standby, showing) = opening.finish();
            return Ok(Self { disk: disk.clone(), standby, showing, seen });
        }
    }

    /// Takes bytes, and shows what became durable by them.
    fn receive(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        let received = self.standby.receive(bytes);
        let shown = self.showing.show(self.standby.take_unshown(), &mut self.seen);
        received.and(shown)
    }

    /// What is wrong with what it shows.
    pub(crate) fn wrong(&self, ledger: &Ledger) -> Option<String> {
        self.seen.wrong(ledger)
    }
}

/// What becomes of messages.
struct Noise {
    random: Random,
    chance: f64,
    /// How likely what has arrived is received before more does.
    alone: f64,
}

impl Noise {
    fn none() -> Self {
        Self { random: Random::from_seed(0), chance: 0.0, alone: 1.0 }
    }

    fn is_received(&mut self) -> bool {
        self.random.chance(self.alone)
    }

    /// What arrives of a message.
    fn pass(&mut self, message: Vec<u8>, held: &mut Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let mut message = message;
        if !self.random.chance(self.chance) {
            let mut all = vec![message];
            all.append(held);
            return all;
        }
        match self.random.below(6) {
            0 => Vec::new(),
            1 => vec![message.clone(), message],
            2 => {
                held.push(message);
                Vec::new()
            }
            3 => {
                let kept = self.random.below(message.len() as u64) as usize;
                message.truncate(kept);
                vec![message]
            }
            4 => {
                let bit = self.random.below(8 * message.len() as u64) as usize;
                message[bit / 8] ^= 1 << (bit % 8);
                vec![message]
            }
            _ => {
                let mut bytes = vec![0; self.random.below(200) as usize];
                self.random.fill(&mut bytes);
                vec![bytes, message]
            }
        }
    }
}

/// A connection.
struct Link {
    sender: Sender<SimulatedDisk>,
    hearing: Option<Hearing>,
    held: Vec<Vec<u8>>,
}

impl Link {
    fn connect(follower: &mut Follower, world: &World) -> Result<Self, Trouble> {
        let mut sender = Sender::new();
        let hello = follower.standby.hello()?;
        sender.receive(&hello)?;
        let _ = world;
        Ok(Self { sender, hearing: None, held: Vec::new() })
    }

    /// Carries messages until there are none.
    fn pump(&mut self, follower: &mut Follower, world: &World, noise: &mut Noise) -> Result<usize, Trouble> {
        let (mut count, mut arrived) = (0, Vec::new());
        while let Some(message) = self.sender.next(source(world))? {
            self.hearing.get_or_insert_with(|| self.sender.hearing(source(world)));
            for bytes in noise.pass(message, &mut self.held) {
                arrived.extend_from_slice(&bytes);
                count += 1;
                // Some come together.
                if noise.is_received() {
                    self.receive(follower, world, &std::mem::take(&mut arrived))?;
                }
            }
        }
        self.receive(follower, world, &arrived)?;
        Ok(count)
    }

    /// The standby takes bytes, and the primary what that says then.
    fn receive(&mut self, follower: &mut Follower, world: &World, bytes: &[u8]) -> Result<(), Trouble> {
        let received = follower.receive(bytes);
        let acknowledged = match (follower.standby.acknowledgement(), &mut self.hearing) {
            (Some(message), Some(hearing)) => hearing.receive(&message, source(world)),
            _ => Ok(()),
        };
        received.and(acknowledged)
    }

    fn end(mut self, world: &World) {
        self.sender.end(source(world), None);
    }
}

pub(crate) fn open_world(disk: &SimulatedDisk, ledger: &Ledger) -> World {
    World::open_with(disk, ledger, CheckpointOptions::tiny(), Durability::Immediate).unwrap()
}

/// Random transactions, changes of tables and checkpoints; connections that garble messages; power failures of both sides; checkpoints and openings of the standby.
#[test]
fn a_standby_shows_a_prefix_whatever_happens() {
    let (mut points, mut troubles, mut bases, mut failures, mut longs) = (0, 0, 0, 0, 0);
    for seed in runs(30) {
        let mut random = Random::from_seed(seed);
        let chance = if seed % 3 == 0 { 0.0 } else { 0.04 };
        let mut noise =
            Noise { random: Random::stream(seed, 1), chance, alone: [1.0, 0.3, 0.05][seed as usize / 3 % 3] };
        let open = |disk: &SimulatedDisk, ledger: &Ledger| {
            let world = open_world(disk, ledger);
            world.has_long.set(seed % 3 == 1);
            world
        };
        let mut world = open(&SimulatedDisk::new(seed), &Ledger::default());
        world.run(&mut random, 20).unwrap();
        let mut follower = Follower::new(&world, seed + 1000);
        let mut link = Link::connect(&mut follower, &world).unwrap();
        for round in 0..60 {
            world.run(&mut random, 6).unwrap();
            let before = follower.seen.point;
            follower.seen.told = Some(world.told());
            let pumped = link.pump(&mut follower, &world, &mut noise);
            assert_eq!(follower.wrong(&world.told()), None, "seed {seed}, round {round}");
            let at = |point: Option<Point>| point.map(|it| (it.incarnation, it.consistent));
            assert!(at(before) <= at(follower.seen.point), "it does not go back");
            let mut is_connected = true;
            if follower.seen.is_early && follower.showing.point().is_some() {
                let disk = follower.disk.clone();
                drop(follower);
                follower = Follower::open(&disk, Some(&world)).unwrap();
                is_connected = false;
            }
            if let Err(trouble) = pumped {
                troubles += 1;
                is_connected = false;
                assert!(
                    matches!(trouble, Trouble::Garbled(_) | Trouble::TooFarBehind),
                    "seed {seed}, round {round}: {trouble}"
                );
                if matches!(trouble, Trouble::TooFarBehind) {
                    bases += 1;
                    follower = Follower::new(&world, seed + 2000 + round);
                }
            }
            match random.below(16) {
                0 => {
                    failures += 1;
                    let left = world.disk.after_power_failure(Survival::ALL[random.below(3) as usize], seed);
                    let ledger = world.told();
                    link.end(&world);
                    longs += world.longs.get();
                    world = open(&left, &ledger);
                    link = Link::connect(&mut follower, &world).unwrap();
                    is_connected = true;
                }
                1 => {
                    let left = follower.disk.after_power_failure(Survival::ALL[random.below(3) as usize], seed);
                    let (before, point) = (follower.standby.epochs().0, follower.seen.point);
                    drop(follower);
                    follower = Follower::open(&left, Some(&world)).unwrap();
                    assert!(follower.standby.epochs().0 >= before, "what was received is durable");
                    assert!(follower.seen.point.is_none() || follower.seen.point >= point, "seed {seed}");
                    assert_eq!(follower.wrong(&world.told()), None, "seed {seed}, round {round}, opened");
                    is_connected = false;
                }
                2 => drop(follower.standby.following().checkpoint()),
                3 => is_connected = false,
                4 => world.log.write_down(),
                _ => {}
            }
            if !is_connected {
                link.end(&world);
                link = Link::connect(&mut follower, &world).unwrap();
            }
        }
        (points, longs) = (points + follower.seen.points, longs + world.longs.get());
        // It is a database, which has all that was received.
        let (whole, disk) = (follower.standby.epochs().0, follower.disk.after_restart());
        let found = look(&disk).unwrap().expect("it is one");
        assert_eq!(found.whole, whole);
        let ledger = world.told();
        let expected = replay(ledger.sealed.iter().filter(|it| it.epoch <= whole), &found.tables);
        assert_eq!(found.rows, expected, "seed {seed}, promoted");
    }
    println!(
        "{points} points, {troubles} connections that ended, {bases} new standbys, {failures} failures of primaries"
    );
    assert!(is_small(30) || (points > 100 && troubles > 10 && failures > 10 && longs > 0));
}

fn fresh() -> (World, Follower) {
    let world = open_world(&SimulatedDisk::new(1), &Ledger::default());
    world.commit(0, &[row(1, 1, 1)]).unwrap();
    world.idle(3, 20);
    let follower = Follower::new(&world, 2);
    (world, follower)
}

pub(crate) fn follow(follower: &mut Follower, world: &World) -> Result<usize, Trouble> {
    let mut link = Link::connect(follower, world)?;
    let pumped = link.pump(follower, world, &mut Noise::none());
    link.end(world);
    pumped
}

/// A frame is written and not synced when the standby asks, and then the power fails. Whether the standby has it.
fn ships_what_is_not_durable() -> bool {
    let (world, mut follower) = fresh();
    follow(&mut follower, &world).unwrap();
    let follower = Rc::new(RefCell::new(follower));
    let (asking, primary) = (Rc::clone(&follower), world.clone());
    interrupt(Pass::FrameWritten, move || {
        let _ = follow(&mut asking.borrow_mut(), &primary);
        primary.disk.plan(primary.disk.steps().len(), Fault::PowerFailure);
    });
    assert!(world.commit(1, &[row(1, 2, 7)]).is_err());
    let left = world.disk.after_power_failure(Survival::Nothing, 0);
    follower.borrow().standby.epochs().0 > look(&left).unwrap().expect("it was made").whole
}

/// A primary sends from a place where the standby is no more.
fn takes_what_does_not_follow() -> bool {
    let (world, mut follower) = fresh();
    let copy = open_world(&world.disk.after_restart(), &world.told());
    let before = follower.standby.hello().unwrap();
    world.commit(0, &[row(1, 2, 7)]).unwrap();
    world.commit(0, &[row(1, 3, 7)]).unwrap();
    follow(&mut follower, &world).unwrap();
    copy.commit(0, &[row(1, 2, 8)]).unwrap();
    follower.standby.hello().unwrap();
    let mut sender = Sender::new();
    sender.receive(&before).unwrap();
    let result = Link { sender, hearing: None, held: Vec::new() }.pump(&mut follower, &copy, &mut Noise::none());
    !matches!(result, Err(Trouble::OtherHistory)) || follower.wrong(&world.told()).is_some()
}

/// A standby is promoted, another one has seen that, and the old primary comes back.
fn believes_an_old_primary() -> bool {
    let (world, mut first) = fresh();
    let mut second = Follower::new(&world, 3);
    // The one that has most is promoted.
    follow(&mut first, &world).unwrap();
    let promoted = open_world(&first.disk.after_restart(), &Ledger { certain: 0, tables: Vec::new(), ..world.told() });
    promoted.commit(0, &[row(1, 2, 8)]).unwrap();
    follow(&mut second, &promoted).unwrap();
    assert_eq!(second.wrong(&promoted.told()), None);
    world.commit(0, &[row(1, 2, 7)]).unwrap();
    !matches!(follow(&mut second, &world), Err(Trouble::Fenced { .. }))
}

/// The old primary is opened again and again behind a promotion.
fn is_reached_by_its_old_primary() -> bool {
    let (world, first) = fresh();
    let promoted = open_world(&first.disk.after_restart(), &Ledger { certain: 0, tables: Vec::new(), ..world.told() });
    let again = open_world(&world.disk.after_restart(), &world.told());
    again.incarnation >= promoted.incarnation
}

/// The standby's disk fails when a frame is written. Whether its readers have seen what it has.
fn shows_what_it_may_lose() -> bool {
    let (world, mut follower) = fresh();
    world.commit(1, &[row(1, 2, 7)]).unwrap();
    world.idle(3, 20);
    follower.disk.plan(follower.disk.steps().len() + 1, Fault::FailForEver);
    let _ = follow(&mut follower, &world);
    let reopened = Follower::open(&follower.disk.after_power_failure(Survival::Nothing, 0), Some(&world)).unwrap();
    let at = |it: &Follower| it.seen.point.map(|point| (point.incarnation, point.consistent, point.epoch));
    at(&follower) > at(&reopened) && follower.seen.rows != reopened.seen.rows
}

/// A transaction is open while one of a higher order commits.
fn shows_what_is_open() -> bool {
    let (world, mut follower) = fresh();
    world.begin(0).unwrap();
    world.commit(1, &[row(1, 2, 7)]).unwrap();
    world.idle(3, 20);
    follow(&mut follower, &world).unwrap();
    follower.wrong(&world.told()).is_some()
}

/// The same, and tables change: their point has to cover the transaction.
fn shows_tables_too_early() -> bool {
    let (world, mut follower) = fresh();
    world.begin(0).unwrap();
    world.commit(1, &[row(1, 2, 7)]).unwrap();
    let order = world.told().sealed.last().map(|sealed| sealed.order).unwrap();
    world.define(BTreeSet::from([1, 2])).unwrap();
    world.commit(1, &[row(2, 5, 7)]).unwrap();
    follow(&mut follower, &world).unwrap();
    let point = follower.seen.point.unwrap();
    let is_early = follower.seen.tables.contains(&2) && point.consistent.timestamp < order;
    world.discard(0);
    world.log.write_down();
    follow(&mut follower, &world).unwrap();
    is_early || !follower.seen.tables.contains(&2) || follower.wrong(&world.told()).is_some()
}

fn knows_no_new_tables() -> bool {
    let (world, mut follower) = fresh();
    world.define(BTreeSet::from([1, 2])).unwrap();
    world.commit(1, &[row(2, 5, 7)]).unwrap();
    world.idle(3, 20);
    follow(&mut follower, &world).unwrap();
    !follower.seen.rows.contains_key(&(2, 5))
}

/// Nothing more is committed behind what could not be covered.
fn leaves_the_last_unseen() -> bool {
    let (world, mut follower) = fresh();
    world.begin(0).unwrap();
    world.commit(1, &[row(1, 2, 7)]).unwrap();
    world.idle(3, 20);
    world.discard(0);
    let _ = follow(&mut follower, &world);
    world.log.cover();
    follow(&mut follower, &world).unwrap();
    !follower.seen.rows.contains_key(&(1, 2))
}

/// Checkpoints are made while a standby is connected that has not been sent all.
fn loses_its_files() -> bool {
    let (world, mut follower) = fresh();
    let mut link = Link::connect(&mut follower, &world).unwrap();
    link.pump(&mut follower, &world, &mut Noise::none()).unwrap();
    for round in 0..3 {
        for number in 0..60 {
            world.commit(0, &[row(1, number, round)]).unwrap();
        }
        world.checkpoint().unwrap();
    }
    let pumped = link.pump(&mut follower, &world, &mut Noise::none());
    pumped.is_err() || follower.wrong(&world.told()).is_some()
}

/// Whether the primary gives a standby up that has said nothing for so long.
fn is_given_up(link: &mut Link, world: &World, millis: u64) -> bool {
    world.clock.advance_ns(millis * 1_000_000);
    let hearing = link.hearing.as_mut().expect("the standby was answered");
    matches!(hearing.receive(&[], source(world)), Err(Trouble::Lost(_)))
}

/// A standby is stopped, whose connection stays as it is. Whether the log is kept for it.
fn waits_for_a_silent_standby() -> bool {
    let (world, mut follower) = fresh();
    let mut link = Link::connect(&mut follower, &world).unwrap();
    link.pump(&mut follower, &world, &mut Noise::none()).unwrap();
    assert!(!is_given_up(&mut link, &world, 9_000) && world.log.replication().acknowledged.len() == 1);
    if !is_given_up(&mut link, &world, 2_000) {
        return true;
    }
    link.end(&world);
    assert_eq!(world.log.replication().acknowledged.len(), 0, "it counts no more");
    for round in 0..3 {
        (0..60).for_each(|number| world.commit(0, &[row(1, number, round)]).unwrap());
        world.checkpoint().unwrap();
    }
    // It goes on.
    !matches!(follow(&mut follower, &world), Err(Trouble::TooFarBehind)) || follower.wrong(&world.told()).is_some()
}

/// Nothing is committed for long. Whether a standby that is there is given up.
fn gives_up_a_living_standby() -> bool {
    let (world, mut follower) = fresh();
    let mut link = Link::connect(&mut follower, &world).unwrap();
    link.pump(&mut follower, &world, &mut Noise::none()).unwrap();
    (0..30).any(|_| {
        let message = link.sender.alive(source(&world));
        link.receive(&mut follower, &world, &message).is_err() || is_given_up(&mut link, &world, 1_000)
    })
}

/// A standby is interrupted before it is whole. Whether it is taken for a database.
fn is_a_database_too_early() -> bool {
    let (world, _) = fresh();
    for number in 0..60 {
        world.commit(0, &[row(1, number, 3)]).unwrap();
    }
    world.checkpoint().unwrap();
    let disk = SimulatedDisk::new(5);
    assert!(!send_base(&disk, &world, 3).unwrap());
    let left = disk.after_power_failure(Survival::Everything, 0);
    let is_taken = !matches!(look(&left.after_restart()), Ok(None));
    // It begins anew.
    is_taken || !send_base(&left, &world, usize::MAX).unwrap() || Follower::open(&left, Some(&world)).is_err()
}

/// Tables come, and the power of the standby fails at any operation. Whether it takes rows by other tables than theirs then.
fn mixes_tables() -> bool {
    for step in 0..60 {
        let (world, mut follower) = fresh();
        follow(&mut follower, &world).unwrap();
        world.define(BTreeSet::from([1, 2])).unwrap();
        world.commit(1, &[row(2, 5, 7)]).unwrap();
        world.idle(3, 20);
        follower.disk.plan(follower.disk.steps().len() + step, Fault::PowerFailure);
        let followed = follow(&mut follower, &world);
        for left in follower.disk.outcomes(0..2) {
            let Ok(mut again) = Follower::open(&left, Some(&world)) else { return true };
            let is_whole = follow(&mut again, &world).is_ok() && again.seen.rows.contains_key(&(2, 5));
            if !is_whole || again.wrong(&world.told()).is_some() {
                return true;
            }
        }
        if followed.is_ok() {
            return false;
        }
    }
    panic!("it has so few operations");
}

/// Epochs of several frames begin in one log file and end in the next. Whether the standby loses power, and with it what it has said it has.
fn loses_a_part_of_an_epoch() -> bool {
    let (world, mut follower) = fresh();
    follow(&mut follower, &world).unwrap();
    for round in 0..8 {
        for worker in 0..3 {
            world.begin(worker).unwrap();
            for number in 0..60 {
                let (key, done) = row(1, 1000 * round + 100 * worker as u64 + number, u64::MAX - number);
                world.stage(worker, key, done).unwrap();
            }
        }
        let tickets = [0, 1, 2].map(|worker| world.seal(worker).expect("nothing conflicts with it"));
        tickets.into_iter().for_each(|ticket| world.wait(ticket).unwrap());
        follow(&mut follower, &world).unwrap();
        let left = follower.disk.after_power_failure(Survival::Nothing, round);
        let whole = follower.standby.epochs().0;
        if Follower::open(&left, Some(&world)).map_or(0, |again| again.standby.epochs().0) < whole {
            return true;
        }
    }
    false
}

#[test]
fn an_epoch_in_two_files_is_durable() {
    assert!(!loses_a_part_of_an_epoch());
    let _without = leave_out(Step::SyncLeftFile);
    assert!(loses_a_part_of_an_epoch(), "no epoch lies in two files");
}

/// A standby's manifest has a checkpoint that was made while it was about to be written for something else.
#[test]
fn a_checkpoint_beside_other_tables_counts() {
    let (world, mut follower) = fresh();
    (0..60).for_each(|number| world.commit(0, &[row(1, number, 3)]).unwrap());
    follow(&mut follower, &world).unwrap();
    world.define(BTreeSet::from([1, 2])).unwrap();
    world.commit(1, &[row(2, 5, 7)]).unwrap();
    world.idle(3, 20);
    let following = Arc::clone(follower.standby.following());
    interrupt(Pass::StandbyWrites, move || following.checkpoint().unwrap());
    follow(&mut follower, &world).unwrap();
    let again = Follower::open(&follower.disk.after_restart(), Some(&world)).unwrap();
    assert_eq!(again.seen.rows, follower.seen.rows);
    assert_eq!(again.wrong(&world.told()), None);
}

/// Frames that have come together are made durable together, and applied in few steps.
#[test]
fn what_comes_together_is_synced_once() {
    let (world, mut follower) = fresh();
    follow(&mut follower, &world).unwrap();
    (0..200).for_each(|number| world.commit(0, &[row(1, number, 3)]).unwrap());
    world.idle(3, 20);
    let (points, steps) = (follower.seen.points, follower.disk.steps().len());
    follower.seen.told = Some(world.told());
    let mut link = Link::connect(&mut follower, &world).unwrap();
    let mut noise = Noise { alone: 0.0, ..Noise::none() };
    let count = link.pump(&mut follower, &world, &mut noise).unwrap();
    assert_eq!(follower.wrong(&world.told()), None);
    let steps = follower.disk.steps().split_off(steps);
    let syncs =
        steps.iter().filter(|step| matches!(step.operation, Operation::Sync | Operation::SyncDirectory)).count();
    let files = steps.iter().filter(|step| step.operation == Operation::Create).count();
    assert!(count > 200 && files > 10, "{count} messages, {files} files");
    // One of each file, and of the directory with its name.
    assert!(syncs <= 2 * files + 2, "{syncs} syncs for {files} files");
    let shown = follower.seen.points - points;
    assert!((2..=40).contains(&shown), "{shown} steps");
}

/// Tables come and go at a primary, which is opened again before a standby has heard of that. Whether the standby lacks rows if it is promoted on the way.
fn lacks_rows_when_promoted() -> bool {
    for messages in 0.. {
        let (world, mut follower) = fresh();
        follow(&mut follower, &world).unwrap();
        (0..3).for_each(|number| world.commit(0, &[row(1, number, 7)]).unwrap());
        world.define(BTreeSet::from([2])).unwrap();
        world.commit(0, &[row(2, 5, 7)]).unwrap();
        let others = world.told().sealed.last().map(|sealed| sealed.epoch).unwrap();
        let again = open_world(&world.disk.after_restart(), &world.told());
        let mut link = Link::connect(&mut follower, &again).unwrap();
        let received = (0..messages).try_for_each(|_| {
            let Some(message) = link.sender.next(source(&again))? else {
                return Err(Trouble::Lost("all is sent".to_owned()));
            };
            follower.receive(&message)
        });
        link.end(&again);
        let found = look(&follower.disk.after_restart()).unwrap().expect("it is a database");
        let tables = BTreeSet::from(if found.whole < others { [1] } else { [2] });
        let ledger = again.told();
        let expected = replay(ledger.sealed.iter().filter(|it| it.epoch <= found.whole), &tables);
        if found.rows != expected || found.tables != tables {
            return true;
        }
        match received {
            Ok(()) => {}
            Err(Trouble::TooFarBehind) => {
                assert!(follower.standby.has_ended(), "no other connection does better");
                let disk = follower.disk.after_restart();
                assert!(send_base(&disk, &again, usize::MAX).unwrap(), "it begins anew");
                let mut anew = Follower::open(&disk, Some(&again)).unwrap();
                follow(&mut anew, &again).unwrap();
                return anew.wrong(&again.told()).is_some() || !anew.seen.rows.contains_key(&(2, 5));
            }
            Err(_) => return false,
        }
    }
    unreachable!("it has so few messages")
}

/// The same without a change of tables: there the standby goes on.
#[test]
fn a_primary_that_is_opened_again_is_followed() {
    let (world, mut follower) = fresh();
    follow(&mut follower, &world).unwrap();
    (0..3).for_each(|number| world.commit(0, &[row(1, number, 7)]).unwrap());
    let again = open_world(&world.disk.after_restart(), &world.told());
    again.commit(0, &[row(1, 9, 7)]).unwrap();
    again.idle(3, 20);
    follow(&mut follower, &again).unwrap();
    assert_eq!(follower.wrong(&again.told()), None);
    assert!(follower.seen.rows.contains_key(&(1, 9)));
}

/// The standby of an old primary has more than the one that was promoted: it stops following.
#[test]
fn a_standby_with_another_history_ends() {
    let (world, first) = fresh();
    let mut second = Follower::new(&world, 3);
    world.commit(1, &[row(1, 2, 7)]).unwrap();
    world.idle(3, 20);
    follow(&mut second, &world).unwrap();
    let promoted = open_world(&first.disk.after_restart(), &Ledger { certain: 0, tables: Vec::new(), ..world.told() });
    promoted.commit(0, &[row(1, 2, 8)]).unwrap();
    let before = second.seen.rows.clone();
    for _ in 0..2 {
        assert!(matches!(follow(&mut second, &promoted), Err(Trouble::OtherHistory)));
        assert!(second.standby.has_ended());
    }
    assert_eq!(second.seen.rows, before, "it is read all the same");
}

/// A standby's disk has no room for the next log file, and then it has.
#[test]
fn a_standby_whose_disk_was_full_goes_on() {
    let (world, mut follower) = fresh();
    follow(&mut follower, &world).unwrap();
    (0..30).for_each(|number| world.commit(0, &[row(1, number, 3)]).unwrap());
    world.idle(3, 20);
    follower.disk.set_room(Some(follower.disk.used()));
    for _ in 0..3 {
        let trouble = follow(&mut follower, &world).unwrap_err();
        assert!(matches!(&trouble, Trouble::Files(error) if error.to_string().contains("space")), "{trouble}");
        assert_eq!(follower.wrong(&world.told()), None);
    }
    follower.disk.set_room(None);
    follow(&mut follower, &world).unwrap();
    assert_eq!(follower.wrong(&world.told()), None);
    assert!(follower.seen.rows.contains_key(&(1, 29)));
}

/// A transaction is open at the primary for so long that more waits for it than a standby keeps.
#[test]
fn what_waits_for_open_transactions_is_bounded() {
    let (world, mut follower) = fresh();
    let small = Settings { log: Options { memory_bytes: 8 << 10, ..Options::tiny() }, ..settings() };
    follower.disk = follower.disk.after_restart();
    let mut opening = StandbyOpening::begin(&Files::new(follower.disk.clone()), &small, &|_| ()).unwrap();
    opening.load(&Loaded::default()).unwrap();
    (follower.standby, follower.showing) = opening.finish();
    world.begin(0).unwrap();
    let mut number = 0;
    while follower.showing.lapse().is_none() {
        number += 1;
        assert!(number < 1000, "it keeps everything");
        world.commit(1, &[row(1, 100 + number, 7)]).unwrap();
        follow(&mut follower, &world).unwrap();
    }
    world.discard(0);
    world.log.write_down();
    follow(&mut follower, &world).unwrap();
    assert_eq!(follower.wrong(&world.told()), None, "it shows the last point before");
    assert!(!follower.seen.rows.contains_key(&(1, 101)));
    // It has all that was received.
    let again = Follower::open(&follower.disk.after_restart(), Some(&world)).unwrap();
    assert_eq!(again.wrong(&world.told()), None);
    assert!(again.seen.rows.contains_key(&(1, 100 + number)));
}

/// A standby of a primary whose log has gone on without it.
fn behind() -> (World, SimulatedDisk) {
    let (world, mut follower) = fresh();
    follow(&mut follower, &world).unwrap();
    for round in 0..3 {
        (0..60).for_each(|number| world.commit(0, &[row(1, number, round)]).unwrap());
        world.checkpoint().unwrap();
    }
    assert!(matches!(follow(&mut follower, &world), Err(Trouble::TooFarBehind)));
    // It stays what it was, for whoever reads it or promotes it.
    assert_eq!(follower.wrong(&world.told()), None);
    assert!(look(&follower.disk.after_restart()).unwrap().is_some());
    (world, follower.disk.after_restart())
}

fn stays_behind() -> bool {
    let (world, disk) = behind();
    // Its primary is not there, and then the connection is lost.
    assert!(look(&disk.after_restart()).unwrap().is_some());
    let _ = send_base(&disk, &world, 0).unwrap();
    assert!(look(&disk.after_restart()).unwrap().is_some());
    let _ = send_base(&disk, &world, 3).unwrap();
    send_base(&disk, &world, usize::MAX).unwrap();
    let mut follower = Follower::open(&disk, Some(&world)).unwrap();
    follow(&mut follower, &world).is_err() || follower.wrong(&world.told()).is_some()
}

/// A standby that begins anew is told the address of another database, or of a primary whose place another one has taken.
fn gives_up_what_it_has() -> bool {
    let (world, disk) = behind();
    let promoted = open_world(&disk.after_restart(), &Ledger { certain: 0, tables: Vec::new(), ..world.told() });
    let mut second = Follower::new(&promoted, 3);
    for round in 0..3 {
        (0..60).for_each(|number| promoted.commit(0, &[row(1, number, round)]).unwrap());
        promoted.checkpoint().unwrap();
    }
    assert!(matches!(follow(&mut second, &promoted), Err(Trouble::TooFarBehind)));
    let disk = second.disk.after_restart();
    let before = look(&disk).unwrap().expect("it is there");
    let sent = send_base(&disk, &world, usize::MAX);
    let after = look(&disk).unwrap().expect("it is there");
    !matches!(sent, Err(Trouble::Fenced { .. })) || before.rows != after.rows
}

/// The power of a standby fails at every operation while it follows, and again while it is opened: it goes on from what it has, and has all in the end.
#[test]
fn a_standby_survives_two_power_failures() {
    let trials = trials();
    for seed in runs(1) {
        let primary = || {
            let (world, follower) = fresh();
            (0..10).for_each(|number| world.commit(0, &[row(1, number, seed)]).unwrap());
            world.define(BTreeSet::from([1, 2])).unwrap();
            (0..10).for_each(|number| world.commit(1, &[row(2, number, seed)]).unwrap());
            world.idle(3, 20);
            (world, follower)
        };
        let operations = {
            let (world, mut follower) = primary();
            let before = follower.disk.steps().len();
            follow(&mut follower, &world).unwrap();
            follower.disk.steps().len() - before
        };
        for first in (0..operations).step_by(stride(2)) {
            let (world, mut follower) = primary();
            follower.disk.plan(follower.disk.steps().len() + first, Fault::PowerFailure);
            let _ = follow(&mut follower, &world);
            let received = follower.seen.point;
            let goes_on = |left: &SimulatedDisk| {
                let mut again = Follower::open(left, Some(&world)).unwrap();
                let is_behind = again.seen.point < received;
                follow(&mut again, &world).unwrap();
                let is_whole = again.standby.epochs().0 == world.log.durable();
                let wrong = again.wrong(&world.told());
                wrong.or((is_behind || !is_whole).then(|| format!("behind: {is_behind}, whole: {is_whole}")))
            };
            let at = At { seed, operations: &[first] };
            trials.crash(&follower.disk, at, seeds(1), |left| {
                for second in (first % 3..20).step_by(7) {
                    let again = left.after_restart();
                    again.plan(second, Fault::PowerFailure);
                    let _ = Follower::open(&again, Some(&world)).map(|mut it| follow(&mut it, &world));
                    let at = At { seed, operations: &[first, second] };
                    trials.crash(&again, at, seeds(1), |left| goes_on(left));
                }
                goes_on(left)
            });
        }
        assert!(operations > 5, "{operations}");
    }
}

/// What was promoted is no longer a standby's, even if the power fails.
#[test]
fn what_was_promoted_stays() {
    let (world, disk) = behind();
    let promoted = open_world(&disk, &Ledger { certain: 0, tables: Vec::new(), ..world.told() });
    promoted.commit(0, &[row(1, 2, 8)]).unwrap();
    let left = disk.after_power_failure(Survival::Nothing, 0);
    assert!(matches!(send_base(&left, &world, usize::MAX), Err(Trouble::Files(_))));
    assert!(look(&left).unwrap().is_some_and(|found| found.rows.contains_key(&(1, 2))));
}

fn killer_of(step: ShipStep) -> fn() -> bool {
    match step {
        ShipStep::AwaitDurable => ships_what_is_not_durable,
        ShipStep::FollowPredecessors => takes_what_does_not_follow,
        ShipStep::RefuseLower => believes_an_old_primary,
        ShipStep::AppendFirst => shows_what_it_may_lose,
        ShipStep::KeepOpen => shows_what_is_open,
        ShipStep::CoverDefinitions => shows_tables_too_early,
        ShipStep::SendTables => knows_no_new_tables,
        ShipStep::KnowTables => lacks_rows_when_promoted,
        ShipStep::MarkUnknown => mixes_tables,
        ShipStep::CoverLast => leaves_the_last_unseen,
        ShipStep::HoldFiles => loses_its_files,
        ShipStep::ManifestsLast => is_a_database_too_early,
        ShipStep::MarkBehind => stays_behind,
        ShipStep::KeepOthers => gives_up_what_it_has,
        ShipStep::RaiseTerm => is_reached_by_its_old_primary,
        ShipStep::AwaitReplicas => replicas::answers_too_early,
        ShipStep::CountOnce => replicas::counts_a_standby_twice,
        ShipStep::AcknowledgeDurable => replicas::has_less_than_it_says,
        ShipStep::AnswerAlive => gives_up_a_living_standby,
        ShipStep::EndSilent => waits_for_a_silent_standby,
        ShipStep::CompareFirst => replicas::counts_another_history,
    }
}

each_step_is_needed! { ShipStep, killer_of:
    AwaitDurable FollowPredecessors RefuseLower AppendFirst KeepOpen CoverDefinitions SendTables KnowTables MarkUnknown CoverLast HoldFiles ManifestsLast MarkBehind KeepOthers RaiseTerm AwaitReplicas CountOnce
    AcknowledgeDurable AnswerAlive EndSilent CompareFirst
}
