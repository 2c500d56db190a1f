//! What a procedure may not do, what becomes of one that fails, and wrong guesses.

use polychron_engine::MetricValue;

use super::*;
use polychron_protocols::bohm::Unknown;

fn batches(batch_size: usize) -> Options {
    Options { batch_size, ..Options::default() }
}

pub(super) fn metric(stage: &Stage, name: &str) -> u64 {
    let metrics = stage.database.statistics().metrics;
    match metrics.iter().find(|metric| metric.name == name).expect("the metric is there").value {
        MetricValue::Count(count) => count,
        ref other => panic!("{name} is a count, not {other:?}"),
    }
}

#[test]
fn undeclared_writes_are_refused_whole() {
    let mut stage = Stage::with_accounts(batches(8), 4);
    let before = stage.contents();
    let unnamed =
        [Do::Add(2, 1), Do::SetOwner(2, 9), Do::Insert(account(9)), Do::Put(account(2)), Do::Delete(2), Do::Append(1)];
    for step in unnamed {
        let steps = vec![Do::Add(1, 5), step.clone(), Do::Add(1, 5)];
        let mut script = Script { declares: Declares::TooLittle, ..stage.script(steps) };
        let error = stage.worker.execute(&mut script).unwrap_err();
        let Error::Undeclared(undeclared) = &error else { panic!("{step:?}: {error}") };
        let (table, key) = (&undeclared.table, &undeclared.key);
        let mut scratch = KeyScratch::new();
        match step {
            Do::Append(_) => {
                let wanted = (1_u32, "the line with the number 000001");
                let wanted = polychron_base::error::KeyPreview::new(wanted.encode(&mut scratch));
                assert_eq!((*table, *key), (stage.tables.lines.id(), wanted));
            }
            Do::Insert(_) => assert_eq!((*table, key.bytes()), (stage.tables.accounts.id(), &9_u64.to_be_bytes()[..])),
            _ => assert_eq!((*table, key.bytes()), (stage.tables.accounts.id(), &2_u64.to_be_bytes()[..])),
        }
        assert_eq!(stage.contents(), before, "{step:?} left something behind");
    }
}

#[test]
fn declared_updates_keep_to_columns_without_index() {
    /// Declares an update, and moves the account to another owner.
    struct Move(Tables);

    impl Procedure for Move {
        type Output = bool;
        type Error = Error;

        fn run<T: Transaction>(&mut self, t: &mut T) -> Result<bool, Error> {
            t.update(&self.0.accounts, 1, |row| {
                row.set_balance(50);
                row.set_owner(50);
            })
        }

        fn declare<D: Declare>(&self, declaration: &mut D) {
            Do::Add(1, 0).name(self.0, declaration);
        }
    }

    let mut stage = Stage::with_accounts(batches(8), 4);
    let before = stage.contents();
    let refused = stage.worker.execute(&mut Move(stage.tables));
    let Err(Error::Undeclared(undeclared)) = refused else { panic!("{refused:?}") };
    // It names the entry that would have to go first.
    let definition = stage.database.definition(stage.tables.accounts.id()).unwrap();
    assert_eq!((&*definition.indexes[0].name, undeclared.index.position()), ("by_owner", 1));
    assert_eq!(undeclared.to_string(), "key (owner)=(1) in account.by_owner was not declared");
    assert_eq!(stage.contents(), before);
    assert_eq!(stage.run(vec![Do::Add(1, 3)]).unwrap(), [3]);
}

#[test]
fn a_refusal_that_is_swallowed_still_ends_the_transaction() {
    /// Writes a row that it has not named, and goes on when that is refused.
    struct Swallow(Tables);

    impl Procedure for Swallow {
        type Output = bool;
        type Error = Error;

        fn run<T: Transaction>(&mut self, t: &mut T) -> Result<bool, Error> {
            let refused = t.update(&self.0.accounts, 2, |row| row.set_balance(50)).is_err();
            t.update(&self.0.accounts, 1, |row| row.set_balance(50))?;
            Ok(refused)
        }

        fn declare<D: Declare>(&self, declaration: &mut D) {
            Do::Add(1, 0).name(self.0, declaration);
        }
    }

    let mut stage = Stage::with_accounts(batches(8), 4);
    let before = stage.contents();
    let refused = stage.worker.execute(&mut Swallow(stage.tables));
    let Err(Error::Undeclared(undeclared)) = refused else { panic!("{refused:?}") };
    let key = undeclared.key;
    assert_eq!(key.bytes(), 2_u64.to_be_bytes());
    assert_eq!(stage.contents(), before);
}

#[test]
fn who_fails_passes_on_what_was_there() {
    for failure in [Do::Fail, Do::Panic] {
        let mut stage = Stage::with_accounts(batches(64), 2);
        let script = |steps: &[Do]| Script { tables: stage.tables, declares: Declares::All, steps: steps.to_vec() };
        let line = || Do::Append(4);
        let scripts = [
            script(&[Do::Add(0, 7)]),
            script(&[Do::Add(0, 100), Do::Delete(1), Do::Insert(account(5)), line(), failure.clone()]),
            script(&[Do::Read(0), Do::Read(1), Do::Read(5), Do::Cut(4)]),
            script(&[Do::Delete(0)]),
            script(&[Do::Put(account(0)), Do::Add(0, 9), failure.clone()]),
            script(&[Do::Read(0), Do::Insert(account(5)), line()]),
            script(&[Do::Delete(5), line(), failure]),
            script(&[Do::Read(5), line()]),
        ];
        let answers = stage.run_batch(&scripts);
        let mut good = answers.iter().filter_map(|answer| answer.as_ref().ok());
        assert_eq!(good.next().unwrap(), &[7]);
        assert_eq!(good.next().unwrap(), &[7, 0, -1, -1]);
        assert_eq!(good.next().unwrap(), &[1]);
        assert_eq!(good.next().unwrap(), &[-1, 1, 1]);
        assert_eq!(good.next().unwrap(), &[0, 2]);
        assert_eq!(good.next(), None);
        assert!(answers.iter().filter_map(|answer| answer.as_ref().err()).all(|error| error.contains("on purpose")));
        // Three rows by three indexes, and two lines.
        assert_eq!(stage.contents().len(), 2 * 3 + 2);
    }
}

/// Followers write where an account points to, while others, who come between, move it to the next one.
#[test]
fn wrong_guesses_are_made_good() {
    for unknown in [Unknown::Reconnaissance, Unknown::InPlace] {
        let mut stage = Stage::with_accounts(Options { batch_size: 4, unknown, ..Options::default() }, 40);
        // Accounts 1 to 39 are pointed to; their balances count.
        stage.run(vec![Do::Add(0, 1)]).unwrap();
        let scripts: Vec<_> = (0..60)
            .map(|number| stage.script(if number % 2 == 0 { vec![Do::Follow(0)] } else { vec![Do::Add(0, 1)] }))
            .collect();
        let answers = stage.run_batch(&scripts);
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        let reads = stage.run((0..40).map(Do::Read).collect()).unwrap();
        assert_eq!((reads[0], reads[1..].iter().sum::<i64>()), (31, 30));
        for (script, answer) in scripts.iter().zip(&answers) {
            let answer = answer.as_ref().unwrap()[0];
            assert!(matches!(script.steps[0], Do::Add(..)) || (1..=30).contains(&answer));
        }
        let again = metric(&stage, "planned_again");
        match unknown {
            // All followers were planned again, and some of them twice.
            Unknown::Reconnaissance => assert!(again > 30, "planned again: {again}"),
            Unknown::InPlace => assert_eq!((again, &reads[1..31]), (0, &[1; 30][..])),
        }
    }
}

/// Who may conflict once only is told so when its guess was wrong, and leaves nothing.
#[test]
fn wrong_guesses_are_bounded() {
    let retry = polychron_engine::options::Retry { attempts: 1, ..Default::default() };
    let mut stage = Stage::over(batches(4), Common { retry, ..common() });
    stage.run((0..40).map(|id| Do::Insert(account(id))).collect()).unwrap();
    stage.run(vec![Do::Add(0, 1)]).unwrap();
    let scripts: Vec<_> = (0..60)
        .map(|number| stage.script(if number % 2 == 0 { vec![Do::Follow(0)] } else { vec![Do::Add(0, 1)] }))
        .collect();
    let answers = stage.run_batch(&scripts);
    let refused = answers.iter().filter_map(|answer| answer.as_ref().err()).collect::<Vec<_>>();
    assert!(
        !refused.is_empty() && refused.iter().all(|error| error.starts_with("the transaction conflicted: ")),
        "{refused:?}"
    );
    let reads = stage.run((0..40).map(Do::Read).collect()).unwrap();
    assert_eq!((reads[0], reads[1..].iter().sum::<i64>()), (31, 30 - refused.len() as i64));
}

/// A key that was planned to be read is written all the same, and more than once.
#[test]
fn planned_reads_hide_no_writes() {
    for unknown in [Unknown::Reconnaissance, Unknown::InPlace] {
        let mut stage = Stage::with_accounts(Options { unknown, ..Options::default() }, 2);
        let steps = vec![Do::Read(1), Do::Delete(1), Do::Insert(Account { balance: 7, ..account(1) }), Do::Add(1, 1)];
        let script = Script { declares: Declares::Some, ..stage.script([steps, vec![Do::Read(1)]].concat()) };
        assert_eq!(stage.run_batch(&[script]), [Ok(vec![0, 1, 1, 8, 8])]);
        assert_eq!(stage.run(vec![Do::Read(1)]).unwrap(), [8]);
    }
}

/// What a procedure found out in a run that guesses is not believed.
#[test]
fn failures_of_runs_that_guess_are_not_answered() {
    /// Fails unless it is alone with the row that it has not named.
    struct Choosy(Tables);

    impl Procedure for Choosy {
        type Output = i64;
        type Error = Error;

        fn run<T: Transaction>(&mut self, t: &mut T) -> Result<i64, Error> {
            Do::Add(1, 1).run(self.0, t)?;
            match Do::SumOfOwner(1).run(self.0, t)? {
                1 => Ok(1),
                _ => Err(Error::definition("another sum")),
            }
        }
    }

    let mut stage = Stage::with_accounts(batches(8), 3);
    assert_eq!(stage.worker.execute(&mut Choosy(stage.tables)).unwrap(), 1);
    let again = stage.worker.execute(&mut Choosy(stage.tables));
    assert!(matches!(again, Err(Error::Definition(_))), "{again:?}");
    assert_eq!(stage.run(vec![Do::Read(1)]).unwrap(), [1]);
}

#[test]
#[cfg_attr(miri, ignore = "memory that fills up takes an interpreter too long")]
fn memory_that_is_refused_is_an_error() {
    // Deletions at the limit draw on the reserve.
    let memory = polychron_memory::Options {
        limit_bytes: Some(2 << 20),
        reserve_bytes: None,
        ..polychron_memory::Options::tiny()
    };
    let mut stage = Stage::over(batches(16), Common { memory, ..Common::default() });
    let mut refused = None;
    for first in (0..1 << 20).step_by(16) {
        let scripts: Vec<_> = (first..first + 16).map(|id| stage.script(vec![Do::Insert(account(id))])).collect();
        let answers = stage.run_batch(&scripts);
        if let Some(error) = answers.iter().find_map(|answer| answer.as_ref().err()) {
            refused = Some((first, error.clone()));
            break;
        }
    }
    let (first, error) = refused.expect("the limit is reached");
    assert!(error.contains("memory"), "{error}");
    // What was answered is there, and what was refused is not.
    let sum = stage.run(vec![Do::Read(first - 1), Do::Read(first + 16), Do::Sum]).unwrap();
    assert_eq!((sum[0], sum[1]), (0, -1));
    let full = stage
        .worker
        .execute(&mut Script { declares: Declares::All, ..stage.script(vec![Do::Insert(account(1 << 40))]) });
    assert!(matches!(full, Ok(_) | Err(Error::OutOfMemory(_))), "{full:?}");
    // Deletions make room.
    for id in 0..first / 2 {
        assert_eq!(stage.run(vec![Do::Delete(id)]).unwrap(), [1], "row {id} of {first}");
    }
    stage.quiesce();
    for id in 0..first / 4 {
        assert_eq!(stage.run(vec![Do::Insert(account(id))]).unwrap(), [1]);
    }
}

/// Wide rows, as they lie in a table without other indexes.
#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "wide")]
struct Wide {
    #[key]
    id: u64,
    text: String,
}

/// Inserts a wide row, or deletes it, without naming anything.
struct Unnamed(Table<Wide>, u64, Option<usize>);

impl Procedure for Unnamed {
    type Output = bool;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<bool, Error> {
        match self.2 {
            Some(len) => t.insert(&self.0, &Wide { id: self.1, text: "w".repeat(len) }).map(|()| true),
            None => t.delete(&self.0, self.1),
        }
    }
}

/// Where memory is at its limit, rows can be deleted the client that knows which, again and again.
#[test]
#[cfg_attr(miri, ignore = "memory that fills up takes an interpreter too long")]
fn undeclared_deletions_make_room() {
    let ways = [Unknown::Reconnaissance, Unknown::InPlace].into_iter().flat_map(|unknown| {
        [(8, 1), (8, 100), (1000, 1), (1000, 100), (20_000, 10)].map(|(len, at_once)| (unknown, len, at_once))
    });
    for (unknown, len, at_once) in ways {
        let memory = polychron_memory::Options {
            limit_bytes: Some(2 << 20),
            reserve_bytes: None,
            ..polychron_memory::Options::tiny()
        };
        let options = Options { unknown, ..batches(16) };
        let mut stage = Stage::over(options, Common { memory, ..Common::default() });
        let table = Table::from_id(stage.database.create_table(Wide::definition()).unwrap());
        let mut rows = std::collections::VecDeque::new();
        for (round, next) in (0..3).flat_map(|round| [(round, round << 32)]) {
            let mut ids = next..;
            while stage.worker.execute(&mut Unnamed(table, ids.start, Some(len))).is_ok() {
                rows.extend(ids.next());
            }
            let full = rows.len();
            assert!(full > 10, "there is room for {full} rows of {len} bytes in round {round}");
            for _ in 0..(full / 2).div_ceil(at_once) {
                let mut deletions: Vec<_> =
                    rows.drain(..at_once.min(rows.len())).map(|id| Unnamed(table, id, None)).collect();
                stage.worker.execute_batch(&mut deletions, &mut |_, deleted| {
                    assert!(
                        matches!(deleted, Ok(true)),
                        "{deleted:?}: {len} bytes, {at_once} at once, {} of {full} rows, {round}",
                        rows.len()
                    );
                });
            }
            stage.quiesce();
        }
    }
}

/// NULL equals nothing; every other value occurs once.
#[test]
fn unique_indexes_of_nullable_columns_are_unique() {
    #[derive(Row, Clone, Debug, PartialEq)]
    #[row(name = "member")]
    #[index(name = "by_code", columns(code), unique)]
    struct Member {
        #[key]
        id: u64,
        code: Option<u32>,
    }

    struct Join(Table<Member>, Member);

    impl Procedure for Join {
        type Output = bool;
        type Error = Error;

        fn run<T: Transaction>(&mut self, t: &mut T) -> Result<bool, Error> {
            Ok(t.try_insert(&self.0, &self.1)? == Insertion::Inserted)
        }

        fn declare<D: Declare>(&self, declaration: &mut D) {
            declaration.key(self.0.id(), self.1.id.encode(&mut KeyScratch::new()), Access::Insert);
        }
    }

    let mut stage = Stage::new(batches(8));
    let table = Table::from_id(stage.database.create_table(Member::definition()).unwrap());
    let codes = [Some(1), None, Some(1), None, Some(2)];
    let mut join: Vec<_> = (0..).zip(codes).map(|(id, code)| Join(table, Member { id, code })).collect();
    let mut inserted = Vec::new();
    stage.worker.execute_batch(&mut join, &mut |_, answer| inserted.push(answer.unwrap()));
    assert_eq!(inserted, [true, true, false, true, true]);
}
