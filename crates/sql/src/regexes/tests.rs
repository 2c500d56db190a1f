use super::*;

/// The groups of the first match, as PostgreSQL 15 has them.
#[test]
fn matches_and_groups_are_those_of_postgresql() {
    for (text, pattern, wanted) in [
        ("foobar", "o|oo", "oo"),
        ("abcd", "a|ab|abc", "abc"),
        ("abcd", "(a|ab)(c|bcd)(d*)", "abcd,ab,c,d"),
        ("xyz123", "([a-z]+?)([0-9]*)", "x,x,"),
        ("XY1234Z", "Y*([0-9]{1,3})", "Y123,123"),
        ("XY1234Z", "Y*?([0-9]{1,3})", "Y1,1"),
        ("abc01234xyz", "(.*)(\\d+)(.*)", "abc01234xyz,abc0123,4,xyz"),
        ("abc01234xyz", "(.*?)(\\d+)(.*)", "abc0,abc,0,"),
        ("abc01234xyz", "(?:(.*?)(\\d+)(.*)){1,1}", "abc01234xyz,abc,01234,xyz"),
        ("aaaa", "(a|aa)*", "aaaa,aa"),
        ("aaaa", "(a|aa)+", "aaaa,a"),
        ("b", "(a*)*", ","),
        ("ab", "a?(?:ab)?(.*)", "ab,"),
    ] {
        let mut regex = Regex::new(pattern, Flags::default()).unwrap();
        let found = regex.find(text, 0).unwrap().unwrap();
        let groups = regex.groups(text, &found).unwrap();
        let groups: Vec<_> = groups.into_iter().map(|it| it.map_or("", |it| &text[it])).collect();
        assert_eq!(groups.join(","), wanted, "{text} {pattern}");
    }
}

#[test]
fn what_is_too_large_is_refused() {
    for pattern in ["((((x{255}){255}){255}){255}){255}".to_owned(), "(".repeat(100_000), "(a|b)*".repeat(20_000)] {
        let of = |pattern: &str| {
            let mut regex = Regex::new(pattern, Flags::default())?;
            let found = regex.find("", 0)?.unwrap_or(0..0);
            regex.groups("", &found).map(|_| ())
        };
        assert_eq!(of(&pattern).unwrap_err().state(), SqlState("2201B"));
    }
}
