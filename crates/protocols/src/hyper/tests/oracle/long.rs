//! The same beside transactions that stay open for long: what others have changed since is pruned behind them, so that they see and compare
//! what is left.

use super::*;

/// Commits after which a transaction is none of those that began lately, and some more.
const LONG: u64 = 280;

impl Question {
    /// Whether it writes nothing, so that it can be asked again when others have written.
    fn is_plain(&self) -> bool {
        !matches!(self.ask, Ask::Look { .. } | Ask::Insert { .. })
    }
}

/// One history: a thread that disturbs, and how many commits of no account lie in between.
struct Story<'l> {
    lab: &'l Lab,
    random: Random,
    rows: Rows,
    number: u64,
}

impl Story<'_> {
    /// Some changes, and commits elsewhere before, between and behind them.
    fn go_on(&mut self, most: u64) {
        let mut worker = self.lab.database.worker().unwrap();
        let layout = self.lab.elsewhere_layout();
        let mut buffer = RowBuffer::new();
        for _ in 0..self.random.below(most + 1) {
            assert!(self.lab.disturb(&mut self.random, &mut self.rows), "no transaction has locked anything");
            let quiet = one_of(&mut self.random, &[0, 0, 0, 1, 20, LONG]);
            for _ in 0..quiet {
                self.number += 1;
                let id = 1000 + self.number % 4;
                build_row(&layout, &[id.into()], &mut buffer).unwrap();
                let mut t = worker.begin(Mode::ReadWrite).unwrap();
                let _done = t.put_row(self.lab.elsewhere, &key(id)[..], buffer.as_row()).unwrap();
                t.commit().unwrap();
            }
        }
    }

    fn questions(&mut self, is_plain: bool) -> Vec<Question> {
        let questions = (0..self.random.range_inclusive(1, 2)).map(|_| question(&mut self.random));
        questions.filter(|question| !is_plain || question.is_plain()).collect()
    }

    /// Asks, and compares with what must be answered.
    fn ask(&self, t: &mut Tx<'_>, questions: &[Question], rows: &Rows) {
        for question in questions {
            assert_eq!(self.lab.ask(t, question), brute_force(rows, question), "{question:?}");
        }
    }

    /// One transaction from its beginning to its end, with another one inside of it that may end before it. Whether it was refused without
    /// need, or not, or whether an answer has changed.
    fn run(&mut self) -> Outcome {
        let lab = self.lab;
        let (mut worker, mut another) = (lab.database.worker().unwrap(), lab.database.worker().unwrap());
        let mut t = worker.begin(Mode::ReadWrite).unwrap();
        let at_start = self.rows.clone();
        let mut asked = self.questions(false);
        self.ask(&mut t, &asked, &at_start);
        self.go_on(3);
        let mode = one_of(&mut self.random, &[Mode::ReadWrite, Mode::Snapshot]);
        let mut inner = another.begin(mode).unwrap();
        let in_between = self.rows.clone();
        let of_inner = self.questions(true);
        self.ask(&mut inner, &of_inner, &in_between);
        self.go_on(3);
        let more = self.questions(true);
        self.ask(&mut t, &more, &at_start);
        asked.extend(more);
        self.ask(&mut inner, &of_inner, &in_between);
        if self.random.below(2) == 0 {
            let stands = self.end(inner, mode, 500);
            assert!(!stands || mode == Mode::Snapshot || !self.has_changed(&of_inner, &in_between));
        }
        self.go_on(2);
        let id = self.random.below(KEYS);
        let row = row_of(&mut self.random, id);
        let writes = self.random.below(4) == 0;
        let overwrites = writes && self.rows.get(&id) != at_start.get(&id);
        let done = !writes || lab.put(&mut t, id, &row).is_ok();
        let changed = self.has_changed(&asked, &at_start) || overwrites;
        let stands = done && self.end(t, Mode::ReadWrite, 501);
        if stands && writes {
            self.rows.insert(id, row);
        }
        match (changed, stands) {
            (true, true) => panic!("{asked:?}\nof {at_start:?},\nof which now is {:?}", self.rows),
            (true, false) => Outcome::Changed,
            (false, true) => Outcome::Stands,
            (false, false) => Outcome::Needless,
        }
    }

    fn has_changed(&self, questions: &[Question], since: &Rows) -> bool {
        questions.iter().any(|question| brute_force(since, question) != brute_force(&self.rows, question))
    }

    /// Writes elsewhere and commits.
    fn end(&self, mut t: Tx<'_>, mode: Mode, id: u64) -> bool {
        let mut buffer = RowBuffer::new();
        build_row(&self.lab.elsewhere_layout(), &[id.into()], &mut buffer).unwrap();
        let done = mode == Mode::Snapshot || t.put_row(self.lab.elsewhere, &key(id)[..], buffer.as_row()).is_ok();
        done && t.commit().is_ok()
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Changed,
    Stands,
    Needless,
}

fn play_long(level: Level, backend: Backend, seed: u64, cases: usize) -> [usize; 3] {
    let lab = Lab::open(level, backend);
    let mut story = Story { lab: &lab, random: Random::from_seed(seed), rows: Rows::new(), number: 0 };
    let outcomes: Vec<_> = (0..cases).map(|_| story.run()).collect();
    lab.database.worker().unwrap().maintain();
    let history = lab.database.shared.clock.history();
    assert!(history.buffers() <= 2, "{} buffers are left", history.buffers());
    [Outcome::Changed, Outcome::Stands, Outcome::Needless]
        .map(|outcome| outcomes.iter().filter(|it| **it == outcome).count())
}

#[test]
fn no_answer_changes_under_a_long_transaction_that_commits() {
    let cases = std::env::var("POLYCHRON_LONG_CASES").map_or(scaled(150, 5), |cases| cases.parse().unwrap());
    for (seed, backend) in [Backend::Rows, Backend::Columns].into_iter().enumerate() {
        let by_column = play_long(Level::Columns, backend, 30 + seed as u64, cases);
        let by_record = play_long(Level::Rows, backend, 40 + seed as u64, cases);
        println!("{backend:?}: changed, stood, refused without need: {by_column:?}, {by_record:?}");
        assert!(cases < 100 || [by_column, by_record].iter().all(|[changed, stood, _]| *changed > 10 && *stood > 10));
    }
}
