//! Drivers of other languages, unmodified: what a program prints with each of them is what it prints with PostgreSQL 15.
//!
//! `drivers/expected` has what each program has printed there (`POLYCHRON_RECORD` names a server of an empty database, which is asked in the place of ours). A
//! driver that is not installed is skipped, and named. Python is `POLYCHRON_PYTHON` or `python3`; packages of node are found through `NODE_PATH`; the jar of
//! the driver for Java is `POLYCHRON_PGJDBC`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::server;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/drivers")
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether a program ends well.
fn works(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// What runs the program of this file; `None`: the language or a package is missing.
fn runner(file: &str, packages: &[&str]) -> Option<Command> {
    let source = folder().join(file);
    let mut command = match source.extension().and_then(|it| it.to_str()) {
        Some("py") => {
            let python = variable("POLYCHRON_PYTHON").unwrap_or_else(|| "python3".to_owned());
            let imports = packages.iter().map(|package| format!("import {package}\n")).collect::<String>();
            // Isolated, so that files beside the program are not taken for packages of their names.
            let is_there = works(Command::new(&python).args(["-I", "-c", &imports]));
            let mut command = Command::new(python);
            command.arg("-I");
            is_there.then_some(command)?
        }
        Some("js") => {
            let requires = packages.iter().map(|package| format!("require('{package}');")).collect::<String>();
            works(Command::new("node").args(["-e", &requires])).then(|| Command::new("node"))?
        }
        _ => {
            let jar = variable("POLYCHRON_PGJDBC")?;
            works(Command::new("java").arg("-version")).then_some(())?;
            let mut command = Command::new("java");
            command.args(["-cp", &jar]);
            command
        }
    };
    command.arg(source);
    Some(command)
}

fn agrees_with_postgresql(file: &str, packages: &[&str]) {
    let Some(mut command) = runner(file, packages) else {
        eprintln!("skipped: {file} needs {}", packages.join(" and "));
        return;
    };
    let expected = folder().join("expected").join(file).with_extension("txt");
    if let Some(url) = variable("POLYCHRON_RECORD") {
        let output = command.arg(url).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::write(expected, output.stdout).unwrap();
        return;
    }
    let server = server();
    let output = command.arg(format!("postgresql://postgres@{}/polychron", server.addresses()[0])).output().unwrap();
    let (printed, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let expected = std::fs::read_to_string(expected).unwrap();
    let (printed_lines, expected_lines): (Vec<_>, Vec<_>) = (printed.lines().collect(), expected.lines().collect());
    for at in 0..printed_lines.len().max(expected_lines.len()) {
        let (own, other) = (printed_lines.get(at), expected_lines.get(at));
        assert!(own == other, "{file}, line {}:\n{own:?}\ninstead of\n{other:?}\n{printed}\n{said}", at + 1);
    }
    assert!(output.status.success(), "{file}: {said}");
}

/// A client of its own, which needs Python alone.
#[test]
fn transcripts_agree() {
    agrees_with_postgresql("transcripts.py", &["socket"]);
}

#[test]
fn texts_of_several_statements_agree() {
    agrees_with_postgresql("texts.py", &["socket"]);
}

#[test]
fn portals_and_cursors_agree() {
    agrees_with_postgresql("portals.py", &["socket"]);
}

#[test]
fn psycopg_agrees() {
    agrees_with_postgresql("psycopg.py", &["psycopg"]);
}

#[test]
fn asyncpg_agrees() {
    agrees_with_postgresql("asyncpg.py", &["asyncpg"]);
}

#[test]
fn pg8000_agrees() {
    agrees_with_postgresql("pg8000.py", &["pg8000.dbapi"]);
}

#[test]
fn sqlalchemy_agrees() {
    agrees_with_postgresql("sqlalchemy.py", &["sqlalchemy", "psycopg"]);
}

#[test]
fn django_agrees() {
    agrees_with_postgresql("django_orm.py", &["django", "psycopg"]);
}

#[test]
fn node_postgres_agrees() {
    agrees_with_postgresql("pg.js", &["pg"]);
}

#[test]
fn typeorm_agrees() {
    agrees_with_postgresql("typeorm.js", &["pg", "typeorm"]);
}

#[test]
fn pgjdbc_agrees() {
    agrees_with_postgresql("Jdbc.java", &["the driver of Java"]);
}
