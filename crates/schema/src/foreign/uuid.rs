//! UUIDs as a column type: 16 bytes in the order of the text, as [`FixedBytes<16>`](crate::FixedBytes) and `[u8; 16]`.

use ::uuid::Uuid;

use crate::buffer::{RowBuffer, RowRef};
use crate::column::{Blank, ColumnValue};
use crate::error::SchemaError;
use crate::key::width::W16;
use crate::key::{Key, KeyReader, KeyScratch, KeySink, KeyWidth, OwnedKey};
use crate::key_types::takes_one;
use crate::layout::Slot;
use crate::mutate::RowMut;
use crate::{ColumnType, Value};

impl ColumnValue for Uuid {
    type Ref<'a> = Self;
    type Plain = Self;
    type Written = ();
    const TYPE: ColumnType = ColumnType::FixedBytes { bytes: 16 };

    #[inline]
    fn read(row: RowRef<'_>, slot: Slot) -> Self {
        Self::from_bytes(row.load(slot.offset))
    }

    #[inline]
    fn build(out: &mut RowBuffer, slot: Slot, value: Self) {
        out.store(slot.offset, value.as_bytes());
    }

    #[inline]
    fn change(row: &mut RowMut<'_>, _: &'static str, slot: Slot, value: Self) {
        row.store(slot, value.as_bytes());
    }

    #[inline]
    fn borrow(&self) -> Self {
        *self
    }

    #[inline]
    fn own(value: Self) -> Self {
        value
    }
}

impl Blank for Uuid {
    fn write_null(_: &mut RowBuffer, _: Slot) {}

    fn change_to_null(row: &mut RowMut<'_>, _: &'static str, slot: Slot) {
        row.store_zeros(slot);
    }
}

impl Key for Uuid {
    type Width = W16;
    const FIXED_BYTES: Option<usize> = Some(16);
    type Encoded<'a> = <W16 as KeyWidth>::Encoded<'a>;

    #[inline]
    fn put<S: KeySink>(&self, sink: &mut S, _: bool) {
        sink.wide(self.as_u128());
    }

    #[inline]
    fn encode<'a>(&'a self, scratch: &'a mut KeyScratch) -> Self::Encoded<'a> {
        <W16 as KeyWidth>::encode(self, false, scratch)
    }
}

impl OwnedKey for Uuid {
    type Ref<'a> = Self;

    #[inline]
    fn as_key_ref(&self) -> Self {
        *self
    }

    fn takes(columns: &mut dyn Iterator<Item = (ColumnType, bool)>) -> bool {
        takes_one::<Self>(columns)
    }

    fn take(reader: &mut KeyReader<'_>, _: bool) -> Result<Self, SchemaError> {
        reader.array().map(Self::from_bytes)
    }
}

crate::derive::read_by_value!([] Uuid);

impl From<Uuid> for Value {
    fn from(value: Uuid) -> Self {
        Self::Bytes(value.as_bytes().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Changes, Column, KeyExtractor, Row, build_row};

    #[derive(Column, Clone, Copy, Debug, PartialEq)]
    struct OrderId(Uuid);

    #[derive(Row, Clone, Debug, PartialEq)]
    #[index(columns(parent), unique)]
    struct Order {
        #[key]
        id: OrderId,
        parent: Option<Uuid>,
    }

    #[test]
    fn a_uuid_is_a_column_and_a_key() {
        let (one, other) = (Uuid::from_u128(1 << 120 | 5), Uuid::from_u128(7));
        let order = Order { id: OrderId(one), parent: Some(other) };
        let (mut typed, mut dynamic) = (RowBuffer::new(), RowBuffer::new());
        order.encode(&mut typed).unwrap();
        let layout = Order::definition().layout().unwrap();
        build_row(&layout, &[one.into(), other.into()], &mut dynamic).unwrap();
        assert_eq!(typed.as_bytes(), dynamic.as_bytes());
        assert_eq!(Order::from_ref(Order::view(typed.as_row())), order);
        let (mut scratch, mut point) = (KeyScratch::new(), KeyScratch::new());
        let primary = KeyExtractor::primary(&Order::definition()).unwrap();
        let key = primary.extract(typed.as_row(), &mut scratch).unwrap();
        assert_eq!((key, OrderId::decode(key)), (order.key().encode_bytes(&mut point), Ok(order.id)));
        assert_eq!(one.encode_bytes(&mut scratch).cmp(other.encode_bytes(&mut point)), one.cmp(&other));
        let mut changes = Changes::NONE;
        Order::view_mut(&mut typed, &mut changes).set_parent(None);
        assert_eq!(Order::view(typed.as_row()).parent(), None);
    }
}
