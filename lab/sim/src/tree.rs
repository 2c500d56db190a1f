//! Files and directories by their names.

use std::collections::{BTreeMap, BTreeSet};

use polychron_log::disk::Cause;

use crate::content::{Block, Content};

/// The number of a file or directory, whatever it is called.
pub(crate) type Id = u64;

/// The root directory.
pub(crate) const ROOT: Id = 0;

/// The names of a directory: for everybody, on the medium, and in between.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub(crate) durable: BTreeMap<String, Id>,
    pub(crate) cache: BTreeMap<String, Id>,
    /// Changes since the last sync, in their order.
    pub(crate) pending: Vec<(String, Option<Id>)>,
}

impl Names {
    /// A name comes to stand for something else, or for nothing.
    pub(crate) fn set(&mut self, name: &str, id: Option<Id>) {
        apply(&mut self.cache, name, id);
        self.pending.push((name.to_owned(), id));
    }

    pub(crate) fn sync(&mut self) {
        for (name, id) in std::mem::take(&mut self.pending) {
            apply(&mut self.durable, &name, id);
        }
    }
}

/// What a change makes of names.
pub(crate) fn apply(names: &mut BTreeMap<String, Id>, name: &str, id: Option<Id>) {
    match id {
        Some(id) => names.insert(name.to_owned(), id),
        None => names.remove(name),
    };
}

#[derive(Clone, Debug)]
pub(crate) enum Node {
    File(Content),
    Directory(Names),
}

/// How many blocks of removed files are remembered, for files that are given their place and show them.
const FREED: usize = 64;

/// All files and directories.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) nodes: BTreeMap<Id, Node>,
    pub(crate) freed: Vec<Block>,
    next: Id,
}

impl Tree {
    pub(crate) fn new() -> Self {
        Self { nodes: BTreeMap::from([(ROOT, Node::Directory(Names::default()))]), freed: Vec::new(), next: ROOT + 1 }
    }

    pub(crate) fn add(&mut self, node: Node) -> Id {
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, node);
        id
    }

    /// What a path stands for.
    pub(crate) fn find(&self, path: &str) -> Result<Id, Cause> {
        let mut id = ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let Node::Directory(names) = &self.nodes[&id] else { return Err(Cause::NotADirectory) };
            id = *names.cache.get(name).ok_or(Cause::NotFound)?;
        }
        Ok(id)
    }

    pub(crate) fn directory(&self, path: &str) -> Result<(Id, &Names), Cause> {
        let id = self.find(path)?;
        match &self.nodes[&id] {
            Node::Directory(names) => Ok((id, names)),
            Node::File(_) => Err(Cause::NotADirectory),
        }
    }

    pub(crate) fn file(&self, path: &str) -> Result<(Id, &Content), Cause> {
        let id = self.find(path)?;
        match &self.nodes[&id] {
            Node::File(content) => Ok((id, content)),
            Node::Directory(_) => Err(Cause::IsADirectory),
        }
    }

    /// The directory that a path's last name is in, which need not be there, and that name.
    pub(crate) fn parent<'p>(&self, path: &'p str) -> Result<(Id, &'p str), Cause> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.directory(parent)?.0, name))
    }

    pub(crate) fn names_mut(&mut self, id: Id) -> &mut Names {
        match self.nodes.get_mut(&id) {
            Some(Node::Directory(names)) => names,
            _ => unreachable!("{id} is a directory"),
        }
    }

    /// A file that has a handle: it is there whatever became of its name.
    pub(crate) fn content_mut(&mut self, id: Id) -> &mut Content {
        match self.nodes.get_mut(&id) {
            Some(Node::File(content)) => content,
            _ => unreachable!("{id} is a file"),
        }
    }

    /// The room that all files take for those who see them, in bytes.
    pub(crate) fn room(&self) -> u64 {
        let reached = self.reached(|names| names.cache.values().copied().collect()).into_iter();
        reached
            .filter_map(|id| if let Node::File(content) = &self.nodes[&id] { Some(content.room()) } else { None })
            .sum()
    }

    /// The paths of all files that have blocks, and how many these are.
    pub(crate) fn files(&self) -> Vec<(String, u64)> {
        let (mut files, mut open) = (Vec::new(), vec![(String::new(), ROOT)]);
        while let Some((path, id)) = open.pop() {
            match &self.nodes[&id] {
                Node::File(content) if content.cache.blocks > 0 => files.push((path, content.cache.blocks)),
                Node::File(_) => {}
                Node::Directory(names) => {
                    let within = |name: &String| if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                    open.extend(names.cache.iter().map(|(name, id)| (within(name), *id)));
                }
            }
        }
        files.sort();
        files
    }

    /// Forgets what no name can ever stand for again, but for the files that are open.
    pub(crate) fn collect(&mut self, open: &BTreeSet<Id>) {
        let reached = self.reached(|names| {
            let pending = names.pending.iter().filter_map(|(_, id)| *id);
            names.durable.values().chain(names.cache.values()).copied().chain(pending).collect()
        });
        let gone: Vec<Id> =
            self.nodes.keys().filter(|id| !reached.contains(id) && !open.contains(id)).copied().collect();
        for id in gone {
            if let Some(Node::File(content)) = self.nodes.remove(&id) {
                let room = FREED - self.freed.len().min(FREED);
                self.freed.extend(content.durable.written().take(room).cloned());
            }
        }
    }

    fn reached(&self, names_of: impl Fn(&Names) -> Vec<Id>) -> BTreeSet<Id> {
        let mut reached = BTreeSet::from([ROOT]);
        let mut open = vec![ROOT];
        while let Some(id) = open.pop() {
            if let Some(Node::Directory(names)) = self.nodes.get(&id) {
                open.extend(names_of(names).into_iter().filter(|id| reached.insert(*id)));
            }
        }
        reached
    }
}
