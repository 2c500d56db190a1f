//! Procedures that last, among others that are submitted: no other client waits for them.

use std::sync::Arc;

use polychron_base::clock::SystemClock;
use polychron_engine::options::Submissions;
use polychron_engine::submission::Submission;
use polychron_engine::{Declare, Error, Procedure, Protocol, Transaction};

use super::submissions::{Add, Gate, KEYS, Stage};
use crate::Setup;
use crate::watch::watched;

/// Adds, and then stands at a gate, if it is given one.
struct Slow {
    add: Add,
    gate: Option<Gate>,
}

impl Procedure for Slow {
    type Output = i64;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<i64, Error> {
        let answer = self.add.run(t)?;
        self.gate.iter_mut().try_for_each(|gate| gate.run(t))?;
        Ok(answer)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        self.add.declare(declaration);
    }
}

/// Where procedures last, all others of their batch are answered meanwhile, those before them, those behind them, and those of other types,
/// as long as some thread is free.
pub fn others_are_answered<P: Protocol>(setup: &Setup<P>) {
    if !setup.interleaves && !setup.snapshots_interleave {
        return;
    }
    let setup = setup.clone();
    watched(move |progress| {
        for slow in [&[0][..], &[9], &[39], &[3, 20]] {
            progress.at(format!("of 40 procedures these last: {slow:?}"));
            // Each of those that last; the thread that took the batch, which waits for them where one that helped has begun the last of
            // them; and one that is free. The batch is closed when all are there.
            let threads = slow.len() + 2;
            let options = Submissions { threads, batch_size: 45, batch_time_us: u64::MAX, ..Submissions::default() };
            let stage = Stage::with(&setup, options, Arc::new(SystemClock::new()));
            let (gate, arrivals) = Gate::new();
            let (mut lasting, mut submitted) = (Vec::new(), Vec::new());
            for number in 0..40 {
                let is_slow = slow.contains(&number);
                let id = if is_slow { KEYS - 1 - lasting.len() as u64 } else { number % (KEYS - 2) };
                let procedure = Slow { add: stage.add(id, 1), gate: is_slow.then(|| gate.clone()) };
                let those = if is_slow { &mut lasting } else { &mut submitted };
                those.push(stage.service.submit(procedure));
            }
            submitted.extend((0..5).map(|id| stage.service.submit(stage.add(id, 1))));
            slow.iter().for_each(|_| arrivals.recv().unwrap());
            let mut answers: Vec<_> = submitted.into_iter().map(|other| other.wait().unwrap()).collect();
            // Each was executed once: the answers of a key are the numbers up to what it is worth.
            let mut expected: Vec<_> = (0..KEYS - 2).flat_map(|id| 1..=stage.value(id)).collect();
            answers.sort_unstable();
            expected.sort_unstable();
            assert_eq!(answers, expected);
            assert!(!lasting.iter().any(Submission::is_answered), "they wait");
            gate.open();
            assert!(lasting.into_iter().all(|slow| slow.wait().unwrap() == 1));
        }
    });
}
