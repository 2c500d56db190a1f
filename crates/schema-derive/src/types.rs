//! What the tokens of a type tell of it. A macro sees no types: what is not known by its name is left to the compiler.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::{Error, GenericArgument, Path, PathArguments, PathSegment, Result, Type};

const PLAIN: [&str; 15] =
    ["bool", "i8", "i16", "i32", "i64", "i128", "u8", "u16", "u32", "u64", "u128", "f32", "f64", "char", "String"];

/// Types that are taken for columns by mistake, and what to write in their place.
const OTHERS: [(&str, &str); 17] = [
    ("usize", "its width is the machine's: use `u64` or `u32`"),
    ("isize", "its width is the machine's: use `i64` or `i32`"),
    ("str", "it has no size: use `String`, or `FixedString<N>` for short text of a fixed room"),
    ("Box", "a column owns its value: use the type inside, `String` for `Box<str>`, `Vec<u8>` for `Box<[u8]>`"),
    ("Rc", "a column owns its value: use the type inside"),
    ("Arc", "a column owns its value: use the type inside"),
    ("Cow", "a column owns its value: use `String` or `Vec<u8>`"),
    ("Cell", "rows are changed by updates: use the type inside"),
    ("RefCell", "rows are changed by updates: use the type inside"),
    ("Mutex", "rows are changed by updates: use the type inside"),
    ("HashMap", "a column holds one value: make a table of the entries, with this row's key in theirs"),
    ("BTreeMap", "a column holds one value: make a table of the entries, with this row's key in theirs"),
    ("HashSet", "a column holds one value: make a table of the elements, with this row's key in theirs"),
    ("BTreeSet", "a column holds one value: make a table of the elements, with this row's key in theirs"),
    ("Instant", "it means nothing to another process: use `Timestamp`"),
    ("SystemTime", "use `Timestamp`, which converts from and to it"),
    ("PathBuf", "use `String`, or `Vec<u8>` for paths that are no text"),
];

/// The last segment of a path type.
fn last(column_type: &Type) -> Option<&PathSegment> {
    match column_type {
        Type::Path(path) if path.qself.is_none() => path.path.segments.last(),
        Type::Paren(inner) => last(&inner.elem),
        Type::Group(inner) => last(&inner.elem),
        _ => None,
    }
}

/// The one type argument of a segment, as of `Option<T>`.
fn argument(segment: &PathSegment) -> Option<&Type> {
    match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => match arguments.args.first() {
            Some(GenericArgument::Type(argument)) if arguments.args.len() == 1 => Some(argument),
            _ => None,
        },
        _ => None,
    }
}

/// What is in an `Option`.
pub(crate) fn in_option(column_type: &Type) -> Option<&Type> {
    last(column_type).filter(|segment| segment.ident == "Option").and_then(argument)
}

/// Whether the type is a column type for sure, so that nothing need be said of it to the compiler.
pub(crate) fn is_surely_column(column_type: &Type) -> bool {
    match column_type {
        Type::Array(array) => is_named(&array.elem, "u8"),
        Type::Path(path) if is_simple(&path.path) => {
            let Some(segment) = path.path.segments.last() else { return false };
            match segment.ident.to_string().as_str() {
                "Option" => {
                    argument(segment).is_some_and(|inner| in_option(inner).is_none() && is_surely_column(inner))
                }
                "Vec" => argument(segment).is_some_and(|inner| is_named(inner, "u8")),
                name => PLAIN.contains(&name),
            }
        }
        _ => false,
    }
}

fn is_simple(path: &Path) -> bool {
    path.leading_colon.is_none() && path.segments.len() == 1
}

fn is_named(column_type: &Type, name: &str) -> bool {
    matches!(column_type, Type::Path(path) if path.qself.is_none() && path.path.is_ident(name))
}

/// Whether the type has a maximum, is known by its name not to, or neither.
pub(crate) fn has_max(column_type: &Type) -> Option<bool> {
    let inner = in_option(column_type).unwrap_or(column_type);
    if !is_surely_column(inner) {
        return None;
    }
    Some(last(inner).is_some_and(|segment| segment.ident == "String" || segment.ident == "Vec"))
}

/// Refuses a type that is known to be none of a column.
///
/// # Errors
/// At the type, with what to write in its place.
pub(crate) fn check(column_type: &Type) -> Result<()> {
    let refuse = |span: Span, what: &str| Err(Error::new(span, format!("this is no column type: {what}")));
    let span = column_type.span();
    match column_type {
        Type::Reference(_) => refuse(span, "a column owns its value: use `String` for `&str`, `Vec<u8>` for `&[u8]`"),
        Type::Tuple(tuple) if tuple.elems.is_empty() => refuse(span, "`()` has one value only: remove the field"),
        Type::Tuple(_) => refuse(span, "a column holds one value: make a field of each part of the tuple"),
        Type::Slice(_) => refuse(span, "it has no size: use `Vec<u8>` for bytes"),
        Type::Array(array) if PLAIN.iter().any(|plain| *plain != "u8" && is_named(&array.elem, plain)) => {
            refuse(span, "an array column is one of bytes, `[u8; N]`: make a field of each element, or a table of them")
        }
        Type::Ptr(_) | Type::FnPtr(_) => {
            refuse(span, "a pointer means nothing to another transaction: store the value")
        }
        Type::TraitObject(_) | Type::ImplTrait(_) => refuse(span, "a column has one type: name it"),
        Type::Infer(_) => refuse(span, "a column's type is written out: name it"),
        Type::Paren(inner) => check(&inner.elem),
        Type::Group(inner) => check(&inner.elem),
        Type::Path(_) => check_path(column_type),
        _ => Ok(()),
    }
}

fn check_path(column_type: &Type) -> Result<()> {
    let Some(segment) = last(column_type) else { return Ok(()) };
    let refuse = |what: &str| Err(Error::new(column_type.span(), format!("this is no column type: {what}")));
    if let Some((_, what)) = OTHERS.iter().find(|(name, _)| segment.ident == name) {
        return refuse(what);
    }
    if let Some(inner) = in_option(column_type) {
        if in_option(inner).is_some() {
            return refuse("a value is NULL or not, there is no NULL in a NULL: write one `Option`");
        }
        return check(inner);
    }
    if segment.ident == "Vec"
        && let Some(inner) = argument(segment)
        && (PLAIN.iter().any(|plain| *plain != "u8" && is_named(inner, plain)) || last(inner).is_none())
    {
        return refuse(
            "a list column is one of bytes, `Vec<u8>`: make a table of the elements, with this row's key in theirs",
        );
    }
    Ok(())
}
