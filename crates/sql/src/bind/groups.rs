//! GROUP BY: groups, grouping sets, and expressions over groups.

use sqlparser::ast;

use super::comparable::check_equal;
use super::query::position;
use super::{Aggregate, AggregateKind, Binder, Scope, folded};
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::plan::Node;

/// How many sets a GROUP BY may make.
const MOST_SETS: usize = 4096;

/// The expressions that rows are grouped by, and the sets of them; without GROUPING SETS one set of all.
pub(super) struct Groups {
    pub(super) keys: Vec<Expr>,
    pub(super) sets: Vec<Vec<usize>>,
}

impl Groups {
    /// Groups also by what is the same in all rows of each group.
    pub(super) fn extend(&mut self, determined: Vec<Expr>) {
        for expr in determined {
            self.sets.iter_mut().for_each(|set| set.push(self.keys.len()));
            self.keys.push(expr);
        }
    }

    /// The keys that each set has.
    pub(super) fn common(&self) -> Vec<Expr> {
        let is_common = |at: &usize| self.sets.iter().all(|set| set.contains(at));
        (0..self.keys.len()).filter(is_common).map(|at| self.keys[at].clone()).collect()
    }

    /// The rows with the values of the functions of several rows that keys have, and keys over these.
    pub(super) fn expanded(&mut self, node: Node, sets: Vec<Expr>) -> Result<Node, SqlError> {
        let (width, mut calls) = (node.width(), Vec::new());
        let mut used: Vec<usize> = Vec::new();
        for key in &mut self.keys {
            key.replace(&mut |it| {
                let Expr::Set(at) = it else { return Ok(false) };
                let number = used.iter().position(|own| own == at).unwrap_or_else(|| {
                    used.push(*at);
                    calls.push((sets[*at].clone(), 1));
                    calls.len() - 1
                });
                *it = Expr::Column(width + number);
                Ok(true)
            })?;
        }
        Ok(if calls.is_empty() { node } else { Node::Expand { input: Box::new(node), calls, has_numbers: false } })
    }

    fn add(&mut self, key: Expr) -> usize {
        self.keys.iter().position(|own| own.is_same(&key)).unwrap_or_else(|| {
            self.keys.push(key);
            self.keys.len() - 1
        })
    }
}

impl Binder<'_> {
    pub(super) fn groups(&mut self, of: &ast::GroupByExpr, list: &[(String, Typed)]) -> Result<Groups, SqlError> {
        let groups: &[ast::Expr] = match of {
            ast::GroupByExpr::Expressions(groups, modifiers) if modifiers.is_empty() => groups,
            other => return Err(SqlError::unsupported(format!("{other}"))),
        };
        let mut made = Groups { keys: Vec::new(), sets: vec![Vec::new()] };
        for group in groups {
            let sets = self.sets_of(group, list, &mut made)?;
            if made.sets.len() * sets.len() > MOST_SETS {
                let message = "too many grouping sets present (maximum 4096)";
                return Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, message));
            }
            // Each set so far with each of these.
            let with = |set: &Vec<usize>| sets.iter().map(|more| [&set[..], more].concat()).collect::<Vec<_>>();
            made.sets = made.sets.iter().flat_map(with).collect();
        }
        Ok(made)
    }

    /// The sets that one expression of GROUP BY stands for.
    fn sets_of(
        &mut self,
        group: &ast::Expr,
        list: &[(String, Typed)],
        made: &mut Groups,
    ) -> Result<Vec<Vec<usize>>, SqlError> {
        match group {
            ast::Expr::GroupingSets(sets) => {
                let mut all = Vec::new();
                for set in sets {
                    match &set[..] {
                        [ast::Expr::Function(function)] if of_name(function).is_some() => {
                            all.extend(self.sets_of(&set[0], list, made)?);
                        }
                        [one @ (ast::Expr::Rollup(_) | ast::Expr::Cube(_) | ast::Expr::GroupingSets(_))] => {
                            all.extend(self.sets_of(one, list, made)?);
                        }
                        set => all.push(self.set_of(set, list, made)?),
                    }
                }
                Ok(all)
            }
            ast::Expr::Rollup(parts) => self.rollup(parts, list, made),
            ast::Expr::Cube(parts) => self.cube(parts, list, made),
            ast::Expr::Function(function) if of_name(function).is_some() => {
                let (is_cube, parts) = of_name(function).unwrap_or_default();
                if is_cube { self.cube(&parts, list, made) } else { self.rollup(&parts, list, made) }
            }
            ast::Expr::Tuple(parts) => Ok(vec![self.set_of(parts, list, made)?]),
            one => Ok(vec![self.set_of(std::slice::from_ref(one), list, made)?]),
        }
    }

    fn rollup(
        &mut self,
        parts: &[Vec<ast::Expr>],
        list: &[(String, Typed)],
        made: &mut Groups,
    ) -> Result<Vec<Vec<usize>>, SqlError> {
        let parts = parts.iter().map(|part| self.set_of(part, list, made)).collect::<Result<Vec<_>, _>>()?;
        Ok((0..=parts.len()).rev().map(|count| parts[..count].concat()).collect())
    }

    fn cube(
        &mut self,
        parts: &[Vec<ast::Expr>],
        list: &[(String, Typed)],
        made: &mut Groups,
    ) -> Result<Vec<Vec<usize>>, SqlError> {
        if parts.len() > 12 {
            return Err(SqlError::new(SqlState::TOO_MANY_COLUMNS, "CUBE is limited to 12 elements"));
        }
        let parts = parts.iter().map(|part| self.set_of(part, list, made)).collect::<Result<Vec<_>, _>>()?;
        let of_bits = |bits: usize| {
            let chosen = parts.iter().enumerate().filter(|(at, _)| bits & 1 << (parts.len() - 1 - at) != 0);
            chosen.flat_map(|(_, part)| part.iter().copied()).collect()
        };
        Ok((0..1_usize << parts.len()).rev().map(of_bits).collect())
    }

    fn set_of(
        &mut self,
        parts: &[ast::Expr],
        list: &[(String, Typed)],
        made: &mut Groups,
    ) -> Result<Vec<usize>, SqlError> {
        let mut set = Vec::new();
        for part in parts {
            if let ast::Expr::Tuple(inner) = part {
                set.extend(self.set_of(inner, list, made)?);
                continue;
            }
            let key = match position(part, list.len(), "GROUP BY")? {
                Some(at) => list[at].1.clone(),
                None => self.group_key(part, list)?,
            };
            check_equal(key.base())?;
            let (mut has_aggregate, mut has_window) = (false, false);
            key.expr.walk(&mut |it| {
                has_aggregate |= matches!(it, Expr::Aggregate(_));
                has_window |= matches!(it, Expr::Window(_));
            });
            if has_aggregate {
                let message = "aggregate functions are not allowed in GROUP BY";
                return Err(SqlError::new(SqlState::GROUPING_ERROR, message));
            }
            if has_window {
                return Err(SqlError::new(SqlState("42P20"), "window functions are not allowed in GROUP BY"));
            }
            let at = made.add(self.known(key)?.expr);
            if !set.contains(&at) {
                set.push(at);
            }
        }
        Ok(set)
    }

    /// What a key of GROUP BY stands for: a column of the rows comes before one of the list.
    fn group_key(&mut self, group: &ast::Expr, list: &[(String, Typed)]) -> Result<Typed, SqlError> {
        let bound = self.expr(group);
        if let (Err(error), ast::Expr::Identifier(name)) = (&bound, group)
            && error.state() == SqlState::UNDEFINED_COLUMN
            && let Some((_, typed)) = list.iter().find(|(own, _)| *own == folded(name))
        {
            return Ok(typed.clone());
        }
        bound
    }
}

/// ROLLUP or CUBE (true) within GROUPING SETS, where they are read as calls.
fn of_name(function: &ast::Function) -> Option<(bool, Vec<Vec<ast::Expr>>)> {
    let is_cube = match function.name.to_string().to_lowercase().as_str() {
        "rollup" => false,
        "cube" => true,
        _ => return None,
    };
    let ast::FunctionArguments::List(list) = &function.args else { return None };
    let parts = list.args.iter().map(|argument| match argument {
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(ast::Expr::Tuple(parts))) => Some(parts.clone()),
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => Some(vec![expr.clone()]),
        _ => None,
    });
    Some((is_cube, parts.collect::<Option<_>>()?))
}

/// Makes the arguments of GROUPING the positions of its keys.
pub(super) fn grouping(aggregate: &mut Aggregate, keys: &[Expr]) -> Result<(), SqlError> {
    if aggregate.kind != AggregateKind::Grouping {
        return Ok(());
    }
    for argument in &mut aggregate.arguments {
        let at = keys.iter().position(|key| key.is_same(argument)).ok_or_else(|| {
            let message = "arguments to GROUPING must be grouping expressions of the associated query level";
            SqlError::new(SqlState::GROUPING_ERROR, message)
        })?;
        *argument = Expr::Column(at);
    }
    Ok(())
}

const OUT_OF_GROUPS: &str = " must appear in the GROUP BY clause or be used in an aggregate function";

/// Makes an expression over rows one over groups: their keys, followed by the aggregates.
pub(super) fn over_groups(expr: &mut Expr, groups: &[Expr], scope: &Scope) -> Result<(), SqlError> {
    expr.replace(&mut |it| {
        if let Some(at) = groups.iter().position(|group| group.is_same(it)) {
            *it = Expr::Column(at);
            return Ok(true);
        }
        match it {
            Expr::Aggregate(number) => {
                *it = Expr::Column(groups.len() + *number);
                Ok(true)
            }
            Expr::Subquery(subquery) => {
                subquery.parts_mut().try_for_each(|part| over_groups(part, groups, scope)).map_err(|error| {
                    let message = error.message();
                    match message.strip_suffix(OUT_OF_GROUPS) {
                        Some(column) => SqlError::new(
                            SqlState::GROUPING_ERROR,
                            format!("subquery uses ungrouped {column} from outer query"),
                        ),
                        None => error,
                    }
                })?;
                Ok(true)
            }
            Expr::Column(at) => {
                let column = &scope.columns[*at];
                let name = match &column.table {
                    Some(table) => format!("{table}.{}", column.name),
                    None => column.name.clone(),
                };
                let message = format!("column \"{name}\"{OUT_OF_GROUPS}");
                Err(SqlError::new(SqlState::GROUPING_ERROR, message))
            }
            _ => Ok(false),
        }
    })
}

/// The functions of several rows that expressions over groups have: these stand above the groups, and are numbered anew.
pub(super) fn above_groups(exprs: &mut [&mut Expr], sets: &[Expr]) -> Result<Vec<Expr>, SqlError> {
    let mut kept: Vec<usize> = Vec::new();
    for expr in exprs {
        expr.replace(&mut |it| {
            let Expr::Set(at) = it else { return Ok(false) };
            *it = Expr::Set(kept.iter().position(|own| own == at).unwrap_or_else(|| {
                kept.push(*at);
                kept.len() - 1
            }));
            Ok(true)
        })?;
    }
    Ok(kept.into_iter().map(|at| sets[at].clone()).collect())
}

/// Columns that no group has, but that are the same in all rows of one: their table's key is among the groups.
pub(super) fn determined<'e>(exprs: impl Iterator<Item = &'e Expr>, groups: &[Expr], scope: &Scope) -> Vec<Expr> {
    let has = |column: usize| groups.iter().any(|group| matches!(group, Expr::Column(own) if *own == column));
    let mut found = Vec::new();
    for expr in exprs {
        expr.walk(&mut |it| {
            if let Expr::Column(column) = it
                && !has(*column)
                && !found.contains(column)
                && scope.is_determined(*column, &has)
            {
                found.push(*column);
            }
        });
    }
    found.into_iter().map(Expr::Column).collect()
}
