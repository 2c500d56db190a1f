//! Why a server does not begin, and why a session ends.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use polychron_sql::{SqlError, SqlState};

/// Why a server does not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// An address that others reach, where everything goes over the wire as it is.
    #[error(
        "{0} is reached from other machines, and nothing that goes there is encrypted: give a certificate, listen to 127.0.0.1, or say that it is to be so all the same"
    )]
    PlainTextOnTheNetwork(SocketAddr),
    /// An address that others reach, where everybody is admitted.
    #[error("{0} is reached from other machines, and clients there need a password: `trust` is for this machine alone")]
    TrustOnTheNetwork(SocketAddr),
    /// An address that others reach, where everybody would be shown what goes on.
    #[error("{0} is reached from other machines, and metrics there need a password")]
    MetricsOnTheNetwork(SocketAddr),
    /// An address cannot be listened to.
    #[error("{0}: {1}")]
    Listen(SocketAddr, io::Error),
    /// A unix socket cannot be listened to.
    #[error("{path}: {1}", path = .0.display())]
    Socket(PathBuf, io::Error),
    /// Nothing is listened to.
    #[error("there is no address to listen to")]
    NoAddress,
    /// A file of passwords cannot be used.
    #[error("{path}: {1}", path = .0.display())]
    Credentials(PathBuf, String),
    /// A certificate or its key cannot be used.
    #[error("{path}: {1}", path = .0.display())]
    Tls(PathBuf, String),
    /// Rules cannot be used.
    #[error("{0}")]
    Rules(String),
    /// Rules say how clients show who they are, and so does the option that admits everybody.
    #[error("there are rules, and everybody is to be admitted: give one of both")]
    TrustBesideRules,
    /// The configuration is wrong.
    #[error("{0}")]
    Configuration(String),
    /// A server would not start with what ALTER SYSTEM says.
    #[error("the server would not start with it: {0}")]
    Trial(String),
    /// The system gives no thread, or no random bytes.
    #[error("{0}")]
    System(String),
}

/// How a session ends before its client ends it.
#[derive(Debug)]
pub(crate) enum End {
    /// The client is gone, or was sent away without a word.
    Gone,
    /// The client is told why.
    Fatal(SqlError),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

impl End {
    pub(crate) fn fatal(state: SqlState, message: impl Into<String>) -> Self {
        Self::Fatal(SqlError::new(state, message))
    }

    /// What the client has sent is not of the protocol, and nobody knows where the next message begins.
    pub(crate) fn violation(message: impl Into<String>) -> Self {
        Self::fatal(SqlState::PROTOCOL_VIOLATION, message)
    }

    pub(crate) fn shutdown() -> Self {
        Self::fatal(SqlState::ADMIN_SHUTDOWN, "terminating connection due to administrator command")
    }
}

/// The error of a message whose content is wrong.
pub(crate) fn malformed(what: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::PROTOCOL_VIOLATION, what)
}
