//! Enums: types whose values are labels in an order that their definition says.
//!
//! A value is a number, which rows and keys have, so that it is sorted and compared as it is stored. The labels' numbers rise in their order with gaps
//! between them: a label that is added between two others gets a number between theirs, and no row changes. A new name for a label changes no row either.
//!
//! A type is told by its number, which columns keep. The labels of a number are those of one version of its definition; each version that was met is kept
//! until the process ends, once, so that a type is a copied reference wherever it stands.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use hashbrown::HashMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::bind::quoted;
use crate::catalog::{Object, Table};
use crate::error::{SqlError, SqlState};
use crate::names::{Name, PUBLIC};
use crate::roles::Access;
use crate::types::{Category, ColumnType, Type};

/// What the key of a type begins with among the names of objects. No identifier has it.
pub(crate) const MARK: char = '\u{5}';

/// The distance of labels that have room between them: so many can be halved before it is used up.
const GAP: i64 = 1 << 48;

/// The most bytes that all versions of all enums take in a process.
const MOST_BYTES: usize = 64 << 20;

/// The ids of enums and of arrays of them lie behind those of tables, and in front of those of views.
const FIRST_ID: u32 = 2 << 30;
const ID_COUNT: u64 = 1 << 29;

/// The longest label, in bytes.
pub(crate) const LONGEST_LABEL: usize = 63;

/// Under which name the definitions have a type.
pub(crate) fn key(name: &Name) -> Name {
    Name::of_key(format!("{MARK}{}", name.key()))
}

/// Keys of types lie between these.
pub(crate) fn bounds() -> [String; 2] {
    [MARK.to_string(), '\u{6}'.to_string()]
}

/// A label with the number that stands for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Label {
    pub(crate) code: i64,
    pub(crate) text: String,
}

/// Labels that were added one after another between two others, each beside the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Streak {
    /// The number of the last one.
    code: i64,
    /// Whether it stands behind the one before.
    rises: bool,
    count: u32,
}

/// An enum as it is defined.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Enum {
    pub(crate) name: Name,
    /// No other type has it, whatever this one is called.
    pub(crate) number: i64,
    /// In their order.
    pub(crate) labels: Vec<Label>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) streak: Option<Streak>,
    /// How often a definition has named it: each writes it anew, so that one that drops or changes it meanwhile conflicts.
    #[serde(default)]
    pub(crate) uses: u64,
    #[serde(default, skip_serializing_if = "Access::is_default")]
    pub(crate) access: Access,
}

impl Enum {
    /// The type whose values have these labels.
    ///
    /// # Errors
    /// [`SqlState::OUT_OF_MEMORY`]: all enums that the process has met take too much.
    pub(crate) fn of(&self) -> Result<EnumType, SqlError> {
        EnumType::known(self.number, &self.name, &self.labels, true)
    }

    pub(crate) fn position(&self, label: &str) -> Option<usize> {
        self.labels.iter().position(|own| own.text == label)
    }

    /// Adds a label in front of the one at this position, or behind all.
    ///
    /// # Errors
    /// [`SqlState::PROGRAM_LIMIT_EXCEEDED`]: no number is left between its neighbours.
    pub(crate) fn add(&mut self, label: &str, at: usize) -> Result<(), SqlError> {
        let code_at = |at: usize| self.labels.get(at).map(|label| label.code);
        let (before, behind) = (at.checked_sub(1).and_then(code_at), code_at(at));
        let code = match (before, behind) {
            (None, None) => Some(GAP),
            (Some(last), None) => Some(last.saturating_add(GAP)).filter(|code| *code > last),
            (None, Some(first)) => Some(first.saturating_sub(GAP)).filter(|code| *code < first),
            (Some(last), Some(first)) => self.between(last, first),
        };
        let no_room = || {
            let message = format!("too many values of enum \"{}\" were added between the same two", self.name);
            let detail = "No number is left between those that stand for the two values.";
            SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message).with_detail(detail)
        };
        let code = code.ok_or_else(no_room)?;
        self.labels.insert(at, Label { code, text: label.to_owned() });
        Ok(())
    }

    /// A number between two others, if there is one: in the middle at first, and ever nearer to the label that was just added where more are added at the same
    /// side of it. So the distance to the other one is divided by their count, and not halved each time.
    fn between(&mut self, last: i64, first: i64) -> Option<i64> {
        // Their distance may have more than 64 bits.
        let room = i128::from(first) - i128::from(last);
        let next = self.streak.and_then(|of| {
            let rises = if of.code == last { true } else { (of.code == first).then_some(false)? };
            (of.count == 1 || of.rises == rises).then_some((rises, of.count + 1))
        });
        let (rises, count) = next.unwrap_or((true, 1));
        let step = (room / i128::from(count + 1)).max(1);
        let code = if rises { i128::from(last) + step } else { i128::from(first) - step } as i64;
        let is_free = code > last && code < first;
        is_free.then(|| {
            self.streak = Some(Streak { code, rises, count });
            code
        })
    }
}

/// The type of an enum's values: one version of its definition.
#[derive(Clone, Copy)]
pub struct EnumType(&'static Version);

struct Version {
    number: i64,
    key: Name,
    /// In the order of their numbers.
    labels: Box<[Label]>,
    /// Positions of the labels in the order of their texts.
    by_text: Box<[usize]>,
    /// The names that messages and catalogs have, of the type and of arrays of it.
    name: String,
    array_name: String,
    internal_name: String,
    internal_array_name: String,
}

#[derive(Default)]
struct Versions {
    /// The newest last.
    by_number: HashMap<i64, Vec<EnumType>>,
    bytes: usize,
}

static VERSIONS: LazyLock<Mutex<Versions>> = LazyLock::new(Mutex::default);

impl Version {
    fn new(number: i64, key: &Name, labels: &[Label]) -> Self {
        let mut by_text: Vec<_> = (0..labels.len()).collect();
        by_text.sort_unstable_by_key(|at| &labels[*at].text);
        let name = match key.schema() {
            PUBLIC => quoted(key.plain()),
            schema => format!("{}.{}", quoted(schema), quoted(key.plain())),
        };
        Self {
            number,
            key: key.clone(),
            labels: labels.into(),
            by_text: by_text.into(),
            array_name: format!("{name}[]"),
            name,
            internal_name: key.plain().to_owned(),
            internal_array_name: format!("_{}", key.plain()),
        }
    }

    fn bytes(&self) -> usize {
        let texts: usize = self.labels.iter().map(|label| label.text.len()).sum();
        let each = size_of::<Label>() + size_of::<usize>();
        size_of::<Self>() + 6 * self.name.len() + self.labels.len() * each + texts
    }
}

impl EnumType {
    fn known(number: i64, key: &Name, labels: &[Label], is_limited: bool) -> Result<Self, SqlError> {
        let mut versions = VERSIONS.lock().unwrap_or_else(PoisonError::into_inner);
        let known = versions.by_number.get(&number).into_iter().flatten().rev();
        if let Some(known) = known.copied().find(|it| it.0.key == *key && *it.0.labels == *labels) {
            return Ok(known);
        }
        let version = Version::new(number, key, labels);
        versions.bytes += version.bytes();
        if is_limited && versions.bytes > MOST_BYTES {
            versions.bytes -= version.bytes();
            let detail = format!("Definitions of enums take at most {MOST_BYTES} bytes until the process ends.");
            return Err(SqlError::out_of_memory(detail));
        }
        let new = Self(Box::leak(Box::new(version)));
        versions.by_number.entry(number).or_default().push(new);
        Ok(new)
    }

    /// The type of this number, of which nothing else is known.
    fn unresolved(number: i64) -> Self {
        // One without labels is small, and there is one for a number.
        Self::known(number, &Name::of_key("???"), &[], false).expect("it is not limited")
    }

    pub(crate) const fn number(self) -> i64 {
        self.0.number
    }

    /// Its name with the schema.
    pub(crate) const fn key(self) -> &'static Name {
        &self.0.key
    }

    pub(crate) fn labels(self) -> &'static [Label] {
        &self.0.labels
    }

    /// The number that stands for a label.
    ///
    /// # Errors
    /// [`SqlState::INVALID_TEXT_REPRESENTATION`]: it has no such label.
    pub(crate) fn code(self, text: &str) -> Result<i64, SqlError> {
        let labels = &self.0.labels;
        let found = self.0.by_text.binary_search_by(|at| labels[*at].text.as_str().cmp(text));
        let unknown = |_| {
            let message = format!("invalid input value for enum {}: \"{text}\"", self.0.name);
            SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
        };
        found.map(|at| labels[self.0.by_text[at]].code).map_err(unknown)
    }

    fn own_label(self, code: i64) -> Option<&'static str> {
        let labels = &self.0.labels;
        labels.binary_search_by_key(&code, |label| label.code).ok().map(|at| labels[at].text.as_str())
    }

    /// The label that a number stands for. A statement that was bound before a label was added may meet the number in a row: another version has it then.
    pub(crate) fn label(self, code: i64) -> Option<&'static str> {
        self.own_label(code).or_else(|| {
            let versions = VERSIONS.lock().unwrap_or_else(PoisonError::into_inner);
            let others = versions.by_number.get(&self.0.number)?;
            others.iter().rev().find_map(|other| other.own_label(code))
        })
    }

    pub(crate) const fn name(self) -> &'static str {
        self.0.name.as_str()
    }

    pub(crate) const fn array_name(self) -> &'static str {
        self.0.array_name.as_str()
    }

    pub(crate) const fn internal_name(self) -> &'static str {
        self.0.internal_name.as_str()
    }

    pub(crate) const fn internal_array_name(self) -> &'static str {
        self.0.internal_array_name.as_str()
    }

    /// Its object id; that of arrays of it is the next one.
    pub(crate) const fn oid(self) -> u32 {
        id_of(self.0.number)
    }
}

/// The object id of the type of a number: the same in each process.
pub(crate) const fn id_of(number: i64) -> u32 {
    let mixed = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    FIRST_ID + 2 * (mixed % ID_COUNT) as u32
}

impl PartialEq for EnumType {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for EnumType {}

impl Hash for EnumType {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.number.hash(state);
    }
}

impl std::fmt::Debug for EnumType {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0.name)
    }
}

/// Only the number is kept: which labels it has, the definition of the type says.
impl Serialize for EnumType {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.number.serialize(to)
    }
}

impl<'de> Deserialize<'de> for EnumType {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        i64::deserialize(from).map(Self::unresolved)
    }
}

/// The type that a kept number stands for, before anything else is known of it.
pub(crate) fn unresolved(number: i64) -> Type {
    Type::Enum(EnumType::unresolved(number))
}

/// The enums of a catalog, as they are now, by their numbers.
pub(crate) type Enums = HashMap<i64, EnumType>;

/// The enums among objects. One for which there is no memory stays as it was.
pub(crate) fn among<'o>(objects: impl Iterator<Item = &'o Object>) -> Enums {
    let found = objects.filter_map(|object| if let Object::Enum(of) = object { Some(of) } else { None });
    found.filter_map(|of| Some((of.number, of.of().ok()?))).collect()
}

/// The type with the labels that its enum has now.
pub(crate) fn resolved(of: Type, enums: &Enums) -> Type {
    let now = |old: EnumType| enums.get(&old.number()).copied().unwrap_or(old);
    match of {
        Type::Enum(old) => Type::Enum(now(old)),
        Type::Array(element) => match element.get() {
            Type::Enum(old) => Type::Enum(now(old)).array().unwrap_or(of),
            _ => of,
        },
        _ => of,
    }
}

/// The number of the enum whose values, or arrays of them, are those of a type, and whether they are arrays.
fn number_of(of: Type) -> Option<(i64, bool)> {
    match of.element().unwrap_or(of) {
        Type::Enum(own) => Some((own.number(), of.element().is_some())),
        _ => None,
    }
}

/// Whether both are the same type, of whichever versions: one stands for the same values as the other.
pub(crate) fn is_same(one: Type, other: Type) -> bool {
    one == other || number_of(one).is_some_and(|number| number_of(other) == Some(number))
}

/// Whether the labels of an enum have to do with values of the type.
pub(crate) fn has_labels(of: Type) -> bool {
    number_of(of).is_some()
}

fn resolve_all<'t>(types: impl Iterator<Item = &'t mut Type>, enums: &Enums) {
    types.for_each(|of| *of = resolved(*of, enums));
}

/// The object with the enums of its columns and parameters as they are now. `None`: they are so already.
pub(crate) fn resolve(object: &Object, enums: &Enums) -> Option<Object> {
    let is_old = |of: Type| resolved(of, enums) != of;
    match object {
        Object::Table(table) if table.columns.iter().any(|column| is_old(column.of.base)) => {
            let mut description = table.description.clone();
            resolve_all(description.columns.iter_mut().map(|column| &mut column.of.base), enums);
            let same = Table { is_kept: table.is_kept, ..table.redescribed(&table.name, description) };
            Some(Object::Table(same.into()))
        }
        Object::View(view) if view.types.iter().any(|of| is_old(of.base)) => {
            let mut same = crate::catalog::View::clone(view);
            resolve_all(same.types.iter_mut().map(|of| &mut of.base), enums);
            Some(Object::View(same.into()))
        }
        Object::Procedure(procedure) if procedure.parameters.iter().any(|it| is_old(it.of)) => {
            let mut same = crate::procedures::Procedure::clone(procedure);
            resolve_all(same.parameters.iter_mut().map(|it| &mut it.of), enums);
            Some(Object::Procedure(Arc::new(same)))
        }
        _ => None,
    }
}

/// Whether a type that the object keeps is that of an enum.
pub(crate) fn has_enums(object: &Object) -> bool {
    let is_enum = |of: Type| of.element().unwrap_or(of).category() == Category::Enum;
    match object {
        Object::Table(table) => table.columns.iter().any(|column| is_enum(column.of.base)),
        Object::View(view) => view.types.iter().any(|of| is_enum(of.base)),
        Object::Procedure(procedure) => procedure.parameters.iter().any(|it| is_enum(it.of)),
        _ => false,
    }
}

/// Whether values of the type, or elements of such arrays, are those of an enum.
pub(crate) fn is_of(of: ColumnType, number: i64) -> bool {
    let base = of.base.element().unwrap_or(of.base);
    matches!(base, Type::Enum(own) if own.number() == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(labels: &[&str]) -> Enum {
        let (name, access) = (Name::of_key("mood"), Access::default());
        let mut new = Enum { name, number: 1, labels: Vec::new(), streak: None, uses: 0, access };
        labels.iter().enumerate().for_each(|(at, label)| new.add(label, at).unwrap());
        new
    }

    /// Adds labels until none has room, at most so many.
    fn fill(mood: &mut Enum, most: usize, mut place: impl FnMut(&Enum, usize) -> usize) -> usize {
        for count in 0..most {
            let at = place(mood, count);
            if let Err(error) = mood.add(&format!("m{count}"), at) {
                assert_eq!(error.state(), SqlState::PROGRAM_LIMIT_EXCEEDED);
                return count;
            }
        }
        most
    }

    #[test]
    fn thousands_of_labels_are_added_at_one_place() {
        let places: [fn(&Enum, usize) -> usize; 2] = [|mood, _| mood.labels.len() - 1, |_, _| 1];
        for place in places {
            let mut mood = of(&["a", "z"]);
            assert_eq!(fill(&mut mood, 2_000, place), 2_000);
            assert!(mood.labels.is_sorted_by(|one, other| one.code < other.code));
            // In front of one that was added itself.
            let mut mood = of(&["a", "z"]);
            mood.add("m", 1).unwrap();
            assert_eq!(fill(&mut mood, 2_000, |mood, _| mood.position("m").unwrap()), 2_000);
        }
    }

    #[test]
    fn labels_are_added_anywhere_until_there_is_no_room() {
        let mut mood = of(&["a", "z"]);
        // Between the two that were added last, again and again.
        let mut at = 1;
        let count = fill(&mut mood, 1_000, |_, count| {
            at += usize::from(count % 2 == 0 && count > 0);
            at
        });
        assert!((30..1_000).contains(&count), "{count}");
        assert!(mood.labels.is_sorted_by(|one, other| one.code < other.code));
        assert!(mood.add("first", 0).is_ok() && mood.add("last", mood.labels.len()).is_ok());
        assert!(mood.labels.is_sorted_by(|one, other| one.code < other.code));
    }

    #[test]
    fn versions_are_kept_once_and_share_their_numbers() {
        let mut mood = of(&["sad", "ok"]);
        let first = mood.of().unwrap();
        assert_eq!(mood.of().unwrap(), first);
        mood.add("happy", 2).unwrap();
        let second = mood.of().unwrap();
        assert_ne!(first, second);
        let code = second.code("happy").unwrap();
        assert_eq!(first.code("happy").map_err(|error| error.state()), Err(SqlState::INVALID_TEXT_REPRESENTATION));
        assert_eq!((first.label(code), second.label(code), first.label(7)), (Some("happy"), Some("happy"), None));
        let kept = serde_json::to_string(&Type::Enum(second).array().unwrap()).unwrap();
        let unknown: Type = serde_json::from_str(&kept).unwrap();
        let enums = Enums::from([(1, second)]);
        assert_eq!(resolved(unknown, &enums), Type::Enum(second).array().unwrap());
    }
}
