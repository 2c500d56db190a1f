//! Which words the project uses.

use crate::architecture::humps;
use crate::{Finding, Source};

/// Words in code, comments or documents for which the field has another one: pairs of the two. A word may consist of several, as they stand in
/// identifiers of any style: `tidy up` finds `tidy_up` and `TidyUp`. Files under the `allowed` paths, which are prefixes, are not searched.
pub fn words(sources: &[Source], replaced: &[(&str, &str)], allowed: &[&str]) -> Vec<Finding> {
    let replaced: Vec<(Vec<&str>, &str)> =
        replaced.iter().map(|(word, by)| (word.split_whitespace().collect(), *by)).collect();
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust() || source.path.ends_with(".md")) {
        if allowed.iter().any(|prefix| source.path.starts_with(prefix)) {
            continue;
        }
        for (index, line) in source.text.lines().enumerate() {
            let humps = humps(line);
            for (word, by) in &replaced {
                if humps.windows(word.len()).any(|window| window == *word) {
                    let message = format!("`{}` is not the field's word: {by}", word.join(" "));
                    findings.push(Finding::new(source, index + 1, message));
                }
            }
        }
    }
    findings
}

/// The glossary of the architecture page: it has at most so many words, and each of them once.
pub fn glossary(sources: &[Source], most: usize) -> Vec<Finding> {
    let Some(source) = sources.iter().find(|source| source.path == "ARCHITECTURE.md") else { return Vec::new() };
    let lines = source.text.lines().enumerate().skip_while(|(_, line)| *line != "## Glossary");
    let rows = lines.filter(|(_, line)| line.starts_with("| ")).skip(1);
    let words: Vec<(usize, &str)> =
        rows.filter_map(|(index, line)| Some((index, line.split('|').nth(1)?.trim()))).collect();
    let mut findings = Vec::new();
    if words.is_empty() {
        findings.push(Finding::new(source, 1, "there is no table under `## Glossary`".to_owned()));
    }
    if let Some((index, _)) = words.get(most) {
        let message = format!("the glossary has {} words, and at most {most} are allowed", words.len());
        findings.push(Finding::new(source, index + 1, message));
    }
    for (at, (index, word)) in words.iter().enumerate() {
        if words[..at].iter().any(|(_, earlier)| earlier == word) {
            findings.push(Finding::new(source, index + 1, format!("`{word}` is in the glossary twice")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_words_are_found_in_any_style() {
        let replaced = [("tidy up", "maintain"), ("patience", "spin budget")];
        let source = Source::new(
            "crates/engine/src/lib.rs",
            "fn tidy_up() {}\nstruct TidyUp;\n// Tidy it up.\nlet PATIENCE = 1;\nlet patient = 2;\n",
        );
        let lines: Vec<usize> =
            words(std::slice::from_ref(&source), &replaced, &[]).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1, 2, 4]);
        assert!(words(&[source], &replaced, &["crates/engine/"]).is_empty());
    }

    #[test]
    fn a_long_or_double_glossary_is_found() {
        let page = |rows: &str| {
            let text = format!("| a | table |\n\n## Glossary\n\n| word | meaning |\n|---|---|\n{rows}");
            [Source::new("ARCHITECTURE.md", &text)]
        };
        let lines = |rows: &str, most| -> Vec<usize> {
            glossary(&page(rows), most).iter().map(|finding| finding.line).collect()
        };
        assert!(lines("| a | b |\n| c | d |\n", 2).is_empty());
        assert_eq!(lines("| a | b |\n| c | d |\n", 1), [8]);
        assert_eq!(lines("| a | b |\n| c | d |\n| a | e |\n", 3), [9]);
        assert_eq!(lines("", 3), [1]);
    }
}
