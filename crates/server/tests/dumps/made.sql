CREATE SCHEMA other;
CREATE ROLE reader;
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TABLE author (id serial PRIMARY KEY, name varchar(30) NOT NULL UNIQUE, born date, feeling mood DEFAULT 'ok');
CREATE TABLE book (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, title text NOT NULL, price numeric(8,2) DEFAULT 1.50 CHECK (price >= 0),
    tags text[] DEFAULT '{}', more jsonb, added timestamptz DEFAULT now(), author_id int NOT NULL REFERENCES author(id) ON DELETE CASCADE,
    twice numeric GENERATED ALWAYS AS (price * 2) STORED
);
CREATE TABLE other.note (id int PRIMARY KEY, of bigint REFERENCES book, bytes bytea, "a b" float8);
CREATE INDEX book_author ON book (author_id);
CREATE INDEX book_cheap ON book (price DESC) WHERE price < 10;
CREATE INDEX book_lower ON book (lower(title));
CREATE UNIQUE INDEX book_title ON book (title, author_id);
CREATE VIEW zz_titles AS SELECT b.title, a.name FROM book b JOIN author a ON a.id = b.author_id;
CREATE VIEW aa_names AS SELECT name FROM zz_titles;
CREATE SEQUENCE counter START 10 INCREMENT 5;
COMMENT ON TABLE author IS 'people';
COMMENT ON COLUMN author.name IS 'it''s their names';
GRANT SELECT ON author TO reader;
GRANT SELECT (title) ON book TO reader;
GRANT USAGE ON SCHEMA other TO reader;
INSERT INTO author (name, born, feeling) VALUES ('ann', '1990-01-01', 'happy'), ('b''ob', NULL, 'sad');
INSERT INTO book (title, tags, more, author_id, added)
    VALUES ('x', '{a,b}', '{"k": [1, 2]}', 1, '2024-01-01 00:00:00+00'), (E'tab\there', NULL, NULL, 2, '2024-01-01 00:00:00+00');
INSERT INTO other.note VALUES (1, 2, '\x00ff', 0.1), (2, NULL, NULL, 'Infinity');
SELECT nextval('counter');
