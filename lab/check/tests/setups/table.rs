//! Tables of cases and protocols in the documents: equal rows and equal columns are shown once.

use std::fmt::Write;

/// A table with a row for each case and a column for each protocol. `cell` gives the text for a column and a row.
pub(crate) fn table(title: &str, cases: &[&str], protocols: &[&str], cell: impl Fn(usize, usize) -> String) -> String {
    let columns = grouped(protocols, "; ", |column| (0..cases.len()).map(|row| cell(column, row)).collect::<Vec<_>>());
    let named: Vec<String> = cases.iter().map(|case| format!("`{case}`")).collect();
    let rows = grouped(&named, ", ", |row| columns.iter().map(|(_, cells)| cells[row].clone()).collect::<Vec<_>>());
    let mut out = format!("| {title} |");
    columns.iter().for_each(|(names, _)| write!(out, " {names} |").unwrap());
    out += "\n|---|";
    columns.iter().for_each(|_| out += "---|");
    for (names, cells) in rows {
        write!(out, "\n| {names} | {} |", cells.join(" | ")).unwrap();
    }
    out
}

/// The names of equal cells together, in the order of the first of them.
fn grouped<N: AsRef<str>, C: PartialEq>(
    names: &[N],
    separator: &str,
    cells_of: impl Fn(usize) -> C,
) -> Vec<(String, C)> {
    let mut groups: Vec<(String, C)> = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let (name, cells) = (name.as_ref(), cells_of(at));
        match groups.iter_mut().find(|(_, other)| *other == cells) {
            Some((names, _)) => write!(names, "{separator}{name}").unwrap(),
            None => groups.push((name.to_owned(), cells)),
        }
    }
    groups
}
