//! Arrays: values of one type in up to six dimensions, as bytes that are read in place.

use std::cmp::Ordering;

use bumpalo::Bump;

use crate::datum::{Datum, Interval};
use crate::decimal::Decimal;
use crate::error::{SqlError, SqlState};
use crate::wide::Wide;

/// The most dimensions.
pub(crate) const MOST_DIMENSIONS: usize = 6;

/// The most elements.
const MOST_ITEMS: usize = 1 << 24;

/// One dimension: how many elements it has, and the number of the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Dimension {
    pub(crate) length: i32,
    pub(crate) lower: i32,
}

impl Dimension {
    /// One that counts from 1.
    pub(crate) fn of(length: usize) -> Self {
        Self { length: i32::try_from(length).unwrap_or(i32::MAX), lower: 1 }
    }

    pub(crate) fn upper(self) -> i32 {
        self.lower.saturating_add(self.length).saturating_sub(1)
    }
}

/// An array: the number of its dimensions, the dimensions, and the elements in the order of their positions, each with a tag.
#[derive(Clone, Copy)]
pub struct Array<'a>(&'a [u8]);

impl std::fmt::Debug for Array<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:?}", self.dimensions())?;
        out.debug_list().entries(self.items()).finish()
    }
}

impl<'a> Array<'a> {
    pub(crate) const fn of_bytes(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// One of these elements, which lie in as many positions as the dimensions have.
    pub(crate) fn encode<'d>(dimensions: &[Dimension], items: impl IntoIterator<Item = Datum<'d>>) -> Vec<u8> {
        let mut bytes = vec![dimensions.len() as u8];
        for dimension in dimensions {
            bytes.extend(dimension.length.to_le_bytes());
            bytes.extend(dimension.lower.to_le_bytes());
        }
        items.into_iter().for_each(|item| put(&mut bytes, item));
        bytes
    }

    /// The same in an arena, as a value.
    pub(crate) fn datum<'d>(
        arena: &'a Bump,
        dimensions: &[Dimension],
        items: impl IntoIterator<Item = Datum<'d>>,
    ) -> Datum<'a> {
        Datum::Array(Self(arena.alloc_slice_copy(&Self::encode(dimensions, items))))
    }

    /// One dimension of these elements; none has no dimension.
    pub(crate) fn list(arena: &'a Bump, items: &[Datum<'_>]) -> Datum<'a> {
        let dimensions = [Dimension::of(items.len())];
        let dimensions = if items.is_empty() { &[][..] } else { &dimensions };
        Self::datum(arena, dimensions, items.iter().copied())
    }

    fn count(self) -> usize {
        self.0.first().copied().unwrap_or(0).into()
    }

    pub(crate) fn dimensions(self) -> Vec<Dimension> {
        let bytes = self.0.get(1..1 + self.count() * 8).unwrap_or_default();
        let int = |bytes: &[u8]| i32::from_le_bytes(bytes.try_into().unwrap_or_default());
        bytes.chunks_exact(8).map(|it| Dimension { length: int(&it[..4]), lower: int(&it[4..]) }).collect()
    }

    /// The elements, in the order of their positions.
    pub(crate) fn items(self) -> Items<'a> {
        Items { rest: self.0.get(1 + self.count() * 8..).unwrap_or_default() }
    }

    /// How many elements it has.
    pub(crate) fn length(self) -> usize {
        self.dimensions().iter().map(|it| it.length.max(0) as usize).reduce(|all, length| all * length).unwrap_or(0)
    }

    /// The order of `btarraycmp`: element by element, then by their number, then by dimensions.
    pub(crate) fn compare(self, other: Array<'_>) -> Ordering {
        let by_items = self.items().zip(other.items()).map(|(one, other)| one.compare(other)).find(|it| it.is_ne());
        by_items
            .unwrap_or_else(|| self.length().cmp(&other.length()))
            .then_with(|| self.count().cmp(&other.count()))
            .then_with(|| self.dimensions().cmp(&other.dimensions()))
    }
}

/// The elements of an array.
#[derive(Clone)]
pub(crate) struct Items<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Items<'a> {
    type Item = Datum<'a>;

    fn next(&mut self) -> Option<Datum<'a>> {
        if self.rest.is_empty() { None } else { take(&mut self.rest) }
    }
}

/// How many elements these dimensions have.
///
/// # Errors
/// There are too many, or the number behind that of the last one is none.
pub(crate) fn size(dimensions: &[Dimension]) -> Result<usize, SqlError> {
    if let Some(it) = dimensions.iter().find(|it| it.lower.checked_add(it.length).is_none()) {
        let message = format!("array lower bound is too large: {}", it.lower);
        return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
    }
    let size = dimensions.iter().try_fold(1_usize, |all, it| all.checked_mul(usize::try_from(it.length).ok()?));
    let too_large = || {
        let message = format!("array size exceeds the maximum allowed ({MOST_ITEMS})");
        SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
    };
    size.filter(|size| *size <= MOST_ITEMS).ok_or_else(too_large)
}

pub(crate) fn too_many_dimensions(count: usize) -> SqlError {
    let message = format!("number of array dimensions ({count}) exceeds the maximum allowed ({MOST_DIMENSIONS})");
    SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
}

fn put(bytes: &mut Vec<u8>, item: Datum<'_>) {
    let sized = |bytes: &mut Vec<u8>, tag: u8, of: &[u8]| {
        bytes.push(tag);
        bytes.extend((of.len() as u32).to_le_bytes());
        bytes.extend(of);
    };
    let plain = |bytes: &mut Vec<u8>, tag: u8, of: &[u8]| {
        bytes.push(tag);
        bytes.extend(of);
    };
    match item {
        Datum::Null => bytes.push(0),
        Datum::Bool(value) => plain(bytes, 1, &[u8::from(value)]),
        Datum::Int(value) => plain(bytes, 2, &value.to_le_bytes()),
        // What differs in the sign of its zero or in its NaN is the same to SQL.
        Datum::Float(value) if value.is_nan() => plain(bytes, 3, &f64::NAN.to_le_bytes()),
        Datum::Float(value) => plain(bytes, 3, &(value + 0.0).to_le_bytes()),
        Datum::Numeric(value) => {
            plain(bytes, 4, &value.units().to_le_bytes());
            bytes.extend(value.scale().to_le_bytes());
        }
        Datum::Wide(wide) => sized(bytes, 14, wide.bytes()),
        Datum::Text(text) => sized(bytes, 5, text.as_bytes()),
        Datum::Bytes(of) => sized(bytes, 6, of),
        Datum::Date(days) => plain(bytes, 7, &days.to_le_bytes()),
        Datum::Time(micros) => plain(bytes, 8, &micros.to_le_bytes()),
        Datum::Timestamp(micros) => plain(bytes, 9, &micros.to_le_bytes()),
        Datum::Interval(span) => {
            plain(bytes, 10, &span.months.to_le_bytes());
            bytes.extend(span.days.to_le_bytes());
            bytes.extend(span.micros.to_le_bytes());
        }
        Datum::Uuid(uuid) => plain(bytes, 11, &uuid),
        Datum::Json(text) => sized(bytes, 12, text.as_bytes()),
        Datum::Array(array) => sized(bytes, 13, array.0),
    }
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<Datum<'a>> {
    let (&tag, behind) = rest.split_first()?;
    *rest = behind;
    Some(match tag {
        0 => Datum::Null,
        1 => Datum::Bool(fixed::<1>(rest)? != [0]),
        2 => Datum::Int(i64::from_le_bytes(fixed(rest)?)),
        3 => Datum::Float(f64::from_le_bytes(fixed(rest)?)),
        4 => {
            let units = i128::from_le_bytes(fixed(rest)?);
            Datum::Numeric(Decimal::new(units, u32::from_le_bytes(fixed(rest)?)))
        }
        14 => Datum::Wide(Wide::of_bytes(sized(rest)?)),
        5 => Datum::Text(std::str::from_utf8(sized(rest)?).ok()?),
        6 => Datum::Bytes(sized(rest)?),
        7 => Datum::Date(i32::from_le_bytes(fixed(rest)?)),
        8 => Datum::Time(i64::from_le_bytes(fixed(rest)?)),
        9 => Datum::Timestamp(i64::from_le_bytes(fixed(rest)?)),
        10 => Datum::Interval(Interval {
            months: i32::from_le_bytes(fixed(rest)?),
            days: i32::from_le_bytes(fixed(rest)?),
            micros: i64::from_le_bytes(fixed(rest)?),
        }),
        11 => Datum::Uuid(fixed(rest)?),
        12 => Datum::Json(std::str::from_utf8(sized(rest)?).ok()?),
        13 => Datum::Array(Array(sized(rest)?)),
        _ => return None,
    })
}

fn fixed<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*first)
}

fn sized<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u32::from_le_bytes(fixed(rest)?) as usize;
    let (first, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(first)
}

/// The elements of arrays, or values, as an array of one dimension more; the arrays have the same dimensions.
pub(crate) fn nested<'a>(arena: &'a Bump, parts: &[Datum<'_>]) -> Result<Datum<'a>, SqlError> {
    let mismatch = || {
        let message = "multidimensional arrays must have array expressions with matching dimensions";
        SqlError::new(SqlState("2202E"), message)
    };
    let (mut inner, mut items) = (None, Vec::new());
    for part in parts {
        let Datum::Array(array) = part else { return Err(mismatch()) };
        let dimensions = array.dimensions();
        if inner.get_or_insert_with(|| dimensions.clone()) != &dimensions {
            return Err(mismatch());
        }
        items.extend(array.items());
    }
    let inner = inner.unwrap_or_default();
    if inner.is_empty() {
        return Ok(Array::list(arena, &[]));
    }
    if inner.len() >= MOST_DIMENSIONS {
        return Err(too_many_dimensions(inner.len() + 1));
    }
    let dimensions: Vec<_> = std::iter::once(Dimension::of(parts.len())).chain(inner).collect();
    size(&dimensions)?;
    Ok(Array::datum(arena, &dimensions, items))
}

/// Appends an array as text; `write` appends an element.
pub(crate) fn write(array: Array<'_>, out: &mut String, write: &mut dyn FnMut(Datum<'_>, &mut String)) {
    let dimensions = array.dimensions();
    if dimensions.is_empty() {
        out.push_str("{}");
        return;
    }
    if dimensions.iter().any(|it| it.lower != 1) {
        dimensions.iter().for_each(|it| out.push_str(&format!("[{}:{}]", it.lower, it.upper())));
        out.push('=');
    }
    let mut texts = array.items().map(|item| {
        if item.is_null() {
            return "NULL".to_owned();
        }
        let mut text = String::new();
        write(item, &mut text);
        quoted(text)
    });
    write_level(&dimensions, &mut texts, out);
}

fn write_level(dimensions: &[Dimension], texts: &mut dyn Iterator<Item = String>, out: &mut String) {
    let Some((first, inner)) = dimensions.split_first() else {
        out.push_str(&texts.next().unwrap_or_default());
        return;
    };
    out.push('{');
    for at in 0..first.length {
        if at > 0 {
            out.push(',');
        }
        write_level(inner, texts, out);
    }
    out.push('}');
}

/// An element as it stands in braces.
fn quoted(text: String) -> String {
    let is_special = |letter: char| matches!(letter, '{' | '}' | ',' | '"' | '\\') || is_blank(letter);
    if !text.is_empty() && !text.eq_ignore_ascii_case("null") && !text.contains(is_special) {
        return text;
    }
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

const fn is_blank(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

/// What an array is made of while its text is read.
struct Reader<'t> {
    text: &'t str,
    rest: std::iter::Peekable<std::str::Chars<'t>>,
    /// The lengths that the first lists of each depth have.
    lengths: Vec<Option<i32>>,
    items: Vec<Option<String>>,
    depth: Option<usize>,
}

fn malformed(text: &str, detail: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, format!("malformed array literal: \"{text}\""))
        .with_detail(detail)
}

/// The dimensions and elements, as texts, that a text stands for.
pub(crate) fn read(text: &str) -> Result<(Vec<Dimension>, Vec<Option<String>>), SqlError> {
    let trimmed = text.trim_matches(is_blank);
    let (bounds, body) = match trimmed.strip_prefix('[') {
        None => (Vec::new(), trimmed),
        Some(_) => {
            let (head, body) =
                trimmed.split_once('=').ok_or_else(|| malformed(text, "Missing \"=\" after array dimensions."))?;
            (read_bounds(text, head.trim_end_matches(is_blank))?, body.trim_start_matches(is_blank))
        }
    };
    if !body.starts_with('{') {
        let detail = "Array value must start with \"{\" or dimension information.";
        return Err(malformed(text, detail));
    }
    let mut reader =
        Reader { text, rest: body.chars().peekable(), lengths: Vec::new(), items: Vec::new(), depth: None };
    reader.list(0)?;
    if reader.rest.next().is_some() {
        return Err(malformed(text, "Junk after closing right brace."));
    }
    let Reader { lengths, items, .. } = reader;
    if items.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let mut dimensions: Vec<_> =
        lengths.into_iter().map(|it| Dimension { length: it.unwrap_or(0), lower: 1 }).collect();
    if !bounds.is_empty() {
        if bounds.len() != dimensions.len() || bounds.iter().zip(&dimensions).any(|(one, it)| one.length != it.length) {
            return Err(malformed(text, "Specified array dimensions do not match array contents."));
        }
        dimensions = bounds;
    }
    size(&dimensions)?;
    Ok((dimensions, items))
}

fn read_bounds(text: &str, head: &str) -> Result<Vec<Dimension>, SqlError> {
    let bad = || malformed(text, "\"[\" must introduce explicitly-specified array dimensions.");
    let parts = head.strip_prefix('[').and_then(|it| it.strip_suffix(']')).ok_or_else(bad)?;
    let bounds = parts.split("][").map(|part| {
        let (lower, upper) = part.split_once(':').unwrap_or(("1", part));
        let (lower, upper) = (lower.trim().parse::<i32>().ok()?, upper.trim().parse::<i32>().ok()?);
        Some(Dimension { lower, length: upper.checked_sub(lower)?.checked_add(1)? })
    });
    let bounds = bounds.collect::<Option<Vec<_>>>().ok_or_else(bad)?;
    if bounds.iter().any(|it| it.length < 0) {
        return Err(SqlError::new(SqlState("2202E"), "upper bound cannot be less than lower bound"));
    }
    if bounds.len() > MOST_DIMENSIONS { Err(too_many_dimensions(bounds.len())) } else { Ok(bounds) }
}

impl Reader<'_> {
    fn bad(&self, detail: &str) -> SqlError {
        malformed(self.text, detail)
    }

    fn skip_blanks(&mut self) {
        while self.rest.next_if(|letter| is_blank(*letter)).is_some() {}
    }

    /// A list in braces, at this depth.
    fn list(&mut self, depth: usize) -> Result<(), SqlError> {
        if depth >= MOST_DIMENSIONS {
            return Err(too_many_dimensions(depth + 1));
        }
        if self.lengths.len() <= depth {
            self.lengths.push(None);
        }
        self.rest.next();
        let mut length = 0;
        self.skip_blanks();
        if self.rest.next_if_eq(&'}').is_some() {
            if depth > 0 {
                return Err(self.bad("Unexpected \"}\" character."));
            }
            return self.close(depth, 0);
        }
        loop {
            self.skip_blanks();
            match self.rest.peek() {
                Some('{') => {
                    if self.depth.is_some_and(|own| own == depth + 1) {
                        return Err(self.bad("Unexpected \"{\" character."));
                    }
                    self.list(depth + 1)?;
                }
                Some(_) => {
                    if *self.depth.get_or_insert(depth + 1) != depth + 1 || self.lengths.len() > depth + 1 {
                        return Err(self.mismatch());
                    }
                    let item = self.item()?;
                    self.items.push(item);
                }
                None => return Err(self.bad("Unexpected end of input.")),
            }
            length += 1;
            self.skip_blanks();
            match self.rest.next() {
                Some(',') => {}
                Some('}') => return self.close(depth, length),
                Some(_) => return Err(self.bad("Unexpected array element.")),
                None => return Err(self.bad("Unexpected end of input.")),
            }
        }
    }

    fn mismatch(&self) -> SqlError {
        self.bad("Multidimensional arrays must have sub-arrays with matching dimensions.")
    }

    fn close(&mut self, depth: usize, length: i32) -> Result<(), SqlError> {
        if *self.lengths[depth].get_or_insert(length) == length { Ok(()) } else { Err(self.mismatch()) }
    }

    /// An element; `None` is NULL.
    fn item(&mut self) -> Result<Option<String>, SqlError> {
        let mut item = String::new();
        if self.rest.next_if_eq(&'"').is_some() {
            loop {
                match self.rest.next() {
                    Some('"') => return Ok(Some(item)),
                    Some('\\') => item.extend(self.rest.next()),
                    Some(letter) => item.push(letter),
                    None => return Err(self.bad("Unexpected end of input.")),
                }
            }
        }
        let (mut is_escaped, mut kept) = (false, 0);
        loop {
            match self.rest.peek() {
                Some(',' | '}') => break,
                Some('{' | '"') => return Err(self.bad("Unexpected array element.")),
                None => return Err(self.bad("Unexpected end of input.")),
                Some(_) => {}
            }
            match self.rest.next() {
                Some('\\') => {
                    item.extend(self.rest.next());
                    (is_escaped, kept) = (true, item.len());
                }
                Some(letter) => {
                    item.push(letter);
                    if !is_blank(letter) {
                        kept = item.len();
                    }
                }
                None => {}
            }
        }
        item.truncate(kept);
        if item.is_empty() {
            return Err(self.bad("Unexpected \",\" character."));
        }
        Ok(if !is_escaped && item.eq_ignore_ascii_case("null") { None } else { Some(item) })
    }
}
