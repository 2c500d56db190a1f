//! What is seen of a server from outside: numbers, and a page that shows them.

mod http;
mod page;
mod request;
mod samples;

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use polychron::Protocol;
use polychron_sql::{Client, Connection};

pub(crate) use http::Http;
use samples::Sample;

use crate::Shared;
use crate::error::ServerError;
use crate::listen::is_of_this_machine;
use crate::registry::Place;
use crate::socket::Socket;

/// The port that shows what goes on: `/health`, `/metrics` in the text format of Prometheus, and a page.
#[derive(Clone)]
pub struct Metrics {
    /// Where; the port 0 is any that is free.
    pub address: SocketAddr,
    /// Whoever knows it may look and end transactions, as any user. Without one, all of this machine may, and nobody else. It goes over the wire as it is.
    pub password: Option<String>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (address, has_password) = (self.address, self.password.is_some());
        out.debug_struct("Metrics").field("address", &address).field("has_password", &has_password).finish()
    }
}

impl Metrics {
    /// Refuses an address that others reach without a password.
    pub(crate) fn check(&self) -> Result<(), ServerError> {
        if is_of_this_machine(self.address.ip()) || self.password.as_ref().is_some_and(|password| !password.is_empty())
        {
            return Ok(());
        }
        Err(ServerError::MetricsOnTheNetwork(self.address))
    }
}

/// What is shown.
pub(crate) trait Source: Send + Sync {
    /// The numbers now; `None`: the server ends.
    fn sample(&self) -> Option<Sample>;

    /// Ends the session of this number; whether there is one.
    fn end(&self, number: i64) -> bool;
}

struct Watched<P: Protocol>(Weak<Shared<P>>);

impl<P: Protocol> Source for Watched<P> {
    fn sample(&self) -> Option<Sample> {
        self.0.upgrade().map(|shared| Sample::of(&shared))
    }

    fn end(&self, number: i64) -> bool {
        self.0.upgrade().is_some_and(|shared| shared.database.sql_database().terminate(number))
    }
}

/// Begins to show a server, if its options say so.
pub(crate) fn start<P: Protocol>(shared: &Arc<Shared<P>>) -> Result<Option<Http>, ServerError> {
    if let Some(log) = &shared.options.slow_log {
        shared.database.sql_database().log_slow(log.clone());
    }
    let Some(metrics) = &shared.options.metrics else { return Ok(None) };
    Http::start(metrics, Arc::new(Watched(Arc::downgrade(shared)))).map(Some)
}

/// A client has shown who it is: its connection is known by its number from now on.
pub(crate) fn introduce<P: Protocol>(connection: &mut Connection<P>, place: &Place, socket: &Socket) {
    let (registry, number) = (place.registry().clone(), place.number);
    let address = socket.address().map(|address| address.to_canonical().to_string());
    let end = Box::new(move || registry.terminate(number));
    connection.introduce(Client { number: number.unsigned_abs(), address, end });
}
