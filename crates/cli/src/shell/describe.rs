//! `\d` and its relatives: queries on `pg_catalog`, shown as psql shows them.

use polychron::sql::{Error, Outcome};

use super::session::{Flow, Session, column};
use super::show::{Cell, footer, table};

/// What `\d`, `\dt` and so on list.
const KINDS: [(char, &str, &str); 4] =
    [('t', "r", "table"), ('v', "v", "view"), ('s', "S", "sequence"), ('i', "i", "index")];

type Rows = Vec<Vec<Cell>>;

impl Session {
    /// Runs `\d…` with the name behind it.
    pub(super) fn describe(&mut self, name: &str, pattern: Option<&str>) -> Flow {
        let is_long = name.ends_with('+');
        let kinds = name.trim_start_matches('d').trim_end_matches('+');
        let is_known = name.starts_with('d') && kinds.chars().all(|kind| KINDS.iter().any(|known| known.0 == kind));
        let result = match (kinds, pattern) {
            ("n", pattern) => self.schemas(pattern),
            ("f", pattern) => self.routines(pattern),
            ("", Some(pattern)) => self.relations(pattern, is_long),
            (kinds, pattern) if is_known => self.list(if kinds.is_empty() { "tvs" } else { kinds }, pattern),
            _ => return self.failed(&format!("invalid command \\{name}\nTry \\? for help.")),
        };
        result.unwrap_or_else(|error| {
            self.show_error(&error);
            self.after_failure()
        })
    }

    fn schemas(&mut self, pattern: Option<&str>) -> Result<Flow, Error> {
        let matching = pattern.map(|pattern| like("n.nspname", pattern)).unwrap_or_default();
        let query = format!(
            "SELECT n.nspname AS \"Name\", pg_catalog.pg_get_userbyid(n.nspowner) AS \"Owner\" FROM pg_catalog.pg_namespace n \
             WHERE n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'{matching} ORDER BY 1"
        );
        let answer = self.ask(&query)?;
        self.show_list("List of schemas", &answer);
        Ok(Flow::On)
    }

    fn routines(&mut self, pattern: Option<&str>) -> Result<Flow, Error> {
        let matching = pattern.map(|pattern| like("p.proname", pattern)).unwrap_or_default();
        let query = format!(
            "SELECT n.nspname AS \"Schema\", p.proname AS \"Name\", pg_catalog.pg_get_function_result(p.oid) AS \"Result data type\", \
             pg_catalog.pg_get_function_arguments(p.oid) AS \"Argument data types\", \
             CASE p.prokind WHEN 'p' THEN 'proc' ELSE 'func' END AS \"Type\" \
             FROM pg_catalog.pg_proc p LEFT JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace \
             WHERE n.nspname NOT IN ('pg_catalog', 'information_schema'){matching} ORDER BY 1, 2, 4"
        );
        let answer = self.ask(&query)?;
        self.show_list("List of functions", &answer);
        Ok(Flow::On)
    }

    fn list(&mut self, kinds: &str, pattern: Option<&str>) -> Result<Flow, Error> {
        let wanted: Vec<_> = KINDS.iter().filter(|(letter, _, _)| kinds.contains(*letter)).collect();
        let words: Vec<_> = wanted.iter().map(|(_, kind, word)| format!("WHEN '{kind}' THEN '{word}'")).collect();
        let kinds_of: Vec<_> = wanted.iter().map(|(_, kind, _)| format!("'{kind}'")).collect();
        let (of_table, joined) = if kinds.contains('i') {
            let joined = " LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid LEFT JOIN pg_catalog.pg_class t ON t.oid = i.indrelid";
            (", t.relname AS \"Table\"", joined)
        } else {
            ("", "")
        };
        let query = format!(
            "SELECT n.nspname AS \"Schema\", c.relname AS \"Name\", CASE c.relkind {} END AS \"Type\", \
             pg_catalog.pg_get_userbyid(c.relowner) AS \"Owner\"{of_table} \
             FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace{joined} \
             WHERE c.relkind IN ({}) AND n.nspname NOT IN ('pg_catalog', 'information_schema'){} ORDER BY 1, 2",
            words.join(" "),
            kinds_of.join(", "),
            pattern.map(named).unwrap_or_default()
        );
        let answer = self.ask(&query)?;
        if !answer.rows.is_empty() {
            self.show_list("List of relations", &answer);
        } else if let Some(pattern) = pattern {
            self.say(format_args!("Did not find any relation named \"{pattern}\"."));
        } else {
            self.say("Did not find any relations.");
        }
        Ok(Flow::On)
    }

    fn show_list(&self, title: &str, answer: &Outcome) {
        self.print(&format!("{}{}\n\n", titled(title, answer), footer(answer.rows.len())));
    }

    /// Describes each relation of a name.
    fn relations(&mut self, pattern: &str, is_long: bool) -> Result<Flow, Error> {
        let query = format!(
            "SELECT c.oid, n.nspname, c.relname, c.relkind FROM pg_catalog.pg_class c \
             LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'v', 'S', 'i'){}{} ORDER BY 2, 3",
            named(pattern),
            // A pattern means users' own.
            if pattern.contains(['*', '?']) {
                " AND n.nspname NOT IN ('pg_catalog', 'information_schema')"
            } else {
                ""
            }
        );
        let found = rows(&self.ask(&query)?);
        if found.is_empty() {
            return Ok(self.failed(&format!("Did not find any relation named \"{pattern}\".")));
        }
        for relation in &found {
            let text = |at: usize| relation.get(at).and_then(Option::as_deref).unwrap_or_default();
            let (id, name) = (text(0), format!("\"{}.{}\"", text(1), text(2)));
            let shown = match text(3) {
                "S" => self.sequence(id, &name)?,
                "i" => self.index(id, &name)?,
                "v" => self.view(id, &name, is_long)?,
                _ => self.table(id, &name)?,
            };
            self.print(&format!("{shown}\n"));
        }
        Ok(Flow::On)
    }

    fn columns_of(&mut self, id: &str) -> Result<Outcome, Error> {
        self.ask(&format!(
            "SELECT a.attname AS \"Column\", pg_catalog.format_type(a.atttypid, a.atttypmod) AS \"Type\", '' AS \"Collation\", \
             CASE WHEN a.attnotnull THEN 'not null' ELSE '' END AS \"Nullable\", \
             CASE a.attidentity WHEN 'a' THEN 'generated always as identity' WHEN 'd' THEN 'generated by default as identity' \
             ELSE coalesce((SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid, true) FROM pg_catalog.pg_attrdef d \
             WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.atthasdef), '') END AS \"Default\" \
             FROM pg_catalog.pg_attribute a WHERE a.attrelid = {id} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
        ))
    }

    fn table(&mut self, id: &str, name: &str) -> Result<String, Error> {
        let columns = self.columns_of(id)?;
        let mut shown = titled(&format!("Table {name}"), &columns);
        let indexes = self.ask(&format!(
            "SELECT c.relname, CASE WHEN i.indisprimary THEN 'PRIMARY KEY, ' WHEN con.contype = 'u' THEN 'UNIQUE CONSTRAINT, ' \
             WHEN i.indisunique THEN 'UNIQUE, ' ELSE '' END, pg_catalog.pg_get_indexdef(i.indexrelid, 0, true) \
             FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid \
             LEFT JOIN pg_catalog.pg_constraint con ON con.conrelid = i.indrelid AND con.conindid = i.indexrelid AND con.contype IN ('p', 'u') \
             WHERE i.indrelid = {id} ORDER BY i.indisprimary DESC, c.relname"
        ))?;
        let indexes = lines(&indexes, |row| {
            let [name, kind, definition] = row else { return String::new() };
            let how = definition.split_once(" USING ").map_or(definition.as_str(), |(_, how)| how);
            format!("\"{name}\" {kind}{how}")
        });
        let constraints = |kind: &str, column: &str, condition: &str| {
            format!(
                "SELECT r.conname, pg_catalog.pg_get_constraintdef(r.oid, true), t.relname FROM pg_catalog.pg_constraint r \
                 JOIN pg_catalog.pg_class t ON t.oid = r.conrelid WHERE r.{column} = {id} AND r.contype = '{kind}'{condition} ORDER BY 1"
            )
        };
        let own = |row: &[String]| format!("\"{}\" {}", row[0], row[1]);
        let checks = lines(&self.ask(&constraints("c", "conrelid", ""))?, own);
        let foreign = lines(&self.ask(&constraints("f", "conrelid", ""))?, own);
        let other = |row: &[String]| format!("TABLE \"{}\" CONSTRAINT \"{}\" {}", row[2], row[0], row[1]);
        let referenced = lines(&self.ask(&constraints("f", "confrelid", ""))?, other);
        let parts = [
            ("Indexes", indexes),
            ("Check constraints", checks),
            ("Foreign-key constraints", foreign),
            ("Referenced by", referenced),
        ];
        for (title, lines) in parts {
            if !lines.is_empty() {
                shown += &format!("{title}:\n{lines}");
            }
        }
        Ok(shown)
    }

    fn view(&mut self, id: &str, name: &str, is_long: bool) -> Result<String, Error> {
        let columns = self.columns_of(id)?;
        let shown = titled(&format!("View {name}"), &columns);
        if !is_long {
            return Ok(shown);
        }
        let query = rows(&self.ask(&format!("SELECT pg_catalog.pg_get_viewdef({id}, true)"))?);
        let query = query.into_iter().flatten().flatten().next().unwrap_or_default();
        Ok(format!("{shown}View definition:\n{query}\n"))
    }

    fn index(&mut self, id: &str, name: &str) -> Result<String, Error> {
        let columns = self.ask(&format!(
            "SELECT a.attname AS \"Column\", pg_catalog.format_type(a.atttypid, a.atttypmod) AS \"Type\" \
             FROM pg_catalog.pg_attribute a WHERE a.attrelid = {id} AND a.attnum > 0 ORDER BY a.attnum"
        ))?;
        let shown = titled(&format!("Index {name}"), &columns);
        let of = self.ask(&format!(
            "SELECT CASE WHEN i.indisprimary THEN 'primary key, ' WHEN i.indisunique THEN 'unique, ' ELSE '' END, n.nspname, t.relname \
             FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class t ON t.oid = i.indrelid \
             JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace WHERE i.indexrelid = {id}"
        ))?;
        let of =
            rows(&of).first().map(|row| row.iter().map(|cell| cell.clone().unwrap_or_default()).collect::<Vec<_>>());
        Ok(match of.as_deref() {
            Some([kind, schema, table]) => format!("{shown}{kind}btree, for table \"{schema}.{table}\"\n"),
            _ => shown,
        })
    }

    fn sequence(&mut self, id: &str, name: &str) -> Result<String, Error> {
        let answer = self.ask(&format!(
            "SELECT pg_catalog.format_type(s.seqtypid, NULL) AS \"Type\", s.seqstart AS \"Start\", s.seqmin AS \"Minimum\", \
             s.seqmax AS \"Maximum\", s.seqincrement AS \"Increment\", CASE WHEN s.seqcycle THEN 'yes' ELSE 'no' END AS \"Cycles?\", \
             s.seqcache AS \"Cache\" FROM pg_catalog.pg_sequence s WHERE s.seqrelid = {id}"
        ))?;
        Ok(titled(&format!("Sequence {name}"), &answer))
    }
}

fn rows(answer: &Outcome) -> Rows {
    answer.texts().collect()
}

/// A line of each row, indented.
fn lines(answer: &Outcome, line: impl Fn(&[String]) -> String) -> String {
    let line = |row: Vec<Cell>| {
        let row: Vec<_> = row.into_iter().map(Option::unwrap_or_default).collect();
        format!("    {}\n", line(&row))
    };
    answer.texts().map(line).collect()
}

fn titled(title: &str, answer: &Outcome) -> String {
    let columns: Vec<_> = answer.columns.iter().map(|(name, of)| column(name, *of)).collect();
    table(&columns, &rows(answer), "", Some(title))
}

/// The condition that a relation has this name, with its schema or without.
fn named(pattern: &str) -> String {
    match pattern.split_once('.') {
        Some((schema, name)) => like("n.nspname", schema) + &like("c.relname", name),
        None => like("c.relname", pattern) + " AND pg_catalog.pg_table_is_visible(c.oid)",
    }
}

/// The condition that a name is one of a pattern: lower case unless it is in quotes; `*` stands for any letters and `?` for one.
fn like(name: &str, pattern: &str) -> String {
    let mut text = String::new();
    let mut is_quoted = false;
    for letter in pattern.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            '*' if !is_quoted => text.push('%'),
            '?' if !is_quoted => text.push('_'),
            '%' | '_' | '\\' => text.extend(['\\', letter]),
            '\'' => text += "''",
            letter if is_quoted => text.push(letter),
            letter => text.extend(letter.to_lowercase()),
        }
    }
    format!(" AND {name} LIKE '{text}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_psql() {
        let cases = [("T*", "t%"), ("a_b?", "a\\_b_"), ("\"T*\"", "T*"), ("it's", "it''s")];
        for (pattern, wanted) in cases {
            assert_eq!(like("n", pattern), format!(" AND n LIKE '{wanted}'"));
        }
    }
}
