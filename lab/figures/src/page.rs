//! The page: every figure with its plots, the paper's claim beside it, and what was found here.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use polychron_workloads::run::Machine;
use serde::Serialize;

use crate::figure::{Figure, Finding, Point, Verdict, number};
use crate::measure::Settings;
use crate::{Drawn, Ended, Panel, Paper, plot};

/// Colours are those of the reader's choice of light or dark; on a narrow screen all stands in one column, and tables scroll by themselves.
const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#222;--ground:#fff;--line:#ccc;--mark:#0072b2;--good:#00734f;--bad:#a33b00;--dim:#5c5c5c}\
@media(prefers-color-scheme:dark){:root{--ink:#e4e4e4;--ground:#191919;--line:#555;--mark:#56b4e9;--good:#4fd1a5;--bad:#ff9a5c;--dim:#aaa}}\
body{font:15px/1.45 system-ui,sans-serif;max-width:76rem;margin:1.5rem auto;padding:0 1rem;color:var(--ink);background:var(--ground);\
overflow-wrap:break-word}\
h1{font-size:1.5rem}h2{font-size:1.15rem;border-top:1px solid var(--line);padding-top:1rem;margin-top:2rem}\
.figure{display:flex;flex-wrap:wrap;gap:1.5rem}.plots,.words{min-width:0}.plots{flex:1 1 34rem}.words{flex:1 1 22rem}\
@media(max-width:40rem){.plots,.words{flex-basis:100%}}\
.plot{display:flex;flex-wrap:wrap;align-items:center;gap:.5rem 1rem;margin-bottom:1rem}.plot svg{flex:1 1 20rem;min-width:0;max-width:560px;height:auto}\
.legend{list-style:none;margin:0;padding:0;font-size:13px}.legend span{display:inline-block;width:.9em;height:.9em;margin-right:.5em;border-radius:2px}\
svg text{fill:var(--ink)}svg [stroke='#000000']{stroke:var(--ink)}\
blockquote{margin:0 0 1rem;padding-left:1rem;border-left:3px solid var(--mark)}\
.table{overflow-x:auto;margin-bottom:1.5rem}table{border-collapse:collapse;font-size:13px;margin-bottom:.5rem}caption{text-align:left}\
td,th{border:1px solid var(--line);padding:.2rem .5rem;text-align:right;white-space:nowrap}td:first-child,th:first-child{text-align:left;white-space:normal;min-width:8em}\
a{color:var(--mark)}.agrees{color:var(--good)}.differs{color:var(--bad)}.too-close,.not-measured{color:var(--dim)}";

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
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                p { (paper.citation) }
                (summary(&drawn.figures))
                p { (marked(paper.scope)) }
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

/// What of the paper holds here, in one line, and the way to each figure.
fn summary(figures: &[Figure]) -> Markup {
    let total = |verdict| figures.iter().map(|figure| figure.count(verdict)).sum::<usize>();
    let claims: usize = figures.iter().map(|figure| figure.findings().count()).sum();
    html! {
        p {
            "Of " (claims) " claims "
            @for (at, verdict) in Verdict::ALL.into_iter().enumerate() {
                @if at > 0 { ", " }
                strong class=(class(verdict)) { (total(verdict)) " " (short(verdict)) }
            }
            "."
        }
        nav {
            ul {
                @for figure in figures {
                    li {
                        a href={ "#" (anchor(figure)) } { (figure.id) ": " (figure.title) }
                        @for verdict in Verdict::ALL.into_iter().filter(|verdict| figure.count(*verdict) > 0) {
                            ", " span class=(class(verdict)) { (figure.count(verdict)) " " (short(verdict)) }
                        }
                    }
                }
            }
        }
    }
}

fn short(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Agrees => "hold",
        Verdict::Differs => "do not",
        Verdict::TooClose => "too close",
        Verdict::NotMeasured => "not measured",
    }
}

fn class(verdict: Verdict) -> String {
    serde_json::to_value(verdict).ok().and_then(|class| class.as_str().map(str::to_owned)).unwrap_or_default()
}

fn anchor(figure: &Figure) -> String {
    format!("figure-{}", figure.id.replace(' ', "-"))
}

/// Text in which names stand between back-quotes, as on the command line: they become code.
fn marked(text: &str) -> Markup {
    html! {
        @for (at, part) in text.split('`').enumerate() {
            @if at % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

fn section(figure: &Figure) -> Markup {
    let Figure { id, title, note, .. } = figure;
    html! {
        section id=(anchor(figure)) {
            h2 { (id) ": " (title) }
            div class="figure" {
                div class="plots" {
                    @for panel in &figure.panels {
                        div class="plot" {
                            (PreEscaped(plot::svg(figure, panel)))
                            (legend(panel))
                        }
                        div class="table" { (table(figure, panel)) }
                    }
                }
                div class="words" {
                    @for quote in &figure.quotes {
                        blockquote { (marked(&quote.text)) }
                        ul {
                            @for finding in &quote.findings { (found(finding)) }
                        }
                    }
                    @if !note.is_empty() { p { (marked(note)) } }
                }
            }
        }
    }
}

/// Which colour is whose.
fn legend(panel: &Panel) -> Markup {
    html! {
        ul class="legend" {
            @for (position, series) in panel.series.iter().enumerate() {
                @let colour = plot::colour(position);
                li { span style={ "background:rgb(" (colour.0) "," (colour.1) "," (colour.2) ")" } {} (series.name) }
            }
        }
    }
}

fn found(finding: &Finding) -> Markup {
    html! {
        li {
            (marked(&finding.claim)) ": " strong class=(class(finding.verdict)) { (finding.verdict.text()) }
            @if !finding.numbers.is_empty() { " (" (finding.numbers) ")" }
            @if !finding.why.is_empty() { ". " (marked(&finding.why)) }
        }
    }
}

fn table(figure: &Figure, panel: &Panel) -> Markup {
    let text = |point: &Option<Point>| {
        point.map_or_else(
            || "–".to_owned(),
            |Point { median, least, most, runs }| match runs {
                1 => number(median),
                _ => format!("{} ({} to {})", number(median), number(least), number(most)),
            },
        )
    };
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
                    @for point in &series.points { td { (text(point)) } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, PAPERS};

    #[test]
    fn a_page_has_contents_a_legend_for_every_series_and_no_back_quotes() {
        let mut figure = Figure::new("5 top", "a title", Kind::Bars, "threads");
        figure.frame(&["1".to_owned()], &["y"], &["one", "two"]);
        figure.panels[0].series[0].points[0] = Some(Point::of(vec![1.0, 2.0, 3.0]));
        figure.expect_higher("`bohm` is faster", "`one` is higher", [figure.point(0, 0), None]);
        let drawn = Drawn { figures: vec![figure], ended: None, load_before: None };
        let (html, _) = page(&PAPERS[0], &Settings::quick(2), &drawn);
        let body = html.split("<script").next().unwrap();
        assert!(!body.contains('`'), "{body}");
        assert!(body.contains("<code>bohm</code>") && body.contains("<code>one</code> is higher"), "{body}");
        assert!(body.contains("href=\"#figure-5-top\"") && body.contains("id=\"figure-5-top\""), "{body}");
        assert!(body.contains("Of 1 claims ") && body.contains("1 not measured"), "{body}");
        assert!(body.contains("rgb(0,114,178)") && body.contains("rgb(213,94,0)"), "{body}");
        assert!(body.contains("name=\"viewport\"") && body.contains("prefers-color-scheme:dark"), "{body}");
        assert!(body.contains("2 (1 to 3)"), "{body}");
    }
}
