//! The workspace's rules, checked on the source as text. `tests/tidy.rs` has the lists and applies each rule to the tree.
//!
//! Every rule is a function from sources to [`Finding`]s; beside it stands a test that shows it an offence.

pub mod architecture;
pub mod documents;
pub mod evidence;
pub mod sizes;
pub mod source;
pub mod vocabulary;

use std::fmt;
use std::path::Path;

/// One file of the tree.
#[derive(Clone, Debug)]
pub struct Source {
    /// Path from the root, with `/` between its parts.
    pub path: String,
    /// The whole content.
    pub text: String,
}

impl Source {
    /// A source, for the tests of rules.
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// Whether this is Rust.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether the whole file consists of tests.
    pub fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        self.path.contains("/tests/") || name == "tests.rs" || name.ends_with("_tests.rs")
    }

    /// Whether this is a program that measures or shows something.
    pub fn is_program(&self) -> bool {
        self.path.starts_with("examples/") || self.path.contains("/examples/") || self.path.contains("/benches/")
    }

    /// The folder of the crate that the file is in: under `crates/`, or under `lab/` with that before it.
    pub fn crate_folder(&self) -> Option<&str> {
        let (root, rest) = self.path.split_once('/')?;
        let (folder, _) = rest.split_once('/')?;
        match root {
            "crates" => Some(folder),
            "lab" => Some(&self.path[.."lab/".len() + folder.len()]),
            _ => None,
        }
    }
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub path: String,
    /// The line, from one; zero when the file as a whole is meant.
    pub line: usize,
    /// What is wrong and what to do about it.
    pub message: String,
}

impl Finding {
    pub(crate) fn new(source: &Source, line: usize, message: impl Into<String>) -> Self {
        Self { path: source.path.clone(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Reads all Rust files, manifests and documents under `root`, without hidden and built ones.
///
/// # Panics
/// When a folder or file cannot be read.
pub fn tree(root: &Path) -> Vec<Source> {
    let mut sources = Vec::new();
    visit(root, "", &mut sources);
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    sources
}

fn visit(folder: &Path, prefix: &str, sources: &mut Vec<Source>) {
    for entry in std::fs::read_dir(folder).expect("the folder can be read") {
        let entry = entry.expect("the entry can be read");
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if entry.file_type().expect("the entry has a type").is_dir() {
            if !name.starts_with('.') && !name.starts_with("target") {
                visit(&entry.path(), &format!("{path}/"), sources);
            }
        } else if [".rs", ".toml", ".md"].iter().any(|ending| name.ends_with(ending)) {
            let text = std::fs::read_to_string(entry.path()).expect("sources are text");
            sources.push(Source { path, text });
        }
    }
}
