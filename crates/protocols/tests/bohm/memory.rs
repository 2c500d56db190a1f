//! Versions, chains, keys and fronts are given back when nobody wants them any more.

use polychron_base::sizes::scaled;
use polychron_schema::RowBuffer;

use super::*;

/// Rows come, are changed and go; nothing is left at the end of a round.
fn round(stage: &mut Stage, rows: u64) {
    let scripts = |step: &dyn Fn(u64) -> Vec<Do>| -> Vec<_> { (0..rows).map(|id| stage.script(step(id))).collect() };
    let branch = |id: u64| id as u32 % 7;
    let steps = [
        scripts(&|id| vec![Do::Insert(account(id)), Do::Append(branch(id))]),
        scripts(&|id| vec![Do::Add(id, 1), Do::SetOwner(id, 8), Do::Text(branch(id), 300), Do::Text(branch(id), 3)]),
        scripts(&|id| vec![Do::Add(id / 2, 1), Do::Add(0, 1), Do::Text(branch(id), id as usize)]),
        scripts(&|id| vec![Do::Delete(id), Do::Insert(account(id)), Do::Append(branch(id)), Do::Fail]),
        scripts(&|id| vec![Do::Delete(id), Do::Cut(branch(id))]),
    ];
    for scripts in steps {
        stage.run_batch(&scripts);
    }
}

#[test]
fn memory_comes_back() {
    for (partitions, batch_size) in [(1, 16), (3, 64), (1, 1)] {
        let mut stage = Stage::new(Options { partitions, batch_size, ..Options::default() });
        let mut used = Vec::new();
        for _ in 0..4 {
            round(&mut stage, scaled(60, 3) as u64);
            assert_eq!(stage.contents().len(), 0);
            used.push(stage.settle());
        }
        assert_eq!(stage.database.memory().statistics().retired_bytes, 0);
        assert!(used[1..].iter().all(|now| *now == used[1]), "in use after each round: {used:?}");
    }
}

/// Without a tick, too: what one batch supersedes a later one gives back.
#[test]
fn updates_do_not_pile_up() {
    let mut stage = Stage::with_accounts(Options { batch_size: 16, ..Options::default() }, 4);
    let before = stage.settle();
    let scripts: Vec<_> =
        (0..scaled(4000, 100) as u64).map(|number| stage.script(vec![Do::Add(number % 4, 1)])).collect();
    assert!(stage.run_batch(&scripts).iter().all(Result::is_ok));
    let after = stage.database.memory().statistics().used_bytes;
    assert!(after < before + (64 << 10), "{before} bytes were in use, and now {after}");
}

#[test]
fn rows_outgrow_their_room_and_shrink() {
    let mut stage = Stage::new(Options { batch_size: 5, ..Options::default() });
    stage.run(vec![Do::Append(1)]).unwrap();
    let before = stage.settle();
    let lens = [0, 10, 40, 41, 3000, 20, 500, 0, 7000, 1];
    let scripts: Vec<_> = lens
        .iter()
        .flat_map(|&len| {
            let grow = vec![Do::Text(1, len)];
            let twice = vec![Do::Text(1, 900), Do::Undone(Box::new(Do::Text(1, 9))), Do::Text(1, len)];
            let given_up = vec![Do::Text(1, 600), Do::Fail];
            [grow, twice, given_up].map(|steps| stage.script(steps))
        })
        .collect();
    let answers = stage.run_batch(&scripts);
    for (script, answer) in scripts.iter().zip(&answers) {
        assert_eq!(answer.is_err(), matches!(script.steps.last(), Some(Do::Fail)));
    }
    let mut row = RowBuffer::new();
    Line { text: "x".into(), ..line(1, 1) }.encode(&mut row).unwrap();
    assert_eq!(stage.contents(), [row.as_row().as_bytes()]);
    stage.run(vec![Do::Text(1, 0)]).unwrap();
    assert_eq!(stage.settle(), before);
}

/// A snapshot, in the middle of which others write.
struct Long<'a> {
    contents: Contents,
    meanwhile: &'a mut (dyn FnMut() + Send),
}

impl Procedure for Long<'_> {
    type Output = [Vec<Vec<u8>>; 2];

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<Self::Output, Stop> {
        let before = self.contents.run(t)?;
        (self.meanwhile)();
        Ok([before, self.contents.run(t)?])
    }
}

#[test]
fn snapshots_stay_as_they_are_and_their_memory_comes_back() {
    const ROWS: u64 = scaled(20, 6) as u64;
    for (partitions, batch_size) in [(1, 4), (2, 1024)] {
        let mut stage = Stage::new(Options { partitions, batch_size, ..Options::default() });
        let tables = stage.tables;
        let mut reader = stage.database.worker().unwrap();
        round(&mut stage, ROWS);
        let kept: Vec<_> =
            (0..ROWS).map(|id| stage.script(vec![Do::Insert(account(id)), Do::Append(id as u32 % 3)])).collect();
        let gone: Vec<_> = (0..ROWS).map(|id| stage.script(vec![Do::Delete(id), Do::Cut(id as u32 % 3)])).collect();
        let mut used = Vec::new();
        for _ in 0..3 {
            assert!(stage.run_batch(&kept).iter().all(Result::is_ok));
            let wanted = stage.contents();
            let mut changed = Vec::new();
            let mut meanwhile = || {
                for rows in [ROWS, ROWS + ROWS / 2] {
                    round(&mut stage, rows);
                    stage.settle();
                }
                assert!(stage.run_batch(&kept[..ROWS as usize / 3]).iter().all(Result::is_ok));
                changed = stage.contents();
            };
            let contents = Contents(tables);
            let [before, after] = reader.snapshot(&mut Long { contents, meanwhile: &mut meanwhile }).unwrap();
            assert_eq!(before, wanted);
            assert_eq!(after, wanted);
            assert_ne!(changed, wanted);
            for _ in 0..2 {
                assert!(stage.run_batch(&gone).iter().all(Result::is_ok));
            }
            assert_eq!(stage.contents().len(), 0);
            used.push(stage.settle());
        }
        assert_eq!(used[1], used[2], "in use after each snapshot: {used:?}");
    }
}
