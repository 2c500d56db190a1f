//! Who may name and use what.

use std::collections::BTreeMap;

use crate::source::{code, line_of, paths, words};
use crate::{Finding, Source};

/// Protocols named outside their own folders and the `allowed` paths, which are prefixes. A name is a list of words, as they stand in
/// identifiers of any style: `["lazy", "occ"]` finds `lazy_occ`, `LazyOcc` and `lazy-occ`.
///
/// The files of `citing` may name protocols in comments, for they refer to papers, but not in code.
pub fn names(sources: &[Source], names: &[&[&str]], allowed: &[&str], citing: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        if allowed.iter().any(|prefix| source.path.starts_with(prefix)) {
            continue;
        }
        let own = protocol_of(source).and_then(|folder| folder.split('_').next());
        let cites = citing.contains(&source.path.as_str());
        let text = if cites { code(&source.text) } else { source.text.clone() };
        for (index, line) in text.lines().enumerate() {
            let humps = humps(line);
            for name in names.iter().filter(|name| own != Some(name[0])) {
                if humps.windows(name.len()).any(|window| window == *name) {
                    let message = format!("a protocol is named: {}", name.join("-"));
                    findings.push(Finding::new(source, index + 1, message));
                }
            }
        }
    }
    findings
}

/// The words of a line in lower case, identifiers taken apart.
pub(crate) fn humps(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut before = ' ';
    for character in line.chars() {
        if character.is_alphanumeric() {
            let begins = !before.is_alphanumeric() || (character.is_uppercase() && !before.is_uppercase());
            if begins {
                words.push(String::new());
            }
            if let Some(word) = words.last_mut() {
                word.extend(character.to_lowercase());
            }
        }
        before = character;
    }
    words
}

/// Protocol folders of the product that lack one of these files, unless its path is among the exceptions, or that have an excepted one.
pub fn protocol_files(sources: &[Source], files: &[&str], exceptions: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for folder in protocol_folders(sources) {
        let Some(module) = sources.iter().find(|source| source.path == format!("crates/protocols/src/{folder}/mod.rs"))
        else {
            continue;
        };
        for file in files {
            let path = format!("crates/protocols/src/{folder}/{file}");
            let is_there = sources.iter().any(|source| source.path == path);
            if is_there == exceptions.contains(&path.as_str()) {
                let message = format!("{path} is {}", if is_there { "there, and excepted" } else { "not there" });
                findings.push(Finding::new(module, 1, message));
            }
        }
    }
    findings
}

/// Files of tests that nothing compiles: beside a `tests/main.rs`, a file is a module of it or a test of the manifest.
pub fn orphaned_tests(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for main in sources.iter().filter(|source| source.path.ends_with("/tests/main.rs")) {
        let folder = main.path.trim_end_matches("main.rs");
        let manifest = format!("{}Cargo.toml", folder.trim_end_matches("tests/"));
        let manifest = sources.iter().find(|source| source.path == manifest).map_or("", |source| &*source.text);
        for source in sources {
            let Some(name) = source.path.strip_prefix(folder).and_then(|file| file.strip_suffix(".rs")) else {
                continue;
            };
            let is_listed = main.text.lines().any(|line| line == format!("mod {name};"))
                || manifest.lines().any(|line| line == format!("name = \"{name}\""));
            if !name.contains('/') && name != "main" && !is_listed {
                findings.push(Finding::new(source, 1, format!("{} has no such module", main.path)));
            }
        }
    }
    findings
}

/// The folders of protocols.
pub fn protocol_folders(sources: &[Source]) -> Vec<String> {
    let mut folders: Vec<String> = sources.iter().filter_map(protocol_of).map(str::to_owned).collect();
    folders.sort();
    folders.dedup();
    folders
}

fn protocol_of(source: &Source) -> Option<&str> {
    let inside = |root| source.path.strip_prefix(root);
    inside("crates/protocols/src/").or_else(|| inside("lab/compared/src/"))?.split_once('/').map(|(folder, _)| folder)
}

/// Protocol folders that name one another.
pub fn protocol_imports(sources: &[Source]) -> Vec<Finding> {
    let folders = protocol_folders(sources);
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        let Some(own) = protocol_of(source) else { continue };
        for (line, path) in paths(&code(&source.text)) {
            let inner = ["crate::", "super::", "polychron_protocols::"].iter().any(|root| path.starts_with(root));
            let root = |part: &&str| matches!(*part, "crate" | "super" | "self" | "polychron_protocols");
            let named = path.split("::").find(|part| !root(part)).filter(|_| inner);
            if let Some(named) = named.filter(|named| *named != own && folders.iter().any(|folder| folder == named)) {
                findings.push(Finding::new(source, line, format!("{own} uses {named}; what two share moves down")));
            }
        }
    }
    findings
}

/// Uses of one of `forbidden`, which are paths, outside the crates of `allowed`.
pub fn doors(sources: &[Source], forbidden: &[&str], allowed: &[&str], programs_may: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust() && !(programs_may && source.is_program())) {
        if source.crate_folder().is_some_and(|folder| allowed.contains(&folder)) {
            continue;
        }
        for (line, path) in paths(&code(&source.text)) {
            let path = path.trim_start_matches("::");
            let meets = |door: &&&str| path == **door || path.starts_with(&format!("{door}::"));
            if let Some(door) = forbidden.iter().find(meets) {
                findings.push(Finding::new(source, line, format!("only {allowed:?} may use {door}")));
            }
        }
    }
    findings.dedup();
    findings
}

/// Uses of one of `forbidden`, which are paths, in files under the prefixes `watched`, but for those under `allowed`.
pub fn doors_within(sources: &[Source], forbidden: &[&str], watched: &[&str], allowed: &[&str]) -> Vec<Finding> {
    let is_under = |path: &str, prefixes: &[&str]| prefixes.iter().any(|prefix| path.starts_with(prefix));
    let inside = |source: &&Source| is_under(&source.path, watched) && !is_under(&source.path, allowed);
    let inside: Vec<Source> = sources.iter().filter(inside).cloned().collect();
    let mut findings = doors(&inside, forbidden, &[], false);
    findings.iter_mut().for_each(|finding| finding.message = finding.message.replace("[]", &format!("{allowed:?}")));
    findings
}

/// Unsafe code outside of the crates that may have some, and in those more places than so many, tests aside.
pub fn unsafe_code(sources: &[Source], allowed: &[(&str, usize)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        let code = code(&source.text);
        let found = words(&code, "unsafe");
        // That one has a workspace of its own.
        let peers = || source.path.starts_with("peers/").then_some("peers");
        match source.crate_folder().or_else(peers).filter(|folder| allowed.iter().any(|(name, _)| name == folder)) {
            Some(folder) if !source.is_test() => *places.entry(folder).or_default() += found.len(),
            Some(_) => {}
            None => {
                let finding = |at| Finding::new(source, line_of(&code, at), "unsafe is not for this crate");
                findings.extend(found.into_iter().map(finding));
            }
        }
    }
    for (folder, most) in allowed {
        let count = places.get(folder).copied().unwrap_or(0);
        if count > *most {
            let root = Source::new(folder, "");
            findings.push(Finding::new(&root, 0, format!("{count} places are unsafe, and may be {most}")));
        }
    }
    findings
}

/// Protocol folders in which more files have unsafe code than so many, tests and models aside, or more than a third of all; and entries that are no
/// longer needed.
pub fn unsafe_files(sources: &[Source], allowed: &[(&str, usize)]) -> Vec<Finding> {
    let is_model = |source: &Source| source.path.ends_with("/model.rs") || source.path.contains("/model/");
    let mut files: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.is_rust() && !source.is_test() && !is_model(source)) {
        let folder = source.path.strip_prefix("crates/protocols/src/").and_then(|path| path.split_once('/'));
        let Some((folder, _)) = folder else { continue };
        let (unsafe_ones, all) = files.entry(folder).or_default();
        *unsafe_ones += usize::from(!words(&code(&source.text), "unsafe").is_empty());
        *all += 1;
    }
    let mut findings = Vec::new();
    for (folder, (count, all)) in files {
        let most = allowed.iter().find(|(name, _)| *name == folder).map_or(0, |(_, most)| *most);
        if count != most || count * 3 > all {
            let text =
                format!("{count} of {all} files have unsafe code, and are to be {most}, and a third at the most");
            findings.push(Finding::new(&Source::new(folder, ""), 0, text));
        }
    }
    findings
}

/// Manifests under `crates/` that name a package of `lab/`, for tests too.
pub fn laboratory(sources: &[Source]) -> Vec<Finding> {
    let manifests = || sources.iter().filter(|source| source.path.ends_with("/Cargo.toml"));
    let package =
        |source: &Source| source.text.lines().find_map(|line| line.strip_prefix("name = ").map(str::to_owned));
    let lab: Vec<String> = manifests().filter(|source| source.path.starts_with("lab/")).filter_map(package).collect();
    let lab: Vec<&str> = lab.iter().map(|name| name.trim_matches('"')).collect();
    let mut findings = Vec::new();
    for source in manifests().filter(|source| source.path.starts_with("crates/")) {
        for (index, line) in source.text.lines().enumerate() {
            let words = line.split(|character: char| !character.is_alphanumeric() && character != '-');
            if let Some(name) = words.into_iter().find(|word| lab.contains(word)) {
                findings.push(Finding::new(source, index + 1, format!("{name} is of the laboratory")));
            }
        }
    }
    findings
}

/// Dependencies among the workspace's crates that `allowed`, a list of folders and what each may depend on, does not
/// have. Dependencies of tests alone are free.
pub fn dependencies(sources: &[Source], allowed: &[(&str, &[&str])]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.path.ends_with("Cargo.toml")) {
        let Some(folder) = source.crate_folder() else { continue };
        let Some((_, below)) = allowed.iter().find(|(name, _)| *name == folder) else {
            findings.push(Finding::new(source, 0, "the crate is not in the table of dependencies"));
            continue;
        };
        let mut counts = false;
        for (index, line) in source.text.lines().enumerate() {
            if line.starts_with('[') {
                // A table of its own, [dependencies.x], names the dependency in its head.
                counts = line.contains("dependencies") && !line.contains("dev-dependencies");
            }
            let name = line.trim_start_matches('[').rsplit("dependencies.").next().unwrap_or(line);
            let name = name.split(['=', '.', ' ', ']']).next().unwrap_or_default();
            let Some(used) = name.strip_prefix("polychron").filter(|_| counts) else { continue };
            let used = used.strip_prefix('-').unwrap_or("polychron");
            if !below.contains(&used) {
                findings.push(Finding::new(source, index + 1, format!("{folder} does not depend on {used}")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &[&[&str]] = &[&["silo"], &["lazy", "occ"]];

    #[test]
    fn tests_that_nothing_compiles_are_found() {
        let main = Source::new("crates/a/tests/main.rs", "mod common;\n\nmod known;\n");
        let manifest = Source::new("crates/a/Cargo.toml", "[[test]]\nname = \"apart\"\n");
        let file = |name: &str| Source::new(&format!("crates/a/tests/{name}.rs"), "");
        let tree = |name| orphaned_tests(&[main.clone(), manifest.clone(), file(name)]).len();
        assert_eq!(["known", "apart", "common/mod", "forgotten"].map(tree), [0, 0, 0, 1]);
    }

    #[test]
    fn a_protocol_named_elsewhere_is_found() {
        let elsewhere = Source::new("crates/protocols/src/serial/mod.rs", "struct Silo;");
        assert_eq!(names(&[elsewhere], NAMES, &["crates/protocols/src/lib.rs"], &[]).len(), 1);
        for text in ["struct SiloTable;", "// as in Silo", "let lazy_occ = 1;", "use x::LazyOcc;"] {
            assert_eq!(
                names(
                    &[Source::new("crates/engine/src/a.rs", text)],
                    NAMES,
                    &["crates/protocols/src/lib.rs"],
                    &["crates/index/src/b.rs"]
                )
                .len(),
                1
            );
        }
        let fine = [
            Source::new("crates/protocols/src/silo/mod.rs", "struct Silo;"),
            Source::new("crates/engine/src/a.rs", "static X: LazyLock<Silos>; // lazy"),
            Source::new("crates/index/src/b.rs", "// as in Silo"),
        ];
        assert_eq!(
            names(&[Source::new("crates/index/src/b.rs", "use silo;")], NAMES, &[], &["crates/index/src/b.rs"]).len(),
            1
        );
        assert_eq!(names(&fine, NAMES, &["crates/protocols/src/lib.rs"], &["crates/index/src/b.rs"]), []);
    }

    #[test]
    fn a_protocol_that_uses_another_is_found() {
        let other = Source::new("crates/protocols/src/silo/mod.rs", "mod table; use crate::silo::table::Table;");
        for text in ["use crate::{other, silo::table};", "fn a() { crate::silo::b() }", "use super::super::silo;"] {
            let source = Source::new("crates/protocols/src/serial/mod.rs", text);
            assert_eq!(protocol_imports(&[source, other.clone()]).len(), 1, "{text}");
        }
        assert_eq!(protocol_imports(&[other]), []);
    }

    #[test]
    fn a_door_that_is_passed_is_found() {
        let forbidden = ["std::sync::atomic", "std::time::Instant", "rand"];
        for text in [
            "use std::sync::{Arc, atomic::AtomicU64};",
            "let a = std::time::Instant::now();",
            "use std::time::{Duration, Instant};",
            "let r = rand::random();",
        ] {
            let source = Source::new("crates/engine/src/a.rs", text);
            assert_eq!(doors(&[source], &forbidden, &["base"], true).len(), 1, "{text}");
        }
        let fine = [
            Source::new("crates/base/src/a.rs", "use std::time::Instant;"),
            Source::new("crates/index/examples/a.rs", "use std::time::Instant;"),
            Source::new("crates/index/src/a.rs", "// std::time::Instant\nuse std::time::Duration; use random::x;"),
        ];
        assert_eq!(doors(&fine, &forbidden, &["base"], true), []);
    }

    #[test]
    fn a_door_within_a_crate_is_watched() {
        let forbidden = ["std::fs", "std::*"];
        let check = |path, text| {
            doors_within(
                &[Source::new(path, text)],
                &forbidden,
                &["crates/log/", "lab/sim/"],
                &["crates/log/src/disk/"],
            )
        };
        for text in ["use std::fs;", "use std::{io, fs::File};", "fn a() { std::fs::read(b) }", "use std::*;"] {
            for path in ["crates/log/src/a.rs", "crates/log/tests/a.rs", "lab/sim/src/a.rs"] {
                let findings = check(path, text);
                assert_eq!(findings.len(), 1, "{text}");
                assert!(findings[0].message.contains("crates/log/src/disk/"), "{}", findings[0].message);
            }
            assert_eq!(check("crates/log/src/disk/a.rs", text), []);
            assert_eq!(check("crates/engine/src/a.rs", text), []);
        }
        assert_eq!(check("crates/log/src/a.rs", "// std::fs\nuse std::{fmt, io};"), []);
    }

    #[test]
    fn unsafe_code_in_a_safe_crate_is_found() {
        let source = Source::new("crates/sql/src/a.rs", "fn a() {\n    unsafe { b() }\n}");
        let findings = unsafe_code(&[source], &[("sync", 1)]);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 2);
        let fine = [
            Source::new("crates/sync/src/a.rs", "unsafe fn a() {}"),
            Source::new("crates/sql/src/a.rs", "// unsafe\n#![deny(unsafe_op_in_unsafe_fn)]"),
        ];
        assert_eq!(unsafe_code(&fine, &[("sync", 1)]), []);
    }

    #[test]
    fn more_unsafe_files_than_there_were_or_than_a_third_are_found() {
        let source = |name: &str, text: &str| Source::new(&format!("crates/protocols/src/bohm/{name}.rs"), text);
        let (plain, other) = ("fn a() {}", "unsafe fn a() {}");
        let third = [source("a", plain), source("b", other), source("c", plain), source("model", other)];
        assert_eq!(unsafe_files(&third, &[("bohm", 1)]), []);
        assert_eq!(unsafe_files(&third, &[]).len(), 1, "there are more");
        assert_eq!(unsafe_files(&third, &[("bohm", 2)]).len(), 1, "the list is to follow");
        assert_eq!(unsafe_files(&third[..2], &[("bohm", 1)]).len(), 1, "half of them");
    }

    #[test]
    fn more_unsafe_code_than_there_was_is_found() {
        let source = Source::new("crates/sync/src/a.rs", "unsafe fn a() {\n    unsafe { b() }\n}");
        let test = Source::new("crates/sync/tests/a.rs", "fn a() { unsafe { b() } }");
        assert_eq!(unsafe_code(&[source.clone(), test.clone()], &[("sync", 2)]), []);
        assert_eq!(unsafe_code(&[source, test], &[("sync", 1)]).len(), 1);
    }

    #[test]
    fn the_laboratory_is_for_the_laboratory_alone() {
        let lab = Source::new("lab/check/Cargo.toml", "[package]\nname = \"polychron-check\"\n");
        let other = Source::new("lab/cli/Cargo.toml", "[dependencies]\npolychron-check = { workspace = true }\n");
        assert_eq!(laboratory(&[lab.clone(), other]), []);
        for section in ["dependencies", "dev-dependencies"] {
            let text = format!("[{section}]\npolychron-check = {{ workspace = true }}\n");
            assert_eq!(laboratory(&[lab.clone(), Source::new("crates/base/Cargo.toml", &text)]).len(), 1);
        }
    }

    #[test]
    fn an_upward_dependency_is_found() {
        let allowed: &[(&str, &[&str])] = &[("base", &[]), ("workloads", &["engine"]), ("cli", &["polychron"])];
        for text in [
            "[dependencies]\npolychron-protocols = { workspace = true }",
            "[dependencies]\npolychron-protocols.workspace = true",
            "[target.'cfg(loom)'.dependencies]\npolychron = \"1\"",
            "[dependencies.polychron-sync]\nworkspace = true",
        ] {
            assert_eq!(dependencies(&[Source::new("crates/workloads/Cargo.toml", text)], allowed).len(), 1, "{text}");
        }
        assert_eq!(dependencies(&[Source::new("crates/new/Cargo.toml", "")], allowed).len(), 1);
        let text = "[package]\nname = \"polychron-workloads\"\n[dependencies]\npolychron-engine = { workspace = true }\n\
                    [dev-dependencies]\npolychron = { workspace = true }";
        assert_eq!(dependencies(&[Source::new("crates/workloads/Cargo.toml", text)], allowed), []);
    }

    #[test]
    fn a_protocol_without_its_files_is_found() {
        let source = |path: &str| Source::new(&format!("crates/protocols/src/{path}"), "");
        let sources = [source("alone/mod.rs"), source("alone/commit.rs"), source("other/mod.rs")];
        let count = |exceptions: &[&str]| protocol_files(&sources, &["mod.rs", "commit.rs"], exceptions).len();
        assert_eq!(count(&[]), 1);
        assert_eq!(count(&["crates/protocols/src/other/commit.rs"]), 0);
        assert_eq!(count(&["crates/protocols/src/other/commit.rs", "crates/protocols/src/alone/commit.rs"]), 1);
    }
}
