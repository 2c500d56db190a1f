"""What messages of the protocol are answered with: errors, portals, COPY, pipelines, cancels."""

import os
import select
import socket
import struct
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from frames import FLUSH, SYNC, Client, bind, close, describe, execute, frame, parse, query, url

client = Client()
ask = client.ask
ask("definitions", query("CREATE TABLE t (id int PRIMARY KEY, v varchar(9) NOT NULL, n numeric(6,2) CHECK (n > 0))"))
ask("rows", query("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2.5); SELECT * FROM t ORDER BY id"))
ask("empty", query(""), )
ask("empty among others", query(";;"))
ask("an error in the middle", query("INSERT INTO t VALUES (3, 'c', 3); SELECT 1 / 0; SELECT 1"))
ask("it left nothing", query("SELECT count(*) FROM t"))
for text in ["SELEC", "SELECT 1 FROM", "SELECT\n  'é', nothing FROM t", "SELECT x.id FROM t", "SELECT nofunction(1)", "SELECT * FROM nowhere",
             "INSERT INTO t VALUES (1, 'x', 1)", "INSERT INTO t (id) VALUES (9)", "INSERT INTO t VALUES (9, 'x', 0)",
             "UPDATE t SET nothing = 1", "SELECT 'a'::int"]:
    ask(text, query(text))
ask("unnamed", parse("", "SELECT v, n FROM t WHERE id = $1"), describe("S", ""), bind("", "", b"1"), describe("P", ""),
    execute(""), SYNC)
ask("binary", parse("", "SELECT id, v, n FROM t WHERE id = $1", 23),
    bind("", "", struct.pack("!i", 2), formats=(1,), results=(1,)), execute(""), SYNC)
ask("named", parse("s", "INSERT INTO t VALUES ($1, $2, 1)"), bind("", "s", b"3", b"c"), execute(""),
    bind("", "s", b"4", b"d"), execute(""), SYNC)
ask("a name that is taken", parse("s", "SELECT 1"), SYNC)
ask("a statement that is not there", bind("", "none"), execute(""), SYNC)
ask("too few values", bind("", "s", b"1"), SYNC)
ask("a wrong value", bind("", "s", b"x", b"x"), SYNC)
ask("a portal that is not there", execute("none"), SYNC)
ask("a portal in parts", parse("", "SELECT id FROM t ORDER BY id"), bind("p", ""), execute("p", 2), execute("p", 2),
    execute("p", 2), SYNC)
ask("it went with its transaction", execute("p"), SYNC)
ask("closed", close("S", "s"), close("S", "s"), close("P", "none"), SYNC)
ask("a pipeline that fails", parse("", "INSERT INTO t VALUES (7, 'g', 1)"), bind("", ""), execute(""),
    parse("", "SELECT 1 / (id - 1) FROM t WHERE id = 1"), bind("", ""), execute(""), parse("", "SELECT 2"), bind("", ""), execute(""), SYNC)
ask("it left nothing", query("SELECT count(*) FROM t WHERE id = 7"))
ask("a transaction", query("BEGIN"))
ask("an error", query("SELECT nothing"))
ask("refused", query("SELECT 1"))
ask("refused, too", parse("", "SELECT 1"), bind("", ""), execute(""), SYNC)
ask("its end", parse("", "COMMIT"), bind("", ""), execute(""), SYNC)
ask("warnings", query("COMMIT"))
ask("no rows", parse("", "DELETE FROM t WHERE id > 90"), describe("S", ""), bind("", ""), describe("P", ""), execute(""), SYNC)
ask("COPY out", query("COPY (SELECT id, v FROM t ORDER BY id) TO STDOUT"))
print("COPY in")
client.socket.sendall(query("COPY t FROM STDIN"))
client.show("G")
ask("its data", frame("d", b"20\tx\t1\n21\t"), frame("d", b"y\t2\n"), frame("c"))
client.socket.sendall(query("COPY t FROM STDIN"))
client.show("G")
ask("given up", frame("d", b"30\tx\t1\n"), frame("f", "enough"))
client.socket.sendall(query("COPY t FROM STDIN"))
client.show("G")
ask("wrong data", frame("d", b"30\tx\n"), frame("c"))
ask("COPY data without a COPY", frame("d", b"x"), frame("c"), query("SELECT 1 AS one"))
ask("PREPARE", query("PREPARE q (int) AS SELECT v FROM t WHERE id = $1"), )
ask("its statement", describe("S", "q"), bind("", "q", b"1"), execute(""), SYNC)
ask("EXECUTE", query("EXECUTE q(2)"))
ask("DEALLOCATE", query("DEALLOCATE q"))
ask("gone", describe("S", "q"), SYNC)
ask("DISCARD", query("BEGIN; DISCARD ALL"))
ask("ended", query("ROLLBACK"))
print("cancelled")
client.socket.sendall(query("INSERT INTO t SELECT g, 'x', 1 FROM generate_series(1, 100000000000) AS g WHERE g < 0"))
# A request that comes before the statement cancels nothing.
while not select.select([client.socket], [], [], 0.2)[0]:
    with socket.create_connection((url.hostname, url.port)) as other:
        other.sendall(struct.pack("!ii", len(client.key) + 8, 80877102) + client.key)
        other.recv(1)
client.show()
ask("and goes on", query("SELECT 1 AS one"))
ask("a channel", query("LISTEN a; NOTIFY a, 'one'; NOTIFY a, 'one'; NOTIFY a"))
ask("told behind a transaction", query("BEGIN; SELECT pg_notify('a', 'two')"), query("COMMIT"))
client.show()
ask("told behind Sync", parse("", "NOTIFY a, 'three'"), describe("S", ""), bind("", ""), describe("P", ""), execute(""), SYNC)
ask("not told", query("BEGIN; NOTIFY a, 'lost'; SELECT 1 / 0"))
ask("ended", query("ROLLBACK"))
ask("no channel", query("UNLISTEN *; NOTIFY a"))
ask("a lock", query("SELECT pg_advisory_lock(1), pg_try_advisory_lock(2, 3)"))
ask("given back", query("SELECT pg_advisory_unlock_all()"))
ask("a zone", query("SET TIME ZONE 'asia/kolkata'; SHOW timezone"))
ask("its times", parse("", "SELECT $1::timestamptz, '2024-07-01'::timestamptz::text"), bind("", "", b"2024-07-01 12:00"),
    execute(""), SYNC)
ask("no zone", query("SET TIME ZONE 'Nowhere'"))
ask("the first one", query("SET TIME ZONE DEFAULT"))
ask("a portal of a transaction that has failed", query("BEGIN; SELECT 1 / 0"))
ask("refused", parse("r", "SELECT 1"), SYNC)
ask("ended", query("ROLLBACK"))
ask("rows that were changed, in parts", parse("", "UPDATE t SET n = n + 1 WHERE id < 4 RETURNING id"), bind("p", ""),
    execute("p", 1), execute("p", 1), execute("p", 5), SYNC)
ask("all were changed", query("SELECT sum(n) FROM t WHERE id < 4"))
ask("VACUUM in a transaction", query("BEGIN; VACUUM"))
ask("ended", query("ROLLBACK"))
ask("columns of tables", query("SELECT t.n, t.id + 1, o.v AS other, count(*) FROM t JOIN t o USING (id) GROUP BY t.n, t.id, o.v LIMIT 0"))
ask("described", parse("", "INSERT INTO t VALUES (90, 'z', 1) RETURNING n, v AS w, id + 1"), describe("S", ""), SYNC)
ask("of several queries", query("SELECT id FROM t WHERE false UNION SELECT id FROM t WHERE false; SELECT n FROM t WHERE false"))
