//! CREATE TYPE … AS ENUM, ALTER TYPE, DROP TYPE, and functions of enums.

use std::sync::Arc;

use sqlparser::ast::{self, AlterTypeAddValuePosition, AlterTypeOperation, UserDefinedTypeRepresentation};

use super::drops::{SEVERAL, cascaded};
use super::renames::{has_name, mentions, names_type, says, with_type};
use super::{Binder, Recorded, Written, folded};
use crate::arrays::{Array, Dimension};
use crate::casts::Place;
use crate::catalog::{Column, Description, Object, Table, View};
use crate::computed::Computed;
use crate::datum::{Datum, OwnedDatum};
use crate::enums::{self, Enum, EnumType, LONGEST_LABEL, is_of};
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::functions::{self, Function, Unresolved};
use crate::names::{Name, check_identifier, no_schema};
use crate::outcome::Notice;
use crate::procedures::{Language, Procedure};
use crate::roles::{Access, FIRST, Kind, bits};
use crate::statement::{Action, Definition, NewObject};
use crate::types::{ColumnType, Type};

/// The values of an array of an enum between two of them; NULL is no bound. Statements have no name for it.
static BETWEEN: Function = Function {
    name: "enum values between",
    arguments: &[Type::AnyArray, Type::AnyEnum, Type::AnyEnum],
    result: Type::AnyArray,
    is_strict: false,
    eval: |it, context| {
        let Datum::Array(all) = it[0] else { return Ok(Datum::Null) };
        let is_above = |value: Datum<'_>| it[1].is_null() || value.compare(it[1]).is_ge();
        let is_below = |value: Datum<'_>| it[2].is_null() || value.compare(it[2]).is_le();
        let found: Vec<_> = all.items().filter(|value| is_above(*value) && is_below(*value)).collect();
        Ok(Array::list(context.arena, &found))
    },
};

fn missing_type(written: &Written) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("type \"{written}\" does not exist"))
}

fn taken(name: &Name) -> SqlError {
    SqlError::new(SqlState::DUPLICATE_OBJECT, format!("type \"{}\" already exists", name.plain()))
}

/// A label as a statement says it: in quotes, and not too long.
fn label_of(written: &ast::Ident) -> Result<String, SqlError> {
    if written.quote_style != Some('\'') {
        let message = format!("syntax error at or near \"{}\"", written.value);
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    }
    if written.value.len() > LONGEST_LABEL {
        let error = SqlError::new(SqlState::INVALID_NAME, format!("invalid enum label \"{}\"", written.value));
        return Err(error.with_detail(format!("Labels must be {LONGEST_LABEL} bytes or less.")));
    }
    Ok(written.value.clone())
}

/// Who changes a type, and of what it is made.
impl Recorded<'_> {
    fn find_enum(&self, written: &Written) -> Result<Option<Arc<Enum>>, SqlError> {
        let mut found = None;
        self.first(written, |name| {
            if let Some(Object::Enum(of)) = self.object(&enums::key(name))? {
                found = Some(of);
            }
            Ok(found.is_some())
        })?;
        Ok(found)
    }

    /// The enum that a statement names, which is noted as used.
    pub(super) fn written_enum(&self, written: &Written) -> Result<Option<EnumType>, SqlError> {
        let Some(found) = self.find_enum(written)? else { return Ok(None) };
        if written.schema.is_none() && found.name.schema() != crate::names::PUBLIC {
            self.found_by_path.borrow_mut().push(found.name.clone());
        }
        self.enums_named.borrow_mut().push(found.name.clone());
        found.of().map(Some)
    }

    /// The type that a definition gives a column or a parameter, which needs the privilege to use it.
    pub(super) fn usable_type(&self, of: &ast::DataType) -> Result<ColumnType, SqlError> {
        let of = self.column_type(of)?;
        self.check_usable(of).map(|()| of)
    }

    /// Refuses a column of a type that the role may not use.
    pub(super) fn check_usable(&self, of: ColumnType) -> Result<(), SqlError> {
        let base = of.base.element().unwrap_or(of.base);
        if let Type::Enum(of) = base
            && self.path.user.current.0 != FIRST
            && let Some(object) = self.object(&enums::key(of.key()))?
            && let Some(access) = object.access()
            && self.rights()?.held(access, Kind::Type) & bits::USAGE == 0
        {
            return Err(super::needs::denied(Kind::Type, of.name()));
        }
        Ok(())
    }

    /// The enum of this name. A schema that is written has to be there.
    pub(super) fn enum_within(&self, name: &ast::ObjectName) -> Result<Arc<Enum>, SqlError> {
        let written = Written::of(name)?;
        self.check_schema(&written)?;
        self.find_enum(&written)?.ok_or_else(|| match Type::by_name(&written.name) {
            Some(of) => SqlError::unsupported(format!("a change of the type {of}")),
            None => missing_type(&written),
        })
    }
}

/// The text of what an index has computed.
fn computed_text(column: &Column) -> Option<&str> {
    match column.computed.as_ref()? {
        Computed::Expression(text) | Computed::Member(text) => Some(text),
        Computed::Sorted(_) => None,
    }
}

/// The texts that a table keeps, with what messages call them.
fn texts_of(description: &Description) -> impl Iterator<Item = (String, &str)> {
    let of_column = |column: &Column| format!("default value for column {}", column.name);
    let defaults = description.columns.iter().filter_map(move |it| Some((of_column(it), it.default.as_deref()?)));
    let generated = description.columns.iter();
    let generated = generated.filter_map(|it| Some((format!("column {}", it.name), it.generated.as_deref()?)));
    let checks = description.checks.iter().map(|it| (format!("constraint {}", it.name), it.condition.as_str()));
    let computed = description.columns.iter();
    let computed = computed.filter_map(|column| Some(("index".to_owned(), computed_text(column)?)));
    defaults.chain(generated).chain(checks).chain(computed)
}

impl Binder<'_> {
    pub(crate) fn create_type(
        &mut self,
        name: &ast::ObjectName,
        representation: Option<&UserDefinedTypeRepresentation>,
    ) -> Result<Definition, SqlError> {
        let Some(UserDefinedTypeRepresentation::Enum { labels }) = representation else {
            return Err(SqlError::unsupported("CREATE TYPE of anything but an enum"));
        };
        let name = self.catalog.new_object(name)?;
        if name.is_temporary() {
            return Err(SqlError::unsupported("a temporary type"));
        }
        self.check_free_type(&name)?;
        let (number, access) = (self.new_type_number()?, Access::default());
        let mut new = Enum { name: name.clone(), number, labels: Vec::new(), streak: None, uses: 0, access };
        for label in labels {
            let label = label_of(label)?;
            if new.position(&label).is_some() {
                let message = "duplicate key value violates unique constraint \"pg_enum_typid_label_index\"";
                return Err(SqlError::new(SqlState::UNIQUE_VIOLATION, message));
            }
            new.add(&label, new.labels.len())?;
        }
        let mut definition = Definition::new("CREATE TYPE");
        define(&mut definition, new)?;
        Ok(definition)
    }

    /// Refuses a name that another type, or a relation with its type, has.
    fn check_free_type(&self, name: &Name) -> Result<(), SqlError> {
        check_identifier(name.plain())?;
        let is_relation = matches!(self.catalog.object(name)?, Some(Object::Table(_) | Object::View(_)));
        let is_type = self.catalog.object(&enums::key(name))?.is_some();
        if is_relation || is_type { Err(taken(name)) } else { Ok(()) }
    }

    /// Refuses the name of a type for a relation, which would have a type of the name.
    pub(crate) fn check_free_of_type(&self, name: &Name) -> Result<(), SqlError> {
        if self.catalog.object(&enums::key(name))?.is_some() { Err(taken(name)) } else { Ok(()) }
    }

    /// A number whose object id no other type has.
    fn new_type_number(&self) -> Result<i64, SqlError> {
        let known = self.catalog.enums()?;
        loop {
            let number = self.catalog.new_number();
            if known.keys().all(|other| enums::id_of(*other) != enums::id_of(number)) {
                return Ok(number);
            }
        }
    }

    pub(crate) fn alter_type(&mut self, alter: &ast::AlterType) -> Result<Action, SqlError> {
        let old = self.catalog.enum_within(&alter.name)?;
        self.catalog.check_owner(&Object::Enum(old.clone()))?;
        let (mut new, mut definition) = (Enum::clone(&old), Definition::new("ALTER TYPE"));
        let no_label = |label: &str| {
            let message = format!("\"{label}\" is not an existing enum label");
            SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
        };
        match &alter.operation {
            AlterTypeOperation::AddValue(add) => {
                let label = label_of(&add.value)?;
                if new.position(&label).is_some() {
                    let message = format!("enum label \"{label}\" already exists");
                    if !add.if_not_exists {
                        return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
                    }
                    let notice = Notice::remark(SqlState::DUPLICATE_OBJECT, format!("{message}, skipping"));
                    return Ok(Action::Skip { tag: "ALTER TYPE", notice });
                }
                let position = |beside: &ast::Ident| {
                    let beside = label_of(beside)?;
                    new.position(&beside).ok_or_else(|| no_label(&beside))
                };
                let at = match &add.position {
                    None => new.labels.len(),
                    Some(AlterTypeAddValuePosition::Before(beside)) => position(beside)?,
                    Some(AlterTypeAddValuePosition::After(beside)) => position(beside)? + 1,
                };
                new.add(&label, at)?;
            }
            AlterTypeOperation::RenameValue(rename) => {
                let (from, to) = (label_of(&rename.from)?, label_of(&rename.to)?);
                let at = new.position(&from).ok_or_else(|| no_label(&from))?;
                if new.position(&to).is_some() {
                    let message = format!("enum label \"{to}\" already exists");
                    return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
                }
                self.rename_label(&old, (&from, &to), &mut definition)?;
                new.labels[at].text = to;
            }
            AlterTypeOperation::Rename(rename) => {
                let name = old.name.beside(&folded(&rename.new_name));
                self.check_free_type(&name)?;
                self.rename_in_tables(&old, &name, &mut definition)?;
                if let Some(by) = self.named_by(&old)? {
                    return Err(SqlError::unsupported(format!("a new name for a type that the {by} names")));
                }
                definition.set_object(&enums::key(&old.name), None);
                new.name = name;
            }
        }
        define(&mut definition, new)?;
        Ok(Action::Define(definition.into()))
    }

    /// The tables of the catalog.
    fn all_tables(&self) -> Result<Vec<Arc<Table>>, SqlError> {
        Ok(self.catalog.objects()?.iter().filter_map(|object| object.table().cloned()).collect())
    }

    /// Gives a type another name in the texts that tables keep. Names without a schema are those of `public` there.
    fn rename_in_tables(&self, of: &Enum, new: &Name, definition: &mut Definition) -> Result<(), SqlError> {
        let old = (of.name.schema(), of.name.plain());
        let names = |text: &str| names_type(text, old.1);
        for table in self.all_tables()? {
            let is_named = texts_of(&table).find(|(_, text)| names(text));
            let Some((what, _)) = is_named else { continue };
            let is_computed = table.columns.iter().any(|column| computed_text(column).is_some_and(names));
            if old.0 != crate::names::PUBLIC || is_computed {
                let what = format!("a new name for a type that the {what} of table {} names", table.name);
                return Err(SqlError::unsupported(what));
            }
            let mut description = definition.described(&table);
            let columns = description.columns.iter_mut();
            let of_columns = columns.flat_map(|column| column.default.iter_mut().chain(column.generated.iter_mut()));
            let of_checks = description.checks.iter_mut().map(|check| &mut check.condition);
            for text in of_columns.chain(of_checks).filter(|text| names(text)) {
                *text = with_type(text, old, new.plain());
            }
            definition.set_object(&table.name.clone(), Some(NewObject::Table(table, description)));
        }
        Ok(())
    }

    /// What else keeps a text that names a type.
    fn named_by(&self, of: &Enum) -> Result<Option<String>, SqlError> {
        for object in self.catalog.objects()? {
            let found = match &object {
                Object::View(view) => names_type(&view.query, of.name.plain()).then(|| format!("view {}", view.name)),
                Object::Procedure(it) if it.language == Language::Atomic => {
                    names_type(&it.body, of.name.plain()).then(|| format!("procedure {}", it.name))
                }
                _ => None,
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The names of what has values of a type, without schemas.
    fn names_of_holders(&self, of: &Enum) -> Result<Vec<String>, SqlError> {
        let mut names = vec![of.name.plain().to_owned()];
        for object in self.catalog.objects()? {
            let (is_of, name) = match &object {
                Object::Table(table) => (table.columns.iter().any(|it| is_of(it.of, of.number)), &table.name),
                Object::View(view) => (view.types.iter().any(|it| is_of(*it, of.number)), &view.name),
                Object::Procedure(it) => (it.parameters.iter().any(|it| is_of(it.of.into(), of.number)), &it.name),
                _ => continue,
            };
            if is_of {
                names.push(name.plain().to_owned());
            }
        }
        Ok(names)
    }

    /// Gives a label another name in the defaults of columns of the type. What else has to do with the type and has the label in its text forbids that: texts
    /// are read again and again.
    fn rename_label(&self, of: &Enum, (from, to): (&str, &str), definition: &mut Definition) -> Result<(), SqlError> {
        let refused = |by: String| Err(SqlError::unsupported(format!("a new name for a value that the {by} has")));
        let literal = |label: &str| format!("'{}'", label.replace('\'', "''"));
        for table in self.all_tables()? {
            let has_type = |column: &Column| is_of(column.of, of.number);
            let mut description = definition.described(&table);
            let mut is_changed = false;
            for column in description.columns.iter_mut().filter(|column| has_type(column)) {
                let Some(default) = &mut column.default else { continue };
                let behind = default.strip_prefix(&literal(from));
                if let Some(behind) = behind.filter(|it| it.is_empty() || it.starts_with("::")) {
                    *default = format!("{}{behind}", literal(to));
                    is_changed = true;
                }
            }
            let own: Vec<_> = table.columns.iter().filter(|column| has_type(column)).collect();
            let is_own = |text: &str| {
                let is_of_own =
                    |it: &Column| it.default.as_deref() == Some(text) || it.generated.as_deref() == Some(text);
                own.iter().any(|it| is_of_own(it) || mentions(text, &it.name)) || names_type(text, of.name.plain())
            };
            if let Some((what, _)) = texts_of(&description).find(|(_, text)| says(text, from) && is_own(text)) {
                return refused(format!("{what} of table {}", table.name));
            }
            if is_changed {
                definition.set_object(&table.name.clone(), Some(NewObject::Table(table, description)));
            }
        }
        let holders = self.names_of_holders(of)?;
        let is_about = |text: &str| says(text, from) && holders.iter().any(|name| has_name(text, name));
        for object in self.catalog.objects()? {
            match &object {
                Object::View(view) if is_about(&view.query) => return refused(format!("view {}", view.name)),
                Object::Procedure(it) if it.language == Language::Atomic && is_about(&it.body) => {
                    return refused(format!("procedure {}", it.name));
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(crate) fn drop_types(
        &mut self,
        names: &[ast::ObjectName],
        cascade: bool,
        may_be_missing: bool,
    ) -> Result<Definition, SqlError> {
        let mut definition = Definition::new("DROP TYPE");
        let mut found = Vec::new();
        for name in names {
            let written = Written::of(name)?;
            let is_there = match &written.schema {
                Some(schema) => self.catalog.schema(schema)?.is_some(),
                None => true,
            };
            let missing = match (is_there, self.catalog.find_enum(&written)?, &written.schema) {
                (_, Some(of), _) => {
                    self.catalog.check_dropper(&Object::Enum(of.clone()), &of.name)?;
                    found.push(of);
                    continue;
                }
                (false, None, Some(schema)) => no_schema(schema),
                _ => match Type::by_name(&written.name) {
                    Some(of) => {
                        let message = format!("cannot drop type {of} because it is required by the database system");
                        return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message));
                    }
                    None => missing_type(&written),
                },
            };
            if !may_be_missing {
                return Err(missing);
            }
            let message = format!("{}, skipping", missing.message());
            definition.notices.push(Notice::remark(SqlState::SUCCESS, message));
        }
        let mut details = Vec::new();
        for of in &found {
            self.drop_type(of, (cascade, &mut details), &mut definition)?;
        }
        let what = match &found[..] {
            [one] => format!("type {}", self.shown_type(one)?),
            _ => SEVERAL.to_owned(),
        };
        cascaded(&what, &details, cascade, &mut definition)?;
        Ok(definition)
    }

    fn shown_type(&self, of: &Enum) -> Result<String, SqlError> {
        Ok(of.of()?.name().to_owned())
    }

    /// A type goes. What depends on it is told; columns of tables and views go with it where this is wanted, and other things never.
    pub(super) fn drop_type(
        &mut self,
        of: &Enum,
        (cascade, details): (bool, &mut Vec<String>),
        definition: &mut Definition,
    ) -> Result<(), SqlError> {
        let what = format!("type {}", self.shown_type(of)?);
        let mut tell = |own: String| {
            details.push(if cascade { format!("drop cascades to {own}") } else { format!("{own} depends on {what}") });
        };
        let names = |text: &str| names_type(text, of.name.plain());
        let going = definition.objects.iter().filter(|(_, new)| new.is_none()).map(|(name, _)| name.clone());
        let going: Vec<_> = going.collect();
        let is_going = |name: &Name| going.contains(name);
        let is_of_view = |view: &View| view.types.iter().any(|it| is_of(*it, of.number)) || names(&view.query);
        let is_of_parameter = |it: &Procedure| it.parameters.iter().any(|it| is_of(it.of.into(), of.number));
        let mut columns = Vec::new();
        for object in &self.catalog.objects()? {
            match object {
                Object::Table(table) if !is_going(&table.name) => {
                    let shown = self.catalog.shown(&table.name)?;
                    let is_generated = |column: &Column| column.generated.as_deref().is_some_and(names);
                    let is_own = |column: &Column| is_of(column.of, of.number) || is_generated(column);
                    let own = table.visible().filter(|(_, column)| is_own(column));
                    let mut own: Vec<_> = own.map(|(_, column)| column).collect();
                    own.iter().for_each(|column| tell(format!("column {} of table {shown}", column.name)));
                    // Those that are generated go first: they may look at the others.
                    own.sort_by_key(|column| column.generated.is_none());
                    let own: Vec<_> = own.into_iter().map(|column| column.name.clone()).collect();
                    let other = texts_of(table).find(|(_, text)| names(text)).filter(|_| own.is_empty());
                    if let Some((what, _)) = &other {
                        tell(format!("{what} of table {shown}"));
                    }
                    columns.push((table.clone(), own, other.map(|(what, _)| what)));
                }
                Object::View(view) if !is_going(&view.name) && is_of_view(view) => {
                    tell(format!("view {}", self.catalog.shown(&view.name)?));
                    if cascade {
                        return Err(SqlError::unsupported("DROP TYPE CASCADE of a type that views depend on"));
                    }
                }
                Object::Procedure(it) if !is_going(&crate::procedures::key(&it.name)) && is_of_parameter(it) => {
                    tell(format!("function {}", it.signature()));
                    if cascade {
                        definition.set_object(&crate::procedures::key(&it.name), None);
                    }
                }
                _ => {}
            }
        }
        if cascade {
            for (table, own, other) in columns {
                if let Some(what) = other {
                    return Err(SqlError::unsupported(format!("DROP TYPE CASCADE of a type that the {what} names")));
                }
                self.drop_columns(&table, &own, definition)?;
            }
        }
        definition.set_object(&enums::key(&of.name), None);
        Ok(())
    }

    /// The columns go as ALTER TABLE has them go.
    fn drop_columns(
        &mut self,
        table: &Arc<Table>,
        columns: &[String],
        definition: &mut Definition,
    ) -> Result<(), SqlError> {
        if columns.is_empty() {
            return Ok(());
        }
        if definition.tables.iter().any(|new| new.name == table.name) {
            return Err(SqlError::unsupported("DROP TYPE CASCADE of several types of columns of one table"));
        }
        let dropped = self.without_columns(table, columns)?;
        definition.closes.extend(dropped.closes);
        definition.tables.extend(dropped.tables);
        definition.checks.extend(dropped.checks);
        dropped.objects.into_iter().for_each(|(name, object)| definition.set_object(&name, object));
        Ok(())
    }

    /// Writes the enums anew that a definition names, so that one that drops or changes them at the same time conflicts with it.
    pub(super) fn note_enums(&self, definition: &mut Definition) -> Result<(), SqlError> {
        let mut types: Vec<Type> = Vec::new();
        for table in &definition.tables {
            types.extend(table.description.columns.iter().map(|column| column.of.base));
        }
        for (_, object) in &definition.objects {
            match object {
                Some(NewObject::View(view)) => types.extend(view.types.iter().map(|of| of.base)),
                Some(NewObject::Procedure(procedure)) => types.extend(procedure.parameters.iter().map(|it| it.of)),
                _ => {}
            }
        }
        let named = types.into_iter().filter_map(|of| match of.element().unwrap_or(of) {
            Type::Enum(of) => Some(of.key().clone()),
            _ => None,
        });
        let mut names = self.catalog.enums_named.take();
        names.extend(named);
        names.sort_unstable();
        names.dedup();
        for name in names {
            let key = enums::key(&name);
            if definition.objects.iter().any(|(own, _)| *own == key) {
                continue;
            }
            if let Some(Object::Enum(of)) = self.catalog.object(&key)? {
                let used = Enum { uses: of.uses + 1, ..Enum::clone(&of) };
                definition.objects.push((key, Some(NewObject::Enum(used))));
            }
        }
        Ok(())
    }

    /// `enum_first`, `enum_last` and `enum_range`, which look at the type of their arguments.
    pub(super) fn enum_function(&mut self, name: &str, mut arguments: Vec<Typed>) -> Result<Typed, SqlError> {
        let types: Vec<_> = arguments.iter().map(Typed::base).collect();
        let missing = || functions::no_function(name, &types, Unresolved::None);
        let found = types.iter().find_map(|of| if let Type::Enum(of) = of { Some(*of) } else { None });
        let fits = |of: &Type| *of == Type::Unknown || found.is_some_and(|own| *of == Type::Enum(own));
        if !types.iter().all(fits) || types.len() > if name == "enum_range" { 2 } else { 1 } {
            return Err(missing());
        }
        let found = found.ok_or_else(missing)?;
        let of = Type::Enum(found);
        let all: Vec<_> = found.labels().iter().map(|label| Datum::Int(label.code)).collect();
        let end = if name == "enum_first" { all.first() } else { all.last() };
        if name != "enum_range" {
            let empty = || {
                let message = format!("enum {} contains no values", found.name());
                SqlError::new(SqlState("55000"), message)
            };
            return Ok(super::literals::constant(*end.ok_or_else(empty)?, of));
        }
        let list = of.array().unwrap_or(of);
        let dimensions = [Dimension::of(all.len())];
        let dimensions = if all.is_empty() { &[][..] } else { &dimensions[..] };
        let values = Expr::Constant(OwnedDatum::Array(Array::encode(dimensions, all).into()));
        if arguments.len() == 1 {
            return Ok(Typed::new(values, list));
        }
        let upper = self.cast(arguments.remove(1), of.into(), Place::Implicit)?.expr;
        let lower = self.cast(arguments.remove(0), of.into(), Place::Implicit)?.expr;
        Ok(Typed::new(Expr::Call(&BETWEEN, [values, lower, upper].into()), list))
    }
}

/// Says what an enum is from now on. Its version is made known at once, while an error can still be told.
fn define(definition: &mut Definition, new: Enum) -> Result<(), SqlError> {
    new.of()?;
    definition.set_object(&enums::key(&new.name.clone()), Some(NewObject::Enum(new)));
    Ok(())
}
