//! The tables whose transactions are recorded.

use polychron_schema::{Decimal, IndexKind, Row, TableDefinition, Value};

use super::{Attributes, Version};

/// A row that carries its version.
#[derive(Row, Clone, Debug, PartialEq)]
#[index(name = "by_team", columns(team))]
#[index(name = "by_code", columns(code), unique)]
#[index(name = "by_name", columns(name))]
#[index(name = "by_owner", columns(owner))]
#[references(row = Owner, columns(owner))]
pub struct Tracked {
    /// The primary key.
    #[key]
    pub id: u64,
    /// Who wrote this state: a [`Version`].
    pub version: u64,
    /// Shared by several rows.
    pub team: u16,
    /// Unique, but for NULL.
    pub code: Option<u32>,
    /// Made of the version, so that a mixture of two states shows; its length makes records move.
    #[column(max = 4000)]
    pub text: String,
    /// This and the columns below follow from the row's mark: see `MARKS`.
    pub signed: Option<i64>,
    /// Up to the largest number.
    pub count: u64,
    /// With both zeros, and what is no number.
    pub ratio: Option<f64>,
    /// Money.
    pub price: Decimal<2>,
    /// A truth value.
    pub open: bool,
    /// No two marks have the same one.
    #[column(max = 4000)]
    pub name: Option<String>,
    /// A row of [`Owner`], if any.
    pub owner: Option<u64>,
}

/// What tracked rows refer to. There is one such row, which stays.
#[derive(Row, Clone, Copy, Debug, PartialEq, Eq)]
#[row(name = "owner")]
pub struct Owner {
    /// The primary key.
    #[key]
    pub id: u64,
}

/// The columns that restrictions look at, in the order of the row.
pub(super) type Marked = (Option<i64>, u64, Option<f64>, i64, bool, Option<&'static str>);

/// What follows from each mark: numbers of both signs and beyond the other type's, NULL, all kinds of floating-point numbers, texts that
/// begin alike, and texts that begin alike for eight bytes.
pub(super) const MARKS: [Marked; 8] = [
    (None, 0, None, 0, false, None),
    (Some(-5), 5, Some(-0.0), -150, true, Some("")),
    (Some(0), 1, Some(0.0), 100, false, Some("a")),
    (Some(5), 200, Some(1.0), 150, true, Some("ab")),
    (Some(i64::MIN), i64::MAX as u64, Some(f64::NEG_INFINITY), -1, false, Some("abc")),
    (Some(i64::MAX), 1 << 63, Some(f64::NAN), 500, true, Some("b")),
    (Some(1), u64::MAX, Some(-f64::NAN), 0, false, Some("abcdefgh1")),
    (Some(-1), 0, Some(1.5), 100, true, Some("abcdefgh2")),
];

/// The columns of a mark, as values.
pub(super) fn values_of(mark: usize) -> [Value; 6] {
    let (signed, count, ratio, units, open, name) = MARKS[mark];
    let price = Value::Decimal { units: units.into(), scale: 2 };
    [signed.into(), count.into(), ratio.into(), price, open.into(), name.into()]
}

/// The mark of a name.
pub(super) fn mark_of_name(name: Option<&str>) -> u32 {
    MARKS.iter().position(|mark| mark.5 == name).unwrap_or_default() as u32
}

/// The mark of a row; none where its columns do not belong together.
pub(super) fn mark_of(row: &TrackedRef<'_>) -> Option<u32> {
    let price = Value::Decimal { units: row.price().units().into(), scale: 2 };
    let (signed, count, ratio, open) = (row.signed().into(), row.count().into(), row.ratio().into(), row.open().into());
    let seen: [Value; 6] = [signed, count, ratio, price, open, row.name().into()];
    (0..MARKS.len()).find(|&mark| values_of(mark) == seen).map(|mark| mark as u32)
}

impl Tracked {
    /// The definition of a table of such rows whose indexes are all of one kind. Each row is a partition's, by its key.
    pub fn table(name: &str, kind: IndexKind) -> TableDefinition {
        let mut definition = Self::definition().with_name(name).with_primary_kind(kind).with_partition_column(0);
        for index in &mut definition.indexes {
            index.kind = kind;
        }
        definition
    }
}

/// The text of a version: its digits, again and again.
pub(super) fn text(version: Version, length: usize) -> String {
    version.0.to_string().bytes().cycle().take(length).map(char::from).collect()
}

/// Whether the text can belong to the version.
pub(super) fn is_text_of(text: &str, version: u64) -> bool {
    Version(version).is_beside_text() || text.bytes().eq(version.to_string().bytes().cycle().take(text.len()))
}

/// A row's places in its secondary indexes, and its mark.
pub(super) fn attributes(team: u16, code: Option<u32>, mark: u32) -> Attributes {
    [team.into(), code.map_or(0, |code| code + 1), mark]
}
