//! Who may come: by which rules, and with which certificate. Both can be given anew while the server runs.

use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use polychron_sql::{SqlError, SqlState};

use crate::Options;
use crate::credentials::Credentials;
use crate::error::ServerError;
use crate::listen::is_of_this_machine;
use crate::rules::{self, Client, Method, Rule};
use crate::socket::Socket;
use crate::tls::Tls;

/// What decides who may come.
#[derive(Debug)]
pub(crate) struct Admission {
    tls: Option<Tls>,
    rules: RwLock<Vec<Rule>>,
    admits_everybody: bool,
    allows_plain_text_on_the_network: bool,
}

impl Admission {
    pub(crate) fn new(options: &Options) -> Result<Self, ServerError> {
        let own = Self {
            tls: options.tls.clone().map(Tls::new).transpose()?,
            rules: RwLock::new(Rule::usual()),
            admits_everybody: matches!(options.credentials, Credentials::Trust),
            allows_plain_text_on_the_network: options.allows_plain_text_on_the_network,
        };
        own.set_rules(options.rules.clone())?;
        Ok(own)
    }

    fn set_rules(&self, rules: Option<Vec<Rule>>) -> Result<(), ServerError> {
        if self.admits_everybody && rules.is_some() {
            return Err(ServerError::TrustBesideRules);
        }
        let rules = rules.unwrap_or_else(Rule::usual);
        if rules::need_certificates(&rules) && !self.tls.as_ref().is_some_and(Tls::takes_certificates) {
            let message = "\"cert\" needs to know who signs the certificates of clients";
            return Err(ServerError::Rules(message.to_owned()));
        }
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = rules;
        Ok(())
    }

    /// What encrypts a connection, if anything does: a unix socket is not left by what goes over it.
    pub(crate) fn tls(&self, socket: &Socket) -> Option<&Tls> {
        self.tls.as_ref().filter(|_| !socket.is_unix())
    }

    /// How a client shows who it is.
    ///
    /// # Errors
    /// It may not come.
    pub(crate) fn method(&self, socket: &Socket, database: &str, role: &str) -> Result<Method, SqlError> {
        let (address, is_secured) =
            (socket.address().map(|address| address.to_canonical()), socket.secured().is_some());
        if address.is_none() && !socket.is_unix() {
            return Err(SqlError::new(SqlState::INVALID_AUTHORIZATION, "the address of the client is not known"));
        }
        let client = Client { address, is_secured, database, role };
        let is_far = address.is_some_and(|address| !is_of_this_machine(address));
        if is_far && !is_secured && !self.allows_plain_text_on_the_network {
            return Err(refused(client, "no pg_hba.conf entry for"));
        }
        if self.admits_everybody {
            return Ok(Method::Trust);
        }
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        match rules::method(&rules, client) {
            None => Err(refused(client, "no pg_hba.conf entry for")),
            Some(Method::Reject) => Err(refused(client, "pg_hba.conf rejects connection for")),
            Some(method) => Ok(method),
        }
    }
}

/// As PostgreSQL says it, so that users find what it means.
fn refused(client: Client<'_>, what: &str) -> SqlError {
    let host = client.address.as_ref().map_or_else(|| "[local]".to_owned(), IpAddr::to_string);
    let encryption = if client.is_secured { "SSL encryption" } else { "no encryption" };
    let Client { role, database, .. } = client;
    let message = format!("{what} host \"{host}\", user \"{role}\", database \"{database}\", {encryption}");
    SqlError::new(SqlState::INVALID_AUTHORIZATION, message)
}

/// Gives a running server other rules and another certificate, from any thread. Clients that have come already stay.
#[derive(Clone, Debug)]
pub struct Reloader(Arc<Admission>);

impl Reloader {
    pub(crate) fn of(admission: &Arc<Admission>) -> Self {
        Self(admission.clone())
    }

    /// Reads the certificate and its key again, if there are any.
    ///
    /// # Errors
    /// They cannot be used: those that were there stay.
    pub fn read_certificate(&self) -> Result<(), ServerError> {
        self.0.tls.as_ref().map_or(Ok(()), Tls::reload)
    }

    /// Has these rules count for clients that come from now on; `None`: those of a server without rules.
    ///
    /// # Errors
    /// The server admits everybody, or does not know who signs the certificates that they ask for: the old ones stay.
    pub fn set_rules(&self, rules: Option<Vec<Rule>>) -> Result<(), ServerError> {
        self.0.set_rules(rules)
    }
}
