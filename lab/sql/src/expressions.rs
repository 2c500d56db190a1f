//! Expressions of a wanted type, as text.

use crate::draw::Draw;
use crate::kinds::Kind::{self, *};
use crate::schema::Schema;

/// The columns that an expression may name, with their types.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Names, as they are written, and types.
    pub columns: Vec<(String, Kind)>,
}

/// Writes expressions.
#[derive(Debug)]
pub(crate) struct Writer<'w> {
    pub(crate) draw: &'w mut Draw,
    /// The tables of subqueries; without tables there are none.
    pub(crate) schema: &'w Schema,
    /// Once in how many times a literal is at the edge of its type.
    pub(crate) rarity: usize,
    aliases: usize,
}

const COMPARISONS: [&str; 6] = ["=", "<>", "<", "<=", ">", ">="];
const PATTERNS: [&str; 9] = ["'a%'", "'%b'", "'_'", "'%'", "'a\\%'", "'_b%'", "'%a%b%'", "''", "'A%'"];

/// A condition on columns of the scope, with subqueries over the tables.
pub fn condition(draw: &mut Draw, schema: &Schema, scope: &Scope, depth: usize) -> String {
    Writer::new(draw, schema, 30).condition(scope, depth)
}

/// A regular expression of few letters, in which parts prefer longer or shorter matches.
pub(crate) fn regular_expression(draw: &mut Draw) -> String {
    let mut text = String::new();
    for _ in 0..draw.within(1, 3) {
        text += draw.word(&["a", "b", ".", "[^a]", "(a|ab)", "(b|)", "(?:ab|a)", "(a*)", "\\w", "(.)"]);
        text += draw.word(&["", "", "", "*", "+", "?", "*?", "+?", "??", "{1,2}", "{0,2}?"]);
        if draw.once_in(7) {
            text += "|";
        }
    }
    match draw.below(8) {
        0 => format!("^{text}"),
        1 => format!("{text}$"),
        _ => text,
    }
}

impl<'w> Writer<'w> {
    pub(crate) fn new(draw: &'w mut Draw, schema: &'w Schema, rarity: usize) -> Self {
        Self { draw, schema, rarity, aliases: 0 }
    }

    /// A name for a table of a FROM that no other one has.
    pub(crate) fn alias(&mut self) -> String {
        self.aliases += 1;
        format!("x{}", self.aliases)
    }

    pub(crate) fn kind(&mut self) -> Kind {
        *self.draw.one(&Kind::ALL)
    }

    /// A type that columns of the scope have, where there are any.
    pub(crate) fn kind_of(&mut self, scope: &Scope) -> Kind {
        if scope.columns.is_empty() || self.draw.once_in(4) { self.kind() } else { self.draw.one(&scope.columns).1 }
    }

    /// A column or a literal.
    pub(crate) fn leaf(&mut self, kind: Kind, scope: &Scope) -> String {
        let columns: Vec<_> = scope.columns.iter().filter(|(_, of)| *of == kind).map(|(name, _)| name).collect();
        if columns.is_empty() || self.draw.once_in(4) {
            return kind.literal(self.draw, self.rarity);
        }
        (*self.draw.one(&columns)).clone()
    }

    /// An expression of the type.
    pub(crate) fn of(&mut self, kind: Kind, scope: &Scope, depth: usize) -> String {
        if depth == 0 || self.draw.once_in(5) {
            return self.leaf(kind, scope);
        }
        if kind != Bool && self.draw.once_in(4) {
            return self.general(kind, scope, depth - 1);
        }
        let depth = depth - 1;
        match kind {
            Bool => self.condition(scope, depth),
            Int2 | Int4 | Int8 => self.integer(kind, scope, depth),
            Float4 | Float8 => self.float(kind, scope, depth),
            Numeric => self.numeric(scope, depth),
            Text | Varchar | Char => self.text(kind, scope, depth),
            Bytea => self.bytes(scope, depth),
            Date | Time | Timestamp | Timestamptz | Interval => self.time(kind, scope, depth),
            Uuid | Mood => self.general(kind, scope, depth),
            Ints | Texts => self.array(kind, scope, depth),
            Jsonb => self.json(scope, depth),
        }
    }

    /// What there is of every type.
    fn general(&mut self, kind: Kind, scope: &Scope, depth: usize) -> String {
        match self.draw.below(7) {
            0 => {
                let [when, then] = [self.condition(scope, depth), self.of(kind, scope, depth)];
                format!("CASE WHEN {when} THEN {then} ELSE {} END", self.of(kind, scope, depth))
            }
            1 => {
                let by = self.kind_of(scope);
                let [of, is] = [self.of(by, scope, depth), self.leaf(by, scope)];
                format!("CASE {of} WHEN {is} THEN {} END", self.of(kind, scope, depth))
            }
            2 => format!("COALESCE({}, {})", self.of(kind, scope, depth), self.of(kind, scope, depth)),
            3 => format!("NULLIF({}, {})", self.of(kind, scope, depth), self.of(kind, scope, depth)),
            4 => {
                let name = self.draw.word(&["GREATEST", "LEAST"]);
                format!("{name}({}, {})", self.of(kind, scope, depth), self.of(kind, scope, depth))
            }
            5 => self.scalar_subquery(kind, scope, depth).unwrap_or_else(|| self.leaf(kind, scope)),
            _ => format!("({})::{}", self.of(kind, scope, depth), kind.name()),
        }
    }

    /// A table of a FROM with its columns, and a scope that has those around, too.
    pub(crate) fn inner_scope(&mut self, scope: &Scope) -> Option<(String, Scope, Scope)> {
        if self.schema.tables.is_empty() {
            return None;
        }
        let (alias, table) = (self.alias(), self.draw.one(&self.schema.tables));
        let own: Vec<_> = table.columns.iter().map(|it| (format!("{alias}.{}", it.name), it.kind)).collect();
        let mut all = Scope { columns: own.clone() };
        all.columns.extend(scope.columns.iter().cloned());
        Some((format!("{} {alias}", table.name), Scope { columns: own }, all))
    }

    fn scalar_subquery(&mut self, kind: Kind, scope: &Scope, depth: usize) -> Option<String> {
        let (from, own, all) = self.inner_scope(scope)?;
        let condition = self.condition(&all, depth.min(1));
        let (column, of) = self.draw.one(&own.columns).clone();
        if kind == Int8 {
            return Some(format!("(SELECT count({column}) FROM {from} WHERE {condition})"));
        }
        if of != kind || matches!(kind, Bool | Bytea | Uuid | Ints | Texts) || kind.has_looks() {
            return None;
        }
        let name = self.draw.word(&["min", "max"]);
        Some(format!("(SELECT {name}({column}) FROM {from} WHERE {condition})::{}", kind.name()))
    }

    /// A condition.
    pub(crate) fn condition(&mut self, scope: &Scope, depth: usize) -> String {
        if depth == 0 {
            return self.comparison(scope, 0);
        }
        let deeper = depth - 1;
        match self.draw.below(14) {
            0 | 1 => format!("({} AND {})", self.condition(scope, deeper), self.condition(scope, deeper)),
            2 | 3 => format!("({} OR {})", self.condition(scope, deeper), self.condition(scope, deeper)),
            4 => format!("NOT ({})", self.condition(scope, deeper)),
            5 => {
                let test = self.draw.word(&[
                    "IS TRUE",
                    "IS NOT TRUE",
                    "IS FALSE",
                    "IS NOT FALSE",
                    "IS UNKNOWN",
                    "IS NOT UNKNOWN",
                ]);
                format!("({}) {test}", self.condition(scope, deeper))
            }
            6 => self.subquery_condition(scope, deeper).unwrap_or_else(|| self.comparison(scope, deeper)),
            _ => self.comparison(scope, deeper),
        }
    }

    /// In parentheses, as comparisons have no order among each other.
    fn comparison(&mut self, scope: &Scope, depth: usize) -> String {
        format!("({})", self.bare_comparison(scope, depth))
    }

    fn bare_comparison(&mut self, scope: &Scope, depth: usize) -> String {
        if !scope.columns.is_empty() && self.draw.once_in(6) {
            // What indexes are drawn of.
            let (column, kind) = self.draw.one(&scope.columns).clone();
            if self.draw.once_in(2) {
                return kind.part(&column, self.draw);
            }
            let (derived, kind) = kind.derived(&column, self.draw);
            return format!("{derived} {} {}", self.draw.word(&["=", "=", ">", "<="]), self.leaf(kind, scope));
        }
        let kind = self.kind_of(scope);
        let left = self.of(kind, scope, depth);
        match self.draw.below(12) {
            0 => format!("{left} IS {}NULL", self.draw.word(&["", "NOT "])),
            1 => {
                let not = self.draw.word(&["", "NOT "]);
                let list: Vec<_> = (0..self.draw.within(1, 4)).map(|_| self.leaf(kind, scope)).collect();
                format!("{left} {not}IN ({})", list.join(", "))
            }
            2 if kind != Bool => {
                let not = self.draw.word(&["", "NOT ", "SYMMETRIC "]);
                let not = if not == "SYMMETRIC " { "" } else { not };
                format!("{left} {not}BETWEEN {} AND {}", self.leaf(kind, scope), self.leaf(kind, scope))
            }
            3 => {
                let not = self.draw.word(&["", "NOT "]);
                format!("{left} IS {not}DISTINCT FROM {}", self.of(kind, scope, depth))
            }
            4 if matches!(kind, Varchar | Char) || kind == Text && self.draw.once_in(2) => {
                if self.draw.once_in(3) {
                    let sign = self.draw.word(&["~", "!~", "~*"]);
                    return format!("{left} {sign} '{}'", regular_expression(self.draw));
                }
                let sign = self.draw.word(&["LIKE", "NOT LIKE", "ILIKE"]);
                format!("{left} {sign} {}", self.draw.word(&PATTERNS))
            }
            4 if matches!(kind, Ints | Texts) => {
                let sign = self.draw.word(&["@>", "<@", "&&"]);
                format!("{left} {sign} {}", self.of(kind, scope, depth))
            }
            4 if kind == Jsonb => match self.draw.below(3) {
                0 => format!("{left} {} {}", self.draw.word(&["@>", "<@"]), self.leaf(kind, scope)),
                1 => format!("{left} ? {}", self.leaf(Text, scope)),
                _ => format!("{left} {} {}", self.draw.word(&["?|", "?&"]), self.leaf(Texts, scope)),
            },
            4 if matches!(kind, Int4 | Text) => {
                let of = if kind == Int4 { Ints } else { Texts };
                let (sign, all) = (self.draw.word(&COMPARISONS), self.draw.word(&["ANY", "ALL"]));
                format!("{left} {sign} {all} ({})", self.of(of, scope, depth))
            }
            // What a literal in quotes is read as is the other side's type.
            5 | 6 => format!("{left} {} {}", self.draw.word(&COMPARISONS), kind.quoted(self.draw, self.rarity)),
            7 => {
                let other = self.related(kind);
                format!("{left} {} {}", self.draw.word(&COMPARISONS), self.of(other, scope, depth))
            }
            _ => format!("{left} {} {}", self.draw.word(&COMPARISONS), self.of(kind, scope, depth)),
        }
    }

    /// A type whose values can be compared with those of this one.
    fn related(&mut self, kind: Kind) -> Kind {
        let family: &[Kind] = match kind {
            Int2 | Int4 | Int8 | Numeric | Float4 | Float8 => &[Int2, Int4, Int8, Numeric, Float8],
            Text | Varchar | Char => &[Text, Varchar, Char],
            Date | Timestamp | Timestamptz => &[Date, Timestamp, Timestamptz],
            _ => return kind,
        };
        *self.draw.one(family)
    }

    fn subquery_condition(&mut self, scope: &Scope, depth: usize) -> Option<String> {
        let (from, own, all) = self.inner_scope(scope)?;
        let condition = self.condition(&all, depth.min(1));
        let (column, kind) = self.draw.one(&own.columns).clone();
        let outer = self.leaf(kind, scope);
        Some(match self.draw.below(6) {
            0 => format!("EXISTS (SELECT 1 FROM {from} WHERE {condition})"),
            1 => format!("NOT EXISTS (SELECT 1 FROM {from} WHERE {column} = {outer} AND {condition})"),
            2 => format!("{outer} IN (SELECT {column} FROM {from} WHERE {condition})"),
            3 => format!("{outer} NOT IN (SELECT {column} FROM {from} WHERE {condition})"),
            4 => format!("{outer} {} ANY (SELECT {column} FROM {from})", self.draw.word(&COMPARISONS)),
            _ => {
                format!("{outer} {} ALL (SELECT {column} FROM {from} WHERE {condition})", self.draw.word(&COMPARISONS))
            }
        })
    }

    fn integer(&mut self, kind: Kind, scope: &Scope, depth: usize) -> String {
        let name = kind.name();
        match self.draw.below(14) {
            12 => {
                let of = *self.draw.one(&[Ints, Texts]);
                let name = self.draw.word(&[
                    "cardinality({})",
                    "array_length({}, 1)",
                    "array_ndims({})",
                    "array_upper({}, 1)",
                ]);
                format!("{}::{}", name.replace("{}", &self.of(of, scope, depth)), kind.name())
            }
            13 => match self.draw.below(3) {
                0 => format!("({})[{}]::{name}", self.of(Ints, scope, depth), self.draw.below(4)),
                1 => format!("array_position({}, {})::{name}", self.of(Ints, scope, depth), self.leaf(Int4, scope)),
                _ => format!("jsonb_array_length({})::{name}", self.of(Jsonb, scope, depth)),
            },
            0..=2 => {
                let sign = self.draw.word(&["+", "-", "*", "&", "|", "#"]);
                format!("({} {sign} {})", self.of(kind, scope, depth), self.of(kind, scope, depth))
            }
            3 => {
                let sign = self.draw.word(&["/", "%"]);
                format!("({} {sign} NULLIF({}, 0))", self.of(kind, scope, depth), self.of(kind, scope, depth))
            }
            4 => format!("({} / {})::{name}", self.of(kind, scope, depth), self.of(kind, scope, depth)),
            5 => {
                format!("{}({})::{name}", self.draw.word(&["abs", "-", "~", "sign", "+"]), self.of(kind, scope, depth))
            }
            6 => format!("length({})::{name}", self.of(Text, scope, depth)),
            7 => format!("({} - {})::{name}", self.leaf(Date, scope), self.leaf(Date, scope)),
            8 => {
                let from = *self.draw.one(&[Int2, Int4, Int8, Numeric, Float8]);
                format!("({})::{name}", self.of(from, scope, depth))
            }
            9 => {
                let field = self.draw.word(&[
                    "year", "month", "day", "dow", "doy", "quarter", "week", "isoyear", "decade", "century", "isodow",
                ]);
                let of = *self.draw.one(&[Date, Timestamp]);
                format!("EXTRACT({field} FROM {})::{name}", self.of(of, scope, depth))
            }
            10 => {
                let function = self.draw.word(&["mod", "gcd", "lcm"]);
                format!("{function}({}, {})::{name}", self.of(kind, scope, depth), self.of(kind, scope, depth))
            }
            _ => format!("strpos({}, {})::{name}", self.of(Text, scope, depth), self.leaf(Text, scope)),
        }
    }

    fn float(&mut self, kind: Kind, scope: &Scope, depth: usize) -> String {
        match self.draw.below(6) {
            0 | 1 => {
                let sign = self.draw.word(&["+", "-", "*"]);
                format!("({} {sign} {})", self.of(kind, scope, depth), self.of(kind, scope, depth))
            }
            2 => format!("({} / {})", self.of(kind, scope, depth), self.of(kind, scope, depth)),
            3 => {
                let name = self.draw.word(&["abs", "floor", "ceil", "round", "trunc", "sign", "-"]);
                format!("{name}({})::{}", self.of(kind, scope, depth), kind.name())
            }
            // Which type the sum is of, its text tells.
            4 if kind == Float8 => {
                let other = *self.draw.one(&[Int2, Int4, Int8, Numeric, Float8]);
                let sign = self.draw.word(&["+", "-", "*"]);
                format!("({} {sign} {})", self.of(Float4, scope, depth), self.of(other, scope, depth))
            }
            _ => {
                let from = *self.draw.one(&[Int2, Int4, Int8, Numeric, Float4, Float8]);
                format!("({})::{}", self.of(from, scope, depth), kind.name())
            }
        }
    }

    fn numeric(&mut self, scope: &Scope, depth: usize) -> String {
        match self.draw.below(7) {
            0 | 1 => {
                let sign = self.draw.word(&["+", "-", "*"]);
                format!("({} {sign} {})", self.of(Numeric, scope, depth), self.of(Numeric, scope, depth))
            }
            2 => format!("({} / {})", self.of(Numeric, scope, depth), self.of(Numeric, scope, depth)),
            3 => format!("({} % {})", self.leaf(Numeric, scope), self.leaf(Numeric, scope)),
            4 => {
                let name = self.draw.word(&["round", "trunc"]);
                format!("{name}({}, {})", self.of(Numeric, scope, depth), self.draw.below(6) as i64 - 2)
            }
            5 => {
                let name = self.draw.word(&["abs", "floor", "ceil", "round", "trunc", "sign", "-"]);
                format!("{name}({})", self.of(Numeric, scope, depth))
            }
            _ => {
                let from = *self.draw.one(&[Int2, Int4, Int8, Float8]);
                let to = self.draw.word(&["numeric", "numeric(6,3)", "numeric(30,10)", "numeric(5)"]);
                format!("({})::{to}", self.leaf(from, scope))
            }
        }
    }

    fn text(&mut self, kind: Kind, scope: &Scope, depth: usize) -> String {
        let of = |this: &mut Self| this.of(Text, scope, depth);
        let number = |this: &mut Self| (this.draw.below(9) as i64 - 3).to_string();
        let inner = match self.draw.below(19) {
            16 => {
                let by = self.draw.word(&["-", "<\\&>", "\\1", "<\\0>", "$1"]);
                let flags = self.draw.word(&["", "g", "gi"]);
                format!("regexp_replace({}, '{}', '{by}', '{flags}')", of(self), regular_expression(self.draw))
            }
            17 => {
                let name = self.draw.word(&["regexp_match", "regexp_split_to_array"]);
                format!("{name}({}, '{}')::text", of(self), regular_expression(self.draw))
            }
            18 => {
                let name = self.draw.word(&[
                    "concat({}, '|')",
                    "upper({})",
                    "({} || '|')",
                    "to_jsonb({})::text",
                    "array_to_string(ARRAY[{}], ',')",
                ]);
                name.replace("{}", &self.of(Char, scope, depth))
            }
            11 => match self.draw.below(3) {
                0 => format!("array_to_string({}, ',', '*')", self.of(Texts, scope, depth)),
                1 => format!("({})[{}]", self.of(Texts, scope, depth), self.draw.below(4)),
                _ => format!("array_dims({})", self.of(Ints, scope, depth)),
            },
            12 => match self.draw.below(4) {
                0 => format!("({} ->> {})", self.of(Jsonb, scope, depth), self.draw.word(&["'a'", "0", "-1", "''"])),
                1 => format!("({} #>> '{{a,b,0}}')", self.of(Jsonb, scope, depth)),
                2 => format!("jsonb_typeof({})", self.of(Jsonb, scope, depth)),
                _ => format!("to_jsonb({})::text", self.of(Texts, scope, depth)),
            },
            0 | 1 => format!("({} || {})", of(self), of(self)),
            2 => format!(
                "{}({})",
                self.draw.word(&["lower", "upper", "reverse", "btrim", "ltrim", "rtrim", "initcap"]),
                of(self)
            ),
            3 => format!("substr({}, {})", of(self), number(self)),
            4 => format!("substr({}, {}, {})", of(self), number(self), self.draw.below(4)),
            5 => format!(
                "{}({}, {})",
                self.draw.word(&["left", "right", "lpad", "rpad", "repeat"]),
                of(self),
                number(self)
            ),
            6 => format!("replace({}, {}, {})", of(self), self.leaf(Text, scope), self.leaf(Text, scope)),
            7 => format!("concat({}, {}, {})", of(self), self.leaf(Int4, scope), self.leaf(Bool, scope)),
            8 => format!("split_part({}, {}, {})", of(self), self.leaf(Text, scope), self.draw.within(1, 2)),
            9 => format!("({} || {})", of(self), self.leaf(Int4, scope)),
            10 => format!("{}({}, {})", self.draw.word(&["btrim", "ltrim", "rtrim"]), of(self), self.leaf(Text, scope)),
            _ => {
                let from = self.kind_of(scope);
                format!("({})::text", self.of(from, scope, depth))
            }
        };
        match kind {
            Text => inner,
            Varchar => format!("({inner})::varchar({})", self.draw.within(1, 9)),
            _ => format!("({inner})::{}", kind.name()),
        }
    }

    fn array(&mut self, kind: Kind, scope: &Scope, depth: usize) -> String {
        let element = if kind == Ints { Int4 } else { Text };
        let of = |this: &mut Self| this.of(kind, scope, depth);
        let bound = |this: &mut Self| this.draw.below(5) as i64 - 1;
        match self.draw.below(9) {
            0 | 1 => format!("({} || {})", of(self), of(self)),
            2 => format!("array_append({}, {})", of(self), self.leaf(element, scope)),
            3 => format!("array_prepend({}, {})", self.leaf(element, scope), of(self)),
            4 => format!("({})[{}:{}]", of(self), bound(self), bound(self)),
            5 => format!("array_remove({}, {})", of(self), self.leaf(element, scope)),
            6 => {
                let [from, to] = [self.leaf(element, scope), self.leaf(element, scope)];
                format!("array_replace({}, {from}, {to})", of(self))
            }
            7 if kind == Texts => format!("string_to_array({}, 'b')", self.of(Text, scope, depth)),
            _ => {
                let items: Vec<_> = (0..self.draw.below(3)).map(|_| self.leaf(element, scope)).collect();
                format!("ARRAY[{}]::{}", items.join(", "), kind.name())
            }
        }
    }

    fn json(&mut self, scope: &Scope, depth: usize) -> String {
        let of = |this: &mut Self| this.of(Jsonb, scope, depth);
        match self.draw.below(9) {
            0 => format!("({} || {})", of(self), of(self)),
            1 => format!("({} -> {})", of(self), self.draw.word(&["'a'", "'b'", "0", "1", "-1"])),
            2 => format!("({} #> '{{a,b}}')", of(self)),
            3 => format!("({} - {})", of(self), self.draw.word(&["'a'::text", "0", "'{a,b}'::text[]"])),
            4 => {
                let path = self.draw.word(&["'{a}'", "'{a,b}'", "'{0}'", "'{-1}'", "'{}'"]);
                format!("jsonb_set({}, {path}, {})", of(self), self.leaf(Jsonb, scope))
            }
            5 => format!("jsonb_build_object('a', {}, 'b', {})", self.leaf(Int4, scope), of(self)),
            6 => format!("jsonb_build_array({}, {})", self.leaf(Bool, scope), self.leaf(Text, scope)),
            7 => format!("jsonb_strip_nulls({})", of(self)),
            _ => {
                let from = *self.draw.one(&[Bool, Int4, Int8, Text, Date, Timestamp, Ints, Texts, Uuid]);
                format!("to_jsonb({})", self.leaf(from, scope))
            }
        }
    }

    fn bytes(&mut self, scope: &Scope, depth: usize) -> String {
        match self.draw.below(2) {
            0 => format!("({} || {})", self.of(Bytea, scope, depth), self.of(Bytea, scope, depth)),
            _ => self.general(Bytea, scope, depth),
        }
    }

    fn time(&mut self, kind: Kind, scope: &Scope, depth: usize) -> String {
        let sign = self.draw.word(&["+", "-"]);
        match (kind, self.draw.below(4)) {
            (Date, 0 | 1) => format!("({} {sign} {})", self.of(Date, scope, depth), self.leaf(Int4, scope)),
            (Date, 2) => {
                let from = *self.draw.one(&[Timestamp, Timestamptz]);
                format!("({})::date", self.of(from, scope, depth))
            }
            (Time, 0) => format!("({})::time", self.of(Timestamp, scope, depth)),
            (Time, 1 | 2) => format!("({} {sign} {})", self.of(Time, scope, depth), self.leaf(Interval, scope)),
            (Timestamp | Timestamptz, 0 | 1) => {
                format!("({} {sign} {})", self.of(kind, scope, depth), self.of(Interval, scope, depth))
            }
            (Timestamp | Timestamptz, 2) => {
                let unit = self.draw.word(&["year", "month", "day", "hour", "week", "quarter", "minute", "second"]);
                format!("date_trunc('{unit}', {})", self.of(kind, scope, depth))
            }
            (Timestamp | Timestamptz, _) => {
                let from = *self.draw.one(&[Date, Timestamp, Timestamptz]);
                format!("({})::{}", self.of(from, scope, depth), kind.name())
            }
            (Interval, 0) => format!("({} - {})", self.of(Timestamp, scope, depth), self.of(Timestamp, scope, depth)),
            (Interval, 1) => {
                format!("({} {sign} {})", self.of(Interval, scope, depth), self.of(Interval, scope, depth))
            }
            (Interval, 2) => format!("({} * {})", self.of(Interval, scope, depth), self.leaf(Int4, scope)),
            _ => self.general(kind, scope, depth),
        }
    }
}
