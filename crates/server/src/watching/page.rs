//! The page: one file, which asks nobody else for anything.

use std::sync::LazyLock;

use base64::Engine as _;
use sha2::{Digest as _, Sha256};

pub(super) const PAGE: &str = include_str!("page.html");

/// What stands between the tags of this name in the page.
fn between(tag: &str) -> &'static str {
    let begin = PAGE.find(&format!("<{tag}>")).map_or(0, |at| at + tag.len() + 2);
    let end = PAGE.find(&format!("</{tag}>")).unwrap_or(PAGE.len());
    PAGE.get(begin..end).unwrap_or_default()
}

/// What the page may do: it has its own script and style and no others, and asks its own server alone.
pub(super) fn policy() -> &'static str {
    static POLICY: LazyLock<String> = LazyLock::new(|| {
        let hash = |tag| base64::engine::general_purpose::STANDARD.encode(Sha256::digest(between(tag)));
        format!(
            "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            hash("script"),
            hash("style")
        )
    });
    &POLICY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_asks_nobody_else() {
        assert!(!between("script").is_empty() && !between("style").is_empty());
        let outside = ["http:", "https:", "//cdn", "src=", "@import", "url(", "innerHTML", " style=", " onclick="];
        assert!(outside.iter().all(|text| !PAGE.contains(text)));
        assert_eq!([PAGE.matches("<script").count(), PAGE.matches("<style").count()], [1, 1]);
        assert!(policy().contains("script-src 'sha256-"));
    }
}
