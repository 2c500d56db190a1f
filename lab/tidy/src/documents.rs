//! Links, manifests, files that nothing leads to, and traces of the machine a file was written on.

use std::collections::HashSet;

use crate::source::{code, words};
use crate::{Finding, Source};

/// Relative links of documents that lead nowhere. `exists` answers for paths from the root.
pub fn links(sources: &[Source], exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.path.ends_with(".md")) {
        let folder = source.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut is_code = false;
        for (index, line) in source.text.lines().enumerate() {
            is_code ^= line.trim_start().starts_with("```");
            for target in targets(line).filter(|_| !is_code) {
                let path = target.split('#').next().unwrap_or_default();
                let elsewhere = path.contains("://") || path.starts_with("mailto:") || path.is_empty();
                if !elsewhere && !resolve(folder, path).is_some_and(|path| exists(&path)) {
                    findings.push(Finding::new(source, index + 1, format!("the link to {target} leads nowhere")));
                }
            }
        }
    }
    findings
}

/// What the links of a line point at: `[text](target)` and `[name]: target`.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let defined = line.split_once("]: ").filter(|_| line.starts_with('[')).map(|(_, target)| target.trim());
    inline.chain(defined)
}

/// A path from the root, of one that is relative to `folder`; `None` when it leaves the tree.
fn resolve(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop()?;
        } else {
            parts.push(part);
        }
    }
    Some(parts.join("/"))
}

/// Files, types and functions that documents name in code and that are not there.
pub fn names(sources: &[Source]) -> Vec<Finding> {
    let is_document = |source: &&Source| source.path.ends_with(".md") && source.path != "CHANGELOG.md";
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    let others = sources.iter().filter(|source| !source.path.ends_with(".md"));
    let known: HashSet<&str> =
        others.flat_map(|source| source.text.split(move |character| !is_part(character))).collect();
    let mut findings = Vec::new();
    for source in sources.iter().filter(is_document) {
        let mut is_code = false;
        for (index, line) in source.text.lines().enumerate() {
            is_code ^= line.trim_start().starts_with("```");
            let spans = line.split('`').skip(1).step_by(2).filter(|_| !is_code);
            for span in spans.filter(|span| is_name(span)) {
                let is_there = match span.strip_suffix(".rs") {
                    Some(_) => sources.iter().any(|other| format!("/{}", other.path).ends_with(&format!("/{span}"))),
                    None => span.trim_end_matches("()").split("::").all(|part| known.contains(part)),
                };
                if !is_there {
                    findings.push(Finding::new(source, index + 1, format!("there is no `{span}`")));
                }
            }
        }
    }
    findings
}

/// Whether a span of code can be nothing but the name of a file, a type or a function.
fn is_name(span: &str) -> bool {
    let is_lower =
        |text: &str| text.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || "_/".contains(it));
    if let Some(file) = span.strip_suffix(".rs") {
        return is_lower(file);
    }
    let name = span.trim_end_matches("()");
    let is_type = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_uppercase()) && part.chars().any(|it| it.is_ascii_lowercase())
    };
    let is_path =
        name.split("::").all(|part| !part.is_empty() && part.chars().all(|it| it.is_ascii_alphanumeric() || it == '_'));
    is_path && (name.contains('_') && is_lower(name) || name.len() > 2 && name.split("::").next().is_some_and(is_type))
}

/// Crates without a description, without the workspace's lints, or outside the workspace.
pub fn manifests(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let workspace = sources.iter().find(|source| source.path == "Cargo.toml");
    for source in sources.iter().filter(|source| source.crate_folder().is_some() && is_manifest(source)) {
        let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
        let described = lines.iter().any(|line| {
            line.strip_prefix("description").is_some_and(|rest| !rest.trim_matches([' ', '=', '"']).is_empty())
        });
        if !described {
            findings.push(Finding::new(source, 0, "the crate has no description"));
        }
        let linted = lines.windows(2).any(|pair| pair == ["[lints]", "workspace = true"]);
        if !linted && !lines.contains(&"lints.workspace = true") {
            findings.push(Finding::new(source, 0, "the crate lacks `[lints] workspace = true`"));
        }
        let folder = source.path.trim_end_matches("/Cargo.toml");
        let is_member = |workspace: &Source| {
            let all = folder.split_once('/').map_or_else(String::new, |(root, _)| format!("\"{root}/*\""));
            workspace.text.contains(&format!("\"{folder}\"")) || workspace.text.contains(&all)
        };
        if !workspace.is_some_and(is_member) {
            findings.push(Finding::new(source, 0, "the crate is not a member of the workspace"));
        }
    }
    findings
}

/// What a registry wants to know of each crate of the product.
const PUBLISHED: [&str; 5] = ["version", "license", "readme", "keywords", "categories"];

/// Crates of the product that could not be published: a registry would not learn enough of them, or not find what they depend on.
pub fn unpublishable(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.path.starts_with("crates/") && is_manifest(source)) {
        for field in PUBLISHED {
            let known =
                |line: &str| line.starts_with(&format!("{field}.workspace")) || line.starts_with(&format!("{field} ="));
            if !source.text.lines().any(known) {
                findings.push(Finding::new(source, 0, format!("the crate has no `{field}`")));
            }
        }
        if source.text.lines().any(|line| line.starts_with("publish")) {
            findings.push(Finding::new(source, 0, "the crate is not to be published"));
        }
    }
    for workspace in sources.iter().filter(|source| source.path == "Cargo.toml") {
        for (at, line) in workspace.text.lines().enumerate() {
            if line.contains("path = \"crates/") && !line.contains("version = ") {
                findings.push(Finding::new(workspace, at + 1, "a registry needs the version of what is depended on"));
            }
        }
    }
    findings
}

fn is_manifest(source: &Source) -> bool {
    source.path.ends_with("/Cargo.toml")
}

/// Rust files under `src` that no `mod` line names.
pub fn unreached(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        let Some((root, inside)) = source.path.split_once("/src/") else { continue };
        if matches!(inside, "lib.rs" | "main.rs") || inside.starts_with("bin/") {
            continue;
        }
        let module = inside.trim_end_matches(".rs").trim_end_matches("/mod");
        let (folder, name) = module.rsplit_once('/').unwrap_or(("", module));
        let parents = if folder.is_empty() {
            [format!("{root}/src/lib.rs"), format!("{root}/src/main.rs")]
        } else {
            [format!("{root}/src/{folder}.rs"), format!("{root}/src/{folder}/mod.rs")]
        };
        let declares = |parent: &Source| {
            parents.contains(&parent.path)
                && words(&code(&parent.text), name).iter().any(|at| {
                    let text = code(&parent.text);
                    text[..*at].trim_end().ends_with("mod") && text[at + name.len()..].trim_start().starts_with(';')
                })
        };
        if !sources.iter().any(declares) {
            findings.push(Finding::new(source, 0, format!("no `mod {name};` leads to this file")));
        }
    }
    findings
}

/// Paths of somebody's machine: `prefixes` at the beginning of a path.
pub fn machine_paths(sources: &[Source], prefixes: &[&str], allowed: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_path = |character: char| character.is_alphanumeric() || "_-./<>{}".contains(character);
    for source in sources.iter().filter(|source| !allowed.iter().any(|prefix| source.path.starts_with(prefix))) {
        for (index, line) in source.text.lines().enumerate() {
            for prefix in prefixes {
                let begins = |at: usize| !line[..at].chars().next_back().is_some_and(is_path);
                if line.match_indices(prefix).any(|(at, _)| begins(at)) {
                    findings.push(Finding::new(source, index + 1, format!("{prefix} is a path of one machine")));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_what_is_not_there_are_found() {
        let code = Source::new("crates/a/src/worker.rs", "pub struct Worker;\nimpl Worker { fn end_group(&self) {} }");
        let fine =
            "`Worker`, `Worker::end_group`, `end_group()`, `worker.rs`, `src/worker.rs`, `T`, `a b`, `WHERE`, `x.y`";
        let document = |text: &str| Source::new("docs/a.md", text);
        assert_eq!(names(&[code.clone(), document(fine), document("```\n`Gone`\n```")]), []);
        for gone in ["`Workers`", "`Worker::begin_group`", "`begin_group`", "`gone.rs`"] {
            assert_eq!(names(&[code.clone(), document(gone)]).len(), 1, "{gone}");
        }
    }

    #[test]
    fn a_dead_link_is_found() {
        let text = "[a](b.md) [c](../README.md#top) [d](https://x.y/z)\n```\n[e](none.md)\n```\n[f](none.md) [g](#here)\n\
                    [h]: none.md\n[i](../../outside.md)";
        let findings = links(&[Source::new("docs/a.md", text)], |path| ["docs/b.md", "README.md"].contains(&path));
        assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [5, 6, 7]);
    }

    #[test]
    fn a_poor_manifest_is_found() {
        let workspace = Source::new("Cargo.toml", "members = [\"crates/a\"]");
        let good = Source::new("crates/a/Cargo.toml", "description = \"b\"\n\n[lints]\nworkspace = true\n");
        let poor = Source::new("crates/b/Cargo.toml", "[package]\ndescription = \"\"\n");
        assert_eq!(manifests(&[workspace.clone(), good]), []);
        assert_eq!(manifests(&[workspace, poor]).len(), 3);
    }

    #[test]
    fn a_crate_that_cannot_be_published_is_found() {
        let fields = PUBLISHED.map(|field| format!("{field}.workspace = true\n")).concat();
        let good = Source::new("crates/a/Cargo.toml", &fields);
        let poor = Source::new("crates/b/Cargo.toml", "version = \"1\"\npublish = false\n");
        assert_eq!(unpublishable(&[good]), []);
        assert_eq!(unpublishable(&[poor.clone(), Source::new("lab/c/Cargo.toml", "")]).len(), PUBLISHED.len());
        let line = |text| Source::new("Cargo.toml", text);
        assert_eq!(
            unpublishable(&[line("a = { path = \"crates/a\", version = \"1\" }\nb = { path = \"lab/b\" }")]),
            []
        );
        assert_eq!(unpublishable(&[line("a = { path = \"crates/a\" }")]).len(), 1);
    }

    #[test]
    fn a_file_that_nothing_leads_to_is_found() {
        let sources = [
            Source::new("crates/a/src/lib.rs", "mod b; pub mod c; // mod e;"),
            Source::new("crates/a/src/b.rs", "mod d;"),
            Source::new("crates/a/src/b/d.rs", ""),
            Source::new("crates/a/src/c/mod.rs", "mod f;"),
            Source::new("crates/a/src/c/f.rs", ""),
            Source::new("crates/a/tests/g.rs", ""),
        ];
        assert_eq!(unreached(&sources), []);
        for dead in ["crates/a/src/e.rs", "crates/a/src/b/e.rs", "crates/a/src/c/b.rs"] {
            let with_dead: Vec<_> = sources.iter().cloned().chain([Source::new(dead, "")]).collect();
            assert_eq!(unreached(&with_dead).len(), 1, "{dead}");
        }
    }

    #[test]
    fn a_path_of_a_machine_is_found() {
        let prefixes = ["/home/"];
        for text in ["see /home/me/x", "\"/home/me\"", "a = `/home/me`"] {
            assert_eq!(machine_paths(&[Source::new("docs/a.md", text)], &prefixes, &[]).len(), 1, "{text}");
        }
        let fine = [Source::new("docs/a.md", "https://x.y/home/page"), Source::new("lab/tidy/a.rs", "/home/me")];
        assert_eq!(machine_paths(&fine, &prefixes, &["lab/tidy/"]), []);
    }
}
