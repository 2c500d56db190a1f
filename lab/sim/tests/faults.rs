//! What the simulated disk does to those who rely on more than a disk promises.

use std::collections::{BTreeMap, BTreeSet};

use polychron_base::random::Random;
use polychron_base::sizes::scaled;
use polychron_log::disk::{Access, BLOCK, Buffer, Cause, Error, Files, Operation};
use polychron_sim::{Damage, Fault, SimulatedDisk, SimulatedFile, Survival};

type File = polychron_log::disk::File<SimulatedFile>;

const B: u64 = BLOCK as u64;

fn filled(blocks: usize, fill: u8) -> Buffer {
    let mut buffer = Buffer::zeroed(blocks * BLOCK);
    buffer.fill(fill);
    buffer
}

fn read(file: &File, block: u64) -> Result<Vec<u8>, Error> {
    let mut buffer = Buffer::zeroed(BLOCK);
    file.read_at(block * B, &mut buffer).map(|()| buffer.to_vec())
}

fn files(disk: &SimulatedDisk) -> Files<SimulatedDisk> {
    Files::new(disk.clone())
}

/// A disk with a file of so many blocks, all of them durable and of ones.
fn with_file(blocks: usize) -> (SimulatedDisk, File) {
    let disk = SimulatedDisk::new(1);
    let file = files(&disk).create("a", blocks as u64 * B).unwrap();
    file.write_at(0, &filled(blocks, 1)).unwrap();
    file.sync().unwrap();
    files(&disk).sync_directory("").unwrap();
    (disk, file)
}

fn reopened(disk: &SimulatedDisk, survival: Survival, seed: u64) -> File {
    files(&disk.after_power_failure(survival, seed)).open("a", Access::Write).unwrap()
}

#[test]
fn what_is_synced_survives() {
    let (disk, file) = with_file(3);
    file.write_at(B, &filled(1, 2)).unwrap();
    file.sync().unwrap();
    for survival in Survival::ALL {
        for seed in 0..20 {
            let file = reopened(&disk, survival, seed);
            assert_eq!(read(&file, 0).unwrap(), filled(1, 1).to_vec(), "{survival:?}");
            assert_eq!(read(&file, 1).unwrap(), filled(1, 2).to_vec(), "{survival:?}");
        }
    }
}

/// Each kind of survival leaves what it says, and over some seeds more than one thing.
#[test]
fn what_is_not_synced_survives_in_part() {
    let (disk, file) = with_file(2);
    (2..=4).for_each(|fill| file.write_at(0, &filled(2, fill)).unwrap());
    let mut seen: BTreeMap<&str, BTreeSet<Vec<u8>>> = BTreeMap::new();
    for survival in Survival::ALL {
        for seed in 0..200 {
            let file = reopened(&disk, survival, seed);
            let blocks = [read(&file, 0).unwrap(), read(&file, 1).unwrap()];
            let sectors: Vec<&[u8]> = blocks.iter().flat_map(|block| block.chunks(512)).collect();
            let is_one = |bytes: &[u8]| bytes.iter().all(|byte| *byte == bytes[0]);
            assert!(blocks.iter().flatten().all(|byte| (1..=4).contains(byte)));
            match survival {
                Survival::Nothing => assert!(blocks.iter().flatten().all(|byte| *byte == 1)),
                Survival::Everything => assert!(blocks.iter().flatten().all(|byte| *byte == 4)),
                Survival::Prefix => {
                    // The second block of a write follows the first.
                    let (first, second) = (blocks[0].iter().max().unwrap(), blocks[1].iter().max().unwrap());
                    assert!(first >= second, "{blocks:?}");
                }
                Survival::Blocks => assert!(blocks.iter().all(|block| is_one(block))),
                Survival::Sectors => assert!(sectors.iter().all(|sector| is_one(sector))),
                Survival::Bytes => {}
            }
            seen.entry(survival_name(survival)).or_default().insert(blocks.concat());
        }
    }
    let count = |survival| seen[survival_name(survival)].len();
    assert_eq!((count(Survival::Nothing), count(Survival::Everything)), (1, 1));
    assert!(count(Survival::Prefix) > 20);
    // All pairs of four states.
    assert_eq!(count(Survival::Blocks), 16);
    assert!(count(Survival::Sectors) > 100 && count(Survival::Bytes) > 100);
}

fn survival_name(survival: Survival) -> &'static str {
    ["nothing", "everything", "prefix", "blocks", "sectors", "bytes"][survival as usize]
}

#[test]
fn names_are_durable_by_a_sync_of_their_directory_alone() {
    let disk = SimulatedDisk::new(1);
    files(&disk).create("a", B).unwrap().sync().unwrap();
    let listed = |disk: &SimulatedDisk| files(disk).list("").unwrap().len();
    assert_eq!(listed(&disk.after_power_failure(Survival::Nothing, 0)), 0);
    let counts: BTreeSet<usize> =
        (0..50).map(|seed| listed(&disk.after_power_failure(Survival::Blocks, seed))).collect();
    assert_eq!(counts, BTreeSet::from([0, 1]));
    files(&disk).sync_directory("").unwrap();
    files(&disk).remove("a").unwrap();
    assert_eq!(listed(&disk.after_power_failure(Survival::Nothing, 0)), 1, "the removal is not durable");
    // A directory's own names are no use without its own.
    files(&disk).create_directory("d").unwrap();
    files(&disk).create("d/b", B).unwrap();
    files(&disk).sync_directory("d").unwrap();
    let left = files(&disk.after_power_failure(Survival::Nothing, 0));
    assert_eq!(left.list("d").unwrap_err().cause, Cause::NotFound);
    files(&disk).sync_directory("").unwrap();
    assert_eq!(files(&disk.after_power_failure(Survival::Nothing, 0)).list("d").unwrap().len(), 1);
}

/// Names that are changed one after the other may survive in another order.
#[test]
fn names_are_reordered() {
    let disk = SimulatedDisk::new(1);
    files(&disk).create("a", 0).unwrap();
    files(&disk).create("b", 0).unwrap();
    let names = |seed, survival| {
        let listed = files(&disk.after_power_failure(survival, seed)).list("").unwrap();
        listed.into_iter().map(|entry| entry.name).collect::<String>()
    };
    let seen: BTreeSet<String> = (0..50).map(|seed| names(seed, Survival::Blocks)).collect();
    assert_eq!(seen, ["", "a", "ab", "b"].map(String::from).into());
    let seen: BTreeSet<String> = (0..50).map(|seed| names(seed, Survival::Prefix)).collect();
    assert_eq!(seen, ["", "a", "ab"].map(String::from).into());
}

#[test]
fn a_file_that_grows_may_show_what_lay_there() {
    let disk = SimulatedDisk::new(1);
    let old = files(&disk).create("old", B).unwrap();
    old.write_at(0, &filled(1, 9)).unwrap();
    old.sync().unwrap();
    let file = files(&disk).create("a", 0).unwrap();
    files(&disk).sync_directory("").unwrap();
    drop(old);
    files(&disk).remove("old").unwrap();
    files(&disk).sync_directory("").unwrap();
    file.write_at(0, &filled(1, 5)).unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let file = reopened(&disk, Survival::Blocks, seed);
        seen.insert(if file.bytes().unwrap() == 0 { None } else { Some(read(&file, 0).unwrap()[0]) });
    }
    assert_eq!(seen, BTreeSet::from([None, Some(0), Some(5), Some(9)]));
}

/// A failed sync: the handle refuses to go on. One who opens the file again and syncs it learns nothing of what was lost.
#[test]
fn a_failed_sync_drops_what_was_written() {
    let (mut lost, mut shown) = (0, 0);
    for seed in 0..40 {
        let disk = SimulatedDisk::new(seed);
        let file = files(&disk).create("a", B).unwrap();
        files(&disk).sync_directory("").unwrap();
        file.write_at(0, &filled(1, 7)).unwrap();
        disk.plan(disk.steps().len(), Fault::Fail);
        assert_eq!(file.sync().unwrap_err().cause, Cause::Device);
        assert!(file.is_in_doubt());
        let steps = disk.steps().len();
        assert_eq!(file.sync().unwrap_err().cause, Cause::InDoubt);
        assert_eq!(file.write_at(0, &filled(1, 8)).unwrap_err().cause, Cause::InDoubt);
        assert_eq!(disk.steps().len(), steps, "the disk was not asked");
        let again = files(&disk).open("a", Access::Write).unwrap();
        again.sync().unwrap();
        let is_lost = read(&reopened(&disk, Survival::Nothing, 0), 0).unwrap()[0] == 0;
        lost += u32::from(is_lost);
        shown += u32::from(is_lost && read(&again, 0).unwrap()[0] == 7);
    }
    assert!(lost > 5 && shown > 2, "{lost} lost, {shown} of them shown");
}

#[test]
fn a_failed_write_leaves_the_file_in_doubt() {
    let (disk, file) = with_file(8);
    disk.plan(disk.steps().len(), Fault::Fail);
    let error = file.write_at(0, &filled(8, 2)).unwrap_err();
    assert_eq!((error.operation, error.offset, error.cause), (Operation::Write, Some(0), Cause::Device));
    assert_eq!(file.sync().unwrap_err().cause, Cause::InDoubt);
    assert_eq!(file.write_at(0, &filled(8, 2)).unwrap_err().cause, Cause::InDoubt);
    read(&file, 0).expect("reads go on");
}

#[test]
fn a_refused_argument_leaves_no_doubt() {
    let (_disk, file) = with_file(1);
    assert!(matches!(file.write_at(1, &filled(1, 2)).unwrap_err().cause, Cause::Invalid(_)));
    assert!(matches!(file.write_at(2 * B, &filled(1, 2)).unwrap_err().cause, Cause::Invalid(_)));
    file.write_at(B, &filled(1, 2)).unwrap();
    file.sync().unwrap();
}

#[test]
fn a_restart_loses_nothing_and_syncs_nothing() {
    let (disk, file) = with_file(1);
    file.write_at(0, &filled(1, 2)).unwrap();
    let lock = files(&disk).lock().unwrap();
    assert!(matches!(files(&disk).lock().err().unwrap().cause, Cause::Locked { .. }));
    let next = disk.after_restart();
    let _lock_of_the_next = files(&next).lock().unwrap();
    let again = files(&next).open("a", Access::Write).unwrap();
    assert_eq!(read(&again, 0).unwrap()[0], 2);
    assert_eq!(read(&reopened(&next, Survival::Nothing, 0), 0).unwrap()[0], 1);
    again.sync().unwrap();
    assert_eq!(read(&reopened(&next, Survival::Nothing, 0), 0).unwrap()[0], 2);
    drop(lock);
    files(&disk).lock().unwrap();
}

#[test]
fn room_runs_out_and_comes_back() {
    let disk = SimulatedDisk::new(1);
    disk.set_room(Some(4 * B));
    let files = files(&disk);
    files.create("a", 3 * B).unwrap();
    let error = files.create("b", 2 * B).err().unwrap();
    assert!(error.is_full() && error.path == "b");
    assert_eq!(files.list("").unwrap().len(), 1, "nothing is left of it");
    let file = files.create("b", B).unwrap();
    assert!(file.write_at(B, &filled(1, 1)).unwrap_err().is_full());
    assert!(files.create_directory("d").unwrap_err().is_full());
    files.remove("a").unwrap();
    files.create("c", 2 * B).unwrap();
    files.create_directory("d").unwrap();
    disk.set_room(None);
    files.create("e", 100 * B).unwrap();
    // A planned lack of room concerns allocations alone.
    let number = disk.steps().len();
    (number..number + 2).for_each(|number| disk.plan(number, Fault::Full));
    files.list("").unwrap();
    assert!(files.create("f", B).err().unwrap().is_full());
    files.create("f", B).unwrap();
}

#[test]
fn a_broken_device_stays_broken() {
    let (disk, file) = with_file(1);
    disk.plan(disk.steps().len() + 1, Fault::FailForEver);
    read(&file, 0).unwrap();
    assert_eq!(read(&file, 0).unwrap_err().cause, Cause::Device);
    assert_eq!(files(&disk).list("").unwrap_err().cause, Cause::Device);
    assert_eq!(files(&disk).open("missing", Access::Read).err().unwrap().cause, Cause::Device);
    assert!(!disk.is_off());
    disk.plan(disk.steps().len(), Fault::PowerFailure);
    assert_eq!(read(&file, 0).unwrap_err().cause, Cause::Device);
}

#[test]
fn a_power_failure_is_the_last_operation() {
    let (disk, file) = with_file(4);
    disk.plan(disk.steps().len(), Fault::PowerFailure);
    assert_eq!(file.write_at(0, &filled(4, 2)).unwrap_err().cause, Cause::Device);
    assert!(disk.is_off());
    assert_eq!(read(&file, 0).unwrap_err().cause, Cause::Device);
    // The write may have come through in any part.
    let left = |survival| read(&reopened(&disk, survival, 3), 0).unwrap()[0];
    assert_eq!((left(Survival::Nothing), left(Survival::Everything)), (1, 2));
}

/// What a device does silently, and only a reader who checks notices.
#[test]
fn a_device_lies() {
    let (disk, file) = with_file(3);
    let next = |fault| disk.plan(disk.steps().len(), fault);
    next(Fault::LoseWrite);
    file.write_at(0, &filled(1, 2)).unwrap();
    assert_eq!(read(&file, 0).unwrap()[0], 1);
    next(Fault::Misdirect);
    file.write_at(0, &filled(2, 3)).unwrap();
    let blocks: Vec<u8> = (0..3).map(|block| read(&file, block).unwrap()[0]).collect();
    assert_eq!(blocks, [1, 3, 3]);
    next(Fault::LoseSync);
    file.sync().unwrap();
    assert_eq!(read(&reopened(&disk, Survival::Nothing, 0), 1).unwrap()[0], 1);
    next(Fault::FlipBit);
    let flipped: u32 = read(&file, 0).unwrap().iter().map(|byte| (byte ^ 1).count_ones()).sum();
    assert_eq!(flipped, 1);
    assert_eq!(read(&file, 0).unwrap(), filled(1, 1).to_vec());
}

#[test]
fn what_is_stored_can_be_damaged() {
    let (disk, file) = with_file(3);
    file.write_at(0, &filled(1, 2)).unwrap();
    file.sync().unwrap();
    let first = |file: &File| read(file, 0).map(|bytes| bytes[0]);
    assert!(disk.damage("a", 0, Damage::Stale).unwrap());
    assert_eq!(first(&file), Ok(1));
    assert!(disk.damage("a", 0, Damage::FlipBit { bit: 3 }).unwrap());
    assert_eq!(first(&file), Ok(1 ^ 8));
    assert!(disk.damage("a", 0, Damage::Misdirect { from: 1 }).unwrap());
    assert_eq!(first(&file), Ok(1));
    assert!(!disk.damage("a", 0, Damage::Misdirect { from: 1 }).unwrap(), "it is the same");
    assert!(disk.damage("a", 0, Damage::Garbage).unwrap());
    assert!(disk.damage("a", 0, Damage::Zero).unwrap());
    assert_eq!(first(&file), Ok(0));
    assert!(disk.damage("a", 0, Damage::Unreadable).unwrap());
    assert_eq!(first(&file).unwrap_err().cause, Cause::Device);
    file.write_at(0, &filled(1, 5)).unwrap();
    assert_eq!(first(&file), Ok(5), "a block is whole again once it is written");
    assert!(disk.damage("a", 2, Damage::Cut).unwrap());
    assert_eq!(file.bytes(), Ok(2 * B));
    assert_eq!(disk.damage("a", 2, Damage::Zero), Err(Cause::Ended));
}

/// Everything that can be seen of a disk after some operations with faults.
fn run(seed: u64) -> Vec<String> {
    let mut random = Random::from_seed(seed);
    let disk = SimulatedDisk::new(seed);
    let files = files(&disk);
    let mut seen = Vec::new();
    for number in 0..40 {
        if random.chance(0.2) {
            let faults =
                [Fault::Fail, Fault::Full, Fault::LoseWrite, Fault::Misdirect, Fault::LoseSync, Fault::FlipBit];
            disk.plan(number, faults[random.below(6) as usize]);
        }
    }
    for _ in 0..20 {
        let path = ["a", "b"][random.below(2) as usize];
        let Ok(file) = files.create(path, B).or_else(|_| files.open(path, Access::Write)) else { continue };
        seen.push(format!("{:?}", file.write_at(random.below(2) * B, &filled(2, random.below(256) as u8))));
        seen.push(format!("{:?} {:?}", file.sync(), read(&file, 0)));
        seen.push(format!("{:?}", files.sync_directory("")));
    }
    for survival in Survival::ALL {
        let left = disk.after_power_failure(survival, seed);
        let left = self::files(&left);
        seen.push(format!("{:?}", left.list("")));
        seen.extend(left.open("a", Access::Read).map(|file| format!("{:?}", read(&file, 1))));
    }
    seen
}

#[test]
fn a_seed_fixes_everything() {
    for seed in 0..scaled(50, 2) as u64 {
        assert_eq!(run(seed), run(seed));
    }
    assert_ne!(run(0), run(1));
}
