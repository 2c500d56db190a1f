CREATE TABLE warehouse (w_id int PRIMARY KEY, w_name text NOT NULL, w_tax numeric(4, 4) NOT NULL, w_ytd numeric(12, 2) NOT NULL);
CREATE TABLE district (d_w_id int, d_id int, d_tax numeric(4, 4) NOT NULL, d_ytd numeric(12, 2) NOT NULL, d_next_o_id int NOT NULL,
    PRIMARY KEY (d_w_id, d_id));
CREATE TABLE customer (c_w_id int, c_d_id int, c_id int, c_first text NOT NULL, c_last text NOT NULL, c_credit char(2) NOT NULL,
    c_discount numeric(4, 4) NOT NULL, c_balance numeric(12, 2) NOT NULL, c_ytd_payment numeric(12, 2) NOT NULL,
    c_payment_cnt int NOT NULL, c_delivery_cnt int NOT NULL, c_data text NOT NULL, PRIMARY KEY (c_w_id, c_d_id, c_id));
CREATE INDEX customer_name ON customer (c_w_id, c_d_id, c_last, c_first);
CREATE TABLE history (h_c_id int, h_c_d_id int, h_c_w_id int, h_d_id int, h_w_id int, h_date timestamp NOT NULL,
    h_amount numeric(6, 2) NOT NULL, h_data text NOT NULL);
CREATE TABLE item (i_id int PRIMARY KEY, i_name text NOT NULL, i_price numeric(5, 2) NOT NULL);
CREATE TABLE stock (s_w_id int, s_i_id int, s_quantity int NOT NULL, s_ytd int NOT NULL, s_order_cnt int NOT NULL,
    s_remote_cnt int NOT NULL, PRIMARY KEY (s_w_id, s_i_id));
CREATE TABLE orders (o_w_id int, o_d_id int, o_id int, o_c_id int NOT NULL, o_entry_d timestamp NOT NULL, o_carrier_id int,
    o_ol_cnt int NOT NULL, o_all_local int NOT NULL, PRIMARY KEY (o_w_id, o_d_id, o_id));
CREATE INDEX orders_customer ON orders (o_w_id, o_d_id, o_c_id, o_id);
CREATE TABLE new_order (no_w_id int, no_d_id int, no_o_id int, PRIMARY KEY (no_w_id, no_d_id, no_o_id));
CREATE TABLE order_line (ol_w_id int, ol_d_id int, ol_o_id int, ol_number int, ol_i_id int NOT NULL, ol_supply_w_id int NOT NULL,
    ol_delivery_d timestamp, ol_quantity int NOT NULL, ol_amount numeric(6, 2) NOT NULL,
    PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number));

CREATE PROCEDURE load(warehouses int, districts int, customers int, items int) LANGUAGE sql BEGIN ATOMIC
    INSERT INTO item SELECT i, 'item ' || i, 1 + i % 100 FROM generate_series(1, items) i;
    INSERT INTO warehouse SELECT w, 'warehouse ' || w, 0.05, 0 FROM generate_series(1, warehouses) w;
    INSERT INTO stock SELECT w, i, 50, 0, 0, 0 FROM generate_series(1, warehouses) w, generate_series(1, items) i;
    INSERT INTO district SELECT w, d, 0.1, 0, 1 FROM generate_series(1, warehouses) w, generate_series(1, districts) d;
    INSERT INTO customer SELECT w, d, c, 'first ' || c, 'last ' || c % 3, CASE WHEN c % 10 = 1 THEN 'BC' ELSE 'GC' END, 0.02, 0, 0, 0, 0, ''
        FROM generate_series(1, warehouses) w, generate_series(1, districts) d, generate_series(1, customers) c;
END;

CREATE PROCEDURE enter_order(w int, d int, c int, items int[], suppliers int[], quantities int[], INOUT total numeric)
LANGUAGE plpgsql AS $$
DECLARE
    w_rate numeric;
    d_rate numeric;
    discount customer.c_discount%TYPE;
    number int;
    price numeric;
    amount numeric;
    is_local int := 1;
BEGIN
    SELECT w_tax INTO STRICT w_rate FROM warehouse WHERE w_id = w;
    UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = w AND d_id = d
        RETURNING d_next_o_id - 1, d_tax INTO number, d_rate;
    SELECT c_discount INTO STRICT discount FROM customer WHERE c_w_id = w AND c_d_id = d AND c_id = c;
    FOR i IN 1..array_length(items, 1) LOOP
        IF suppliers[i] <> w THEN
            is_local := 0;
            EXIT;
        END IF;
    END LOOP;
    INSERT INTO orders VALUES (w, d, number, c, now(), NULL, array_length(items, 1), is_local);
    INSERT INTO new_order VALUES (w, d, number);
    total := 0;
    FOR i IN 1..array_length(items, 1) LOOP
        SELECT i_price INTO price FROM item WHERE i_id = items[i];
        IF NOT FOUND THEN
            RAISE EXCEPTION 'Item number is not valid' USING ERRCODE = 'no_data_found', DETAIL = 'Item ' || items[i];
        END IF;
        UPDATE stock SET
            s_quantity = CASE WHEN s_quantity >= quantities[i] + 10 THEN s_quantity - quantities[i] ELSE s_quantity - quantities[i] + 91 END,
            s_ytd = s_ytd + quantities[i],
            s_order_cnt = s_order_cnt + 1,
            s_remote_cnt = s_remote_cnt + CASE WHEN suppliers[i] = w THEN 0 ELSE 1 END
        WHERE s_w_id = suppliers[i] AND s_i_id = items[i];
        amount := quantities[i] * price;
        INSERT INTO order_line VALUES (w, d, number, i, items[i], suppliers[i], NULL, quantities[i], amount);
        total := total + amount;
    END LOOP;
    total := round(total * (1 - discount) * (1 + w_rate + d_rate), 2);
END $$;

CREATE PROCEDURE find_customer(w int, d int, name text, INOUT c int) LANGUAGE plpgsql AS $$
DECLARE
    many int;
BEGIN
    IF c IS NULL THEN
        SELECT count(*) INTO many FROM customer WHERE c_w_id = w AND c_d_id = d AND c_last = name;
        SELECT c_id INTO STRICT c FROM customer WHERE c_w_id = w AND c_d_id = d AND c_last = name
            ORDER BY c_first LIMIT 1 OFFSET many / 2;
    END IF;
END $$;

CREATE PROCEDURE pay(w int, d int, cw int, cd int, c int, name text, amount numeric) LANGUAGE plpgsql AS $$
DECLARE
    credit text;
    places text;
BEGIN
    UPDATE warehouse SET w_ytd = w_ytd + amount WHERE w_id = w RETURNING w_name INTO places;
    UPDATE district SET d_ytd = d_ytd + amount WHERE d_w_id = w AND d_id = d;
    CALL find_customer(cw, cd, name, c);
    UPDATE customer SET c_balance = c_balance - amount, c_ytd_payment = c_ytd_payment + amount, c_payment_cnt = c_payment_cnt + 1
        WHERE c_w_id = cw AND c_d_id = cd AND c_id = c RETURNING c_credit INTO STRICT credit;
    IF credit = 'BC' THEN
        UPDATE customer SET c_data = left(concat_ws(' ', c_id, c_d_id, c_w_id, d, w, amount, c_data), 500)
            WHERE c_w_id = cw AND c_d_id = cd AND c_id = c;
    END IF;
    INSERT INTO history VALUES (c, cd, cw, d, w, now(), amount, places || '    ' || d);
END $$;

CREATE PROCEDURE order_status(w int, d int, c int, name text, OUT number int, OUT lines int) LANGUAGE plpgsql AS $$
DECLARE
    line record;
BEGIN
    CALL find_customer(w, d, name, c);
    SELECT o_id INTO number FROM orders WHERE o_w_id = w AND o_d_id = d AND o_c_id = c ORDER BY o_id DESC LIMIT 1;
    lines := 0;
    FOR line IN SELECT ol_i_id, ol_amount FROM order_line WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = number LOOP
        lines := lines + 1;
        CONTINUE WHEN line.ol_amount > 0;
        RAISE EXCEPTION 'item % costs nothing', line.ol_i_id;
    END LOOP;
END $$;

CREATE PROCEDURE deliver(w int, carrier int, OUT delivered int) LANGUAGE plpgsql AS $$
DECLARE
    d int;
    number int;
    c int;
    amount numeric;
BEGIN
    delivered := 0;
    FOR d IN SELECT d_id FROM district WHERE d_w_id = w ORDER BY d_id LOOP
        SELECT no_o_id INTO number FROM new_order WHERE no_w_id = w AND no_d_id = d ORDER BY no_o_id LIMIT 1;
        CONTINUE WHEN NOT FOUND;
        DELETE FROM new_order WHERE no_w_id = w AND no_d_id = d AND no_o_id = number;
        UPDATE orders SET o_carrier_id = carrier WHERE o_w_id = w AND o_d_id = d AND o_id = number RETURNING o_c_id INTO STRICT c;
        UPDATE order_line SET ol_delivery_d = now() WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = number;
        SELECT sum(ol_amount) INTO amount FROM order_line WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = number;
        UPDATE customer SET c_balance = c_balance + amount, c_delivery_cnt = c_delivery_cnt + 1
            WHERE c_w_id = w AND c_d_id = d AND c_id = c;
        delivered := delivered + 1;
    END LOOP;
END $$;

CREATE PROCEDURE stock_level(w int, d int, threshold int, OUT low int) LANGUAGE sql AS $$
    SELECT count(DISTINCT s_i_id)::int FROM order_line, stock, district
        WHERE d_w_id = w AND d_id = $2 AND ol_w_id = w AND ol_d_id = $2 AND ol_o_id < d_next_o_id AND ol_o_id >= d_next_o_id - 20
        AND s_w_id = w AND s_i_id = ol_i_id AND s_quantity < threshold
$$;
