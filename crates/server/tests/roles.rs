//! Clients are roles: who may come in, and what is asked of them.

use crate::common::{Db, Raw, server_with, startup};
use polychron_base::clock::{Clock as _, SystemClock};
use polychron_server::{Credentials, Password, Server};
use postgres::{Client, Error, NoTls};

fn log_in(server: &Server<Db>, user: &str, password: &str) -> Result<Client, Error> {
    let port = server.addresses()[0].port();
    Client::connect(&format!("host=127.0.0.1 port={port} user={user} password={password} dbname=polychron"), NoTls)
}

fn code<O>(ended: Result<O, Error>) -> String {
    match ended {
        Ok(_) => "none".to_owned(),
        Err(error) => error.code().map_or_else(|| error.to_string(), |code| code.code().to_owned()),
    }
}

#[test]
fn each_role_has_its_password() {
    let server = server_with(Credentials::Password(Password::new("first").unwrap()), |_| {});
    let mut admin = log_in(&server, "postgres", "first").unwrap();
    admin
        .batch_execute(
            "CREATE ROLE app LOGIN PASSWORD 'own' CONNECTION LIMIT 1; CREATE ROLE late LOGIN PASSWORD 'own' VALID UNTIL '2000-01-01';
             CREATE ROLE group_of_many PASSWORD 'own'; CREATE ROLE silent LOGIN;
             CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE seen (id int PRIMARY KEY); GRANT SELECT ON seen TO app",
        )
        .unwrap();
    // One that is there and one that is not are refused alike, as are those without a valid password.
    for (user, password) in [("app", "first"), ("nobody", "own"), ("late", "own"), ("silent", "x")] {
        let refused = log_in(&server, user, password);
        assert_eq!(code(refused), "28P01", "{user}");
    }
    assert_eq!(code(log_in(&server, "group_of_many", "own")), "28000");
    let mut app = log_in(&server, "app", "own").unwrap();
    assert_eq!(
        app.query_one("SELECT current_user::text || session_user::text", &[]).unwrap().get::<_, String>(0),
        "appapp"
    );
    app.batch_execute("SELECT * FROM seen").unwrap();
    let read = app.prepare("SELECT * FROM seen").unwrap();
    app.query(&read, &[]).unwrap();
    assert_eq!(code(app.batch_execute("SELECT * FROM t")), "42501");
    assert_eq!(code(app.query("SELECT * FROM t", &[])), "42501");
    assert_eq!(code(app.batch_execute("SET SESSION AUTHORIZATION postgres")), "42501");
    assert_eq!(code(app.copy_out("COPY t TO STDOUT").map(drop)), "42501");
    admin.batch_execute("REVOKE SELECT ON seen FROM app").unwrap();
    assert_eq!(code(app.query(&read, &[])), "42501");
    assert_eq!(code(log_in(&server, "app", "own")), "53300", "it has one session already");
    // Sessions are the role's, whatever it is called.
    admin
        .batch_execute("ALTER ROLE app RENAME TO renamed; CREATE ROLE app LOGIN PASSWORD 'own' CONNECTION LIMIT 1")
        .unwrap();
    assert_eq!(code(log_in(&server, "renamed", "own")), "53300");
    drop(log_in(&server, "app", "own").unwrap());
    admin.batch_execute("DROP ROLE app; ALTER ROLE renamed RENAME TO app").unwrap();
    drop(app);
    admin
        .batch_execute("ALTER ROLE app CONNECTION LIMIT -1; REVOKE CONNECT ON DATABASE polychron FROM PUBLIC")
        .unwrap();
    assert_eq!(code(log_in(&server, "app", "own")), "42501");
    admin.batch_execute("GRANT CONNECT ON DATABASE polychron TO app; ALTER ROLE app PASSWORD 'new'").unwrap();
    assert_eq!(code(log_in(&server, "app", "own")), "28P01");
    drop(log_in(&server, "app", "new").unwrap());
    // The role that was there first can have another password than the one that the server was started with.
    admin.batch_execute("ALTER ROLE postgres PASSWORD 'second'").unwrap();
    assert_eq!(code(log_in(&server, "postgres", "first")), "28P01");
    drop(log_in(&server, "postgres", "second").unwrap());
}

#[test]
fn trust_asks_for_roles_that_may_log_in() {
    let server = server_with(Credentials::Trust, |_| {});
    let mut admin = log_in(&server, "postgres", "any").unwrap();
    admin.batch_execute("CREATE USER app; CREATE ROLE none_of_these").unwrap();
    assert_eq!(code(log_in(&server, "nobody", "any")), "28000");
    assert_eq!(code(log_in(&server, "none_of_these", "any")), "28000");
    let mut app = log_in(&server, "app", "any").unwrap();
    assert_eq!(app.query_one("SELECT session_user", &[]).unwrap().get::<_, String>(0), "app");
}

#[test]
fn some_connections_are_kept_for_superusers() {
    let server = server_with(Credentials::Trust, |options| {
        (options.max_connections, options.superuser_reserved_connections) = (4, 2);
    });
    let mut admin = log_in(&server, "postgres", "").unwrap();
    admin.batch_execute("CREATE ROLE low LOGIN").unwrap();
    let _low = log_in(&server, "low", "").unwrap();
    let Err(refused) = log_in(&server, "low", "") else { panic!("it was admitted") };
    let refused = refused.as_db_error().unwrap();
    let message = "remaining connection slots are reserved for non-replication superuser connections";
    assert_eq!((refused.code().code(), refused.message(), refused.severity()), ("53300", message, "FATAL"));
    let _others = [log_in(&server, "postgres", "").unwrap(), log_in(&server, "postgres", "").unwrap()];
    let Err(refused) = log_in(&server, "postgres", "") else { panic!("it was admitted") };
    assert_eq!(refused.as_db_error().unwrap().message(), "sorry, too many clients already");
    // As many as are kept are all that may be.
    let database = polychron::Database::builder().small().in_memory().unwrap();
    let options =
        polychron_server::Options { max_connections: 3, ..polychron_server::Options::new(Credentials::Trust) };
    let refused = Server::start(database, options).unwrap_err().to_string();
    assert_eq!(refused, "superuser_reserved_connections (3) must be less than max_connections (3)");
}

/// A role whose password is guessed waits at that address, and others of the address do not, nor do they lack a thread or a place.
#[test]
fn failures_hold_up_the_role_alone() {
    let server = server_with(Credentials::Password(Password::new("first").unwrap()), |options| {
        options.max_unauthenticated = 40;
    });
    let mut admin = log_in(&server, "postgres", "first").unwrap();
    admin.batch_execute("CREATE ROLE ann LOGIN PASSWORD 'a'; CREATE ROLE bob LOGIN PASSWORD 'b'").unwrap();
    for _ in 0..3 {
        assert_eq!(code(log_in(&server, "ann", "x")), "28P01");
    }
    // They wait for two seconds and more, each without a thread.
    let mut waiting: Vec<_> = (0..20).map(|_| Raw::open(&server)).collect();
    waiting.iter_mut().for_each(|raw| raw.send(&startup(3 << 16, &[("user", "ann")])));
    for raw in &waiting {
        raw.stream.set_nonblocking(true).unwrap();
    }
    let is_silent = |raw: &mut Raw| {
        let read = std::io::Read::read(&mut raw.stream, &mut [0]);
        read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    let clock = SystemClock::new();
    drop(log_in(&server, "bob", "b").unwrap());
    drop(log_in(&server, "postgres", "first").unwrap());
    // On a machine that was busy for so long the wait is over, and nothing is told of it.
    let still = waiting.iter_mut().map(is_silent).filter(|is_silent| *is_silent).count();
    assert!(still == 20 || clock.now_ns() > 500_000_000, "{still}");
    // One that says more than it was asked is sent away, and one that goes leaves its place.
    waiting[0].stream.set_nonblocking(false).unwrap();
    let _ = std::io::Write::write_all(&mut waiting[0].stream, &vec![b'p'; 40_000]);
    while let Some(answer) = waiting[0].next() {
        assert_eq!(answer.kind, if answer.field('C').is_some() { 'E' } else { 'R' });
    }
    drop(waiting);
    // Who knows the password waits, and is admitted then.
    let mut ann = log_in(&server, "ann", "a").unwrap();
    ann.batch_execute("SELECT 1").unwrap();
    drop(log_in(&server, "ann", "a").unwrap());
}
