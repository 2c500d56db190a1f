//! White-box tests; behaviour is tested in `crates/protocols/tests/bohm` and in the crate `check`.

use std::cell::Cell;
use std::sync::Arc;

use polychron_base::Stop;
use polychron_engine::{Access, Common, Declare, Operations, Procedure, Protocol, Table, Transaction, Worker};
use polychron_schema::{Key, KeyScratch, Row};

use super::execution::{Hand, settle};
use super::moment::Moment;
use super::protocol::Shared;
use super::{Bohm, Options};

#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "item")]
struct Item {
    #[key]
    id: u64,
    count: i64,
}

/// Inserts the item.
struct First(Table<Item>);

impl Procedure for First {
    type Output = ();

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Stop> {
        t.insert(&self.0, &Item { id: 1, count: 0 })
    }
}

thread_local! {
    /// Procedures that run inside of one another, and how many there were at most.
    static DEPTH: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Increments; the first one of its batch has the last one executed before itself.
struct Link {
    items: Table<Item>,
    last: Option<(Arc<Shared>, usize)>,
}

impl Procedure for Link {
    type Output = i64;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<i64, Stop> {
        if let Some((shared, place)) = &self.last {
            let mut hand = Hand::new(shared).unwrap();
            let batch = shared.pipeline.planned();
            let parcel = Arc::clone(&shared.pipeline.parcels(batch)[0].parcel);
            let moment = Moment::new(batch, *place);
            assert!(settle(shared, &mut hand.state, &hand.local, parcel.planned(*place), moment));
            return Ok(0);
        }
        let (depth, most) = DEPTH.get();
        DEPTH.set((depth + 1, most.max(depth + 1)));
        let mut answer = 0;
        let updated = t.update(&self.items, 1, |row| {
            answer = row.count() + 1;
            row.set_count(answer);
        });
        DEPTH.set((depth, DEPTH.get().1));
        updated.map(|_| answer)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        if self.last.is_none() {
            declaration.key(self.items.id(), 1_u64.encode(&mut KeyScratch::new()), Access::Update);
        }
    }
}

#[test]
fn recursion_is_bounded() {
    const LINKS: usize = polychron_base::sizes::scaled(500, 40);
    let common = Common { memory: polychron_memory::Options::tiny(), ..Common::default() };
    let database = Bohm::open(Options { batch_size: LINKS + 1, ..Options::default() }, common).unwrap();
    let items = Table::from_id(database.create_table(Item::definition()).unwrap());
    let mut worker = database.worker().unwrap();
    worker.execute(&mut First(items)).unwrap();
    let link = |last| Link { items, last };
    let mut links = vec![link(Some((Arc::clone(&database.shared), LINKS)))];
    links.extend((0..LINKS).map(|_| link(None)));
    let mut answers = vec![0; links.len()];
    worker.execute_batch(&mut links, &mut |position, answer| answers[position] = answer.unwrap());
    assert_eq!(answers, (0..=LINKS as i64).collect::<Vec<_>>());
    let (left, most) = DEPTH.get();
    assert_eq!(left, 0);
    assert!((20..=33).contains(&most), "{most} procedures ran inside of one another");
}
