//! Tables, rows and statements of one seed.

use std::fmt;

use crate::changes::change;
use crate::draw::Draw;
use crate::expressions::Writer;
use crate::queries::query;
use crate::schema::Schema;

/// A statement, and what is to be known of its answer.
#[derive(Clone, Debug)]
pub struct Statement {
    /// Its text.
    pub text: String,
    /// Where it is prepared, what `$1` and so on stand for, as literals in quotes.
    pub parameters: Vec<String>,
    /// Whether its rows have an order.
    pub is_ordered: bool,
    /// Whether it reads or changes several rows, so that it depends on their order which of several errors is met.
    pub has_rows: bool,
}

/// What a seed draws.
#[derive(Clone, Debug)]
pub struct Case {
    /// The tables.
    pub schema: Schema,
    /// The statements that make and fill them, and those behind.
    pub statements: Vec<Statement>,
}

impl Statement {
    fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), parameters: Vec::new(), is_ordered: false, has_rows: false }
    }

    /// The same with some of its literals as parameters.
    fn prepared(mut self, draw: &mut Draw) -> Self {
        let (mut text, mut left) = (String::new(), &*self.text);
        while let Some(at) = left.find('\'') {
            let (before, behind) = left.split_at(at);
            let literal = &behind[..literal_end(behind)];
            left = &behind[literal.len()..];
            text += before;
            // What has no cast may be a pattern, or be of a type that only its own text decides.
            if left.starts_with("::") && draw.below(3) > 0 {
                self.parameters.push(literal.to_owned());
                text += &format!("${}", self.parameters.len());
            } else {
                text += literal;
            }
        }
        self.text = text + left;
        self
    }
}

/// Where a literal in quotes ends.
fn literal_end(text: &str) -> usize {
    let mut end = 1;
    while let Some(at) = text[end..].find('\'') {
        end += at + 1;
        if !text[end..].starts_with('\'') {
            return end;
        }
        end += 1;
    }
    text.len()
}

impl fmt::Display for Statement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)?;
        if self.parameters.is_empty() { Ok(()) } else { write!(out, " -- of {}", self.parameters.join(", ")) }
    }
}

impl Case {
    /// Tables with rows, and nothing else.
    pub fn filled(draw: &mut Draw, rows: usize) -> Self {
        let schema = Schema::drawn(draw);
        let mut statements: Vec<_> = schema.definitions(true).into_iter().map(Statement::plain).collect();
        for table in &schema.tables {
            let insert = |draw: &mut Draw| format!("INSERT INTO {} VALUES {}", table.name, table.row(draw));
            statements.extend((0..rows).map(|_| Statement::plain(insert(draw))));
        }
        Self { schema, statements }
    }

    /// What the seed draws: so many statements behind those that fill the tables.
    pub fn drawn(seed: u64, count: usize) -> Self {
        let draw = &mut Draw::of(seed);
        let mut case = Self::filled(draw, 8);
        let mut is_open = false;
        for _ in 0..count {
            let statement = match draw.below(20) {
                0..=10 => {
                    let (text, is_ordered) = query(draw, &case.schema);
                    let has_rows = text.contains(" FROM ");
                    Statement { is_ordered, has_rows, ..Statement::plain(text) }
                }
                11..=17 => {
                    let (text, has_rows) = change(&mut Writer::new(draw, &case.schema, 40));
                    Statement { has_rows, ..Statement::plain(text) }
                }
                _ => Statement::plain(control(draw, &mut is_open)),
            };
            let is_prepared = draw.once_in(4);
            case.statements.push(if is_prepared { statement.prepared(draw) } else { statement });
        }
        case.statements.push(Statement::plain("ROLLBACK"));
        case.statements
            .extend(case.schema.tables.iter().map(|it| Statement::plain(format!("SELECT * FROM {}", it.name))));
        case
    }
}

/// A statement that begins or ends a transaction or a part of it; now and then one that fails.
fn control(draw: &mut Draw, is_open: &mut bool) -> &'static str {
    if !*is_open {
        *is_open = draw.below(8) > 0;
        return if *is_open { "BEGIN" } else { draw.word(&["SAVEPOINT s", "COMMIT", "ROLLBACK TO s", "RELEASE s"]) };
    }
    match draw.below(10) {
        0..=2 => draw.word(&["SAVEPOINT s", "SAVEPOINT r"]),
        3..=5 => draw.word(&["ROLLBACK TO s", "ROLLBACK TO r"]),
        6 => draw.word(&["RELEASE s", "RELEASE r"]),
        _ => {
            *is_open = false;
            draw.word(&["COMMIT", "ROLLBACK"])
        }
    }
}
