//! The command line as a user meets it: exit codes, messages, and the JSON.

use std::path::Path;
use std::process::{Command, Output};

use polychron::{ProtocolList, Protocols};
use polychron_sync::atomic::{AtomicUsize, Ordering};

fn polychron(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_polychron")).args(arguments).output().expect("the binary was built for this test")
}

/// A tiny run of each workload, in ways that reach every kind of its transactions.
const TINY: &[&[&str]] = &[
    &["ycsb", "--records", "500", "--record-size", "20", "--requests", "4", "--theta", "0.9"],
    &["ycsb", "--records", "500", "--record-size", "9", "--requests", "80", "--blind-write", "--batch", "8"],
    &["ycsb", "--records", "300", "--index", "ordered", "--scan-share", "0.2", "--insert-delete-share", "0.3"],
    &[
        "ycsb",
        "--preset",
        "2rmw8r",
        "--records",
        "400",
        "--read-only-share",
        "0.1",
        "--read-only-length",
        "100",
        "--batch",
        "4",
    ],
    &["ycsb", "--preset", "10rmw", "--records", "300", "--long-readers", "20", "--long-reads", "150", "--batch", "3"],
    &["increment", "--records", "50", "--batch", "16", "--pregenerate", "100"],
    &["hotkey", "--hot", "80", "--futures"],
    &["hotkey", "--round-trip-us", "100"],
    &["assert", "--initial", "5", "--futures", "--speculate", "--round-trip-us", "20"],
    &["assert", "--hot", "50"],
    &["modify", "--records", "300"],
    &["churn", "--records", "20", "--rate", "100000"],
    &["churn", "--records", "20", "--pattern", "queue", "--queues", "2", "--idle", "snapshot"],
    &["scan", "--records", "300", "--writers", "1", "--ask", "columns", "--plain"],
    &["scan", "--records", "400", "--record-size", "27", "--whole-rows"],
    &["smallbank", "--customers", "10", "--spin-us", "5"],
    &["smallbank", "--customers", "100", "--index", "ordered", "--submit", "20", "--batch", "8"],
    &["tatp", "--subscribers", "100", "--submit", "7", "--batch", "100", "--batch-time-us", "50"],
    &["tpcc", "--scale", "tiny", "--warehouses", "2", "--read-only-percent", "10", "--top-customer-percent", "5"],
    &["tpcc", "--scale", "tiny", "--index", "ordered", "--snapshots", "--batch", "4"],
    &["tpcc", "--scale", "tiny", "--snapshots", "--submit", "1"],
    &["tpcc", "--scale", "tiny", "--warehouses", "2", "--futures"],
    &["tpcc", "--scale", "tiny", "--transactions", "np", "--futures", "--round-trip-us", "5"],
];

/// Seconds that are enough for a tiny run, unless the machine is busy. There are hundreds of them, and their time is most of what all tests
/// take.
const SHORT: &str = "0.1";

fn tiny_run(workload: &[&str], protocol: &str, seconds: &str, json: &Path) -> Output {
    let json = json.to_str().expect("temporary paths are text");
    let common = [
        "--protocol",
        protocol,
        "--threads",
        "2",
        "--seconds",
        seconds,
        "--warmup",
        "0.02",
        "--seed",
        "7",
        "--json",
        json,
    ];
    polychron(&[&["bench"], workload, &common].concat())
}

/// Rows are changed while a transaction is open: scans see what it sees, or what came after.
#[test]
fn scans_see_the_snapshot_that_they_ask_for() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("report.json");
    let run = |protocol: &str, more: &[&str]| {
        let workload = ["bench", "scan", "--records", "3000", "--ask", "sum", "--dirty", "40", "--versions", "3"];
        let common = ["--threads", "1", "--seconds", "0.3", "--warmup", "0.05", "--json", json.to_str().unwrap()];
        polychron(&[&workload[..], more, &["--protocol", protocol], &common].concat())
    };
    for backend in ["backend=columns", "backend=rows"] {
        for (snapshot_time, is_past) in [("oldest", true), ("newest", false)] {
            let output = run("hyper", &["--snapshot-time", snapshot_time, "--protocol-option", backend]);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
            let metrics = &report["metrics"];
            assert!(metrics["rows scanned a second, one thread"].as_u64() > Some(0), "{metrics}");
            assert_eq!(metrics["scans that saw the state before the changes"].as_u64() > Some(0), is_past, "{metrics}");
        }
    }
    // Where one transaction waits for another one there is an end to it, and a reason.
    let output = run("serial", &[]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && text.contains("--dirty changes rows while a transaction is open"),
        "{text}"
    );
}

/// A snapshot stays open while rows change, which is what the figures of the run tell of.
#[test]
fn a_snapshot_may_stay_open_for_the_whole_run() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("report.json");
    let workload = ["modify", "--records", "300", "--open-snapshot"];
    for seconds in ["0.3", "3", "30"] {
        let report = whole_report(&workload, "hyper", seconds, &json);
        if report["completed"].as_u64() > Some(1000) {
            let behind = report["protocol_metrics"]["commits_since_oldest_read"].as_f64();
            assert!(behind > Some(1000.0), "{}", report["protocol_metrics"]);
            return;
        }
    }
}

/// Multi-version indexes of both kinds.
#[test]
fn every_workload_runs_on_multi_version_indexes() {
    let directory = tempfile::tempdir().unwrap();
    for workload in TINY {
        let workload = [*workload, &["--protocol-option", "indexes=multi-version"]].concat();
        let output = tiny_run(&workload, "cicada", SHORT, &directory.path().join("report.json"));
        assert!(output.status.success(), "{workload:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn every_workload_runs_on_every_protocol() {
    let directory = tempfile::tempdir().unwrap();
    let runs: Vec<_> =
        Protocols::all().iter().flat_map(|protocol| TINY.iter().map(move |tiny| (protocol.name, tiny))).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&(protocol, workload)) = runs.get(number) else { break };
                    a_run_that_commits(workload, protocol, &directory.path().join(format!("{number}.json")));
                }
            });
        }
    });
}

/// Checks the report of a run in which something was committed: on a busy machine a short one may end before.
fn a_run_that_commits(workload: &[&str], protocol: &str, path: &Path) {
    for seconds in [SHORT, "1", "30"] {
        let report = whole_report(workload, protocol, seconds, path);
        if report["committed_tps"].as_f64() > Some(0.0) || seconds == "30" {
            return check_report(&report, workload[0], protocol);
        }
    }
}

/// The report of a run that comes to its end.
fn whole_report(workload: &[&str], protocol: &str, seconds: &str, path: &Path) -> serde_json::Value {
    let output = tiny_run(workload, protocol, seconds, path);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{workload:?} on {protocol}: {err}");
    let promised = if protocol == "key-value" { "not promised by this protocol" } else { "passed" };
    assert!(out.contains(&format!("consistency: {promised}")), "{out}");
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(report["checks"], promised);
    report
}

fn check_report(report: &serde_json::Value, workload: &str, protocol: &str) {
    assert_eq!((&report["workload"], &report["protocol"]), (&workload.into(), &protocol.into()));
    assert_eq!((&report["threads"], &report["seed"]), (&2.into(), &7.into()));
    assert!(report["seconds"].as_f64().unwrap() >= 0.1);
    assert!(report["committed_tps"].as_f64().unwrap() > 0.0, "{report}");
    assert!((0.0..1.0).contains(&report["abort_rate"].as_f64().unwrap()));
    assert!(report["options"].is_object() && report["aborts"].is_object() && report["machine"].is_object());
    assert!(report["commit"].is_string());
    for percentile in ["p50", "p99", "p999"] {
        assert!(report["latency_us"][percentile].as_f64().unwrap() > 0.0, "{report}");
    }
    for may_be_null in ["peak_rss_bytes", "versions", "staleness_us"] {
        assert!(report.get(may_be_null).is_some(), "{may_be_null}");
    }
    let figures = report["protocol_metrics"].as_object().unwrap();
    if protocol == "cicada" {
        for number in ["clock_boosts", "clock_skew_max_ns", "inlined_rows_percent", "space_overhead_percent"] {
            assert!(figures[number].as_f64().is_some_and(|number| number >= 0.0), "{number} in {report}");
        }
        assert!(figures["longest_backoff_us_over_time"].is_array(), "{report}");
        let steps = ["while_running", "at_the_early_check", "while_installing", "at_the_check"];
        let steps = steps.map(|step| figures[&format!("aborts_{step}")].as_u64().unwrap());
        let aborts: u64 = report["aborts"].as_object().unwrap().values().filter_map(|count| count.as_u64()).sum();
        // The counts are taken while threads run, one after the other.
        assert!(steps.iter().sum::<u64>() + 100 >= aborts, "{report}");
    }
    let kinds: u64 = report["completed_by_kind"].as_object().unwrap().values().filter_map(|count| count.as_u64()).sum();
    assert_eq!(Some(kinds), report["completed"].as_u64());
    let a_second: f64 = report["tps_by_kind"].as_object().unwrap().values().filter_map(|tps| tps.as_f64()).sum();
    assert!((a_second / report["committed_tps"].as_f64().unwrap() - 1.0).abs() < 1e-6, "{report}");
    let timed = report["latency_us_by_kind"].as_object().unwrap().values();
    let samples: u64 = timed.filter_map(|kind| kind["samples"].as_u64()).sum();
    assert_eq!(Some(samples), report["latency_us"]["samples"].as_u64());
}

#[test]
fn an_earlier_result_is_replaced_as_a_whole() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "x".repeat(100_000)).unwrap();
    assert!(
        tiny_run(&["increment", "--records", "100"], Protocols::all()[0].name, SHORT, file.path()).status.success()
    );
    assert!(serde_json::from_slice::<serde_json::Value>(&std::fs::read(file.path()).unwrap()).is_ok());
}

#[test]
fn list_names_workloads_and_protocols() {
    let output = polychron(&["bench", "list"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    for name in ["tpcc", "ycsb", "increment", "hotkey", "assert", "modify", "scan", "churn", "smallbank", "tatp"]
        .into_iter()
        .chain(Protocols::all().iter().map(|it| it.name))
    {
        assert!(text.contains(name), "{name} is missing in\n{text}");
    }
}

#[test]
fn bad_input_gets_one_line_and_code_2() {
    let refusals: &[(&[&str], &str)] = &[
        (&["bench"], "workload is missing"),
        (&["bench", "nothing"], "no command or workload `nothing`; the workloads are tpcc"),
        (&["bench", "ycsb", "--protocol", "nothing"], "no protocol `nothing`"),
        (&["bench", "ycsb", "--threads", "0"], "--threads"),
        (&["bench", "ycsb", "--threads", "100000"], "worker slots"),
        (&["bench", "ycsb", "--protocol", "serial", "--threads", "257"], "worker slots"),
        (&["bench", "ycsb", "--threads", "many"], "--threads"),
        (&["bench", "ycsb", "--batch", "0"], "--batch"),
        (&["bench", "ycsb", "--submit", "5", "--pregenerate", "9"], "--pregenerate"),
        (&["bench", "ycsb", "--submit", "5", "--threads", "200"], "worker slots"),
        (&["bench", "ycsb", "--batch-time-us", "5"], "--submit"),
        (&["bench", "ycsb", "--seconds", "-1"], "--seconds"),
        (&["bench", "ycsb", "--seconds", "NaN"], "--seconds"),
        (&["bench", "ycsb", "--records", "0"], "--records"),
        (&["bench", "ycsb", "--record-size", "4"], "--record-size"),
        (&["bench", "ycsb", "--theta", "3"], "--theta"),
        (&["bench", "ycsb", "--read-share", "1.5"], "--read-share"),
        (&["bench", "ycsb", "--scan-share", "0.5"], "--index ordered"),
        (&["bench", "ycsb", "--long-readers", "101"], "--long-readers is 101"),
        (&["bench", "ycsb", "--long-readers", "60", "--read-only-share", "0.5"], "more than all transactions"),
        (&["bench", "ycsb", "--index", "heap"], "hash, ordered"),
        (&["bench", "ycsb", "--records", "4000000000", "--record-size", "1000000"], "MiB"),
        (&["bench", "ycsb", "--memory-limit", "1"], "1 MiB are available"),
        (&["bench", "ycsb", "--records", "18446744073709551615"], "--records"),
        (&["bench", "increment", "--records", "18446744073709551615"], "MiB"),
        (&["bench", "smallbank", "--customers", "18446744073709551615"], "MiB"),
        (&["bench", "tpcc", "--warehouses", "65535"], "MiB"),
        (&["bench", "tpcc", "--warehouses", "0"], "warehouse"),
        (&["bench", "tpcc", "--threads", "0"], "--threads"),
        (&["bench", "tpcc", "--delivery", "never"], "deferred, immediate"),
        (&["bench", "tpcc", "--delivery-results", "/no/such/folder/results.csv"], "/no/such/folder/results.csv"),
        (&["bench", "increment", "--threads", "257"], "256 worker slots"),
        (&["bench", "increment", "--json", "/"], "--json /"),
        (&["bench", "increment", "--protocol", "nothing", "--json", "/no/such/folder/x"], "no protocol `nothing`"),
        (&["bench", "ycsb", "--json", "/no/such/folder/result.json"], "/no/such/folder/result.json"),
        (&["bench", "ycsb", "--unheard-of"], "--unheard-of"),
        (&["bench", "increment", "--requests", "0"], "--requests"),
        (&["bench", "scan", "--records", "1"], "--records"),
        (&["bench", "scan", "--record-size", "7"], "--record-size"),
        (&["bench", "scan", "--threads", "2", "--writers", "2"], "--writers"),
        (&["bench", "scan", "--threads", "2", "--dirty", "5"], "--dirty goes with --threads 1"),
        (&["bench", "scan", "--records", "10", "--dirty", "11", "--threads", "1"], "--dirty is 11"),
        (&["bench", "scan", "--versions", "0"], "--versions"),
        (&["bench", "scan", "--ask", "sum", "--whole-rows"], "--whole-rows"),
        (
            &["bench", "scan", "--protocol", "hyper", "--protocol-option", "synopsis=100"],
            "`synopsis` is `none` or a power of two from 16 to 65536",
        ),
        (&["bench", "smallbank", "--customers", "1"], "--customers"),
        (&["bench", "tatp", "--subscribers", "0"], "--subscribers"),
    ];
    for (arguments, expected) in refusals {
        let output = polychron(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.starts_with("error: ") && text.contains(expected), "{arguments:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{arguments:?}: {text}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn help_is_no_error() {
    for arguments in [&["--help"][..], &["bench", "--help"], &["bench", "ycsb", "--help"], &["--version"]] {
        let output = polychron(arguments);
        assert!(output.status.success() && !output.stdout.is_empty(), "{arguments:?}");
    }
}

/// Starts a run that would take ten minutes, sends it Ctrl-C as a terminal does once it has told a line that begins like
/// `when`, and answers what it printed and wrote.
#[cfg(unix)]
fn interrupted(workload: &[&str], when: &str) -> (String, serde_json::Value) {
    use std::io::{BufRead, BufReader, Read};
    use std::process::Stdio;

    let json = tempfile::NamedTempFile::new().unwrap();
    let path = json.path().to_str().expect("temporary paths are text");
    let common = ["--threads", "1", "--seconds", "600", "--warmup", "0", "--json", path];
    let mut child = Command::new(env!("CARGO_BIN_EXE_polychron"))
        .args([&["bench"], workload, &common].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.by_ref().map_while(Result::ok).any(|line| line.starts_with(when)), "the run tells `{when}`");
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    lines.for_each(drop);
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert!(child.wait().unwrap().success(), "{out}");
    (out, serde_json::from_slice(&std::fs::read(json.path()).unwrap()).unwrap())
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_the_run_and_reports() {
    let (out, report) = interrupted(&["increment", "--records", "100"], "running");
    assert!(out.contains("ended early") && out.contains("consistency: passed"), "{out}");
    assert_eq!((&report["interrupted"], &report["checks"]), (&true.into(), &"passed".into()));
    assert!(report["completed"].as_u64() > Some(0), "{report}");
}

/// Should the load be faster than the signal, the run is ended all the same.
#[cfg(unix)]
#[test]
fn an_interrupt_while_loading_ends_the_load_and_reports() {
    let records = 4_000_000;
    let (out, report) = interrupted(&["increment", "--records", &records.to_string()], "loading: 10 %");
    assert!(out.contains("ended early"), "{out}");
    assert_eq!(report["interrupted"], true);
    if report["load"]["rows"].as_u64() < Some(records) {
        assert_eq!((&report["checks"], &report["completed"]), (&"not checked: ended while loading".into(), &0.into()));
        assert!(out.ends_with("consistency: not checked: ended while loading\n"), "{out}");
    }
}

/// What a terminal shows in the end, line by line: enough of one for what the program sends.
#[cfg(target_os = "linux")]
fn screen(sent: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut rest = sent;
    let mut column = 0;
    while let Some(first) = rest.chars().next() {
        let last = lines.last_mut().expect("there is a line");
        if let Some(sequence) = rest.strip_prefix("\x1b[") {
            let end = sequence.find(|letter: char| letter.is_ascii_alphabetic()).expect("sequences end");
            match &sequence[..=end] {
                "K" | "0K" => last.truncate(last.char_indices().nth(column).map_or(last.len(), |(at, _)| at)),
                "2K" => last.clear(),
                // Colours, and whether the cursor shows.
                other => assert!(other.ends_with('m') || other.starts_with('?'), "{other:?}"),
            }
            rest = &sequence[end + 1..];
            continue;
        }
        match first {
            '\r' => column = 0,
            '\n' => {
                lines.push(String::new());
                column = 0;
            }
            letter => {
                let mut letters: Vec<char> = last.chars().collect();
                letters.resize(letters.len().max(column + 1), ' ');
                letters[column] = letter;
                *last = letters.into_iter().collect();
                column += 1;
            }
        }
        rest = &rest[first.len_utf8()..];
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// On a terminal there is a bar, then a live line, and nothing is left of them in the end.
#[cfg(target_os = "linux")]
#[test]
fn a_terminal_is_left_clean() {
    let binary = env!("CARGO_BIN_EXE_polychron");
    let run = format!("{binary} bench increment --records 300000 --threads 1 --seconds 2.2 --warmup 0");
    // Not every machine has this program; elsewhere nothing is shown.
    let Ok(output) = Command::new("script").args(["-qec", &run, "/dev/null"]).output() else { return };
    let sent = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{sent}");
    assert!(sent.contains("loading") && sent.contains("running 1/2 s"), "{sent:?}");
    let screen = screen(&sent);
    assert!(screen[0].starts_with("loaded 300,000 rows in "), "{screen:?}");
    assert_eq!(screen[1], "checking consistency");
    assert!(screen[2].starts_with('┌'), "{screen:?}");
    assert!(screen.iter().any(|line| line.starts_with("throughput: ")), "{screen:?}");
    assert!(screen.iter().any(|line| line == "consistency: passed"), "{screen:?}");
}

/// On a terminal of any width no line of a report is wider than it, the parser's words have colours, and nobody who refuses colours gets any.
#[cfg(target_os = "linux")]
#[test]
fn a_terminal_gets_tables_that_fit_and_errors_in_colour() {
    let binary = env!("CARGO_BIN_EXE_polychron");
    let in_terminal = |columns: u16, command: &str| {
        let line = format!("stty cols {columns} rows 24; {command}");
        Command::new("script").args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env_remove("NO_COLOR").output()
    };
    let run = format!("{binary} bench tpcc --scale tiny --threads 1 --seconds 0.2 --warmup 0");
    for columns in [40, 80, 120] {
        // Not every machine has this program.
        let Ok(output) = in_terminal(columns, &run) else { return };
        let sent = String::from_utf8_lossy(&output.stdout);
        let screen = screen(&sent);
        let table: Vec<_> = screen.iter().filter(|line| line.starts_with(['┌', '│', '╞', '└'])).collect();
        assert!(table.len() > 10, "{screen:?}");
        assert!(table.iter().all(|line| line.chars().count() <= columns.into()), "{columns}: {table:#?}");
        let last: Vec<_> = screen.iter().rev().filter(|line| !line.is_empty()).take(2).collect();
        assert!(last[0] == "consistency: passed" && last[1].starts_with("throughput: "), "{screen:?}");
    }
    for command in ["bench ycsb --record 5", "bench ycsb --records 0", "bench nothing"] {
        let coloured = in_terminal(80, &format!("{binary} {command}")).unwrap();
        let text = String::from_utf8_lossy(&coloured.stdout);
        assert!(text.contains("\x1b[") && screen(&text)[0].starts_with("error: "), "{text:?}");
        let plain = in_terminal(80, &format!("NO_COLOR=1 {binary} {command}")).unwrap();
        let text = String::from_utf8_lossy(&plain.stdout);
        assert!(!text.contains('\x1b') && text.starts_with("error: "), "{text:?}");
    }
}

/// A workload runs on a database on a disk, which is whole afterwards, and is made once.
#[test]
fn workloads_run_on_a_disk() {
    for (number, durability) in ["immediate", "group=1ms", "eventual=5ms", "on-checkpoint"].into_iter().enumerate() {
        let protocol = ["cicada", "bohm", "maflingo", "locking"][number];
        let directory = tempfile::tempdir().expect("there is room");
        let path = directory.path().join("database");
        let path = path.to_str().expect("temporary paths are text");
        let bench = || {
            let scale = ["bench", "tpcc", "--scale", "tiny", "--threads", "2", "--seconds", SHORT, "--warmup", "0"];
            let place = ["--directory", path, "--durability", durability, "--protocol", protocol];
            polychron(&[&scale[..], &place].concat())
        };
        let output = bench();
        assert!(output.status.success(), "{protocol}: {}", String::from_utf8_lossy(&output.stderr));
        let output = polychron(&["verify", path]);
        assert!(output.status.success(), "{protocol}: {}", String::from_utf8_lossy(&output.stderr));
        let output = bench();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && text.contains(path) && text.lines().count() == 1, "{text}");
    }
}
