//! The process that is killed.

use std::io::Read;
use std::path::{Path, PathBuf};

use polychron::schema::{ColumnType, IndexDefinition, TableDefinition};
use polychron::{AnyProtocol, Database, Durability, Error, Options, Session, any_protocol};
use polychron_base::random::Random;
use polychron_sync::atomic::{AtomicBool, Ordering};

use crate::ledger::Line;
use crate::work::{Refusal, Tables, Work};

/// What a client process is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// The database's directory.
    pub directory: PathBuf,
    /// A protocol's name.
    pub protocol: String,
    /// When answers leave.
    pub durability: Durability,
    /// How many clients this directory has had before.
    pub life: u64,
    /// What is drawn from.
    pub seed: u64,
    /// How many threads execute transactions.
    pub threads: u64,
    /// Where log files go, and where the first client makes a backup.
    pub kept: Option<Kept>,
}

/// What a database can be restored from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The archive.
    pub archive: PathBuf,
    /// The backup.
    pub backup: PathBuf,
}

/// Opens a directory, which may be empty.
pub(crate) fn open(
    directory: &Path,
    protocol: &str,
    durability: Durability,
    kept: Option<&Kept>,
) -> Result<Database<AnyProtocol>, Error> {
    let mut options = Options { protocol: any_protocol(protocol, &[])?, common: Default::default() };
    options.common.memory.max_workers = 16;
    options.common.memory.huge_pages = false;
    options.common.submissions.threads = 2;
    let builder = Database::builder().with::<AnyProtocol>().options(options).durability(durability);
    kept.iter().fold(builder, |builder, kept| builder.archive(&kept.archive)).open(directory)
}

/// The tables, which are made if they are not there.
pub(crate) fn tables(database: &Database<AnyProtocol>) -> Result<Tables, Error> {
    Ok(Tables {
        registers: database.create_or_open_table()?,
        gone: database.create_or_open_table()?,
        entries: database.create_or_open_table()?,
    })
}

/// Executes transactions until something comes on the standard input, and then closes the database; or until it is killed.
///
/// # Errors
/// What keeps the database from being opened or closed.
pub fn client(client: &Client) -> Result<(), Error> {
    let database = open(&client.directory, &client.protocol, client.durability, client.kept.as_ref())?;
    let tables = tables(&database)?;
    if let Some(kept) = client.kept.as_ref().filter(|kept| !kept.backup.exists()) {
        database.backup(&kept.backup)?;
    }
    Line::Open.tell();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..client.threads {
            let (database, is_over) = (&database, &is_over);
            scope.spawn(move || Thread::new(client, thread, database, tables).run(is_over));
        }
        let _ = std::io::stdin().read(&mut [0]);
        is_over.store(true, Ordering::Relaxed);
    });
    database.close()?;
    Line::Closed.tell();
    Ok(())
}

/// A thread of a client.
struct Thread<'d> {
    database: &'d Database<AnyProtocol>,
    session: Option<Session<AnyProtocol>>,
    tables: Tables,
    random: Random,
    is_interactive: bool,
    next: u64,
    is_first: bool,
    /// Tables that it has made.
    made: Vec<u64>,
}

impl<'d> Thread<'d> {
    fn new(client: &Client, thread: u64, database: &'d Database<AnyProtocol>, tables: Tables) -> Self {
        let session = database.session().ok();
        let is_interactive = database.begin().is_ok();
        let next = client.life << 40 | (thread + 1) << 32;
        let random = Random::stream(client.seed, next);
        Self { database, session, tables, random, is_interactive, next, is_first: thread == 0, made: Vec::new() }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn run(&mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            match self.random.below(20) {
                0 if self.is_first => self.define(),
                1 => self.batch(),
                2 => self.submissions(),
                3 => self.snapshot(),
                _ => self.one(),
            }
        }
    }

    fn draw(&mut self) -> Work {
        let id = self.number();
        let work = Work::draw(self.tables, id, &mut self.random);
        Line::Begin(id).tell();
        work
    }

    fn one(&mut self) {
        let mut work = self.draw();
        let id = work.id;
        let way = self.random.below(if self.is_interactive { 5 } else { 2 });
        let answer = match (way, &mut self.session) {
            (0, Some(session)) => session.execute(&mut work),
            (2, Some(session)) => session.transact(|transaction| work.execute(transaction)),
            (3, _) => self.step_by_step(&work),
            (4, _) => self.database.transact(|transaction| work.execute(transaction)),
            _ => self.database.execute(&mut work),
        };
        tell(id, answer);
    }

    fn step_by_step(&self, work: &Work) -> Result<String, Refusal> {
        loop {
            let mut transaction = self.database.begin()?;
            match work.execute(&mut transaction) {
                Ok(found) => match transaction.commit() {
                    Ok(()) => return Ok(found),
                    Err(error) if error.is_conflict() => {}
                    Err(error) => return Err(error.into()),
                },
                // What it is refused by may come of reads that do not count.
                Err(refusal) if transaction.rollback() => return Err(refusal),
                Err(_) => {}
            }
        }
    }

    /// Answers of a batch are durable when the call has returned.
    fn batch(&mut self) {
        let mut works: Vec<Work> = (0..8).map(|_| self.draw()).collect();
        let ids: Vec<u64> = works.iter().map(|work| work.id).collect();
        let Some(session) = &mut self.session else { return };
        let mut answers = Vec::new();
        session.execute_batch(&mut works, |position, answer| answers.push((ids[position], answer)));
        answers.into_iter().for_each(|(id, answer)| tell(id, answer));
    }

    fn submissions(&mut self) {
        let works: Vec<Work> = (0..8).map(|_| self.draw()).collect();
        let submitted: Vec<_> = works.into_iter().map(|work| (work.id, self.database.submit(work))).collect();
        submitted.into_iter().for_each(|(id, submission)| tell(id, submission.wait()));
    }

    /// It reads the past: nothing is told of its beginning, which is not before what it shows.
    fn snapshot(&mut self) {
        let id = self.number();
        let work = Work::draw(self.tables, id, &mut self.random);
        if let Some(session) = &mut self.session
            && work.is_reader()
            && self.is_interactive
        {
            tell(id, session.snapshot(|transaction| work.execute(transaction)));
        }
    }

    fn define(&mut self) {
        let is_full = self.made.len() > 3;
        if let Some(number) = self.made.pop_if(|_| is_full) {
            Line::Dropping(number).tell();
            let dropped = self.database.find_table(&name_of(number)).map(|table| self.database.drop_table(table));
            tell_definition(Line::Dropped(number), dropped.unwrap_or(Ok(())));
        } else {
            let number = self.number();
            Line::Creating(number).tell();
            let definition = TableDefinition::new(name_of(number)).with_column("id", ColumnType::U64).with_key([0]);
            tell_definition(Line::Created(number), self.database.create_table_with(definition).map(drop));
            self.made.push(number);
        }
        self.indexes();
    }

    /// Makes an index of the registers, or drops it.
    fn indexes(&self) {
        let table = self.tables.registers.id();
        let index = IndexDefinition::new(BY_WRITER, [2]);
        match self.database.create_index_with(table, index) {
            Err(Error::NameTaken(_)) | Ok(_) if self.next.is_multiple_of(2) => {}
            Ok(index) => {
                if let Err(error) = self.database.drop_index(table, index) {
                    Line::Wrong(format!("an index was not dropped: {error}")).tell();
                }
            }
            Err(Error::NameTaken(_)) => {}
            Err(error) => Line::Wrong(format!("an index was not made: {error}")).tell(),
        }
    }
}

/// The index that comes and goes.
pub(crate) const BY_WRITER: &str = "by_writer";

/// The name of a table that comes and goes.
pub(crate) fn name_of(number: u64) -> String {
    format!("extra{number}")
}

fn tell(id: u64, answer: Result<String, Refusal>) {
    match answer {
        Ok(found) => Line::Done(id, found).tell(),
        Err(Refusal::Meant) => Line::Failed(id).tell(),
        // It may be there or not.
        Err(Refusal::Engine(Error::LogStopped(_))) => {}
        Err(Refusal::Engine(error)) => Line::Wrong(format!("{id}: {error}")).tell(),
    }
}

fn tell_definition(line: Line, answer: Result<(), Error>) {
    match answer {
        Ok(()) => line.tell(),
        Err(Error::LogStopped(_)) => {}
        Err(error) => Line::Wrong(format!("{line:?}: {error}")).tell(),
    }
}
