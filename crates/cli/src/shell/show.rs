//! Rows as text: aligned as psql shows them, expanded, CSV, JSON and Markdown.

use std::fmt::Write;

use unicode_width::UnicodeWidthStr as _;

pub(super) use crate::arguments::Shown as Format;

impl Format {
    /// Its name, as the option has it.
    pub(super) fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self).map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// A column's name, and whether its values are aligned to the right, and are numbers or booleans as they stand.
pub(super) struct Column<'c> {
    pub(super) name: &'c str,
    pub(super) is_right: bool,
    pub(super) is_bare: bool,
}

pub(super) type Cell = Option<String>;

/// All rows as text; what stands for NULL, where the format has nothing for it.
pub(super) fn show(format: Format, columns: &[Column<'_>], rows: &[Vec<Cell>], null: &str) -> String {
    match format {
        Format::Aligned => aligned(columns, rows, null),
        Format::Expanded => expanded(columns, rows, null),
        Format::Csv => csv(columns, rows, true),
        Format::Json => json(columns, rows),
        Format::Markdown => markdown(columns, rows, null),
    }
}

/// A line as a terminal shows it: what would move its cursor is written as an escape, and tabs as blanks.
fn printable(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    for letter in line.chars() {
        match letter {
            '\t' => (0..8 - shown.width() % 8).for_each(|_| shown.push(' ')),
            '\r' => shown += "\\r",
            control if control.is_control() => {
                let _ = write!(shown, "\\x{:02X}", u32::from(control));
            }
            letter => shown.push(letter),
        }
    }
    shown
}

fn lines_of(text: &str) -> Vec<String> {
    text.split('\n').map(printable).collect()
}

/// All values, in lines.
fn lines_of_rows(rows: &[Vec<Cell>], null: &str) -> Vec<Vec<Vec<String>>> {
    let lines = |cell: &Cell| lines_of(cell.as_deref().unwrap_or(null));
    rows.iter().map(|row| row.iter().map(lines).collect()).collect()
}

fn widest<'l>(lines: impl IntoIterator<Item = &'l String>) -> usize {
    lines.into_iter().map(|line| line.width()).max().unwrap_or(0)
}

fn blanks(width: usize) -> String {
    " ".repeat(width)
}

/// `(1 row)`
pub(super) fn footer(rows: usize) -> String {
    format!("({rows} row{})", if rows == 1 { "" } else { "s" })
}

fn aligned(columns: &[Column<'_>], rows: &[Vec<Cell>], null: &str) -> String {
    table(columns, rows, null, None) + &footer(rows.len()) + "\n"
}

/// A table with a title in the middle, and nothing behind its rows.
pub(super) fn table(columns: &[Column<'_>], rows: &[Vec<Cell>], null: &str, title: Option<&str>) -> String {
    if columns.is_empty() {
        return "--\n".to_owned();
    }
    let names: Vec<_> = columns.iter().map(|column| printable(column.name)).collect();
    let cells = lines_of_rows(rows, null);
    let of_column = |at: usize| widest(cells.iter().flat_map(|row| &row[at])).max(names[at].width());
    let widths: Vec<_> = (0..columns.len()).map(of_column).collect();
    let mut out = String::new();
    if let Some(title) = title {
        let all = widths.iter().map(|width| width + 3).sum::<usize>() - 1;
        let _ = writeln!(out, "{}{title}", blanks(all.saturating_sub(title.width()) / 2));
    }
    let heads = names.iter().zip(&widths).map(|(name, width)| {
        let free = width - name.width();
        format!(" {}{name}{} ", blanks(free / 2), blanks(free - free / 2))
    });
    let _ = writeln!(out, "{}", heads.collect::<Vec<_>>().join("|"));
    let rules = widths.iter().map(|width| "-".repeat(width + 2));
    let _ = writeln!(out, "{}", rules.collect::<Vec<_>>().join("+"));
    for row in &cells {
        for line in 0..row.iter().map(Vec::len).max().unwrap_or(0) {
            aligned_line(columns, &widths, row, line, &mut out);
        }
    }
    out
}

/// The line of a row that shows this line of its values.
fn aligned_line(columns: &[Column<'_>], widths: &[usize], row: &[Vec<String>], line: usize, out: &mut String) {
    for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
        let text = cell.get(line).map(String::as_str).unwrap_or_default();
        let (is_last, goes_on) = (at + 1 == row.len(), line + 1 < cell.len());
        let pad = blanks(width - text.width());
        let (before, behind) = if columns[at].is_right { (&*pad, "") } else { ("", &*pad) };
        // The last column is not filled up, but for a sign that it goes on.
        let behind = if is_last && !goes_on { "" } else { behind };
        let end = match (goes_on, is_last) {
            (true, _) => "+",
            (false, false) => " ",
            (false, true) => "",
        };
        let _ = write!(out, " {before}{text}{behind}{end}");
        if !is_last {
            out.push('|');
        }
    }
    out.push('\n');
}

fn expanded(columns: &[Column<'_>], rows: &[Vec<Cell>], null: &str) -> String {
    if rows.is_empty() {
        return format!("{}\n", footer(0));
    }
    let heads: Vec<_> = columns.iter().map(|column| printable(column.name)).collect();
    let cells = lines_of_rows(rows, null);
    let names = widest(&heads);
    let values = widest(cells.iter().flatten().flatten());
    let mut out = String::new();
    for (number, row) in cells.iter().enumerate() {
        let mut rule = format!("-[ RECORD {} ]", number + 1);
        for at in rule.len()..names + values + 3 {
            rule.push(if at == names + 1 { '+' } else { '-' });
        }
        let _ = writeln!(out, "{rule}");
        for (name, lines) in heads.iter().zip(row) {
            for (line, text) in lines.iter().enumerate() {
                let name = if line == 0 { name } else { "" };
                let more = line + 1 < lines.len();
                let (pad, sign) = if more { (blanks(values - text.width()), "+") } else { (String::new(), "") };
                let _ = writeln!(out, "{name}{} | {text}{pad}{sign}", blanks(names - name.width()));
            }
        }
    }
    out
}

/// As `COPY` writes it: NULL is nothing, and an empty text two quotes.
pub(super) fn csv(columns: &[Column<'_>], rows: &[Vec<Cell>], has_names: bool) -> String {
    let field = |text: &str| {
        let is_plain = !text.is_empty() && text != "\\." && !text.contains([',', '"', '\n', '\r']);
        if is_plain { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
    };
    let mut out = String::new();
    if has_names {
        out += &columns.iter().map(|column| field(column.name)).collect::<Vec<_>>().join(",");
        out.push('\n');
    }
    for row in rows {
        out += &row.iter().map(|cell| cell.as_deref().map(field).unwrap_or_default()).collect::<Vec<_>>().join(",");
        out.push('\n');
    }
    out
}

fn json(columns: &[Column<'_>], rows: &[Vec<Cell>]) -> String {
    let value = |column: &Column<'_>, cell: &Cell| match cell.as_deref() {
        None => "null".to_owned(),
        Some("t") if column.is_bare => "true".to_owned(),
        Some("f") if column.is_bare => "false".to_owned(),
        // JSON has no numbers for those.
        Some(text) if column.is_bare && !["NaN", "Infinity", "-Infinity"].contains(&text) => text.to_owned(),
        Some(text) => quoted(text),
    };
    let object = |row: &Vec<Cell>| {
        let members = columns.iter().zip(row);
        let members = members.map(|(column, cell)| format!("{}: {}", quoted(column.name), value(column, cell)));
        format!("\n  {{{}}}", members.collect::<Vec<_>>().join(", "))
    };
    let end = if rows.is_empty() { "" } else { "\n" };
    format!("[{}{end}]\n", rows.iter().map(object).collect::<Vec<_>>().join(","))
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn markdown(columns: &[Column<'_>], rows: &[Vec<Cell>], null: &str) -> String {
    let cell = |text: &str| text.replace('\\', "\\\\").replace('|', "\\|").replace('\n', "<br>");
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut out = line(columns.iter().map(|column| cell(column.name)).collect());
    out += &line(columns.iter().map(|column| if column.is_right { "--:" } else { "---" }.to_owned()).collect());
    for row in rows {
        out += &line(row.iter().map(|it| cell(it.as_deref().unwrap_or(null))).collect());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(format: Format) -> String {
        let column = |name, is_right| Column { name, is_right, is_bare: is_right };
        let columns = [column("id", true), column("name", false), column("words", false)];
        let row = |id: &str, name: Option<&str>, words: &str| {
            vec![Some(id.to_owned()), name.map(str::to_owned), Some(words.to_owned())]
        };
        show(format, &columns, &[row("1", Some("Ada"), "x"), row("200", None, "a\nb,\"")], "")
    }

    #[test]
    fn rows_are_shown_as_psql_shows_them() {
        let wanted = " id  | name | words \n-----+------+-------\n   1 | Ada  | x\n 200 |      | a    +\n     |      | b,\"\n(2 rows)\n";
        assert_eq!(example(Format::Aligned), wanted);
        let wanted = "-[ RECORD 1 ]\nid    | 1\nname  | Ada\nwords | x\n-[ RECORD 2 ]\nid    | 200\nname  | \nwords | a  +\n      | b,\"\n";
        assert_eq!(example(Format::Expanded), wanted);
        assert_eq!(example(Format::Csv), "id,name,words\n1,Ada,x\n200,,\"a\nb,\"\"\"\n");
        let wanted = "[\n  {\"id\": 1, \"name\": \"Ada\", \"words\": \"x\"},\n  {\"id\": 200, \"name\": null, \"words\": \"a\\nb,\\\"\"}\n]\n";
        assert_eq!(example(Format::Json), wanted);
        let wanted = "| id | name | words |\n| --: | --- | --- |\n| 1 | Ada | x |\n| 200 |  | a<br>b,\" |\n";
        assert_eq!(example(Format::Markdown), wanted);
    }

    #[test]
    fn wide_letters_take_two_places_and_controls_are_escaped() {
        let column = |name| Column { name, is_right: false, is_bare: false };
        let rows = [vec![Some("東京".to_owned()), Some("ü\ty\x1b\r".to_owned())]];
        let shown = show(Format::Aligned, &[column("a"), column("b")], &rows, "");
        assert_eq!(shown, "  a   |        b        \n------+-----------------\n 東京 | ü       y\\x1B\\r\n(1 row)\n");
        let shown = show(Format::Expanded, &[column("a"), column("b")], &rows, "");
        assert_eq!(shown, "-[ RECORD 1 ]------\na | 東京\nb | ü       y\\x1B\\r\n");
        assert_eq!(show(Format::Expanded, &[column("a")], &[], ""), "(0 rows)\n");
        assert_eq!(show(Format::Aligned, &[], &[vec![]], ""), "--\n(1 row)\n");
    }

    #[test]
    fn values_that_json_has_no_numbers_for_are_texts() {
        let column = |name| Column { name, is_right: true, is_bare: true };
        let rows = [
            vec![Some("NaN".to_owned()), Some("t".to_owned())],
            vec![Some("1e400".to_owned()), Some("0.50".to_owned())],
        ];
        let shown = show(Format::Json, &[column("a"), column("\"")], &rows, "");
        assert_eq!(shown, "[\n  {\"a\": \"NaN\", \"\\\"\": true},\n  {\"a\": 1e400, \"\\\"\": 0.50}\n]\n");
        assert_eq!(show(Format::Json, &[column("a")], &[], ""), "[]\n");
    }
}
