//! Connections over TCP: the only place that uses the network.

use std::io::{self, ErrorKind, Read, Write};
pub use std::net::SocketAddr;
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use polychron_base::clock::{Clock, Duration, SystemClock};
use polychron_sync::Process;
use polychron_sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::sender::{Hearing, Sender, Source};
use super::{MOST_STANDBYS, Trouble};
use crate::disk::Disk;

/// How often a listener looks for a new standby.
const LISTEN: Duration = Duration::from_millis(20);
/// For how long a primary waits for what a standby says first.
const GREETING: Duration = Duration::from_secs(5);
/// A primary with nothing to send looks after so long whether it can have the last transactions seen.
const IDLE: Duration = Duration::from_millis(5);
/// It says at least so often that it is there, and four times within the time for which either side may be silent.
const ALIVE: Duration = Duration::from_secs(1);
/// So much at once that was sent and is taken shows that a standby is there. One that has stopped takes no more than the system keeps for it.
const TAKEN: usize = 64 << 10;
/// How long a standby waits for bytes before it looks at something else.
pub const LOOK: Duration = Duration::from_millis(100);
/// How many bytes are read at once: so many frames become durable together if they are there.
const READ: usize = 1 << 20;

/// A standby's connection to its primary.
pub struct Connection {
    stream: TcpStream,
    buffer: Box<[u8]>,
}

impl Connection {
    /// Connects to a primary. The connection ends when nothing can be sent for so long.
    ///
    /// # Errors
    /// [`Trouble::Lost`].
    pub fn open(primary: &str, limit: Duration) -> Result<Self, Trouble> {
        let mut last = None;
        for address in primary.to_socket_addrs().map_err(lost)? {
            match TcpStream::connect_timeout(&address, GREETING) {
                Ok(stream) => {
                    stream.set_nodelay(true).map_err(lost)?;
                    stream.set_read_timeout(Some(LOOK)).map_err(lost)?;
                    stream.set_write_timeout(Some(limit)).map_err(lost)?;
                    return Ok(Self { stream, buffer: vec![0; READ].into_boxed_slice() });
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.map_or_else(|| Trouble::Lost("it has no address".to_owned()), lost))
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// [`Trouble::Lost`].
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        self.stream.write_all(bytes).map_err(lost)
    }

    /// The bytes that have come within [`LOOK`]; none if none have.
    ///
    /// # Errors
    /// [`Trouble::Lost`].
    pub fn receive(&mut self) -> Result<&[u8], Trouble> {
        let count = read(&self.stream, &mut self.buffer)?;
        Ok(&self.buffer[..count])
    }
}

fn lost(error: io::Error) -> Trouble {
    Trouble::Lost(error.to_string())
}

fn read(mut stream: &TcpStream, into: &mut [u8]) -> Result<usize, Trouble> {
    match stream.read(into) {
        Ok(0) => Err(Trouble::Lost("the other side has ended the connection".to_owned())),
        Ok(count) => Ok(count),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {
            Ok(0)
        }
        Err(error) => Err(lost(error)),
    }
}

/// The listener of a primary. Dropped, it ends all connections.
pub struct Listener {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    process: Process,
}

/// Whose log standbys are sent.
pub trait Shipped: Send + Sync + 'static {
    /// Where its files are.
    type Disk: Disk + Clone;

    /// Its parts.
    fn source(&self) -> Source<'_, Self::Disk>;
}

impl Listener {
    /// Listens at an address for standbys.
    ///
    /// # Errors
    /// The system's error.
    pub fn open<S: Shipped>(address: &str, shipped: Arc<S>) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let (address, stop) = (listener.local_addr()?, Arc::<AtomicBool>::default());
        let stopped = Arc::clone(&stop);
        let builder = std::thread::Builder::new().name("polychron-ship".to_owned());
        let thread = Some(builder.spawn(move || listen(&listener, &shipped, &stopped))?);
        Ok(Self { address, stop, thread, process: Process::here() })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // There is no such thread in a process that was forked.
            if self.process.is_here() { drop(thread.join()) } else { std::mem::forget(thread) }
        }
    }
}

fn listen<S: Shipped>(listener: &TcpListener, shipped: &Arc<S>, stop: &Arc<AtomicBool>) {
    let mut connections = Connections::default();
    while !stop.load(Ordering::Relaxed) {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(LISTEN);
            continue;
        };
        let (shipped, stop) = (Arc::clone(shipped), Arc::clone(stop));
        connections.serve(stream, move |stream, is_greeted| {
            let mut serving = Serving { sender: Sender::new(), shipped: &*shipped };
            // The standby is told nothing of it: it connects again.
            let greeted = || is_greeted.store(true, Ordering::Relaxed);
            let _ = serve(stream, &mut serving.sender, &*shipped, &stop, greeted);
        });
    }
}

/// One connection. Nothing is kept for it once that ends, be it by a panic.
struct Serving<'s, S: Shipped> {
    sender: Sender<S::Disk>,
    shipped: &'s S,
}

impl<S: Shipped> Drop for Serving<'_, S> {
    fn drop(&mut self) {
        self.sender.end(self.shipped.source(), None);
    }
}

/// The connections that a primary has, each with a thread, the oldest ones first. Dropped, it ends them.
#[derive(Default)]
struct Connections(Vec<Served>);

struct Served {
    thread: JoinHandle<()>,
    stream: Weak<TcpStream>,
    /// Whether a standby has said what it has.
    is_greeted: Arc<AtomicBool>,
}

impl Connections {
    /// Serves one more; `act` says when it is a standby's. When all places are taken, it takes that of the oldest connection on which nothing was said, or is
    /// sent away and tries again.
    fn serve(&mut self, stream: TcpStream, act: impl FnOnce(&TcpStream, &AtomicBool) + Send + 'static) {
        self.0.retain(|served| !served.thread.is_finished());
        if self.0.len() >= MOST_STANDBYS && !self.end_silent() {
            return;
        }
        // The thread alone has it, so that it is closed when that ends.
        let (stream, is_greeted) = (Arc::new(stream), Arc::<AtomicBool>::default());
        let (weak, greets) = (Arc::downgrade(&stream), Arc::clone(&is_greeted));
        let builder = std::thread::Builder::new().name("polychron-ship".to_owned());
        if let Ok(thread) = builder.spawn(move || act(&stream, &greets)) {
            self.0.push(Served { thread, stream: weak, is_greeted });
        }
    }

    /// Ends the oldest connection on which nothing was said, if there is one.
    fn end_silent(&mut self) -> bool {
        let silent = self.0.iter().position(|served| !served.is_greeted.load(Ordering::Relaxed));
        let Some(at) = silent else { return false };
        let served = self.0.remove(at);
        served.shut();
        // It waits for nothing but what was shut.
        drop(served.thread.join());
        true
    }
}

impl Served {
    /// A thread that sends to a standby which takes nothing, or waits for one that says nothing, is not waited for.
    fn shut(&self) {
        if let Some(stream) = self.stream.upgrade() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.0.iter().for_each(Served::shut);
        for served in self.0.drain(..) {
            drop(served.thread.join());
        }
    }
}

/// Sends one standby what it needs, and hears what it has, until the connection ends.
fn serve<S: Shipped>(
    stream: &TcpStream,
    sender: &mut Sender<S::Disk>,
    shipped: &S,
    stop: &AtomicBool,
    greeted: impl FnOnce(),
) -> Result<(), Trouble> {
    stream.set_nonblocking(false).map_err(lost)?;
    stream.set_nodelay(true).map_err(lost)?;
    stream.set_write_timeout(Some(shipped.source().log.silence_limit())).map_err(lost)?;
    stream.set_read_timeout(Some(LOOK)).map_err(lost)?;
    let (clock, mut buffer) = (SystemClock::new(), [0; 1024]);
    while sender.is_silent() {
        let count = read(stream, &mut buffer)?;
        sender.receive(&buffer[..count])?;
        if stop.load(Ordering::Relaxed) || clock.now_ns() > GREETING.as_nanos() as u64 {
            return Err(Trouble::Lost("the standby has said nothing".to_owned()));
        }
    }
    greeted();
    if let Some(message) = sender.next(shipped.source())? {
        write(stream, &message)?;
    }
    let (hearing, ends, taken) = (sender.hearing(shipped.source()), AtomicBool::new(false), AtomicU64::new(0));
    let is_over = || stop.load(Ordering::Relaxed) || ends.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        // What was written is sent all the same.
        let over = Over { ends: &ends, stream, how: Shutdown::Read };
        let hears = || {
            let _over = Over { ends: &ends, stream, how: Shutdown::Both };
            hear(stream, hearing, shipped, &taken, &is_over)
        };
        let heard = std::thread::Builder::new().name("polychron-hear".to_owned()).spawn_scoped(scope, hears);
        let heard = heard.map_err(lost)?;
        let sent = send(stream, sender, shipped, &taken, &is_over);
        drop(over);
        heard.join().unwrap_or_else(|_| Err(Trouble::Lost("its thread has panicked".to_owned()))).and(sent)
    })
}

/// Ends both threads of a connection when one of them ends.
struct Over<'c> {
    ends: &'c AtomicBool,
    stream: &'c TcpStream,
    how: Shutdown,
}

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = self.stream.shutdown(self.how);
    }
}

/// Hears what a standby has, and notices that it has gone, or says nothing and takes nothing.
fn hear<S: Shipped>(
    stream: &TcpStream,
    mut hearing: Hearing,
    shipped: &S,
    taken: &AtomicU64,
    is_over: &(impl Fn() -> bool + Sync),
) -> Result<(), Trouble> {
    let (mut buffer, mut seen) = ([0; 1024], 0);
    while !is_over() {
        let count = read(stream, &mut buffer)?;
        // Relaxed: it is a count, which is looked at again.
        let now = taken.load(Ordering::Relaxed);
        if now > seen {
            seen = now;
            hearing.note_taken();
        }
        hearing.receive(&buffer[..count], shipped.source())?;
    }
    Ok(())
}

fn send<S: Shipped>(
    stream: &TcpStream,
    sender: &mut Sender<S::Disk>,
    shipped: &S,
    taken: &AtomicU64,
    is_over: &(impl Fn() -> bool + Sync),
) -> Result<(), Trouble> {
    let (clock, mut said) = (SystemClock::new(), 0);
    let alive = ALIVE.min(shipped.source().log.silence_limit() / 4);
    while !is_over() {
        let source = shipped.source();
        if let Some(message) = sender.next(source)? {
            for part in message.chunks(TAKEN) {
                write(stream, part)?;
                taken.fetch_add(u64::from(part.len() == TAKEN), Ordering::Relaxed);
            }
            continue;
        }
        if sender.has_ended() {
            return Ok(());
        }
        source.log.cover();
        if let Some(cursor) = sender.cursor() {
            source.log.await_frame(cursor, IDLE);
        }
        if clock.now_ns() - said > alive.as_nanos() as u64 {
            said = clock.now_ns();
            let message = sender.alive(source);
            write(stream, &message)?;
        }
    }
    Ok(())
}

fn write(mut stream: &TcpStream, bytes: &[u8]) -> Result<(), Trouble> {
    stream.write_all(bytes).map_err(lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, there)
    }

    /// Without that the test would not end.
    #[test]
    fn connections_end_although_nobody_takes_what_is_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (here, _there) = connect(&listener);
        let mut connections = Connections::default();
        connections.serve(here, |mut stream, _| while stream.write_all(&[0; 4096]).is_ok() {});
        drop(connections);
    }

    #[test]
    fn a_panic_leaves_its_place_to_others() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connections = Connections::default();
        for _ in 0..MOST_STANDBYS {
            // No message of it in the output of the tests.
            connections.serve(connect(&listener).0, |_, _| std::panic::resume_unwind(Box::new(())));
        }
        while connections.0.iter().any(|served| !served.thread.is_finished()) {
            std::thread::yield_now();
        }
        let (here, mut there) = connect(&listener);
        connections.serve(here, |mut stream, _| stream.write_all(b"served").unwrap());
        let mut said = String::new();
        there.read_to_string(&mut said).ok();
        assert_eq!(said, "served");
    }

    /// However many connect and say nothing, whoever comes is served, and those that have said something stay.
    #[test]
    fn silent_connections_make_way() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut connections, mut others) = (Connections::default(), Vec::new());
        let waits = |mut stream: &TcpStream| _ = stream.read(&mut [0]);
        for number in 0..5 * MOST_STANDBYS {
            let (here, there) = connect(&listener);
            others.push(there);
            let speaks = number == 3;
            connections.serve(here, move |stream, is_greeted| {
                if speaks {
                    is_greeted.store(true, Ordering::Relaxed);
                }
                waits(stream);
            });
            while speaks && !connections.0[number].is_greeted.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        }
        assert_eq!(connections.0.len(), MOST_STANDBYS);
        assert!(connections.0[0].is_greeted.load(Ordering::Relaxed) && !connections.0[0].thread.is_finished());
        for served in &connections.0 {
            served.is_greeted.store(true, Ordering::Relaxed);
        }
        let (here, mut there) = connect(&listener);
        connections.serve(here, |_, _| ());
        assert_eq!(there.read(&mut [0]).unwrap_or(0), 0, "it is sent away");
        assert!(connections.0.iter().all(|served| !served.thread.is_finished()));
    }
}
