"""Texts of several statements in the simple protocol: each is one transaction, unless its statements begin and end others.

What a text leaves behind is asked for afterwards: rows, settings, locks, and the state of the transaction.
"""

import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from frames import Client, frame, query

client = Client()
other = Client()


def ask(text, *then):
    """A text, and what tells what it has left."""
    client.ask(text, query(text))
    for more in then:
        client.ask("  then " + more, query(more))
    if client.state != b"I":
        client.ask("  ended", query("ROLLBACK"))


def copy(text, *data, then=()):
    """A text with COPY FROM: each takes the next messages."""
    print(text)
    client.send(query(text))
    rest = list(data)
    while client.show("GZ") == "G":
        client.send(*rest.pop(0))
    for more in then:
        client.ask("  then " + more, query(more))
    if client.state != b"I":
        client.ask("  ended", query("ROLLBACK"))


def rows(*lines):
    return [frame("d", line.encode() + b"\n") for line in lines] + [frame("c")]


ROWS = "SELECT string_agg(id || ':' || v, ' ' ORDER BY id) AS rows FROM t"
TIMEOUT = "SHOW statement_timeout"

ask("CREATE TABLE t (id int PRIMARY KEY, v int)")
ask("CREATE TABLE u (id int PRIMARY KEY, t int REFERENCES t DEFERRABLE INITIALLY DEFERRED)")

# Settings.
ask("SET TIME ZONE 'UTC'")
ask("SET LOCAL statement_timeout = '7s'; SHOW statement_timeout", TIMEOUT)
ask("SET LOCAL statement_timeout = '7s'", TIMEOUT)
ask("SELECT 1 AS a; SET LOCAL statement_timeout = '7s'; SHOW statement_timeout", TIMEOUT)
ask("SHOW statement_timeout; SET LOCAL statement_timeout = '7s'; SHOW statement_timeout", TIMEOUT)
ask("SET statement_timeout = '8s'; SELECT 1 / 0", TIMEOUT)
ask("SET statement_timeout = '8s'; SELECT 1 AS a", TIMEOUT)
ask("SET statement_timeout = '9s'; ROLLBACK; SHOW statement_timeout")
ask("RESET statement_timeout; SELECT 1 / 0", TIMEOUT)
ask("RESET statement_timeout; SHOW statement_timeout", TIMEOUT)
ask("SET statement_timeout = '8s'; SET LOCAL statement_timeout = '9s'; SHOW statement_timeout", TIMEOUT)
ask("RESET statement_timeout")
ask("SELECT set_config('statement_timeout', '6s', true); SHOW statement_timeout", TIMEOUT)
ask("SELECT set_config('statement_timeout', '6s', true); SELECT 1 / 0", TIMEOUT)
ask("SET search_path = nowhere; SELECT count(*) FROM t", "SELECT count(*) FROM t")
ask("SET LOCAL search_path = nowhere; SHOW search_path", "SHOW search_path")
ask("SET TIME ZONE 'Asia/Kolkata'; SELECT '2024-07-01 12:00+00'::timestamptz; SELECT 1 / 0", "SHOW timezone")
ask("SET LOCAL TIME ZONE 'Asia/Kolkata'; SELECT '2024-07-01 12:00+00'::timestamptz", "SHOW timezone")
ask("SET application_name = 'x'; SELECT 1 / 0", "SHOW application_name")
ask("SET application_name = 'x'; SET LOCAL application_name = 'y'; SHOW application_name", "SHOW application_name", "RESET application_name")
ask("SET statement_timeout = '8s'; SET nothing_such = 1", TIMEOUT)
ask("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY; INSERT INTO t VALUES (1, 1)", "SHOW default_transaction_read_only", "SET default_transaction_read_only = off")

# What the client is told of settings.
def told(text):
    client.told = []
    ask(text)
    print("  told", sorted(client.told))


told("SET application_name = 'one'; SET application_name = 'two'")
told("BEGIN; SET LOCAL application_name = 'three'")
told("SHOW application_name")
told("SET search_path = public; SET statement_timeout = 0")
told("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
told("SET TIME ZONE 'Asia/Kolkata'; SET default_transaction_read_only = off")
told("SET application_name = 'four'; SELECT 1 / 0")
ask("CREATE ROLE texts_role")
told("SET SESSION AUTHORIZATION texts_role")
told("RESET SESSION AUTHORIZATION")
told("BEGIN; SET LOCAL ROLE texts_role")
told("SET ROLE texts_role")
told("RESET ROLE; DROP ROLE texts_role")
told("SET TIME ZONE 'UTC'; RESET application_name")

# The transaction's modes.
ask("SET TRANSACTION READ ONLY; INSERT INTO t VALUES (1, 1)", ROWS)
ask("SET TRANSACTION READ ONLY; SHOW transaction_read_only", "SHOW transaction_read_only")
ask("SET TRANSACTION READ ONLY")
ask("SELECT 1 AS a; SET TRANSACTION READ ONLY; INSERT INTO t VALUES (1, 1)", ROWS)
ask("SET TRANSACTION READ ONLY; SELECT 1 AS a; SET TRANSACTION READ WRITE")
ask("SELECT 1 / 0; SET TRANSACTION READ ONLY")

# Beginnings and ends.
ask("INSERT INTO t VALUES (2, 2); BEGIN; INSERT INTO t VALUES (3, 3)", "ROLLBACK", ROWS)
ask("INSERT INTO t VALUES (2, 2); BEGIN; INSERT INTO t VALUES (3, 3); COMMIT; INSERT INTO t VALUES (4, 4); SELECT 1 / 0", ROWS)
ask("INSERT INTO t VALUES (5, 5); COMMIT; SELECT 1 / 0", ROWS)
ask("INSERT INTO t VALUES (6, 6); ROLLBACK; INSERT INTO t VALUES (7, 7)", ROWS)
ask("INSERT INTO t VALUES (8, 8); ROLLBACK; SELECT 1 / 0", ROWS)
ask("BEGIN; INSERT INTO t VALUES (9, 9); COMMIT; BEGIN; INSERT INTO t VALUES (10, 10)", "SELECT 1 / 0", "COMMIT", ROWS)
ask("BEGIN; BEGIN; SELECT 1 AS a; COMMIT; COMMIT")
ask("BEGIN; SELECT 1 / 0; COMMIT", "SELECT 1 AS a", "COMMIT")
ask("SELECT 1 / 0; COMMIT")
ask("BEGIN; INSERT INTO t VALUES (11, 11); COMMIT AND CHAIN; INSERT INTO t VALUES (12, 12)", "ROLLBACK", ROWS)
ask("INSERT INTO t VALUES (13, 13); COMMIT AND CHAIN", ROWS)
ask("SELECT 1 AS a; ROLLBACK AND CHAIN")
ask("BEGIN READ ONLY; SELECT 1 AS a; COMMIT; INSERT INTO t VALUES (14, 14)", ROWS)
ask("SELECT 1 AS a; BEGIN READ ONLY; INSERT INTO t VALUES (15, 15)", ROWS)
ask("START TRANSACTION; INSERT INTO t VALUES (16, 16); END; SHOW transaction_read_only", ROWS)

# Savepoints.
ask("SAVEPOINT a")
ask("SELECT 1 AS a; SAVEPOINT a", ROWS)
ask("INSERT INTO t VALUES (17, 17); SAVEPOINT a; ROLLBACK TO a", ROWS)
ask("SELECT 1 AS a; RELEASE a")
ask("SELECT 1 AS a; ROLLBACK TO a")
ask("BEGIN; INSERT INTO t VALUES (18, 18); SAVEPOINT a; INSERT INTO t VALUES (19, 19); ROLLBACK TO a; INSERT INTO t VALUES (20, 20); COMMIT", ROWS)
ask("BEGIN; SAVEPOINT a; SELECT 1 / 0", "ROLLBACK TO a; SELECT 1 AS a; COMMIT")
ask("SELECT 1 AS a; BEGIN; SAVEPOINT a; INSERT INTO t VALUES (21, 21); ROLLBACK TO a; COMMIT", ROWS)

# Errors, and what does not parse.
ask("INSERT INTO t VALUES (22, 22); SELEC 1; SELECT 1 AS a", ROWS)
ask("INSERT INTO t VALUES (22, 22); INSERT INTO t VALUES (22, 22); SELECT 1 AS a", ROWS)
ask("SELECT 1 AS a; SELECT nothing; SELECT 2 AS b")
ask("; ; SELECT 1 AS a; ;")
ask(" -- nothing\n")
ask("CREATE TABLE x (a int); INSERT INTO x VALUES (1); SELECT * FROM x; SELECT 1 / 0", "SELECT * FROM x")
ask("CREATE TABLE x (a int); INSERT INTO x VALUES (1); SELECT a FROM x", "DROP TABLE x")
ask("INSERT INTO t VALUES (23, 23); CREATE TABLE x (a int); DROP TABLE x; SELECT 1 AS a", ROWS)
ask("SELECT a FROM y; CREATE TABLE y (a int)", "SELECT a FROM y")

# Checks at the end.
ask("INSERT INTO u VALUES (1, 90); INSERT INTO t VALUES (80, 80)", "SELECT count(*) FROM u")
ask("INSERT INTO u VALUES (1, 90); INSERT INTO t VALUES (90, 90)", "SELECT count(*) FROM u")
ask("SET CONSTRAINTS ALL IMMEDIATE; INSERT INTO u VALUES (2, 91); SELECT 1 AS a", "SELECT count(*) FROM u")
ask("INSERT INTO u VALUES (2, 91); SET CONSTRAINTS ALL IMMEDIATE; SELECT 1 AS a", "SELECT count(*) FROM u")
ask("SET CONSTRAINTS ALL IMMEDIATE", "INSERT INTO u VALUES (2, 91)")

# What runs in no transaction.
ask("SELECT 1 AS a; VACUUM")
ask("VACUUM; SELECT 1 AS a")
ask("VACUUM")
ask("BEGIN; VACUUM")
ask("SELECT 1 AS a; DISCARD ALL")
ask("DISCARD ALL; SELECT 1 AS a")
ask("DISCARD ALL")
ask("SELECT 1 AS a; ALTER SYSTEM SET application_name = 'z'")

# Prepared statements and cursors outlive or do not.
ask("PREPARE p AS SELECT 1 AS a; EXECUTE p; SELECT 1 / 0", "EXECUTE p", "DEALLOCATE p; EXECUTE p")
ask("DECLARE c CURSOR FOR SELECT 1 AS a; FETCH c; FETCH c", "FETCH c")
ask("DECLARE c CURSOR FOR SELECT 1 AS a")
ask("DECLARE c CURSOR WITH HOLD FOR SELECT 1 AS a UNION ALL SELECT 2; FETCH c", "FETCH c", "CLOSE c")
ask("DECLARE c CURSOR WITH HOLD FOR SELECT 1 AS a; SELECT 1 / 0", "FETCH c")
ask("DECLARE c CURSOR FOR SELECT 1 AS a; COMMIT; FETCH c")

# Notifications and locks.
ask("LISTEN n; NOTIFY n, 'one'; SELECT 1 / 0", "NOTIFY n, 'lost'")
ask("LISTEN n; NOTIFY n, 'two'; SELECT 1 AS a", "UNLISTEN n; NOTIFY n, 'lost'")
ask("LISTEN n")
ask("NOTIFY n, 'three'; COMMIT; NOTIFY n, 'lost'; SELECT 1 / 0")
ask("BEGIN; NOTIFY n, 'lost'; ROLLBACK; NOTIFY n, 'four'")
ask("SELECT pg_notify('n', 'five'); SELECT 1 AS a", "UNLISTEN *")
ask("SELECT pg_advisory_lock(1); SELECT 1 / 0")
other.ask("  another", query("SELECT pg_try_advisory_lock(1)"))
ask("SELECT pg_advisory_unlock(1)")
ask("SELECT pg_advisory_xact_lock(2); SELECT 1 AS a")
other.ask("  another", query("SELECT pg_try_advisory_lock(2)"))
ask("BEGIN; SELECT pg_advisory_xact_lock(3); COMMIT; SELECT pg_try_advisory_xact_lock(2)")
other.ask("  another", query("SELECT pg_try_advisory_lock(3)"))
other.ask("  ended", query("SELECT pg_advisory_unlock_all()"))

# COPY among others.
copy("COPY t FROM STDIN; SELECT 1 AS a", rows("30\t30", "31\t31"), then=[ROWS])
copy("SELECT 1 AS a; COPY t FROM STDIN; COPY t FROM STDIN; SELECT count(*) FROM t", rows("32\t32"), rows("33\t33"))
copy("COPY t FROM STDIN; COPY t FROM STDIN", rows("34\t34"), rows("34\t34"), then=[ROWS])
copy("COPY t FROM STDIN; SELECT 1 / 0", rows("35\t35"), then=[ROWS])
copy("COPY t FROM STDIN; SELECT 1 AS a", rows("36\tx"), then=[ROWS])
copy("COPY t FROM STDIN; SELECT 1 AS a", [frame("d", b"37\t37\n"), frame("f", "enough")], then=[ROWS])
copy("BEGIN; COPY t FROM STDIN; COMMIT; SELECT 1 / 0", rows("38\t38"), then=["SELECT v FROM t WHERE id = 38"])
copy("BEGIN; COPY t FROM STDIN; SELECT 1 / 0", rows("39\t39"), then=["SELECT 1 AS a"])
copy("INSERT INTO t VALUES (40, 40); COPY (SELECT id FROM t WHERE id >= 30 ORDER BY id) TO STDOUT; SELECT 1 AS a")
copy("COPY (SELECT 1) TO STDOUT; COPY (SELECT 2) TO STDOUT; COPY t FROM STDIN; COPY (SELECT v FROM t WHERE id = 41) TO STDOUT", rows("41\t41"))
copy("COPY (SELECT 1) TO STDOUT; SELECT 1 / 0")
copy("SET LOCAL statement_timeout = '7s'; COPY (SELECT current_setting('statement_timeout')) TO STDOUT", then=[TIMEOUT])
copy("CREATE TABLE z (a int); COPY z FROM STDIN; SELECT sum(a) FROM z", rows("1", "2"), then=["DROP TABLE z"])
copy("TRUNCATE u; COPY u FROM STDIN; INSERT INTO t VALUES (80, 80)", rows("1\t99"), then=["SELECT count(*) FROM u"])
copy("COPY t FROM STDIN WITH (FORMAT csv); COPY (SELECT id FROM t WHERE id > 40 ORDER BY id) TO STDOUT", rows("42,42", "43,"), then=["SELECT count(*) FROM t"])
