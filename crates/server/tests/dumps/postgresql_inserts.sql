--
-- PostgreSQL database dump
--


-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: other; Type: SCHEMA; Schema: -; Owner: postgres
--

CREATE SCHEMA other;


ALTER SCHEMA other OWNER TO postgres;

--
-- Name: mood; Type: TYPE; Schema: public; Owner: postgres
--

CREATE TYPE public.mood AS ENUM (
    'sad',
    'ok',
    'happy'
);


ALTER TYPE public.mood OWNER TO postgres;

SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: note; Type: TABLE; Schema: other; Owner: postgres
--

CREATE TABLE other.note (
    id integer NOT NULL,
    of bigint,
    bytes bytea,
    "a b" double precision
);


ALTER TABLE other.note OWNER TO postgres;

--
-- Name: author; Type: TABLE; Schema: public; Owner: postgres
--

CREATE TABLE public.author (
    id integer NOT NULL,
    name character varying(30) NOT NULL,
    born date,
    feeling public.mood DEFAULT 'ok'::public.mood
);


ALTER TABLE public.author OWNER TO postgres;

--
-- Name: TABLE author; Type: COMMENT; Schema: public; Owner: postgres
--

COMMENT ON TABLE public.author IS 'people';


--
-- Name: COLUMN author.name; Type: COMMENT; Schema: public; Owner: postgres
--

COMMENT ON COLUMN public.author.name IS 'it''s their names';


--
-- Name: book; Type: TABLE; Schema: public; Owner: postgres
--

CREATE TABLE public.book (
    id bigint NOT NULL,
    title text NOT NULL,
    price numeric(8,2) DEFAULT 1.50,
    tags text[] DEFAULT '{}'::text[],
    more jsonb,
    added timestamp with time zone DEFAULT now(),
    author_id integer NOT NULL,
    twice numeric GENERATED ALWAYS AS ((price * (2)::numeric)) STORED,
    CONSTRAINT book_price_check CHECK ((price >= (0)::numeric))
);


ALTER TABLE public.book OWNER TO postgres;

--
-- Name: zz_titles; Type: VIEW; Schema: public; Owner: postgres
--

CREATE VIEW public.zz_titles AS
 SELECT b.title,
    a.name
   FROM (public.book b
     JOIN public.author a ON ((a.id = b.author_id)));


ALTER TABLE public.zz_titles OWNER TO postgres;

--
-- Name: aa_names; Type: VIEW; Schema: public; Owner: postgres
--

CREATE VIEW public.aa_names AS
 SELECT zz_titles.name
   FROM public.zz_titles;


ALTER TABLE public.aa_names OWNER TO postgres;

--
-- Name: author_id_seq; Type: SEQUENCE; Schema: public; Owner: postgres
--

CREATE SEQUENCE public.author_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


ALTER TABLE public.author_id_seq OWNER TO postgres;

--
-- Name: author_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: postgres
--

ALTER SEQUENCE public.author_id_seq OWNED BY public.author.id;


--
-- Name: book_id_seq; Type: SEQUENCE; Schema: public; Owner: postgres
--

ALTER TABLE public.book ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.book_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: counter; Type: SEQUENCE; Schema: public; Owner: postgres
--

CREATE SEQUENCE public.counter
    START WITH 10
    INCREMENT BY 5
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


ALTER TABLE public.counter OWNER TO postgres;

--
-- Name: author id; Type: DEFAULT; Schema: public; Owner: postgres
--

ALTER TABLE ONLY public.author ALTER COLUMN id SET DEFAULT nextval('public.author_id_seq'::regclass);


--
-- Data for Name: note; Type: TABLE DATA; Schema: other; Owner: postgres
--

INSERT INTO other.note VALUES (1, 2, '\x00ff', 0.1);
INSERT INTO other.note VALUES (2, NULL, NULL, 'Infinity');


--
-- Data for Name: author; Type: TABLE DATA; Schema: public; Owner: postgres
--

INSERT INTO public.author VALUES (1, 'ann', '1990-01-01', 'happy');
INSERT INTO public.author VALUES (2, 'b''ob', NULL, 'sad');


--
-- Data for Name: book; Type: TABLE DATA; Schema: public; Owner: postgres
--

INSERT INTO public.book OVERRIDING SYSTEM VALUE VALUES (1, 'x', 1.50, '{a,b}', '{"k": [1, 2]}', '2024-01-01 00:00:00+00', 1, DEFAULT);
INSERT INTO public.book OVERRIDING SYSTEM VALUE VALUES (2, 'tab	here', 1.50, NULL, NULL, '2024-01-01 00:00:00+00', 2, DEFAULT);


--
-- Name: author_id_seq; Type: SEQUENCE SET; Schema: public; Owner: postgres
--

SELECT pg_catalog.setval('public.author_id_seq', 2, true);


--
-- Name: book_id_seq; Type: SEQUENCE SET; Schema: public; Owner: postgres
--

SELECT pg_catalog.setval('public.book_id_seq', 2, true);


--
-- Name: counter; Type: SEQUENCE SET; Schema: public; Owner: postgres
--

SELECT pg_catalog.setval('public.counter', 10, true);


--
-- Name: note note_pkey; Type: CONSTRAINT; Schema: other; Owner: postgres
--

ALTER TABLE ONLY other.note
    ADD CONSTRAINT note_pkey PRIMARY KEY (id);


--
-- Name: author author_name_key; Type: CONSTRAINT; Schema: public; Owner: postgres
--

ALTER TABLE ONLY public.author
    ADD CONSTRAINT author_name_key UNIQUE (name);


--
-- Name: author author_pkey; Type: CONSTRAINT; Schema: public; Owner: postgres
--

ALTER TABLE ONLY public.author
    ADD CONSTRAINT author_pkey PRIMARY KEY (id);


--
-- Name: book book_pkey; Type: CONSTRAINT; Schema: public; Owner: postgres
--

ALTER TABLE ONLY public.book
    ADD CONSTRAINT book_pkey PRIMARY KEY (id);


--
-- Name: book_author; Type: INDEX; Schema: public; Owner: postgres
--

CREATE INDEX book_author ON public.book USING btree (author_id);


--
-- Name: book_cheap; Type: INDEX; Schema: public; Owner: postgres
--

CREATE INDEX book_cheap ON public.book USING btree (price DESC) WHERE (price < (10)::numeric);


--
-- Name: book_lower; Type: INDEX; Schema: public; Owner: postgres
--

CREATE INDEX book_lower ON public.book USING btree (lower(title));


--
-- Name: book_title; Type: INDEX; Schema: public; Owner: postgres
--

CREATE UNIQUE INDEX book_title ON public.book USING btree (title, author_id);


--
-- Name: note note_of_fkey; Type: FK CONSTRAINT; Schema: other; Owner: postgres
--

ALTER TABLE ONLY other.note
    ADD CONSTRAINT note_of_fkey FOREIGN KEY (of) REFERENCES public.book(id);


--
-- Name: book book_author_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: postgres
--

ALTER TABLE ONLY public.book
    ADD CONSTRAINT book_author_id_fkey FOREIGN KEY (author_id) REFERENCES public.author(id) ON DELETE CASCADE;


--
-- Name: SCHEMA other; Type: ACL; Schema: -; Owner: postgres
--

GRANT USAGE ON SCHEMA other TO reader;


--
-- Name: TABLE author; Type: ACL; Schema: public; Owner: postgres
--

GRANT SELECT ON TABLE public.author TO reader;


--
-- Name: COLUMN book.title; Type: ACL; Schema: public; Owner: postgres
--

GRANT SELECT(title) ON TABLE public.book TO reader;


--
-- PostgreSQL database dump complete
--


