//! How a database is opened.

use std::time::Duration;

#[cfg(feature = "any")]
use polychron_engine::any::AnyProtocol;
use polychron_engine::options::Retry;
use polychron_engine::{Error, Event, Protocol};

use crate::list::DefaultProtocol;
#[cfg(feature = "any")]
use crate::list::{ProtocolList, Protocols, any_protocol_of};
use crate::{Database, Options};

/// Opens a database with other options than the default ones; see [`Database::builder`].
///
/// Options that contradict each other, or that the system cannot grant, are refused by the method that opens the database.
#[derive(Clone, Debug)]
#[must_use = "a builder opens nothing until `in_memory` or `open` is called"]
pub struct Builder<P: Protocol = DefaultProtocol> {
    pub(crate) options: Options<P::Options>,
    /// The first option that was refused, and why.
    refused: Option<Refusal>,
    /// Of a database with a path.
    #[cfg(feature = "durability")]
    pub(crate) on_disk: crate::durable::OnDisk,
}

/// The refusal, as [`Error::Options`] describes it. `Error` itself cannot be cloned.
#[derive(Clone, Debug)]
struct Refusal(String);

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            options: Options::default(),
            refused: None,
            #[cfg(feature = "durability")]
            on_disk: crate::durable::OnDisk::default(),
        }
    }

    /// Takes the protocol of this name, or of one of its named configurations ([`Protocols::all`]): the choice is made when the program
    /// runs. Every operation is then a virtual call. All forms of transactions work, except those that the protocol does not have: `bohm`
    /// executes and submits procedures alone.
    ///
    /// ```
    /// use polychron::prelude::*;
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    ///
    /// let name = std::env::var("PROTOCOL").unwrap_or("hyper".to_owned());
    /// let database = Database::builder().protocol(&name).in_memory()?;
    /// let accounts = database.create_table::<Account>()?;
    /// database.transact(|transaction| transaction.insert(&accounts, &Account { id: 1, balance: 5 }))?;
    ///
    /// let refused = Database::builder().protocol("parallel").in_memory();
    /// assert!(refused.unwrap_err().to_string().starts_with("there is no protocol `parallel`; the protocols are cicada,"));
    /// # Ok::<(), Error>(())
    /// ```
    #[cfg(feature = "any")]
    pub fn protocol(self, name: &str) -> Builder<AnyProtocol> {
        self.protocol_of::<Protocols>(name, &[])
    }

    /// As [`Builder::protocol`], from another list, with these options of the protocol, each a name and a value.
    #[cfg(feature = "any")]
    pub fn protocol_of<L: ProtocolList>(self, name: &str, options: &[(&str, &str)]) -> Builder<AnyProtocol> {
        let mut refused = self.refused.clone();
        let protocol = any_protocol_of::<L>(name, options).unwrap_or_else(|error| {
            refused.get_or_insert(Refusal(error.to_string()));
            Default::default()
        });
        self.of_protocol(protocol, refused)
    }
}

impl<P: Protocol> Builder<P> {
    /// Takes the protocol `Q`, with its default options: code is compiled for it, and nothing is a virtual call.
    ///
    /// ```
    /// use polychron::{Database, protocols::Hyper};
    ///
    /// let database: Database<Hyper> = Database::builder().with::<Hyper>().in_memory()?;
    /// # Ok::<(), polychron::Error>(())
    /// ```
    pub fn with<Q: Protocol>(self) -> Builder<Q> {
        let refused = self.refused.clone();
        self.of_protocol(Q::Options::default(), refused)
    }

    fn of_protocol<Q: Protocol>(self, protocol: Q::Options, refused: Option<Refusal>) -> Builder<Q> {
        Builder {
            options: Options { protocol, common: self.options.common },
            refused,
            #[cfg(feature = "durability")]
            on_disk: self.on_disk,
        }
    }

    /// Sets one option of the protocol, by the name and value that its page and `polychron bench list` give.
    ///
    /// ```
    /// use polychron::Database;
    ///
    /// let database = Database::builder().protocol_option("indexes", "multi-version").in_memory()?;
    /// assert!(Database::builder().protocol_option("indices", "many").in_memory().is_err());
    /// # Ok::<(), polychron::Error>(())
    /// ```
    pub fn protocol_option(mut self, name: &str, value: &str) -> Self {
        if let Err(error) = P::set_option(&mut self.options.protocol, name, value) {
            self.refused.get_or_insert(Refusal(error.to_string()));
        }
        self
    }

    /// The memory for rows, versions and indexes never exceeds so many bytes. Without this it is what the machine or
    /// its control group grants.
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.options.common.memory.limit_bytes = Some(bytes);
        self
    }

    /// So many threads execute what is submitted; one for each core unless told otherwise.
    pub fn threads(mut self, threads: usize) -> Self {
        self.options.common.submissions.threads = threads;
        self
    }

    /// So many workers at most: sessions, calls that are under way at once, and threads for submissions. 256 unless told otherwise.
    pub fn workers(mut self, most: usize) -> Self {
        self.options.common.memory.max_workers = most;
        self
    }

    /// Pins each thread on which a worker runs (a session's, one that executes submissions) to a processor of its own, and has it take memory of that
    /// processor's node. For machines with nothing else to do: a thread stays pinned, and threads that it starts begin on its processor.
    ///
    /// ```
    /// let database = polychron::Database::builder().pin_workers(true).in_memory()?;
    /// std::thread::spawn(move || {
    ///     let mut session = database.session()?;
    ///     session.transact(|_| Ok::<_, polychron::Error>(()))?;
    ///     let nodes = database.statistics().memory.map(|memory| memory.nodes).unwrap_or_default();
    ///     assert!(nodes.iter().map(|node| node.pinned_workers).sum::<usize>() == 1 || !cfg!(target_os = "linux"));
    ///     Ok::<_, polychron::Error>(())
    /// })
    /// .join()
    /// .unwrap()?;
    /// # Ok::<(), polychron::Error>(())
    /// ```
    pub fn pin_workers(mut self, pins: bool) -> Self {
        self.options.common.memory.pin_workers = pins;
        self
    }

    /// Has `listener` called with what happens in the database, on the thread on which it happens: see [`Event`].
    ///
    /// ```
    /// use polychron::{Database, Event};
    ///
    /// let database = Database::builder()
    ///     .on_event(|event| {
    ///         if let Event::Conflict { abort, attempts, .. } = event {
    ///             eprintln!("conflict {attempts}: {abort}");
    ///         }
    ///     })
    ///     .in_memory()?;
    /// # Ok::<(), polychron::Error>(())
    /// ```
    pub fn on_event(mut self, listener: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        self.options.common.events = std::mem::take(&mut self.options.common.events).listener(listener);
        self
    }

    /// Reports transactions that take so long, repetitions included, as [`Event::Slow`].
    pub fn slow_transactions(mut self, least: Duration) -> Self {
        self.options.common.events = std::mem::take(&mut self.options.common.events).slow(least);
        self
    }

    /// Makes `tracing` events of what happens: a conflict and the progress of an opening are of level `DEBUG`, all else are of level `WARN`.
    #[cfg(feature = "tracing")]
    pub fn trace(self) -> Self {
        self.on_event(crate::telemetry::trace)
    }

    /// How conflicts are retried.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.options.common.retry = retry;
        self
    }

    /// How often the epochs move on: what snapshots and the reclamation of memory go by. 10 ms unless told otherwise.
    pub fn epoch_interval(mut self, interval: Duration) -> Self {
        self.options.common.memory.epoch_interval = Some(interval);
        self
    }

    /// A preset for small programs and tests: at most 64 MiB, eight workers, one thread for submissions, no huge pages.
    ///
    /// ```
    /// let database = polychron::Database::builder().small().in_memory()?;
    /// assert_eq!(database.statistics().memory.map(|memory| memory.limit_bytes), Some(64 << 20));
    /// # Ok::<(), polychron::Error>(())
    /// ```
    pub fn small(self) -> Self {
        let mut small = self.memory_limit(64 << 20).workers(8).threads(1);
        small.options.common.memory.huge_pages = false;
        small
    }

    /// Takes all options from here.
    pub fn options(mut self, options: Options<P::Options>) -> Self {
        self.options = options;
        self
    }

    /// Opens an empty database in memory: it lives as long as its last clone.
    ///
    /// # Errors
    /// [`Error::Options`] when an option is refused, standbys among them, [`Error::OutOfMemory`] when the memory limit leaves no room to start.
    pub fn in_memory(self) -> Result<Database<P>, Error> {
        #[cfg(feature = "durability")]
        self.on_disk.refuse_standbys("a database in memory has no log that standbys could follow")?;
        Database::with_options(self.checked()?)
    }

    /// The options, if none was refused.
    pub(crate) fn checked(self) -> Result<Options<P::Options>, Error> {
        match self.refused {
            Some(Refusal(why)) => Err(Error::options(why)),
            None => Ok(self.options),
        }
    }
}
