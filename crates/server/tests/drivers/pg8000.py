"""pg8000: text parameters, transactions, COPY, notices of the session's state."""

import io
import sys
from urllib.parse import urlparse

import pg8000.dbapi

url = urlparse(sys.argv[1])
db = pg8000.dbapi.connect(user=url.username, host=url.hostname, port=url.port, database=url.path[1:])
cursor = db.cursor()
cursor.execute("CREATE TABLE e (id serial PRIMARY KEY, v varchar(10) UNIQUE)")
cursor.executemany("INSERT INTO e (v) VALUES (%s)", [("a",), ("b",), (None,)])
db.commit()
cursor.execute("SELECT id, v FROM e ORDER BY id")
print(cursor.fetchall(), [column[:2] for column in cursor.description])
try:
    cursor.execute("INSERT INTO e (v) VALUES (%s)", ("a",))
except pg8000.dbapi.DatabaseError as error:
    print({key: value for key, value in error.args[0].items() if key in "CMstnD"})
db.rollback()
cursor.execute("COPY e (id, v) FROM STDIN WITH (FORMAT csv)", stream=io.BytesIO(b"10,x\n11,y\n"))
out = io.BytesIO()
cursor.execute("COPY (SELECT * FROM e ORDER BY id) TO STDOUT", stream=out)
print(out.getvalue())
cursor.execute("SELECT %s::int + 1, %s::text, %s::bool", (4, "x", True))
print(cursor.fetchone())
db.commit()
db.close()
