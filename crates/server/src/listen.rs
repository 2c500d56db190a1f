//! Listening: a thread for each address.

use std::fs::{self, Permissions};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use polychron::Protocol;
use polychron_base::clock::Duration;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::credentials::Credentials;
use crate::error::ServerError;
use crate::registry::Registry;
use crate::socket::Socket;
use crate::startup::Newcomer;
use crate::threads::{self, Task};
use crate::{Options, Shared};

/// How long an acceptor waits where the system gives no more connections or threads.
const BREATH: Duration = Duration::from_millis(50);
/// How long a client that has not shown who it is may not read what it is sent.
const FIRST_WRITES: Duration = Duration::from_secs(10);

/// Something that is listened to.
#[derive(Debug)]
pub(crate) enum Door {
    Tcp(TcpListener),
    /// With its path, which is removed at the end.
    Unix(UnixListener, PathBuf),
}

/// Refuses addresses that others reach where nothing says that they may.
fn check_addresses(options: &Options) -> Result<(), ServerError> {
    for address in &options.listen {
        if is_of_this_machine(address.ip()) {
            continue;
        }
        if options.tls.is_none() && !options.allows_plain_text_on_the_network {
            return Err(ServerError::PlainTextOnTheNetwork(*address));
        }
        if matches!(options.credentials, Credentials::Trust) {
            return Err(ServerError::TrustOnTheNetwork(*address));
        }
    }
    Ok(())
}

/// Tries whether the options' addresses could be listened to, beside a server that listens to these.
pub(crate) fn try_doors(options: &Options, own: &[SocketAddr]) -> Result<(), ServerError> {
    check_addresses(options)?;
    let metrics = options.metrics.iter().map(|metrics| &metrics.address);
    let all: Vec<_> = options.listen.iter().chain(metrics).collect();
    for (at, address) in all.iter().enumerate() {
        if all[..at].iter().any(|other| overlap(**other, **address)) {
            return Err(ServerError::Listen(**address, io::ErrorKind::AddrInUse.into()));
        }
        // A port of the server itself is free when it starts again.
        let is_own = own.iter().any(|own| own.port() == address.port());
        let tried = SocketAddr::new(address.ip(), if is_own { 0 } else { address.port() });
        TcpListener::bind(tried).map_err(|error| ServerError::Listen(**address, error))?;
    }
    if let Some(directory) = &options.socket_directory {
        // As long as the name of any port's.
        let path = directory.join(format!(".s.trial.{}", std::process::id()));
        let tried = bind(&path, 0o600).map(drop).and_then(|()| fs::remove_file(&path));
        tried.map_err(|error| ServerError::Socket(path, error))?;
    }
    if options.listen.is_empty() && options.socket_directory.is_none() {
        return Err(ServerError::NoAddress);
    }
    Ok(())
}

/// Whether two listeners cannot have these addresses at one time. Port 0 is any free one.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let [first, second] = [one, other].map(|address| address.ip().to_canonical());
    one.port() != 0
        && one.port() == other.port()
        && (first == second || first.is_unspecified() || second.is_unspecified())
}

/// Opens what the options name.
pub(crate) fn doors(options: &Options) -> Result<Vec<Door>, ServerError> {
    check_addresses(options)?;
    let mut doors = Vec::new();
    let mut port = Options::PORT;
    for (at, address) in options.listen.iter().enumerate() {
        let failed = |error| ServerError::Listen(*address, error);
        let listener = TcpListener::bind(address).map_err(failed)?;
        if at == 0 {
            port = listener.local_addr().map_err(failed)?.port();
        }
        doors.push(Door::Tcp(listener));
    }
    if let Some(directory) = &options.socket_directory {
        let path = directory.join(format!(".s.PGSQL.{port}"));
        let listener =
            bind(&path, options.socket_permissions).map_err(|error| ServerError::Socket(path.clone(), error))?;
        doors.push(Door::Unix(listener, path));
    }
    if doors.is_empty() { Err(ServerError::NoAddress) } else { Ok(doors) }
}

/// Files of the process beside those of clients.
const OWN_FILES: u64 = 256;

/// Raises the limit of files that the process sets itself, so far as the system lets it: each client has one.
pub(crate) fn allow_files(clients: usize) {
    let wanted = u64::try_from(clients).unwrap_or(u64::MAX).saturating_add(OWN_FILES);
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        let current = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
        // Without it clients wait until others go.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limit });
    }
}

/// Whether only this machine reaches the address.
pub(crate) fn is_of_this_machine(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// A unix socket at this path. One that a server has left that is gone is replaced.
fn bind(path: &Path, mode: u32) -> io::Result<UnixListener> {
    match bind_new(path, mode) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => match UnixStream::connect(path) {
            Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path)?;
                bind_new(path, mode)
            }
            _ => Err(error),
        },
        other => other,
    }
}

/// How many connections wait to be accepted.
const BACKLOG: i32 = 4096;

/// A unix socket with these permissions, whatever the process gives its files, before anybody can connect.
fn bind_new(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let socket = net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

impl Door {
    fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(Socket::tcp(stream))
            }
            Self::Unix(listener, _) => listener.accept().map(|(stream, _)| Socket::unix(stream)),
        }
    }
}

/// A thread that accepts connections.
#[derive(Debug)]
pub(crate) struct Acceptor {
    thread: JoinHandle<()>,
    address: Option<SocketAddr>,
    path: Option<PathBuf>,
}

impl Acceptor {
    pub(crate) fn start<P: Protocol>(door: Door, shared: &Arc<Shared<P>>) -> Result<Self, ServerError> {
        let (address, path) = match &door {
            Door::Tcp(listener) => (listener.local_addr().ok(), None),
            Door::Unix(_, path) => (None, Some(path.clone())),
        };
        let shared = shared.clone();
        let work = move || accept_all(&door, &shared);
        let thread = thread::Builder::new().name("acceptor".to_owned()).spawn(work);
        let thread = thread.map_err(|error| ServerError::System(format!("no thread could be started: {error}")))?;
        Ok(Self { thread, address, path })
    }

    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Waits until it has ended, after the registry was told that the server does.
    pub(crate) fn end(self) {
        // It waits for a connection: this is one.
        if let Some(mut address) = self.address {
            if address.ip().is_unspecified() {
                address.set_ip(if address.is_ipv4() { [127, 0, 0, 1].into() } else { IpAddr::V6(1.into()) });
            }
            drop(TcpStream::connect(address));
        }
        if let Some(path) = &self.path {
            drop(UnixStream::connect(path));
        }
        // A panic there was reported where it came from.
        let _ = self.thread.join();
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

fn accept_all<P: Protocol>(door: &Door, shared: &Arc<Shared<P>>) {
    let registry: &Registry = &shared.registry;
    loop {
        registry.wait_for_room();
        let accepted = door.accept();
        if registry.is_stopping() {
            return;
        }
        let Ok(socket) = accepted else {
            thread::sleep(BREATH);
            continue;
        };
        let socket = Arc::new(socket);
        let place = Arc::new(registry.enter(&socket));
        // A client that is not known yet and does not read is not waited for.
        let _ = socket.set_write_timeout(Some(FIRST_WRITES));
        let newcomer = Box::new(Newcomer::new(socket, place));
        if let Err(newcomer) = shared.silent.add_newcomer(newcomer, shared.options.authentication_timeout) {
            threads::run(shared, Task::Begin(newcomer));
        }
    }
}
