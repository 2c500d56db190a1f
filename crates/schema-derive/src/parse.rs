//! Reads the struct and its attributes.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DeriveInput, Error, Expr, Fields, GenericParam, Ident, LitStr, Path, Result, Token, Type,
    Visibility,
};

use crate::problems::{Options, Problems, unknown_column};
use crate::types;

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
    /// Where it is marked as part of the primary key.
    pub(crate) key: Option<Span>,
    pub(crate) max: Option<Expr>,
    /// The name that it had before.
    pub(crate) was: Option<LitStr>,
    /// What it holds in older rows.
    pub(crate) default: Option<Expr>,
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
    pub(crate) span: Span,
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

/// As `polychron_schema::MAX_TYPED_KEY_COLUMNS`.
const MAX_KEY_COLUMNS: usize = 8;

/// Constants of every row besides its columns and indexes.
const CONSTANTS: [&str; 2] = ["ROW_COLUMNS", "ROW_LAYOUT"];

impl<'a> Table<'a> {
    pub(crate) fn parse(input: &'a DeriveInput) -> Result<Self> {
        let mut problems = Problems::default();
        check_generics(input, &mut problems);
        let columns = parse_columns(input, &mut problems);
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
        // Of a struct without columns nothing else can be said.
        if !table.columns.is_empty() {
            table.parse_attributes(input, &mut problems);
            table.check(&mut problems);
        }
        problems.finish()?;
        Ok(table)
    }

    fn parse_attributes(&mut self, input: &DeriveInput, problems: &mut Problems) {
        let mut options = Options::new(&["name", "primary", "expected_rows", "partition", "crate"]);
        for attribute in &input.attrs {
            let path = attribute.path();
            if path.is_ident("row") {
                problems.take(attribute.parse_nested_meta(|meta| self.parse_row_option(options.next(&meta)?, &meta)));
            } else if path.is_ident("index") {
                self.indexes.extend(problems.take(self.parse_index(attribute)));
            } else if path.is_ident("references") {
                self.foreign_keys.extend(problems.take(self.parse_foreign_key(attribute)));
            } else if path.is_ident("key") {
                problems.add(path.span(), "`#[key]` marks fields: put it above each field of the primary key");
            } else if path.is_ident("column") {
                problems.add(path.span(), "`#[column(…)]` is of a field: put it above the field that is meant");
            }
        }
    }

    fn parse_row_option(&mut self, option: &str, meta: &ParseNestedMeta<'_>) -> Result<()> {
        match option {
            "name" => self.name = non_empty(&meta.value()?.parse()?)?,
            "primary" => self.primary_hash = is_hash(&meta.value()?.parse()?)?,
            "expected_rows" => self.expected_rows = Some(meta.value()?.parse()?),
            "partition" => self.partition = Some(self.column_position(&meta.value()?.parse()?)?),
            _ => self.root = Some(meta.value()?.parse()?),
        }
        Ok(())
    }

    fn parse_index(&self, attribute: &Attribute) -> Result<Index> {
        let mut index =
            Index { name: String::new(), span: attribute.span(), columns: Vec::new(), unique: false, hash: false };
        let mut options = Options::new(&["name", "columns", "unique", "kind"]);
        require_list(attribute, "index(columns(first, second))")?;
        attribute.parse_nested_meta(|meta| {
            match options.next(&meta)? {
                "name" => {
                    let name: LitStr = meta.value()?.parse()?;
                    index.span = name.span();
                    index.name = non_empty(&name)?;
                }
                "columns" => index.columns = self.parse_key_columns(&meta)?,
                "unique" => index.unique = true,
                _ => index.hash = is_hash(&meta.value()?.parse()?)?,
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
        let mut options = Options::new(&["row", "table", "columns"]);
        require_list(attribute, "references(row = Parent, columns(first, second))")?;
        attribute.parse_nested_meta(|meta| {
            let option = options.next(&meta)?;
            if option == "columns" {
                columns = self.parse_key_columns(&meta)?;
                return Ok(());
            }
            let named = match option {
                "row" => Parent::Row(meta.value()?.parse()?),
                _ => Parent::Name(non_empty(&meta.value()?.parse()?)?),
            };
            if parent.replace(named).is_some() {
                return Err(meta.error("a foreign key has one parent: remove `row` or `table`"));
            }
            Ok(())
        })?;
        let missing = |what| Error::new(attribute.span(), what);
        if columns.is_empty() {
            return Err(missing("a foreign key needs columns: `columns(first, second)`"));
        }
        let parent =
            parent.ok_or_else(|| missing("a foreign key needs a parent: `row = Parent` or `table = \"parent\"`"))?;
        Ok(ForeignKey { span: attribute.span(), columns, parent })
    }

    /// The positions in `columns(a, b)`.
    fn parse_key_columns(&self, meta: &ParseNestedMeta<'_>) -> Result<Vec<usize>> {
        let mut positions = Vec::new();
        for column in column_names(meta)? {
            let position = self.column_position(&column)?;
            if positions.contains(&position) {
                return Err(Error::new(column.span(), format!("`{column}` stands here twice: remove one")));
            }
            if positions.len() == MAX_KEY_COLUMNS {
                return Err(Error::new(column.span(), "a key has at most 8 columns: leave some out"));
            }
            positions.push(position);
        }
        Ok(positions)
    }

    fn column_position(&self, ident: &Ident) -> Result<usize> {
        let position = self.columns.iter().position(|column| column.ident == ident);
        position.ok_or_else(|| {
            unknown_column(self.ident, ident, &self.columns.iter().map(|column| column.ident).collect::<Vec<_>>())
        })
    }

    fn check(&self, problems: &mut Problems) {
        self.check_key(problems);
        self.check_names(problems);
        self.check_history(problems);
        for (position, index) in self.indexes.iter().enumerate() {
            if self.indexes[..position].iter().any(|other| other.name == index.name) {
                let what = format!("another index is called `{}`: give this one a name, `name = \"…\"`", index.name);
                problems.add(index.span, what);
            }
        }
        for foreign_key in &self.foreign_keys {
            self.check_index_of(foreign_key, problems);
        }
    }

    fn check_key(&self, problems: &mut Problems) {
        let keys: Vec<_> = self.columns.iter().filter(|column| column.key.is_some()).collect();
        if keys.is_empty() {
            problems.add(self.ident.span(), "a row needs a primary key: mark its columns with `#[key]`");
        }
        if let Some(column) = keys.get(MAX_KEY_COLUMNS) {
            problems.add(column.ident.span(), "a primary key has at most 8 columns: mark fewer with `#[key]`");
        }
        for column in keys.into_iter().filter(|column| types::in_option(column.column_type).is_some()) {
            problems.add(
                column.column_type.span(),
                "a column of the primary key cannot be NULL: remove the `Option`, or take `#[key]` off",
            );
        }
    }

    /// Checks what is said of the past.
    fn check_history(&self, problems: &mut Problems) {
        for (position, column) in self.columns.iter().enumerate() {
            if let (Some(_), Some(default)) = (column.key, &column.default) {
                let what = "a column of the primary key is in every older table: remove `default`";
                problems.add(default.span(), what);
            }
            let Some(was) = &column.was else { continue };
            let is_other = |other: &Column<'_>| other.was.as_ref().is_some_and(|other| other.value() == was.value());
            if self.columns[..position].iter().any(is_other) {
                problems
                    .add(was.span(), format!("another column `was` \"{}\" as well: a column becomes one", was.value()));
            }
        }
    }

    /// Checks that no two things that are made have the same name.
    fn check_names(&self, problems: &mut Problems) {
        let mut constants: Vec<String> = CONSTANTS.map(str::to_owned).into();
        for column in &self.columns {
            let constant = column.name.to_uppercase();
            if constants.contains(&constant) {
                problems.add(
                    column.ident.span(),
                    format!(
                        "the column becomes the constant `{constant}`, and there is one of this name: rename the field"
                    ),
                );
            }
            constants.push(constant);
            let read = column.name.strip_prefix("set_");
            if let Some(other) = self.columns.iter().find(|other| other.key.is_none() && Some(&other.name[..]) == read)
            {
                problems.add(
                    column.ident.span(),
                    format!(
                        "`{}` is also what sets the column `{}`: rename one of the fields",
                        column.name, other.name
                    ),
                );
            }
        }
        for index in &self.indexes {
            let constant = index.name.to_uppercase();
            if syn::parse_str::<Ident>(&constant).is_err() {
                problems.add(index.span, "an index's name must be an identifier: a constant is named after it");
            } else if self.columns.iter().any(|column| column.name.to_uppercase() == constant)
                || CONSTANTS.contains(&&*constant)
            {
                problems
                    .add(index.span, "a column has this name, and both become a constant: give the index another one");
            }
        }
    }

    /// As `TableDefinition::index_for`, which says why.
    fn check_index_of(&self, foreign_key: &ForeignKey, problems: &mut Problems) {
        let columns = &foreign_key.columns[..];
        let serves = |key: &[usize], is_hash: bool| if is_hash { key == columns } else { key.starts_with(columns) };
        let primary: Vec<usize> = (0..self.columns.len()).filter(|&at| self.columns[at].key.is_some()).collect();
        // A hash index whose entries carry the primary key as well is ordered by its columns.
        let is_hash = |index: &Index| {
            let nullable = |&at: &usize| types::in_option(self.columns[at].column_type).is_some();
            index.hash && index.unique && !index.columns.iter().any(nullable)
        };
        let is_served = serves(&primary, self.primary_hash)
            || self.indexes.iter().any(|index| serves(&index.columns, is_hash(index)));
        if !is_served {
            let names: Vec<_> = columns.iter().map(|&at| self.columns[at].name.as_str()).collect();
            problems.add(
                foreign_key.span,
                format!(
                    "a foreign key needs an index that begins with its columns, to find the rows that refer to a parent: add \
                     `#[index(columns({}))]`",
                    names.join(", ")
                ),
            );
        }
    }
}

fn check_generics(input: &DeriveInput, problems: &mut Problems) {
    if let Some(parameter) = input.generics.params.first() {
        let what = match parameter {
            GenericParam::Lifetime(_) => {
                "a row owns its values and has no lifetime: use `String` and `Vec<u8>`; what is read from a table is borrowed all the same"
            }
            _ => "a row cannot be generic: its layout is one constant. Name the types of its columns",
        };
        problems.add(parameter.span(), what);
    }
}

fn parse_columns<'a>(input: &'a DeriveInput, problems: &mut Problems) -> Vec<Column<'a>> {
    let data = match &input.data {
        Data::Struct(data) => data,
        Data::Enum(data) => {
            let what = "an enum is no row: make it a column type with `#[derive(Column)]`, and use it in a struct";
            problems.add(data.enum_token.span, what);
            return Vec::new();
        }
        Data::Union(data) => {
            problems.add(data.union_token.span, "a union is no row: use a struct with named fields");
            return Vec::new();
        }
    };
    match &data.fields {
        Fields::Named(fields) if !fields.named.is_empty() => {
            fields.named.iter().filter_map(|field| parse_column(field, problems)).collect()
        }
        Fields::Unnamed(_) => {
            let what = "a row's columns need names: use a struct with named fields. For a column type of its own around one \
                        value derive `Column`";
            problems.add(input.ident.span(), what);
            Vec::new()
        }
        Fields::Named(_) | Fields::Unit => {
            problems.add(
                input.ident.span(),
                "a row needs columns: give the struct fields, one of them marked with `#[key]`",
            );
            Vec::new()
        }
    }
}

fn parse_column<'a>(field: &'a syn::Field, problems: &mut Problems) -> Option<Column<'a>> {
    let ident = field.ident.as_ref()?;
    let mut column = Column {
        ident,
        column_type: &field.ty,
        docs: field.attrs.iter().filter(|attribute| attribute.path().is_ident("doc")).collect(),
        name: unraw(ident),
        key: None,
        max: None,
        was: None,
        default: None,
    };
    problems.take(types::check(&field.ty));
    let mut options = Options::new(&["max", "default", "was"]);
    for attribute in &field.attrs {
        let path = attribute.path();
        if path.is_ident("key") {
            if attribute.meta.require_path_only().is_err() {
                problems
                    .add(attribute.span(), "`#[key]` has no options: the columns of the key have the fields' order");
            } else if column.key.replace(path.span()).is_some() {
                problems.add(path.span(), "`#[key]` stands here twice: remove one");
            }
        } else if path.is_ident("column") {
            problems.take(parse_column_options(attribute, &mut column, &mut options));
        } else if path.is_ident("index") {
            let what = format!("an index stands above the struct: write `#[index(columns({ident}))]` there");
            problems.add(path.span(), what);
        } else if path.is_ident("references") {
            let what = format!(
                "a foreign key stands above the struct: write `#[references(row = Parent, columns({ident}))]` there"
            );
            problems.add(path.span(), what);
        } else if path.is_ident("row") {
            problems.add(path.span(), "`#[row(…)]` stands above the struct: for a column there is `#[column(…)]`");
        }
    }
    Some(column)
}

fn parse_column_options(attribute: &Attribute, column: &mut Column<'_>, options: &mut Options) -> Result<()> {
    require_list(attribute, "column(max = 100)")?;
    attribute.parse_nested_meta(|meta| {
        match options.next(&meta)? {
            "max" => {
                column.max = Some(meta.value()?.parse()?);
                if types::has_max(column.column_type) == Some(false) {
                    return Err(meta.error("only `String` and `Vec<u8>` have a maximum: remove `max`"));
                }
            }
            "default" => column.default = Some(meta.value()?.parse()?),
            _ => {
                let was: LitStr = meta.value()?.parse()?;
                if non_empty(&was)? == column.name {
                    return Err(Error::new(was.span(), "this is the column's name now: remove `was`"));
                }
                column.was = Some(was);
            }
        }
        Ok(())
    })
}

/// Refuses an attribute without parentheses.
fn require_list(attribute: &Attribute, example: &str) -> Result<()> {
    match attribute.meta {
        syn::Meta::List(_) => Ok(()),
        _ => Err(Error::new(attribute.span(), format!("this attribute has options: write `#[{example}]`"))),
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

fn is_hash(kind: &LitStr) -> Result<bool> {
    match kind.value().as_str() {
        "hash" => Ok(true),
        "ordered" => Ok(false),
        _ => Err(Error::new(kind.span(), "there is no such kind of index: write \"ordered\" or \"hash\"")),
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
