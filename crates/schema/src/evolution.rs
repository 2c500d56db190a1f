//! How a table becomes one of rows with other columns: what the rows declare of their past, compared with what there is.

use polychron_base::line::OneLine;

use crate::buffer::{RowBuffer, RowRef};
use crate::definition::{ColumnDefinition, IndexDefinition, TableDefinition};
use crate::dynamic::build_row;
use crate::error::SchemaError;
use crate::layout::Layout;
use crate::types::ColumnType;
use crate::value::Value;

/// The past of a row's column, as declared: `#[column(was = "…", default = …)]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnHistory {
    /// The name it had before.
    pub was: Option<String>,
    /// Its value in rows that were written before the column existed.
    pub default: Option<Value>,
}

/// Why a table cannot become one of other rows. Ends what was asked for as [`polychron_base::Error::Other`], from which it can be downcast.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvolutionError {
    /// A column of the rows that the table has not.
    #[error("{}.{} is not there: the row's field needs a `default`, or what it `was`", OneLine(table), OneLine(column))]
    Missing {
        /// The table's name.
        table: String,
        /// The column's name.
        column: String,
    },
    /// A column of the table that the rows have not.
    #[error(
        "{}.{} is in the table and not in the row, where no field says that it `was` this column",
        OneLine(table),
        OneLine(column)
    )]
    Surplus {
        /// The table's name.
        table: String,
        /// The column's name.
        column: String,
    },
    /// The table has a column's old name and its new one.
    #[error(
        "{}.{} is in the table, and so is `{}`, which it was before",
        OneLine(table),
        OneLine(column),
        OneLine(was)
    )]
    Ambiguous {
        /// The table's name.
        table: String,
        /// The column's name.
        column: String,
        /// Its old name.
        was: String,
    },
    /// A column that would become two.
    #[error("{}.{} would become both `{}` and `{}`", OneLine(table), OneLine(was), OneLine(column), OneLine(other))]
    Twice {
        /// The table's name.
        table: String,
        /// The column's name in the table.
        was: String,
        /// One of the row's columns.
        column: String,
        /// The other one.
        other: String,
    },
    /// A column whose values the new column cannot hold all.
    #[error(
        "{}.{} is {}, and the row has {}",
        OneLine(table),
        OneLine(column),
        described(*present, *nullable),
        described(*wanted, *wanted_nullable)
    )]
    Type {
        /// The table's name.
        table: String,
        /// The column's name in the row.
        column: String,
        /// Its type in the table.
        present: ColumnType,
        /// Whether it can be NULL there.
        nullable: bool,
        /// Its type in the row.
        wanted: ColumnType,
        /// Whether it can be NULL there.
        wanted_nullable: bool,
    },
    /// The primary key has other columns.
    #[error(
        "the primary key of {} is ({}), and that of the row is ({})",
        OneLine(table),
        OneLine(present),
        OneLine(wanted)
    )]
    Key {
        /// The table's name.
        table: String,
        /// The names of the key's columns in the table.
        present: String,
        /// Those in the row, as they are in the table where they have been renamed.
        wanted: String,
    },
    /// A default that its column cannot hold.
    #[error("the default of {}.{}: {error}", OneLine(table), OneLine(column))]
    Default {
        /// The table's name.
        table: String,
        /// The column's name.
        column: String,
        /// Why not.
        error: Box<SchemaError>,
    },
    /// The table was made for older rows, and has not been evolved.
    #[error("{} is a table of older rows ({difference}): open it by `create_or_open_table`", OneLine(table))]
    Older {
        /// The table's name.
        table: String,
        /// The first column that differs.
        difference: String,
    },
    /// The handle is of a table that is becoming one of other rows, or has become it.
    #[error("{} has other columns since this handle was made ({difference}): open the table again", OneLine(table))]
    Superseded {
        /// The table's name.
        table: String,
        /// The first column that differs.
        difference: String,
    },
    /// Foreign keys of another table lead to it.
    #[error("{} refers to {}, so its columns stay as they are", OneLine(child), OneLine(table))]
    Referenced {
        /// The table's name.
        table: String,
        /// The table with the foreign key.
        child: String,
    },
    /// A layer above the engine has rules for the table's rows, which the new table would not have.
    #[error("SQL has rules for the rows of {}, so its columns are changed by ALTER TABLE", OneLine(table))]
    Ruled {
        /// The table's name.
        table: String,
    },
}

fn described(column_type: ColumnType, nullable: bool) -> String {
    if nullable { format!("{column_type} or NULL") } else { column_type.to_string() }
}

impl From<EvolutionError> for polychron_base::Error {
    fn from(error: EvolutionError) -> Self {
        Self::other(error)
    }
}

/// The source of the values of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// The column of the older row at this position.
    Column(usize),
    Default(Value),
}

/// The way from older rows to newer ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evolution {
    /// Of each column of the newer rows.
    sources: Vec<Source>,
    /// The first column that differs, in words.
    difference: String,
}

impl Evolution {
    /// Compares a table with the rows that it is to have, of whose columns `history` tells in their order; `None` where they are the same.
    ///
    /// Every column of the table becomes one of the rows': that of its name, or the one that `was` it. A column that is in none of the older
    /// rows has a default. Its type stays; text and bytes may have a greater maximum, and a column outside of the key may become one that can be
    /// NULL. The primary key stays as it is, but for the names. The order of the columns is free.
    ///
    /// # Errors
    /// The first column that does not fit, and why.
    pub fn between(
        present: &TableDefinition,
        wanted: &TableDefinition,
        history: &[ColumnHistory],
    ) -> Result<Option<Self>, EvolutionError> {
        if present.columns == wanted.columns && present.key == wanted.key {
            return Ok(None);
        }
        let mut sources = Vec::with_capacity(wanted.columns.len());
        for (position, column) in wanted.columns.iter().enumerate() {
            let source = source_of(present, column, history.get(position))?;
            if let (Source::Column(at), Some(other)) = (&source, sources.iter().position(|other| *other == source))
                && let Some(was) = present.columns.get(*at)
            {
                return Err(EvolutionError::Twice {
                    table: present.name.clone(),
                    was: was.name.clone(),
                    column: wanted.columns[other].name.clone(),
                    other: column.name.clone(),
                });
            }
            sources.push(source);
        }
        let is_used = |position: usize| sources.contains(&Source::Column(position));
        if let Some(surplus) = (0..present.columns.len()).find(|&position| !is_used(position)) {
            let (table, column) = (present.name.clone(), present.columns[surplus].name.clone());
            return Err(EvolutionError::Surplus { table, column });
        }
        check_key(present, wanted, &sources)?;
        let difference = difference(present, wanted, &sources);
        Ok(Some(Self { sources, difference }))
    }

    /// The first column that differs, in words.
    pub fn difference(&self) -> &str {
        &self.difference
    }

    /// Makes a newer row of an older one.
    ///
    /// # Errors
    /// When the row becomes too long.
    pub fn convert(
        &self,
        (older, row): (&Layout, RowRef<'_>),
        newer: &Layout,
        out: &mut RowBuffer,
    ) -> Result<(), SchemaError> {
        let value = |source: &Source| match source {
            Source::Column(position) => row.value(older, *position),
            Source::Default(value) => value.clone(),
        };
        build_row(newer, &self.sources.iter().map(value).collect::<Vec<_>>(), out)
    }

    /// The same index over the columns of the newer rows.
    pub fn index(&self, older: &IndexDefinition) -> IndexDefinition {
        let position = |&column: &usize| {
            let found = self.sources.iter().position(|source| *source == Source::Column(column));
            found.expect("every column of the older rows becomes one of the newer rows")
        };
        IndexDefinition { columns: older.columns.iter().map(position).collect(), ..older.clone() }
    }
}

fn source_of(
    present: &TableDefinition,
    wanted: &ColumnDefinition,
    history: Option<&ColumnHistory>,
) -> Result<Source, EvolutionError> {
    let (table, column) = (|| present.name.clone(), || wanted.name.clone());
    let was = history.and_then(|history| history.was.as_deref());
    let own = present.column_index(&wanted.name);
    let older = was.filter(|was| *was != wanted.name).and_then(|was| present.column_index(was));
    if let (Some(_), Some(older)) = (own, older) {
        let was = present.columns[older].name.clone();
        return Err(EvolutionError::Ambiguous { table: table(), column: column(), was });
    }
    let Some(position) = own.or(older) else {
        let default = history.and_then(|history| history.default.as_ref());
        let default = default.ok_or_else(|| EvolutionError::Missing { table: table(), column: column() })?;
        let layout = Layout::new(&present.name, std::iter::once((wanted.name.clone(), wanted.shape())));
        let fits = build_row(&layout, std::slice::from_ref(default), &mut RowBuffer::new());
        fits.map_err(|error| EvolutionError::Default { table: table(), column: column(), error: Box::new(error) })?;
        return Ok(Source::Default(default.clone()));
    };
    let found = &present.columns[position];
    let holds_all = found.column_type.is_like(wanted.column_type)
        && found.column_type.max_bytes() <= wanted.column_type.max_bytes()
        && (wanted.nullable || !found.nullable);
    if holds_all {
        return Ok(Source::Column(position));
    }
    Err(EvolutionError::Type {
        table: table(),
        column: column(),
        present: found.column_type,
        nullable: found.nullable,
        wanted: wanted.column_type,
        wanted_nullable: wanted.nullable,
    })
}

fn check_key(present: &TableDefinition, wanted: &TableDefinition, sources: &[Source]) -> Result<(), EvolutionError> {
    let comes_from = |&column: &usize| match sources.get(column) {
        Some(Source::Column(position)) => Some(*position),
        _ => None,
    };
    if wanted.key.iter().map(comes_from).eq(present.key.iter().copied().map(Some)) {
        return Ok(());
    }
    let names = |key: Vec<&str>| key.join(", ");
    let name = |column: &usize| {
        let older = comes_from(column).map(|position| &present.columns[position]);
        older.or(wanted.columns.get(*column)).map_or("", |column| &column.name)
    };
    Err(EvolutionError::Key {
        table: present.name.clone(),
        present: names(present.key.iter().map(|&column| &*present.columns[column].name).collect()),
        wanted: names(wanted.key.iter().map(name).collect()),
    })
}

/// The first column that differs, in words.
fn difference(present: &TableDefinition, wanted: &TableDefinition, sources: &[Source]) -> String {
    for (position, (source, column)) in sources.iter().zip(&wanted.columns).enumerate() {
        match source {
            Source::Default(_) => return format!("`{}` is new", column.name),
            Source::Column(at) => {
                let older = &present.columns[*at];
                if older.name != column.name {
                    return format!("`{}` was `{}`", column.name, older.name);
                }
                if (older.column_type, older.nullable) != (column.column_type, column.nullable) {
                    let (was, is) =
                        (described(older.column_type, older.nullable), described(column.column_type, column.nullable));
                    return format!("`{}` is {is} and was {was}", column.name);
                }
                if *at != position {
                    return format!("`{}` has another place", column.name);
                }
            }
        }
    }
    // Columns that are all the same, in their places, differ as parts of the key alone.
    "the primary key".to_owned()
}

impl TableDefinition {
    /// A number for the columns and the primary key, with their names, types and order: rows of tables with the same one have the same bytes. It
    /// is the same in every process and version, so that what is stored can carry it.
    pub fn fingerprint(&self) -> u64 {
        // FNV-1a, which is short and never changes.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |bytes: &[u8]| {
            for &byte in bytes.iter().chain(&[0xff]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        };
        for column in &self.columns {
            add(column.name.as_bytes());
            add(column.column_type.to_string().as_bytes());
            if let ColumnType::Enum(kind) = column.column_type {
                for variant in kind.variants() {
                    add(variant.name.as_bytes());
                    add(&variant.number.to_le_bytes());
                }
            }
            add(&[column.nullable.into()]);
        }
        for &column in &self.key {
            add(&(column as u64).to_le_bytes());
        }
        hash
    }
}
