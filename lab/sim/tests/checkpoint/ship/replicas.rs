//! Answers that wait for standbys: what was answered is at so many of them, whatever either side loses.

use polychron_engine::redo::{Log as _, Order, Ticket};

use super::*;

fn open(disk: &SimulatedDisk, ledger: &Ledger, replicas: usize) -> World {
    World::open_replicated(disk, ledger, replicas)
}

/// Seals a transaction of one row, and has it durable here.
fn seal(world: &World, number: u64, value: u64) -> Ticket {
    world.begin(0).unwrap();
    let (key, done) = row(1, number, value);
    world.stage(0, key, done).unwrap();
    let ticket = world.seal(0).expect("nothing conflicts with it");
    world.log.flush().unwrap();
    ticket
}

/// Whether its answer leaves.
fn is_answered(world: &World, ticket: Ticket) -> bool {
    match world.log.wait(ticket) {
        Ok(()) => true,
        Err(polychron_base::Error::NotReplicated(_)) => false,
        Err(error) => panic!("{error}"),
    }
}

/// The epoch up to which so many standbys would have everything after a power failure, if one of them took over.
fn at_so_many(followers: &[Follower], replicas: usize, seed: u64) -> u64 {
    let whole = |follower: &Follower| {
        let left = follower.disk.after_power_failure(Survival::Nothing, seed);
        look(&left).unwrap().map_or(0, |found| found.whole)
    };
    let mut wholes: Vec<u64> = followers.iter().map(whole).collect();
    wholes.sort_unstable();
    wholes[followers.len() - replicas]
}

/// Standbys come, go, lose power and connect again while the primary believes in the connection before; messages are garbled. At any time the primary and
/// its disk might vanish, and all standbys lose power.
#[test]
fn what_was_answered_is_at_so_many_standbys() {
    let (mut answers, mut waits) = (0, 0);
    for seed in runs(12) {
        let (mut random, replicas) = (Random::from_seed(seed), 1 + seed as usize % 2);
        let chance = if seed % 3 == 0 { 0.0 } else { 0.05 };
        let mut noise = Noise { random: Random::stream(seed, 1), chance, alone: 0.4 };
        let mut world = open(&SimulatedDisk::new(seed), &Ledger::default(), replicas);
        assert!(!is_answered(&world, world.log.sealed()), "nobody has what an opening has found");
        let mut followers: Vec<Follower> = (1..=3).map(|number| Follower::new(&world, 1000 * number + seed)).collect();
        let mut links: Vec<Link> = followers.iter_mut().map(|it| Link::connect(it, &world).unwrap()).collect();
        let (mut open_tickets, mut answered, mut number) = (Vec::new(), 0, 0);
        for round in 0..40 {
            for _ in 0..random.below(4) {
                number += 1;
                open_tickets.push(seal(&world, random.below(9), number));
            }
            open_tickets.retain(|ticket| {
                let is_answered = is_answered(&world, *ticket);
                answered = if is_answered { answered.max(ticket.0) } else { answered };
                !is_answered
            });
            waits += open_tickets.len();
            // Who has read up to an order.
            let told = world.told();
            if let Some(read) = told.sealed.get(random.below(1 + told.sealed.len() as u64) as usize) {
                let is_read = world.log.ticket(Order::from(read.order)) == Ticket::DONE;
                let seen = told.sealed.iter().filter(|it| is_read && it.incarnation == world.incarnation);
                let seen = seen.filter(|it| it.order <= read.order).map(|it| it.epoch).max();
                answered = answered.max(seen.unwrap_or(0));
            }
            let at = random.below(3) as usize;
            if random.chance(0.7) && links[at].pump(&mut followers[at], &world, &mut noise).is_err() {
                links[at] = Link::connect(&mut followers[at], &world).unwrap();
            }
            match random.below(12) {
                // The primary does not notice that the connection before has ended.
                0 => links[at] = Link::connect(&mut followers[at], &world).unwrap(),
                1 => {
                    let left = followers[at].disk.after_power_failure(Survival::ALL[round as usize % 3], seed);
                    followers[at] = Follower::open(&left, Some(&world)).unwrap();
                    let link = std::mem::replace(&mut links[at], Link::connect(&mut followers[at], &world).unwrap());
                    link.end(&world);
                }
                2 => {
                    let left = world.disk.after_power_failure(Survival::ALL[round as usize % 3], seed);
                    world = open(&left, &world.told(), replicas);
                    open_tickets.clear();
                    links = followers.iter_mut().map(|it| Link::connect(it, &world).unwrap()).collect();
                }
                3 => world.log.cover(),
                _ => {}
            }
            answers = answers.max(answered);
            let kept = at_so_many(&followers, replicas, seed);
            assert!(kept >= answered, "seed {seed}, round {round}: {answered} was answered, and {kept} is kept");
        }
        let is_answered_at_last = |world: &World, followers: &mut [Follower], ticket| {
            for follower in followers {
                follow_on(follower, world);
            }
            is_answered(world, ticket)
        };
        assert!(is_answered_at_last(&world, &mut followers, seal(&world, 1, 1)), "seed {seed}");
        // One of them takes over, and has what was answered.
        let found = look(&followers[0].disk.after_restart()).unwrap().expect("it is a database");
        let ledger = world.told();
        assert_eq!(found.rows, replay(ledger.sealed.iter().filter(|it| it.epoch <= found.whole), &found.tables));
    }
    assert!(is_small(12) || (answers > 10 && waits > 20), "{answers}, {waits}");
}

/// Connects, and has all sent. The connection stays, as far as the primary knows.
fn follow_on(follower: &mut Follower, world: &World) {
    Link::connect(follower, world).unwrap().pump(follower, world, &mut Noise::none()).unwrap();
}

fn with(replicas: usize) -> (World, Follower) {
    let world = open(&SimulatedDisk::new(1), &Ledger::default(), replicas);
    let follower = Follower::new(&world, 2);
    (world, follower)
}

/// A standby is connected that was sent nothing of it.
pub(super) fn answers_too_early() -> bool {
    let (world, mut follower) = with(1);
    follow_on(&mut follower, &world);
    let ticket = seal(&world, 1, 1);
    let is_early = is_answered(&world, ticket);
    follow_on(&mut follower, &world);
    assert!(is_answered(&world, ticket));
    is_early
}

/// Two are wanted, and one connects again before the primary has noticed that its first connection is lost.
pub(super) fn counts_a_standby_twice() -> bool {
    let (world, mut follower) = with(2);
    let ticket = seal(&world, 1, 1);
    follow_on(&mut follower, &world);
    follow_on(&mut follower, &world);
    let disk = follower.disk.after_restart();
    let mut again = Follower::open(&disk, Some(&world)).unwrap();
    follow_on(&mut again, &world);
    is_answered(&world, ticket)
}

/// A standby's disk fails when it is to be written.
pub(super) fn has_less_than_it_says() -> bool {
    let (world, mut follower) = with(1);
    follow_on(&mut follower, &world);
    let ticket = seal(&world, 1, 1);
    assert!(!is_answered(&world, ticket));
    follower.disk.plan(follower.disk.steps().len() + 1, Fault::FailForEver);
    let pumped = Link::connect(&mut follower, &world).unwrap().pump(&mut follower, &world, &mut Noise::none());
    assert!(pumped.is_err());
    is_answered(&world, ticket) && at_so_many(&[follower], 1, 0) < ticket.0
}

/// A standby of the old primary has more than the one that was promoted, which may no longer have the log by which they could be told apart.
pub(super) fn counts_another_history() -> bool {
    (1..12).any(|commits| {
        let (world, first) = with(0);
        let mut second = Follower::new(&world, 3);
        let ticket = seal(&world, 1, 1);
        assert!(is_answered(&world, ticket));
        follow_on(&mut second, &world);
        let told = Ledger { certain: 0, tables: Vec::new(), ..world.told() };
        let promoted = open(&first.disk.after_restart(), &told, 1);
        let opened = promoted.log.sealed();
        assert!(opened <= ticket);
        for number in 0..commits {
            seal(&promoted, number, 2);
        }
        promoted.checkpoint().unwrap();
        let mut link = Link::connect(&mut second, &promoted).unwrap();
        let followed = link.pump(&mut second, &promoted, &mut Noise::none());
        assert!(matches!(followed, Err(Trouble::OtherHistory | Trouble::TooFarBehind)), "{followed:?}");
        is_answered(&promoted, opened)
    })
}
