//! Rows: the typed API, the dynamic API and changes in place make the same bytes, and no bytes make a getter panic.

// Two `#[index]`es of one table may well say the same of their kind.
#![allow(clippy::duplicated_attributes)]

use polychron_schema::{
    Changes, Column, Date, Decimal, Decimal128, FixedString, KeyExtractor, KeyScratch, Row, RowBuffer, RowMut, RowRef,
    Value, build_row, set_value,
};

use crate::input::Input;

/// An enum whose numbers have signs and gaps.
#[derive(Column, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    Lost = -300,
    New = 0,
    Done = 5,
}

impl State {
    pub(crate) fn read(input: &mut Input<'_>) -> Self {
        [Self::Lost, Self::New, Self::Done][input.below(3)]
    }
}

#[derive(Column, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cents(pub(crate) i64);

#[derive(Column, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Label(pub(crate) String);

#[derive(Row, Clone, Debug, PartialEq)]
#[index(name = "by_text", columns(text, small))]
#[index(name = "by_note", columns = [note, maybe], unique)]
#[index(name = "by_kinds", columns = [state, letter, wide, label])]
struct Wide {
    flag: bool,
    small: i16,
    #[key]
    id: u64,
    number: i64,
    day: Date,
    money: Decimal<2>,
    name: FixedString<7>,
    #[key]
    text: String,
    bytes: Vec<u8>,
    maybe: Option<u32>,
    note: Option<String>,
    state: Option<State>,
    letter: char,
    wide: i128,
    large: Option<u128>,
    label: Label,
    cents: Cents,
    array: [u8; 3],
    total: Decimal128<9>,
    /// Not a number now and then, so it compares as its bits do.
    short: f32,
}

/// Columns that are not part of the primary key, so that they may be set.
const CHANGEABLE: [usize; 18] = [0, 1, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19];

impl Wide {
    fn read(input: &mut Input<'_>) -> Self {
        Self {
            flag: input.flag(),
            small: i16::from_le_bytes(input.take()),
            id: input.number(),
            number: input.number() as i64,
            day: Date(input.number() as i32),
            money: Decimal::from_units(input.number() as i64),
            name: FixedString::truncated(&input.text(9)),
            text: input.text(20),
            bytes: input.bytes(40),
            maybe: input.maybe(|input| input.number() as u32),
            note: input.maybe(|input| input.text(20)),
            state: input.maybe(State::read),
            letter: input.character(),
            wide: input.wide() as i128,
            large: input.maybe(Input::wide),
            label: Label(input.text(9)),
            cents: Cents(input.number() as i64),
            array: input.take(),
            total: Decimal128::from_units(input.wide() as i128),
            short: f32::from_bits(input.number() as u32),
        }
    }

    fn values(&self) -> Vec<Value> {
        let row = self.clone();
        vec![
            row.flag.into(),
            row.small.into(),
            row.id.into(),
            row.number.into(),
            row.day.into(),
            row.money.into(),
            row.name.into(),
            row.text.into(),
            row.bytes.into(),
            row.maybe.into(),
            row.note.into(),
            row.state.into(),
            row.letter.into(),
            row.wide.into(),
            row.large.into(),
            row.label.into(),
            row.cents.into(),
            row.array.into(),
            row.total.into(),
            row.short.into(),
        ]
    }
}

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    check_agreement(&Wide::read(&mut input), &Wide::read(&mut input), &mut input);
    check_foreign(bytes, &Wide::read(&mut input), &mut input);
}

/// However a row comes about, its bytes are the same.
fn check_agreement(row: &Wide, other: &Wide, input: &mut Input<'_>) {
    let layout = Wide::definition().layout().expect("the definition is sound");
    let (mut typed, mut dynamic) = (RowBuffer::new(), RowBuffer::new());
    row.encode(&mut typed).expect("the row is short");
    build_row(&layout, &row.values(), &mut dynamic).expect("the row is short");
    assert_eq!(typed.as_bytes(), dynamic.as_bytes());
    assert_eq!(typed.as_row().values(&layout), row.values());
    assert_eq!(Wide::from_ref(Wide::view(typed.as_row())).values(), row.values());

    let (mut wanted, mut changes) = (row.values(), Changes::NONE);
    let mut view = RowMut::new(&mut typed, &mut changes, Wide::SHAPE);
    let others = other.values();
    for _ in 0..input.below(12) {
        let column = CHANGEABLE[input.below(CHANGEABLE.len())];
        set_value(&mut view, &layout, column, &others[column]).expect("the value fits");
        wanted[column] = others[column].clone();
    }
    build_row(&layout, &wanted, &mut dynamic).expect("the row is short");
    assert_eq!(typed.as_bytes(), dynamic.as_bytes(), "changed in place, and built anew");
}

/// Any words, and good rows with one word replaced, are read and changed without harm.
fn check_foreign(bytes: &[u8], row: &Wide, input: &mut Input<'_>) {
    let words: Vec<u64> = bytes.chunks(8).map(|chunk| Input::new(chunk).number()).collect();
    read_everything(RowRef::from_words(&words));
    let mut buffer = RowBuffer::new();
    buffer.overwrite_words(words.len()).copy_from_slice(&words);
    change_everything(&mut buffer, row);

    row.encode(&mut buffer).expect("the row is short");
    let mut torn = buffer.as_words().to_vec();
    let at = input.below(torn.len());
    torn[at] = input.number();
    read_everything(RowRef::from_words(&torn));
    buffer.overwrite_words(torn.len()).copy_from_slice(&torn);
    change_everything(&mut buffer, row);
}

fn read_everything(row: RowRef<'_>) {
    let definition = Wide::definition();
    let layout = definition.layout().expect("the definition is sound");
    let _ = Wide::from_ref(Wide::view(row));
    let _ = Wide::key_of(row);
    let _ = row.values(&layout);
    let mut scratch = KeyScratch::new();
    let _ = KeyExtractor::primary(&definition).expect("there is a key").extract(row, &mut scratch);
    for position in 0..definition.indexes.len() {
        let index = KeyExtractor::secondary(&definition, position).expect("the index is sound");
        let _ = index.extract(row, &mut scratch);
    }
}

fn change_everything(buffer: &mut RowBuffer, row: &Wide) {
    let mut changes = Changes::NONE;
    let mut view = Wide::view_mut(buffer, &mut changes);
    view.set_number(row.number);
    view.set_maybe(row.maybe);
    view.set_name(&row.name);
    let _ = view.set_note(row.note.as_deref());
    let _ = view.set_bytes(&row.bytes);
    view.set_state(row.state);
    view.set_letter(row.letter);
    view.set_large(row.large);
    view.set_cents(row.cents);
    let _ = view.set_label(&row.label.0);
    assert_eq!((view.state(), view.letter(), view.large()), (row.state, row.letter, row.large));
    assert_eq!((view.number(), view.maybe(), view.name()), (row.number, row.maybe, &row.name));
    read_everything(buffer.as_row());
}
