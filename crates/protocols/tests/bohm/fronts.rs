//! Rows that a transaction writes under a front, and others name by their whole key.

use std::sync::Barrier;

use super::*;

/// Names a line by its key; one that is to be read it reads, and the others it leaves alone. Before that it does something outside.
struct OneLine<'a> {
    tables: Tables,
    number: u64,
    access: Access,
    before: Option<&'a mut (dyn FnMut() + Send)>,
}

impl Procedure for OneLine<'_> {
    type Output = Option<usize>;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<Option<usize>, Error> {
        if let Some(before) = self.before.take() {
            before();
        }
        if self.access != Access::Read {
            return Ok(None);
        }
        Ok(t.get(&self.tables.lines, (1, &*line(1, self.number).name))?.map(|row| row.text().len()))
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let line = line(1, self.number);
        declaration.key(self.tables.lines.id(), (1_u32, &*line.name).encode(&mut KeyScratch::new()), self.access);
    }
}

/// Either of both.
enum Either<'a> {
    OneLine(OneLine<'a>),
    Script(Script),
}

impl Procedure for Either<'_> {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        match self {
            Self::OneLine(line) => line.run(t).map(drop),
            Self::Script(script) => script.run(t).map(drop),
        }
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        match self {
            Self::OneLine(line) => line.declare(declaration),
            Self::Script(script) => script.declare(declaration),
        }
    }
}

impl Stage {
    /// Executes a script; while it stands in the log and has not run, something else is done.
    fn run_after(&mut self, before: &mut (dyn FnMut() + Send), steps: Vec<Do>) {
        let first = OneLine { tables: self.tables, number: 999, access: Access::Read, before: Some(before) };
        let mut batch = [Either::OneLine(first), Either::Script(self.script(steps))];
        self.worker.execute_batch(&mut batch, &mut |_, answer| answer.unwrap());
    }

    fn texts(&mut self) -> Vec<usize> {
        let text = |number| OneLine { tables: self.tables, number, access: Access::Read, before: None };
        (1..).map_while(|number| self.worker.execute(&mut text(number)).unwrap()).collect()
    }
}

/// The later transaction has the row by its key, and does not write it; the earlier one writes it under a front, and runs later.
#[test]
fn who_writes_nothing_passes_on_what_is_written_under_a_front() {
    let mut stage = Stage::new(Options::default());
    stage.run(vec![Do::Append(1)]).unwrap();
    let (mut other, tables) = (stage.database.worker().unwrap(), stage.tables);
    let mut idle = || {
        let mut idle = OneLine { tables, number: 1, access: Access::Write, before: None };
        std::thread::scope(|scope| scope.spawn(|| other.execute(&mut idle).unwrap()).join().unwrap());
    };
    stage.run_after(&mut idle, vec![Do::Text(1, 5)]);
    assert_eq!(stage.texts(), [5]);
}

/// The later transaction is planned before the earlier one has inserted its row under a front, and runs when that has long ended.
#[test]
fn fronts_are_known_while_what_was_planned_beside_them_runs() {
    let mut stage = Stage::new(Options::default());
    stage.run(vec![Do::Append(1)]).unwrap();
    let (mut other, tables) = (stage.database.worker().unwrap(), stage.tables);
    let [begun, planned, ended] = [(); 3].map(|()| Barrier::new(2));
    let found = std::thread::scope(|scope| {
        let later = scope.spawn(|| {
            begun.wait();
            let mut wait = || {
                planned.wait();
                ended.wait();
            };
            let first = OneLine { tables, number: 999, access: Access::Read, before: Some(&mut wait) };
            let second = OneLine { tables, number: 2, access: Access::Read, before: None };
            let mut found = Vec::new();
            other.execute_batch(&mut [first, second], &mut |_, answer| found.push(answer.unwrap()));
            found
        });
        let mut wait = || {
            begun.wait();
            planned.wait();
        };
        stage.run_after(&mut wait, vec![Do::Append(1)]);
        stage.quiesce();
        ended.wait();
        later.join().unwrap()
    });
    assert_eq!(found, [None, Some(0)]);
    assert_eq!(stage.texts(), [0, 0]);
}
