//! Window functions, and the windows that they look through.

use sqlparser::ast;

use super::calls::Call;
use super::comparable::{check_equal, check_ordered};
use super::literals::constant;
use super::query::sort_key;
use super::{Aggregate, AggregateKind, Binder, folded};
use crate::casts::Place;
use crate::datum::Datum;
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::functions;
use crate::parse::EXCLUSION;
use crate::plan::{Node, SortKey};
use crate::types::{Category, ColumnType, Type};

/// A window function that an expression uses.
#[derive(Clone, Debug)]
pub(crate) struct WindowCall {
    pub(crate) function: WindowFunction,
    pub(crate) arguments: Vec<Expr>,
    pub(crate) window: Window,
}

/// The window functions that there are.
#[derive(Clone, Debug)]
pub(crate) enum WindowFunction {
    /// An aggregate of the rows of the frame.
    Aggregate(Aggregate),
    RowNumber,
    Rank,
    DenseRank,
    PercentRank,
    CumeDist,
    Ntile,
    Lag,
    Lead,
    FirstValue,
    LastValue,
    NthValue,
}

/// Which rows belong together, their order, and which of them a function looks at.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub(crate) partition: Vec<Expr>,
    pub(crate) order: Vec<SortKey>,
    pub(crate) frame: Frame,
}

/// Rows around the current one.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) units: Units,
    pub(crate) start: Edge,
    pub(crate) end: Edge,
    pub(crate) exclusion: Exclusion,
}

/// What the distance of an edge is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Units {
    Rows,
    /// Values of the key that the rows are sorted by.
    Range,
    /// Groups of rows that are equal in the order.
    Groups,
}

/// Where a frame begins or ends.
#[derive(Clone, Debug)]
pub(crate) enum Edge {
    /// With the first row or the last one.
    Unbounded,
    Current,
    Offset(Box<Offset>),
}

/// A distance from the current row.
#[derive(Clone, Debug)]
pub(crate) struct Offset {
    pub(crate) is_before: bool,
    pub(crate) count: Expr,
    /// For `Units::Range`, over a key and the distance: the key in the form that is compared, and the key at the distance.
    pub(crate) reach: Option<(Expr, Expr)>,
}

/// What a frame leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exclusion {
    None,
    Current,
    Group,
    Ties,
}

/// A window of a WINDOW clause.
#[derive(Clone, Debug)]
pub(crate) struct NamedWindow {
    name: String,
    window: Window,
    has_frame: bool,
}

/// The place of a window function in another window.
const DEFINITION: &str = "window definitions";
/// The place of a window function within another one.
pub(super) const NESTED: &str = "arguments of window functions";

fn windowing(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState("42P20"), message)
}

pub(super) fn window_function(name: &str) -> Option<WindowFunction> {
    Some(match name {
        "row_number" => WindowFunction::RowNumber,
        "rank" => WindowFunction::Rank,
        "dense_rank" => WindowFunction::DenseRank,
        "percent_rank" => WindowFunction::PercentRank,
        "cume_dist" => WindowFunction::CumeDist,
        "ntile" => WindowFunction::Ntile,
        "lag" => WindowFunction::Lag,
        "lead" => WindowFunction::Lead,
        "first_value" => WindowFunction::FirstValue,
        "last_value" => WindowFunction::LastValue,
        "nth_value" => WindowFunction::NthValue,
        _ => return None,
    })
}

impl Binder<'_> {
    pub(super) fn window_aggregate(
        &mut self,
        kind: AggregateKind,
        call: &Call<'_>,
        over: &ast::WindowType,
    ) -> Result<Typed, SqlError> {
        let refused = |what: &str| Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, what.to_owned()));
        if call.is_within_group || kind == AggregateKind::Grouping {
            return refused(&format!("OVER is not supported for ordered-set aggregate {}", call.name));
        }
        if call.is_distinct {
            return refused("DISTINCT is not implemented for window functions");
        }
        if !call.order.is_empty() {
            return refused("aggregate ORDER BY is not implemented for window functions");
        }
        self.windowed(over, |binder| {
            let place = std::mem::replace(&mut binder.place, NESTED);
            let aggregate = binder.aggregate_of(kind, call);
            binder.place = place;
            let aggregate = aggregate?;
            let of = aggregate.result;
            Ok((WindowFunction::Aggregate(aggregate), Vec::new(), of))
        })
    }

    pub(super) fn window_call(
        &mut self,
        function: WindowFunction,
        call: &Call<'_>,
        over: &ast::WindowType,
    ) -> Result<Typed, SqlError> {
        let refused = |what: &str| Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, what.to_owned()));
        if call.is_distinct {
            return refused("DISTINCT is not implemented for window functions");
        }
        if call.filter.is_some() {
            return refused("FILTER is not implemented for non-aggregate window functions");
        }
        if !call.order.is_empty() {
            return refused("aggregate ORDER BY is not implemented for window functions");
        }
        self.windowed(over, |binder| {
            let place = std::mem::replace(&mut binder.place, NESTED);
            let bound = binder.window_arguments(&function, call);
            binder.place = place;
            let (arguments, of) = bound?;
            Ok((function, arguments, of))
        })
    }

    fn window_arguments(
        &mut self,
        function: &WindowFunction,
        call: &Call<'_>,
    ) -> Result<(Vec<Expr>, ColumnType), SqlError> {
        use WindowFunction as Of;
        let mut arguments = call.arguments.iter().map(|it| self.expr(it)).collect::<Result<Vec<_>, _>>()?;
        let types: Vec<_> = arguments.iter().map(Typed::base).collect();
        let (value_count, most_integers, result) = match function {
            Of::RowNumber | Of::Rank | Of::DenseRank => (0, 0, Type::Int8),
            Of::PercentRank | Of::CumeDist => (0, 0, Type::Float8),
            Of::Ntile => (0, 1, Type::Int4),
            Of::Lag | Of::Lead => (1, 2, Type::Unknown),
            Of::FirstValue | Of::LastValue => (1, 0, Type::Unknown),
            Of::NthValue => (1, 1, Type::Unknown),
            Of::Aggregate(_) => unreachable!("bound elsewhere"),
        };
        let is_optional = matches!(function, Of::Lag | Of::Lead);
        let least = value_count + if is_optional { 0 } else { most_integers };
        if !(least..=value_count + most_integers).contains(&arguments.len()) {
            return Err(functions::no_function(call.name, &types, functions::Unresolved::None));
        }
        // The value, and what stands for it where there is no row, are of one type.
        let default = (arguments.len() == 3).then(|| arguments.pop()).flatten();
        let mut exprs = Vec::new();
        let mut result: ColumnType = result.into();
        let mut rest = arguments.into_iter();
        if value_count == 1 {
            let value = rest.next().unwrap_or_else(|| constant(Datum::Null, Type::Unknown));
            let values = std::iter::once(value).chain(default).collect();
            let (values, of) = self.alike(call.name, values)?;
            result = of.passed_on(of.base);
            exprs.extend(values);
        }
        let mut made = Vec::new();
        for count in rest {
            if crate::casts::find(count.base(), Type::Int4, Place::Implicit).is_none() {
                return Err(functions::no_function(call.name, &types, functions::Unresolved::None));
            }
            made.push(self.cast(count, Type::Int4.into(), Place::Implicit)?.expr);
        }
        let at = exprs.len().min(1);
        made.into_iter().rev().for_each(|count| exprs.insert(at, count));
        Ok((exprs, result))
    }

    /// A call in a window: what `bind` gives, and the window.
    fn windowed(
        &mut self,
        over: &ast::WindowType,
        bind: impl FnOnce(&mut Self) -> Result<(WindowFunction, Vec<Expr>, ColumnType), SqlError>,
    ) -> Result<Typed, SqlError> {
        let Some(mut so_far) = self.behind.take() else {
            return Err(match self.place {
                NESTED => windowing("window function calls cannot be nested"),
                super::aggregates::NESTED => {
                    let message = "aggregate function calls cannot contain window function calls";
                    SqlError::new(SqlState::GROUPING_ERROR, message)
                }
                place => windowing(format!("window functions are not allowed in {place}")),
            });
        };
        let bound = bind(self).and_then(|(function, arguments, of)| {
            let window = self.window_of(over)?;
            Ok((WindowCall { function, arguments, window }, of))
        });
        let typed = bound.map(|(call, of)| {
            let shown = format!("{call:?}");
            let at = so_far.windows.iter().position(|own| format!("{own:?}") == shown).unwrap_or_else(|| {
                so_far.windows.push(call);
                so_far.windows.len() - 1
            });
            Typed::new(Expr::Window(at), of)
        });
        self.behind = Some(so_far);
        typed
    }

    /// Makes the windows of a WINDOW clause known.
    pub(super) fn name_windows(&mut self, named: &[ast::NamedWindowDefinition]) -> Result<(), SqlError> {
        for ast::NamedWindowDefinition(name, definition) in named {
            let name = folded(name);
            if self.named_windows.iter().any(|own| own.name == name) {
                return Err(windowing(format!("window \"{name}\" is already defined")));
            }
            let ast::NamedWindowExpr::WindowSpec(spec) = definition else {
                return Err(SqlError::unsupported(format!("the window {definition}")));
            };
            let window = self.window(spec)?;
            self.named_windows.push(NamedWindow { name, window, has_frame: spec.window_frame.is_some() });
        }
        Ok(())
    }

    fn named_window(&self, name: &str) -> Result<&NamedWindow, SqlError> {
        let missing = || SqlError::new(SqlState::UNDEFINED_OBJECT, format!("window \"{name}\" does not exist"));
        self.named_windows.iter().find(|own| own.name == name).ok_or_else(missing)
    }

    fn window_of(&mut self, over: &ast::WindowType) -> Result<Window, SqlError> {
        match over {
            ast::WindowType::NamedWindow(name) => Ok(self.named_window(&folded(name))?.window.clone()),
            ast::WindowType::WindowSpec(spec) => self.window(spec),
        }
    }

    fn window(&mut self, spec: &ast::WindowSpec) -> Result<Window, SqlError> {
        let place = std::mem::replace(&mut self.place, DEFINITION);
        let bound = self.window_within(spec);
        self.place = place;
        bound
    }

    fn window_within(&mut self, spec: &ast::WindowSpec) -> Result<Window, SqlError> {
        let name = spec.window_name.as_ref().map(folded).unwrap_or_default();
        let (name, exclusion) = match name.split_once(EXCLUSION) {
            Some((name, words)) => (name, exclusion_of(words)),
            None => (&*name, Exclusion::None),
        };
        let mut partition = Vec::new();
        for expr in &spec.partition_by {
            let typed = self.expr(expr)?;
            check_equal(typed.base())?;
            partition.push(self.known(typed)?.expr);
        }
        let (mut order, mut last) = (Vec::new(), None);
        for key in &spec.order_by {
            let typed = self.expr(&key.expr)?;
            let typed = self.known(typed)?;
            check_ordered(typed.base())?;
            last = Some(typed.base());
            order.push(sort_key(typed.expr, key)?);
        }
        if !name.is_empty() {
            let around = self.named_window(name)?.clone();
            if !partition.is_empty() {
                return Err(windowing(format!("cannot override PARTITION BY clause of window \"{name}\"")));
            }
            if !order.is_empty() && !around.window.order.is_empty() {
                return Err(windowing(format!("cannot override ORDER BY clause of window \"{name}\"")));
            }
            if around.has_frame {
                return Err(windowing(format!("cannot copy window \"{name}\" because it has a frame clause")));
            }
            partition = around.window.partition;
            if order.is_empty() {
                order = around.window.order;
            }
        }
        let whole = Frame { units: Units::Range, start: Edge::Unbounded, end: Edge::Current, exclusion };
        let frame = match &spec.window_frame {
            None => whole,
            Some(frame) => self.frame(frame, exclusion, &order, last)?,
        };
        Ok(Window { partition, order, frame })
    }

    fn frame(
        &mut self,
        frame: &ast::WindowFrame,
        exclusion: Exclusion,
        order: &[SortKey],
        last: Option<Type>,
    ) -> Result<Frame, SqlError> {
        use ast::WindowFrameBound::{CurrentRow, Following, Preceding};
        let end = frame.end_bound.as_ref().unwrap_or(&CurrentRow);
        let is_short = frame.end_bound.is_none();
        let wrong = match (&frame.start_bound, end) {
            (Following(None), _) => Some("frame start cannot be UNBOUNDED FOLLOWING"),
            (_, Preceding(None)) => Some("frame end cannot be UNBOUNDED PRECEDING"),
            (CurrentRow, Preceding(_)) => Some("frame starting from current row cannot have preceding rows"),
            (Following(_), CurrentRow) if is_short => {
                Some("frame starting from following row cannot end with current row")
            }
            (Following(_), Preceding(_) | CurrentRow) => {
                Some("frame starting from following row cannot have preceding rows")
            }
            _ => None,
        };
        if let Some(wrong) = wrong {
            return Err(windowing(wrong));
        }
        let units = match frame.units {
            ast::WindowFrameUnits::Rows => Units::Rows,
            ast::WindowFrameUnits::Range => Units::Range,
            ast::WindowFrameUnits::Groups => Units::Groups,
        };
        if units == Units::Groups && order.is_empty() {
            return Err(windowing("GROUPS mode requires an ORDER BY clause"));
        }
        let mut edge = |bound: &ast::WindowFrameBound| match bound {
            CurrentRow => Ok(Edge::Current),
            Preceding(None) | Following(None) => Ok(Edge::Unbounded),
            Preceding(Some(count)) => self.offset(units, (count, true), order, last),
            Following(Some(count)) => self.offset(units, (count, false), order, last),
        };
        Ok(Frame { units, start: edge(&frame.start_bound)?, end: edge(end)?, exclusion })
    }

    fn offset(
        &mut self,
        units: Units,
        (count, is_before): (&ast::Expr, bool),
        order: &[SortKey],
        last: Option<Type>,
    ) -> Result<Edge, SqlError> {
        let name = match units {
            Units::Rows => "ROWS",
            Units::Range => "RANGE",
            Units::Groups => "GROUPS",
        };
        let aggregates = self.aggregates.clone();
        let count = self.expr(count)?;
        self.aggregates = aggregates;
        let mut is_known = true;
        count.expr.walk(&mut |it| is_known &= !matches!(it, Expr::Column(_) | Expr::Aggregate(_)));
        if !is_known {
            let message = format!("argument of {name} must not contain variables");
            return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message));
        }
        if units != Units::Range {
            let count = match crate::casts::find(count.base(), Type::Int8, Place::Assignment) {
                Some(_) => self.cast(count, Type::Int8.into(), Place::Assignment)?.expr,
                None => {
                    let message = format!("argument of {name} must be type bigint, not type {}", count.base());
                    return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
                }
            };
            return Ok(Edge::Offset(Box::new(Offset { is_before, count, reach: None })));
        }
        let [key] = order else {
            return Err(windowing("RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column"));
        };
        let Some(of) = last else {
            return Err(SqlError::unsupported("RANGE with an offset over a named window's order"));
        };
        let is_time = matches!(of.category(), Category::DateTime);
        let wanted =
            match of {
                _ if is_time => Type::Interval,
                _ if matches!(of.category(), Category::Number | Category::Timespan) => {
                    if count.base() == Type::Unknown { of } else { count.base() }
                }
                other => {
                    let message =
                        format!("RANGE with offset PRECEDING/FOLLOWING is not supported for column type {other}");
                    return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
                }
            };
        let count = self.cast(count, wanted.into(), Place::Implicit).map_err(|error| {
            let message = format!(
                "RANGE with offset PRECEDING/FOLLOWING is not supported for column type {of} and offset type {}",
                wanted
            );
            if error.state() == SqlState::DATATYPE_MISMATCH {
                SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
            } else {
                error
            }
        })?;
        let sides = || vec![Typed::new(Expr::Column(0), of), Typed::new(Expr::Column(1), wanted)];
        let sign = if is_before != key.is_descending { "-" } else { "+" };
        let reached = self.apply(sign, sides())?;
        let own = self.cast(Typed::new(Expr::Column(0), of), reached.of, Place::Explicit)?;
        let reach = Some((own.expr, reached.expr));
        Ok(Edge::Offset(Box::new(Offset { is_before, count: count.expr, reach })))
    }
}

fn exclusion_of(words: &str) -> Exclusion {
    match words {
        "current" => Exclusion::Current,
        "group" => Exclusion::Group,
        "ties" => Exclusion::Ties,
        _ => Exclusion::None,
    }
}

impl Edge {
    fn expr(&mut self) -> Option<&mut Expr> {
        if let Self::Offset(offset) = self { Some(&mut offset.count) } else { None }
    }
}

impl Window {
    /// The expressions over the rows.
    pub(crate) fn parts_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let edges = [&mut self.frame.start, &mut self.frame.end].into_iter().filter_map(Edge::expr);
        self.partition.iter_mut().chain(self.order.iter_mut().map(|key| &mut key.expr)).chain(edges)
    }
}

impl WindowCall {
    /// The expressions over the rows, but for those of the window.
    pub(crate) fn own_parts_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let of_aggregate = match &mut self.function {
            WindowFunction::Aggregate(aggregate) => Some(aggregate),
            _ => None,
        };
        self.arguments.iter_mut().chain(of_aggregate.into_iter().flat_map(Aggregate::parts_mut))
    }

    pub(crate) fn parts_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let Self { function, arguments, window } = self;
        let of_aggregate = match function {
            WindowFunction::Aggregate(aggregate) => Some(aggregate),
            _ => None,
        };
        let own = arguments.iter_mut().chain(of_aggregate.into_iter().flat_map(Aggregate::parts_mut));
        own.chain(window.parts_mut())
    }
}

/// The rows with the results of window functions behind their columns, and which column is whose.
pub(super) fn over_windows(mut node: Node, calls: Vec<WindowCall>) -> (Node, Vec<usize>) {
    let mut width = node.width();
    let mut columns = vec![0; calls.len()];
    let mut left: Vec<_> = calls.into_iter().enumerate().collect();
    while let Some((_, first)) = left.first() {
        let shown = format!("{:?}", first.window);
        let window = first.window.clone();
        let (same, others): (Vec<_>, _) = left.into_iter().partition(|(_, call)| format!("{:?}", call.window) == shown);
        left = others;
        for (position, (at, _)) in same.iter().enumerate() {
            columns[*at] = width + position;
        }
        width += same.len();
        let calls = same.into_iter().map(|(_, call)| call).collect();
        node = Node::Window { input: Box::new(node), window: Box::new(window), calls };
    }
    (node, columns)
}
