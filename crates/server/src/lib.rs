//! SQL over the protocol of PostgreSQL (3.0 and 3.2). `docs/server.md` has the design.
//!
//! What a statement means is in the crate `sql`; this crate moves messages, and admits and refuses clients.

mod admission;
mod answers;
mod configuration;
mod copying;
mod credentials;
mod error;
mod extended;
mod failures;
mod files;
mod frames;
mod listen;
mod messages;
mod registry;
mod rules;
mod scram;
mod session;
mod silent;
mod simple;
mod socket;
mod startup;
mod threads;
mod tls;
mod watch;
mod watching;
mod x509;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use polychron::{Database, Protocol};
use polychron_base::clock::Duration;

use admission::Admission;
pub use admission::Reloader;
pub use configuration::{PREFIX, Sources, printed_configuration};
pub use credentials::{Credentials, Password, new_password};
pub use error::ServerError;
use failures::Failures;
pub use files::text_of;
use listen::Acceptor;
pub use polychron_sql::{Configuration, SlowLog};
use registry::Registry;
pub use rules::Rule;
use silent::Silent;
use threads::Threads;
pub use tls::TlsFiles;
use watching::Http;
pub use watching::Metrics;

/// What a server listens to, whom it admits, and when it gives up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Addresses of TCP; the port 0 is any that is free.
    pub listen: Vec<SocketAddr>,
    /// The directory of the unix socket, if there is to be one. Its name has the port of the first address, or [`Options::PORT`].
    pub socket_directory: Option<PathBuf>,
    /// Which accounts may connect to the unix socket, as permissions of a file.
    pub socket_permissions: u32,
    /// The certificate, if connections can be encrypted.
    pub tls: Option<TlsFiles>,
    /// Who may come from where; `None`: everybody who knows the password of a role.
    pub rules: Option<Vec<Rule>>,
    /// Clients of other machines are admitted although nothing is encrypted: whoever reads the wire reads the data.
    pub allows_plain_text_on_the_network: bool,
    /// How clients show who they are.
    pub credentials: Credentials,
    /// The most clients at once. Each has a file of the process, and, while it is not silent, a worker of the database.
    pub max_connections: usize,
    /// How many of them are kept for superusers.
    pub superuser_reserved_connections: usize,
    /// The most clients that have not yet shown who they are; beyond, the oldest one of them goes.
    pub max_unauthenticated: usize,
    /// How long a client may take to show who it is, unless that is configured.
    pub authentication_timeout: Duration,
    /// How long open transactions may go on when the server ends, unless that is configured.
    pub shutdown_grace: Duration,
    /// The port that shows what goes on, if there is to be one.
    pub metrics: Option<Metrics>,
    /// Where transactions are told that take long, if they are.
    pub slow_log: Option<SlowLog>,
}

impl Options {
    /// The port of PostgreSQL.
    pub const PORT: u16 = 5432;

    /// Tries whether a server could start with these options beside one that listens to these addresses, which ends before.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn check(&self, own: &[SocketAddr]) -> Result<(), ServerError> {
        self.check_connections()?;
        Admission::new(self)?;
        self.metrics.iter().try_for_each(Metrics::check)?;
        listen::try_doors(self, own)
    }

    fn check_connections(&self) -> Result<(), ServerError> {
        let (reserved, most) = (self.superuser_reserved_connections, self.max_connections);
        if reserved < most {
            return Ok(());
        }
        let message = format!("superuser_reserved_connections ({reserved}) must be less than max_connections ({most})");
        Err(ServerError::Configuration(message))
    }

    /// Those of a server on this machine alone.
    pub fn new(credentials: Credentials) -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], Self::PORT))],
            socket_directory: None,
            socket_permissions: 0o777,
            tls: None,
            rules: None,
            allows_plain_text_on_the_network: false,
            credentials,
            max_connections: 100,
            superuser_reserved_connections: 3,
            max_unauthenticated: 100,
            authentication_timeout: Duration::from_secs(60),
            shutdown_grace: Duration::from_secs(10),
            metrics: None,
            slow_log: None,
        }
    }
}

/// What all sessions of a server share.
pub(crate) struct Shared<P: Protocol> {
    pub(crate) database: Database<P>,
    pub(crate) options: Options,
    pub(crate) registry: Registry,
    pub(crate) threads: Threads<P>,
    pub(crate) silent: Silent<P>,
    pub(crate) failures: Failures,
    pub(crate) admission: Arc<Admission>,
}

/// A server that runs. Dropped, it ends as with [`Server::wait`] after [`Stopper::stop`].
pub struct Server<P: Protocol> {
    shared: Option<Arc<Shared<P>>>,
    acceptors: Vec<Acceptor>,
    /// Waits for silent clients.
    watcher: Option<JoinHandle<()>>,
    http: Option<Http>,
    stopper: Stopper,
}

impl<P: Protocol> std::fmt::Debug for Server<P> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Server").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}

/// Ends a server, from any thread.
#[derive(Clone, Debug)]
pub struct Stopper(Registry);

impl Stopper {
    /// Has the server end: no more clients come, idle sessions end at once, and open transactions have the grace.
    pub fn stop(&self) {
        self.0.stop();
    }
}

impl<P: Protocol> Server<P> {
    /// Listens, and serves the database from now on.
    ///
    /// # Errors
    /// An address is not one of this machine and nothing allows it, or cannot be listened to; or the certificate cannot be used.
    pub fn start(database: Database<P>, options: Options) -> Result<Self, ServerError> {
        options.check_connections()?;
        let registry = Registry::new(&options);
        let stopper = Stopper(registry.clone());
        let admission = Arc::new(Admission::new(&options)?);
        let doors = listen::doors(&options)?;
        listen::allow_files(options.max_connections);
        let no_thread = |error| ServerError::System(format!("silent clients cannot be waited for: {error}"));
        let (threads, silent) = (Threads::default(), Silent::new().map_err(no_thread)?);
        let failures = Failures::default();
        let shared = Arc::new(Shared { database, options, registry, threads, silent, failures, admission });
        let watcher = Some(silent::start(&shared).map_err(no_thread)?);
        let mut server = Self {
            shared: Some(shared.clone()),
            acceptors: Vec::new(),
            watcher,
            http: watching::start(&shared)?,
            stopper,
        };
        for door in doors {
            server.acceptors.push(Acceptor::start(door, &shared)?);
        }
        Ok(server)
    }

    /// Where it listens to TCP.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.acceptors.iter().filter_map(Acceptor::address).collect()
    }

    /// Where it shows what goes on.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(Http::address)
    }

    /// Its unix socket.
    pub fn socket(&self) -> Option<&std::path::Path> {
        self.acceptors.iter().find_map(Acceptor::path)
    }

    /// What ends it.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// What gives it other rules and another certificate.
    pub fn reloader(&self) -> Option<Reloader> {
        self.shared.as_ref().map(|shared| Reloader::of(&shared.admission))
    }

    /// Waits until it was stopped and all sessions have ended. The answer is the database, which nothing uses then.
    pub fn wait(mut self) -> Option<Database<P>> {
        self.stopper.0.wait_for_stop();
        self.end()
    }

    fn end(&mut self) -> Option<Database<P>> {
        let shared = self.shared.take()?;
        self.acceptors.drain(..).for_each(Acceptor::end);
        let grace = shared.database.sql_database().configured_time("shutdown_grace");
        let grace = grace.unwrap_or(shared.options.shutdown_grace);
        self.http = None;
        self.stopper.0.wait_for_sessions(grace);
        shared.silent.end();
        shared.threads.end();
        // A panic there was reported where it came from.
        drop(self.watcher.take().map(JoinHandle::join));
        // The thread of the last session may not have dropped it yet.
        let mut shared = shared;
        loop {
            match Arc::try_unwrap(shared) {
                Ok(alone) => return Some(alone.database),
                Err(still) => shared = still,
            }
            std::thread::yield_now();
        }
    }
}

impl<P: Protocol> Drop for Server<P> {
    fn drop(&mut self) {
        self.stopper.stop();
        drop(self.end());
    }
}
