//! What a prepared point read costs a server: `cargo run --release -p polychron-server --example reads -- 200000 1 unix`, with how many reads, how many
//! of them in one go, and over what: `unix`, `tcp` or `tls`. Told are the nanoseconds that the session's thread was on a processor, and those that passed, for each read.
//!
//! Under callgrind (`--separate-threads=yes`) the session's thread has a file of its own.

use std::error::Error;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use polychron::{Database, DefaultProtocol};
use polychron_base::clock::{Clock as _, SystemClock};
use polychron_server::{Credentials, Options, Server, TlsFiles};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto};

fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend_from_slice(&(content.len() as u32 + 4).to_be_bytes());
    bytes.extend_from_slice(content);
    bytes
}

/// What bytes go over.
trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// A new certificate, and what a client needs to trust it.
fn certificate(folder: &Path) -> Result<(TlsFiles, Arc<ClientConfig>), Box<dyn Error>> {
    let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let files =
        TlsFiles { certificate: folder.join("certificate.pem"), key: folder.join("key.pem"), client_roots: None };
    fs::write(&files.certificate, own.cert.pem())?;
    let mut key = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&files.key)?;
    key.write_all(own.signing_key.serialize_pem().as_bytes())?;
    let mut roots = RootCertStore::empty();
    roots.add(own.cert.der().clone())?;
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()));
    let config = config.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth();
    Ok((files, Arc::new(config)))
}

/// A connection over the socket of this kind.
fn connect(
    kind: &str,
    server: &Server<DefaultProtocol>,
    config: Arc<ClientConfig>,
) -> Result<Box<dyn Stream>, Box<dyn Error>> {
    if kind == "unix" {
        return Ok(Box::new(UnixStream::connect(server.socket().ok_or("no socket")?)?));
    }
    let mut stream = TcpStream::connect(server.addresses()[0])?;
    stream.set_nodelay(true)?;
    if kind == "tcp" {
        return Ok(Box::new(stream));
    }
    stream.write_all(&[0, 0, 0, 8, 4, 210, 22, 47])?;
    stream.read_exact(&mut [0])?;
    let client = ClientConnection::new(config, "localhost".try_into()?)?;
    Ok(Box::new(StreamOwned::new(client, stream)))
}

/// Reads answers up to so many that the server is ready.
fn until_ready(stream: &mut dyn Stream, mut count: usize, buffer: &mut Vec<u8>) -> Result<(), Box<dyn Error>> {
    let (mut start, mut end) = (0, 0);
    while count > 0 {
        while end - start < 5 || end - start < 1 + u32::from_be_bytes(buffer[start + 1..start + 5].try_into()?) as usize
        {
            if end == buffer.len() {
                buffer.resize(2 * end, 0);
            }
            match stream.read(&mut buffer[end..])? {
                0 => return Err("the server has ended the session".into()),
                read => end += read,
            }
        }
        let length = 1 + u32::from_be_bytes(buffer[start + 1..start + 5].try_into()?) as usize;
        match buffer[start] {
            b'Z' => count -= 1,
            b'E' => return Err(String::from_utf8_lossy(&buffer[start + 5..start + length]).into()),
            _ => {}
        }
        start += length;
    }
    Ok(())
}

/// The nanoseconds that threads of sessions were on a processor.
fn spent() -> Result<u64, Box<dyn Error>> {
    let mut all = 0;
    for task in fs::read_dir("/proc/self/task")? {
        let path = task?.path();
        if fs::read_to_string(path.join("comm"))?.trim() == "session" {
            let text = fs::read_to_string(path.join("schedstat"))?;
            all += text.split_whitespace().next().ok_or("no time")?.parse::<u64>()?;
        }
    }
    Ok(all)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let number = |at: usize, usual| arguments.get(at).map_or(Ok(usual), |text| text.parse::<u32>());
    let (reads, at_once) = (number(0, 100_000)?, number(1, 1)?);
    let kind = arguments.get(2).map_or("unix", |kind| kind.as_str());
    let directory = tempfile::tempdir()?;
    let (files, config) = certificate(directory.path())?;
    let mut options = Options::new(Credentials::Trust);
    options.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    options.socket_directory = Some(directory.path().to_owned());
    options.tls = Some(files);
    let server = Server::start(Database::builder().in_memory()?, options)?;
    let mut stream = connect(kind, &server, config)?;
    let stream = &mut *stream;
    let mut content = (3_i32 << 16).to_be_bytes().to_vec();
    content.extend_from_slice(b"user\0postgres\0\0");
    stream.write_all(&[&(content.len() as u32 + 4).to_be_bytes()[..], &content].concat())?;
    let mut buffer = vec![0; 1 << 16];
    until_ready(stream, 1, &mut buffer)?;
    for text in [
        "CREATE TABLE accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84))",
        "INSERT INTO accounts SELECT g, 1, g * 7, '' FROM generate_series(1, 100000) g",
    ] {
        stream.write_all(&frame(b'Q', format!("{text}\0").as_bytes()))?;
        until_ready(stream, 1, &mut buffer)?;
    }
    let parse = frame(b'P', b"p0\0SELECT abalance FROM accounts WHERE aid = $1\0\0\0");
    stream.write_all(&[parse, frame(b'S', b"")].concat())?;
    until_ready(stream, 1, &mut buffer)?;

    let clock = SystemClock::new();
    let (before, begun) = (spent()?, clock.now_ns());
    let (mut key, mut request) = (0_u32, Vec::new());
    for _ in 0..reads / at_once {
        request.clear();
        for _ in 0..at_once {
            key = (key + 7_919) % 100_000;
            let value = (key + 1).to_string();
            // As pgbench does it.
            let mut bind = b"\0p0\0\0\0\0\x01".to_vec();
            bind.extend_from_slice(&(value.len() as u32).to_be_bytes());
            bind.extend_from_slice(value.as_bytes());
            bind.extend_from_slice(&[0, 1, 0, 0]);
            request.extend(frame(b'B', &bind));
            request.extend(frame(b'D', b"P\0"));
            request.extend(frame(b'E', &[0, 0, 0, 0, 0]));
            request.extend(frame(b'S', b""));
        }
        stream.write_all(&request)?;
        until_ready(stream, at_once as usize, &mut buffer)?;
    }
    let all = u64::from(reads / at_once * at_once);
    let (each, passed) = ((spent()? - before) / all, (clock.now_ns() - begun) / all);
    println!("{each} ns of the server for each of {reads} reads over {kind}, {at_once} at once; {passed} ns passed");
    Ok(())
}
