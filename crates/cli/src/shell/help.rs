//! What `\?` and `\h` say.

pub(super) const COMMANDS: &str = "\
Statements end with a semicolon; a command is a line.
  \\q                     end the shell
  \\? , \\h [STATEMENT]    this list; how statements are written

  \\g , \\gx               run what is typed, or the last statement; with a line of each value
  \\watch [SEC] [c=N]     run it again and again, every 2 seconds, until Ctrl-C
  \\p , \\r                show what is typed, or the last statement; forget what is typed
  \\i FILE                run the statements and commands of a file

  \\d                     list tables, views and sequences
  \\d NAME                describe one of them, or an index; with + views have their query
  \\dt , \\di , \\dv , \\ds  list tables, indexes, views or sequences; \\dn schemas, \\df procedures
                         a NAME behind them may have * and ?

  \\copy TABLE [(COLUMNS)] from 'FILE' [csv [header]]
  \\copy {TABLE [(COLUMNS)] | (QUERY)} to 'FILE' [csv [header]]
                         insert the rows of a file as one transaction, or write rows to one;
                         with the options of COPY, and stdin or stdout for the script

  \\x [on|off]            show a line of each value
  \\timing [on|off]       show how long statements take
  \\pset format NAME      aligned, expanded, csv, json or markdown
  \\pset null TEXT        what stands for NULL
  \\pset pager [on|off]   show long answers by $PAGER
  \\set VERBOSITY WORD    default, verbose (with codes), terse or sqlstate
  \\set ON_ERROR_STOP on  end scripts at the first error
  \\echo TEXT             print a text
";

/// The statements and how they are written, in short.
const STATEMENTS: &[(&str, &str)] = &[
    (
        "ALTER TABLE",
        "ALTER TABLE [IF EXISTS] name {ADD COLUMN column type [...] | DROP COLUMN column | RENAME [COLUMN column] TO name | ...}",
    ),
    ("BEGIN", "BEGIN [READ ONLY | READ WRITE]"),
    ("COMMIT", "COMMIT"),
    (
        "CREATE INDEX",
        "CREATE [UNIQUE] INDEX [IF NOT EXISTS] [name] ON table (column [ASC | DESC] [NULLS {FIRST | LAST}] [, ...])",
    ),
    (
        "CREATE SEQUENCE",
        "CREATE SEQUENCE [IF NOT EXISTS] name [AS type] [INCREMENT [BY] step] [START [WITH] value] [CYCLE]",
    ),
    (
        "CREATE TABLE",
        "CREATE TABLE [IF NOT EXISTS] name (\n    column type [NOT NULL] [DEFAULT value] [PRIMARY KEY] [UNIQUE] [CHECK (condition)] [REFERENCES table] [, ...]\n    [, PRIMARY KEY (columns)] [, UNIQUE (columns)] [, CHECK (condition)] [, FOREIGN KEY (columns) REFERENCES table]\n)",
    ),
    ("CREATE VIEW", "CREATE [OR REPLACE] VIEW name [(columns)] AS query"),
    ("DELETE", "DELETE FROM table [USING tables] [WHERE condition] [RETURNING values]"),
    ("DROP", "DROP {TABLE | INDEX | VIEW | SEQUENCE} [IF EXISTS] name [, ...] [CASCADE]"),
    ("EXPLAIN", "EXPLAIN query"),
    (
        "INSERT",
        "INSERT INTO table [(columns)] {VALUES (values) [, ...] | query | DEFAULT VALUES}\n    [ON CONFLICT [(columns)] {DO NOTHING | DO UPDATE SET column = value [, ...] [WHERE condition]}] [RETURNING values]",
    ),
    ("RELEASE SAVEPOINT", "RELEASE [SAVEPOINT] name"),
    ("ROLLBACK", "ROLLBACK [TO [SAVEPOINT] name]"),
    ("SAVEPOINT", "SAVEPOINT name"),
    (
        "SELECT",
        "[WITH [RECURSIVE] name AS (query) [, ...]]\nSELECT [DISTINCT] values [FROM tables] [WHERE condition] [GROUP BY values] [HAVING condition] [WINDOW name AS (window)]\n    [{UNION | INTERSECT | EXCEPT} [ALL] query] [ORDER BY values] [LIMIT count] [OFFSET count]",
    ),
    ("SHOW", "SHOW setting"),
    ("UPDATE", "UPDATE table SET column = value [, ...] [FROM tables] [WHERE condition] [RETURNING values]"),
    ("VALUES", "VALUES (values) [, ...] [ORDER BY values] [LIMIT count] [OFFSET count]"),
];

/// The statements that begin with these words; without words, their names.
pub(super) fn statements(wanted: &str) -> Result<String, String> {
    if wanted.is_empty() {
        let names: Vec<_> = STATEMENTS.iter().map(|(name, _)| format!("  {name}\n")).collect();
        return Ok(format!("\\h STATEMENT shows how one of these is written:\n{}", names.concat()));
    }
    let begins = |name: &str| name.len() >= wanted.len() && name[..wanted.len()].eq_ignore_ascii_case(wanted);
    let found: Vec<_> =
        STATEMENTS.iter().filter(|(name, _)| name.is_char_boundary(wanted.len()) && begins(name)).collect();
    if found.is_empty() {
        return Err(format!("No help available for \"{wanted}\".\nTry \\h with no arguments to see available help."));
    }
    Ok(found.iter().map(|(_, text)| format!("{text}\n")).collect::<Vec<_>>().join("\n"))
}
