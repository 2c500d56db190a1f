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
}
