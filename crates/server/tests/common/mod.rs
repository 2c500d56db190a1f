//! A server in this process, and a client that says any bytes.
#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod tls;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use polychron::Database;
use polychron_server::{Credentials, Options, Server};

pub(crate) type Db = polychron::DefaultProtocol;

/// A server of an empty database in memory, on a free port.
pub(crate) fn server_with(credentials: Credentials, change: impl FnOnce(&mut Options)) -> Server<Db> {
    let database = Database::builder().small().workers(96).memory_limit(512 << 20).in_memory().unwrap();
    let mut options = Options::new(credentials);
    options.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    change(&mut options);
    Server::start(database, options).unwrap()
}

/// The same, which admits everybody.
pub(crate) fn server() -> Server<Db> {
    server_with(Credentials::Trust, |_| {})
}

pub(crate) fn connect(server: &Server<Db>) -> postgres::Client {
    let port = server.addresses()[0].port();
    let text = format!("host=127.0.0.1 port={port} user=postgres dbname=polychron");
    postgres::Client::connect(&text, postgres::NoTls).unwrap()
}

/// A message of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) kind: char,
    pub(crate) content: Vec<u8>,
}

impl Answer {
    /// A field of an error or a notice.
    pub(crate) fn field(&self, field: char) -> Option<String> {
        let mut fields = self.content.split(|byte| *byte == 0);
        fields.find(|it| it.first() == Some(&(field as u8))).map(|it| String::from_utf8(it[1..].to_vec()).unwrap())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.content).trim_end_matches('\0').to_owned()
    }
}

/// A client that says what it likes.
pub(crate) struct Raw<S = TcpStream> {
    pub(crate) stream: S,
}

pub(crate) fn frame(kind: char, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind as u8];
    bytes.extend_from_slice(&(content.len() as u32 + 4).to_be_bytes());
    bytes.extend_from_slice(content);
    bytes
}

pub(crate) fn startup(version: i32, pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut content = version.to_be_bytes().to_vec();
    for (name, value) in pairs {
        content.extend_from_slice(format!("{name}\0{value}\0").as_bytes());
    }
    content.push(0);
    [&(content.len() as u32 + 4).to_be_bytes()[..], &content].concat()
}

pub(crate) fn parse(name: &str, text: &str) -> Vec<u8> {
    frame('P', format!("{name}\0{text}\0\0\0").as_bytes())
}

/// A Bind of values as text.
pub(crate) fn bind(portal: &str, statement: &str, values: &[&str]) -> Vec<u8> {
    let mut content = format!("{portal}\0{statement}\0\0\0").into_bytes();
    content.extend_from_slice(&(values.len() as u16).to_be_bytes());
    for value in values {
        content.extend_from_slice(&(value.len() as u32).to_be_bytes());
        content.extend_from_slice(value.as_bytes());
    }
    content.extend_from_slice(&[0, 0]);
    frame('B', &content)
}

pub(crate) fn execute(portal: &str, most: i32) -> Vec<u8> {
    frame('E', &[portal.as_bytes(), &[0], &most.to_be_bytes()].concat())
}

pub(crate) fn query(text: &str) -> Vec<u8> {
    frame('Q', format!("{text}\0").as_bytes())
}

pub(crate) fn sync() -> Vec<u8> {
    frame('S', &[])
}

impl Raw<TcpStream> {
    /// Connects, and says nothing.
    pub(crate) fn open(server: &Server<Db>) -> Self {
        let stream = TcpStream::connect(server.addresses()[0]).unwrap();
        // A server that does not answer fails the test, and does not hang it.
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        Self { stream }
    }

    /// Connects and starts a session.
    pub(crate) fn ready(server: &Server<Db>) -> Self {
        let mut own = Self::open(server);
        own.start();
        own
    }
}

impl<S: Read + Write> Raw<S> {
    /// Starts a session.
    pub(crate) fn start(&mut self) {
        self.send(&startup(3 << 16, &[("user", "postgres"), ("database", "polychron")]));
        self.until_ready();
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// A byte that is no message; `None` at the end.
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let mut byte = [0];
        self.stream.read_exact(&mut byte).ok().map(|()| byte[0])
    }

    /// The next message; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Answer> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let mut content = vec![0; length - 4];
        self.stream.read_exact(&mut content).ok()?;
        Some(Answer { kind: head[0] as char, content })
    }

    /// All messages up to the next ReadyForQuery, or to the end.
    pub(crate) fn until_ready(&mut self) -> Vec<Answer> {
        let mut answers = Vec::new();
        while let Some(answer) = self.next() {
            let is_last = answer.kind == 'Z';
            answers.push(answer);
            if is_last {
                break;
            }
        }
        answers
    }

    /// Says something, and answers with the kinds of what comes back, and with the codes of errors.
    pub(crate) fn ask(&mut self, bytes: &[u8]) -> String {
        self.send(bytes);
        kinds(&self.until_ready())
    }
}

/// Kinds of messages, one after the other: those of errors with their codes, the last one with its state, and tags.
pub(crate) fn kinds(answers: &[Answer]) -> String {
    let words: Vec<_> = answers
        .iter()
        .map(|answer| match answer.kind {
            'E' => format!("E:{}", answer.field('C').unwrap()),
            'Z' => format!("Z:{}", answer.text()),
            'C' => format!("C:{}", answer.text()),
            other => other.to_string(),
        })
        .collect();
    words.join(" ")
}
