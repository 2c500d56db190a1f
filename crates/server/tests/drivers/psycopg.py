"""psycopg 3: parameters as text and binary, errors, COPY, server-side cursors, pipelines, prepared statements, notifications, advisory locks, zones."""

import datetime
import decimal
import sys
import uuid

import psycopg
from psycopg import errors


def show(*values):
    print(*values, flush=True)


def types(db):
    values = [
        (True, "bool"), (-5, "int4"), (2**40, "int8"), (decimal.Decimal("12.340"), "numeric"), (1.5, "float8"),
        ("é", "text"), (b"\x00\xff", "bytea"), (datetime.date(2024, 2, 29), "date"),
        (datetime.datetime(2024, 2, 29, 12, 30, 1, 5), "timestamp"), (datetime.time(23, 59, 1), "time"),
        (datetime.timedelta(days=3, seconds=4), "interval"), (uuid.UUID(int=7), "uuid"), ([1, None, 3], "int4[]"),
        (["a", "b,c"], "text[]"), (None, "int4"),
    ]
    for binary in (False, True):
        for value, name in values:
            with db.cursor(binary=binary) as cursor:
                cursor.execute(f"SELECT %s::{name}", (value,))
                show(binary, name, repr(cursor.fetchone()[0]), cursor.description[0].type_code)


def notifications(dsn):
    with psycopg.connect(dsn, autocommit=True) as db, psycopg.connect(dsn, autocommit=True) as other:
        db.execute("LISTEN stock")
        with other.transaction():
            other.execute("NOTIFY stock, 'one'")
            other.execute("NOTIFY stock, 'one'")
            other.execute("SELECT pg_notify('stock', %s)", ("two",))
        with other.transaction():
            other.execute("NOTIFY stock, 'lost'")
            raise psycopg.Rollback
        for it in db.notifies(timeout=60, stop_after=2):
            show(it.channel, it.payload, it.pid == other.info.backend_pid)
        db.execute("NOTIFY stock")
        for it in db.notifies(timeout=60, stop_after=1):
            show(it.channel, repr(it.payload), it.pid == db.info.backend_pid)
        show(db.execute("SELECT * FROM pg_listening_channels()").fetchall())
        db.execute("UNLISTEN *")
        show(list(db.notifies(timeout=0.01)))
        for text in ("SELECT pg_notify('', 'x')", "SELECT pg_notify('a', repeat('x', 8000))"):
            try:
                db.execute(text)
            except psycopg.Error as error:
                show(error.diag.sqlstate, error.diag.message_primary)


def locks(dsn):
    with psycopg.connect(dsn, autocommit=True) as db, psycopg.connect(dsn, autocommit=True) as other:
        show(db.execute("SELECT pg_advisory_lock(7), pg_try_advisory_lock(1, 2)").fetchone())
        show(other.execute("SELECT pg_try_advisory_lock(7), pg_try_advisory_lock_shared(1, 2)").fetchone())
        seen = "SELECT classid, objid, objsubid, mode, granted FROM pg_locks WHERE locktype = 'advisory' ORDER BY 1, 2"
        show(db.execute(seen).fetchall())
        other.add_notice_handler(lambda it: show(it.severity, it.sqlstate, it.message_primary))
        show(other.execute("SELECT pg_advisory_unlock(7)").fetchone())
        other.execute("SET lock_timeout = '10ms'")
        try:
            other.execute("SELECT pg_advisory_xact_lock(7)")
        except psycopg.Error as error:
            show(error.diag.sqlstate, error.diag.message_primary)
        show(db.execute("SELECT pg_advisory_unlock_all()").fetchone())
        show(other.execute("SELECT pg_try_advisory_xact_lock(7)").fetchone())


def zones(dsn):
    with psycopg.connect(dsn, autocommit=True, options="-c TimeZone=America/New_York") as db:
        show(db.info.timezone, db.execute("SHOW timezone").fetchone()[0])
        for text in ("'2024-03-10 02:30'", "'2024-11-03 01:30'", "'1850-01-01'", "'2024-07-01 12:00+05:30'"):
            show(db.execute(f"SELECT {text}::timestamptz, {text}::timestamptz::text").fetchone())
        when = datetime.datetime(2024, 3, 9, 12, tzinfo=datetime.timezone.utc)
        for binary in (False, True):
            with db.cursor(binary=binary) as cursor:
                cursor.execute("SELECT %s, %s + interval '1 day', %s + interval '24 hours'", (when, when, when))
                show([it.isoformat() for it in cursor.fetchone()])
        show(db.execute("SELECT date_trunc('day', %s::timestamptz)::text, extract(timezone FROM %s::timestamptz)",
                        (when, when)).fetchone())
        show(db.execute("SELECT date_trunc('day', timestamptz '2024-03-10 12:00+00', 'Asia/Tokyo')::text, "
                        "(timestamp '2024-07-01' AT TIME ZONE 'Europe/Berlin')::text, "
                        "make_timestamptz(2024, 7, 1, 12, 0, 0)::text, to_timestamp(0)::text").fetchone())
        for value in ("3", "'-3.5'", "'europe/berlin'", "'EST5'", "'UTC+3'", "'utc'", "'foo/bar'", "'<+03>-03'"):
            try:
                db.execute(f"SET TimeZone = {value}")
                show(value, db.execute("SHOW timezone").fetchone()[0],
                     db.execute("SELECT '2024-07-01'::timestamptz::text, current_setting('TimeZone')",
                                # A server may read the constant when it prepares the statement.
                                prepare=False).fetchone())
            except psycopg.Error as error:
                show(error.diag.sqlstate, error.diag.message_primary)
        for text in ("INTERVAL '-08:00' HOUR TO MINUTE", "'Asia/Kolkata'", "LOCAL", "-3"):
            db.execute(f"SET TIME ZONE {text}")
            show(text, db.execute("SHOW timezone").fetchone()[0])
        with db.transaction():
            db.execute("SET LOCAL TIME ZONE 'Asia/Tokyo'")
            show(db.execute("SELECT '2024-07-01'::timestamptz::text").fetchone())
        show(db.info.parameter_status("TimeZone"))
        db.execute("RESET TimeZone")
        show(db.info.parameter_status("TimeZone"))


def failures(db):
    texts = [
        "SELEC 1", "SELECT 1 FROM", "SELECT nothing", "SELECT 1 AS é, nothing", "SELECT * FROM nowhere",
        "SELECT nofunction(1)", "INSERT INTO person VALUES (1, 'again', NULL)", "INSERT INTO person (id) VALUES (9)",
        "INSERT INTO person VALUES (9, 'x', -1)", "INSERT INTO pet VALUES (1, 99)", "DELETE FROM person WHERE id = 1",
        "INSERT INTO person (id, nothing) VALUES (1, 2)", "UPDATE person SET nothing = 1", "SELECT 1 / 0",
        "SELECT 'x'::int4",
    ]
    for text in texts:
        try:
            db.execute(text)
            show(text, "worked")
        except psycopg.Error as error:
            diag = error.diag
            show(text, type(error).__name__, diag.sqlstate, diag.schema_name, diag.table_name, diag.column_name,
                 diag.constraint_name, diag.statement_position)


def main(dsn):
    with psycopg.connect(dsn, autocommit=True) as db:
        types(db)
        db.execute("CREATE TABLE person (id int PRIMARY KEY, name text NOT NULL, age int CHECK (age > 0))")
        db.execute("CREATE TABLE pet (id int PRIMARY KEY, owner int REFERENCES person)")
        with db.cursor() as cursor:
            cursor.executemany("INSERT INTO person VALUES (%s, %s, %s)", [(i, f"n{i}", i + 20) for i in range(1, 6)])
            show(cursor.rowcount)
        db.execute("INSERT INTO pet VALUES (0, 1)")
        failures(db)
        for number in range(8):
            show(db.execute("SELECT name FROM person WHERE id = %s", (number,), prepare=True).fetchall())
        db.execute("DEALLOCATE ALL")
        db.prepare_threshold = 2
        with db.transaction():
            for number in range(4):
                show(db.execute("SELECT age + %s FROM person WHERE id = 1", (number,)).fetchone())
        with db.cursor() as cursor:
            with cursor.copy("COPY person FROM STDIN") as copy:
                for number in range(10, 15):
                    copy.write_row((number, f"c\t{number}", None))
            with cursor.copy("COPY (SELECT * FROM person WHERE id > 9 ORDER BY id) TO STDOUT") as copy:
                for row in copy.rows():
                    show(row)
            with cursor.copy("COPY person (id, name) FROM STDIN (FORMAT BINARY)") as copy:
                copy.set_types(["int4", "text"])
                copy.write_row((20, "binary"))
            try:
                with cursor.copy("COPY person FROM STDIN") as copy:
                    copy.write_row((1, "again", None))
            except errors.UniqueViolation as error:
                show(error.diag.constraint_name, error.diag.context)
        with db.transaction():
            with db.cursor("named") as cursor:
                cursor.itersize = 2
                cursor.execute("SELECT id FROM person ORDER BY id")
                show([row[0] for row in cursor])
            with db.cursor("scrolled", scrollable=True) as cursor:
                cursor.execute("SELECT id FROM person ORDER BY id")
                cursor.scroll(2)
                show(cursor.fetchmany(2))
                cursor.scroll(-1)
                show(cursor.fetchone())
                db.execute("UPDATE person SET name = name")
                cursor.scroll(0, mode="absolute")
                show(len(cursor.fetchall()))
        with db.pipeline():
            first = db.execute("INSERT INTO person VALUES (30, 'p', 1) RETURNING id")
            second = db.execute("SELECT count(*) FROM person")
            show(first.fetchone(), second.fetchone())
        try:
            with db.pipeline():
                db.execute("INSERT INTO person VALUES (31, 'p', 1)")
                db.execute("SELECT 1 / 0")
                db.execute("SELECT 2")
        except psycopg.Error as error:
            show(type(error).__name__)
        show(db.execute("SELECT count(*) FROM person").fetchone())
        try:
            with db.transaction():
                db.execute("INSERT INTO person VALUES (40, 'in', 1)")
                try:
                    with db.transaction():
                        db.execute("INSERT INTO person VALUES (41, 'in', 1)")
                        db.execute("INSERT INTO person VALUES (40, 'in', 1)")
                except errors.UniqueViolation:
                    show(db.info.transaction_status.name)
                show(db.execute("SELECT count(*) FROM person").fetchone())
                raise psycopg.Rollback
        finally:
            show(db.execute("SELECT count(*) FROM person").fetchone())
        db.read_only = None
        rows = db.execute("PREPARE adds (int, int) AS SELECT $1 + $2 AS sum; EXECUTE adds(1, 2)")
        rows.nextset()
        show(rows.fetchall())
        show(db.execute("EXECUTE adds(3, 4)").fetchall())
        db.execute("DEALLOCATE adds")
        db.execute("SET application_name TO 'other'")
        db.execute("SET statement_timeout TO '3s'")
        db.execute("RESET ALL")
        show(repr(db.execute("SHOW statement_timeout").fetchone()[0]))
        db.execute("DISCARD ALL")
        try:
            with db.transaction():
                db.execute("DISCARD ALL")
        except psycopg.Error as error:
            show(error.diag.sqlstate, error.diag.message_primary)
    notifications(dsn)
    locks(dsn)
    zones(dsn)


main(sys.argv[1])
