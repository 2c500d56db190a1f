//! Each step of the log is left out, and something goes wrong that is seen.
//!
//! A *killer* tells whether something went wrong: with all steps it does not, and without one it does.

use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use polychron_base::TableId;
use polychron_engine::redo::Log as _;
use polychron_log::Options;
use polychron_log::disk::{Access, BLOCK, Buffer, Disk as _, Files, Operation};
use polychron_log::frame::{self, Frame, Header, Order, Record, Writer};
use polychron_log::steps::{Point, Step};
use polychron_schema::KeyExtractor;
use polychron_sim::{Damage, Fault, SimulatedDisk, Survival, each_step_is_needed};

use crate::complaint;
use crate::ledger::{Ledger, Told};
use crate::session::{Session, look};

/// A row of so many words.
fn row(key: u64, words: usize) -> Told {
    Told::Put(0, vec![key + 1; words])
}

fn opened(disk: &SimulatedDisk, ledger: &mut Ledger) -> Session {
    Session::open(disk, ledger, Options::tiny()).expect("nothing fails")
}

fn fresh() -> (SimulatedDisk, Session) {
    let disk = SimulatedDisk::new(5);
    let session = opened(&disk, &mut Ledger::default());
    (disk, session)
}

/// Whether something is wrong after a power failure that leaves only what is certain.
fn is_wrong_after_power_failure(disk: &SimulatedDisk, ledger: &Ledger) -> bool {
    complaint(&disk.after_power_failure(Survival::Nothing, 0), ledger).is_some()
}

/// Whether damage is not noticed.
fn is_silent(disk: &SimulatedDisk, ledger: &Ledger) -> bool {
    look(disk).is_ok_and(|found| ledger.complaint(&found).is_some())
}

/// A transaction is sealed while its epoch is closed, and waits.
fn seal_beside_a_close() -> bool {
    let (disk, session) = fresh();
    session.begin(1, row(1, 3)).unwrap();
    session.seal_within(Point::Closing, &[1]);
    session.commit(0, &[row(0, 3)]).unwrap();
    session.sealed_within().into_iter().for_each(|sealed| session.wait(sealed).unwrap());
    is_wrong_after_power_failure(&disk, &session.told())
}

/// Two transactions of the next epoch are sealed while one is closed, the first one in a ring that was looked at before.
fn seals_of_the_next_epoch() -> bool {
    let (disk, session) = fresh();
    session.begin(0, row(0, 3)).unwrap();
    session.begin(1, row(1, 3)).unwrap();
    session.seal_within(Point::FirstHeadRead, &[0, 1]);
    session.commit(2, &[row(2, 3)]).unwrap();
    is_wrong_after_power_failure(&disk, &session.told())
}

fn two_flushes() -> bool {
    let (disk, session) = fresh();
    session.commit(0, &[row(0, 3)]).unwrap();
    session.commit(1, &[row(1, 3)]).unwrap();
    is_wrong_after_power_failure(&disk, &session.told())
}

fn transaction_longer_than_its_ring() -> bool {
    let (disk, session) = fresh();
    let committed = catch_unwind(AssertUnwindSafe(|| session.commit(0, &[row(0, 350), row(1, 350)]).is_ok()));
    committed.is_err() || is_wrong_after_power_failure(&disk, &session.told())
}

/// A client that does not wait for durability.
fn many_seals() -> bool {
    let (_, session) = fresh();
    let ring = {
        session.sealed(0, &[row(0, 3)]).unwrap();
        session.log.memory_bytes()
    };
    (0..20).any(|key| session.sealed(0, &[row(key, 100)]).is_err() || session.log.memory_bytes() > ring)
}

fn reader_of_what_is_not_durable() -> bool {
    let (disk, session) = fresh();
    let (id, _) = session.sealed(0, &[row(0, 3)]).unwrap();
    let ticket = session.log.ticket(Order { era: 0, timestamp: id.1 });
    session.wait((id, ticket)).unwrap();
    is_wrong_after_power_failure(&disk, &session.told())
}

fn power_failure_after_a_commit() -> bool {
    let (disk, session) = fresh();
    session.commit(0, &[row(0, 3)]).unwrap();
    is_wrong_after_power_failure(&disk, &session.told())
}

/// An epoch takes more than a file.
fn power_failure_after_a_long_epoch() -> bool {
    let (disk, session) = fresh();
    let mut pending = Vec::new();
    for _ in 0..3 {
        pending.extend((0..3).map(|worker| session.sealed(worker, &[row(worker as u64, 240)]).unwrap()));
    }
    pending.into_iter().for_each(|sealed| session.wait(sealed).unwrap());
    is_wrong_after_power_failure(&disk, &session.told())
}

fn power_failure_after_many_commits() -> bool {
    let (disk, session) = fresh();
    for key in 0..10 {
        session.commit(0, &[row(key, 240)]).unwrap();
    }
    is_wrong_after_power_failure(&disk, &session.told())
}

fn transaction_after_a_failure() -> bool {
    let (disk, session) = fresh();
    disk.plan(disk.steps().len(), Fault::Fail);
    assert!(session.commit(0, &[row(0, 3)]).is_err());
    session.begin(1, row(1, 3)).is_ok()
}

/// The last frame with records rots, after the log was idle for 20 ms.
fn rot_in_the_last_frame() -> bool {
    let (disk, session) = fresh();
    session.commit(0, &[row(0, 3)]).unwrap();
    session.idle(4, 10);
    (0..4).any(|block| {
        let left = disk.after_restart();
        left.damage("log/0.log", block, Damage::Zero).is_ok_and(|is_other| is_other)
            && is_silent(&left, &session.told())
    })
}

/// The last two frames rot, behind a clean end.
fn rot_of_the_end() -> bool {
    let (disk, session) = fresh();
    session.commit(0, &[row(0, 3)]).unwrap();
    session.close();
    (0..4).any(|block| {
        let left = disk.after_restart();
        let damaged = (block..4).filter(|block| left.damage("log/0.log", *block, Damage::Zero) == Ok(true)).count();
        damaged > 1 && is_silent(&left, &session.told())
    })
}

/// The power fails while an epoch of three frames is written, which fill a file; then the log is opened and used.
fn epoch_of_which_parts_are_there() -> bool {
    let (disk, session) = fresh();
    let pending: Vec<_> = (0..3).map(|worker| session.sealed(worker, &[row(worker as u64, 240)]).unwrap()).collect();
    let sync = disk.steps().len() + 3;
    disk.plan(sync, Fault::PowerFailure);
    assert!(session.wait(pending[0]).is_err());
    assert_eq!(disk.steps()[sync].operation, Operation::Sync);
    disk.outcomes(1..20).any(|left| {
        let mut told = session.told();
        if complaint(&left, &told).is_some() {
            return true;
        }
        let session = opened(&left, &mut told);
        // A frame of a block, and one of two blocks for which the rest of the file is too short: what lies there stays.
        session.commit(0, &[row(9, 3)]).unwrap();
        session.commit(0, &[row(9, 600)]).unwrap();
        complaint(&left, &session.told()).is_some()
    })
}

/// A transaction of five pieces, each in a frame of its own, in two files.
fn long(key: u64) -> Vec<Told> {
    (0..6).map(|at| row(key + at, 240)).collect()
}

/// The power fails anywhere while a long transaction is written.
fn transaction_of_which_parts_are_there() -> bool {
    (0..24).any(|at| {
        let (disk, session) = fresh();
        session.commit(0, &[row(9, 3)]).unwrap();
        disk.plan(disk.steps().len() + at, Fault::PowerFailure);
        // It may be over before.
        let _ = session.commit(1, &long(0));
        disk.outcomes(1..6).any(|left| complaint(&left, &session.told()).is_some())
    })
}

/// Whether something is wrong with a long transaction that nothing disturbs.
fn long_transaction() -> bool {
    let (disk, session) = fresh();
    session.commit(0, &long(0)).unwrap();
    complaint(&disk.after_restart(), &session.told()).is_some()
}

/// The log with other records in its frames, under right checksums. `edit` is told the number of each frame, counted from the last one.
fn rewritten(disk: &SimulatedDisk, edit: impl Fn(usize, &mut Vec<Record<'_>>)) -> SimulatedDisk {
    let left = disk.after_restart();
    let files = Files::new(left.clone());
    let mut frames = Vec::new();
    for entry in left.list("log").unwrap() {
        let file = Rc::new(files.open(&format!("log/{}", entry.name), Access::Write).unwrap());
        let mut bytes = Buffer::zeroed(file.bytes().unwrap() as usize);
        file.read_at(0, &mut bytes).unwrap();
        for offset in (0..bytes.len()).step_by(BLOCK) {
            if let Ok((header, length)) = Frame::peek(&bytes[offset..offset + BLOCK]) {
                frames.push((header, Rc::clone(&file), bytes[offset..offset + length].to_vec()));
            }
        }
    }
    frames.sort_by_key(|(header, ..)| (header.place.file, header.place.offset));
    let mut before = 0;
    for (number, (header, file, bytes)) in frames.iter().enumerate() {
        let frame = Frame::decode(bytes, header.place).unwrap();
        let mut records: Vec<_> = frame.records().map(Result::unwrap).collect();
        edit(frames.len() - 1 - number, &mut records);
        let mut writer = Writer::new();
        records.iter().for_each(|record| writer.push_record(record).unwrap());
        let header = Header { before: if header.before == 0 { 0 } else { before }, ..*header };
        let mut buffer = Buffer::zeroed(frame::frame_bytes(writer.content().len()));
        let (sum, length) = frame::encode(&header, &writer, &mut buffer);
        file.write_at(header.place.offset, &buffer[..length]).unwrap();
        before = sum;
    }
    left
}

/// Two long transactions of one epoch, whose frames are the last ten.
fn two_long_transactions() -> (SimulatedDisk, Ledger, [Order; 2]) {
    let (disk, session) = fresh();
    let sealed = [0, 1].map(|worker| session.sealed(worker, &long(10 * worker as u64)).unwrap());
    let orders = sealed.map(|((_, timestamp), _)| Order::from(timestamp));
    sealed.into_iter().for_each(|sealed| session.wait(sealed).unwrap());
    assert!(!is_silent(&rewritten(&disk, |_, _| {}), &session.told()), "nothing is wrong with what is as it was");
    (disk, session.told(), orders)
}

/// A piece in the middle is gone; or two pieces have come into each other's transaction.
fn pieces_that_do_not_follow() -> bool {
    let (disk, told, orders) = two_long_transactions();
    let lacking = rewritten(&disk, |number, records| {
        if number == 2 {
            records.clear();
        }
    });
    let mixed = rewritten(&disk, |number, records| {
        if let Some(worker) = [2, 7].iter().position(|mixed| *mixed == number) {
            assert_eq!((records.len(), records[0].order), (1, orders[1 - worker]));
            (records[0].order, records[0].worker) = (orders[worker], worker as u32);
        }
    });
    is_silent(&lacking, &told) || is_silent(&mixed, &told)
}

fn transaction_without_its_last_piece() -> bool {
    let (disk, told, _) = two_long_transactions();
    let lacking = rewritten(&disk, |number, records| {
        if number == 0 {
            records.clear();
        }
    });
    is_silent(&lacking, &told)
}

/// All of the log is gone, after so many openings.
fn log_that_is_gone(openings: usize) -> bool {
    let (disk, session) = fresh();
    session.commit(0, &[row(0, 3)]).unwrap();
    let mut told = session.told();
    (1..openings).for_each(|_| told = opened(&disk, &mut told).told());
    for block in 0..4 {
        disk.damage("log/0.log", block, Damage::Zero).unwrap();
    }
    is_silent(&disk, &told)
}

fn rot_in_the_middle() -> bool {
    let (disk, session) = fresh();
    for key in 0..3 {
        session.commit(0, &[row(key, 3)]).unwrap();
    }
    disk.damage("log/0.log", 1, Damage::FlipBit { bit: 1000 }).unwrap();
    is_silent(&disk, &session.told())
}

/// A bit of the last frame is wrong, once, on its way from the device.
fn read_with_a_wrong_bit() -> bool {
    // Which bit that is, the seed decides.
    (0..60).any(|seed| {
        let disk = SimulatedDisk::new(seed);
        let session = opened(&disk, &mut Ledger::default());
        session.commit(0, &[row(0, 3)]).unwrap();
        let undisturbed = disk.after_restart();
        look(&undisturbed).unwrap();
        (0..undisturbed.steps().len()).any(|number| {
            let left = disk.after_restart();
            left.plan(number, Fault::FlipBit);
            is_silent(&left, &session.told())
        })
    })
}

/// A sync fails, and the system shows what the medium does not have: the next process finds it, and then the power fails.
fn restart_after_a_failed_sync() -> bool {
    (0..60).any(|seed| {
        let disk = SimulatedDisk::new(seed);
        let session = opened(&disk, &mut Ledger::default());
        disk.plan(disk.steps().len() + 1, Fault::Fail);
        assert!(session.commit(0, &[row(0, 3)]).is_err());
        let next = disk.after_restart();
        let session = opened(&next, &mut session.told());
        is_wrong_after_power_failure(&next, &session.told())
    })
}

fn two_openings() -> bool {
    let (disk, session) = fresh();
    session.commit(0, &[row(0, 3)]).unwrap();
    let mut told = session.told();
    let session = opened(&disk, &mut told);
    session.commit(0, &[row(1, 3)]).unwrap();
    complaint(&disk, &session.told()).is_some()
}

/// A file was made before it was needed, and the process has ended.
fn files_that_were_not_used() -> bool {
    let (disk, session) = fresh();
    session.idle(2, 0);
    session.commit(0, &[row(0, 3)]).unwrap();
    let session = opened(&disk, &mut session.told());
    let committed = (0..20).all(|key| session.commit(0, &[row(key, 240)]).is_ok());
    !committed || complaint(&disk, &session.told()).is_some()
}

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn deletion(number: u64) -> Told {
    Told::Delete(0, key(number))
}

/// Whether some of these keys count as lost in a log that has stopped.
fn loses(session: &Session, keys: std::ops::RangeInclusive<u64>) -> bool {
    let extractor = KeyExtractor::primary(&<Keyed as polychron::Row>::definition()).unwrap();
    let (lower, upper) = (key(*keys.start()), key(*keys.end()));
    session.log.is_lost(TableId::new(9, 0), (Bound::Included(&lower), Bound::Included(&upper)), &extractor)
}

#[derive(polychron::Row)]
struct Keyed {
    #[key]
    id: u64,
}

/// The log stops, and a transaction seals that had staged before. A reader is told that its answer is durable, which may have read that.
fn reader_of_what_is_sealed_late() -> bool {
    let (disk, session) = fresh();
    session.commit(0, &[row(0, 3)]).unwrap();
    session.begin(1, deletion(70)).unwrap();
    session.commit(0, &[row(0, 4)]).unwrap();
    disk.plan(disk.steps().len(), Fault::FailForEver);
    assert!(session.commit(2, &[row(2, 3)]).is_err());
    let answers = |timestamp| session.log.wait(session.log.ticket(Order::from(timestamp))).is_ok();
    assert!(answers(1) && answers(3) && !answers(4), "what was durable can be read, and what was lost cannot");
    assert!(!loses(&session, 69..=70), "what is staged is not sealed");
    session.seal(1);
    answers(3) || !loses(&session, 69..=70)
}

/// An epoch takes several frames, of which some are written, or all are and none is synced. A reader is told of some row that it is durable.
fn reader_of_what_a_flush_had_taken() -> bool {
    let mut stopped = 0;
    let is_wrong = (0..8).any(|later| {
        let (disk, session) = fresh();
        session.commit(0, &[row(0, 3)]).unwrap();
        session.idle(3, 20);
        let before = disk.steps().len();
        let sealed: Vec<_> = (0..60_u64)
            .map(|number| {
                let patch = Told::Patch(0, key(2 * number), 1, vec![u64::MAX; 2]);
                session.sealed(number as usize % 3, &[patch]).unwrap()
            })
            .collect();
        assert_eq!(disk.steps().len(), before, "nothing is flushed yet");
        disk.plan(before + later, Fault::FailForEver);
        let is_stopped = sealed.into_iter().map(|sealed| session.wait(sealed)).any(|waited| waited.is_err());
        stopped += u32::from(is_stopped);
        let wrong = |number| loses(&session, number..=number) != (number < 120 && number.is_multiple_of(2));
        is_stopped && ((0..125).any(wrong) || loses(&session, 119..=130) || !loses(&session, 0..=1))
    });
    assert!(is_wrong || stopped >= 3, "the log stops at {stopped} operations");
    is_wrong
}

/// Rows are deleted while there is no room for a further file.
fn deletion_on_a_full_disk() -> bool {
    let (disk, session) = fresh();
    session.commit(0, &[row(0, 3)]).unwrap();
    session.idle(1, 0);
    disk.set_room(Some(disk.used()));
    while session.commit(0, &[row(0, 3)]).is_ok() {
        session.idle(1, 0);
    }
    session.discard(0);
    session.commit(0, &[Told::Delete(0, vec![0; 8])]).is_err()
}

/// What each step prevents.
fn killer(step: Step) -> fn() -> bool {
    match step {
        Step::RaiseEpochFirst => seal_beside_a_close,
        Step::LeaveLaterEpochs => seals_of_the_next_epoch,
        Step::FreeCopied => two_flushes,
        Step::RefuseOverfull => transaction_longer_than_its_ring,
        Step::AwaitRoom => many_seals,
        Step::AwaitSealed => reader_of_what_is_not_durable,
        Step::SyncFrames => power_failure_after_a_commit,
        Step::SyncLeftFile => power_failure_after_a_long_epoch,
        Step::SyncNames => power_failure_after_many_commits,
        Step::RefuseStopped => transaction_after_a_failure,
        Step::LoseLate => reader_of_what_is_sealed_late,
        Step::LoseTaken => reader_of_what_a_flush_had_taken,
        Step::DeleteWhenFull => deletion_on_a_full_disk,
        Step::CarryDurable => rot_in_the_last_frame,
        Step::NoteEnd => rot_of_the_end,
        Step::FollowPredecessors => epoch_of_which_parts_are_there,
        Step::NumberPieces => long_transaction,
        Step::FollowPieces => pieces_that_do_not_follow,
        Step::AwaitLastPiece => transaction_without_its_last_piece,
        Step::CutUnfinished => transaction_of_which_parts_are_there,
        Step::KnowFloor => || log_that_is_gone(2),
        Step::LookBehind => rot_in_the_middle,
        Step::ReadTwice => read_with_a_wrong_bit,
        Step::RewriteFound => restart_after_a_failed_sync,
        Step::RaiseIncarnation => two_openings,
        Step::MarkOpening => || log_that_is_gone(1),
        Step::RemoveLeftovers => files_that_were_not_used,
    }
}

each_step_is_needed! {
    Step, killer:
    RaiseEpochFirst LeaveLaterEpochs FreeCopied RefuseOverfull AwaitRoom AwaitSealed SyncFrames SyncLeftFile SyncNames RefuseStopped LoseLate LoseTaken DeleteWhenFull
    CarryDurable NoteEnd FollowPredecessors NumberPieces FollowPieces AwaitLastPiece CutUnfinished KnowFloor LookBehind ReadTwice RewriteFound RaiseIncarnation MarkOpening RemoveLeftovers
}
