// node-postgres: parameters, named statements, errors, transactions, cursors.
const { Client, Pool } = require('pg');

async function main(url) {
  const client = new Client({ connectionString: url });
  await client.connect();
  await client.query('CREATE TABLE t (id serial PRIMARY KEY, v text NOT NULL, n numeric, j jsonb, a int[], b bytea, d timestamptz)');
  const inserted = await client.query(
    'INSERT INTO t (v, n, j, a, b, d) VALUES ($1, $2, $3, $4, $5, $6) RETURNING *',
    ['é', '1.50', { a: [1] }, [1, null, 3], Buffer.from([0, 255]), new Date(Date.UTC(2024, 1, 29))]);
  console.log(JSON.stringify(inserted.rows), inserted.rowCount, inserted.command);
  console.log(inserted.fields.map((field) => [field.name, field.dataTypeID, field.dataTypeModifier]));
  for (let i = 0; i < 3; i++) {
    const named = { name: 'find', text: 'SELECT v FROM t WHERE id = $1', values: [i] };
    console.log((await client.query(named)).rows);
  }
  const several = await client.query('SELECT 1 AS a; SELECT 2 AS b, 3 AS c');
  console.log(several.map((result) => result.rows));
  for (const text of ['SELECT nothing', 'INSERT INTO t (id) VALUES (7)', "INSERT INTO t (id, v) VALUES (1, 'x')"]) {
    try { await client.query(text); } catch (error) {
      console.log(error.code, error.schema, error.table, error.column, error.constraint, error.position);
    }
  }
  const many = await client.query({ text: 'SELECT * FROM generate_series(1, 5) AS g', rowMode: 'array' });
  console.log(JSON.stringify(many.rows));
  await client.query('BEGIN');
  await client.query("INSERT INTO t (v) VALUES ('x')");
  await client.query('ROLLBACK');
  console.log((await client.query('SELECT count(*)::int FROM t')).rows);
  await client.end();
  const pool = new Pool({ connectionString: url, max: 3 });
  const rows = await Promise.all([1, 2, 3, 4, 5, 6].map((i) => pool.query('SELECT $1::int + 1 AS n', [i])));
  console.log(rows.map((result) => result.rows[0].n));
  await pool.end();
}

main(process.argv[2]).catch((error) => { console.log('failed:', error.message); process.exit(1); });
