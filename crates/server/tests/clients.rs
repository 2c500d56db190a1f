//! A client of Rust, as programs use it.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use crate::common::{Raw, connect, kinds, query, server, server_with, startup};
use polychron::Database;
use polychron_server::{Credentials, Options, Password, Server};
use postgres::error::SqlState;
use postgres::types::Type;
use postgres::{Client, NoTls, fallible_iterator::FallibleIterator as _};

#[test]
fn values_go_and_come_in_binary() {
    let server = server();
    let mut client = connect(&server);
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY, b bool, s smallint, l bigint, r real, d double precision, v varchar(9), y bytea, a int[], w text[])").unwrap();
    let inserted = client
        .execute(
            "INSERT INTO t VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
            &[
                &1_i32,
                &true,
                &-2_i16,
                &i64::MIN,
                &1.5_f32,
                &-0.25_f64,
                &"é",
                &&[0_u8, 255][..],
                &vec![Some(1_i32), None],
                &vec!["a", "b,c"],
            ],
        )
        .unwrap();
    assert_eq!(inserted, 1);
    let row = client.query_one("SELECT * FROM t WHERE id = $1", &[&1_i32]).unwrap();
    assert!(row.get::<_, bool>(1));
    assert_eq!((row.get::<_, i16>(2), row.get::<_, i64>(3)), (-2, i64::MIN));
    assert_eq!((row.get::<_, f32>(4), row.get::<_, f64>(5), row.get::<_, &str>(6)), (1.5, -0.25, "é"));
    assert_eq!(row.get::<_, &[u8]>(7), [0, 255]);
    assert_eq!(row.get::<_, Vec<Option<i32>>>(8), [Some(1), None]);
    assert_eq!(row.get::<_, Vec<String>>(9), ["a", "b,c"]);
    client.execute("INSERT INTO t (id) VALUES ($1)", &[&2_i32]).unwrap();
    let row = client.query_one("SELECT b, a FROM t WHERE id = 2", &[]).unwrap();
    assert_eq!((row.get::<_, Option<bool>>(0), row.get::<_, Option<Vec<i32>>>(1)), (None, None));
}

#[test]
fn each_type_is_the_same_in_both_forms() {
    let server = server();
    let mut client = connect(&server);
    let values = [
        ("boolean", "t"),
        ("smallint", "-32768"),
        ("integer", "2147483647"),
        ("bigint", "-9223372036854775808"),
        ("oid", "4294967295"),
        ("real", "1.5e-10"),
        ("double precision", "-Infinity"),
        ("numeric", "-12345678901234567890.123456789"),
        ("numeric", "0.00010"),
        ("text", "ä b"),
        ("varchar", "x"),
        ("bytea", "\\x00ff"),
        ("date", "0044-03-15 BC"),
        ("date", "infinity"),
        ("time", "23:59:59.999999"),
        ("timestamp", "1999-12-31 23:59:59.5"),
        ("timestamptz", "2000-01-01 00:00:00+00"),
        ("interval", "1 year 2 mons -3 days 04:05:06.789"),
        ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("json", "{\"a\" : 1}"),
        ("jsonb", "{\"a\": [1, null]}"),
        ("integer[]", "{1,NULL,3}"),
        ("text[]", "{\"a b\",c}"),
        ("numeric[]", "{{1.5,2},{3,4}}"),
        ("jsonb[]", "{\"{\\\"a\\\": 1}\"}"),
    ];
    for (of, text) in values {
        // As text to the server, in binary back, in binary to the server, and as text back.
        let statement = client.prepare(&format!("SELECT $1::{of}")).unwrap();
        let raw = Bytes(client.query_one(&format!("SELECT '{text}'::{of}"), &[]).unwrap().get::<_, Bytes>(0).0);
        let back = client.query_one(&statement, &[&raw]).unwrap().get::<_, Bytes>(0);
        assert_eq!(back.0, raw.0, "{of} {text}");
        let shown = client.query_one(&format!("SELECT ($1::{of})::text"), &[&raw]).unwrap();
        let simple = client.simple_query(&format!("SELECT '{text}'::{of}")).unwrap();
        let postgres::SimpleQueryMessage::Row(row) = &simple[1] else { panic!("{simple:?}") };
        let wanted = if of == "boolean" { Some("true") } else { row.get(0) };
        assert_eq!(Some(shown.get::<_, &str>(0)), wanted, "{of} {text}");
    }
}

/// The bytes of any type.
#[derive(Debug)]
struct Bytes(Vec<u8>);

impl<'a> postgres::types::FromSql<'a> for Bytes {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(raw.to_vec()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl postgres::types::ToSql for Bytes {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut postgres::types::private::BytesMut,
    ) -> Result<postgres::types::IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(postgres::types::IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    postgres::types::to_sql_checked!();
}

#[test]
fn errors_have_their_parts() {
    let server = server();
    let mut client = connect(&server);
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").unwrap();
    client.execute("INSERT INTO t VALUES (1)", &[]).unwrap();
    let error = client.execute("INSERT INTO t VALUES ($1)", &[&1_i32]).unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!((error.severity(), error.code()), ("ERROR", &SqlState::UNIQUE_VIOLATION));
    assert!(error.message().contains("duplicate key"), "{error}");
    assert_eq!(client.query("SELECT * FROM none", &[]).unwrap_err().code(), Some(&SqlState::UNDEFINED_TABLE));
    assert_eq!(client.query("SELECT 1", &[]).unwrap().len(), 1);
}

#[test]
fn transactions_and_portals() {
    let server = server();
    let mut client = connect(&server);
    client
        .batch_execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT * FROM generate_series(1, 100)")
        .unwrap();
    let mut transaction = client.transaction().unwrap();
    let portal = transaction.bind("SELECT id FROM t ORDER BY id", &[]).unwrap();
    let mut seen = Vec::new();
    loop {
        let rows = transaction.query_portal(&portal, 30).unwrap();
        if rows.is_empty() {
            break;
        }
        seen.extend(rows.iter().map(|row| row.get::<_, i32>(0)));
    }
    assert_eq!(seen, (1..=100).collect::<Vec<_>>());
    let mut inner = transaction.transaction().unwrap();
    inner.execute("DELETE FROM t", &[]).unwrap();
    inner.rollback().unwrap();
    assert_eq!(transaction.execute("DELETE FROM t WHERE id > 50", &[]).unwrap(), 50);
    transaction.commit().unwrap();
    let mut rows = client.query_raw("SELECT id FROM t", std::iter::empty::<i32>()).unwrap();
    let mut count = 0;
    while rows.next().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 50);
}

#[test]
fn copies_in_both_directions() {
    let server = server();
    let mut client = connect(&server);
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY, v text)").unwrap();
    let mut writer = client.copy_in("COPY t FROM STDIN").unwrap();
    for id in 0..20_000 {
        writeln!(writer, "{id}\tvalue {id}").unwrap();
    }
    assert_eq!(writer.finish().unwrap(), 20_000);
    let mut all = String::new();
    client.copy_out("COPY (SELECT * FROM t ORDER BY id) TO STDOUT").unwrap().read_to_string(&mut all).unwrap();
    assert_eq!(all.lines().count(), 20_000);
    assert_eq!(all.lines().nth(12_345), Some("12345\tvalue 12345"));
    let rows = client.query("SELECT * FROM t", &[]).unwrap();
    assert_eq!(rows.len(), 20_000);
}

#[test]
fn statements_outlive_changes_of_their_tables() {
    let server = server();
    let mut client = connect(&server);
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").unwrap();
    let all = client.prepare("SELECT * FROM t").unwrap();
    let ids = client.prepare("SELECT id FROM t").unwrap();
    let mut other = connect(&server);
    other.batch_execute("ALTER TABLE t ADD COLUMN v text; INSERT INTO t VALUES (1, 'a')").unwrap();
    assert_eq!(client.query(&ids, &[]).unwrap().len(), 1);
    // It would answer other columns than the client was told.
    assert_eq!(client.query(&all, &[]).unwrap_err().code(), Some(&SqlState::FEATURE_NOT_SUPPORTED));
    assert_eq!(client.query("SELECT * FROM t", &[]).unwrap()[0].len(), 2);
}

#[test]
fn clients_cancel() {
    let server = server();
    let mut client = connect(&server);
    let token = client.cancel_token();
    let running = std::thread::spawn(move || {
        client.query("SELECT count(*) FROM generate_series(1, 1000000000000)", &[]).unwrap_err()
    });
    while !running.is_finished() {
        token.cancel_query(NoTls).unwrap();
    }
    assert_eq!(running.join().unwrap().code(), Some(&SqlState::QUERY_CANCELED));
}

#[test]
fn increments_of_many_clients_are_all_there() {
    let server = server();
    connect(&server).batch_execute("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0)").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = connect(&server);
                let add = client.prepare("UPDATE t SET n = n + $1 WHERE id = 1").unwrap();
                for _ in 0..50 {
                    client.execute(&add, &[&1_i32]).unwrap();
                }
            });
        }
    });
    assert_eq!(connect(&server).query_one("SELECT n FROM t", &[]).unwrap().get::<_, i32>(0), 400);
}

fn by_password(server: &Server<crate::common::Db>, user: &str, password: &str) -> Result<Client, postgres::Error> {
    let port = server.addresses()[0].port();
    postgres::Config::new()
        .host("127.0.0.1")
        .port(port)
        .user(user)
        .password(password)
        .dbname("polychron")
        .connect(NoTls)
}

#[test]
fn passwords_are_asked_for() {
    let credentials = Credentials::Password(Password::new("a păsswörd").unwrap());
    let server = server_with(credentials, |_| {});
    let mut client = by_password(&server, "postgres", "a păsswörd").unwrap();
    assert_eq!(client.query_one("SELECT current_user", &[]).unwrap().get::<_, &str>(0), "postgres");
    // A wrong password and a role that is not there look the same.
    for (user, password) in [("postgres", "a password"), ("postgres", ""), ("nobody", "a păsswörd")] {
        let Err(error) = by_password(&server, user, password) else { panic!("admitted {user}") };
        if let Some(error) = error.as_db_error() {
            assert_eq!((error.code(), error.severity()), (&SqlState::INVALID_PASSWORD, "FATAL"));
        }
    }
    // What is none of the mechanism.
    let mut raw = Raw::open(&server);
    raw.send(&startup(3 << 16, &[("user", "postgres")]));
    let asked = raw.next().unwrap();
    assert_eq!(asked.content, [&[0, 0, 0, 10][..], b"SCRAM-SHA-256\0\0"].concat());
    raw.send(&crate::common::frame('p', b"MD5\0\0\0\0\x01a"));
    assert_eq!(kinds(&raw.until_ready()), "E:08P01");
    let mut raw = Raw::open(&server);
    raw.send(&[startup(3 << 16, &[("user", "postgres")]), query("SELECT 1")].concat());
    assert_eq!(kinds(&raw.until_ready()), "R E:08P01");
}

#[test]
fn the_account_of_the_server_needs_no_password_on_its_socket() {
    let directory = tempfile::tempdir().unwrap();
    let credentials = Credentials::Password(Password::new("secret").unwrap());
    let server = server_with(credentials, |options| options.socket_directory = Some(directory.path().to_owned()));
    let mut client = postgres::Config::new()
        .host_path(directory.path())
        .port(server.addresses()[0].port())
        .user("postgres")
        .connect(NoTls)
        .unwrap();
    assert_eq!(client.query("SELECT 1", &[]).unwrap().len(), 1);
    drop(client);
    let path = server.socket().unwrap().to_owned();
    let mode = |path: &std::path::Path| {
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path).unwrap().permissions()) & 0o7777
    };
    assert_eq!(mode(&path), 0o777, "whatever the process gives its files");
    let limited = server_with(Credentials::Trust, |options| {
        (options.socket_directory, options.socket_permissions) = (Some(directory.path().to_owned()), 0o700);
    });
    assert_eq!(mode(limited.socket().unwrap()), 0o700);
    drop(limited);
    drop(UnixStream::connect(&path).unwrap());
    drop(server);
    assert!(!path.exists());
}

#[test]
fn nothing_goes_to_the_network_as_it_is() {
    let database = || polychron::Database::builder().small().in_memory().unwrap();
    let everywhere = vec![std::net::SocketAddr::from(([0, 0, 0, 0], 0))];
    let password = Credentials::Password(Password::new("secret").unwrap());
    let with = |credentials: &Credentials, allows| polychron_server::Options {
        listen: everywhere.clone(),
        allows_plain_text_on_the_network: allows,
        ..polychron_server::Options::new(credentials.clone())
    };
    let refused = Server::start(database(), with(&password, false)).unwrap_err();
    assert!(matches!(refused, polychron_server::ServerError::PlainTextOnTheNetwork(_)), "{refused}");
    let refused = Server::start(database(), with(&Credentials::Trust, true)).unwrap_err();
    assert!(matches!(refused, polychron_server::ServerError::TrustOnTheNetwork(_)), "{refused}");
    drop(Server::start(database(), with(&password, true)).unwrap());
}

/// Clients that hear nothing in their transactions have no workers, of which there are fewer, and go on where they were.
#[test]
fn idle_transactions_are_parked() {
    let database = Database::builder().small().workers(12).memory_limit(512 << 20).in_memory().unwrap();
    let mut options = Options::new(Credentials::Trust);
    options.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    let server = Server::start(database, options).unwrap();
    let mut owner = connect(&server);
    owner.batch_execute("CREATE TABLE t (id int PRIMARY KEY, n int)").unwrap();
    let port = server.addresses()[0].port();
    let text = format!("host=127.0.0.1 port={port} user=postgres dbname=polychron");
    // All workers may be in use at first: those of clients that are idle come back.
    let patiently = |work: &mut dyn FnMut() -> Result<(), postgres::Error>| {
        for _ in 0..600 {
            match work() {
                Ok(()) => return,
                Err(error) if error.code() == Some(&SqlState::TOO_MANY_CONNECTIONS) => {
                    thread::sleep(Duration::from_millis(100));
                }
                Err(error) => panic!("{error:?}"),
            }
        }
        panic!("no worker has come back");
    };
    let mut clients = Vec::new();
    for id in 0..30 {
        patiently(&mut || {
            let mut client = Client::connect(&text, NoTls)?;
            client.batch_execute("BEGIN")?;
            client.batch_execute(&format!("INSERT INTO t VALUES ({id}, 1)"))?;
            clients.push(client);
            Ok(())
        });
    }
    for (id, client) in clients.iter_mut().enumerate() {
        patiently(&mut || client.batch_execute(&format!("UPDATE t SET n = n + 1 WHERE id = {id}")));
        patiently(&mut || client.batch_execute("COMMIT"));
    }
    let mut sum = 0;
    patiently(&mut || {
        sum = owner.query_one("SELECT sum(n) FROM t", &[])?.get::<_, i64>(0);
        Ok(())
    });
    assert_eq!(sum, 60);
}
