//! Two damages at a time, of a backup, the archive and the log of its source, and of a standby: what is restored or shown is a prefix, or there is an error, and
//! never are there rows that nobody wrote.

use std::collections::BTreeSet;

use polychron_base::random::Random;
use polychron_log::disk::Files;
use polychron_sim::{At, SimulatedDisk};

use crate::archive::{Kept, fill, wrong};
use crate::faults::row;
use crate::ledger::replay;
use crate::ship::{Follower, follow, open_world};
use crate::world::look;
use crate::{Ledger, is_small, runs, trials};

/// A backup that was made between two checkpoints, with an archive and a log behind it; tables were made and dropped on the way.
fn kept() -> (Kept, Ledger) {
    let (kept, world) = Kept::new(1);
    fill(&world, 0, 20);
    world.define(BTreeSet::from([1, 2])).unwrap();
    (0..10).for_each(|key| world.commit(0, &[row(2, key, key)]).unwrap());
    world.checkpoint().unwrap();
    // Some of it is carried.
    world.begin(0).unwrap();
    fill(&world, 20, 10);
    let backup = SimulatedDisk::new(3);
    world.checkpoints.back_up(&world.log, &world.manifests, &Files::new(backup.clone())).unwrap();
    world.discard(0);
    fill(&world, 30, 10);
    world.define(BTreeSet::from([1, 2, 3])).unwrap();
    (0..10).for_each(|key| world.commit(0, &[row(3, key, key)]).unwrap());
    world.checkpoint().unwrap();
    fill(&world, 0, 20);
    world.log.close().unwrap();
    world.checkpoints.archive(&world.log, &world.manifests);
    assert_eq!(*world.failures.lock().unwrap(), Vec::<String>::new());
    let ledger = world.told();
    (Kept { backup, ..kept }, ledger)
}

#[test]
fn two_damages_restore_no_rows_that_nobody_wrote() {
    let (kept, ledger) = kept();
    let backed_up = look(&kept.backup.after_restart()).unwrap().expect("it is a database").rows;
    let (trials, mut noticed, mut harmless, mut as_it_was) = (trials(), 0, 0, 0);
    for seed in runs(60) {
        let random = &mut Random::from_seed(seed);
        let [backup, archive, disk] = [&kept.backup, &kept.archive, &kept.disk].map(SimulatedDisk::after_restart);
        // Every other one is of the backup.
        let damaged = [(); 2].map(|()| [0, 0, 1, 2][random.below(4) as usize]);
        let damages = damaged.map(|which| (which, [&backup, &archive, &disk][which].damage_any(random)));
        let left = Kept { backup, archive: archive.clone(), disk: disk.clone() };
        let complaint = match left.restore_with(&archive, &disk, u64::MAX) {
            Err(_) => {
                noticed += 1;
                None
            }
            Ok((to, restored)) if restored.consistent.is_none() => {
                as_it_was += 1;
                let found = look(&to).map(|found| found.expect("it was made").rows);
                (found.as_ref() != Ok(&backed_up)).then(|| format!("{found:?} in place of {backed_up:?}"))
            }
            Ok((to, restored)) => {
                harmless += 1;
                wrong(&to, &ledger, &restored)
            }
        };
        trials.check(At { seed, operations: &[] }, damages, complaint);
    }
    println!("{noticed} pairs were noticed, {harmless} did no harm, and {as_it_was} left the backup as it was");
    assert!(is_small(60) || (noticed > 15 && harmless > 5));
}

/// What is wrong with a standby that is opened, goes on to follow its primary, and is opened as a database; `None` for errors, too, which are counted.
fn complaint(left: &SimulatedDisk, world: &crate::world::World, noticed: &mut usize) -> Option<String> {
    let ledger = world.told();
    let Ok(mut follower) = Follower::open(left, Some(world)) else {
        *noticed += 1;
        return None;
    };
    let shown = follower.wrong(&ledger);
    *noticed += usize::from(follow(&mut follower, world).is_err());
    let shown = shown.or_else(|| follower.wrong(&ledger));
    drop(follower);
    match look(&left.after_restart()) {
        Ok(Some(found)) if shown.is_none() => {
            let expected = replay(ledger.sealed.iter().filter(|it| it.epoch <= found.whole), &found.tables);
            (found.rows != expected).then(|| format!("{:?} in place of {expected:?} in the end", found.rows))
        }
        _ => shown,
    }
}

#[test]
fn two_damages_have_a_standby_show_no_rows_that_nobody_wrote() {
    let world = open_world(&SimulatedDisk::new(1), &Ledger::default());
    fill(&world, 0, 20);
    let mut follower = Follower::new(&world, 2);
    world.define(BTreeSet::from([1, 2])).unwrap();
    (0..10).for_each(|key| world.commit(0, &[row(2, key, key)]).unwrap());
    world.idle(3, 20);
    follow(&mut follower, &world).unwrap();
    follower.standby.following().checkpoint().unwrap();
    world.begin(0).unwrap();
    fill(&world, 20, 6);
    world.idle(3, 20);
    follow(&mut follower, &world).unwrap();
    let disk = follower.disk.after_restart();
    assert!(disk.files().iter().any(|(path, _)| path == "standby"));
    world.discard(0);
    fill(&world, 26, 4);
    world.idle(3, 20);
    let (trials, mut noticed, mut opened) = (trials(), 0, 0);
    for seed in runs(200) {
        let (left, random) = (disk.after_restart(), &mut Random::from_seed(seed));
        let damages = [(); 2].map(|()| left.damage_any(random));
        let before = noticed;
        trials.check(At { seed, operations: &[] }, damages, complaint(&left, &world, &mut noticed));
        opened += usize::from(noticed == before);
    }
    println!("{noticed} pairs were noticed, and {opened} did no harm");
    assert!(is_small(200) || (noticed > 40 && opened > 20));
}
