//! The port that shows what goes on: its numbers, its stream, and what it refuses.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::common::{Db, connect, server_with};
use polychron_server::{Credentials, Metrics, Server, ServerError};

fn watched(password: Option<&str>) -> (Server<Db>, SocketAddr) {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let metrics = Metrics { address, password: password.map(str::to_owned) };
    let server = server_with(Credentials::Trust, |options| options.metrics = Some(metrics));
    let address = server.metrics_address().unwrap();
    (server, address)
}

/// What the bytes are answered: the status, and what stands behind the head.
fn ask(address: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, answer.split_once("\r\n\r\n").map_or(String::new(), |(_, content)| content.to_owned()))
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"))
}

/// The number of a line of the metrics.
fn number(metrics: &str, line: &str) -> f64 {
    let found = metrics.lines().find_map(|own| own.strip_prefix(line)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no {line} in {metrics}")).parse().unwrap()
}

#[test]
fn metrics_say_what_was_done() {
    let (server, address) = watched(None);
    let mut client = connect(&server);
    client.batch_execute("CREATE TABLE t (a int PRIMARY KEY, b int)").unwrap();
    client.batch_execute("INSERT INTO t VALUES (1, 1), (2, 2)").unwrap();
    let before = get(address, "/metrics").1;
    for _ in 0..5 {
        client.batch_execute("UPDATE t SET b = b + 1 WHERE a = 1").unwrap();
    }
    client.batch_execute("SELECT 1 / 0").unwrap_err();
    for text in ["BEGIN", "DELETE FROM t", "ROLLBACK", "BEGIN"] {
        client.batch_execute(text).unwrap();
    }
    let after = get(address, "/metrics").1;
    let grown = |line: &str| number(&after, line) - number(&before, line);
    let statements = ["ok", "error"].map(|it| grown(&format!("polychron_statements_total{{outcome=\"{it}\"}}")));
    assert_eq!(statements, [9.0, 1.0]);
    let ended =
        ["committed", "rolled_back"].map(|it| grown(&format!("polychron_transactions_total{{outcome=\"{it}\"}}")));
    assert_eq!(ended, [5.0, 2.0]);
    assert_eq!([grown("polychron_statement_seconds_count"), grown("polychron_transaction_seconds_count")], [10.0, 7.0]);
    assert_eq!(grown("polychron_statement_seconds_bucket{le=\"+Inf\"}"), 10.0);
    assert_eq!(number(&after, "polychron_sessions{state=\"idle in transaction\"}"), 1.0);
    assert_eq!(number(&after, "polychron_connections{state=\"admitted\"}"), 1.0);
    assert!(number(&after, "polychron_memory_bytes{kind=\"used\"}") > 0.0);
    assert!(number(&after, "polychron_oldest_transaction_seconds") > 0.0);
    // Each line is a comment or a name with labels, and a number; buckets grow with their bounds.
    let lines = after.lines().filter(|line| !line.starts_with("# "));
    for line in lines {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("polychron_") && value.parse::<f64>().is_ok(), "{line}");
    }
    let buckets: Vec<f64> = after
        .lines()
        .filter_map(|line| line.strip_prefix("polychron_statement_seconds_bucket")?.rsplit_once(' ')?.1.parse().ok())
        .collect();
    assert!(buckets.len() > 20 && buckets.is_sorted());
    drop(client);
}

#[test]
fn conflicts_are_counted_with_their_tables() {
    let (server, address) = watched(None);
    let (mut own, mut other) = (connect(&server), connect(&server));
    own.batch_execute("CREATE TABLE t (a int PRIMARY KEY, b int); INSERT INTO t VALUES (1, 1), (2, 2)").unwrap();
    own.batch_execute("BEGIN").unwrap();
    own.simple_query("SELECT sum(b) FROM t").unwrap();
    other.batch_execute("UPDATE t SET b = b + 1 WHERE a = 1").unwrap();
    let ended = own.batch_execute("UPDATE t SET b = 0 WHERE a = 1").and_then(|()| own.batch_execute("COMMIT"));
    assert_eq!(ended.unwrap_err().code().unwrap().code(), "40001");
    let metrics = get(address, "/metrics").1;
    assert_eq!(number(&metrics, "polychron_conflicts_told_total"), 1.0);
    let of_table =
        metrics.lines().filter(|line| line.starts_with("polychron_conflicts_total{") && line.contains("table=\"t\""));
    assert!(of_table.count() > 0, "{metrics}");
}

#[test]
fn a_page_gets_news_and_ends_sessions() {
    let (server, address) = watched(None);
    let mut client = connect(&server);
    client.batch_execute("BEGIN; SELECT 'in a transaction'").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let mut news = || {
        let line = lines.find_map(|line| line.strip_prefix("data: ").map(str::to_owned)).unwrap();
        serde_json::from_str::<serde_json::Value>(&line).unwrap()
    };
    let first = news();
    assert_eq!(first["open"][0]["state"], "idle in transaction");
    assert!(first["open"][0]["text"].as_str().unwrap().contains("in a transaction"));
    let pid = first["open"][0]["pid"].as_i64().unwrap();
    let end = |headers: &str, body: &str| {
        let length = body.len();
        ask(
            address,
            &format!("POST /end HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n{headers}\r\n{body}"),
        )
    };
    let (json, mark) = ("Content-Type: application/json\r\n", "X-Polychron: 1\r\n");
    let body = format!("{{\"pid\": {pid}}}");
    assert_eq!(end(json, &body).0, 403, "without the mark");
    assert_eq!(end(&format!("{json}{mark}Origin: http://evil.example\r\n"), &body).0, 403);
    assert_eq!(end(&format!("{mark}Content-Type: text/plain\r\n"), &body).0, 415);
    assert_eq!(end(&format!("{json}{mark}"), "{").0, 400);
    client.batch_execute("SELECT 1").unwrap();
    let own = format!("{json}{mark}Origin: http://{address}\r\n");
    assert_eq!(end(&own, "{\"pid\": 999}"), (200, "{\"ended\":false}\n".to_owned()));
    assert_eq!(end(&own, &body), (200, "{\"ended\":true}\n".to_owned()));
    assert!(client.batch_execute("SELECT 1").is_err());
    while news()["open"].as_array().is_some_and(|open| !open.is_empty()) {}
}

#[test]
fn sessions_are_ended_by_statements() {
    let (server, _) = watched(None);
    let (mut own, mut other) = (connect(&server), connect(&server));
    let pid: i32 = other.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
    let busy = std::thread::spawn(move || {
        let ended = other.batch_execute("SELECT count(*) FROM generate_series(1, 1000000000000)");
        (ended.unwrap_err().code().map(|code| code.code().to_owned()), other)
    });
    while !busy.is_finished() {
        let _: bool = own.query_one("SELECT pg_cancel_backend($1)", &[&pid]).unwrap().get(0);
    }
    let (code, mut other) = busy.join().unwrap();
    assert_eq!(code.as_deref(), Some("57014"));
    other.batch_execute("SELECT 1").unwrap();
    assert!(own.query_one("SELECT pg_terminate_backend($1)", &[&pid]).unwrap().get::<_, bool>(0));
    let ended = other.batch_execute("SELECT 1").unwrap_err();
    assert!(ended.is_closed() || ended.code().is_some_and(|code| code.code() == "57P01"), "{ended}");
    let text = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1";
    while own.query_one(text, &[&pid]).unwrap().get::<_, i64>(0) > 0 {}
}

#[test]
fn bad_requests_are_refused() {
    let (server, address) = watched(None);
    let host = format!("Host: {address}\r\n");
    assert_eq!(get(address, "/health"), (200, "ok\n".to_owned()));
    assert_eq!(ask(address, "GET /health HTTP/1.1\r\nHost: any.example\r\n\r\n").0, 200);
    assert_eq!(ask(address, "GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n").0, 421);
    assert_eq!(ask(address, "GET /metrics HTTP/1.1\r\n\r\n").0, 400);
    assert_eq!(get(address, "/nothing").0, 404);
    assert_eq!(get(address, "/end").0, 405);
    // HEAD is answered as GET, without what would follow.
    for path in ["/", "/health", "/metrics"] {
        let (status, content) = ask(address, &format!("HEAD {path} HTTP/1.1\r\n{host}\r\n"));
        assert_eq!((status, content.as_str()), (200, ""), "{path}");
    }
    for path in ["/events", "/nothing"] {
        let (status, content) = ask(address, &format!("HEAD {path} HTTP/1.1\r\n{host}\r\n"));
        assert!(status >= 400 && content.is_empty(), "{path}: {status} {content}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"] {
        assert_eq!(ask(address, &format!("{method} /metrics HTTP/1.1\r\n{host}\r\n")).0, 405, "{method}");
    }
    assert_eq!(ask(address, &format!("GET / HTTP/1.1\r\n{host}X: {}\r\n\r\n", "x".repeat(20_000))).0, 431);
    assert_eq!(ask(address, &format!("GET / HTTP/1.1\r\n{host}{}\r\n", "a: b\r\n".repeat(200))).0, 431);
    assert_eq!(ask(address, "\0\0\0\x08\x04\u{d2}\x16\x2f\r\n\r\n").0, 400);
    assert_eq!(ask(address, &format!("POST /end HTTP/1.1\r\n{host}Content-Length: 99999999\r\n\r\n")).0, 413);
    assert_eq!(
        ask(address, &format!("POST /end HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")).0,
        501
    );
    // One that is cut off is answered nothing, and harms nobody.
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTT").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
    let page = get(address, "/").1;
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    connect(&server).batch_execute("SELECT 1").unwrap();
}

#[test]
fn a_password_is_asked_for() {
    let (_server, address) = watched(Some("secret"));
    assert_eq!(get(address, "/metrics").0, 401);
    let with = |pair: &str| {
        ask(address, &format!("GET /metrics HTTP/1.1\r\nHost: any.example\r\nAuthorization: Basic {pair}\r\n\r\n")).0
    };
    // `any:secret`, and `any:wrong`.
    assert_eq!([with("YW55OnNlY3JldA=="), with("YW55Ondyb25n")], [200, 401]);
    assert_eq!(get(address, "/health").0, 200);
}

#[test]
fn addresses_of_others_need_a_password() {
    let database = polychron::Database::builder().small().in_memory().unwrap();
    let mut options = polychron_server::Options::new(Credentials::Trust);
    options.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    options.metrics = Some(Metrics { address: SocketAddr::from(([0, 0, 0, 0], 0)), password: None });
    let refused = Server::<Db>::start(database, options);
    assert!(matches!(refused, Err(ServerError::MetricsOnTheNetwork(_))));
}

#[test]
fn slow_clients_keep_nobody_out() {
    let (server, address) = watched(None);
    let slow: Vec<_> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            // One whose time was over already is gone.
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nA: ");
            stream
        })
        .collect();
    assert_eq!(get(address, "/health").0, 200);
    connect(&server).batch_execute("SELECT 1").unwrap();
    // Each of them is ended by the server, sooner or later.
    for mut stream in slow {
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(get(address, "/metrics").0, 200);
}

#[test]
fn a_server_ends_with_its_pages() {
    let (server, address) = watched(None);
    let streams: Vec<_> = (0..40)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(format!("GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).unwrap();
            let mut first = [0; 12];
            stream.read_exact(&mut first).unwrap();
            (stream, String::from_utf8(first.to_vec()).unwrap())
        })
        .collect();
    let kept = streams.iter().filter(|(_, first)| first == "HTTP/1.1 200").count();
    assert_eq!(kept, 16);
    assert!(streams.iter().all(|(_, first)| first == "HTTP/1.1 200" || first == "HTTP/1.1 503"));
    server.stopper().stop();
    drop(server);
    assert!(TcpStream::connect(address).is_err());
}
