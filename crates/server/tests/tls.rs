//! TLS: how it begins, what goes over it, and certificates that are read again.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use crate::common::tls::{Authority, REQUEST, Secure, asked, write_key};
use crate::common::{Db, Raw, bind, execute, frame, kinds, parse, query, startup, sync};
use polychron::Database;
use polychron_server::{Credentials, Options, Password, Server, ServerError, TlsFiles};
use rustls::StreamOwned;
use rustls::version::{TLS12, TLS13};

fn direct(server: &Server<Db>, client: rustls::ClientConnection) -> Secure {
    Raw { stream: StreamOwned::new(client, Raw::open(server).stream) }
}

#[test]
fn it_begins_in_both_ways() {
    let authority = Authority::new();
    let server = authority.server();
    for version in [&TLS12, &TLS13] {
        for names in [&[][..], &["postgresql"], &["other", "postgresql"]] {
            let mut client = asked(&server, authority.client(&[version], names));
            client.start();
            assert_eq!(client.ask(&query("SELECT 1")), "T D C:SELECT 1 Z:I");
            assert_eq!(client.stream.conn.protocol_version(), Some(version.version));
        }
        let mut client = direct(&server, authority.client(&[version], &["postgresql"]));
        client.start();
        assert_eq!(client.ask(&query("SELECT 1")), "T D C:SELECT 1 Z:I");
        // Whoever begins without asking says for what.
        let mut client = direct(&server, authority.client(&[version], &[]));
        client.send(&startup(3 << 16, &[("user", "postgres")]));
        assert_eq!(kinds(&client.until_ready()), "E:08P01");
        for mut client in [
            asked(&server, authority.client(&[version], &["http/1.1"])),
            direct(&server, authority.client(&[version], &["http/1.1"])),
        ] {
            assert!(client.shake_hands().is_err());
        }
    }
    // A connection that is encrypted is not encrypted once more.
    let mut client = authority.open(&server);
    client.send(&REQUEST);
    assert_eq!(kinds(&client.until_ready()), "E:0A000");
    // Without it clients go on as ever.
    assert_eq!(Raw::ready(&server).ask(&query("SELECT 1")), "T D C:SELECT 1 Z:I");
}

/// Bytes between the request and the handshake may be of anybody on the way: they do not count as the client's.
#[test]
fn what_comes_before_the_handshake_is_refused() {
    let authority = Authority::new();
    let server = authority.server();
    let mut raw = Raw::open(&server);
    raw.send(&[&REQUEST[..], &startup(3 << 16, &[("user", "postgres")])].concat());
    let answers = raw.until_ready();
    assert_eq!(kinds(&answers), "E:08P01");
    assert_eq!(answers[0].field('M').unwrap(), "received unencrypted data after SSL request");
}

#[test]
fn what_is_no_tls_ends_the_connection() {
    let authority = Authority::new();
    let server = authority.server();
    for bytes in
        [&b"\x16\x03\x01\x00\x05hello"[..], b"\x16\xff\xff\xff\xff", b"\x15\x03\x03\x00\x02\x02\x28", &[0x16; 4096]]
    {
        for asks in [false, true] {
            let mut raw = Raw::open(&server);
            if asks {
                raw.send(&REQUEST);
                assert_eq!(raw.byte(), Some(b'S'));
            }
            raw.send(bytes);
            // It may say why, and closes.
            let _ = raw.stream.read_to_end(&mut Vec::new());
        }
    }
    let mut client = authority.ready(&server);
    client.stream.sock.write_all(b"SELECT 1 in clear text").unwrap();
    assert_eq!(client.next(), None);
    assert_eq!(authority.ready(&server).ask(&query("SELECT 1")), "T D C:SELECT 1 Z:I");
}

/// What has been decrypted and not been read is seen by no wait for the socket; nor is a record that has come in part.
#[test]
fn silence_loses_nothing() {
    let authority = Authority::new();
    let server = authority.server();
    let mut owner = Raw::ready(&server);
    owner.ask(&query("CREATE TABLE t (id int PRIMARY KEY)"));
    let mut clients: Vec<_> = (0..8).map(|_| authority.ready(&server)).collect();
    let silence = || std::thread::sleep(Duration::from_millis(400));
    // Many messages in one record, and a half at its end.
    for (at, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.ask(&query(&format!("BEGIN; INSERT INTO t VALUES ({at})"))), "C:BEGIN C:INSERT 0 1 Z:T");
        let next = query("SELECT 2");
        let bytes = [query("SELECT 1").repeat(20), next[..at].to_vec()].concat();
        client.send(&bytes);
        for _ in 0..20 {
            assert_eq!(kinds(&client.until_ready()), "T D C:SELECT 1 Z:T");
        }
    }
    silence();
    for (at, client) in clients.iter_mut().enumerate() {
        client.send(&query("SELECT 2")[at..]);
        assert_eq!(kinds(&client.until_ready()), "T D C:SELECT 1 Z:T");
    }
    // A record in two parts.
    let mut rests = Vec::new();
    for (at, client) in clients.iter_mut().enumerate() {
        let record = client.encrypted(&query("COMMIT"));
        let (first, rest) = record.split_at(1 + at * (record.len() - 2) / 7);
        client.stream.sock.write_all(first).unwrap();
        rests.push(rest.to_vec());
    }
    silence();
    for (client, rest) in clients.iter_mut().zip(rests) {
        client.stream.sock.write_all(&rest).unwrap();
        assert_eq!(kinds(&client.until_ready()), "C:COMMIT Z:I");
    }
    let answer = owner.ask(&query("SELECT FROM t"));
    assert!(answer.ends_with("C:SELECT 8 Z:I"), "{answer}");
    // More than the server reads at once, in records that are as long as they can be.
    let text = format!("SELECT length('{}')", "x".repeat(300_000));
    for client in &mut clients {
        assert_eq!(client.ask(&query(&text).repeat(2)), "T D C:SELECT 1 Z:I");
        assert_eq!(kinds(&client.until_ready()), "T D C:SELECT 1 Z:I");
    }
}

/// A client may send a byte at a time, in the handshake and after it.
#[test]
fn bytes_come_one_by_one() {
    let authority = Authority::new();
    let server = authority.server();
    for version in [&TLS12, &TLS13] {
        let mut client = asked(&server, authority.client(&[version], &[]));
        client.stream.sock.set_nodelay(true).unwrap();
        while client.stream.conn.is_handshaking() {
            let mut records = Vec::new();
            while client.stream.conn.wants_write() {
                client.stream.conn.write_tls(&mut records).unwrap();
            }
            records.iter().for_each(|byte| client.stream.sock.write_all(&[*byte]).unwrap());
            if client.stream.conn.is_handshaking() {
                client.stream.conn.read_tls(&mut client.stream.sock).unwrap();
                client.stream.conn.process_new_packets().unwrap();
            }
        }
        for bytes in [startup(3 << 16, &[("user", "postgres")]), query("SELECT 1")] {
            let records = client.encrypted(&bytes);
            records.iter().for_each(|byte| client.stream.sock.write_all(&[*byte]).unwrap());
            let answers = kinds(&client.until_ready());
            assert!(answers.ends_with("Z:I"), "{answers}");
        }
    }
}

/// Clients that never complete their handshakes go after their time, whatever they send meanwhile, and keep nobody out.
#[test]
fn handshakes_have_an_end() {
    let authority = Authority::new();
    let server = authority.server_with(Credentials::Trust, |options| {
        options.authentication_timeout = Duration::from_millis(1500);
        options.max_unauthenticated = 4;
    });
    let hello = |client: &mut rustls::ClientConnection| {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    };
    let mut raw = Raw::open(&server);
    raw.send(&REQUEST);
    assert_eq!(raw.byte(), Some(b'S'));
    let bytes = hello(&mut authority.client(&[&TLS13], &[]));
    // It sends a byte each time, and would do so for longer than it has.
    let mut sent = bytes[..bytes.len() - 1].iter().cycle();
    raw.stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut has_ended = false;
    for at in 0..100 {
        if at < bytes.len() - 1 && raw.stream.write_all(&[*sent.next().unwrap()]).is_err() {
            has_ended = true;
            break;
        }
        match raw.stream.read(&mut [0; 64]) {
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            // The end, or a reset.
            Ok(0) | Err(_) => {
                has_ended = true;
                break;
            }
            // That it ends.
            Ok(_) => {}
        }
    }
    assert!(has_ended);
    let crowd: Vec<_> = (0..20)
        .map(|_| {
            let mut raw = Raw::open(&server);
            // The server may have sent it away already.
            let _ = raw.stream.write_all(&bytes[..40]);
            raw
        })
        .collect();
    assert_eq!(authority.ready(&server).ask(&query("SELECT 1")), "T D C:SELECT 1 Z:I");
    drop(crowd);
}

#[test]
fn copies_and_long_answers_go_over_it() {
    let authority = Authority::new();
    let server = authority.server();
    let mut client = authority.ready(&server);
    client.ask(&query("CREATE TABLE t (id int PRIMARY KEY, v text)"));
    client.send(&query("COPY t FROM STDIN"));
    assert_eq!(client.next().unwrap().kind, 'G');
    for first in (0..20_000).step_by(100) {
        let rows: String = (first..first + 100).map(|id| format!("{id}\t{}\n", "v".repeat(100))).collect();
        client.send(&frame('d', rows.as_bytes()));
    }
    assert_eq!(client.ask(&frame('c', &[])), "C:COPY 20000 Z:I");
    client.send(&query("COPY t TO STDOUT"));
    let data = client.until_ready();
    assert_eq!(data.iter().filter(|answer| answer.kind == 'd').count(), 20_000);
    // A client that does not read for a while gets everything, and holds up nobody.
    client.send(&query("SELECT a.id, a.v, b.v FROM t a JOIN t b ON a.id = b.id"));
    let mut other = authority.ready(&server);
    assert_eq!(other.ask(&query("SELECT 1")), "T D C:SELECT 1 Z:I");
    std::thread::sleep(Duration::from_millis(300));
    let answers = client.until_ready();
    assert_eq!(answers.iter().filter(|answer| answer.kind == 'D').count(), 20_000);
    // One that goes away without reading ends its session alone.
    client.send(&query("SELECT a.id, a.v, b.v FROM t a JOIN t b ON a.id = b.id"));
    drop(client);
    assert_eq!(other.ask(&query("SELECT 1")), "T D C:SELECT 1 Z:I");
    let run = [parse("", "SELECT v FROM t WHERE id = $1"), bind("", "", &["7"]), execute("", 0), sync()].concat();
    assert_eq!(other.ask(&run), "1 2 D C:SELECT 1 Z:I");
}

#[test]
fn cancels_go_over_it() {
    let authority = Authority::new();
    let server = authority.server();
    let mut client = authority.open(&server);
    client.send(&startup(3 << 16, &[("user", "postgres")]));
    let answers = client.until_ready();
    let key = answers.iter().find(|answer| answer.kind == 'K').unwrap().content.clone();
    let request = [&16_u32.to_be_bytes()[..], &80_877_102_u32.to_be_bytes(), &key].concat();
    for is_direct in [true, false] {
        client.send(&query("SELECT count(*) FROM generate_series(1, 1000000000000)"));
        let answered = std::thread::scope(|scope| {
            let answer = scope.spawn(|| client.until_ready());
            // The statement may not have begun when the first request comes.
            while !answer.is_finished() {
                let mut other = match is_direct {
                    true => direct(&server, authority.client(rustls::ALL_VERSIONS, &["postgresql"])),
                    false => authority.open(&server),
                };
                other.send(&request);
                assert_eq!(other.next(), None);
            }
            answer.join().unwrap()
        });
        assert_eq!(kinds(&answered), "E:57014 Z:I");
    }
}

#[test]
fn an_end_is_told() {
    let authority = Authority::new();
    let server = authority.server();
    let mut client = authority.ready(&server);
    client.send(&frame('X', &[]));
    // Without the word of the end this is an error.
    assert_eq!(client.stream.read(&mut [0; 16]).unwrap(), 0);
    let mut client = authority.ready(&server);
    server.stopper().stop();
    assert_eq!(kinds(&client.until_ready()), "E:57P01");
}

/// Which number the certificate has that the server shows.
fn serial(client: &mut Secure) -> Vec<u8> {
    client.shake_hands().unwrap();
    client.stream.conn.peer_certificates().unwrap()[0].to_vec()
}

#[test]
fn certificates_are_read_again() {
    let authority = Authority::new();
    let server = authority.server();
    let reloader = server.reloader().unwrap();
    let mut old = authority.ready(&server);
    let first = serial(&mut old);
    let files = authority.sign(&["localhost"], |_| {});
    assert_eq!(serial(&mut authority.open(&server)), first, "nobody has had it read");
    reloader.read_certificate().unwrap();
    let second = serial(&mut authority.ready(&server));
    assert_ne!(first, second);
    assert_eq!(old.ask(&query("SELECT 1")), "T D C:SELECT 1 Z:I");
    let (certificate, key) = (fs::read(&files.certificate).unwrap(), fs::read(&files.key).unwrap());
    let fails = |what: &str| {
        let error = reloader.read_certificate().unwrap_err();
        assert!(matches!(error, ServerError::Tls(..)), "{error}");
        assert_eq!(serial(&mut authority.ready(&server)), second, "{what}");
    };
    fs::write(&files.certificate, &certificate[..certificate.len() / 2]).unwrap();
    fails("a certificate that is cut off");
    fs::write(&files.certificate, "").unwrap();
    fails("no certificate");
    fs::write(&files.certificate, &certificate).unwrap();
    fs::remove_file(&files.key).unwrap();
    fails("no key");
    authority.sign(&["localhost"], |_| {});
    fs::write(&files.certificate, &certificate).unwrap();
    fails("the key of another certificate");
    for mode in [0o644, 0o660, 0o606, 0o604] {
        write_key(&files.key, str::from_utf8(&key).unwrap(), mode);
        fails("a key that others read");
    }
    write_key(&files.key, str::from_utf8(&key).unwrap(), 0o400);
    reloader.read_certificate().unwrap();
}

fn started(change: impl FnOnce(&mut Options)) -> Result<Server<Db>, ServerError> {
    let database = Database::builder().small().workers(96).memory_limit(512 << 20).in_memory().unwrap();
    let mut options = Options::new(Credentials::Password(Password::new("right").unwrap()));
    options.listen = vec![SocketAddr::from(([0, 0, 0, 0], 0))];
    change(&mut options);
    Server::start(database, options)
}

#[test]
fn other_machines_need_tls_and_passwords() {
    let authority = Authority::new();
    let files = authority.sign(&["localhost"], |_| {});
    assert!(matches!(started(|_| {}), Err(ServerError::PlainTextOnTheNetwork(_))));
    let trusting = started(|options| {
        (options.tls, options.credentials) = (Some(files.clone()), Credentials::Trust);
    });
    assert!(matches!(trusting, Err(ServerError::TrustOnTheNetwork(_))));
    let missing = TlsFiles { certificate: authority.path("missing"), ..files.clone() };
    assert!(matches!(started(|options| options.tls = Some(missing)), Err(ServerError::Tls(..))));
    let server = started(|options| options.tls = Some(files.clone())).unwrap();
    let port = server.addresses()[0].port();
    // An address of this machine beside loopback, if it has one: nothing is sent.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let own = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr()).map(|address| address.ip());
    let Some(own) = own.ok().filter(|address| !address.is_loopback()) else {
        eprintln!("skipped: this machine has no address but loopback");
        return;
    };
    let open = |port| {
        let stream = TcpStream::connect((own, port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        Raw { stream }
    };
    let hello = startup(3 << 16, &[("user", "postgres")]);
    let mut raw = open(port);
    raw.send(&hello);
    let answers = raw.until_ready();
    assert_eq!(kinds(&answers), "E:28000");
    let wanted =
        format!("no pg_hba.conf entry for host \"{own}\", user \"postgres\", database \"postgres\", no encryption");
    assert_eq!(answers[0].field('M').unwrap(), wanted);
    let mut raw = open(port);
    raw.send(&REQUEST);
    assert_eq!(raw.byte(), Some(b'S'));
    let mut client = Raw { stream: StreamOwned::new(authority.client(rustls::ALL_VERSIONS, &[]), raw.stream) };
    client.send(&hello);
    let asked = client.next().unwrap();
    assert_eq!((asked.kind, &asked.content[..4]), ('R', &[0, 0, 0, 10][..]));
    let server = started(|options| options.allows_plain_text_on_the_network = true).unwrap();
    let mut raw = open(server.addresses()[0].port());
    raw.send(&hello);
    assert_eq!(raw.next().unwrap().kind, 'R');
}
