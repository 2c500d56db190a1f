//! What pages claim of the code: where something is implemented, which test shows it, where it is seen, and what options there are.

use crate::source::{code, words};
use crate::{Finding, Source};

/// How far a row of requirements is met.
const STATES: [&str; 3] = ["whole", "partly", "missing"];

/// Whether there is what a page names.
type Exists = fn(&[Source], &str) -> bool;

/// Columns of requirements that name what there is.
const EVIDENCE: [(&str, Exists); 3] = [("where", is_implemented), ("test", is_test), ("seen", is_seen)];

/// A row of a table: its line, and its cells by the names of their columns.
struct Line<'s> {
    number: usize,
    columns: Vec<&'s str>,
    cells: Vec<&'s str>,
}

impl<'s> Line<'s> {
    fn cell(&self, column: &str) -> &'s str {
        let at = self.columns.iter().position(|name| *name == column);
        at.and_then(|at| self.cells.get(at)).copied().unwrap_or_default()
    }
}

fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

/// The rows of all tables of a text, headings aside.
fn rows(text: &str) -> Vec<Line<'_>> {
    let (mut columns, mut found) = (Vec::new(), Vec::new());
    for (index, line) in text.lines().enumerate() {
        if !line.starts_with('|') {
            columns.clear();
        } else if columns.is_empty() {
            columns = cells(line);
        } else if !line.starts_with("|---") {
            found.push(Line { number: index + 1, columns: columns.clone(), cells: cells(line) });
        }
    }
    found
}

/// What stands between back quotes.
fn spans(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// A page of requirements: each row of a table with the columns `state`, `where`, `test`, `seen` and `lacks` names what exists, a row that is met
/// at least in part has a test, and one that is not met wholly says what it lacks.
pub fn requirements(sources: &[Source], page: &str) -> Vec<Finding> {
    let Some(source) = sources.iter().find(|source| source.path == page) else {
        return vec![Finding::new(&Source::new(page, ""), 0, "there is no such page")];
    };
    let lines: Vec<Line<'_>> = rows(&source.text).into_iter().filter(|line| line.columns.contains(&"state")).collect();
    let mut findings = Vec::new();
    if lines.is_empty() {
        findings.push(Finding::new(source, 0, "there is no table with a column `state`"));
    }
    for line in lines {
        let mut refuse = |message: String| findings.push(Finding::new(source, line.number, message));
        let state = line.cell("state");
        if !STATES.contains(&state) {
            refuse(format!("`{state}` is none of {}", STATES.join(", ")));
        }
        if state != "missing" && spans(line.cell("test")).next().is_none() {
            refuse("no test shows it".to_owned());
        }
        if (state == "whole") != line.cell("lacks").is_empty() {
            refuse("a row lacks something exactly if it is not whole".to_owned());
        }
        for (column, exists) in EVIDENCE {
            for span in spans(line.cell(column)).filter(|span| !exists(sources, span)) {
                refuse(format!("there is no `{span}` ({column})"));
            }
        }
    }
    findings
}

/// The only file whose path ends so.
fn file<'s>(sources: &'s [Source], end: &str) -> Option<&'s Source> {
    let end = format!("/{end}");
    let mut found = sources.iter().filter(|source| format!("/{}", source.path).ends_with(&end));
    found.next().filter(|_| found.next().is_none())
}

/// `file.rs`, `file.rs::name` with what the code of the file names, or `option=value` with an option of a protocol.
fn is_implemented(sources: &[Source], span: &str) -> bool {
    if let Some((option, _)) = span.split_once('=') {
        let literal = format!("\"{option}\"");
        return sources.iter().any(|source| source.path.ends_with("/options.rs") && source.text.contains(&literal));
    }
    let (path, name) = span.split_once("::").unwrap_or((span, ""));
    let has =
        |source: &Source| name.split("::").all(|part| part.is_empty() || !words(&code(&source.text), part).is_empty());
    path.ends_with(".rs") && file(sources, path).is_some_and(has)
}

/// The folder of the behaviours that every protocol is tested for, and the file that makes tests of them.
const BEHAVIOURS: &str = "lab/check/src/conformance/";

/// `file.rs::name` with a function that is a test, or a behaviour of that file of which tests are made.
fn is_test(sources: &[Source], span: &str) -> bool {
    let Some((path, name)) = span.split_once("::") else { return is_implemented(sources, span) };
    let Some(source) = file(sources, path) else { return false };
    let Some(behaviours) = source.path.strip_prefix(BEHAVIOURS).and_then(|rest| rest.strip_suffix(".rs")) else {
        let text = code(&source.text);
        let is_marked = |at: usize| {
            let before = text[..at].trim_end().trim_end_matches("fn").trim_end();
            before
                .lines()
                .rev()
                .map(str::trim)
                .take_while(|line| line.starts_with('#') || line.is_empty())
                .any(|line| line == "#[test]")
        };
        return words(&text, name).into_iter().any(is_marked);
    };
    let list = sources.iter().find(|source| source.path == format!("{BEHAVIOURS}mod.rs"));
    let group = format!("@group $setup, {behaviours}: ");
    let is_listed = |list: &Source| {
        let after = list.text.split(&group).nth(1).and_then(|rest| rest.split(");").next());
        after.is_some_and(|names| names.split(',').any(|listed| listed.trim() == name))
    };
    let is_called = |tests: &&Source| {
        tests.path.starts_with("lab/check/tests/") && tests.text.contains(&format!("{behaviours}::{name}(&"))
    };
    !words(&source.text, name).is_empty()
        && (list.is_some_and(is_listed) || sources.iter().any(|tests| is_called(&tests)))
}

/// `figures paper id`, a metric's name or a public function of the statistics, or a file.
fn is_seen(sources: &[Source], span: &str) -> bool {
    if let Some((paper, id)) = span.strip_prefix("figures ").and_then(|rest| rest.split_once(' ')) {
        let plans = file(sources, &format!("lab/figures/src/{paper}/mod.rs"));
        return plans.is_some_and(|plans| plans.text.contains(&format!("\"{id}\"")));
    }
    if span.ends_with(".rs") {
        return file(sources, span).is_some();
    }
    let is_metric = |source: &Source| {
        source.path.starts_with("crates/")
            && source.path.contains("/src/")
            && source.text.contains(&format!("\"{span}\""))
    };
    let is_statistic = |source: &Source| {
        source.path == "crates/engine/src/statistics.rs" && source.text.contains(&format!("pub fn {span}("))
    };
    sources.iter().any(|source| is_metric(source) || is_statistic(source))
}

/// Pages of protocols without a heading that begins so.
pub fn headings(sources: &[Source], folder: &str, wanted: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.path.starts_with(folder) && source.path.ends_with(".md")) {
        for heading in wanted {
            if !source.text.lines().any(|line| line.starts_with(&format!("## {heading}"))) {
                findings.push(Finding::new(source, 0, format!("there is no heading `## {heading}`")));
            }
        }
    }
    findings
}

/// Options of protocols that their pages lack, or that the pages alone have, or whose default is another one. On a page there is a table with the
/// columns `option` and `values (default first)`; in the code there is `fn set` with a match on names, and `impl Default`.
pub fn options(sources: &[Source], pages: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (page, path) in pages {
        let find = |path: &str| sources.iter().find(|source| source.path == path);
        let (Some(page), Some(options)) = (find(page), find(path)) else {
            findings.push(Finding::new(&Source::new(page, ""), 0, format!("the page or {path} is missing")));
            continue;
        };
        let known = options_of(&options.text);
        let mut met = Vec::new();
        for line in rows(&page.text).into_iter().filter(|line| line.columns.contains(&"option")) {
            for name in spans(line.cell("option")) {
                let written = spans(line.cell("values (default first)")).next().unwrap_or_default();
                let message = match known.iter().find(|(option, _)| option == name) {
                    None => format!("there is no option `{name}` in {path}"),
                    Some((_, Some(default))) if default != written => format!("the default of `{name}` is `{default}`"),
                    Some(_) => String::new(),
                };
                if !message.is_empty() {
                    findings.push(Finding::new(page, line.number, message));
                }
                met.push(name);
            }
        }
        for (name, _) in known.iter().filter(|(name, _)| !met.contains(&name.as_str())) {
            findings.push(Finding::new(page, 0, format!("the option `{name}` is in no table")));
        }
    }
    findings
}

/// Names of options and their defaults, as far as these can be read out of the code.
fn options_of(text: &str) -> Vec<(String, Option<String>)> {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let body = text.split("fn set(").nth(1).unwrap_or_default();
    let mut found = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for line in body.lines() {
        let head = line.split("=>").next().unwrap_or_default().split(" if ").next().unwrap_or_default().trim();
        if head.starts_with('"') || head.starts_with("| \"") {
            names.extend(head.split('"').skip(1).step_by(2).map(str::to_owned));
        } else if let Some((_, rest)) = line.split_once("(name == \"") {
            names.extend(rest.split('"').next().map(str::to_owned));
        }
        if let Some((_, field)) = line.split_once("self.") {
            let field: String = field.chars().take_while(|it| it.is_alphanumeric() || *it == '_').collect();
            for name in names.drain(..) {
                if !found.iter().any(|(known, _)| *known == name) {
                    found.push((name, default_of(text, &field)));
                }
            }
        }
    }
    found
}

/// The default of a field, as it is written as an option.
fn default_of(text: &str, field: &str) -> Option<String> {
    let defaults = text.split("fn default() -> Self {").nth(1)?.split("\n}").next()?;
    let line = defaults.split([',', '{', '}']).find_map(|part| part.trim().strip_prefix(&format!("{field}: ")))?;
    let number = |call: &str, times: u64| {
        let number = line.strip_prefix(call)?.strip_suffix(')')?.parse::<u64>().ok()?;
        Some((number * times).to_string())
    };
    let variant = |name: &str| {
        let is_start =
            |(at, it): (usize, char)| if it.is_uppercase() && at > 0 { format!("-{it}") } else { it.to_string() };
        name.char_indices().map(is_start).collect::<String>().to_lowercase()
    };
    let first_word = |text: &str| text.chars().take_while(|it| it.is_alphanumeric()).collect::<String>();
    let chosen = || match line.split_once("::")? {
        (kind, "default()") => {
            let body = text.split(&format!("pub enum {kind} {{")).nth(1)?;
            Some(variant(&first_word(body.split("#[default]").nth(1)?.trim_start())))
        }
        (_, name) if name.chars().all(char::is_alphanumeric) => Some(variant(name)),
        _ => None,
    };
    let plain = || line.parse::<u64>().ok().map(|number| number.to_string());
    let truth = || {
        let words = if text.contains("(\"true\", true)") { ["false", "true"] } else { ["no", "yes"] };
        line.parse::<bool>().ok().map(|truth| words[usize::from(truth)].to_owned())
    };
    let times = number("Duration::from_micros(", 1).or_else(|| number("Duration::from_millis(", 1000));
    times.or_else(|| number("Some(", 1)).or_else(plain).or_else(truth).or_else(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "| row | state | where | test | seen | lacks |\n|---|---|---|---|---|---|\n";

    fn tree(row: &str) -> Vec<Source> {
        vec![
            Source::new("docs/papers.md", &format!("{HEAD}{row}\n")),
            Source::new("crates/protocols/src/a/clock.rs", "fn draw() {} const N: &str = \"clock_boosts\";"),
            Source::new("crates/protocols/src/a/options.rs", "\"central-clock\" => self.central_clock"),
            Source::new("crates/protocols/src/a/tests.rs", "#[test]\n#[cfg(x)]\nfn shown() {}\nfn helper() {}"),
            Source::new("crates/engine/src/statistics.rs", "pub fn aborts("),
            Source::new("lab/check/src/conformance/mod.rs", "(@group $setup, scans: bounds,\n    empty_keys);"),
            Source::new(
                "lab/check/src/conformance/scans.rs",
                "pub fn bounds() {} pub fn empty_keys() {} fn not_listed() {}",
            ),
            Source::new("lab/figures/src/a/mod.rs", "Plan::lines(\"9\", )"),
        ]
    }

    #[test]
    fn wrong_names_of_evidence_are_found() {
        let row = |place: &str, test: &str, seen: &str| format!("| §1 | whole | {place} | {test} | {seen} | |");
        let right = [
            ("`a/clock.rs::draw`, `central-clock=yes`", "`a/tests.rs::shown`", "`clock_boosts`, `aborts`"),
            ("`a/clock.rs`", "`conformance/scans.rs::empty_keys`", "`figures a 9`"),
        ];
        for (place, test, seen) in right {
            assert_eq!(requirements(&tree(&row(place, test, seen)), "docs/papers.md"), []);
        }
        for (place, test, seen) in [
            ("`a/clock.rs::drew`", "`a/tests.rs::shown`", ""),
            ("`a/clocks.rs`", "`a/tests.rs::shown`", ""),
            ("`other-clock=yes`", "`a/tests.rs::shown`", ""),
            ("", "`a/tests.rs::helper`", ""),
            ("", "`a/tests.rs::gone`", ""),
            ("", "`conformance/scans.rs::not_listed`", ""),
            ("", "`a/tests.rs::shown`", "`clock_boots`"),
            ("", "`a/tests.rs::shown`", "`figures a 10`"),
            ("", "", ""),
        ] {
            assert_eq!(
                requirements(&tree(&row(place, test, seen)), "docs/papers.md").len(),
                1,
                "{place} {test} {seen}"
            );
        }
    }

    #[test]
    fn rows_say_what_they_lack() {
        for (row, findings) in [
            ("| §1 | partly | | `a/tests.rs::shown` | | all else |", 0),
            ("| §1 | missing | | | | all |", 0),
            ("| §1 | partly | | `a/tests.rs::shown` | | |", 1),
            ("| §1 | done | | `a/tests.rs::shown` | | all |", 1),
            ("", 1),
        ] {
            assert_eq!(requirements(&tree(row), "docs/papers.md").len(), findings, "{row}");
        }
        assert_eq!(requirements(&tree(""), "docs/gone.md").len(), 1);
    }

    #[test]
    fn a_heading_that_lacks_is_found() {
        let pages = [Source::new("docs/protocols/a.md", "## Deviations from the paper\n## Missing\n")];
        assert_eq!(headings(&pages, "docs/protocols/", &["Deviations", "Missing"]), []);
        assert_eq!(headings(&pages, "docs/protocols/", &["Metrics"]).len(), 1);
    }

    #[test]
    fn options_that_differ_are_found() {
        let code = "pub enum Order {\n    A,\n    /// It.\n    #[default]\n    InTurn,\n}\n\
                    impl Default for O {\n    fn default() -> Self {\n        Self { order: Order::default(), every: Duration::from_millis(2), \
                    size: Some(7), is_on: true, other: if x { 1 } else { 2 } }\n    }\n}\n\
                    fn set(&mut self, name: &str) {\n    \"order\" => {\n        self.order = 1;\n    }\n    \"every-us\" => self.every = 2,\n    \
                    \"size\" if x == \"none\" => self.size = None,\n    \"size\" => self.size = 3,\n    \"is-on\" => self.is_on = 4,\n    \
                    \"other\" => self.other = 5,\n}\n";
        let check = |rows: &str| {
            let page = format!("| option | values (default first) | meaning |\n|---|---|---|\n{rows}");
            options(&[Source::new("p.md", &page), Source::new("o.rs", code)], &[("p.md", "o.rs")]).len()
        };
        let right = "| `order` | `in-turn`, `a` | |\n| `every-us` | `2000` | |\n| `size` | `7` | |\n| `is-on` | `yes` | |\n| `other` | `2` | |\n";
        assert_eq!(check(right), 0);
        for (from, to) in [("in-turn", "a"), ("2000", "2"), ("`7`", "`8`"), ("yes", "no")] {
            assert_eq!(check(&right.replace(from, to)), 1, "{from}");
        }
        assert_eq!(check(&right.replace("`other`", "`another`")), 2);
    }
}
