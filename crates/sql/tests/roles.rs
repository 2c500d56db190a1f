//! Roles: how they are made and dropped, who is a member of whom, and what sessions are.

use crate::common::{all, code, connect, database, run};
use polychron_engine::{Common, Protocol};
use polychron_protocols::{cicada::Cicada, locking::Locking, serial::Serial};
use polychron_sql::{SqlDatabase, Verifier};

#[test]
fn roles_are_made_altered_and_dropped() {
    let database = database::<Cicada>();
    let mut admin = connect(&database);
    all(
        &mut admin,
        &[
            "CREATE ROLE plain",
            "CREATE USER somebody WITH PASSWORD 'secret' CONNECTION LIMIT 3 CREATEDB NOINHERIT VALID UNTIL '2100-01-01'",
            "CREATE ROLE boss SUPERUSER LOGIN",
        ],
    );
    let list = "SELECT rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, rolconnlimit, rolvaliduntil FROM pg_roles ORDER BY 1";
    assert_eq!(
        run(&mut admin, list).unwrap(),
        "boss|t|t|f|f|t|-1|\nplain|f|t|f|f|f|-1|\npostgres|t|t|t|t|t|-1|\nsomebody|f|f|f|t|t|3|2100-01-01 00:00:00+00"
    );
    let known = database.log_in("somebody").unwrap().unwrap();
    assert!(Verifier::parse(known.verifier().unwrap()).is_some() && !known.verifier().unwrap().contains("secret"));
    assert_eq!((known.may_log_in(), known.connection_limit()), (true, Some(3)));
    assert!(database.log_in("nobody").unwrap().is_none());
    all(&mut admin, &["ALTER ROLE somebody VALID UNTIL '2000-01-01' NOLOGIN"]);
    let expired = database.log_in("somebody").unwrap().unwrap();
    assert!(expired.verifier().is_none() && expired.has_password() && !expired.may_log_in());
    let stored = Verifier::new("other").unwrap().text();
    all(&mut admin, &[&format!("ALTER ROLE somebody PASSWORD '{stored}' VALID UNTIL 'infinity'")]);
    assert_eq!(database.log_in("somebody").unwrap().unwrap().verifier(), Some(stored.as_str()));
    all(&mut admin, &["ALTER ROLE somebody PASSWORD NULL", "ALTER ROLE somebody RENAME TO anybody"]);
    assert!(!database.log_in("anybody").unwrap().unwrap().has_password());
    let refused = [
        ("CREATE ROLE plain", "42710", "role \"plain\" already exists"),
        ("CREATE ROLE pg_mine", "42939", "role name \"pg_mine\" is reserved"),
        ("CREATE ROLE \"public\"", "42939", "role name \"public\" is reserved"),
        ("ALTER ROLE missing LOGIN", "42704", "role \"missing\" does not exist"),
        ("DROP ROLE missing", "42704", "role \"missing\" does not exist"),
        ("DROP ROLE postgres", "55006", "current user cannot be dropped"),
        ("CREATE ROLE r REPLICATION", "0A000", ""),
        ("CREATE ROLE r LOGIN NOLOGIN", "42601", "conflicting or redundant options"),
        ("CREATE ROLE r CONNECTION LIMIT -5", "22023", "invalid connection limit: -5"),
        ("CREATE ROLE r VALID UNTIL 'whenever'", "22007", ""),
        ("ALTER DEFAULT PRIVILEGES GRANT USAGE ON TYPES TO plain", "0A000", ""),
        ("DROP OWNED BY plain", "0A000", ""),
        ("ALTER ROLE postgres NOSUPERUSER", "42501", "The bootstrap superuser must have the SUPERUSER attribute."),
    ];
    for (statement, state, message) in refused {
        let error = run(&mut admin, statement).unwrap_err();
        assert_eq!(error.state().code(), state, "{statement}: {error}");
        assert!(message.is_empty() || error.message() == message, "{statement}: {error}");
    }
    all(&mut admin, &["DROP ROLE IF EXISTS missing, anybody", "DROP USER boss, plain"]);
    assert_eq!(run(&mut admin, "SELECT rolname FROM pg_roles").unwrap(), "postgres");
}

#[test]
fn members_act_for_their_roles() {
    let database = database::<Cicada>();
    let (mut admin, mut session) = (connect(&database), connect(&database));
    all(
        &mut admin,
        &[
            "CREATE ROLE readers",
            "CREATE ROLE writers IN ROLE readers",
            "CREATE ROLE inheriting LOGIN IN ROLE writers",
            "CREATE ROLE other LOGIN NOINHERIT",
            "GRANT writers TO other",
            "CREATE TABLE t (id int PRIMARY KEY)",
            "GRANT SELECT ON t TO readers",
            "GRANT INSERT ON t TO writers",
        ],
    );
    let cycle = run(&mut admin, "GRANT inheriting TO readers").unwrap_err();
    assert_eq!(
        (cycle.state().code(), cycle.message()),
        ("0LP01", "role \"inheriting\" is a member of role \"readers\"")
    );
    session.act_as("inheriting").unwrap();
    all(&mut session, &["SELECT * FROM t", "INSERT INTO t VALUES (1)"]);
    assert_eq!(run(&mut session, "SELECT current_user, session_user").unwrap(), "inheriting|inheriting");
    session.act_as("other").unwrap();
    assert_eq!(code(run(&mut session, "SELECT * FROM t")), "42501");
    all(&mut session, &["SET ROLE readers", "SELECT * FROM t"]);
    assert_eq!(
        run(&mut session, "SELECT current_user, session_user, user, current_role").unwrap(),
        "readers|other|readers|readers"
    );
    assert_eq!(code(run(&mut session, "INSERT INTO t VALUES (2)")), "42501");
    let refused = run(&mut session, "SET ROLE inheriting").unwrap_err();
    assert_eq!((refused.state().code(), refused.message()), ("42501", "permission denied to set role \"inheriting\""));
    assert_eq!(code(run(&mut session, "SET ROLE missing")), "42704");
    assert_eq!(code(run(&mut session, "SET SESSION AUTHORIZATION postgres")), "42501");
    all(&mut session, &["SET ROLE NONE"]);
    assert_eq!(run(&mut session, "SELECT current_user").unwrap(), "other");
    // A rollback takes the role back, and SET LOCAL ends with its transaction.
    all(&mut session, &["BEGIN", "SET ROLE writers", "INSERT INTO t VALUES (3)", "ROLLBACK"]);
    assert_eq!(run(&mut session, "SELECT current_user").unwrap(), "other");
    all(&mut session, &["BEGIN", "SET LOCAL ROLE writers", "INSERT INTO t VALUES (3)", "COMMIT"]);
    assert_eq!(run(&mut session, "SELECT current_user").unwrap(), "other");
    all(&mut admin, &["REVOKE writers FROM other"]);
    assert_eq!(code(run(&mut session, "SET ROLE writers")), "42501");
    let members = "SELECT r.rolname, m.rolname FROM pg_auth_members a JOIN pg_roles r ON r.oid = a.roleid JOIN pg_roles m ON m.oid = a.member ORDER BY 1, 2";
    assert_eq!(run(&mut admin, members).unwrap(), "readers|writers\nwriters|inheriting");
    all(&mut admin, &["SET SESSION AUTHORIZATION inheriting"]);
    assert_eq!(run(&mut admin, "SELECT current_user, session_user").unwrap(), "inheriting|inheriting");
    all(&mut admin, &["RESET SESSION AUTHORIZATION"]);
    assert_eq!(run(&mut admin, "SELECT session_user").unwrap(), "postgres");
}

#[test]
fn those_who_may_make_roles_make_no_superusers() {
    let database = database::<Cicada>();
    let (mut admin, mut session) = (connect(&database), connect(&database));
    all(
        &mut admin,
        &["CREATE ROLE maker CREATEROLE", "CREATE ROLE plain", "CREATE ROLE boss SUPERUSER", "CREATE ROLE team"],
    );
    session.act_as("plain").unwrap();
    let refused = [
        ("CREATE ROLE x", "permission denied to create role"),
        ("ALTER ROLE maker LOGIN", "permission denied"),
        ("DROP ROLE maker", "permission denied to drop role"),
        ("GRANT team TO plain", "must have admin option on role \"team\""),
        ("SELECT * FROM pg_authid", "permission denied for table pg_authid"),
        ("SELECT * FROM pg_shadow", "permission denied for view pg_shadow"),
    ];
    for (statement, message) in refused {
        assert_eq!(run(&mut session, statement).unwrap_err().message(), message, "{statement}");
    }
    all(&mut session, &["ALTER ROLE plain PASSWORD 'own'", "ALTER USER CURRENT_USER PASSWORD 'other'"]);
    all(&mut admin, &["GRANT team TO plain WITH ADMIN OPTION"]);
    all(&mut session, &["GRANT team TO maker"]);
    session.act_as("maker").unwrap();
    let refused = [
        ("CREATE ROLE x SUPERUSER", "must be superuser to create superusers"),
        ("ALTER ROLE boss LOGIN", "must be superuser to alter superuser roles or change superuser attribute"),
        ("ALTER ROLE maker SUPERUSER", "must be superuser to alter superuser roles or change superuser attribute"),
        ("DROP ROLE boss", "must be superuser to drop superusers"),
        ("GRANT boss TO maker", "must be superuser to alter superusers"),
    ];
    for (statement, message) in refused {
        let error = run(&mut session, statement).unwrap_err();
        assert_eq!((error.state().code(), error.message()), ("42501", message), "{statement}");
    }
    all(&mut session, &["CREATE ROLE x", "ALTER ROLE x LOGIN", "GRANT x TO plain", "DROP ROLE x"]);
}

#[test]
fn privileges_are_handed_on_and_taken_back() {
    let database = database::<Cicada>();
    let (mut admin, mut session) = (connect(&database), connect(&database));
    all(
        &mut admin,
        &[
            "CREATE ROLE a",
            "CREATE ROLE b",
            "CREATE TABLE t (id int PRIMARY KEY, v int)",
            "GRANT SELECT, UPDATE ON t TO a WITH GRANT OPTION",
            "GRANT SELECT (v) ON t TO b",
        ],
    );
    session.act_as("a").unwrap();
    all(&mut session, &["GRANT SELECT ON t TO b"]);
    let partly = session.execute("GRANT ALL ON t TO b", &[]).unwrap();
    assert!(partly.notices.is_empty(), "ALL is what can be granted");
    let partly = session.execute("GRANT SELECT, DELETE ON t TO b", &[]).unwrap();
    assert_eq!(partly.notices[0].message, "not all privileges were granted for \"t\"");
    let list = "SELECT array_to_string(relacl, ' ') FROM pg_class WHERE relname = 't'";
    assert_eq!(run(&mut admin, list).unwrap(), "postgres=arwdDxt/postgres a=r*w*/postgres b=rw/a");
    let columns = "SELECT attname, array_to_string(attacl, ' ') FROM pg_attribute WHERE attrelid = 't'::regclass AND attacl IS NOT NULL";
    assert_eq!(run(&mut admin, columns).unwrap(), "v|b=r/postgres");
    let asked = "SELECT has_table_privilege('b', 't', 'UPDATE'), has_table_privilege('a', 't', 'SELECT WITH GRANT OPTION'), \
         has_table_privilege('b', 't', 'DELETE'), has_column_privilege('b', 't', 'v', 'SELECT'), \
         has_schema_privilege('b', 'public', 'CREATE'), has_schema_privilege('b', 'public', 'USAGE'), pg_has_role('b', 'a', 'MEMBER')";
    assert_eq!(run(&mut admin, asked).unwrap(), "t|t|f|t|f|t|f");
    let listed = "SELECT grantee, privilege_type, is_grantable FROM information_schema.table_privileges WHERE grantor = 'a' ORDER BY 2";
    assert_eq!(run(&mut admin, listed).unwrap(), "b|SELECT|NO\nb|UPDATE|NO");
    let dependent = run(&mut admin, "REVOKE UPDATE ON t FROM a").unwrap_err();
    assert_eq!((dependent.state().code(), dependent.message()), ("2BP01", "dependent privileges exist"));
    all(&mut admin, &["REVOKE GRANT OPTION FOR UPDATE ON t FROM a CASCADE"]);
    assert_eq!(run(&mut admin, list).unwrap(), "postgres=arwdDxt/postgres a=r*w/postgres b=r/a");
    let kept = run(&mut admin, "DROP ROLE b").unwrap_err();
    assert_eq!((kept.state().code(), kept.detail()), ("2BP01", Some("privileges for table t")));
    all(&mut admin, &["REVOKE ALL ON t FROM a CASCADE", "REVOKE ALL ON t FROM b", "DROP ROLE a, b"]);
    assert_eq!(run(&mut admin, list).unwrap(), "postgres=arwdDxt/postgres");
    let wrong = [
        ("GRANT USAGE ON t TO PUBLIC", "0LP01", "invalid privilege type USAGE for relation"),
        ("GRANT SELECT ON SCHEMA public TO PUBLIC", "0LP01", "invalid privilege type SELECT for schema"),
        ("GRANT DELETE (v) ON t TO PUBLIC", "0LP01", "invalid privilege type DELETE for column"),
        ("GRANT SELECT (x) ON t TO PUBLIC", "42703", "column \"x\" of relation \"t\" does not exist"),
        ("GRANT SELECT ON x TO PUBLIC", "42P01", "relation \"x\" does not exist"),
        ("GRANT SELECT ON t TO x", "42704", "role \"x\" does not exist"),
        ("GRANT SELECT ON t TO PUBLIC WITH GRANT OPTION", "0LP01", "grant options can only be granted to roles"),
        ("GRANT FLY ON t TO PUBLIC", "42601", "unrecognized privilege type \"fly\""),
        ("GRANT SELECT ON TABLESPACE x TO PUBLIC", "0A000", ""),
        ("GRANT SELECT ON t", "42601", ""),
        ("GRANT", "42601", ""),
        ("SET ROLE", "42601", ""),
    ];
    for (statement, state, message) in wrong {
        let error = run(&mut admin, statement).unwrap_err();
        assert_eq!(error.state().code(), state, "{statement}: {error}");
        assert!(message.is_empty() || error.message() == message, "{statement}: {error}");
    }
}

fn are_definitions<P: Protocol<Worker: polychron_engine::Interactive>>() {
    let protocol = P::open(P::Options::default(), Common::default()).unwrap();
    let database = SqlDatabase::open(protocol.clone());
    let (mut admin, mut other) = (connect(&database), connect(&database));
    all(&mut admin, &["CREATE TABLE t (id int PRIMARY KEY)", "CREATE SCHEMA s"]);
    all(
        &mut admin,
        &["BEGIN", "CREATE ROLE r", "GRANT SELECT ON t TO r", "SET LOCAL ROLE r", "SELECT * FROM t", "ROLLBACK"],
    );
    assert_eq!(code(run(&mut admin, "SET ROLE r")), "42704", "{}", P::NAME);
    all(&mut admin, &["BEGIN", "CREATE ROLE r", "GRANT USAGE, CREATE ON SCHEMA s TO r", "GRANT SELECT ON t TO r"]);
    assert_eq!(code(run(&mut other, "SET ROLE r")), "42704", "{}", P::NAME);
    all(&mut admin, &["COMMIT"]);
    all(&mut other, &["SET ROLE r", "SELECT * FROM t", "CREATE TABLE s.own (id int PRIMARY KEY)"]);
    // Another object for the same database knows them from its tables.
    let mut later = connect(&SqlDatabase::open(protocol));
    all(&mut later, &["SET ROLE r", "SELECT * FROM t", "INSERT INTO s.own VALUES (1)"]);
    assert_eq!(code(run(&mut later, "INSERT INTO t VALUES (1)")), "42501", "{}", P::NAME);
    // A table that is altered, renamed and moved keeps its grants.
    all(
        &mut admin,
        &[
            "ALTER TABLE t ADD COLUMN v bigint DEFAULT 7",
            "ALTER TABLE t ALTER COLUMN v TYPE int",
            "ALTER TABLE t RENAME TO n",
            "ALTER TABLE n SET SCHEMA s",
        ],
    );
    all(&mut other, &["SELECT v FROM s.n"]);
    all(&mut admin, &["DROP TABLE s.n", "CREATE TABLE s.n (id int PRIMARY KEY)"]);
    assert_eq!(code(run(&mut other, "SELECT * FROM s.n")), "42501", "{}", P::NAME);
}

#[test]
fn roles_and_grants_are_definitions() {
    are_definitions::<Serial>();
    are_definitions::<Cicada>();
    are_definitions::<Locking>();
}

#[test]
fn what_resets_a_session_makes_it_nobody_else() {
    let database = database::<Cicada>();
    let (mut admin, mut session) = (connect(&database), connect(&database));
    all(&mut admin, &["CREATE ROLE low LOGIN", "CREATE ROLE lower", "GRANT lower TO low", "CREATE TABLE t (id int)"]);
    session.act_as("low").unwrap();
    for statement in ["RESET ALL", "RESET search_path", "RESET SESSION AUTHORIZATION", "RESET ROLE", "DISCARD ALL"] {
        run(&mut session, statement).unwrap();
        assert_eq!(run(&mut session, "SELECT session_user, current_user").unwrap(), "low|low", "{statement}");
        assert_eq!(code(run(&mut session, "SELECT * FROM t")), "42501", "{statement}");
    }
    // Settings are no roles, but what makes a session as it was first is.
    all(&mut session, &["SET ROLE lower", "RESET ALL"]);
    assert_eq!(run(&mut session, "SELECT session_user, current_user").unwrap(), "low|lower");
    all(&mut session, &["DISCARD ALL"]);
    assert_eq!(run(&mut session, "SELECT session_user, current_user").unwrap(), "low|low");
}

#[test]
fn sessions_of_others_are_neither_seen_nor_ended() {
    let database = database::<Cicada>();
    let (mut admin, mut session, mut own) = (connect(&database), connect(&database), connect(&database));
    all(&mut admin, &["CREATE ROLE low LOGIN", "CREATE TABLE secret (id int PRIMARY KEY)", "SELECT 'hidden'"]);
    session.act_as("low").unwrap();
    own.act_as("low").unwrap();
    run(&mut own, "SELECT 'mine'").unwrap();
    let texts = "SELECT DISTINCT query FROM pg_stat_activity WHERE usename = 'postgres'";
    assert_eq!(run(&mut session, texts).unwrap(), "<insufficient privilege>");
    let seen = run(&mut session, "SELECT query FROM pg_stat_activity WHERE usename = 'low' ORDER BY pid").unwrap();
    assert!(seen.contains("mine"), "{seen}");
    // Of others a role sees who they are, and not since when or what they do.
    let known =
        "SELECT datname, usename, application_name, usesysid = (SELECT oid FROM pg_roles WHERE rolname = usename)";
    let hidden = "backend_start, xact_start, query_start, state_change, state, wait_event, backend_type, client_addr";
    let others = format!("{known}, coalesce({}) FROM pg_stat_activity WHERE usename = 'postgres'", {
        hidden.split(", ").map(|column| format!("{column}::text")).collect::<Vec<_>>().join(", ")
    });
    assert_eq!(run(&mut session, &others).unwrap(), "polychron|postgres||t|");
    let mine = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'low' AND backend_start IS NOT NULL AND state IS NOT NULL AND usesysid = (SELECT oid FROM pg_roles WHERE rolname = 'low')";
    assert_eq!(run(&mut session, mine).unwrap(), "2");
    assert_eq!(run(&mut admin, "SELECT count(*) FROM pg_stat_activity WHERE state IS NOT NULL").unwrap(), "3");
    assert_eq!(run(&mut session, "SELECT count(*) FROM pg_stat_statements WHERE query LIKE '%secret%'").unwrap(), "0");
    for end in ["pg_cancel_backend", "pg_terminate_backend"] {
        let of = |role: &str| {
            format!("SELECT {end}(pid) FROM pg_stat_activity WHERE usename = '{role}' ORDER BY pid DESC LIMIT 1")
        };
        assert_eq!(code(run(&mut session, &of("postgres"))), "42501");
        run(&mut session, &of("low")).unwrap();
    }
    assert_eq!(code(run(&mut own, "SELECT 1")), "57P01");
    run(&mut admin, "SELECT 1").unwrap();
}

#[test]
fn what_a_role_makes_later_is_granted_by_default() {
    let database = database::<Cicada>();
    let (mut admin, mut maker, mut reader) = (connect(&database), connect(&database), connect(&database));
    all(
        &mut admin,
        &["CREATE ROLE maker", "CREATE ROLE reader", "CREATE ROLE other", "CREATE SCHEMA s AUTHORIZATION maker"],
    );
    all(
        &mut admin,
        &[
            "GRANT CREATE ON SCHEMA public TO maker",
            "GRANT CREATE ON DATABASE polychron TO maker",
            "GRANT USAGE ON SCHEMA s TO reader",
        ],
    );
    maker.act_as("maker").unwrap();
    reader.act_as("reader").unwrap();
    all(&mut maker, &["CREATE TABLE before (a int)"]);
    all(
        &mut maker,
        &[
            "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO reader",
            "ALTER DEFAULT PRIVILEGES IN SCHEMA s GRANT INSERT, UPDATE ON TABLES TO reader WITH GRANT OPTION",
            "ALTER DEFAULT PRIVILEGES GRANT USAGE ON SEQUENCES TO reader",
            "ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC",
            "ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO reader",
        ],
    );
    let kept = "SELECT defaclrole::regrole, defaclnamespace::regnamespace::text, defaclobjtype, defaclacl FROM pg_default_acl ORDER BY 3, 2";
    let shown = run(&mut admin, kept).unwrap();
    assert_eq!(shown.lines().count(), 5, "{shown}");
    assert!(shown.contains("{maker=arwdDxt/maker,reader=r/maker}") && shown.contains("{reader=a*w*/maker}"), "{shown}");
    all(
        &mut maker,
        &[
            "CREATE TABLE after (a serial)",
            "CREATE VIEW seen AS SELECT a FROM after",
            "CREATE TABLE s.within (a int)",
            "CREATE SEQUENCE numbers",
            "CREATE PROCEDURE nothing() LANGUAGE sql AS 'SELECT 1'",
            "CREATE SCHEMA t",
        ],
    );
    for (text, expected) in [
        ("SELECT * FROM before", Some("42501")),
        ("SELECT * FROM after", None),
        ("SELECT * FROM seen", None),
        ("INSERT INTO after VALUES (1)", Some("42501")),
        ("INSERT INTO s.within VALUES (1)", None),
        ("SELECT * FROM s.within", None),
        ("DELETE FROM s.within", Some("42501")),
        ("GRANT INSERT ON s.within TO other", None),
        ("SELECT nextval('numbers')", None),
        ("SELECT nextval('after_a_seq')", None),
        ("SELECT setval('numbers', 5)", Some("42501")),
        ("CALL nothing()", Some("42501")),
    ] {
        assert_eq!(run(&mut reader, text).err().map(|error| error.state().code()), expected, "{text}");
    }
    assert_eq!(run(&mut admin, "SELECT has_schema_privilege('reader', 't', 'USAGE')").unwrap(), "t");
    // What others make is theirs.
    all(&mut admin, &["CREATE TABLE of_another (a int)"]);
    assert_eq!(code(run(&mut reader, "SELECT * FROM of_another")), "42501");
    // A superuser says it for others, and others for nobody.
    all(&mut admin, &["ALTER DEFAULT PRIVILEGES FOR ROLE maker REVOKE ALL ON TABLES FROM reader"]);
    all(&mut maker, &["CREATE TABLE last (a int)"]);
    assert_eq!(code(run(&mut reader, "SELECT * FROM last")), "42501");
    for (text, expected) in [
        ("ALTER DEFAULT PRIVILEGES FOR ROLE maker GRANT SELECT ON TABLES TO other", "42501"),
        ("ALTER DEFAULT PRIVILEGES FOR ROLE nobody GRANT SELECT ON TABLES TO other", "42704"),
        ("ALTER DEFAULT PRIVILEGES IN SCHEMA nowhere GRANT SELECT ON TABLES TO other", "3F000"),
        ("ALTER DEFAULT PRIVILEGES IN SCHEMA s GRANT USAGE ON SCHEMAS TO other", "0LP01"),
        ("ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON TABLES TO other", "0LP01"),
        ("ALTER DEFAULT PRIVILEGES GRANT SELECT (a) ON TABLES TO other", "0LP01"),
        ("ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC WITH GRANT OPTION", "0LP01"),
        ("ALTER DEFAULT PRIVILEGES GRANT USAGE ON TYPES TO other", "0A000"),
    ] {
        assert_eq!(code(run(&mut reader, text)), expected, "{text}");
    }
    // A role that is named there stays, and another schema of the same name is another one.
    let error = run(&mut admin, "DROP ROLE reader").unwrap_err();
    assert_eq!(error.state().code(), "2BP01");
    let detail = error.detail().unwrap_or_default();
    assert!(
        detail.contains("privileges for default privileges on new relations belonging to role maker in schema s"),
        "{detail}"
    );
    all(
        &mut admin,
        &["DROP SCHEMA s CASCADE", "CREATE SCHEMA s AUTHORIZATION maker", "GRANT USAGE ON SCHEMA s TO reader"],
    );
    all(&mut maker, &["CREATE TABLE s.within (a int)"]);
    assert_eq!(code(run(&mut reader, "INSERT INTO s.within VALUES (1)")), "42501");
}

#[test]
fn grants_name_the_role_that_makes_them() {
    let database = database::<Cicada>();
    let mut admin = connect(&database);
    all(
        &mut admin,
        &[
            "CREATE ROLE low",
            "CREATE ROLE other",
            "CREATE TABLE t (id int PRIMARY KEY)",
            "GRANT SELECT ON t TO low GRANTED BY CURRENT_USER",
            "GRANT other TO low GRANTED BY postgres",
        ],
    );
    for text in [
        "GRANT SELECT ON t TO low GRANTED BY other",
        "REVOKE SELECT ON t FROM low GRANTED BY other CASCADE",
        "GRANT other TO low GRANTED BY low",
        "REVOKE other FROM low GRANTED BY low",
    ] {
        assert_eq!(code(run(&mut admin, text)), "0A000", "{text}");
    }
    assert_eq!(code(run(&mut admin, "GRANT SELECT ON t TO low GRANTED BY nobody")), "42704");
    assert_eq!(run(&mut admin, "SELECT has_table_privilege('low', 't', 'SELECT')").unwrap(), "t");
    all(
        &mut admin,
        &["REVOKE SELECT ON t FROM low GRANTED BY postgres", "REVOKE other FROM low GRANTED BY CURRENT_ROLE"],
    );
    assert_eq!(run(&mut admin, "SELECT has_table_privilege('low', 't', 'SELECT')").unwrap(), "f");
}

/// The right to hand a privilege of a column on is that of the column, and types, extensions and columns are guarded however they come into a table.
#[test]
fn columns_are_handed_on_and_types_are_used_by_those_who_may() {
    let database = database::<Cicada>();
    let (mut admin, mut session) = (connect(&database), connect(&database));
    all(
        &mut admin,
        &[
            "CREATE ROLE a",
            "CREATE ROLE b",
            "CREATE TABLE t (id int PRIMARY KEY, v int, w int)",
            "GRANT SELECT (v), UPDATE (v, w) ON t TO a WITH GRANT OPTION",
            "CREATE TYPE mood AS ENUM ('ok')",
            "REVOKE USAGE ON TYPE mood FROM PUBLIC",
            "CREATE TABLE feelings (id int PRIMARY KEY, feels mood)",
            "GRANT SELECT ON feelings TO a",
            "GRANT CREATE ON SCHEMA public TO a",
        ],
    );
    session.act_as("a").unwrap();
    all(&mut session, &["GRANT SELECT (v), UPDATE (w) ON t TO b"]);
    let columns = "SELECT attname, array_to_string(attacl, ' ') FROM pg_attribute WHERE attrelid = 't'::regclass AND attacl IS NOT NULL ORDER BY 1";
    assert_eq!(run(&mut admin, columns).unwrap(), "v|a=r*w*/postgres b=r/a\nw|a=w*/postgres b=w/a");
    for (statement, message) in [
        ("GRANT SELECT (id) ON t TO b", "permission denied for table t"),
        ("CREATE TABLE copied AS SELECT * FROM feelings", "permission denied for type mood"),
        ("CREATE TABLE alike (LIKE feelings)", "permission denied for type mood"),
        ("CREATE VIEW seen AS SELECT feels FROM feelings", "permission denied for type mood"),
        ("CREATE EXTENSION pgcrypto", "permission denied to create extension \"pgcrypto\""),
    ] {
        let error = run(&mut session, statement).unwrap_err();
        assert_eq!((error.state().code(), error.message()), ("42501", message), "{statement}");
    }
    let dependent = run(&mut admin, "REVOKE SELECT (v) ON t FROM a").unwrap_err();
    assert_eq!(dependent.state().code(), "2BP01");
    all(
        &mut admin,
        &["REVOKE ALL ON t FROM a CASCADE", "GRANT USAGE ON TYPE mood TO a", "GRANT CREATE ON DATABASE polychron TO a"],
    );
    assert_eq!(run(&mut admin, columns).unwrap(), "");
    all(&mut session, &["CREATE TABLE copied AS SELECT * FROM feelings", "CREATE EXTENSION pgcrypto"]);
}
