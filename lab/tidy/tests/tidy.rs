//! The rules of this workspace, applied to its tree. The lists below are the only place for exceptions.

use std::path::{Path, PathBuf};

use polychron_tidy::{Finding, Source, architecture, documents, evidence, sizes, tree, vocabulary};

/// Names of protocols, word by word.
const PROTOCOLS: &[&[&str]] = &[
    &["maflingo"],
    &["cicada"],
    &["hyper"],
    &["bohm"],
    &["silo"],
    &["hekaton"],
    &["ermia"],
    &["mocc"],
    &["tictoc"],
    &["lazy", "occ"],
    &["lazy", "determination"],
];
/// Protocol folders whose names are ordinary words, so that the rule about names cannot watch them.
const ORDINARY_WORDS: &[&str] = &["serial", "lazy", "key_value", "locking", "partitioned_store"];
/// Where protocols may be named besides their own folders: the one list, and what shows names to users.
const NAMING: &[&str] = &[
    "crates/protocols/src/lib.rs",
    "crates/protocols/tests/",
    "crates/protocols/examples/",
    "lab/check/",
    "lab/compared/",
    "lab/crash/tests/",
    "crates/polychron/",
    "crates/cli/tests/",
    "crates/sql/tests/",
    "lab/cli/tests/",
    // One has closures in tests alone, in a list of their own.
    "lab/sim/tests/database/client.rs",
    // Tests of a layer need a host protocol.
    "crates/protocols/src/lazy_tests.rs",
    // What it is called with a layer over it.
    "crates/protocols/src/maflingo/lazy_host.rs",
    // A paper's figures go by its name, and compare protocols.
    "lab/figures/",
    "lab/sql/examples/",
    "lab/sql/tests/",
    "lab/tidy/",
    // Long runs are of some protocols.
    "lab/xtask/src/endure.rs",
    // What a paper says of its workloads holds of its protocol.
    "crates/workloads/tests/hyper.rs",
    // No transaction of a workload takes memory of the heap under them.
    "crates/workloads/tests/allocations.rs",
    // Instructions are counted protocol by protocol.
    "crates/workloads/examples/instructions.rs",
    // Presets go by the names of the papers whose settings they are.
    "crates/workloads/src/ycsb/options.rs",
];
/// Files that refer to a paper in a comment.
const CITING: &[&str] = &[
    "crates/engine/src/lib.rs",
    "crates/engine/src/scan.rs",
    "crates/index/src/stamp.rs",
    "crates/memory/src/epochs.rs",
    "crates/protocols/src/maflingo/mod.rs",
    "crates/protocols/src/maflingo/protocol.rs",
    "crates/workloads/src/increment/mod.rs",
];

/// The files that each protocol has, and which of them are not needed.
const PROTOCOL_FILES: &[&str] =
    &["mod.rs", "options.rs", "table.rs", "protocol.rs", "worker.rs", "transaction.rs", "commit.rs", "steps.rs"];
/// A layer has the tables of its host protocol.
const WITHOUT_FILES: &[&str] = &["crates/protocols/src/lazy/table.rs"];

/// Crates that may use atomics directly.
const ATOMICS: &[&str] = &["sync"];
/// Crates that may read clocks and draw unseeded numbers.
const TIME_AND_CHANCE: &[&str] = &["base", "lab/sim"];
/// What touches files, by its paths.
const FILES: &[&str] = &[
    "std::fs",
    "std::*",
    "std::os::unix::fs",
    "std::os::unix::*",
    "std::os::*",
    "std::os::fd",
    "rustix::fs",
    "rustix::io",
    "tempfile",
];
/// Crates whose files come through a simulated disk, too, so that they have one door.
const SIMULATED: &[&str] = &["crates/log/", "lab/sim/"];
/// That door, and the tests that compare it with a simulated disk in a directory of their own.
const DOOR_TO_FILES: &[&str] = &["crates/log/src/disk/", "lab/sim/tests/real.rs"];
/// What uses the network, by its paths.
const NETWORK: &[&str] = &["std::net", "std::os::unix::net", "rustix::net"];
/// The door to it in the crates that a simulation carries messages for.
const DOOR_TO_NETWORK: &[&str] = &["crates/log/src/ship/net.rs"];
/// Crates that may contain unsafe code, and in how many places, tests aside. They may become fewer.
const UNSAFE: &[(&str, usize)] = &[
    ("sync", 23),
    ("memory", 107),
    ("index", 212),
    ("schema", 10),
    ("engine", 64),
    ("protocols", 345),
    // A test counts what is requested of the allocator.
    ("workloads", 0),
    ("lab/compared", 86),
    ("lab/tutorial", 6),
    ("peers", 11),
];

/// Files of the protocols that have unsafe code, tests and models aside: a third of a folder at the most.
const UNSAFE_FILES: &[(&str, usize)] = &[("bohm", 12), ("cicada", 16), ("hyper", 11), ("locking", 3), ("maflingo", 7)];

/// What each crate may depend on.
const DEPENDENCIES: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("sync", &["base"]),
    ("memory", &["base", "sync"]),
    ("index", &["base", "sync", "memory"]),
    ("schema", &["base", "schema-derive"]),
    ("schema-derive", &[]),
    ("log", &["base", "sync", "memory", "schema", "engine"]),
    ("engine", &["base", "sync", "memory", "index", "schema"]),
    ("protocols", &["base", "sync", "memory", "index", "schema", "engine"]),
    ("polychron", &["base", "sync", "memory", "index", "schema", "schema-derive", "log", "engine", "protocols", "sql"]),
    ("workloads", &["base", "sync", "memory", "schema", "engine"]),
    ("lab/compared", &["base", "sync", "memory", "index", "schema", "engine", "polychron"]),
    ("lab/tutorial", &["base", "sync", "memory", "schema", "engine"]),
    ("lab/figures", &["base", "sync", "schema", "engine", "protocols", "workloads"]),
    ("lab/check", &["base", "sync", "memory", "schema", "engine", "sim"]),
    ("lab/crash", &["base", "sync", "polychron"]),
    ("lab/sim", &["base", "sync", "schema", "engine", "log"]),
    ("lab/fuzz", &["base", "memory", "index", "schema", "engine", "protocols", "log", "sql"]),
    ("lab/sql", &["base", "engine", "protocols", "sql"]),
    ("lab/xtask", &["base", "fuzz"]),
    ("sql", &["base", "sync", "schema", "engine"]),
    ("server", &["base", "sync", "engine", "sql", "polychron"]),
    ("cli", &["base", "sync", "memory", "index", "schema", "engine", "log", "polychron", "workloads", "sql", "server"]),
    (
        "lab/cli",
        &["base", "sync", "engine", "log", "polychron", "workloads", "cli", "check", "compared", "crash", "figures"],
    ),
    ("lab/shipped", &[]),
    ("lab/tidy", &[]),
];

/// Files, or `file::function`, beyond the limits, with the size they have now. They may shrink, not grow.
const LARGE: &[(&str, usize)] = &[];

/// Where somebody's files lie.
const MACHINE_PATHS: &[&str] = &["/work/", "/root/", "/home/"];

/// Words that the field has another one for, which is used.
const WORDS: &[(&str, &str)] = &[
    ("any more", "no longer, from now on"),
    ("asker", "requester"),
    ("blueprint", "store definition"),
    ("burying", "deferring"),
    ("by hand", "interactively"),
    ("circle", "cycle"),
    ("dresses", "variants"),
    ("employed", "worker box"),
    ("face", "API, interface"),
    ("faces", "APIs, interfaces"),
    ("grave", "deferred free"),
    ("graves", "deferred frees"),
    ("hull", "bounding range"),
    ("keeper", "owner, sink, worker box"),
    ("parcel", "client batch"),
    ("parties", "clients"),
    ("party", "client"),
    ("patience", "spin budget"),
    ("roll backs", "rollbacks"),
    ("stood together", "were mutually consistent"),
    ("stretch", "run, slot range"),
    ("stretches", "runs, slot ranges"),
    ("take out", "unlink, remove"),
    ("thinning", "version pruning"),
    ("tidy up", "maintain"),
    ("workbench", "expression arena"),
];
/// The same, of words that some parts still use.
const RENAMED: &[(&str, &str)] = &[
    ("beneath", "host protocol, under"),
    ("moment", "timestamp, log position, snapshot time"),
    ("moments", "timestamps, log positions, snapshot times"),
    ("seat", "account, slot"),
    ("seats", "accounts, slots"),
    ("settle", "flush, finish, resolve, quiesce"),
    ("settled", "flushed, finished, resolved, all-visible"),
    ("settles", "flushes, finishes, resolves, quiesces"),
    ("settling", "flushing, finishing, resolving"),
];
/// Which parts those are, besides those below.
const NOT_RENAMED: &[&str] = &[
    "crates/protocols/src/cicada/",
    "docs/durability.md",
    "docs/protocols/cicada.md",
    "lab/check/tests/mutations/cicada.rs",
];
/// Where such words may stand: the list above, what a drawing is made of, and what was renamed.
const WORDS_ALLOWED: &[&str] = &["lab/tidy/", "lab/figures/src/plot.rs", "CHANGELOG.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[track_caller]
fn check(rule: impl Fn(&[Source]) -> Vec<Finding>) {
    let sources = tree(&root());
    assert!(sources.iter().any(|source| source.path == "lab/tidy/tests/tidy.rs"), "this is not the tree");
    let findings: Vec<String> = rule(&sources).iter().map(Finding::to_string).collect();
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

#[test]
fn protocols_are_named_in_their_places_only() {
    check(|sources| {
        let findings = architecture::names(sources, PROTOCOLS, NAMING, CITING);
        for folder in architecture::protocol_folders(sources) {
            let words: Vec<&str> = folder.split('_').collect();
            let known = PROTOCOLS.contains(&words.as_slice()) || ORDINARY_WORDS.contains(&folder.as_str());
            assert!(known, "the protocol {folder} is not in the list of names");
        }
        findings
    });
}

#[test]
fn protocols_do_not_use_each_other() {
    check(architecture::protocol_imports);
}

#[test]
fn tests_are_compiled() {
    check(architecture::orphaned_tests);
}

#[test]
fn protocols_have_the_same_files() {
    check(|sources| architecture::protocol_files(sources, PROTOCOL_FILES, WITHOUT_FILES));
}

#[test]
fn atomics_come_through_one_door() {
    check(|sources| {
        architecture::doors(
            sources,
            &["std::sync::atomic", "core::sync::atomic", "std::sync::*", "sync::atomic"],
            ATOMICS,
            false,
        )
    });
}

#[test]
fn time_and_chance_come_from_base() {
    let doors =
        ["std::time::Instant", "std::time::SystemTime", "std::time::*", "time::Instant", "rand", "fastrand", "quanta"];
    check(|sources| architecture::doors(sources, &doors, TIME_AND_CHANCE, true));
}

#[test]
fn files_come_through_one_door() {
    check(|sources| architecture::doors_within(sources, FILES, SIMULATED, DOOR_TO_FILES));
}

#[test]
fn the_network_has_one_door() {
    check(|sources| architecture::doors_within(sources, NETWORK, SIMULATED, DOOR_TO_NETWORK));
}

#[test]
fn unsafe_code_is_in_listed_crates_only() {
    check(|sources| architecture::unsafe_code(sources, UNSAFE));
}

#[test]
fn most_files_of_a_protocol_are_safe() {
    check(|sources| architecture::unsafe_files(sources, UNSAFE_FILES));
}

#[test]
fn dependencies_point_one_way() {
    check(|sources| architecture::dependencies(sources, DEPENDENCIES));
}

#[test]
fn the_product_does_not_know_the_laboratory() {
    check(architecture::laboratory);
}

#[test]
fn files_and_functions_are_short() {
    check(|sources| sizes::sizes(sources, LARGE));
}

/// Lines of the protocol that the tutorial writes, without comments and blank lines. They may become fewer.
const TUTORIAL_LINES: usize = 320;

#[test]
fn a_protocol_from_scratch_is_short() {
    check(|sources| sizes::code_of(sources, "lab/tutorial/src/", TUTORIAL_LINES));
}

#[test]
fn links_lead_somewhere() {
    check(|sources| documents::links(sources, |path| root().join(path).exists()));
}

#[test]
fn documents_name_what_there_is() {
    check(documents::names);
}

#[test]
fn requirements_have_their_evidence() {
    check(|sources| evidence::requirements(sources, "docs/papers.md"));
}

/// Pages of protocols, and where their options are.
const OPTIONS: &[(&str, &str)] = &[
    ("docs/protocols/cicada.md", "crates/protocols/src/cicada/options.rs"),
    ("docs/protocols/maflingo.md", "crates/protocols/src/maflingo/options.rs"),
    ("docs/protocols/hyper.md", "crates/protocols/src/hyper/options.rs"),
    ("docs/protocols/bohm.md", "crates/protocols/src/bohm/options.rs"),
    ("docs/protocols/lazy.md", "crates/protocols/src/lazy/options.rs"),
    ("docs/protocols/locking.md", "crates/protocols/src/locking/options.rs"),
];

#[test]
fn pages_of_protocols_have_their_options() {
    check(|sources| evidence::options(sources, OPTIONS));
}

#[test]
fn pages_of_protocols_tell_what_differs_and_what_lacks() {
    check(|sources| evidence::headings(sources, "docs/protocols/", &["Deviations", "Missing"]));
}

#[test]
fn crates_of_the_product_can_be_published() {
    check(documents::unpublishable);
}

#[test]
fn manifests_are_complete() {
    check(documents::manifests);
}

#[test]
fn every_file_is_part_of_its_crate() {
    check(documents::unreached);
}

#[test]
fn the_words_are_those_of_the_field() {
    check(|sources| {
        let mut findings = vocabulary::words(sources, WORDS, WORDS_ALLOWED);
        findings.extend(vocabulary::words(sources, RENAMED, &[WORDS_ALLOWED, NOT_RENAMED].concat()));
        findings
    });
}

#[test]
fn the_glossary_is_short() {
    check(|sources| vocabulary::glossary(sources, 30));
}

#[test]
fn nothing_names_a_path_of_one_machine() {
    check(|sources| documents::machine_paths(sources, MACHINE_PATHS, &["lab/tidy/"]));
}
