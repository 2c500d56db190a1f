//! Sockets of both kinds.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;

use polychron_base::clock::Duration;

/// A connection to a client. One thread reads and writes, others may end it.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Reads what is there, at least a byte; 0 at the end.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match self {
                Self::Tcp(stream) => (&*stream).read(buffer),
                Self::Unix(stream) => (&*stream).read(buffer),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// Writes everything, however slowly the client reads.
    pub(crate) fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => (&*stream).write_all(bytes),
            Self::Unix(stream) => (&*stream).write_all(bytes),
        }
    }

    /// How long a read may wait; without an end otherwise.
    pub(crate) fn set_read_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(time),
            Self::Unix(stream) => stream.set_read_timeout(time),
        }
    }

    /// How long a write may wait; without an end otherwise.
    pub(crate) fn set_write_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_write_timeout(time),
            Self::Unix(stream) => stream.set_write_timeout(time),
        }
    }

    /// Ends the reading, or also the writing: what waits there wakes up.
    pub(crate) fn shut_down(&self, how: Shutdown) {
        // It may have ended by itself.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(how),
            Self::Unix(stream) => stream.shutdown(how),
        };
    }

    /// The address of the other end, if it has one.
    pub(crate) fn address(&self) -> Option<std::net::IpAddr> {
        match self {
            Self::Tcp(stream) => stream.peer_addr().ok().map(|address| address.ip()),
            Self::Unix(_) => None,
        }
    }

    /// Whether the process at the other end belongs to the account of this one.
    pub(crate) fn is_of_own_account(&self) -> bool {
        match self {
            Self::Tcp(_) => false,
            Self::Unix(stream) => {
                rustix::net::sockopt::socket_peercred(stream).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
            }
        }
    }
}
