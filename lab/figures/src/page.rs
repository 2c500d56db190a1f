//! The page: every figure with its plots, the paper's claim beside it, and what was found here.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use polychron_workloads::run::Machine;
use serde::Serialize;

use crate::figure::{Figure, Finding, number};
use crate::measure::Settings;
use crate::{Drawn, Ended, Panel, Paper, plot};

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
    let circumstances = circumstances(settings, &machine);
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
    let title = format!("The figures of {}, measured again", paper.name);
    let html = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                p { (paper.citation) }
                p { (paper.scope) }
                p { (circumstances) }
                @if let Some(load) = drawn.load_before.filter(|load| *load >= 0.5) {
                    p { "Other programs were running: the load was " (load) " before this one began." }
                }
                @match &drawn.ended {
                    Some(Ended::Stopped) => p { strong { "Ended early: figures may be missing or incomplete." } },
                    Some(Ended::Failed(line)) => p { strong { "Ended by a failure: " (line) } },
                    None => {}
                }
                @for figure in &drawn.figures { (section(figure)) }
                // A text in the data must not end the element that holds it.
                script type="application/json" id="data" { (PreEscaped(json.replace('<', "\\u003c"))) }
            }
        }
    };
    (html.into_string(), json)
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

fn section(figure: &Figure) -> Markup {
    let Figure { id, title, claim, note, .. } = figure;
    html! {
        section id={ "figure-" (id.replace(' ', "-")) } {
            h2 { (id) ": " (title) }
            div class="figure" {
                div class="plots" {
                    @for panel in &figure.panels { (PreEscaped(plot::svg(figure, panel))) }
                }
                div class="words" {
                    p { "The paper:" }
                    blockquote { (claim) }
                    @if !note.is_empty() { p { (note) } }
                    ul {
                        @for finding in &figure.findings { (found(finding)) }
                    }
                    @for panel in &figure.panels { (table(figure, panel)) }
                }
            }
        }
    }
}

fn found(finding: &Finding) -> Markup {
    let class = serde_json::to_value(finding.verdict).unwrap_or_default();
    html! {
        li {
            (finding.claim) ": " strong class=(class.as_str().unwrap_or_default()) { (finding.verdict.text()) }
            @if !finding.numbers.is_empty() { " (" (finding.numbers) ")" }
            @if !finding.why.is_empty() { ". " (finding.why) }
        }
    }
}

fn table(figure: &Figure, panel: &Panel) -> Markup {
    html! {
        table {
            caption { (panel.y_name) }
            tr {
                th { (figure.x_name) }
                @for value in &figure.x_values { th { (value) } }
            }
            @for series in &panel.series {
                tr {
                    td { (series.name) }
                    @for point in &series.points {
                        td { (point.map_or_else(|| "–".to_owned(), |point| number(point.y))) }
                    }
                }
            }
        }
    }
}
