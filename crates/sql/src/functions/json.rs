//! JSON.

use super::arrays::array;
use super::strings::check_length;
use super::{Function, functions};
use crate::arrays::Array;
use crate::context::Context;
use crate::datum::Datum;
use crate::error::{SqlError, SqlState};
use crate::json::{Form, Value, known, parse, position, read_json, write_text};

/// A value whose texts are wanted: one of `json` may have what no text has.
fn json<'a>(datum: Datum<'a>) -> Result<Value<'a>, SqlError> {
    parse(raw(datum))
}

/// A value whose kind is wanted alone.
fn any_json<'a>(datum: Datum<'a>) -> Value<'a> {
    read_json(raw(datum)).unwrap_or(Value { raw: "null", of: Form::Null })
}

fn raw<'a>(datum: Datum<'a>) -> &'a str {
    match datum {
        Datum::Json(text) | Datum::Text(text) => text,
        _ => "null",
    }
}

fn text<'a>(datum: Datum<'a>) -> &'a str {
    if let Datum::Text(text) = datum { text } else { unreachable!("a text") }
}

fn int(datum: Datum<'_>) -> i64 {
    if let Datum::Int(value) = datum { value } else { unreachable!("an integer") }
}

/// A part of a value, of its type.
fn part<'a>(of: Datum<'a>, part: Option<&Value<'a>>) -> Datum<'a> {
    match (of, part) {
        (_, None) => Datum::Null,
        (Datum::Json(_), Some(part)) => Datum::Json(part.raw),
        (_, Some(part)) => Datum::Text(part.raw),
    }
}

/// The element at a position. A `jsonb` that is no array and no object is an array of itself here.
fn item<'v, 'a>(of: Datum<'_>, value: &'v Value<'a>, at: i64) -> Option<&'v Value<'a>> {
    let is_scalar = matches!(of, Datum::Json(_)) && !matches!(value.of, Form::Array(_) | Form::Object(_));
    if is_scalar { Some(value).filter(|_| matches!(at, 0 | -1)) } else { value.item(at) }
}

/// The same as text.
fn shown<'a>(context: &Context<'a>, part: Option<&Value<'a>>) -> Datum<'a> {
    part.and_then(Value::text).map_or(Datum::Null, |text| Datum::Text(context.arena.alloc_str(text)))
}

/// The steps of a path; nothing if one of them is NULL.
fn path<'a>(of: Datum<'a>) -> Option<Vec<&'a str>> {
    array(of).items().map(|step| if let Datum::Text(step) = step { Some(step) } else { None }).collect()
}

fn at_path<'a>(of: &Value<'a>, steps: Datum<'a>) -> Option<Value<'a>> {
    path(steps).and_then(|steps| of.path(&steps).cloned())
}

fn made<'a>(
    context: &Context<'a>,
    write: impl FnOnce(&mut String) -> Result<(), SqlError>,
) -> Result<Datum<'a>, SqlError> {
    let mut out = String::new();
    write(&mut out)?;
    Ok(Datum::Json(context.arena.alloc_str(&out)))
}

/// The normal form of items, or of pairs.
fn list(parts: &[&str], out: &mut String) {
    out.push('[');
    out.push_str(&parts.join(", "));
    out.push(']');
}

fn object(pairs: &[(&str, &str)], out: &mut String) -> Result<(), SqlError> {
    let mut text = String::from("{");
    for (at, (key, value)) in pairs.iter().enumerate() {
        text.push_str(if at > 0 { "," } else { "" });
        write_text(key, &mut text);
        text.push(':');
        text.push_str(value);
    }
    text.push('}');
    known(&text).write(out)
}

fn concatenated<'a>(context: &Context<'a>, one: Datum<'a>, other: Datum<'a>) -> Result<Datum<'a>, SqlError> {
    let (a, b) = (json(one)?, json(other)?);
    check_length(a.raw.len() + b.raw.len())?;
    made(context, |out| match (&a.of, &b.of) {
        (Form::Object(own), Form::Object(more)) => {
            let pairs: Vec<_> = own.iter().chain(more).map(|(key, value)| (&**key, value.raw)).collect();
            object(&pairs, out)
        }
        _ => {
            let parts = [&a, &b].into_iter().flat_map(|it| match &it.of {
                Form::Array(items) => items.iter().map(|item| item.raw).collect(),
                _ => vec![it.raw],
            });
            list(&parts.collect::<Vec<_>>(), out);
            Ok(())
        }
    })
}

fn wrong_kind(message: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// Without these keys, or elements that are these texts.
fn without_keys<'a>(context: &Context<'a>, of: Datum<'a>, keys: &[&str]) -> Result<Datum<'a>, SqlError> {
    let value = json(of)?;
    made(context, |out| match &value.of {
        Form::Object(pairs) => {
            let left = pairs.iter().filter(|(key, _)| !keys.contains(&&**key));
            object(&left.map(|(key, value)| (&**key, value.raw)).collect::<Vec<_>>(), out)
        }
        Form::Array(items) => {
            let is_named = |item: &&Value<'_>| matches!(&item.of, Form::Text(text) if keys.contains(&&**text));
            list(&items.iter().filter(|item| !is_named(item)).map(|item| item.raw).collect::<Vec<_>>(), out);
            Ok(())
        }
        _ => Err(wrong_kind("cannot delete from scalar")),
    })
}

fn without_item<'a>(context: &Context<'a>, of: Datum<'a>, at: i64) -> Result<Datum<'a>, SqlError> {
    let value = json(of)?;
    match &value.of {
        Form::Array(items) => {
            let at = position(items.len(), at);
            let left = items.iter().enumerate().filter(|(own, _)| Some(*own) != at).map(|(_, item)| item.raw);
            made(context, |out| {
                list(&left.collect::<Vec<_>>(), out);
                Ok(())
            })
        }
        Form::Object(_) => Err(wrong_kind("cannot delete from object using integer index")),
        _ => Err(wrong_kind("cannot delete from scalar")),
    }
}

/// What happens at the end of a path.
#[derive(Clone, Copy)]
enum Change<'a> {
    /// Another value, which may be a new one.
    Set(&'a str, bool),
    /// A new value before or behind the one that is there.
    Insert(&'a str, bool),
    Delete,
}

/// The value with a change at a path.
fn changed(value: &Value<'_>, path: &[&str], number: usize, change: Change<'_>) -> Result<String, SqlError> {
    let Some((step, rest)) = path.split_first() else { return Ok(value.raw.to_owned()) };
    let is_last = rest.is_empty();
    match &value.of {
        Form::Object(pairs) => {
            let mut made: Vec<(&str, String)> = Vec::new();
            let mut is_found = false;
            for (key, own) in pairs {
                if **key != **step {
                    made.push((key, own.raw.to_owned()));
                    continue;
                }
                is_found = true;
                match change {
                    Change::Delete if is_last => {}
                    Change::Insert(..) if is_last => {
                        return Err(wrong_kind("cannot replace existing key")
                            .with_hint("Try using the function jsonb_set to replace key value."));
                    }
                    Change::Set(new, _) if is_last => made.push((key, new.to_owned())),
                    _ => made.push((key, changed(own, rest, number + 1, change)?)),
                }
            }
            if let (false, true, Change::Set(new, true) | Change::Insert(new, _)) = (is_found, is_last, change) {
                made.push((step, new.to_owned()));
            }
            let mut out = String::new();
            object(&made.iter().map(|(key, value)| (*key, value.as_str())).collect::<Vec<_>>(), &mut out)?;
            Ok(out)
        }
        Form::Array(items) => {
            let bad = || {
                let message = format!("path element at position {} is not an integer: \"{step}\"", number + 1);
                SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
            };
            let at: i64 = step.parse().map_err(|_| bad())?;
            let mut made: Vec<String> = items.iter().map(|item| item.raw.to_owned()).collect();
            let found = position(items.len(), at).filter(|at| *at < items.len());
            match (found, change) {
                (Some(at), Change::Delete) if is_last => drop(made.remove(at)),
                (Some(at), Change::Set(new, _)) if is_last => new.clone_into(&mut made[at]),
                (Some(at), Change::Insert(new, is_behind)) if is_last => {
                    made.insert(at + usize::from(is_behind), new.to_owned());
                }
                (Some(at), _) => made[at] = changed(&items[at], rest, number + 1, change)?,
                (None, Change::Set(new, true) | Change::Insert(new, _)) if is_last => {
                    made.insert(if at < 0 { 0 } else { made.len() }, new.to_owned());
                }
                _ => {}
            }
            let mut out = String::new();
            list(&made.iter().map(String::as_str).collect::<Vec<_>>(), &mut out);
            Ok(out)
        }
        _ => Ok(value.raw.to_owned()),
    }
}

fn change_at<'a>(
    context: &Context<'a>,
    of: Datum<'a>,
    steps: Datum<'a>,
    change: Change<'_>,
) -> Result<Datum<'a>, SqlError> {
    let value = json(of)?;
    if !matches!(value.of, Form::Array(_) | Form::Object(_)) {
        let what =
            if matches!(change, Change::Delete) { "cannot delete path in scalar" } else { "cannot set path in scalar" };
        return Err(wrong_kind(what));
    }
    let Some(steps) = path(steps) else {
        return Err(SqlError::new(SqlState("22004"), "path element at position 1 is null"));
    };
    let text = changed(&value, &steps, 0, change)?;
    Ok(Datum::Json(context.arena.alloc_str(&text)))
}

fn stripped(value: &Value<'_>, out: &mut String) -> Result<(), SqlError> {
    match &value.of {
        Form::Object(pairs) => {
            let mut made = Vec::new();
            for (key, value) in pairs.iter().filter(|(_, value)| !matches!(value.of, Form::Null)) {
                let mut text = String::new();
                stripped(value, &mut text)?;
                made.push((&**key, text));
            }
            object(&made.iter().map(|(key, value)| (*key, value.as_str())).collect::<Vec<_>>(), out)
        }
        Form::Array(items) => {
            let mut made = Vec::new();
            for item in items {
                let mut text = String::new();
                stripped(item, &mut text)?;
                made.push(text);
            }
            list(&made.iter().map(String::as_str).collect::<Vec<_>>(), out);
            Ok(())
        }
        _ => value.write(out),
    }
}

fn length<'a>(of: Datum<'a>) -> Result<Datum<'a>, SqlError> {
    match any_json(of).of {
        Form::Array(items) => Ok(Datum::Int(items.len() as i64)),
        Form::Object(_) => Err(wrong_kind("cannot get array length of a non-array")),
        _ => Err(wrong_kind("cannot get array length of a scalar")),
    }
}

/// The elements of an array, or its texts.
fn elements<'a>(context: &Context<'a>, of: Datum<'a>, is_text: bool) -> Result<Datum<'a>, SqlError> {
    let value = json(of)?;
    let Form::Array(items) = &value.of else {
        let message = match value.of {
            Form::Object(_) => "cannot extract elements from an object",
            _ => "cannot extract elements from a scalar",
        };
        return Err(wrong_kind(message));
    };
    let items = items.iter().map(|item| if is_text { shown(context, Some(item)) } else { part(of, Some(item)) });
    Ok(Array::list(context.arena, &items.collect::<Vec<_>>()))
}

/// The pairs of an object, one behind the other, or the keys alone.
fn pairs<'a>(
    context: &Context<'a>,
    of: Datum<'a>,
    (name, is_text): (&str, Option<bool>),
) -> Result<Datum<'a>, SqlError> {
    let value = json(of)?;
    let Form::Object(pairs) = &value.of else {
        let is_array = matches!(value.of, Form::Array(_));
        let message = match (name, is_array) {
            ("jsonb_each" | "jsonb_each_text", _) => format!("cannot call {name} on a non-object"),
            ("json_each" | "json_each_text", true) => "cannot deconstruct an array as an object".to_owned(),
            ("json_each" | "json_each_text", false) => "cannot deconstruct a scalar".to_owned(),
            (_, true) => format!("cannot call {name} on an array"),
            (_, false) => format!("cannot call {name} on a scalar"),
        };
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    };
    let mut made = Vec::new();
    for (key, value) in pairs {
        made.push(Datum::Text(context.arena.alloc_str(key)));
        match is_text {
            None => {}
            Some(true) => made.push(shown(context, Some(value))),
            Some(false) => made.push(part(of, Some(value))),
        }
    }
    Ok(Array::list(context.arena, &made))
}

fn has_key(of: &Value<'_>, key: &str) -> bool {
    match &of.of {
        Form::Object(pairs) => pairs.iter().any(|(own, _)| own == key),
        Form::Array(items) => items.iter().any(|item| matches!(&item.of, Form::Text(text) if text == key)),
        Form::Text(text) => text == key,
        _ => false,
    }
}

fn keys<'a>(of: Datum<'a>) -> impl Iterator<Item = &'a str> {
    array(of).items().filter_map(|key| if let Datum::Text(key) = key { Some(key) } else { None })
}

/// The parts of an object that is being built: keys and values, one behind the other.
fn built<'a>(context: &Context<'a>, of: Datum<'a>, is_binary: bool) -> Result<Datum<'a>, SqlError> {
    let parts: Vec<_> = array(of).items().collect();
    let mut made = Vec::new();
    for (at, pair) in parts.chunks(2).enumerate() {
        let [Datum::Text(key), value] = pair else {
            let message = match is_binary {
                true => format!("argument {}: key must not be null", at * 2 + 1),
                false => format!("argument {} cannot be null", at * 2 + 1),
            };
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
        };
        made.push((*key, raw(*value)));
    }
    if is_binary {
        return super::json::made(context, |out| object(&made, out));
    }
    let pairs = made.iter().map(|(key, value)| {
        let mut text = String::new();
        write_text(key, &mut text);
        format!("{text} : {value}")
    });
    let text = format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "));
    Ok(Datum::Text(context.arena.alloc_str(&text)))
}

fn built_list<'a>(context: &Context<'a>, of: Datum<'a>, is_binary: bool) -> Datum<'a> {
    let mut text = String::new();
    list(&array(of).items().map(raw).collect::<Vec<_>>(), &mut text);
    let text = context.arena.alloc_str(&text);
    if is_binary { Datum::Json(text) } else { Datum::Text(text) }
}

/// What has the same form for both types.
macro_rules! of_both {
    ($($type:ident $binary:literal: $length:literal $kind:literal $elements:literal $texts:literal $each:literal $each_text:literal $keys:literal $build:literal $list:literal $path:literal $path_text:literal $strip:literal;)*) => {
        functions! {
            $(
                "->"($type, Text) -> $type = |it, _| Ok(part(it[0], json(it[0])?.key(text(it[1]))));
                "->"($type, Int4) -> $type = |it, _| Ok(part(it[0], item(it[0], &json(it[0])?, int(it[1]))));
                "->>"($type, Text) -> Text = |it, context| Ok(shown(context, json(it[0])?.key(text(it[1]))));
                "->>"($type, Int4) -> Text = |it, context| Ok(shown(context, item(it[0], &json(it[0])?, int(it[1]))));
                "#>"($type, Texts) -> $type = |it, _| Ok(part(it[0], at_path(&json(it[0])?, it[1]).as_ref()));
                "#>>"($type, Texts) -> Text = |it, context| Ok(shown(context, at_path(&json(it[0])?, it[1]).as_ref()));
                $path($type, Texts) -> $type = |it, _| Ok(part(it[0], at_path(&json(it[0])?, it[1]).as_ref()));
                $path_text($type, Texts) -> Text = |it, context| Ok(shown(context, at_path(&json(it[0])?, it[1]).as_ref()));
                $length($type) -> Int4 = |it, _| length(it[0]);
                $kind($type) -> Text = |it, _| Ok(Datum::Text(any_json(it[0]).kind()));
                $elements($type) -> $type = |it, context| elements(context, it[0], false);
                $texts($type) -> Text = |it, context| elements(context, it[0], true);
                $each($type) -> $type = |it, context| pairs(context, it[0], ($each, Some(false)));
                $each_text($type) -> Text = |it, context| pairs(context, it[0], ($each_text, Some(true)));
                $keys($type) -> Text = |it, context| pairs(context, it[0], ($keys, None));
                $build(Texts) -> $type = |it, context| built(context, it[0], $binary);
                $list(Texts) -> $type = |it, context| Ok(built_list(context, it[0], $binary));
                $strip($type) -> $type = |it, context| {
                    let made = made(context, |out| stripped(&json(it[0])?, out))?;
                    Ok(if $binary { made } else { Datum::Text(raw(made)) })
                };
            )*
            "@>"(Jsonb, Jsonb) -> Bool = |it, _| Ok(Datum::Bool(json(it[0])?.contains(&json(it[1])?)));
            "<@"(Jsonb, Jsonb) -> Bool = |it, _| Ok(Datum::Bool(json(it[1])?.contains(&json(it[0])?)));
            "?"(Jsonb, Text) -> Bool = |it, _| Ok(Datum::Bool(has_key(&json(it[0])?, text(it[1]))));
            "?|"(Jsonb, Texts) -> Bool = |it, _| {
                let of = json(it[0])?;
                Ok(Datum::Bool(keys(it[1]).any(|key| has_key(&of, key))))
            };
            "?&"(Jsonb, Texts) -> Bool = |it, _| {
                let of = json(it[0])?;
                Ok(Datum::Bool(keys(it[1]).all(|key| has_key(&of, key))))
            };
            "||"(Jsonb, Jsonb) -> Jsonb = |it, context| concatenated(context, it[0], it[1]);
            "-"(Jsonb, Text) -> Jsonb = |it, context| without_keys(context, it[0], &[text(it[1])]);
            "-"(Jsonb, Texts) -> Jsonb = |it, context| without_keys(context, it[0], &keys(it[1]).collect::<Vec<_>>());
            "-"(Jsonb, Int4) -> Jsonb = |it, context| without_item(context, it[0], int(it[1]));
            "#-"(Jsonb, Texts) -> Jsonb = |it, context| change_at(context, it[0], it[1], Change::Delete);
            "jsonb_set"(Jsonb, Texts, Jsonb) -> Jsonb = |it, context| {
                change_at(context, it[0], it[1], Change::Set(raw(it[2]), true))
            };
            "jsonb_set"(Jsonb, Texts, Jsonb, Bool) -> Jsonb = |it, context| {
                change_at(context, it[0], it[1], Change::Set(raw(it[2]), matches!(it[3], Datum::Bool(true))))
            };
            "jsonb_insert"(Jsonb, Texts, Jsonb) -> Jsonb = |it, context| {
                change_at(context, it[0], it[1], Change::Insert(raw(it[2]), false))
            };
            "jsonb_insert"(Jsonb, Texts, Jsonb, Bool) -> Jsonb = |it, context| {
                change_at(context, it[0], it[1], Change::Insert(raw(it[2]), matches!(it[3], Datum::Bool(true))))
            };
            "jsonb_pretty"(Jsonb) -> Text = |it, context| {
                let mut out = String::new();
                json(it[0])?.write_pretty(0, &mut out)?;
                Ok(Datum::Text(context.arena.alloc_str(&out)))
            };
        }
    };
}

pub(super) const FUNCTIONS: &[Function] = of_both! {
    Json false: "json_array_length" "json_typeof" "json_array_elements" "json_array_elements_text" "json_each" "json_each_text"
        "json_object_keys" "json_build_object" "json_build_array" "json_extract_path" "json_extract_path_text" "json_strip_nulls";
    Jsonb true: "jsonb_array_length" "jsonb_typeof" "jsonb_array_elements" "jsonb_array_elements_text" "jsonb_each" "jsonb_each_text"
        "jsonb_object_keys" "jsonb_build_object" "jsonb_build_array" "jsonb_extract_path" "jsonb_extract_path_text" "jsonb_strip_nulls";
};
