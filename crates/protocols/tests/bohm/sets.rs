//! Transactions with many keys: whatever they do with them, each operation looks at a few of their entries.

use polychron_base::sizes::scaled;

use super::*;

const ROWS: u64 = scaled(8_000, 200) as u64;

/// Everything that a transaction can do with many keys of a table with secondary indexes, and its own rows by every way.
fn steps() -> Vec<Do> {
    let mut steps: Vec<_> = (0..ROWS).map(|id| Do::Insert(account(id))).collect();
    steps.extend((0..ROWS).map(Do::Read));
    steps.extend((0..ROWS).map(|_| Do::Add(0, 1)));
    steps.extend((0..ROWS).map(|id| Do::SetOwner(id, 7)));
    steps.push(Do::SumOfOwner(7));
    steps.extend((0..ROWS / 2).map(Do::Delete));
    steps.push(Do::SumOfOwner(7));
    steps
}

#[test]
fn many_keys_in_one_transaction() {
    for declares in [Declares::All, Declares::Some] {
        for unknown in [polychron_protocols::bohm::Unknown::Reconnaissance, polychron_protocols::bohm::Unknown::InPlace]
        {
            let memory =
                polychron_memory::Options { limit_bytes: Some(512 << 20), ..polychron_memory::Options::tiny() };
            let options = Options { unknown, ..Options::default() };
            let mut stage = Stage::over(options, Common { memory, ..Common::default() });
            let script = Script { declares, ..stage.script(steps()) };
            let answers = stage.run_batch(&[script]).remove(0).unwrap();
            let rows = ROWS as usize;
            assert!(answers[..rows].iter().all(|&inserted| inserted == 1));
            assert!(answers[rows..2 * rows].iter().all(|&balance| balance == 0));
            assert_eq!(answers[3 * rows - 1], rows as i64);
            assert_eq!((answers[4 * rows], *answers.last().unwrap()), (rows as i64, 0));
            assert_eq!(stage.contents().len(), 3 * rows / 2);
        }
    }
}
