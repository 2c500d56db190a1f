//! The parts of a soak run.

use std::path::PathBuf;

use polychron_base::clock::Clock;
use polychron_fuzz::TARGETS;

use crate::Share;
use crate::tools::{
    AARCH64, cargo, fresh_log, host, missing_aarch64, missing_check, missing_fuzzer, missing_miri, missing_sanitizer,
    run, sum,
};

/// How a part ended.
pub(crate) enum Outcome {
    /// Nothing was wrong; how much was looked at.
    Passed(String),
    /// Something was wrong; where it is told.
    Failed(PathBuf),
    /// What is missing.
    Skipped(String),
}

/// One of the things that a soak run does.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    /// Whether it can go on for any time.
    pub(crate) goes_on: bool,
    pub(crate) missing: fn() -> Option<String>,
    pub(crate) run: fn(&Share) -> Outcome,
}

/// In the order in which they run.
pub(crate) const PARTS: &[Part] = &[
    Part {
        name: "loom",
        summary: "every interleaving of the small concurrent parts, with up to three preemptions",
        goes_on: true,
        missing: || None,
        run: loom,
    },
    Part {
        name: "shuttle",
        summary: "whole transactions under drawn schedules, and beside power failures, against every serial order",
        goes_on: true,
        missing: || None,
        run: shuttle,
    },
    Part {
        name: "properties",
        summary: "rows, keys and indexes against maps, and linear histories",
        goes_on: true,
        missing: || None,
        run: properties,
    },
    Part {
        name: "disk",
        summary: "the simulated disk beside a real directory, and what is built on it under failures",
        goes_on: true,
        missing: || None,
        run: disk,
    },
    Part {
        name: "journal",
        summary: "what commits hand to the log, replayed, against the rows that are there",
        goes_on: true,
        missing: || None,
        run: journal,
    },
    Part {
        name: "crash",
        summary: "databases on a disk whose process is killed, opened again under other protocols",
        goes_on: true,
        missing: || None,
        run: crash,
    },
    Part {
        name: "failing",
        summary: "databases on a disk whose process has calls of the system fail, opened again",
        goes_on: true,
        missing: || None,
        run: failing,
    },
    Part {
        name: "predicates",
        summary: "what transactions are told beside writers, against every serial order",
        goes_on: true,
        missing: || None,
        run: predicates,
    },
    Part {
        name: "extremes",
        summary: "long rows and keys, many tables and sessions, on a disk, under every protocol",
        goes_on: false,
        missing: || None,
        run: extremes,
    },
    Part {
        name: "miri-memory",
        summary: "the latches, pools and epochs under Miri",
        goes_on: false,
        missing: missing_miri,
        run: |share| miri(share, "miri-memory", &["polychron-sync", "polychron-memory"], EVERY_TEST),
    },
    Part {
        name: "miri-schema",
        summary: "rows and keys under Miri",
        goes_on: false,
        missing: missing_miri,
        run: |share| miri(share, "miri-schema", &["polychron-schema"], EVERY_TEST),
    },
    Part {
        name: "miri-index",
        summary: "both indexes under Miri",
        goes_on: false,
        missing: missing_miri,
        run: |share| miri(share, "miri-index", &["polychron-index"], EVERY_TEST),
    },
    Part {
        name: "miri-protocols",
        summary: "the protocols' unit tests under Miri",
        goes_on: false,
        missing: missing_miri,
        run: |share| miri(share, "miri-protocols", &["polychron-protocols", "polychron-compared"], &["--lib"]),
    },
    Part {
        name: "miri-plug-point",
        summary: "the protocols under Miri as procedures come to them",
        goes_on: false,
        missing: missing_miri,
        run: |share| miri(share, "miri-plug-point", &["polychron-protocols"], &["--test", "*"]),
    },
    Part {
        name: "miri-log",
        summary: "rings of the log under Miri",
        goes_on: false,
        missing: missing_miri,
        // The others are of files, or of bytes in one thread.
        run: |share| miri(share, "miri-log", &["polychron-log"], &["--lib", "ring::"]),
    },
    Part {
        name: "tsan",
        summary: "the concurrent tests of the parts under ThreadSanitizer",
        goes_on: false,
        missing: missing_sanitizer,
        run: |share| thread_sanitizer(share, "tsan", CONCURRENT, EVERY_TEST),
    },
    Part {
        name: "tsan-check",
        summary: "what every protocol must show, under ThreadSanitizer",
        goes_on: false,
        missing: missing_sanitizer,
        // The other tests there are of one thread, or of steps that are left out.
        run: |share| {
            let tests = ["--test", "exploration", "--test", "conformance"];
            thread_sanitizer(share, "tsan-check", &["polychron-check"], &tests)
        },
    },
    Part {
        name: "tsan-sim",
        summary: "clients of a log, and checkpoints beside them, under ThreadSanitizer",
        goes_on: false,
        missing: missing_sanitizer,
        run: |share| {
            let tests = ["--test", "log", "--test", "checkpoint", "threads"];
            thread_sanitizer(share, "tsan-sim", &["polychron-sim"], &tests)
        },
    },
    Part {
        name: "aarch64",
        summary: "the latches, pools, epochs, indexes and rows on an emulated processor of another kind",
        goes_on: false,
        missing: missing_aarch64,
        run: aarch64,
    },
    Part { name: "fuzz", summary: "libFuzzer on each target", goes_on: true, missing: missing_fuzzer, run: fuzz },
    Part {
        name: "check",
        summary: "histories of random workloads, checked for anomalies",
        goes_on: true,
        missing: missing_check,
        run: check,
    },
];

/// The time of each test: the log then tells which one has become too slow for its tool.
const REPORT_TIME: [&str; 3] = ["--", "-Zunstable-options", "--report-time"];

/// The unit tests of a crate, and those beside it.
const EVERY_TEST: &[&str] = &["--lib", "--tests"];

/// Crates whose tests concern concurrency or unsafe code.
const CONCURRENT: &[&str] = &[
    "polychron-sync",
    "polychron-memory",
    "polychron-index",
    "polychron-log",
    "polychron-protocols",
    "polychron-compared",
];

fn packages(names: &[&'static str]) -> impl Iterator<Item = &'static str> {
    names.iter().flat_map(|name| ["-p", *name]).collect::<Vec<_>>().into_iter()
}

fn outcome(passed: bool, log: PathBuf, found: impl FnOnce(&PathBuf) -> String) -> Outcome {
    if passed { Outcome::Passed(found(&log)) } else { Outcome::Failed(log) }
}

/// Runs `round` with ascending numbers, at least once and as long as the share lasts.
fn go_on(share: &Share, mut round: impl FnMut(u64) -> bool) -> bool {
    let began = share.clock.now_ns();
    for number in 0.. {
        if !round(number) {
            return false;
        }
        if share.clock.now_ns() - began >= share.seconds * 1_000_000_000 {
            break;
        }
    }
    true
}

fn loom(share: &Share) -> Outcome {
    let log = fresh_log(&share.folder, "loom");
    // How many models there are, roughly; two run at a time.
    const MODELS: u64 = 20;
    let mut command = cargo(&["--cfg", "loom"]);
    command.arg("test").args(packages(CONCURRENT)).args(packages(&["polychron-engine"])).args([
        "--features",
        "polychron-sync/loom",
        "--lib",
        "--no-fail-fast",
    ]);
    command.arg("--target-dir").arg(share.folder.join("loom")).args(["model::", "--", "--nocapture"]);
    command.env("LOOM_MAX_PREEMPTIONS", "3");
    command.env("LOOM_MAX_DURATION", (share.seconds / MODELS).max(5).to_string());
    outcome(run(&mut command, &log), log, |log| format!("{} executions", sum(log, "explored", " executions")))
}

fn shuttle(share: &Share) -> Outcome {
    const PLANS: u64 = 100;
    let log = fresh_log(&share.folder, "shuttle");
    let passed = go_on(share, |round| {
        let mut command = cargo(&["--cfg", "shuttle"]);
        command.args(["test", "-p", "polychron-check", "-p", "polychron-sim", "--features", "polychron-sync/shuttle"]);
        command
            .args(["--test", "exploration", "--test", "schedules", "--target-dir"])
            .arg(share.folder.join("shuttle"));
        command.args(["--", "has_a_serial_order", "every_protocol_recovers", "--nocapture"]);
        command.env("POLYCHRON_EXPLORE_FIRST", (share.seed * 1_000_000 + round * PLANS).to_string());
        command.env("POLYCHRON_EXPLORE_SEEDS", PLANS.to_string());
        command.env("POLYCHRON_EXPLORE_SCHEDULES", "200");
        run(&mut command, &log)
    });
    outcome(passed, log, |log| format!("{} schedules", sum(log, "schedules of", " schedules of")))
}

fn predicates(share: &Share) -> Outcome {
    const SEEDS: u64 = 50;
    let log = fresh_log(&share.folder, "predicates");
    let passed = go_on(share, |round| {
        let mut command = cargo(&[]);
        command.args(["test", "-p", "polychron-check", "--tests", "--no-fail-fast"]);
        command.args(["predicates::", "--", "--nocapture"]);
        command.env("POLYCHRON_PREDICATE_FIRST", (share.seed * 1_000_000 + round * SEEDS).to_string());
        command.env("POLYCHRON_PREDICATE_SEEDS", SEEDS.to_string());
        run(&mut command, &log)
    });
    outcome(passed, log, |log| {
        format!("{} pairs that may both commit", sum(log, "needless no", " pairs that may both"))
    })
}

fn properties(share: &Share) -> Outcome {
    const CASES: u64 = 2000;
    let log = fresh_log(&share.folder, "properties");
    let mut rounds = 0;
    let passed = go_on(share, |round| {
        rounds = round + 1;
        let mut command = cargo(&[]);
        command.args(["test", "-p", "polychron-fuzz", "-p", "polychron-schema", "-p", "polychron-index"]);
        command.args(["--no-fail-fast", "--test", "drivers", "--test", "apis", "--test", "linear"]);
        command.env("PROPTEST_CASES", CASES.to_string()).env("POLYCHRON_FUZZ_INPUTS", CASES.to_string());
        command.env("POLYCHRON_FIRST_SEED", (share.seed * 1_000_000 + 1000 * round).to_string());
        run(&mut command, &log)
    });
    outcome(passed, log, |_| format!("{rounds} rounds of {CASES} cases a property"))
}

fn disk(share: &Share) -> Outcome {
    const SEQUENCES: u64 = 20_000;
    let log = fresh_log(&share.folder, "disk");
    let passed = go_on(share, |round| {
        let mut command = cargo(&[]);
        command.args(["test", "--release", "-p", "polychron-sim", "--no-fail-fast", "--", "--nocapture"]);
        command
            .env("POLYCHRON_DISK_SEQUENCES", SEQUENCES.to_string())
            .env("POLYCHRON_RECOVERIES", SEQUENCES.to_string());
        command.env("POLYCHRON_CRASH_SEEDS", "16").env("POLYCHRON_FIRST_CRASH_SEED", (16 * round + 1).to_string());
        command.env("POLYCHRON_LOG_RUNS", "12").env("POLYCHRON_CHECKPOINT_RUNS", "8");
        command.env("POLYCHRON_DATABASE_RUNS", "11");
        command.env("POLYCHRON_FIRST_SEED", (share.seed * 1_000_000_000 + round * SEQUENCES).to_string());
        run(&mut command, &log)
    });
    outcome(passed, log, |log| {
        let sequences = sum(log, "answered alike", " sequences");
        format!("{} recoveries, {sequences} sequences of operations", sum(log, "recoveries were right", " recoveries"))
    })
}

fn crash(share: &Share) -> Outcome {
    const RUNS: u64 = 100;
    let log = fresh_log(&share.folder, "crash");
    let mut rounds = 0;
    let passed = go_on(share, |round| {
        rounds = round + 1;
        let mut command = cargo(&[]);
        command.args(["run", "--release", "-p", "polychron-lab", "--", "crash", "--runs", &RUNS.to_string()]);
        command.args(["--restores", "4"]);
        command.args(["--seed", &(share.seed * 1_000_000_000 + round * RUNS).to_string()]);
        run(&mut command, &log)
    });
    outcome(passed, log, |_| format!("{rounds} rounds of {RUNS} databases, each with five processes"))
}

fn failing(share: &Share) -> Outcome {
    const RUNS: u64 = 100;
    let log = fresh_log(&share.folder, "failing");
    let mut rounds = 0;
    let passed = go_on(share, |round| {
        rounds = round + 1;
        let mut command = cargo(&[]);
        command.args(["test", "-p", "polychron-crash", "--test", "failing"]);
        command.env("POLYCHRON_FAILING_RUNS", RUNS.to_string());
        command.env("POLYCHRON_FIRST_SEED", (share.seed * 1_000_000_000 + round * RUNS).to_string());
        run(&mut command, &log)
    });
    outcome(passed, log, |_| format!("{rounds} rounds of {RUNS} databases, each with two processes"))
}

fn extremes(share: &Share) -> Outcome {
    let log = fresh_log(&share.folder, "extremes");
    let mut command = cargo(&[]);
    command.args(["test", "--release", "-p", "polychron", "--no-fail-fast", "--test", "extremes"]);
    command.env("POLYCHRON_LONG_ROWS", "30").env("POLYCHRON_LONG_KEYS", "300");
    command.env("POLYCHRON_MANY_TABLES", "1000").env("POLYCHRON_MANY_SESSIONS", "256");
    outcome(run(&mut command, &log), log, |log| format!("{} tests", sum(log, "test result", " passed")))
}

fn journal(share: &Share) -> Outcome {
    const HISTORIES: u64 = 500;
    let log = fresh_log(&share.folder, "journal");
    let mut rounds = 0;
    let passed = go_on(share, |round| {
        rounds = round + 1;
        let mut command = cargo(&[]);
        command.args([
            "test",
            "-p",
            "polychron-check",
            "--no-fail-fast",
            "--test",
            "journal",
            "--",
            "in_turns",
            "on_threads",
        ]);
        command.env("POLYCHRON_JOURNAL_HISTORIES", HISTORIES.to_string());
        command.env("POLYCHRON_FIRST_SEED", (share.seed * 1_000_000_000 + round * HISTORIES).to_string());
        run(&mut command, &log)
    });
    outcome(passed, log, |_| format!("{rounds} rounds of {HISTORIES} histories of each kind and protocol"))
}

fn miri(share: &Share, name: &str, crates: &[&'static str], tests: &[&str]) -> Outcome {
    let log = fresh_log(&share.folder, name);
    let mut command = cargo(&[]);
    command.args(["+nightly", "miri", "test"]).args(packages(crates));
    command.args(tests).args(["--no-fail-fast", "--target-dir"]).arg(share.folder.join("miri"));
    command.args(REPORT_TIME);
    // Handles are addresses, so provenance is exposed; the memory looks at files that tell of processors.
    command.env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-permissive-provenance");
    outcome(run(&mut command, &log), log, |log| format!("{} tests", sum(log, "test result", " passed")))
}

fn thread_sanitizer(share: &Share, name: &str, crates: &[&'static str], tests: &[&str]) -> Outcome {
    let log = fresh_log(&share.folder, name);
    let mut command = cargo(&["-Zsanitizer=thread", "--cfg", "polychron_slow"]);
    command.args(["+nightly", "test", "-Zbuild-std", "--target", &host()]);
    command.args(packages(crates)).args(tests).args(["--no-fail-fast", "--target-dir"]);
    command.arg(share.folder.join("tsan")).args(REPORT_TIME);
    outcome(run(&mut command, &log), log, |log| format!("{} tests", sum(log, "test result", " passed")))
}

/// An emulator on x86-64 keeps that processor's order of memory: this shows that what other processors execute is right, and not its orderings.
fn aarch64(share: &Share) -> Outcome {
    let log = fresh_log(&share.folder, "aarch64");
    let mut command = cargo(&[]);
    command.args(["test", "--target", AARCH64]);
    command.args(packages(&["polychron-sync", "polychron-memory", "polychron-index", "polychron-schema"]));
    command.args(["--lib", "--no-fail-fast", "--target-dir"]).arg(share.folder.join("aarch64"));
    // Its programs are linked statically, by the linker that comes with the compiler.
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER", "rust-lld");
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUNNER", "qemu-aarch64");
    outcome(run(&mut command, &log), log, |log| format!("{} tests", sum(log, "test result", " passed")))
}

fn fuzz(share: &Share) -> Outcome {
    let log = fresh_log(&share.folder, "fuzz");
    let seconds = (share.seconds / TARGETS.len() as u64).max(10);
    let passed = TARGETS.iter().map(|target| target.name).all(|target| {
        let mut command = cargo(&[]);
        command.args(["+nightly", "fuzz", "run", target]);
        command.args([format!("fuzz/corpus/{target}"), format!("fuzz/seeds/{target}")]);
        command.args(["--", &format!("-max_total_time={seconds}"), "-max_len=4096", &format!("-seed={}", share.seed)]);
        // The corpus grows beside the seeds and is not kept in the repository.
        std::fs::create_dir_all(format!("fuzz/corpus/{target}")).is_ok() && run(&mut command, &log)
    });
    outcome(passed, log, |log| format!("{} inputs", sum(log, "Done ", " runs in")))
}

fn check(share: &Share) -> Outcome {
    let log = fresh_log(&share.folder, "check");
    let mut command = cargo(&[]);
    command.args(["run", "--quiet", "--release", "-p", "polychron-lab", "--", "check"]);
    command.args(["--minutes", &share.seconds.div_ceil(60).to_string(), "--seed", &share.seed.to_string()]);
    outcome(run(&mut command, &log), log, |log| format!("histories are told of in {}", log.display()))
}
