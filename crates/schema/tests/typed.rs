//! The typed API: rows, views, keys and projections.

use polychron_schema::{
    Changes, Columns, Date, Decimal, EncodedKey, FixedString, IndexKind, Key, Key8, KeyRef, KeyScratch, MAX_KEY_BYTES,
    OwnedKey, Projection, RangeScratch, Row, RowBuffer, RowViewMut, SchemaError, Timestamp,
};

/// The stock of one item in one warehouse.
#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "stock", primary = "hash", expected_rows = 100_000, partition = warehouse)]
#[index(name = "by_item", columns(item, warehouse), unique, kind = "hash")]
#[index(columns(data))]
struct Stock {
    #[key]
    warehouse: u16,
    #[key]
    item: u32,
    quantity: i16,
    district: FixedString<24>,
    year_to_date: Decimal<2>,
    ordered: Option<Date>,
    delivered: Option<Timestamp>,
    #[column(max = 50)]
    data: Option<String>,
    #[column(max = 20)]
    image: Vec<u8>,
}

fn stock() -> Stock {
    Stock {
        warehouse: 7,
        item: 1000,
        quantity: -3,
        district: FixedString::new("north").unwrap(),
        year_to_date: "12.50".parse().unwrap(),
        ordered: None,
        delivered: Some(Timestamp(5)),
        data: Some("ORIGINAL".into()),
        image: vec![0, 255],
    }
}

#[test]
fn rows_round_trip() {
    let mut buffer = RowBuffer::new();
    stock().encode(&mut buffer).unwrap();
    let view = Stock::view(buffer.as_row());
    assert_eq!((view.warehouse(), view.item(), view.quantity()), (7, 1000, -3));
    assert_eq!((view.ordered(), view.delivered()), (None, Some(Timestamp(5))));
    assert_eq!((view.district().as_str(), view.data(), view.image()), ("north", Some("ORIGINAL"), &[0, 255][..]));
    assert_eq!(Stock::from_ref(view), stock());
    assert_eq!(Stock::key_of(buffer.as_row()), (7, 1000));
    assert_eq!((stock().key(), stock().key_ref()), ((7, 1000), (7, 1000)));
    assert!(buffer.len().is_multiple_of(8));
}

#[test]
fn two_columns_are_read_and_projected() {
    let mut buffer = RowBuffer::new();
    stock().encode(&mut buffer).unwrap();
    let wanted = (Stock::QUANTITY, Stock::YEAR_TO_DATE);
    assert_eq!(wanted.read(buffer.as_row()), (-3, Decimal::from_units(1250)));
    let projection = wanted.projection();
    assert_eq!(projection, Projection::of(&[Stock::QUANTITY.span(), Stock::YEAR_TO_DATE.span()]));
    assert!(projection.end <= Stock::SHAPE.fixed_bytes);
    assert_eq!(Stock::DATA.projection().range(buffer.len()), 0..buffer.len());
}

#[test]
fn setters_make_the_bytes_of_a_fresh_row() {
    let mut buffer = RowBuffer::new();
    stock().encode(&mut buffer).unwrap();
    let mut changes = Changes::NONE;
    let mut row = Stock::view_mut(&mut buffer, &mut changes);
    row.set_quantity(9);
    assert!(!row.changes().whole_row());
    row.set_ordered(Some(Date(3)));
    row.set_delivered(None);
    row.set_data(Some("much longer than it was before")).unwrap();
    row.set_image(&[1; 20]).unwrap();
    row.set_data(None).unwrap();
    let too_long = row.set_image(&[1; 21]).unwrap_err();
    assert_eq!(too_long.to_string(), "stock.image holds at most 20 bytes, and 21 were given");
    let expected =
        Stock { quantity: 9, ordered: Some(Date(3)), delivered: None, data: None, image: vec![1; 20], ..stock() };
    let mut fresh = RowBuffer::new();
    expected.encode(&mut fresh).unwrap();
    assert_eq!(buffer.as_bytes(), fresh.as_bytes());
    assert!(changes.whole_row() && !changes.columns().contains(Stock::DISTRICT.index));
}

#[test]
fn changes_come_in_few_runs() {
    let layout = Stock::definition().layout().unwrap();
    let mut buffer = RowBuffer::new();
    stock().encode(&mut buffer).unwrap();
    let mut changes = Changes::NONE;
    let mut row = Stock::view_mut(&mut buffer, &mut changes);
    row.set_year_to_date(Decimal::ZERO);
    let slot = Stock::YEAR_TO_DATE.slot;
    let run = slot.offset as usize..slot.offset as usize + 8;
    assert_eq!(changes.runs(&layout, buffer.len()).collect::<Vec<_>>(), [run]);
    let mut row = Stock::view_mut(&mut buffer, &mut changes);
    row.set_data(None).unwrap();
    let whole = 0..buffer.len();
    assert_eq!(changes.runs(&layout, buffer.len()).collect::<Vec<_>>(), [whole]);
    assert_eq!(Changes::NONE.runs(&layout, buffer.len()).count(), 0);
}

#[test]
fn keys_and_prefixes() {
    let mut scratch = KeyScratch::new();
    let key: Key8 = stock().key().encode(&mut scratch);
    let mut bytes = [0; 8];
    let len = key.write_to(&mut bytes);
    assert_eq!(bytes[..len], [0, 7, 0, 0, 3, 232]);
    assert_eq!(<Stock as Row>::Key::decode(&bytes[..len]), Ok((7, 1000)));
    let mut range = RangeScratch::new();
    let warehouse = Stock::prefix(7, &mut range);
    assert_eq!((warehouse.start, warehouse.end), (&[0, 7][..], Some(&[0, 8][..])));
    assert!(warehouse.contains(&bytes[..len]));
    assert_eq!(Stock::prefix(u16::MAX, &mut range).end, None);
    assert!(Stock::BY_ITEM.equal((1000, 7), &mut range).contains(&[0, 0, 3, 232, 0, 7]));
    let nullable = Stock::BY_DATA;
    assert!(nullable.is_open() && !nullable.is_unique());
}

#[test]
fn definitions_follow_the_attributes() {
    let definition = Stock::definition().with_primary_kind(IndexKind::Ordered).with_expected_rows(5);
    definition.validate().unwrap();
    assert_eq!(Stock::definition().primary_kind, IndexKind::Hash);
    assert_eq!((definition.expected_rows, definition.partition_column), (5, Some(0)));
    assert_eq!(definition.key, [0, 1]);
    assert_eq!(definition.indexes[0].columns, [1, 0]);
    assert_eq!((definition.indexes[0].kind, definition.indexes[1].name.as_str()), (IndexKind::Hash, "by_data"));
    let layout = definition.layout().unwrap();
    assert_eq!(layout.shape(), Stock::SHAPE);
    assert_eq!(layout.columns()[2].slot, Stock::QUANTITY.slot);
}

mod elsewhere {
    pub(crate) mod nested {
        pub(crate) use polychron_schema as schema;
    }
}

/// Names that generated code uses itself, and a crate that is known under another path.
#[derive(Row, Debug, PartialEq)]
#[row(crate = crate::elsewhere::nested::schema, name = "odd")]
#[index(columns = [r#type, key], unique)]
#[index(columns = [key], unique)]
struct Odd {
    #[key]
    key: u64,
    name: i64,
    r#type: Option<String>,
    row: u8,
    as_row: u8,
    changes: u8,
    shape: f64,
    out: bool,
    view: Vec<u8>,
}

/// What an engine does, generic over the row.
struct Table<R> {
    row: RowBuffer,
    key: Vec<u8>,
    marker: std::marker::PhantomData<R>,
}

impl<R: Row> Table<R> {
    fn insert(row: &R) -> Result<Self, SchemaError> {
        let (mut buffer, mut scratch) = (RowBuffer::new(), KeyScratch::new());
        row.encode(&mut buffer)?;
        let key = row.key_ref().encode_bytes(&mut scratch).to_vec();
        Ok(Self { row: buffer, key, marker: std::marker::PhantomData })
    }

    fn get(&self, key: KeyRef<'_, R>) -> Option<R::Ref<'_>> {
        self.contains(&key).then(|| R::view(self.row.as_row()))
    }

    fn contains<K: Key>(&self, key: &K) -> bool {
        let mut scratch = KeyScratch::new();
        let key = key.encode(&mut scratch);
        let mut bytes = [0; MAX_KEY_BYTES];
        let len = key.write_to(&mut bytes);
        self.key == bytes[..len]
    }

    fn get_columns<C: Columns<R>>(&self, key: KeyRef<'_, R>, columns: C) -> Option<C::Values<'_>> {
        self.contains(&key).then(|| columns.read(self.row.as_row()))
    }

    fn update<T>(&mut self, change: impl FnOnce(&mut R::Mut<'_>) -> T) -> (T, Changes) {
        let mut changes = Changes::NONE;
        let result = change(&mut R::view_mut(&mut self.row, &mut changes));
        (result, changes)
    }
}

#[test]
fn an_engine_can_be_generic_over_rows() {
    let odd =
        Odd { key: 1, name: 2, r#type: None, row: 3, as_row: 4, changes: 5, shape: 0.5, out: true, view: vec![6] };
    let mut table = Table::insert(&odd).unwrap();
    assert_eq!(Odd::from_ref(table.get(1).unwrap()), odd);
    assert!(table.get(2).is_none());
    assert_eq!(<Odd as Row>::NAME, "odd");
    let (result, changes) = table.update(|row| {
        row.set_name(row.name() + 40);
        row.set_type(Some("text"))
    });
    result.unwrap();
    assert!(changes.columns().contains(Odd::TYPE.index) && changes.columns().contains(Odd::NAME.index));
    assert_eq!(table.get_columns(1, (Odd::NAME, Odd::TYPE, Odd::AS_ROW)), Some((42, Some("text"), 4)));

    let table = Table::insert(&stock()).unwrap();
    assert_eq!(table.get_columns((7, 1000), Stock::QUANTITY), Some(-3));
}
