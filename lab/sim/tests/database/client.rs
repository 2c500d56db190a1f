//! What is done with a database, and what is found in one.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use polychron::schema::{ColumnOrder, ForeignKeyDefinition, IndexDefinition, TableDefinition};
use polychron::{
    Access, AnyProtocol, Builder, Database, Declare, Durability, Error, IndexId, Operations, Procedure, ProtocolInfo,
    ProtocolList, ProtocolVisitor, Protocols, Row, Scan, Table, TableId, Transaction, UnknownProtocol,
};
use polychron_base::random::Random;
use polychron_log::disk::Files;
use polychron_log::{Options, Settings, checkpoint};
use polychron_sim::SimulatedDisk;
use polychron_tutorial::OneLock;

#[derive(Row, Clone, Debug)]
struct Cell {
    #[key]
    id: u64,
    owner: Option<u64>,
    value: i64,
    text: String,
}

/// A table that becomes one of other rows.
#[derive(Row, Clone, Debug)]
struct Kept {
    #[key]
    id: u64,
    name: String,
}

mod after {
    use super::Row;

    #[derive(Row, Clone, Debug)]
    #[row(name = "kept")]
    pub(super) struct Kept {
        #[key]
        pub(super) id: u64,
        #[column(default = 5)]
        pub(super) rank: i64,
        #[column(was = "name")]
        pub(super) title: String,
    }
}

const TABLES: [&str; 3] = ["first", "second", "third"];
const KEYS: u64 = 12;

/// The steps of a run, and whether each was acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) steps: Vec<(u64, bool)>,
}

impl Run {
    /// The steps that may have taken effect: all that were acknowledged, with and without the others, of which the first few are enough.
    pub(crate) fn possible(&self) -> Vec<Vec<u64>> {
        let doubtful: Vec<u64> =
            self.steps.iter().filter(|(_, is_certain)| !is_certain).map(|(step, _)| *step).collect();
        let doubtful = &doubtful[..doubtful.len().min(2)];
        (0..1_u32 << doubtful.len())
            .map(|chosen| {
                let is_in =
                    |step: &u64| doubtful.iter().position(|it| it == step).is_some_and(|at| chosen >> at & 1 == 1);
                let steps = self.steps.iter().filter(|(step, is_certain)| *is_certain || is_in(step));
                steps.map(|(step, _)| *step).collect()
            })
            .collect()
    }
}

polychron::protocol_list! {
    /// What the tutorial writes, and the protocol that plans, with closures, too.
    struct First;
    OneLock,
    polychron::protocols::Bohm,
}

/// These, and the product's other protocols.
#[derive(Clone, Copy, Debug)]
struct All;

impl ProtocolList for All {
    fn all() -> Vec<ProtocolInfo> {
        let others = Protocols::all().into_iter().filter(|protocol| !First::has(protocol.name));
        First::all().into_iter().chain(others).collect()
    }

    fn visit<V: ProtocolVisitor>(name: &str, visitor: V) -> Result<V::Output, UnknownProtocol> {
        if First::has(name) { First::visit(name, visitor) } else { Protocols::visit(name, visitor) }
    }
}

/// The names of all protocols.
pub(crate) fn names() -> Vec<&'static str> {
    All::all().iter().map(|protocol| protocol.name).collect()
}

fn builder(protocol: &str) -> Builder<AnyProtocol> {
    Database::builder().small().memory_limit(24 << 20).workers(4).protocol_of::<All>(protocol, &[])
}

pub(crate) fn open(disk: &SimulatedDisk, protocol: &str) -> Result<Database<AnyProtocol>, Error> {
    open_with(disk, protocol, |_| ())
}

pub(crate) fn open_with(
    disk: &SimulatedDisk,
    protocol: &str,
    change: impl FnOnce(&mut Settings),
) -> Result<Database<AnyProtocol>, Error> {
    builder(protocol).open_on(&Files::new(disk.clone()), |settings| {
        let workers = settings.log.workers;
        settings.log = Options { workers, ..Options::tiny() };
        // Some leave rows of which little has changed, and write changes beside them; some keep those near which nothing has changed.
        let keeping = checkpoint::Options { memory_bytes: 1 << 20, ..checkpoint::Options::tiny() };
        settings.checkpoints = match protocol.len() % 3 {
            0 => checkpoint::Options::tiny(),
            1 => checkpoint::Options { changes: 1000.0, ..keeping },
            _ => keeping,
        };
        (settings.threads, settings.has_threads) = (0, false);
        change(settings);
    })
}

/// Does so many steps, and a few more behind one that fails.
pub(crate) fn run(disk: &SimulatedDisk, protocol: &str, seed: u64, steps: u64) -> Run {
    let (mut run, mut failed) = (Run::default(), 0);
    let mut database = open(disk, protocol).ok();
    for step in 0..steps {
        if failed > 3 {
            break;
        }
        let Some(opened) = &database else { break };
        let outcome = apply(opened, seed, step);
        failed += usize::from(outcome.is_err());
        // What was refused has done nothing, and might do something where a step before it was not there.
        if !matches!(outcome, Ok(false)) {
            run.steps.push((step, outcome.is_ok()));
        }
        if failed == 0 && Random::stream(seed, step).below(12) == 0 {
            if let Some(database) = database.take()
                && step.is_multiple_of(2)
            {
                let _ = database.close();
            }
            database = open(disk, protocol).ok();
        }
    }
    run
}

/// What is in a database of the serial protocol in which these steps were taken.
pub(crate) fn dump_of(seed: u64, steps: &[u64]) -> Dump {
    let database = builder("serial").in_memory().expect("the options are sound");
    steps.iter().for_each(|step| _ = apply(&database, seed, *step).expect("it has no log that fails"));
    dump(&database).expect("it can be read")
}

/// What is found on a disk. It can be written into, too.
pub(crate) fn look(disk: &SimulatedDisk, protocol: &str) -> Result<Dump, Error> {
    let database = open(disk, protocol)?;
    let found = dump(&database)?;
    let later = database.create_table_with(definition("later", None, 0))?;
    write(&database, later)?;
    database.close()?;
    let database = open(disk, protocol)?;
    assert!(database.find_table("later").is_some(), "{protocol}");
    assert_eq!(dump(&database)?, found, "{protocol}, opened twice");
    Ok(found)
}

/// Makes a unique index, which is only possible because a row was deleted that is still there on the disk, and a table of other rows out of one, by transactions
/// that nobody waited for. Whether both are whole behind a power failure.
pub(crate) fn definitions_have_their_rows(protocol: &str) -> Result<bool, Error> {
    let disk = SimulatedDisk::new(1);
    let database = open_with(&disk, protocol, |settings| settings.log.durability = Durability::OnCheckpoint)?;
    let durably = database.with(Durability::Immediate);
    let first = database.create_table_with(definition("first", None, 0))?;
    durably.execute(&mut Write { table: first, changes: vec![(1, 0), (2, 0)], step: 0 })?;
    durably.execute(&mut Keep(database.create_table()?, 0))?;
    database.execute(&mut Write { table: first, changes: vec![(1, 3)], step: 1 })?;
    database.create_index_with(first, IndexDefinition::new("alone", [2]).with_unique(true))?;
    let kept = database.create_or_open_table::<after::Kept>()?.id();
    assert_eq!(database.execute(&mut Rows(kept, IndexId::PRIMARY))?.len(), 5);
    for left in disk.outcomes(1..4) {
        let database = open(&left, protocol)?;
        let kept = database.find_table("kept").expect("it was acknowledged");
        if database.execute(&mut Rows(kept, IndexId::PRIMARY))?.len() != 5 {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(crate) fn definition(name: &str, parent: Option<&str>, kind: u64) -> TableDefinition {
    let table = Cell::definition().with_name(name);
    let falling = IndexDefinition::new("by_value", [2]).with_orders([ColumnOrder::DESCENDING]);
    let table = if kind % 2 == 1 { table.with_index(falling) } else { table };
    let nulls = IndexDefinition::new("by_owner", [1]).with_orders([ColumnOrder::ASCENDING.with_nulls_last(kind >= 2)]);
    let table = table.with_index(nulls);
    parent.into_iter().fold(table, |table, parent| table.with_foreign_key(ForeignKeyDefinition::new([1], parent)))
}

fn order(random: &mut Random) -> ColumnOrder {
    let order = if random.below(2) == 0 { ColumnOrder::ASCENDING } else { ColumnOrder::DESCENDING };
    order.with_nulls_last(random.below(2) == 0)
}

/// Does what a step is, which depends on the seed and on what is there; whether it could. Refusals other than those of the log are no failures.
pub(crate) fn apply(database: &Database<AnyProtocol>, seed: u64, step: u64) -> Result<bool, Error> {
    let mut random = Random::stream(seed, 1000 + step);
    let name = TABLES[random.below(3) as usize];
    let outcome = match (database.find_table(name), random.below(13)) {
        (None, _) => {
            let parent = TABLES[random.below(3) as usize];
            let parent = (parent != name && database.find_table(parent).is_some()).then_some(parent);
            database.create_table_with(definition(name, parent, random.below(4))).map(drop)
        }
        (Some(table), 0) => database.drop_table(table),
        (Some(table), 1) => {
            let name = format!("index {step}");
            let index = IndexDefinition::new(name, [2, 1]).with_orders([order(&mut random), order(&mut random)]);
            database.create_index_with(table, index).map(drop)
        }
        (Some(table), 2) => {
            let present = database.definition(table)?;
            // Its last index may be gone.
            let drawn = random.below((present.indexes.len() as u64).max(1)) as usize;
            match present.indexes.get(drawn).map(|index| database.find_index(table, &index.name)).transpose()? {
                Some(Some(index)) => database.drop_index(table, index),
                _ => Ok(()),
            }
        }
        (_, 3) => keep(database, step),
        (_, 4) => database.checkpoint(),
        (Some(table), _) => {
            let changes = (0..1 + random.below(5)).map(|_| (random.below(KEYS), random.below(4))).collect();
            database.execute(&mut Write { table, changes, step })
        }
    };
    match outcome {
        Err(Error::NoParent(_) | Error::HasChildren(_) | Error::Definition(_) | Error::Duplicate(_)) => Ok(false),
        outcome => outcome.map(|()| true),
    }
}

/// Writes a row.
pub(crate) fn write(database: &Database<AnyProtocol>, table: TableId) -> Result<(), Error> {
    database.execute(&mut Write { table, changes: vec![(1, 0)], step: 0 })
}

/// Makes the table that evolves, or lets it, or writes into it.
fn keep(database: &Database<AnyProtocol>, step: u64) -> Result<(), Error> {
    let Some(table) = database.find_table("kept") else { return database.create_table::<Kept>().map(drop) };
    if database.definition(table)?.columns.len() == 2 {
        let table = Table::<Kept>::with_id(&**database.protocol(), table)?;
        if step.is_multiple_of(2) {
            return database.execute(&mut Keep(table, step));
        }
        return database.create_or_open_table::<after::Kept>().map(drop);
    }
    Ok(())
}

struct Keep(Table<Kept>, u64);

impl Procedure for Keep {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        let name = format!("name {}", self.1);
        (0..5).try_for_each(|id| t.insert(&self.0, &Kept { id: 10 * self.1 + id, name: name.clone() }))
    }
}

/// One transaction: keys, and what is done with their rows.
struct Write {
    table: TableId,
    changes: Vec<(u64, u64)>,
    step: u64,
}

impl Procedure for Write {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        let table = Table::<Cell>::from_id(self.table);
        for &(id, what) in &self.changes {
            match what {
                0 | 1 => {
                    let owner = id.is_multiple_of(3).then_some(id / 3);
                    let text = "text ".repeat((self.step % 20) as usize);
                    t.upsert(&table, &Cell { id, owner, value: self.step as i64, text })?;
                }
                2 => _ = t.update(&table, id, |row| row.set_value(row.value() + 1000))?,
                _ => _ = t.delete(&table, id)?,
            }
        }
        Ok(())
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let all: &[u8] = &[];
        declaration.prefix(self.table, all, Access::Write);
    }
}

/// Tables by their names: what defines them, and the rows in the order of each of their indexes.
pub(crate) type Dump = BTreeMap<String, (Arc<TableDefinition>, Vec<Vec<Vec<u64>>>)>;

/// A line of it: of each table its columns, its indexes, and the first words of its rows but for their headers.
pub(crate) fn summary(dump: &Dump) -> String {
    let rows = |orders: &[Vec<Vec<u64>>]| orders[0].iter().map(|row| row[1..].to_vec()).collect::<Vec<_>>();
    let table = |(name, (definition, orders)): (&String, &(Arc<TableDefinition>, Vec<_>))| {
        let indexes: Vec<_> = definition.indexes.iter().map(|index| &*index.name).collect();
        format!("{name}: {} columns, {indexes:?}, {:?}", definition.columns.len(), rows(orders))
    };
    dump.iter().map(table).collect::<Vec<_>>().join("; ")
}

fn dump(database: &Database<AnyProtocol>) -> Result<Dump, Error> {
    let mut dump = Dump::new();
    for name in TABLES.into_iter().chain(["kept", "kept (with other columns)"]) {
        let Some(table) = database.find_table(name) else { continue };
        let definition = database.definition(table)?;
        let mut orders = vec![database.execute(&mut Rows(table, IndexId::PRIMARY))?];
        for index in &definition.indexes {
            let index = database.find_index(table, &index.name)?.expect("it is in the definition");
            orders.push(database.execute(&mut Rows(table, index))?);
        }
        dump.insert(name.to_owned(), (definition, orders));
    }
    Ok(dump)
}

struct Rows(TableId, IndexId);

impl Procedure for Rows {
    type Output = Vec<Vec<u64>>;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<Vec<Vec<u64>>, Error> {
        let mut rows = Vec::new();
        t.scan_unchecked(&Scan { index: self.1, ..Scan::all(self.0) }, &mut |row| {
            rows.push(row.as_words().to_vec());
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }
}
