//! A small server of HTTP/1.1: a thread for each of a few connections, which asks one thing, and is closed.
//!
//! What a client can take is bounded: the bytes of a request, the time of a request and its answer, and the connections that there are at once. For one more, that which has
//! waited longest goes, so that clients that say nothing keep nobody out.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use polychron_base::clock::{Clock as _, Duration, SystemClock};

use super::page;
use super::request::{LONGEST_HEAD, Parsed, Request, parse};
use super::{Metrics, Source};
use crate::error::ServerError;
use crate::failures;

/// The most connections that have not got their answer.
const MOST_WAITING: usize = 32;
/// The most pages that are kept up to date.
const MOST_STREAMS: usize = 16;
/// The most threads: beyond, the acceptor waits.
const MOST_THREADS: usize = 2 * MOST_WAITING + MOST_STREAMS;
/// The time of a request and its answer; of a stream, that of each piece.
const TIME: Duration = Duration::from_secs(5);
/// How often a page gets news.
const TURN: Duration = Duration::from_secs(1);
/// How long the acceptor waits where the system gives nothing.
const BREATH: Duration = Duration::from_millis(50);
const STACK: usize = 512 << 10;

struct Entry {
    number: u64,
    socket: Arc<TcpStream>,
    is_stream: bool,
    /// It was sent away, and its thread has not ended yet.
    is_over: bool,
}

#[derive(Default)]
struct State {
    last: u64,
    /// In the order in which they came.
    entries: Vec<Entry>,
    is_stopping: bool,
}

struct Inner {
    source: Arc<dyn Source>,
    password: Option<String>,
    state: Mutex<State>,
    changed: Condvar,
}

/// The port that shows a server.
pub(crate) struct Http {
    inner: Arc<Inner>,
    address: SocketAddr,
    acceptor: Option<JoinHandle<()>>,
}

impl Http {
    /// Listens.
    ///
    /// # Errors
    /// The address is reached from other machines and there is no password, or it cannot be listened to.
    pub(super) fn start(metrics: &Metrics, source: Arc<dyn Source>) -> Result<Self, ServerError> {
        metrics.check()?;
        let (wanted, password) = (metrics.address, metrics.password.clone());
        let failed = |error| ServerError::Listen(wanted, error);
        let listener = TcpListener::bind(wanted).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let inner = Arc::new(Inner { source, password, state: Mutex::default(), changed: Condvar::new() });
        let shared = inner.clone();
        let work = move || accept_all(&listener, &shared);
        let acceptor = thread::Builder::new().name("metrics".to_owned()).spawn(work);
        let acceptor = acceptor.map_err(|error| ServerError::System(format!("no thread could be started: {error}")))?;
        Ok(Self { inner, address, acceptor: Some(acceptor) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Http {
    /// Ends all connections, and waits for their threads.
    fn drop(&mut self) {
        let mut state = self.inner.state();
        state.is_stopping = true;
        state.entries.iter().for_each(|entry| shut_down(&entry.socket));
        drop(state);
        self.inner.changed.notify_all();
        // The acceptor waits for a connection: this is one.
        let mut own = self.address;
        if own.ip().is_unspecified() {
            own.set_ip(if own.is_ipv4() { IpAddr::from([127, 0, 0, 1]) } else { Ipv6Addr::LOCALHOST.into() });
        }
        drop(TcpStream::connect_timeout(&own, TIME));
        if let Some(acceptor) = self.acceptor.take() {
            // A panic there was reported where it came from.
            let _ = acceptor.join();
        }
        let is_busy = |state: &mut State| !state.entries.is_empty();
        drop(self.inner.changed.wait_while(self.inner.state(), is_busy));
    }
}

fn shut_down(socket: &TcpStream) {
    // It may have ended by itself.
    let _ = socket.shutdown(Shutdown::Both);
}

/// A connection's entry, which goes when this is dropped.
struct Place {
    inner: Arc<Inner>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.inner.state().entries.retain(|entry| entry.number != self.number);
        self.inner.changed.notify_all();
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection has come. `None`: the server ends.
    fn enter(self: &Arc<Self>, socket: &Arc<TcpStream>) -> Option<Place> {
        let mut state = self.state();
        // Those that were sent away end soon.
        while state.entries.len() >= MOST_THREADS && !state.is_stopping {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_stopping {
            return None;
        }
        let mut waiting = state.entries.iter_mut().filter(|entry| !entry.is_stream && !entry.is_over);
        if let Some(oldest) = waiting.next()
            && waiting.count() + 1 >= MOST_WAITING
        {
            // For one more, the oldest goes.
            shut_down(&oldest.socket);
            oldest.is_over = true;
        }
        state.last += 1;
        let number = state.last;
        state.entries.push(Entry { number, socket: socket.clone(), is_stream: false, is_over: false });
        Some(Place { inner: self.clone(), number })
    }

    /// The connection is kept, and gets news; `false`: there are enough of these.
    fn keep(&self, number: u64) -> bool {
        let mut state = self.state();
        let has_room = state.entries.iter().filter(|entry| entry.is_stream).count() < MOST_STREAMS;
        if has_room && let Some(entry) = state.entries.iter_mut().find(|entry| entry.number == number) {
            entry.is_stream = true;
        }
        has_room
    }

    /// Waits for so long; `false`: the server ends.
    fn rest(&self, time: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.state(), time, |state| !state.is_stopping);
        !waited.unwrap_or_else(PoisonError::into_inner).0.is_stopping
    }
}

fn accept_all(listener: &TcpListener, inner: &Arc<Inner>) {
    loop {
        let accepted = listener.accept();
        if inner.state().is_stopping {
            return;
        }
        let Ok((socket, _)) = accepted else {
            thread::sleep(BREATH);
            continue;
        };
        let socket = Arc::new(socket);
        let Some(place) = inner.enter(&socket) else {
            shut_down(&socket);
            continue;
        };
        let own = (inner.clone(), socket.clone());
        let work = move || {
            let (clock, is_head) = (SystemClock::new(), false);
            let mut exchange = Exchange { inner: &own.0, socket: &own.1, number: place.number, clock, is_head };
            // A client that is gone is nobody's error.
            let _ = exchange.serve();
            shut_down(&own.1);
            drop(place);
        };
        if thread::Builder::new().name("metrics".to_owned()).stack_size(STACK).spawn(work).is_err() {
            shut_down(&socket);
            thread::sleep(BREATH);
        }
    }
}

/// What is asked on one connection.
struct Exchange<'e> {
    inner: &'e Inner,
    socket: &'e TcpStream,
    number: u64,
    clock: SystemClock,
    /// The client wants heads alone.
    is_head: bool,
}

impl Exchange<'_> {
    /// How much of its time is left.
    fn left(&self) -> io::Result<Duration> {
        let left = TIME.saturating_sub(Duration::from_nanos(self.clock.now_ns()));
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }

    fn read(&self, bytes: &mut Vec<u8>) -> io::Result<bool> {
        self.socket.set_read_timeout(Some(self.left()?))?;
        let mut piece = [0; 2048];
        let read = (&mut &*self.socket).read(&mut piece)?;
        bytes.extend_from_slice(&piece[..read]);
        Ok(read > 0)
    }

    fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.socket.set_write_timeout(Some(self.left()?))?;
            match (&mut &*self.socket).write(bytes)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => bytes = &bytes[written..],
            }
        }
        Ok(())
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut bytes = Vec::new();
        let (request, head) = loop {
            match parse(&bytes) {
                Parsed::Head(request, head) => break (request, head),
                Parsed::Wrong(status) => return self.refuse(status),
                Parsed::More if bytes.len() > LONGEST_HEAD => return self.refuse(431),
                Parsed::More => {}
            }
            if !self.read(&mut bytes)? {
                return Ok(());
            }
        };
        while bytes.len() < head + request.body {
            if !self.read(&mut bytes)? {
                return Ok(());
            }
        }
        self.is_head = request.method == "HEAD";
        match self.answer(&request, &bytes[head..head + request.body]) {
            Ok(done) => done,
            Err(status) => {
                if status == 401 && !self.inner.rest(failures::FIRST) {
                    return Ok(());
                }
                self.refuse(status)
            }
        }
    }

    /// Answers a request. The outer error is the status of one that is refused.
    fn answer(&mut self, request: &Request, body: &[u8]) -> Result<io::Result<()>, u16> {
        let wanted: &[_] = match request.path.as_str() {
            "/" | "/health" | "/metrics" => &["GET", "HEAD"],
            // It has no end, and so no length.
            "/events" => &["GET"],
            "/end" => &["POST"],
            _ => return Err(404),
        };
        if !wanted.contains(&request.method.as_str()) {
            return Err(405);
        }
        // Whether there is a server may be known to whoever reaches it.
        if request.path == "/health" {
            return Ok(self.give(200, "text/plain; charset=utf-8", b"ok\n"));
        }
        request.check(self.inner.password.as_deref())?;
        Ok(match request.path.as_str() {
            "/" => self.give(200, "text/html; charset=utf-8", page::PAGE.as_bytes()),
            "/metrics" => {
                let sample = self.inner.source.sample().ok_or(503_u16)?;
                self.give(200, "text/plain; version=0.0.4; charset=utf-8", sample.metrics().as_bytes())
            }
            "/events" => {
                if !self.inner.keep(self.number) {
                    return Err(503);
                }
                self.stream()
            }
            _ => {
                request.check_own()?;
                let wanted = serde_json::from_slice::<serde_json::Value>(body).ok();
                let number = wanted.and_then(|wanted| wanted.get("pid")?.as_i64()).ok_or(400_u16)?;
                let has_ended = self.inner.source.end(number);
                self.give(200, "application/json", format!("{{\"ended\":{has_ended}}}\n").as_bytes())
            }
        })
    }

    /// Tells each second what has changed, until the client goes.
    fn stream(&mut self) -> io::Result<()> {
        self.write(head(200, "text/event-stream", None).as_bytes())?;
        let Some(mut before) = self.inner.source.sample() else { return Ok(()) };
        let mut at_ns = self.clock.now_ns();
        loop {
            if !self.inner.rest(TURN) {
                return Ok(());
            }
            let now_ns = self.clock.now_ns();
            let Some(sample) = self.inner.source.sample() else { return Ok(()) };
            let news = sample.news(&before, Duration::from_nanos(now_ns - at_ns).as_secs_f64());
            // The time of each piece begins with it.
            (self.clock, at_ns, before) = (SystemClock::new(), 0, sample);
            self.write(format!("data: {news}\n\n").as_bytes())?;
        }
    }

    fn give(&self, status: u16, of: &str, content: &[u8]) -> io::Result<()> {
        let shown = if self.is_head { &[] } else { content };
        self.write(&[head(status, of, Some(content.len())).as_bytes(), shown].concat())
    }

    fn refuse(&self, status: u16) -> io::Result<()> {
        self.give(status, "text/plain; charset=utf-8", format!("{status} {}\n", reason(status)).as_bytes())?;
        // What comes still is read, so that the answer is not lost with it.
        self.socket.shutdown(Shutdown::Write)?;
        let mut rest = Vec::new();
        while rest.len() < LONGEST_HEAD && self.read(&mut rest)? {}
        Ok(())
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "HTTP Version Not Supported",
    }
}

/// The head of an answer.
fn head(status: u16, of: &str, length: Option<usize>) -> String {
    let mut head = format!("HTTP/1.1 {status} {}\r\nContent-Type: {of}\r\n", reason(status));
    if let Some(length) = length {
        head += &format!("Content-Length: {length}\r\n");
    }
    if status == 401 {
        head += "WWW-Authenticate: Basic realm=\"polychron\", charset=\"UTF-8\"\r\n";
    }
    if of.starts_with("text/html") {
        head += &format!("Content-Security-Policy: {}\r\n", page::policy());
    }
    head + "Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n\r\n"
}
