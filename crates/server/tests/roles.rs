//! Clients are roles: who may come in, and what is asked of them.

use crate::common::{Db, server_with};
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
