//! The page: every figure with its plots, the paper's claim beside it, and what was found here.

use std::fmt::Write;

use polychron_workloads::run::Machine;
use serde::Serialize;

use crate::figure::{Figure, number};
use crate::measure::Settings;
use crate::{Drawn, Ended, Paper, plot};

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem;color:#222}\
h1{font-size:1.5rem}h2{font-size:1.15rem;border-top:1px solid #ccc;padding-top:1rem;margin-top:2rem}\
.figure{display:flex;flex-wrap:wrap;gap:1.5rem}.plots{flex:0 1 560px}.words{flex:1 1 24rem}svg{max-width:100%;height:auto}\
blockquote{margin:0 0 1rem;padding-left:1rem;border-left:3px solid #0072b2}table{border-collapse:collapse;font-size:13px}\
td,th{border:1px solid #ddd;padding:.2rem .5rem;text-align:right}td:first-child,th:first-child{text-align:left}\
.agrees{color:#00734f}.differs{color:#b34700}.too-close,.not-measured{color:#666}";

/// All that was measured, as it is written to JSON.
#[derive(Debug, Serialize)]
struct Data<'d> {
    paper: &'d str,
    settings: &'d Settings,
    machine: Machine,
    interrupted: bool,
    load_before: Option<f64>,
    figures: &'d [Figure],
}

/// The page as HTML, and its data as JSON.
pub fn page(paper: &Paper, settings: &Settings, drawn: &Drawn) -> (String, String) {
    let machine = Machine::this();
    let mut html = String::new();
    let title = format!("The figures of {}, measured again", paper.name);
    let _ = write!(html, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>");
    let _ = write!(html, "<style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n<p>{}</p>\n", escaped(paper.citation));
    let _ = writeln!(html, "<p>{}</p>", escaped(paper.scope));
    let _ = writeln!(html, "<p>{}</p>", escaped(&circumstances(settings, &machine)));
    if let Some(load) = drawn.load_before.filter(|load| *load >= 0.5) {
        let _ = writeln!(html, "<p>Other programs were running: the load was {load} before this one began.</p>");
    }
    match &drawn.ended {
        Some(Ended::Stopped) => html += "<p><strong>Ended early: figures may be missing or incomplete.</strong></p>\n",
        Some(Ended::Failed(line)) => {
            let _ = writeln!(html, "<p><strong>Ended by a failure: {}</strong></p>", escaped(line));
        }
        None => {}
    }
    drawn.figures.iter().for_each(|figure| section(&mut html, figure));
    let data = Data {
        paper: paper.name,
        settings,
        machine,
        interrupted: drawn.ended.is_some(),
        load_before: drawn.load_before,
        figures: &drawn.figures,
    };
    let mut json = serde_json::to_string_pretty(&data).unwrap_or_default();
    json.push('\n');
    // A text in the data must not end the element that holds it.
    let held = json.replace('<', "\\u003c");
    let _ = write!(html, "<script type=\"application/json\" id=\"data\">\n{held}</script>\n</body></html>\n");
    (html, json)
}

fn circumstances(settings: &Settings, machine: &Machine) -> String {
    let machine = serde_json::to_value(machine).unwrap_or_default();
    let facts = machine.as_object().into_iter().flatten().filter_map(|(name, fact)| {
        let text = fact.as_str().map_or_else(|| fact.to_string(), str::to_owned);
        (!fact.is_null()).then(|| format!("{} {text}", name.replace('_', " ")))
    });
    let facts: Vec<String> = facts.collect();
    let Settings { threads, seconds, repeat, seed, records, scale, commit, .. } = settings;
    format!(
        "Measured with up to {threads} threads, {seconds} s a run, median of {repeat}; {} records, TPC-C with {} items; seed \
         {seed}; commit {commit}. Machine: {}.",
        number(*records as f64),
        number(f64::from(scale.items)),
        facts.join(", ")
    )
}

fn section(html: &mut String, figure: &Figure) {
    let Figure { id, title, claim, note, .. } = figure;
    let _ =
        writeln!(html, "<section id=\"figure-{}\"><h2>{}: {}</h2>", id.replace(' ', "-"), escaped(id), escaped(title));
    let _ = write!(html, "<div class=\"figure\"><div class=\"plots\">");
    figure.panels.iter().for_each(|panel| *html += &plot::svg(figure, panel));
    let _ = write!(html, "</div><div class=\"words\"><p>The paper:</p><blockquote>{}</blockquote>", escaped(claim));
    if !note.is_empty() {
        let _ = write!(html, "<p>{}</p>", escaped(note));
    }
    *html += "<ul>";
    for finding in &figure.findings {
        let class = serde_json::to_value(finding.verdict).unwrap_or_default();
        let (class, verdict) = (class.as_str().unwrap_or_default(), finding.verdict.text());
        let _ = write!(html, "<li>{}: <strong class=\"{class}\">{verdict}</strong>", escaped(&finding.claim));
        if !finding.numbers.is_empty() {
            let _ = write!(html, " ({})", escaped(&finding.numbers));
        }
        if !finding.why.is_empty() {
            let _ = write!(html, ". {}", escaped(&finding.why));
        }
        *html += "</li>";
    }
    *html += "</ul>";
    figure.panels.iter().for_each(|panel| table(html, figure, panel));
    *html += "</div></div></section>\n";
}

fn table(html: &mut String, figure: &Figure, panel: &crate::Panel) {
    let _ =
        write!(html, "<table><caption>{}</caption><tr><th>{}</th>", escaped(&panel.y_name), escaped(&figure.x_name));
    figure.x_values.iter().for_each(|value| *html += &format!("<th>{}</th>", escaped(value)));
    *html += "</tr>";
    for series in &panel.series {
        let _ = write!(html, "<tr><td>{}</td>", escaped(&series.name));
        for point in &series.points {
            let _ = write!(html, "<td>{}</td>", point.map_or_else(|| "–".to_owned(), |point| number(point.y)));
        }
        *html += "</tr>";
    }
    *html += "</table>";
}

/// A text as it may stand in HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
