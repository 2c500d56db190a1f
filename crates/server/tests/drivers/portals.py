"""Portals and cursors, which share their names: bound, declared, executed, fetched, moved and closed by either way."""

import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from frames import FLUSH, SYNC, Client, bind, close, describe, execute, parse, query

client = Client()
ask = client.ask
ask("definitions", query("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT g, 'v' || g FROM generate_series(1, 9) g"))
ask("statements", parse("all", "SELECT id, v FROM t ORDER BY id"), parse("one", "SELECT v FROM t WHERE id = $1"),
    parse("add", "INSERT INTO t VALUES ($1, $2)", 23, 25), parse("change", "UPDATE t SET v = v || '!'"),
    parse("plain", "SELECT v FROM t"), parse("give", "INSERT INTO t SELECT g, 'n' FROM generate_series(20, 24) g RETURNING id"), SYNC)

ask("begin", query("BEGIN"))
ask("a declared cursor", query("DECLARE c CURSOR FOR SELECT id FROM t ORDER BY id"))
ask("described and executed", describe("P", "c"), execute("c", 2), execute("c", 3), SYNC)
ask("fetched", query("FETCH 2 FROM c"))
ask("executed to its end", execute("c"), execute("c"), SYNC)
ask("closed", close("P", "c"), execute("c"), SYNC)
ask("end", query("ROLLBACK"))

ask("begin", query("BEGIN"))
ask("a portal", bind("p", "all"), describe("P", "p"), execute("p", 2), SYNC)
ask("fetched", query("FETCH 2 FROM p"))
ask("moved", query("MOVE 2 IN p"))
ask("executed", execute("p", 1), SYNC)
ask("fetched to its end", query("FETCH ALL p"))
ask("executed at its end", execute("p", 1), execute("p"), SYNC)
ask("backward", query("FETCH BACKWARD 1 FROM p"))
ask("end", query("ROLLBACK"))

ask("begin", query("BEGIN"))
ask("a portal that was not executed", bind("p", "all"), SYNC)
ask("fetched", query("FETCH 1 FROM p"))
ask("its name is taken", query("DECLARE p CURSOR FOR SELECT 1"))
ask("end", query("ROLLBACK"))

ask("begin", query("BEGIN"))
ask("a cursor whose name is taken", query("DECLARE p CURSOR FOR SELECT 1 AS a"))
ask("bound", bind("p", "all"), SYNC)
ask("end", query("ROLLBACK"))

ask("begin", query("BEGIN"))
ask("closed by SQL", bind("p", "all"), execute("p", 1), SYNC)
ask("close", query("CLOSE p"))
ask("it is gone", execute("p"), SYNC)
ask("end", query("ROLLBACK"))

ask("begin", query("BEGIN"))
ask("all are closed", bind("p", "all"), bind("q", "one", b"3"), SYNC)
ask("close", query("CLOSE ALL"))
ask("they are gone", query("FETCH p"))
ask("end", query("ROLLBACK"))

ask("own changes behind Bind are not seen", bind("p", "all"), bind("q", "all"), execute("p", 2), bind("", "change"), execute(""),
    bind("", "add", b"10", b"new"), execute(""), execute("p", 2), execute("q"), execute("p"), bind("", "all"), execute(""), SYNC)
ask("nor in a transaction", query("BEGIN"))
ask("bound", bind("p", "all"), bind("q", "one", b"3"), execute("p", 1), SYNC)
ask("changed", query("UPDATE t SET v = 'x'"))
ask("executed", execute("q"), execute("p", 3), SYNC)
ask("changed again", query("DELETE FROM t"))
ask("fetched", query("FETCH ALL FROM p"))
ask("end", query("ROLLBACK"))

ask("rows of a change", query("BEGIN"))
ask("in parts", bind("p", "give"), execute("p", 2), execute("p", 2), SYNC)
ask("all were inserted", query("SELECT count(*) FROM t WHERE id >= 20"))
ask("the rest", execute("p"), execute("p"), SYNC)
ask("end", query("ROLLBACK"))

ask("savepoints", query("BEGIN"))
ask("bound before", bind("p", "all"), execute("p", 2), SYNC)
ask("savepoint", query("SAVEPOINT s"))
ask("bound behind", bind("q", "all"), execute("q", 2), execute("p", 2), SYNC)
ask("return", query("ROLLBACK TO s"))
ask("the first goes on", execute("p", 2), SYNC)
ask("the second is gone", execute("q", 2), SYNC)
ask("end", query("ROLLBACK"))

ask("tables in use", query("BEGIN"))
ask("bound", bind("p", "plain"), SYNC)
ask("dropped", query("DROP TABLE t"))
ask("end", query("ROLLBACK"))
ask("tables in use", query("BEGIN"))
ask("executed", bind("p", "all"), execute("p", 1), SYNC)
ask("altered", query("ALTER TABLE t ADD COLUMN x int"))
ask("end", query("ROLLBACK"))

ask("the unnamed portal", query("BEGIN"))
ask("in parts", bind("", "all"), execute("", 2), execute("", 2), SYNC)
ask("goes on", execute("", 2), SYNC)
ask("is replaced", bind("", "one", b"2"), execute("", 2), SYNC)
ask("goes with a text", query("SELECT 1 AS a"))
ask("it is gone", execute("", 1), SYNC)
ask("end", query("ROLLBACK"))

ask("first rows alone", bind("", "all"), execute("", 3), SYNC)
ask("as many as there are", bind("", "one", b"2"), execute("", 1), SYNC)
ask("more than there are", bind("", "one", b"2"), execute("", 2), SYNC)
ask("it ends with its transaction", bind("p", "all"), execute("p", 1), SYNC)
ask("gone", execute("p", 1), SYNC)
ask("binary", query("BEGIN"))
ask("formats are the portal's", bind("p", "all", results=(1, 0)), execute("p", 1), execute("p", 1), SYNC)
ask("end", query("ROLLBACK"))

ask("a cursor that is held", query("BEGIN; DECLARE h SCROLL CURSOR WITH HOLD FOR SELECT id FROM t ORDER BY id; FETCH 2 FROM h; UPDATE t SET v = v; COMMIT"))
ask("described and executed", describe("P", "h"), execute("h", 2), SYNC)
ask("backward", query("FETCH BACKWARD 2 FROM h"))
ask("closed", close("P", "h"), SYNC)
ask("gone", query("FETCH h"))

CURSORS = """SELECT concat_ws(' ', name, statement, is_holdable, is_binary, is_scrollable, creation_time <= now() + interval '1h') AS shown
    FROM pg_cursors ORDER BY name"""
ask("which there are", query("BEGIN"))
ask("two", query("DECLARE c NO SCROLL CURSOR FOR SELECT 1"))
ask("and one", query("DECLARE d SCROLL CURSOR WITH HOLD FOR SELECT 2"))
ask("bound", bind("p", "one", b"1"), SYNC)
ask("seen", query(CURSORS))
ask("end", query("COMMIT"))
ask("seen", query(CURSORS))
ask("closed", query("CLOSE ALL"))
ask("prepared by SQL", query("PREPARE byname (int, text) AS SELECT $1, $2"))
ask("statements", query("""SELECT concat_ws(' ', name, statement, prepare_time <= now() + interval '1h',
    parameter_types, from_sql) AS shown FROM pg_prepared_statements ORDER BY name"""))
