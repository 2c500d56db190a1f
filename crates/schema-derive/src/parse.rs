//! Reads the struct and its attributes.

use std::fmt::Display;

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Expr, Fields, Ident, LitStr, Path, Result, Token, Type, Visibility};

/// What is wrong, all of it, so that it can be corrected at once.
#[derive(Default)]
pub(crate) struct Problems(Option<Error>);

impl Problems {
    pub(crate) fn add(&mut self, span: Span, what: impl Display) {
        self.combine(Error::new(span, what));
    }

    fn combine(&mut self, error: Error) {
        match &mut self.0 {
            Some(all) => all.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// The value, or nothing when there is a problem instead.
    pub(crate) fn take<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.combine(error)).ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn finish(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}

/// A struct that is a row.
pub(crate) struct Table<'a> {
    pub(crate) ident: &'a Ident,
    pub(crate) visibility: &'a Visibility,
    pub(crate) name: String,
    pub(crate) primary_hash: bool,
    pub(crate) expected_rows: Option<Expr>,
    pub(crate) partition: Option<usize>,
    pub(crate) columns: Vec<Column<'a>>,
    pub(crate) indexes: Vec<Index>,
    pub(crate) foreign_keys: Vec<ForeignKey>,
    /// Where `polychron-schema` is found, when that is not `::polychron_schema`.
    pub(crate) root: Option<Path>,
}

/// A field that is a column.
pub(crate) struct Column<'a> {
    pub(crate) ident: &'a Ident,
    pub(crate) column_type: &'a Type,
    pub(crate) docs: Vec<&'a Attribute>,
    pub(crate) name: String,
    pub(crate) is_key: bool,
    pub(crate) max: Option<Expr>,
}

/// An `#[index(…)]`.
pub(crate) struct Index {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) columns: Vec<usize>,
    pub(crate) unique: bool,
    pub(crate) hash: bool,
}

/// A `#[references(…)]`.
pub(crate) struct ForeignKey {
    pub(crate) columns: Vec<usize>,
    pub(crate) parent: Parent,
}

/// The table that a foreign key leads to.
pub(crate) enum Parent {
    /// The table of a struct that is a row.
    Row(Path),
    /// A table of this name.
    Name(String),
}

impl<'a> Table<'a> {
    pub(crate) fn parse(input: &'a DeriveInput) -> Result<Self> {
        if !input.generics.params.is_empty() {
            return Err(Error::new(input.generics.span(), "a row cannot be generic: its layout is one constant"));
        }
        let columns = parse_columns(input)?;
        let mut table = Self {
            ident: &input.ident,
            visibility: &input.vis,
            name: snake_case(&unraw(&input.ident)),
            primary_hash: false,
            expected_rows: None,
            partition: None,
            columns,
            indexes: Vec::new(),
            foreign_keys: Vec::new(),
            root: None,
        };
        for attribute in &input.attrs {
            if attribute.path().is_ident("row") {
                attribute.parse_nested_meta(|meta| table.parse_row_option(&meta))?;
            } else if attribute.path().is_ident("index") {
                let index = table.parse_index(attribute)?;
                table.indexes.push(index);
            } else if attribute.path().is_ident("references") {
                let foreign_key = table.parse_foreign_key(attribute)?;
                table.foreign_keys.push(foreign_key);
            }
        }
        table.check()?;
        Ok(table)
    }

    fn parse_row_option(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        if meta.path.is_ident("name") {
            self.name = non_empty(&meta.value()?.parse()?)?;
        } else if meta.path.is_ident("primary") {
            self.primary_hash = is_hash(&meta.value()?.parse()?)?;
        } else if meta.path.is_ident("expected_rows") {
            self.expected_rows = Some(meta.value()?.parse()?);
        } else if meta.path.is_ident("partition") {
            self.partition = Some(self.column_position(&meta.value()?.parse()?)?);
        } else if meta.path.is_ident("crate") {
            self.root = Some(meta.value()?.parse()?);
        } else {
            return Err(meta.error("expected `name`, `primary`, `expected_rows`, `partition` or `crate`"));
        }
        Ok(())
    }

    fn parse_index(&self, attribute: &Attribute) -> Result<Index> {
        let mut index =
            Index { name: String::new(), span: attribute.span(), columns: Vec::new(), unique: false, hash: false };
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("name") {
                let name: LitStr = meta.value()?.parse()?;
                index.span = name.span();
                index.name = non_empty(&name)?;
            } else if meta.path.is_ident("columns") {
                for column in column_names(&meta)? {
                    let position = self.column_position(&column)?;
                    if index.columns.contains(&position) {
                        return Err(Error::new(column.span(), "this column stands in the index already"));
                    }
                    index.columns.push(position);
                }
            } else if meta.path.is_ident("unique") {
                index.unique = true;
            } else if meta.path.is_ident("kind") {
                index.hash = is_hash(&meta.value()?.parse()?)?;
            } else {
                return Err(meta.error("expected `name`, `columns(…)`, `unique` or `kind`"));
            }
            Ok(())
        })?;
        if index.columns.is_empty() {
            return Err(Error::new(attribute.span(), "an index needs columns: `columns(first, second)`"));
        }
        if index.name.is_empty() {
            let names: Vec<_> = index.columns.iter().map(|&position| self.columns[position].name.as_str()).collect();
            index.name = format!("by_{}", names.join("_"));
        }
        Ok(index)
    }

    fn parse_foreign_key(&self, attribute: &Attribute) -> Result<ForeignKey> {
        let (mut columns, mut parent) = (Vec::new(), None);
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("columns") {
                for column in column_names(&meta)? {
                    columns.push(self.column_position(&column)?);
                }
            } else if meta.path.is_ident("table") {
                parent = Some(Parent::Name(non_empty(&meta.value()?.parse()?)?));
            } else if meta.path.is_ident("row") {
                parent = Some(Parent::Row(meta.value()?.parse()?));
            } else {
                return Err(meta.error("expected `row`, `table` or `columns(…)`"));
            }
            Ok(())
        })?;
        let missing = |what| Error::new(attribute.span(), what);
        if columns.is_empty() {
            return Err(missing("a foreign key needs columns: `columns(first, second)`"));
        }
        let parent =
            parent.ok_or_else(|| missing("a foreign key needs a parent: `row = Parent` or `table = \"parent\"`"))?;
        Ok(ForeignKey { columns, parent })
    }

    fn column_position(&self, ident: &Ident) -> Result<usize> {
        let position = self.columns.iter().position(|column| column.ident == ident);
        position.ok_or_else(|| Error::new(ident.span(), format!("`{}` has no column `{ident}`", self.ident)))
    }

    fn check(&self) -> Result<()> {
        let key_columns = self.columns.iter().filter(|column| column.is_key).count();
        if key_columns == 0 {
            return Err(Error::new(self.ident.span(), "a row needs a primary key: mark its columns with `#[key]`"));
        }
        if key_columns > MAX_KEY_COLUMNS {
            return Err(Error::new(self.ident.span(), "a primary key has at most 8 columns"));
        }
        let mut constants: Vec<String> = self.columns.iter().map(|column| column.name.to_uppercase()).collect();
        for (position, index) in self.indexes.iter().enumerate() {
            if index.columns.len() > MAX_KEY_COLUMNS {
                return Err(Error::new(index.span, "an index has at most 8 columns"));
            }
            if syn::parse_str::<Ident>(&index.name.to_uppercase()).is_err() {
                return Err(Error::new(
                    index.span,
                    "an index's name must be an identifier: a constant is named after it",
                ));
            }
            if self.indexes[..position].iter().any(|other| other.name == index.name) {
                return Err(Error::new(index.span, "another index has this name"));
            }
            if constants.contains(&index.name.to_uppercase()) {
                return Err(Error::new(index.span, "a column has this name, and both become a constant"));
            }
            constants.push(index.name.to_uppercase());
        }
        Ok(())
    }
}

/// The names in `columns(a, b)` or `columns = [a, b]`.
fn column_names(meta: &ParseNestedMeta<'_>) -> Result<Vec<Ident>> {
    let names;
    if meta.input.peek(Token![=]) {
        let value = meta.value()?;
        syn::bracketed!(names in value);
    } else {
        syn::parenthesized!(names in meta.input);
    }
    Ok(names.parse_terminated(Ident::parse_any, Token![,])?.into_iter().collect())
}

/// As `polychron_schema::MAX_KEY_COLUMNS`.
const MAX_KEY_COLUMNS: usize = 8;

fn parse_columns(input: &DeriveInput) -> Result<Vec<Column<'_>>> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.ident.span(), "only a struct can be a row"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new(input.ident.span(), "a row's columns need names: use a struct with named fields"));
    };
    fields.named.iter().map(parse_column).collect()
}

fn parse_column(field: &syn::Field) -> Result<Column<'_>> {
    let ident = field.ident.as_ref().ok_or_else(|| Error::new(field.span(), "a column needs a name"))?;
    let mut column = Column {
        ident,
        column_type: &field.ty,
        docs: field.attrs.iter().filter(|attribute| attribute.path().is_ident("doc")).collect(),
        name: unraw(ident),
        is_key: false,
        max: None,
    };
    for attribute in &field.attrs {
        if attribute.path().is_ident("key") {
            attribute.meta.require_path_only()?;
            column.is_key = true;
        } else if attribute.path().is_ident("column") {
            attribute.parse_nested_meta(|meta| {
                if !meta.path.is_ident("max") {
                    return Err(meta.error("expected `max`"));
                }
                column.max = Some(meta.value()?.parse()?);
                Ok(())
            })?;
        }
    }
    Ok(column)
}

fn is_hash(kind: &LitStr) -> Result<bool> {
    match kind.value().as_str() {
        "hash" => Ok(true),
        "ordered" => Ok(false),
        _ => Err(Error::new(kind.span(), "expected \"ordered\" or \"hash\"")),
    }
}

fn non_empty(name: &LitStr) -> Result<String> {
    if name.value().is_empty() { Err(Error::new(name.span(), "a name cannot be empty")) } else { Ok(name.value()) }
}

pub(crate) fn unraw(ident: &Ident) -> String {
    let text = ident.to_string();
    text.strip_prefix("r#").map_or(text.clone(), str::to_owned)
}

fn snake_case(name: &str) -> String {
    let mut result = String::new();
    let mut previous_lower = false;
    for character in name.chars() {
        if character.is_uppercase() && previous_lower {
            result.push('_');
        }
        previous_lower = !character.is_uppercase();
        result.extend(character.to_lowercase());
    }
    result
}
