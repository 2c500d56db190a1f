//! `polychron-lab figures` as a user meets it.

use std::path::Path;
use std::process::{Command, Output};

use polychron::ProtocolList;
use polychron_compared::Everything;
use serde_json::Value;

/// Small enough for a test: what is measured means nothing.
fn tiny<'a>(paper: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let tiny = ["figures", paper, "--quick", "--records", "200", "--scale", "tiny"];
    [&tiny, more].concat()
}

fn polychron(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_polychron-lab"))
        .args(arguments)
        .output()
        .expect("the binary was built for this test")
}

fn data(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn every_figure_of_cicada_is_drawn_with_all_its_points() {
    let expected = "3a 3b 3c 4a 4b 4c 5a 5b 5c 6a 6b 6c 7 8 9 10_top 10_middle 10_bottom 11a 11b 11c table_2 staleness scans space";
    every_figure_is_drawn("cicada", expected);
}

/// Protocols that this build does not have are left out, and the page and the terminal say so.
#[test]
fn every_figure_of_bohm_is_drawn_with_all_its_points() {
    let expected = "4 5_top 5_bottom 6_top 6_bottom 7 8 9_top 9_bottom batches";
    let (data, errors) = every_figure_is_drawn("bohm", expected);
    let figure = data["figures"].as_array().unwrap().iter().find(|figure| figure["id"] == "5 top").unwrap();
    let series: Vec<_> = figure["panels"][0]["series"]
        .as_array()
        .unwrap()
        .iter()
        .map(|series| series["name"].as_str().unwrap())
        .collect();
    let note = figure["note"].as_str().unwrap();
    let mut found = 0;
    for name in ["bohm", "hekaton", "snapshot-isolation", "locking", "maflingo", "cicada"] {
        let is_known = Everything::all().iter().any(|protocol| protocol.name == name);
        assert_eq!(series.iter().any(|series| series.split(' ').next() == Some(name)), is_known, "{series:?}");
        let missing = |text: &str| {
            let lists = text.split("this build's list of protocols has ").skip(1);
            lists.filter_map(|list| list.split(['.', '\n']).next()).any(|list| list.contains(&format!("no {name}")))
        };
        assert_eq!((missing(note), missing(&errors)), (!is_known, !is_known), "{name}: {note}\n{errors}");
        found += usize::from(is_known);
    }
    assert_eq!(series.len(), found);
}

#[test]
fn every_figure_of_hyper_is_drawn_with_all_its_points() {
    every_figure_is_drawn("hyper", "7 8 9 rates 10a 10b 10c 11a 11b 11c tatp logging");
}

#[test]
fn every_figure_of_maflingo_is_drawn_with_all_its_points() {
    let (data, _) = every_figure_is_drawn("maflingo", "6-2 6-3 6-4 6-5 6-6");
    // From a single run there is no verdict.
    let findings = data["figures"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|figure| figure["quotes"].as_array().unwrap())
        .flat_map(|quote| quote["findings"].as_array().unwrap());
    assert!(findings.clone().count() > 10 && findings.clone().all(|it| it["verdict"] == "not-measured"), "{data}");
}

#[test]
fn every_figure_of_lazy_state_determination_is_drawn_with_all_its_points() {
    every_figure_is_drawn("lazy", "5a 5d 6ad 6be 6cf");
}

/// Draws all figures of a paper and looks at every point; answers the data and what was told on the way.
fn every_figure_is_drawn(paper: &str, expected: &str) -> (Value, String) {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("page.html");
    let more = ["--seconds", "0.01", "--threads", "2", "--repeat", "1", "--output", page.to_str().unwrap()];
    let output = polychron(&tiny(paper, &more));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    let data = data(&directory.path().join("page.json"));
    assert_eq!((&data["paper"], &data["interrupted"]), (&paper.into(), &false.into()));
    assert!(data["settings"]["threads"] == 2 && data["machine"]["cores"].is_u64());
    let figures = data["figures"].as_array().unwrap();
    let ids: Vec<_> = figures.iter().map(|figure| figure["id"].as_str().unwrap()).collect();
    assert_eq!(ids, expected.split(' ').map(|id| id.replace('_', " ")).collect::<Vec<_>>());
    let html = std::fs::read_to_string(&page).unwrap();
    let (mut panels, mut throughputs) = (0, Vec::new());
    for figure in figures {
        let places = figure["x_values"].as_array().unwrap().len();
        assert!(places >= 2, "{figure}");
        assert!(!figure["quotes"].as_array().unwrap().is_empty(), "{figure}");
        for panel in figure["panels"].as_array().unwrap() {
            panels += 1;
            let series = panel["series"].as_array().unwrap();
            assert!(series.len() >= 2, "{figure}");
            for points in series.iter().map(|series| series["points"].as_array().unwrap()) {
                assert_eq!(points.len(), places, "{figure}");
                assert!(points.iter().all(|point| point["median"].is_number()), "{figure}");
            }
            if panel["y_name"] == "transactions a second" {
                let points = series.iter().flat_map(|series| series["points"].as_array().unwrap());
                throughputs.extend(points.map(|point| point["median"].as_f64().unwrap()));
            }
        }
    }
    // On a busy machine a few runs may be too short for a single transaction.
    let some = throughputs.iter().filter(|throughput| **throughput > 0.0).count();
    assert!(
        throughputs.is_empty() || throughputs.len() > 20 && some * 2 > throughputs.len(),
        "{some} of {}",
        throughputs.len()
    );
    assert_eq!(html.matches("<svg").count(), panels);
    assert_eq!(html.matches("<section").count(), figures.len());
    let embedded = html.split_once("id=\"data\">").unwrap().1.split_once("</script>").unwrap().0;
    assert_eq!(serde_json::from_str::<Value>(embedded).unwrap(), data);
    (data, errors)
}

#[test]
fn single_figures_are_drawn_where_they_are_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let (page, json) = (directory.path().join("x"), directory.path().join("y"));
    let files = ["--output", page.to_str().unwrap(), "--json", json.to_str().unwrap()];
    let only =
        ["--seconds", "0.01", "--figure", "7", "--figure", "6a", "--repeat", "2", "--threads", "1", "--seed", "9"];
    assert!(polychron(&tiny("cicada", &[&only[..], &files].concat())).status.success());
    let data = data(&json);
    let figures = data["figures"].as_array().unwrap();
    assert_eq!(figures.iter().map(|figure| &figure["id"]).collect::<Vec<_>>(), ["6a", "7"]);
    let point = &figures[0]["panels"][0]["series"][0]["points"][0];
    assert!(point["least"].as_f64() <= point["median"].as_f64() && point["median"].as_f64() <= point["most"].as_f64());
    assert!(data["settings"]["repeat"] == 2 && data["settings"]["seed"] == 9);
    assert!(std::fs::read_to_string(page).unwrap().contains("figure-6a"));
}

#[test]
fn bad_input_gets_one_line_and_code_2() {
    let refusals: &[(&[&str], &str)] = &[
        (&["figures"], "<PAPER>"),
        (&["figures", "nothing"], "no figures of `nothing`; the papers are maflingo, cicada, bohm, hyper, lazy"),
        (&["figures", "cicada", "--figure", "12"], "--figure 12: there is no such figure; there are 3a, 3b"),
        (&["figures", "bohm", "--figure", "5"], "--figure 5: there is no such figure; there are 4, 5 top, 5 bottom"),
        (&["figures", "cicada", "--seconds", "0"], "--seconds is 0"),
        (&["figures", "cicada", "--seconds", "-1"], "--seconds is -1"),
        (&["figures", "cicada", "--seconds", "NaN"], "--seconds is NaN"),
        (&["figures", "cicada", "--repeat", "0"], "--repeat is 0"),
        (&["figures", "cicada", "--records", "3"], "--records is 3"),
        (&["figures", "cicada", "--threads", "0"], "--threads is 0"),
        (&["figures", "cicada", "--threads", "100000"], "--threads is 100000"),
        (&["figures", "cicada", "--output", "/no/such/folder/page.html"], "--output /no/such/folder/page.html"),
        (&["figures", "cicada", "--output", "page.json"], "--output page.json would also be the file of the data"),
        (&["figures", "cicada", "--seed", "x"], "--seed"),
    ];
    for (arguments, expected) in refusals {
        let output = polychron(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.starts_with("error: ") && text.contains(expected), "{arguments:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{arguments:?}: {text}");
    }
}

/// Ctrl-C ends the measuring; what was measured until then is written.
#[cfg(unix)]
#[test]
fn an_interrupt_ends_the_measuring_and_writes() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("page.html");
    let arguments = tiny("cicada", &["--seconds", "600", "--figure", "6a", "--output", page.to_str().unwrap()]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_polychron-lab"))
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.by_ref().map_while(Result::ok).any(|line| line.starts_with("  threads 1, ")));
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    lines.for_each(drop);
    assert!(child.wait().unwrap().success());
    let data = data(&page.with_extension("json"));
    assert_eq!((&data["interrupted"], &data["figures"][0]["id"]), (&true.into(), &"6a".into()));
    assert!(data["figures"][0]["panels"][0]["series"][0]["points"][0].is_null());
    assert!(std::fs::read_to_string(page).unwrap().contains("Ended early"));
}
