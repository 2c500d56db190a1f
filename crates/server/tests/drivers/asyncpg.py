"""asyncpg: binary parameters, prepared statements, cursors, COPY, pools (whose reset sends several statements)."""

import asyncio
import datetime
import decimal
import sys
import uuid

import asyncpg


def show(*values):
    print(*values, flush=True)


async def main(dsn):
    db = await asyncpg.connect(dsn)
    await db.execute("CREATE TABLE a (id int PRIMARY KEY, v text, n numeric(10,2), t timestamptz, j jsonb)")
    when = datetime.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=datetime.timezone.utc)
    await db.executemany("INSERT INTO a VALUES ($1, $2, $3, $4, $5)",
                         [(i, f"v{i}", decimal.Decimal(i) / 4, when, '{"a": [1]}') for i in range(20)])
    for row in await db.fetch("SELECT * FROM a WHERE id < $1 ORDER BY id", 3):
        show(list(row.items()))
    show(await db.fetchval("SELECT $1::uuid", uuid.UUID(int=5)), await db.fetchval("SELECT $1::int[]", [1, None]))
    show(await db.fetchval("SELECT count(*) FROM a WHERE id = any($1::int[])", [1, 2, 99]))
    statement = await db.prepare("SELECT v, n FROM a WHERE id = $1")
    show([(it.name, it.type.name) for it in statement.get_attributes()], [it.name for it in statement.get_parameters()])
    show(await statement.fetchrow(4))
    async with db.transaction():
        numbers = []
        async for row in db.cursor("SELECT id FROM a ORDER BY id", prefetch=6):
            numbers.append(row["id"])
        show(numbers)
        cursor = await db.cursor("SELECT id FROM a ORDER BY id")
        show(await cursor.fetch(3), await cursor.fetchrow(), await cursor.fetch(1))
        show(await cursor.forward(4), await cursor.fetch(2))
        await db.execute("DELETE FROM a WHERE id = 11")
        show(await cursor.fetch(2), await cursor.forward(50), await cursor.fetch(1))
    show(await db.copy_records_to_table("a", records=[(100, "r", None, None, None)], columns=["id", "v", "n", "t", "j"]))
    try:
        await db.execute("INSERT INTO a (id) VALUES (1)")
    except asyncpg.UniqueViolationError as error:
        show(error.sqlstate, error.schema_name, error.table_name, error.constraint_name)
    try:
        async with db.transaction():
            await db.execute("INSERT INTO a (id) VALUES (200)")
            async with db.transaction():
                await db.execute("INSERT INTO a (id) VALUES (201)")
                raise ValueError
    except ValueError:
        show(await db.fetchval("SELECT count(*) FROM a"))
    async with db.transaction(isolation="serializable", readonly=True):
        try:
            await db.execute("DELETE FROM a")
        except asyncpg.ReadOnlySQLTransactionError as error:
            show(error.sqlstate)
    heard = asyncio.Queue()
    await db.add_listener("stock", lambda own, pid, channel, payload: heard.put_nowait((channel, payload)))
    other = await asyncpg.connect(dsn)
    await other.execute("NOTIFY stock, 'one'")
    await other.execute("SELECT pg_notify('stock', $1)", "two")
    async with db.transaction():
        await other.execute("NOTIFY stock, 'behind'")
    show([await asyncio.wait_for(heard.get(), 60) for _ in range(3)])
    await db.reset()
    show(await db.fetch("SELECT pg_listening_channels()"))
    await other.close()
    await db.close()
    pool = await asyncpg.create_pool(dsn, min_size=1, max_size=2)
    async with pool.acquire() as db:
        await db.execute("SET statement_timeout = 5000")
    async with pool.acquire() as db:
        show(await db.fetchval("SHOW statement_timeout"))
    show(await asyncio.gather(*(pool.fetchval("SELECT $1::int + 1", i) for i in range(6))))
    await pool.close()


asyncio.run(main(sys.argv[1]))
