//! Statements without measure: each ends with an answer or an error, in bounded time and memory, on the stack of a test's thread.

use polychron_engine::{Common, Protocol};
use polychron_protocols::serial::Serial;
use polychron_sql::{Connection, SqlDatabase};

/// The first value that a statement answers, or its error's code.
fn answer(text: &str) -> String {
    let database =
        SqlDatabase::open(Serial::open(<Serial as Protocol>::Options::default(), Common::default()).unwrap());
    let mut connection = Connection::open(&database).unwrap();
    match connection.execute(text, &[]) {
        Ok(outcome) => outcome.texts().next().and_then(|row| row.into_iter().next().flatten()).unwrap_or_default(),
        Err(error) => error.state().code().to_owned(),
    }
}

#[test]
fn nested_expressions_are_refused() {
    let texts = [
        format!("SELECT {}1{}", "(".repeat(10_000), ")".repeat(10_000)),
        format!("SELECT {}1", "- ".repeat(10_000)),
        format!("SELECT {}true", "NOT ".repeat(10_000)),
        format!("SELECT {}1{}", "abs(".repeat(10_000), ")".repeat(10_000)),
        format!("SELECT {}1{}", "CASE WHEN true THEN ".repeat(10_000), " END".repeat(10_000)),
    ];
    for text in texts {
        let code = answer(&text);
        assert!(["54001", "42601"].contains(&&*code), "{}: {code}", &text[..30]);
    }
}

#[test]
fn nested_queries_are_answered_or_refused() {
    for depth in [20, 60, 1000] {
        let text = format!("SELECT {}1{}", "(SELECT ".repeat(depth), ")".repeat(depth));
        let ours = answer(&text);
        assert!(ours == "1" || ours == "54001" && depth > 20, "{depth}: {ours}");
    }
}

/// What follows parentheses is as deep as what is in them, and what follows that.
#[test]
fn chains_within_parentheses_are_answered_or_refused() {
    let nested = |first: &str, part: &str, count: usize, depth: usize| {
        format!("{}{first}{}", "(".repeat(depth), (part.repeat(count) + ")").repeat(depth))
    };
    for (first, part) in [
        ("1", "+1"),
        ("1", "::int"),
        ("'a'", "||'a'"),
        ("true", " AND true"),
        ("false", " OR false"),
        ("'{}'::jsonb", "->'a'"),
        ("'{1}'::int[]", "[1:1]"),
        ("CASE WHEN true THEN 1 END", " + CASE WHEN true THEN 1 END"),
        ("CASE WHEN true THEN 1 END", "+1"),
    ] {
        for (count, depth) in [(3, 5), (100, 50), (100, 150), (400, 180), (4_000, 20)] {
            let ours = answer(&format!("SELECT {}", nested(first, part, count, depth)));
            assert!(ours != "54001" || count > 3, "{first}{part}: {ours}");
            assert!(ours == "54001" || count * depth < 20_000, "{first}{part} {count} {depth}: {ours}");
        }
    }
    for part in [" UNION SELECT 1", " UNION ALL SELECT 1", " INTERSECT SELECT 1", " EXCEPT ALL SELECT 2"] {
        for (count, depth) in [(3, 5), (50, 40), (290, 90)] {
            let ours = answer(&nested("SELECT 1", part, count, depth));
            assert_eq!(ours == "54001", count > 3, "{part} {count} {depth}: {ours}");
        }
    }
    let joins = |count: usize, depth: usize| {
        let mut text = "(SELECT 1) t".to_owned();
        for level in 0..depth {
            let more = (0..count).map(|at| format!(" CROSS JOIN (SELECT 1) t{level}_{at}")).collect::<String>();
            text = format!("({text}{more})");
        }
        answer(&format!("SELECT count(*) FROM {text}"))
    };
    assert_eq!((&*joins(3, 5), &*joins(100, 60)), ("1", "54001"));
}

/// Statements, and what the last of them answers.
fn last_answer(texts: &[String]) -> String {
    let protocol = Serial::open(<Serial as Protocol>::Options::default(), Common::default()).unwrap();
    let mut connection = Connection::open(&SqlDatabase::open(protocol)).unwrap();
    let mut last = String::new();
    for text in texts {
        last = match connection.execute(text, &[]) {
            Ok(outcome) => outcome.texts().next().and_then(|row| row.into_iter().next().flatten()).unwrap_or_default(),
            Err(error) => error.state().code().to_owned(),
        };
    }
    last
}

#[test]
fn views_of_themselves_and_long_chains_of_views_are_refused() {
    let texts = |all: &[&str]| all.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    let first = "CREATE VIEW r AS SELECT 1 AS a";
    assert_eq!(last_answer(&texts(&[first, "CREATE OR REPLACE VIEW r AS SELECT * FROM r"])), "42P17");
    let second = "CREATE VIEW s AS SELECT a FROM r";
    for query in
        ["SELECT a FROM s", "SELECT 1 AS a WHERE EXISTS (SELECT FROM s)", "WITH w AS (SELECT * FROM s) SELECT a FROM w"]
    {
        let replaced = format!("CREATE OR REPLACE VIEW r AS {query}");
        assert_eq!(last_answer(&texts(&[first, second, &replaced])), "42P17", "{query}");
        assert_eq!(last_answer(&texts(&[first, second, &replaced, "SELECT a FROM s"])), "1", "{query}");
    }
    let chain = |length: usize| {
        let mut all = vec!["CREATE VIEW v0 AS SELECT 1 AS a".to_owned()];
        all.extend((1..=length).map(|at| format!("CREATE VIEW v{at} AS SELECT a FROM (SELECT a FROM v{}) t", at - 1)));
        all.push(format!("SELECT a FROM v{length}"));
        all.push(format!("SELECT {}a{} FROM v{}", "(".repeat(150), ")".repeat(150), length.min(30)));
        all
    };
    assert_eq!(last_answer(&chain(30)), "1");
    let long = chain(40);
    assert_eq!(last_answer(&long), "1");
    assert_eq!(last_answer(&long[..long.len() - 1]), "42P01", "the longest ones were not made");
}

/// Letters of several bytes where dates, zones and eras end.
#[test]
fn wide_letters_in_times_are_refused() {
    for of in ["date", "time", "timestamp", "timestamptz", "interval"] {
        for end in ["𝄞", "𝄞]", "é", "+aé1", "+1é", " 𝄞c", " bé"] {
            let code = answer(&format!("SELECT '2024-01-01 00:00{end}'::{of}"));
            assert!(["22007", "22008", "22023"].contains(&&*code), "{of} {end}: {code}");
        }
    }
}

#[test]
fn chains_of_operators_are_answered_or_refused() {
    let chain = |part: &str, count: usize, sign: &str| answer(&format!("SELECT {}", vec![part; count].join(sign)));
    assert_eq!(chain("1", 400, "+"), "400");
    assert_eq!(chain("1", 100_000, "+"), "54001");
    assert_eq!(chain("'a'", 20_000, "||"), "54001");
    assert_eq!(chain("1", 20_000, "::int"), "54001");
    assert_eq!(chain("true", 4_000, " AND "), "t");
    assert_eq!(chain("1 = 1", 4_000, " OR "), "t");
    assert_eq!(chain("true", 100_000, " AND "), "54001");
    assert_eq!(chain("1", 250, " UNION ALL SELECT "), "1");
    assert_eq!(chain("1", 250, " UNION SELECT "), "1");
    assert_eq!(chain("1", 20_000, " UNION ALL SELECT "), "54001");
    let from = |count: usize| {
        let tables: Vec<_> = (0..count).map(|at| format!("generate_series(1, 1) t{at}")).collect();
        answer(&format!("SELECT count(*) FROM {}", tables.join(", ")))
    };
    assert_eq!(from(50), "1");
    assert_eq!(from(5_000), "54001");
}

#[test]
fn long_lists_are_answered() {
    let list: Vec<_> = (0..100_000).map(|it| it.to_string()).collect();
    assert_eq!(answer(&format!("SELECT 99999 IN ({})", list.join(","))), "t");
    assert_eq!(answer(&format!("SELECT count(*) FROM (VALUES ({})) v", list.join("),("))), "100000");
}

#[test]
fn huge_numbers_are_answered_or_refused() {
    assert_eq!(answer("SELECT repeat('x', 2147483647)"), "54000");
    assert_eq!(answer("SELECT lpad('x', 2147483647)"), "54000");
    assert_eq!(answer("SELECT length(repeat('', 2147483647))"), "0");
    assert_eq!(answer("SELECT 1 LIMIT 9223372036854775807 OFFSET 0"), "1");
    assert_eq!(answer("SELECT length(round(1.5, 2147483647)::text)"), "16385");
    assert_eq!(answer("SELECT round(1.5, -2147483648)"), "0");
    assert_eq!(answer("SELECT trunc(1.5, -2147483648)"), "0");
    assert_eq!(answer("SELECT left('abc', -2147483648)"), "");
    assert_eq!(answer("SELECT substr('abc', -2147483648, 2147483647)"), "");
    assert_eq!(answer("SELECT split_part('a,b', ',', -2147483648)"), "");
    assert_eq!(answer("SELECT length(1e400::text)"), "401");
    assert_eq!(answer("SELECT 1e200000"), "22003");
    assert_eq!(answer("SELECT date '2000-01-01' + 2147483647"), "22008");
    assert_eq!(answer("SELECT interval '1 month' * float8 '1e300'"), "22008");
}

#[test]
fn recursion_without_end_is_refused() {
    assert_eq!(
        answer("WITH RECURSIVE t(n) AS (SELECT 1::bigint UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t"),
        "53200"
    );
}

/// The condition fails at a row behind those that are wanted.
#[test]
fn a_limit_reads_few_rows_of_an_ordered_index() {
    let made = "CREATE TABLE it (a int, b int, c int, PRIMARY KEY (a, b));
        CREATE INDEX it_c ON it (c);
        INSERT INTO it SELECT g % 2, g, g FROM generate_series(1, 100) g; ";
    let first = |query: &str| answer(&format!("{made}{query}"));
    assert_eq!(first("SELECT b FROM it WHERE 1 / (b - 40) <= 0 ORDER BY a, b LIMIT 1"), "2");
    assert_eq!(first("SELECT b FROM it WHERE a = 1 AND 1 / (b - 41) <= 0 ORDER BY b LIMIT 1"), "1");
    assert_eq!(
        first("SELECT i.b FROM it i JOIN it j ON j.c = i.b WHERE 1 / (i.b - 40) <= 0 ORDER BY i.a LIMIT 1"),
        "2"
    );
    // Backward, and with NULLs where the index has them.
    assert_eq!(first("SELECT b FROM it WHERE 1 / (b - 40) <= 0 ORDER BY a DESC, b DESC LIMIT 1"), "99");
    assert_eq!(first("SELECT b FROM it WHERE c > 0 AND 1 / (b - 40) <= 0 ORDER BY c LIMIT 1"), "1");
    // Not in the order of the key, nor with NULLs where the index has them: all rows are sorted.
    assert_eq!(first("SELECT b FROM it WHERE 1 / (b - 40) <= 0 ORDER BY b LIMIT 1"), "22012");
    assert_eq!(first("SELECT b FROM it WHERE 1 / (b - 40) <= 0 ORDER BY a DESC, b LIMIT 1"), "22012");
    assert_eq!(first("SELECT b FROM it WHERE c > 0 AND 1 / (b - 40) <= 0 ORDER BY c NULLS FIRST LIMIT 1"), "22012");
}

#[test]
fn a_subquery_that_runs_for_each_row_gives_its_memory_back() {
    let sorted = "SELECT v FROM (SELECT repeat('x', 100000) || g AS v) s ORDER BY v";
    assert_eq!(answer(&format!("SELECT count(({sorted})) FROM generate_series(1, 4000) g")), "4000");
}

#[test]
fn plans_that_double_with_each_level_are_refused() {
    let levels = |count: usize| {
        let queries: Vec<_> =
            (1..count).map(|at| format!("c{at} AS (SELECT a.a FROM c{0} a, c{0} b)", at - 1)).collect();
        format!("WITH c0 AS (SELECT 1 AS a), {} SELECT count(*) FROM c{}", queries.join(", "), count - 1)
    };
    assert_eq!(answer(&levels(8)), "1");
    assert_eq!(answer(&levels(60)), "54001");
    let mut views = String::from("CREATE TABLE t (a int); CREATE VIEW v0 AS SELECT a FROM t;");
    for at in 1..12 {
        views += &format!("CREATE VIEW v{at} AS SELECT a.a FROM v{0} a, v{0} b, v{0} c;", at - 1);
    }
    assert_eq!(answer(&views), "54001");
}

#[test]
fn texts_have_a_bounded_number_of_statements() {
    assert_eq!(answer(&"SELECT 1;".repeat(1000)), "1");
    assert_eq!(answer(&"SELECT 1;".repeat(40_000)), "54000");
}
