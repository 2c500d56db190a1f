//! Sockets of both kinds, with and without TLS.

use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

use polychron_base::clock::Duration;

use crate::tls::{Certificate, Secured};

/// How long the end of a session is written.
const LAST_WRITE: Duration = Duration::from_millis(100);

/// What bytes go over.
#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match self {
                Stream::Tcp(stream) => (&*stream).read(buffer),
                Stream::Unix(stream) => (&*stream).read(buffer),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&*stream).write(bytes),
            Stream::Unix(stream) => (&*stream).write(bytes),
        }
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&*stream).write_vectored(pieces),
            Stream::Unix(stream) => (&*stream).write_vectored(pieces),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection to a client. One thread reads and writes, others may end it.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: Stream,
    /// Once it is there, everything is encrypted.
    secured: OnceLock<Box<Secured>>,
}

impl Socket {
    pub(crate) fn tcp(stream: TcpStream) -> Self {
        Self { stream: Stream::Tcp(stream), secured: OnceLock::new() }
    }

    pub(crate) fn unix(stream: UnixStream) -> Self {
        Self { stream: Stream::Unix(stream), secured: OnceLock::new() }
    }

    /// Encrypts everything from now on; `early` has come of it already.
    pub(crate) fn secure(&self, certificate: &Certificate, early: &[u8]) -> io::Result<()> {
        let secured = Secured::begin(certificate, early, &mut &self.stream)?;
        self.secured.set(Box::new(secured)).map_err(|_| io::ErrorKind::AlreadyExists.into())
    }

    pub(crate) fn secured(&self) -> Option<&Secured> {
        self.secured.get().map(|secured| &**secured)
    }

    /// Reads what is there. 0: what has come says nothing by itself. `None`: the end.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.secured() {
            None => Ok(Some((&self.stream).read(buffer)?).filter(|count| *count > 0)),
            Some(secured) => secured.read(&mut &self.stream, buffer),
        }
    }

    /// Writes everything, however slowly the client reads.
    pub(crate) fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self.secured() {
            None => (&self.stream).write_all(bytes),
            Some(secured) => secured.write_all(&mut &self.stream, bytes),
        }
    }

    /// How long a read may wait; without an end otherwise.
    pub(crate) fn set_read_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        match &self.stream {
            Stream::Tcp(stream) => stream.set_read_timeout(time),
            Stream::Unix(stream) => stream.set_read_timeout(time),
        }
    }

    /// How long a write may wait; without an end otherwise.
    pub(crate) fn set_write_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        match &self.stream {
            Stream::Tcp(stream) => stream.set_write_timeout(time),
            Stream::Unix(stream) => stream.set_write_timeout(time),
        }
    }

    /// Ends the reading, or also the writing: what waits there wakes up.
    pub(crate) fn shut_down(&self, how: Shutdown) {
        // It may have ended by itself.
        let _ = match &self.stream {
            Stream::Tcp(stream) => stream.shutdown(how),
            Stream::Unix(stream) => stream.shutdown(how),
        };
    }

    /// Ends the connection, in its thread: over TLS the client is told that nothing was cut off.
    pub(crate) fn end(&self) {
        if let Some(secured) = self.secured() {
            // A client that does not read is not waited for.
            if self.set_write_timeout(Some(LAST_WRITE)).is_ok() {
                secured.close(&mut &self.stream);
            }
        }
        self.shut_down(Shutdown::Both);
    }

    pub(crate) fn is_unix(&self) -> bool {
        matches!(self.stream, Stream::Unix(_))
    }

    /// The address of the other end, if it has one.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        match &self.stream {
            Stream::Tcp(stream) => stream.peer_addr().ok().map(|address| address.ip()),
            Stream::Unix(_) => None,
        }
    }

    /// Whether the process at the other end belongs to the account of this one.
    pub(crate) fn is_of_own_account(&self) -> bool {
        match &self.stream {
            Stream::Tcp(_) => false,
            Stream::Unix(stream) => {
                rustix::net::sockopt::socket_peercred(stream).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.stream {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}
