//! What must be true of a database that was opened behind a kill.
//!
//! 1. Whatever was acknowledged and had to be durable is there, and so is all that an earlier opening has found.
//! 2. What has failed is not there, nor what an earlier opening has not found.
//! 3. Of each client the transactions that are there are a prefix in real time: one that was answered before another one began, which is there, is there.
//! 4. Each register's history can be followed from its row to its beginning through entries that are there, and all entries that wrote it are on the way.
//! 5. There is a serial order: what was read, overwritten and answered has no cycle, readers that were answered included.
//! 6. Rows are whole, indexes have the rows that there are, and tables that were made or dropped are there or not.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use polychron::{AnyProtocol, Database, Error, Operations, Procedure, Transaction};

use crate::client::{BY_WRITER, name_of, tables};
use crate::ledger::{Ledger, Line};
use crate::work::{Action, Entry, Found, GROUPS, Gone, REGISTERS, Register, Tables, length_of};

/// The rows of all tables, as one transaction has read them.
struct Rows {
    registers: BTreeMap<u64, Register>,
    gone: BTreeMap<u64, u64>,
    entries: BTreeMap<u64, Vec<Found>>,
    by_group: Vec<BTreeSet<u64>>,
    unreadable: Option<u64>,
}

/// Reads them.
struct ReadAll(Tables);

impl Procedure for ReadAll {
    type Output = Rows;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Rows, Error> {
        let Tables { registers, gone, entries } = &self.0;
        let all: Vec<Register> = transaction.scan(registers, ..).rows()?;
        let deleters: Vec<Gone> = transaction.scan(gone, ..).rows()?;
        let written: Vec<Entry> = transaction.scan(entries, ..).rows()?;
        let mut by_group = Vec::new();
        for group in 0..GROUPS {
            let ids: Vec<u64> =
                transaction.scan_by(registers, Register::BY_GROUP, group).map(|row| row.id()).collect()?;
            by_group.push(ids.into_iter().collect());
        }
        let unreadable = written.iter().find(|entry| Found::parse_all(&entry.found).is_none()).map(|entry| entry.id);
        Ok(Rows {
            registers: all.into_iter().map(|row| (row.id, row)).collect(),
            gone: deleters.into_iter().map(|row| (row.id, row.deleter)).collect(),
            entries: written
                .into_iter()
                .map(|row| (row.id, Found::parse_all(&row.found).unwrap_or_default()))
                .collect(),
            by_group,
            unreadable,
        })
    }

    fn declare<D: polychron::Declare>(&self, _: &mut D) {}
}

/// Examines a database that was just opened; `waits` says of the last client whether it was answered only what was durable. Answers how many transactions
/// are there that were not acknowledged.
pub(crate) fn examine(database: &Database<AnyProtocol>, ledger: &mut Ledger) -> Result<usize, String> {
    if let Some(Line::Wrong(what)) = ledger.lines.iter().find(|line| matches!(line, Line::Wrong(_))) {
        return Err(what.clone());
    }
    let was_open = ledger.lines.contains(&Line::Open);
    if was_open && database.find_table("register").is_none() {
        return Err("the tables are not there".to_owned());
    }
    check_tables(database, ledger)?;
    let tables = tables(database).map_err(|error| error.to_string())?;
    let rows = database.execute(&mut ReadAll(tables)).map_err(|error| format!("rows cannot be read: {error}"))?;
    check_rows(database, &rows, tables)?;
    check_presence(&rows, ledger)?;
    let chains = chains(&rows)?;
    check_order(&rows, &chains, ledger)?;
    let done: BTreeSet<u64> =
        ledger.lines.iter().filter_map(|line| if let Line::Done(id, _) = line { Some(*id) } else { None }).collect();
    let begun = ledger.lines.iter().filter_map(|line| if let Line::Begin(id) = line { Some(*id) } else { None });
    ledger.absent.extend(begun.filter(|id| !rows.entries.contains_key(id)).collect::<Vec<_>>());
    ledger.present.extend(rows.entries.keys());
    Ok(rows.entries.keys().filter(|id| !done.contains(id)).count())
}

fn check_tables(database: &Database<AnyProtocol>, ledger: &Ledger) -> Result<(), String> {
    for (number, is_there) in &ledger.tables {
        if database.find_table(&name_of(*number)).is_some() != *is_there {
            let what = if *is_there { "was made, and is not there" } else { "was dropped, and is there" };
            return Err(format!("table {} {what}", name_of(*number)));
        }
    }
    Ok(())
}

fn check_rows(database: &Database<AnyProtocol>, rows: &Rows, tables: Tables) -> Result<(), String> {
    if let Some(id) = rows.unreadable {
        return Err(format!("the entry of {id} is not what any transaction has written"));
    }
    for (group, ids) in rows.by_group.iter().enumerate() {
        let expected: BTreeSet<u64> =
            rows.registers.values().filter(|row| row.group as usize == group).map(|row| row.id).collect();
        if *ids != expected {
            return Err(format!("the index of groups has {ids:?} in {group}, and the table has {expected:?}"));
        }
    }
    for row in rows.registers.values() {
        if row.again != row.writer || u64::from(row.group) != row.id % u64::from(GROUPS) || row.id >= REGISTERS {
            return Err(format!("no transaction has written this: {row:?}"));
        }
    }
    let definition = database.definition(tables.registers.id()).map_err(|error| error.to_string())?;
    if let Some(index) = definition.indexes.iter().find(|index| !["by_group", BY_WRITER].contains(&&*index.name)) {
        return Err(format!("nobody has made the index {}", index.name));
    }
    Ok(())
}

fn check_presence(rows: &Rows, ledger: &Ledger) -> Result<(), String> {
    // Readers that were answered have no entry.
    let only_read = |found: &String| !found.contains(['w', 'd']);
    let readers: HashSet<u64> = ledger
        .lines
        .iter()
        .filter_map(|line| if let Line::Done(id, found) = line { only_read(found).then_some(*id) } else { None })
        .collect();
    let is_writer = |id: &u64| !readers.contains(id);
    let missing = ledger.present.iter().filter(|id| !rows.entries.contains_key(id));
    if let Some(id) = missing.into_iter().find(|id| is_writer(id)) {
        return Err(format!("{id} was acknowledged, or was there before, and is lost"));
    }
    if let Some(id) = ledger.absent.iter().find(|id| rows.entries.contains_key(id)) {
        return Err(format!("{id} has failed, or was lost before, and is there"));
    }
    for told in ledger.lines.split(|line| *line == Line::Open) {
        let is_there = |line: &Line| matches!(line, Line::Begin(id) if rows.entries.contains_key(id));
        let Some(last) = told.iter().rposition(is_there) else { continue };
        for line in &told[..last] {
            if let Line::Done(id, _) = line
                && !rows.entries.contains_key(id)
                && is_writer(id)
            {
                return Err(format!("{id} is lost, and {:?}, which began after it was answered, is not", told[last]));
            }
        }
    }
    Ok(())
}

/// Who wrote each register, in sequence from the first writer on.
fn chains(rows: &Rows) -> Result<BTreeMap<u64, Vec<u64>>, String> {
    let mut chains = BTreeMap::new();
    for register in 0..REGISTERS {
        let wrote = |found: &Found| found.register == register && found.action != Action::Read;
        let (mut chain, mut all) = (Vec::new(), HashSet::new());
        let last = rows.registers.get(&register).map(|row| row.writer);
        let mut by = last.or_else(|| rows.gone.get(&register).copied()).unwrap_or(0);
        while by != 0 {
            let before = rows.entries.get(&by).and_then(|entry| entry.iter().find(|found| wrote(found)));
            let Some(before) = before else {
                return Err(format!("{by} wrote register {register}, and its entry does not say so, or is not there"));
            };
            if !all.insert(by) {
                return Err(format!("the history of register {register} comes back to {by}"));
            }
            chain.push(by);
            by = before.by;
        }
        chain.reverse();
        for (id, entry) in &rows.entries {
            if entry.iter().any(wrote) && !all.contains(id) {
                return Err(format!("what {id} wrote into register {register} is lost"));
            }
        }
        check_text(rows, register, &chain)?;
        chains.insert(register, chain);
    }
    Ok(chains)
}

/// A register has the text of the last one that wrote it whole.
fn check_text(rows: &Rows, register: u64, chain: &[u64]) -> Result<(), String> {
    let mut length = None;
    for id in chain {
        let wrote = |found: &&Found| found.register == register && found.action != Action::Read;
        let action = rows.entries[id].iter().find(wrote).map(|found| found.action);
        length = match (action, length) {
            (Some(Action::Delete), _) => None,
            (_, Some(length)) if !id.is_multiple_of(3) => Some(length),
            _ => Some(length_of(*id)),
        };
    }
    let row = rows.registers.get(&register);
    if row.map(|row| row.text.len()) != length || row.is_some_and(|row| row.text.bytes().any(|byte| byte != b'x')) {
        return Err(format!(
            "register {register} has {:?} bytes of text; {length:?} were written",
            row.map(|row| row.text.len())
        ));
    }
    Ok(())
}

/// Looks for a cycle.
fn check_order(rows: &Rows, chains: &BTreeMap<u64, Vec<u64>>, ledger: &Ledger) -> Result<(), String> {
    let mut graph: DiGraph<String, ()> = DiGraph::new();
    let mut nodes: HashMap<u64, NodeIndex> = HashMap::new();
    for id in rows.entries.keys() {
        nodes.insert(*id, graph.add_node(id.to_string()));
    }
    let mut readers: Vec<(u64, Vec<Found>)> = rows.entries.iter().map(|(id, found)| (*id, found.clone())).collect();
    for line in &ledger.lines {
        let Line::Done(id, found) = line else { continue };
        let found = Found::parse_all(found).ok_or_else(|| format!("{id} was answered {found}"))?;
        let is_reader = found.iter().all(|found| found.action == Action::Read);
        // Of a client that did not wait, a reader may have seen what is lost.
        if is_reader
            && (ledger.present.contains(id) || found.iter().all(|it| it.by == 0 || rows.entries.contains_key(&it.by)))
        {
            nodes.insert(*id, graph.add_node(format!("reader {id}")));
            readers.push((*id, found));
        }
    }
    let mut positions: HashMap<(u64, u64), usize> = HashMap::new();
    for (register, chain) in chains {
        positions.extend(chain.iter().enumerate().map(|(position, id)| ((*register, *id), position)));
        chain.windows(2).for_each(|pair| _ = graph.add_edge(nodes[&pair[0]], nodes[&pair[1]], ()));
    }
    for (id, found) in &readers {
        for it in found.iter().filter(|it| it.action == Action::Read) {
            let chain = chains.get(&it.register).map_or(&[][..], Vec::as_slice);
            let position = positions.get(&(it.register, it.by)).copied();
            if it.by != 0 && position.is_none() {
                return Err(format!("{id} has read register {} of {}, who is lost", it.register, it.by));
            }
            let next = chain.get(position.map_or(0, |position| position + 1));
            let own = nodes[id];
            position.into_iter().for_each(|_| _ = graph.add_edge(nodes[&it.by], own, ()));
            next.into_iter().filter(|next| *next != id).for_each(|next| _ = graph.add_edge(own, nodes[next], ()));
        }
    }
    add_real_time(&mut graph, &nodes, ledger);
    // Not by recursion: what is told is a path of many thousand points.
    match kosaraju_scc(&graph).into_iter().find(|cycle| cycle.len() > 1) {
        None => Ok(()),
        Some(cycle) => {
            let names: Vec<&str> = cycle.iter().map(|node| &*graph[*node]).filter(|name| !name.is_empty()).collect();
            Err(format!("there is no serial order of {}", names.join(", ")))
        }
    }
}

/// What was answered before another one began comes before it.
fn add_real_time(graph: &mut DiGraph<String, ()>, nodes: &HashMap<u64, NodeIndex>, ledger: &Ledger) {
    let mut point = graph.add_node(String::new());
    for line in &ledger.lines {
        let next = graph.add_node(String::new());
        graph.add_edge(point, next, ());
        match line {
            Line::Done(id, _) => nodes.get(id).into_iter().for_each(|node| _ = graph.add_edge(*node, next, ())),
            Line::Begin(id) => nodes.get(id).into_iter().for_each(|node| _ = graph.add_edge(point, *node, ())),
            _ => {}
        }
        point = next;
    }
}
