//! `polychron shell`, as scripts use it.
#![cfg(feature = "shell")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs it with this standard input.
fn shell(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polychron"));
    command.arg("shell").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary was built for this test");
    let mut stdin = child.stdin.take().expect("it was asked for");
    // It may end before it has read all.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a run says on both outputs, and its exit code.
#[track_caller]
fn says(arguments: &[&str], input: &str, wanted: (i32, &str, &str)) {
    let output = shell(arguments, input);
    let (code, out, errors) = wanted;
    assert_eq!(text(&output.stdout), out, "{arguments:?} {input:?}: {}", text(&output.stderr));
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(code), errors), "{arguments:?} {input:?}");
}

fn path_of(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn statements_answer_as_in_psql() {
    let input = "CREATE TABLE t (id int PRIMARY KEY, name text);\nINSERT INTO t\n  VALUES (1, 'a;b'), (2, NULL); SELECT * FROM t\n ORDER BY id;\n\
                 DELETE FROM t WHERE id = 1 RETURNING name; -- the end\nSELECT count(*) FROM t";
    let out = "CREATE TABLE\nINSERT 0 2\n id | name \n----+------\n  1 | a;b\n  2 | \n(2 rows)\n\n name \n------\n a;b\n(1 row)\n\nDELETE 1\n \
               count \n-------\n     1\n(1 row)\n\n";
    says(&[], input, (0, out, ""));
    says(&["-q"], "CREATE TABLE t (id int PRIMARY KEY);", (0, "", ""));
}

#[test]
fn errors_have_the_place_in_a_script_and_end_it_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("script.sql");
    fs::write(&file, "SELECT 1 AS a;\nSELECT 1 / 0;\n\\set VERBOSITY verbose\nSELECT\n  x;\nSELECT 2 AS b;\n").unwrap();
    let (file, one) = (path_of(&file), " a \n---\n 1\n(1 row)\n\n");
    let errors = format!("{file}:2: ERROR:  division by zero\n{file}:5: ERROR:  42703: column \"x\" does not exist\n");
    says(&["-f", file], "", (0, &format!("{one} b \n---\n 2\n(1 row)\n\n"), &errors));
    let error = format!("{file}:2: ERROR:  division by zero\n");
    says(&["-f", file, "--stop-on-error"], "", (3, one, &error));
    says(&[], &format!("\\set ON_ERROR_STOP on\n\\i {file}\nSELECT 3;"), (3, one, &error));
    says(&["--file", "-"], "SELECT 1 AS a;", (0, one, ""));
    says(&["-f", "/no/such/file"], "", (1, "", "error: /no/such/file: No such file or directory (os error 2)\n"));
    says(&["-c", "\\i /no/such/file"], "", (1, "", "/no/such/file: No such file or directory (os error 2)\n"));
    fs::write(file, format!("\\i {file}\n")).unwrap();
    let output = shell(&["-f", file], "");
    assert_eq!((output.status.code(), text(&output.stderr).lines().count()), (Some(0), 1), "{output:?}");
}

#[test]
fn arguments_are_transactions_and_the_last_one_gives_the_code() {
    let table = "CREATE TABLE t (id int PRIMARY KEY)";
    let twice = "INSERT INTO t VALUES (1); INSERT INTO t VALUES (1)";
    let error =
        "ERROR:  duplicate key value violates unique constraint \"t_pkey\"\nDETAIL:  Key (id)=(1) already exists.\n";
    let count = "SELECT count(*) FROM t";
    let none = " count \n-------\n     0\n(1 row)\n\n";
    says(&["-c", table, "-c", twice, "-c", count], "", (0, &format!("CREATE TABLE\nINSERT 0 1\n{none}"), error));
    says(&["-c", table, "-c", twice], "", (1, "CREATE TABLE\nINSERT 0 1\n", error));
    says(&["-c", table, "-c", twice, "-c", count, "--stop-on-error"], "", (3, "CREATE TABLE\nINSERT 0 1\n", error));
    says(&["-c", "\\echo 'a  b'   c", "-c", "\\q", "-c", "SELECT"], "", (0, "a  b c\n", ""));
    says(&["-c", "\\nothing"], "", (1, "", "invalid command \\nothing\nTry \\? for help.\n"));
}

#[test]
fn transactions_that_fail_are_rolled_back() {
    let input = "CREATE TABLE t (id int PRIMARY KEY);\nBEGIN;\nINSERT INTO t VALUES (1);\nSELECT x;\nSELECT 1;\nCOMMIT;\n\\pset format csv\nSELECT count(*) FROM t;\n";
    let errors = "ERROR:  column \"x\" does not exist\n\
                  ERROR:  current transaction is aborted, commands ignored until end of transaction block\n";
    says(&[], input, (0, "CREATE TABLE\nBEGIN\nINSERT 0 1\nROLLBACK\nOutput format is csv.\ncount\n0\n", errors));
}

#[test]
fn rows_are_shown_in_each_format() {
    let query = "SELECT 1 AS id, 'a\"b' AS name, true AS yes, NULL AS none";
    let shown = |format, out| says(&["--format", format, "-c", query], "", (0, out, ""));
    shown("aligned", " id | name | yes | none \n----+------+-----+------\n  1 | a\"b  | t   | \n(1 row)\n\n");
    shown("expanded", "-[ RECORD 1 ]\nid   | 1\nname | a\"b\nyes  | t\nnone | \n\n");
    shown("csv", "id,name,yes,none\n1,\"a\"\"b\",t,\n");
    shown("json", "[\n  {\"id\": 1, \"name\": \"a\\\"b\", \"yes\": true, \"none\": null}\n]\n");
    shown("markdown", "| id | name | yes | none |\n| --: | --- | --- | --- |\n| 1 | a\"b | t |  |\n");
}

#[test]
fn commands_run_what_is_typed_again() {
    let one = " a \n---\n 1\n(1 row)\n\n";
    says(&[], "SELECT 1 AS a \\gx\n\\g\n", (0, &format!("-[ RECORD 1 ]\na | 1\n\n{one}"), ""));
    says(&[], "SELECT 1\n\\x\nAS a;\n", (0, "Expanded display is on.\n-[ RECORD 1 ]\na | 1\n\n", ""));
    says(
        &[],
        "SELECT 1 \\r\n\\pset null ?\nSELECT NULL AS a;",
        (0, "Query buffer reset (cleared).\nNull display is \"?\".\n a \n---\n ?\n(1 row)\n\n", ""),
    );
    let output = shell(&["--format", "csv", "-c", "SELECT 7 AS a", "-c", "\\watch 0 c=3"], "");
    let lines = text(&output.stdout);
    assert_eq!(lines.lines().filter(|line| *line == "7").count(), 4, "{lines}");
    assert_eq!(lines.lines().filter(|line| line.ends_with("(every 0s)")).count(), 3, "{lines}");
    let output = shell(&[], "\\timing\nSELECT 1;\n\\?\n\\h create table\n");
    let out = text(&output.stdout);
    assert!(out.contains("Time: ") && out.contains("\\watch") && out.contains("PRIMARY KEY"), "{out}");
    says(&["-c", "\\g"], "", (1, "", "\\g: there is no statement\n"));
}

#[test]
fn copies_of_rows_are_one_transaction() {
    let directory = tempfile::tempdir().unwrap();
    let (base, good, wrong) =
        (directory.path().join("base"), directory.path().join("good.csv"), directory.path().join("it's wrong.csv"));
    let (base, good, wrong) = (path_of(&base), path_of(&good), path_of(&wrong));
    fs::write(wrong, "2,x,\n3,y,1.5\n2,z,\n").unwrap();
    says(&[base, "-qc", "CREATE TABLE t (id int PRIMARY KEY, name text, amount numeric(8,2))"], "", (0, "", ""));
    says(&[base, "-qc", "INSERT INTO t VALUES (1, '', NULL), (10, NULL, 2.5)"], "", (0, "", ""));
    says(&[base, "-c", &format!("\\copy t to '{good}' csv header")], "", (0, "COPY 2\n", ""));
    assert_eq!(fs::read_to_string(good).unwrap(), "id,name,amount\n1,\"\",\n10,,2.50\n");
    let from_wrong = format!("\\copy t from '{}' csv", wrong.replace('\'', "''"));
    let output = shell(&[base, "-c", &from_wrong], "");
    let errors = text(&output.stderr);
    assert!(errors.contains("duplicate key") && errors.ends_with("CONTEXT:  COPY t, line 3\n"), "{errors}");
    assert_eq!(output.status.code(), Some(1));
    let rows = "id,name,amount\n1,\"\",\n10,,2.50\n";
    says(&[base, "--format", "csv", "-c", "SELECT * FROM t ORDER BY id"], "", (0, rows, ""));
    says(&[base, "-qc", "DELETE FROM t"], "", (0, "", ""));
    says(&[base, "-c", &format!("\\copy t from {good} with (format csv, header)")], "", (0, "COPY 2\n", ""));
    says(&[base, "-c", "\\copy t (name, id) from stdin csv"], "a,3\n", (0, "COPY 1\n", ""));
    says(&[base, "-c", "\\copy (SELECT id FROM t ORDER BY id) to stdout csv"], "", (0, "1\n3\n10\n", ""));
    // The lines of a script that follow are the data, also where the copy fails.
    let script = "\\copy t from stdin csv\n20,x,1\n21,y,\n\\.\nSELECT count(*) AS n FROM t;\n";
    says(&[base, "--format", "csv"], script, (0, "COPY 2\nn\n5\n", ""));
    let script = "COPY t (id) FROM STDIN;\n30\nx\n31\n\\.\n-- as dumps\n/* have it */\nCOPY t (id) FROM stdin;\n30\n\\.\nCOPY (SELECT id FROM t WHERE id > 20 ORDER BY id) TO STDOUT;\n";
    let error = "ERROR:  invalid input syntax for type integer: \"x\"\nCONTEXT:  COPY t, line 2, column id: \"x\"\n";
    says(&[base], script, (0, "COPY 1\n21\n30\n", error));
    says(&[base, "-c", "COPY t (id) FROM STDIN"], "40\n41\n", (0, "COPY 2\n", ""));
    says(
        &[base, "-c", "\\copy t to '/dev/full'"],
        "",
        (1, "", "ERROR:  could not write the data of COPY: No space left on device (os error 28)\n"),
    );
    // What fails leaves the file as it was.
    says(
        &[base, "-c", &format!("\\copy (SELECT 1 / (id - 41) FROM t ORDER BY id) to '{good}'")],
        "",
        (1, "", "ERROR:  division by zero\n"),
    );
    assert_eq!(fs::read_to_string(good).unwrap(), "id,name,amount\n1,\"\",\n10,,2.50\n");
    assert_eq!(
        fs::read_dir(Path::new(good).parent().unwrap())
            .unwrap()
            .filter(|it| it.as_ref().unwrap().file_name().to_string_lossy().contains(".part"))
            .count(),
        0
    );
    assert!(text(&shell(&[base, "-c", "\\copy t"], "").stderr).starts_with("\\copy: it is \\copy TABLE"));
}

#[test]
fn ctrl_c_ends_the_statement_and_the_script() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polychron"));
    command.args(["shell", "-c", "\\echo begun", "-c", "SELECT count(*) FROM generate_series(1, 1000000000000)"]);
    command.args(["-c", "\\echo not reached"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary was built for this test");
    let mut out = BufReader::new(child.stdout.take().expect("it was asked for"));
    let mut first = String::new();
    out.read_line(&mut first).unwrap();
    assert_eq!(first, "begun\n");
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    match output.status.code() {
        Some(3) => assert_eq!(text(&output.stderr), "ERROR:  canceling statement due to user request\n"),
        // The signal came before the statement had begun.
        code => assert_eq!(code, Some(130), "{output:?}"),
    }
}

#[test]
fn what_cannot_be_opened_is_told_in_a_line() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().join("base");
    let base = path_of(&base);
    says(&[base, "-qc", "CREATE TABLE t (id int PRIMARY KEY)"], "", (0, "", ""));
    let output = shell(&[base, "--read-only", "-c", "INSERT INTO t VALUES (1)"], "");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let refused = |arguments: &[&str], code| {
        let output = shell(arguments, "SELECT 1;");
        let errors = text(&output.stderr);
        assert_eq!((output.status.code(), errors.lines().count()), (Some(code), 1), "{arguments:?}: {errors}");
        assert!(output.stdout.is_empty(), "{output:?}");
    };
    fs::write(directory.path().join("file"), "").unwrap();
    refused(&[path_of(directory.path())], 1);
    refused(&["--protocol", "nothing"], 2);
    refused(&["--format", "nothing"], 2);
    refused(&["--read-only"], 2);
    for protocol in ["hyper", "locking", "serial", "bohm"] {
        says(&["--protocol", protocol, "--format", "csv"], "SELECT 1 AS a;", (0, "a\n1\n", ""));
    }
}

#[test]
fn relations_are_described_as_in_psql() {
    let definitions = "CREATE TABLE account (id int PRIMARY KEY, owner text NOT NULL, amount numeric(8,2) DEFAULT 5, UNIQUE (owner));\nCREATE INDEX by_amount ON account (amount DESC);\n";
    let described = r#"                 Table "public.account"
 Column |     Type     | Collation | Nullable | Default 
--------+--------------+-----------+----------+---------
 id     | integer      |           | not null | 
 owner  | text         |           | not null | 
 amount | numeric(8,2) |           |          | 5
Indexes:
    "account_pkey" PRIMARY KEY, btree (id)
    "account_owner_key" UNIQUE CONSTRAINT, btree (owner)
    "by_amount" btree (amount DESC)

"#;
    says(&["-q"], &format!("{definitions}\\d account\n"), (0, described, ""));
    let index = "Index \"public.account_owner_key\"\n Column | Type \n--------+------\n owner  | text\nunique, btree, for table \"public.account\"\n\n";
    says(&["-q"], &format!("{definitions}\\d account_owner_key\n"), (0, index, ""));
    let tables = "          List of relations\n Schema |  Name   | Type  |  Owner   \n--------+---------+-------+----------\n public | account | table | postgres\n(1 row)\n\n";
    for command in ["\\d", "\\dt", "\\dt A*", "\\dt public.accoun?"] {
        says(&["-q"], &format!("{definitions}{command}\n"), (0, tables, ""));
    }
    let output = shell(&["-q"], &format!("{definitions}\\di\n\\dn\n"));
    let out = text(&output.stdout);
    assert!(out.contains("by_amount") && out.contains("|  Table") && out.contains("List of schemas"), "{out}");
    says(&[], "\\dt \"A\"*\n", (0, "", "Did not find any relation named \"\"A\"*\".\n"));
    says(&["-c", "\\d nothing"], "", (1, "", "Did not find any relation named \"nothing\".\n"));
    says(&["-c", "\\dx"], "", (1, "", "invalid command \\dx\nTry \\? for help.\n"));
}
