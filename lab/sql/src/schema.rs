//! Tables that a seed draws.

use crate::draw::Draw;
use crate::kinds::{Kind, MOOD};

/// A column.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: Kind,
    /// Whether it has NOT NULL.
    pub is_required: bool,
    /// What stands in for a value.
    pub default: Option<String>,
}

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// The columns of its key.
    pub key: Vec<usize>,
    /// The columns of each UNIQUE.
    pub uniques: Vec<Vec<usize>>,
    /// Conditions of CHECKs.
    pub checks: Vec<String>,
    /// Further indexes, each as its definition.
    pub indexes: Vec<String>,
}

/// Tables.
#[derive(Clone, Debug)]
pub struct Schema {
    /// The tables.
    pub tables: Vec<Table>,
}

impl Schema {
    /// Draws two or three tables.
    pub fn drawn(draw: &mut Draw) -> Self {
        let count = draw.within(2, 3);
        Self { tables: (0..count).map(|number| Table::drawn(draw, number)).collect() }
    }

    /// The statements that make the enum and the tables, with their further indexes or without.
    pub fn definitions(&self, with_indexes: bool) -> Vec<String> {
        let mut all: Vec<_> = MOOD.map(str::to_owned).into();
        for table in &self.tables {
            all.push(table.definition());
            if with_indexes {
                all.extend(table.indexes.iter().cloned());
            }
        }
        all
    }
}

impl Table {
    fn drawn(draw: &mut Draw, number: usize) -> Self {
        let name = format!("t{number}");
        let count = draw.within(3, 6);
        let columns: Vec<_> = (0..count).map(|at| Column::drawn(draw, at)).collect();
        let keys: Vec<_> = (0..count).collect();
        let (mut key, more) = (vec![keys[0]], draw.below(3));
        key.extend(draw.some(&keys[1..], more));
        if draw.once_in(4) {
            key.reverse();
        }
        let mut uniques = Vec::new();
        if draw.once_in(2) {
            let width = draw.within(1, 2);
            uniques.push(draw.some(&keys, width));
        }
        let mut table = Self { name, columns, key, uniques, checks: Vec::new(), indexes: Vec::new() };
        table.draw_checks(draw);
        table.draw_indexes(draw);
        table
    }

    fn draw_checks(&mut self, draw: &mut Draw) {
        for column in &self.columns {
            if column.kind.is_integer() && draw.once_in(4) {
                self.checks.push(format!(
                    "{} {} {}",
                    column.name,
                    draw.word(&["<>", ">", "<"]),
                    draw.word(&["13", "-5", "12"])
                ));
            } else if column.kind == Kind::Text && draw.once_in(5) {
                self.checks.push(format!("length({}) < 9", column.name));
            }
        }
    }

    fn draw_indexes(&mut self, draw: &mut Draw) {
        for number in 0..draw.below(4) {
            let all: Vec<_> = (0..self.columns.len()).collect();
            let width = draw.within(1, 3);
            let columns = draw.some(&all, width).into_iter().map(|at| {
                let order = draw.word(&["", "", " DESC", " NULLS FIRST", " DESC NULLS LAST"]);
                let Column { name, kind, .. } = &self.columns[at];
                let part = if draw.once_in(3) { kind.derived(name, draw).0 } else { name.clone() };
                format!("{part}{order}")
            });
            let columns = columns.collect::<Vec<_>>().join(", ");
            let condition = if draw.once_in(3) {
                let Column { name, kind, .. } = draw.one(&self.columns);
                format!(" WHERE {}", kind.part(name, draw))
            } else {
                String::new()
            };
            let (name, unique) = (&self.name, if draw.once_in(6) { "UNIQUE " } else { "" });
            self.indexes.push(format!("CREATE {unique}INDEX {name}_i{number} ON {name} ({columns}){condition}"));
        }
    }

    /// The statement that makes it.
    pub fn definition(&self) -> String {
        let mut parts: Vec<_> = self.columns.iter().map(Column::definition).collect();
        let names = |of: &[usize]| of.iter().map(|&at| &*self.columns[at].name).collect::<Vec<_>>().join(", ");
        parts.push(format!("PRIMARY KEY ({})", names(&self.key)));
        parts.extend(self.uniques.iter().map(|of| format!("UNIQUE ({})", names(of))));
        parts.extend(self.checks.iter().map(|check| format!("CHECK ({check})")));
        format!("CREATE TABLE {} ({})", self.name, parts.join(", "))
    }

    /// A row of it in VALUES.
    pub fn row(&self, draw: &mut Draw) -> String {
        let values = self.columns.iter().enumerate().map(|(at, column)| {
            if !column.is_required && !self.key.contains(&at) && draw.once_in(6) {
                return "NULL".to_owned();
            }
            column.kind.quoted(draw, 12)
        });
        format!("({})", values.collect::<Vec<_>>().join(", "))
    }

    /// Whether the column is part of a key or of a UNIQUE.
    pub fn is_unique(&self, column: usize) -> bool {
        self.key.contains(&column) || self.uniques.iter().any(|of| of.contains(&column))
    }
}

impl Column {
    fn drawn(draw: &mut Draw, at: usize) -> Self {
        let kind = *draw.one(&Kind::ALL);
        // The first one is the key's: let it take many values.
        let kind = if at == 0 && draw.below(3) > 0 {
            *draw.one(&[Kind::Int4, Kind::Int8, Kind::Int2, Kind::Date])
        } else {
            kind
        };
        let default = draw.once_in(4).then(|| kind.quoted(draw, 20));
        Self { name: format!("c{at}"), kind, is_required: draw.once_in(4), default }
    }

    fn definition(&self) -> String {
        let default = self.default.iter().map(|it| format!(" DEFAULT {it}")).collect::<String>();
        let required = if self.is_required { " NOT NULL" } else { "" };
        format!("{} {}{default}{required}", self.name, self.kind.definition())
    }
}
