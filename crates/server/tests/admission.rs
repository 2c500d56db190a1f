//! Who may come: rules, proofs that are bound to the certificate, and what libpq says of both.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::tls::Authority;
use crate::common::{Answer, Db, Raw, frame, kinds, server_with, startup};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polychron_server::{Credentials, Password, Rule, Server, ServerError, TlsFiles};

fn password() -> Credentials {
    Credentials::Password(Password::new("right").unwrap())
}

fn rules(text: &str) -> Vec<Rule> {
    Rule::of_table(&text.parse().unwrap()).unwrap().unwrap()
}

fn hello(user: &str, database: &str) -> Vec<u8> {
    startup(3 << 16, &[("user", user), ("database", database)])
}

fn sasl<S: std::io::Read + std::io::Write>(raw: &mut Raw<S>, mechanism: &str, first: &str) -> Answer {
    let mut content = format!("{mechanism}\0").into_bytes();
    content.extend_from_slice(&(first.len() as u32).to_be_bytes());
    content.extend_from_slice(first.as_bytes());
    raw.send(&frame('p', &content));
    raw.next().unwrap()
}

/// The mechanisms that are offered.
fn offered(answer: &Answer) -> Vec<String> {
    assert_eq!((answer.kind, &answer.content[..4]), ('R', &[0, 0, 0, 10][..]));
    let names = answer.content[4..].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| String::from_utf8(name.to_vec()).unwrap()).collect()
}

#[test]
fn proofs_are_bound_to_the_certificate() {
    let authority = Authority::new();
    let server = authority.server_with(password(), |_| {});
    let open = || {
        let mut client = authority.open(&server);
        client.send(&hello("postgres", "polychron"));
        let mechanisms = offered(&client.next().unwrap());
        assert_eq!(mechanisms, ["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"]);
        client
    };
    let refused = |answer: Answer| (answer.field('C').unwrap(), answer.field('M').unwrap());
    // The client was told that there is no such mechanism.
    let (code, message) = refused(sasl(&mut open(), "SCRAM-SHA-256", "y,,n=,r=abc"));
    assert_eq!((&*code, &*message), ("28000", "SCRAM channel binding negotiation error"));
    for (mechanism, first) in [
        ("SCRAM-SHA-256-PLUS", "n,,n=,r=abc"),
        ("SCRAM-SHA-256-PLUS", "y,,n=,r=abc"),
        ("SCRAM-SHA-256-PLUS", "p=tls-unique,,n=,r=abc"),
        ("SCRAM-SHA-256", "p=tls-server-end-point,,n=,r=abc"),
        ("SCRAM-SHA-1", "n,,n=,r=abc"),
    ] {
        assert_eq!(refused(sasl(&mut open(), mechanism, first)).0, "08P01", "{mechanism} {first}");
    }
    let finish = |hash: &[u8], nonce: &dyn Fn(&str) -> String, proof: &[u8]| {
        let mut client = open();
        let answer = sasl(&mut client, "SCRAM-SHA-256-PLUS", "p=tls-server-end-point,,n=,r=abc");
        assert_eq!((answer.kind, &answer.content[..4]), ('R', &[0, 0, 0, 11][..]));
        let own = String::from_utf8(answer.content[4..].to_vec()).unwrap();
        let own = own.split(',').next().unwrap().strip_prefix("r=").unwrap().to_owned();
        let binding = STANDARD.encode([b"p=tls-server-end-point,,", hash].concat());
        let last = format!("c={binding},r={},p={}", nonce(&own), STANDARD.encode(proof));
        client.send(&frame('p', last.as_bytes()));
        refused(client.next().unwrap())
    };
    let same = |nonce: &str| nonce.to_owned();
    let (code, message) = finish(&[7; 32], &same, &[0; 32]);
    assert_eq!((&*code, &*message), ("28000", "SCRAM channel binding check failed"));
    let certificate = std::fs::read_to_string(authority.path("server.pem")).unwrap();
    let body: String = certificate.lines().filter(|line| !line.starts_with('-')).collect();
    use sha2::Digest as _;
    let hash = sha2::Sha256::digest(STANDARD.decode(body).unwrap());
    assert_eq!(finish(&hash, &same, &[0; 32]).0, "28P01");
    assert_eq!(finish(&hash, &same, &[0; 31]).0, "08P01");
    assert_eq!(finish(&hash, &|nonce| format!("{nonce}x"), &[0; 32]).0, "08P01");
    // Without TLS there is nothing to bind to, and a client that says that it could is right.
    let mut raw = Raw::open(&server);
    raw.send(&hello("postgres", "polychron"));
    assert_eq!(offered(&raw.next().unwrap()), ["SCRAM-SHA-256"]);
    assert_eq!(sasl(&mut raw, "SCRAM-SHA-256", "y,,n=,r=abc").content[..4], [0, 0, 0, 11]);
}

/// A role that is not there, or has no password, is asked in the same way, and each time with the same salt.
#[test]
fn nobody_learns_which_roles_there_are() {
    let authority = Authority::new();
    let server = authority.server_with(password(), |_| {});
    let asked = |user: &str| {
        let mut client = authority.open(&server);
        client.send(&hello(user, "polychron"));
        let mechanisms = offered(&client.next().unwrap());
        let answer = sasl(&mut client, "SCRAM-SHA-256", "n,,n=,r=abc");
        let text = String::from_utf8(answer.content[4..].to_vec()).unwrap();
        let parts: Vec<_> = text.split(',').map(str::to_owned).collect();
        let last = format!("c=biws,{},p={}", parts[0], STANDARD.encode([0; 32]));
        client.send(&frame('p', last.as_bytes()));
        let answers = client.until_ready();
        let message = answers[0].field('M').unwrap().replace(user, "USER");
        (mechanisms, parts[0].len(), parts[1].clone(), parts[2].clone(), kinds(&answers), message)
    };
    let [known, unknown, again] = ["postgres", "nobody", "nobody"].map(asked);
    assert_eq!(
        (&known.0, known.1, &known.3, &known.4, &known.5),
        (&unknown.0, unknown.1, &unknown.3, &unknown.4, &unknown.5)
    );
    assert_eq!(known.2.len(), unknown.2.len());
    assert_ne!(known.2, unknown.2);
    assert_eq!(unknown.2, again.2);
    assert_eq!(known.4, "E:28P01");
}

/// What a client is answered that comes as this role: the code and text of the error, or the kind of authentication.
fn answer<S: std::io::Read + std::io::Write>(mut raw: Raw<S>, user: &str, database: &str) -> String {
    raw.send(&hello(user, database));
    let answer = raw.next().unwrap();
    match answer.kind {
        'E' => format!("{} {}", answer.field('C').unwrap(), answer.field('M').unwrap()),
        _ => format!("R{}", answer.content[3]),
    }
}

#[test]
fn each_kind_of_rule_refuses() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    let with = |text: &str| {
        let rules = rules(text);
        authority.server_with(password(), |options| {
            options.rules = Some(rules);
            options.socket_directory = Some(directory.path().to_owned());
        })
    };
    let local = |server: &Server<Db>| Raw {
        stream: std::os::unix::net::UnixStream::connect(server.socket().unwrap()).unwrap(),
    };
    let rule = |kind: &str, more: &str| format!("[[rule]]\nkind = \"{kind}\"\n{more}\n");
    let none = |host: &str, encryption: &str| {
        format!(
            "28000 no pg_hba.conf entry for host \"{host}\", user \"postgres\", database \"polychron\", {encryption}"
        )
    };
    let plain = &*none("127.0.0.1", "no encryption");
    let secured = &*none("127.0.0.1", "SSL encryption");
    let all = |server: &Server<Db>| {
        let one = answer(Raw::open(server), "postgres", "polychron");
        let other = answer(authority.open(server), "postgres", "polychron");
        [one, other, answer(local(server), "postgres", "polychron")]
    };
    let everywhere = "address = \"all\"\nmethod = \"scram\"";
    let nobody = &*none("[local]", "no encryption");
    assert_eq!(all(&with(&rule("host", everywhere))), ["R10", "R10", nobody]);
    assert_eq!(all(&with(&rule("hostssl", everywhere))), [plain, "R10", nobody]);
    assert_eq!(all(&with(&rule("hostnossl", everywhere))), ["R10", secured, nobody]);
    assert_eq!(all(&with(&rule("local", "method = \"peer\""))), [plain, secured, "R0"]);
    assert_eq!(all(&with(&rule("local", "method = \"scram\""))), [plain, secured, "R10"]);
    assert_eq!(all(&with("rule = []")), [plain, secured, nobody]);
    let far = rule("host", "address = \"10.0.0.0/8\"\nmethod = \"scram\"");
    let near = rule("host", "address = \"127.0.0.0/30\"\nmethod = \"trust\"");
    assert_eq!(all(&with(&far)), [plain, secured, nobody]);
    assert_eq!(all(&with(&[far, near.clone()].concat())), ["R0", "R0", nobody]);
    let rejects = rule("hostnossl", "address = \"127.0.0.1\"\nmethod = \"reject\"");
    let refused = &*plain.replace("no pg_hba.conf entry", "pg_hba.conf rejects connection");
    assert_eq!(all(&with(&[&*rejects, &near].concat())), [refused, "R0", nobody]);
    assert_eq!(all(&with(&[&*near, &rejects].concat())), ["R0", "R0", nobody]);
    let server = with(&rule(
        "host",
        "role = [\"ann\", \"bob\"]\ndatabase = \"polychron\"\naddress = \"all\"\nmethod = \"scram\"",
    ));
    assert_eq!(all(&server), [plain, secured, nobody]);
    assert_eq!(answer(Raw::open(&server), "ann", "polychron"), "R10");
    assert_eq!(answer(Raw::open(&server), "bob", "bob"), "R10");
    let other = plain.replace("\"polychron\"", "\"other\"").replace("\"postgres\"", "\"bob\"");
    assert_eq!(answer(Raw::open(&server), "bob", "other"), other);
}

#[test]
fn rules_are_given_anew() {
    let server = server_with(password(), |_| {});
    let reloader = server.reloader().unwrap();
    assert_eq!(answer(Raw::open(&server), "postgres", "polychron"), "R10");
    reloader.set_rules(Some(Vec::new())).unwrap();
    assert!(answer(Raw::open(&server), "postgres", "polychron").starts_with("28000 no pg_hba.conf entry"));
    reloader.set_rules(None).unwrap();
    assert_eq!(answer(Raw::open(&server), "postgres", "polychron"), "R10");
    drop(server);
    let trusting = server_with(Credentials::Trust, |_| {});
    let error = trusting.reloader().unwrap().set_rules(Some(Vec::new())).unwrap_err();
    assert!(matches!(error, ServerError::TrustBesideRules), "{error}");
}

/// psql with these words of a connection beside those of the server; `None`: it is not installed.
fn psql(server: &Server<Db>, words: &str, password: &str, statement: &str) -> Option<Output> {
    let mut command = Command::new("psql");
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("PGPASSWORD", password);
    let port = server.addresses()[0].port();
    let mut all = format!("host=localhost hostaddr=127.0.0.1 port={port} dbname=polychron {words}");
    if !words.contains("user=") {
        let _ = write!(all, " user=postgres");
    }
    // The encoding of what it is given, whatever the locale.
    let output = command.env("PGCLIENTENCODING", "UTF8").args(["-X", "-A", "-t", "-c", statement, &all]).output();
    if output.is_err() {
        eprintln!("skipped: there is no psql");
    }
    output.ok()
}

/// The common name of a verified certificate is the role; a password does not help.
#[test]
fn certificates_show_who_clients_are() {
    let (authority, other) = (Authority::new(), Authority::new());
    let named = |authority: &Authority, file: &str, name: &str| {
        authority.sign_as(file, &[], |parameters| {
            parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
        })
    };
    let text = "[[rule]]\nkind = \"hostssl\"\naddress = \"all\"\nmethod = \"cert\"\n";
    let roots = authority.path("root.pem");
    let server = authority.server_with(password(), |options| {
        options.rules = Some(rules(text));
        options.tls.as_mut().unwrap().client_roots = Some(roots.clone());
    });
    let own = root(&roots);
    let says = |files: Option<TlsFiles>| {
        let mut words = format!("{own} sslcert=/missing sslkey=/missing");
        if let Some(files) = files {
            words = format!("{own} sslcert={} sslkey={}", files.certificate.display(), files.key.display());
        }
        let output = psql(&server, &words, "right", "SELECT current_user")?;
        Some(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let Some(said) = says(None) else { return };
    assert!(said.contains("connection requires a valid client certificate"), "{said}");
    assert_eq!(says(Some(named(&authority, "own", "postgres"))).unwrap(), "postgres\n");
    let said = says(Some(named(&authority, "ann", "ann"))).unwrap();
    assert!(said.contains("certificate authentication failed for user \"postgres\""), "{said}");
    let said = says(Some(named(&other, "own", "postgres"))).unwrap();
    assert!(!said.contains("postgres\n"), "{said}");
    let old = authority.sign_as("old", &[], |parameters| {
        parameters.distinguished_name.push(rcgen::DnType::CommonName, "postgres");
        parameters.not_after = rcgen::date_time_ymd(2001, 1, 1);
    });
    let said = says(Some(old)).unwrap();
    assert!(!said.contains("postgres\n"), "{said}");
    // Without those who sign them there are none.
    let plain = authority.server_with(password(), |_| {});
    let error = plain.reloader().unwrap().set_rules(Some(rules(text))).unwrap_err();
    assert!(matches!(error, ServerError::Rules(_)), "{error}");
}

fn root(path: &Path) -> String {
    format!("sslmode=verify-full sslrootcert={}", path.display())
}

#[test]
fn psql_verifies_and_binds() {
    let authority = Authority::new();
    let server = authority.server_with(password(), |_| {});
    let own = root(&authority.path("root.pem"));
    let says = |words: &str, password: &str| {
        let output = psql(&server, words, password, "SELECT 40 + 2")?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Some(if output.status.success() { String::from_utf8_lossy(&output.stdout).trim().to_owned() } else { said })
    };
    for version in ["TLSv1.2", "TLSv1.3"] {
        for binding in ["require", "prefer", "disable"] {
            let words = format!(
                "{own} channel_binding={binding} ssl_min_protocol_version={version} ssl_max_protocol_version={version}"
            );
            let Some(answer) = says(&words, "right") else { return };
            assert_eq!(answer, "42", "{words}");
        }
    }
    assert!(says(&own, "wrong").unwrap().contains("password authentication failed for user \"postgres\""));
    assert_eq!(says("sslmode=disable", "right").unwrap(), "42");
    assert!(says("sslmode=disable channel_binding=require", "right").unwrap().contains("channel binding"));
    let other = Authority::new();
    assert!(says(&root(&other.path("root.pem")), "right").unwrap().contains("SSL error"));
    let reloader = server.reloader().unwrap();
    authority.sign(&["elsewhere.example"], |_| {});
    reloader.read_certificate().unwrap();
    assert!(says(&own, "right").unwrap().contains("does not match host name"));
    authority.sign(&["localhost"], |parameters| parameters.not_after = rcgen::date_time_ymd(2001, 1, 1));
    reloader.read_certificate().unwrap();
    assert!(says(&own, "right").unwrap().contains("SSL error"));
    authority.sign(&["localhost"], |_| {});
    reloader.read_certificate().unwrap();
    assert_eq!(says(&own, "right").unwrap(), "42");
}

/// To a certificate whose signature has no function of its own nothing is bound, and clients go on without.
#[test]
fn some_certificates_bind_nothing() {
    let authority = Authority::that_signs_with(&rcgen::PKCS_ED25519);
    let server = authority.server_with(password(), |_| {});
    let mut client = authority.open(&server);
    client.send(&hello("postgres", "polychron"));
    assert_eq!(offered(&client.next().unwrap()), ["SCRAM-SHA-256"]);
    let own = root(&authority.path("root.pem"));
    for (binding, works) in [("prefer", true), ("require", false)] {
        let words = format!("{own} channel_binding={binding}");
        let Some(output) = psql(&server, &words, "right", "SELECT 1") else { return };
        assert_eq!(output.status.success(), works, "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Letters beyond ASCII come in several forms, which are one password; those that the preparation refuses are taken as they are.
#[test]
fn passwords_have_any_letters() {
    let authority = Authority::new();
    let server = authority.server_with(password(), |_| {});
    let own = root(&authority.path("root.pem"));
    // Each with forms of it that are the same, and those that are not.
    let cases: [(&str, &[&str], &[&str]); 6] = [
        ("pässwörd", &["pa\u{308}sswo\u{308}rd"], &["passwörd"]),
        ("\u{fb01}ne \u{bd}", &["fine 1\u{2044}2", "fine\u{a0}1\u{2044}2"], &["fine 1/2"]),
        ("so\u{ad}ft", &["soft"], &["so-ft"]),
        ("пароль 密码 🔑", &[], &["пароль 密码"]),
        ("\u{627}1", &[], &["1\u{627}"]),
        ("\u{7}bell", &[], &["bell"]),
    ];
    for (at, (password, same, others)) in cases.into_iter().enumerate() {
        let create = format!("CREATE ROLE r{at} LOGIN PASSWORD '{password}'");
        let Some(output) = psql(&server, &own, "right", &create) else { return };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let words = format!("{own} user=r{at} channel_binding=require");
        for form in [password].iter().chain(same) {
            let output = psql(&server, &words, form, "SELECT current_user").unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), format!("r{at}"), "{form:?} {said}");
        }
        for other in others {
            let output = psql(&server, &words, other, "SELECT 1").unwrap();
            assert!(!output.status.success(), "{other:?}");
        }
    }
}

#[test]
fn psycopg_goes_over_tls() {
    let python = std::env::var("POLYCHRON_PYTHON").ok().filter(|name| !name.is_empty());
    let python = python.unwrap_or_else(|| "python3".to_owned());
    let is_there = Command::new(&python).args(["-I", "-c", "import psycopg"]).output();
    if !is_there.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: {python} has no psycopg");
        return;
    }
    let authority = Authority::new();
    let server = authority.server_with(password(), |_| {});
    let port = server.addresses()[0].port();
    let words = format!(
        "host=localhost hostaddr=127.0.0.1 port={port} user=postgres dbname=polychron password=right channel_binding=require {}",
        root(&authority.path("root.pem"))
    );
    let program = r#"
import sys, time, threading, psycopg
with psycopg.connect(sys.argv[1], autocommit=True) as c:
    print(c.pgconn.ssl_in_use)
    c.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with c.cursor().copy("COPY t FROM STDIN") as copy:
        for i in range(5000):
            copy.write_row((i, "v" * 50))
    with c.cursor().copy("COPY t TO STDOUT") as copy:
        print(sum(len(data) for data in copy))
    with c.pipeline():
        cursors = [c.execute("SELECT id + %s FROM t WHERE id = %s", (i, i)) for i in range(300)]
    print(sum(cursor.fetchone()[0] for cursor in cursors))
    time.sleep(0.4)
    with c.transaction():
        c.execute("DELETE FROM t WHERE id >= 10")
        time.sleep(0.4)
    print(c.execute("SELECT count(*) FROM t").fetchone()[0])
    threading.Timer(0.5, c.cancel).start()
    try:
        c.execute("SELECT count(*) FROM generate_series(1, 1000000000000)")
    except psycopg.errors.QueryCanceled as e:
        print(e.sqlstate)
"#;
    let output = Command::new(python).args(["-I", "-c", program, &words]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // Numbers of five thousand rows: their digits, tabs, texts and ends.
    let bytes = 10 + 90 * 2 + 900 * 3 + 4000 * 4 + 5000 * 52;
    let wanted = format!("True\n{bytes}\n{}\n10\n57014\n", 299 * 300);
    assert_eq!(String::from_utf8_lossy(&output.stdout), wanted, "{said}");
}
