//! pg_dump of a database and psql of what it writes, where both are installed; and dumps that PostgreSQL 15 has made of the same objects.

use std::path::{Path, PathBuf};

use polychron_server::Server;

use crate::common::{Db, connect, server};
use crate::programs::{program, succeeded};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dumps").join(name)
}

/// Runs a file of statements, each of which has to succeed. `None`: there is no psql.
fn run(server: &Server<Db>, path: &Path) -> Option<()> {
    let mut psql = program("psql", server)?;
    succeeded(&psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f"]).arg(path).output().unwrap());
    Some(())
}

/// What pg_dump writes, without the key that it draws. `None`: there is no pg_dump.
fn dump(server: &Server<Db>, options: &[&str]) -> Option<String> {
    let mut pg_dump = program("pg_dump", server)?;
    let text = succeeded(&pg_dump.args(options).output().unwrap());
    let is_kept = |line: &&str| !line.starts_with(r"\restrict") && !line.starts_with(r"\unrestrict");
    Some(text.lines().filter(is_kept).map(|line| format!("{line}\n")).collect())
}

/// The rows are there, sequences go on, and keys and checks hold.
fn is_as_made(server: &Server<Db>) {
    let mut client = connect(server);
    let one = |client: &mut postgres::Client, query: &str| client.query_one(query, &[]).unwrap().get::<_, String>(0);
    for (query, wanted) in [
        ("SELECT string_agg(a::text, ' ' ORDER BY id) FROM author a", "(1,ann,1990-01-01,happy) (2,b'ob,,sad)"),
        ("SELECT string_agg(title || twice, ' ' ORDER BY id) FROM book", "x3.00 tab\there3.00"),
        ("SELECT string_agg(name, ' ' ORDER BY name) FROM aa_names", "ann b'ob"),
        ("SELECT string_agg(n::text, ' ' ORDER BY id) FROM other.note n", r#"(1,2,"\\x00ff",0.1) (2,,,Infinity)"#),
        ("SELECT nextval('counter')::text || nextval('author_id_seq') || nextval('book_id_seq')", "1533"),
        ("SELECT has_column_privilege('reader', 'book', 'title', 'SELECT')::text", "true"),
        (
            "SELECT obj_description('author'::regclass) || col_description('author'::regclass, 2)",
            "peopleit's their names",
        ),
    ] {
        assert_eq!(one(&mut client, query), wanted, "{query}");
    }
    for (statement, state) in [
        ("INSERT INTO book (title, author_id) VALUES ('x', 1)", "23505"),
        ("INSERT INTO book (title, author_id) VALUES ('y', 99)", "23503"),
        ("INSERT INTO book (title, author_id, price) VALUES ('y', 1, -1)", "23514"),
        ("INSERT INTO book (id, title, author_id) VALUES (9, 'y', 1)", "428C9"),
    ] {
        let error = client.batch_execute(statement).unwrap_err();
        assert_eq!(error.code().map(|code| code.code()), Some(state), "{statement}: {error}");
    }
}

#[test]
fn what_pg_dump_writes_makes_the_same_database() {
    let made = server();
    if run(&made, &file("made.sql")).is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dump.sql");
    let Some(first) = dump(&made, &[]) else { return };
    for options in [&[][..], &["--inserts"]] {
        let Some(text) = dump(&made, options) else { return };
        std::fs::write(&path, text).unwrap();
        let other = server();
        connect(&other).batch_execute("CREATE ROLE reader").unwrap();
        run(&other, &path);
        let again = dump(&other, &[]).unwrap();
        assert!(first == again, "{first}\n\n{again}");
        is_as_made(&other);
    }
}

#[test]
fn dumps_of_postgresql_are_loaded() {
    for name in ["postgresql.sql", "postgresql_inserts.sql"] {
        let server = server();
        connect(&server).batch_execute("CREATE ROLE reader").unwrap();
        if run(&server, &file(name)).is_none() {
            return;
        }
        is_as_made(&server);
    }
}
