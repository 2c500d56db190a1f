//! Enums in `pg_type` and `pg_enum`, and functions that tell of them.

use hashbrown::{HashMap, HashSet};

use super::objects::Objects;
use super::{Row, flag, int, text};
use crate::bind::Binder;
use crate::casts::Place;
use crate::enums::EnumType;
use crate::error::SqlError;
use crate::expr::{Expr, Typed};
use crate::types::Type;

/// The enums, and the arrays of them.
pub(super) fn types(objects: &Objects) -> impl Iterator<Item = (EnumType, Type)> {
    objects.enums.iter().flat_map(|(of, _)| {
        let itself = Type::Enum(*of);
        std::iter::once((*of, itself)).chain(itself.array().map(|list| (*of, list)))
    })
}

/// The rows of `pg_enum`.
pub(super) fn rows(objects: &Objects) -> Vec<Row> {
    let mut taken = HashSet::new();
    let of_enum = |(of, _): &(EnumType, _)| {
        let mut rows = Vec::new();
        for (place, label) in (1_u32..).zip(of.labels()) {
            // A label keeps its id whatever it is called and what stands beside it.
            let mixed = (label.code as u64 ^ u64::from(of.oid()) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut id = (1 << 30) + (mixed >> 35) as i64;
            while !taken.insert(id) {
                id += 1;
            }
            rows.push(vec![
                ("oid", int(id)),
                ("enumtypid", int(of.oid().into())),
                ("enumsortorder", crate::datum::OwnedDatum::Plain(crate::datum::Datum::Float(f64::from(place)))),
                ("enumlabel", text(label.text.as_str())),
            ]);
        }
        rows
    };
    objects.enums.iter().flat_map(of_enum).collect()
}

/// Fits the row of a type of the system to one of an enum.
pub(super) fn completed(objects: &Objects, (of, itself): (EnumType, Type), mut row: Row) -> Row {
    row.push(("typnamespace", int(objects.schema_of(of.key()))));
    if itself == Type::Enum(of) {
        row.extend([("typlen", int(4)), ("typbyval", flag(true)), ("typtype", text("e"))]);
    }
    row
}

/// Whether each type may be named alone, by its id.
pub(super) fn visible(binder: &Binder<'_>, objects: &Objects) -> Result<HashMap<i64, String>, SqlError> {
    let in_words = |is_visible: bool| if is_visible { "t" } else { "f" }.to_owned();
    let mut by_id: HashMap<_, _> = Type::known().map(|of| (i64::from(of.oid()), in_words(true))).collect();
    let path = binder.catalog.visible()?;
    for (of, itself) in types(objects) {
        let first = path.iter().find(|schema| {
            objects.enums.iter().any(|(_, other)| other.name == crate::names::Name::new(schema, of.key().plain()))
        });
        by_id.insert(itself.oid().into(), in_words(first.is_some_and(|schema| schema == of.key().schema())));
    }
    Ok(by_id)
}

impl Binder<'_> {
    /// `format_type`: enums are looked up, and the rest is computed.
    pub(super) fn formatted_type(&mut self, mut arguments: Vec<Typed>) -> Result<Typed, SqlError> {
        if self.catalog.enums()?.is_empty() {
            return self.call("format_type", arguments);
        }
        let of = self.cast(arguments.remove(0), Type::Oid.into(), Place::Implicit)?.expr;
        let known = Expr::Lookup { names: self.names("format_type")?, of: Box::new(of.clone()) };
        let other = self.call("format_type", vec![Typed::new(of, Type::Oid), arguments.remove(0)])?;
        Ok(Typed::new(Expr::Coalesce(Box::new([known, other.expr])), Type::Text))
    }
}
