//! TPC-C, specification 5.11, in single statements, with foreign keys that cascade and a history without a key.

use super::{Rows, Steps, Stop, Suite, Value, insertions, letters, values};
use crate::draw::Draw;

/// The benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Tpcc {
    /// How many warehouses there are.
    pub warehouses: usize,
    /// How many customers a district has, and how many orders in the beginning: 3,000.
    pub customers: usize,
    /// How many items there are: 100,000.
    pub items: usize,
}

const DISTRICTS: usize = 10;

const DEFINITIONS: [&str; 11] = [
    "CREATE TABLE warehouse (w_id int NOT NULL, w_ytd decimal(12, 2) NOT NULL, w_tax decimal(4, 4) NOT NULL,
        w_name varchar(10) NOT NULL, w_street_1 varchar(20) NOT NULL, w_street_2 varchar(20) NOT NULL,
        w_city varchar(20) NOT NULL, w_state char(2) NOT NULL, w_zip char(9) NOT NULL, PRIMARY KEY (w_id))",
    "CREATE TABLE item (i_id int NOT NULL, i_name varchar(24) NOT NULL, i_price decimal(5, 2) NOT NULL,
        i_data varchar(50) NOT NULL, i_im_id int NOT NULL, PRIMARY KEY (i_id))",
    "CREATE TABLE stock (s_w_id int NOT NULL, s_i_id int NOT NULL, s_quantity int NOT NULL,
        s_ytd decimal(8, 2) NOT NULL, s_order_cnt int NOT NULL, s_remote_cnt int NOT NULL, s_data varchar(50) NOT NULL,
        s_dist_01 char(24) NOT NULL, s_dist_02 char(24) NOT NULL, s_dist_03 char(24) NOT NULL,
        s_dist_04 char(24) NOT NULL, s_dist_05 char(24) NOT NULL, s_dist_06 char(24) NOT NULL,
        s_dist_07 char(24) NOT NULL, s_dist_08 char(24) NOT NULL, s_dist_09 char(24) NOT NULL,
        s_dist_10 char(24) NOT NULL, FOREIGN KEY (s_w_id) REFERENCES warehouse (w_id) ON DELETE CASCADE,
        FOREIGN KEY (s_i_id) REFERENCES item (i_id) ON DELETE CASCADE, PRIMARY KEY (s_w_id, s_i_id))",
    "CREATE TABLE district (d_w_id int NOT NULL, d_id int NOT NULL, d_ytd decimal(12, 2) NOT NULL,
        d_tax decimal(4, 4) NOT NULL, d_next_o_id int NOT NULL, d_name varchar(10) NOT NULL,
        d_street_1 varchar(20) NOT NULL, d_street_2 varchar(20) NOT NULL, d_city varchar(20) NOT NULL,
        d_state char(2) NOT NULL, d_zip char(9) NOT NULL,
        FOREIGN KEY (d_w_id) REFERENCES warehouse (w_id) ON DELETE CASCADE, PRIMARY KEY (d_w_id, d_id))",
    "CREATE TABLE customer (c_w_id int NOT NULL, c_d_id int NOT NULL, c_id int NOT NULL,
        c_discount decimal(4, 4) NOT NULL, c_credit char(2) NOT NULL, c_last varchar(16) NOT NULL,
        c_first varchar(16) NOT NULL, c_credit_lim decimal(12, 2) NOT NULL, c_balance decimal(12, 2) NOT NULL,
        c_ytd_payment decimal(12, 2) NOT NULL, c_payment_cnt int NOT NULL, c_delivery_cnt int NOT NULL,
        c_street_1 varchar(20) NOT NULL, c_street_2 varchar(20) NOT NULL, c_city varchar(20) NOT NULL,
        c_state char(2) NOT NULL, c_zip char(9) NOT NULL, c_phone char(16) NOT NULL,
        c_since timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP, c_middle char(2) NOT NULL, c_data varchar(500) NOT NULL,
        FOREIGN KEY (c_w_id, c_d_id) REFERENCES district (d_w_id, d_id) ON DELETE CASCADE,
        PRIMARY KEY (c_w_id, c_d_id, c_id))",
    "CREATE TABLE history (h_c_id int NOT NULL, h_c_d_id int NOT NULL, h_c_w_id int NOT NULL, h_d_id int NOT NULL,
        h_w_id int NOT NULL, h_date timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP, h_amount decimal(6, 2) NOT NULL,
        h_data varchar(24) NOT NULL,
        FOREIGN KEY (h_c_w_id, h_c_d_id, h_c_id) REFERENCES customer (c_w_id, c_d_id, c_id) ON DELETE CASCADE,
        FOREIGN KEY (h_w_id, h_d_id) REFERENCES district (d_w_id, d_id) ON DELETE CASCADE)",
    "CREATE TABLE oorder (o_w_id int NOT NULL, o_d_id int NOT NULL, o_id int NOT NULL, o_c_id int NOT NULL,
        o_carrier_id int DEFAULT NULL, o_ol_cnt int NOT NULL, o_all_local int NOT NULL,
        o_entry_d timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (o_w_id, o_d_id, o_id),
        FOREIGN KEY (o_w_id, o_d_id, o_c_id) REFERENCES customer (c_w_id, c_d_id, c_id) ON DELETE CASCADE,
        UNIQUE (o_w_id, o_d_id, o_c_id, o_id))",
    "CREATE TABLE new_order (no_w_id int NOT NULL, no_d_id int NOT NULL, no_o_id int NOT NULL,
        FOREIGN KEY (no_w_id, no_d_id, no_o_id) REFERENCES oorder (o_w_id, o_d_id, o_id) ON DELETE CASCADE,
        PRIMARY KEY (no_w_id, no_d_id, no_o_id))",
    "CREATE TABLE order_line (ol_w_id int NOT NULL, ol_d_id int NOT NULL, ol_o_id int NOT NULL,
        ol_number int NOT NULL, ol_i_id int NOT NULL, ol_delivery_d timestamp NULL DEFAULT NULL,
        ol_amount decimal(6, 2) NOT NULL, ol_supply_w_id int NOT NULL, ol_quantity decimal(6, 2) NOT NULL,
        ol_dist_info char(24) NOT NULL,
        FOREIGN KEY (ol_w_id, ol_d_id, ol_o_id) REFERENCES oorder (o_w_id, o_d_id, o_id) ON DELETE CASCADE,
        FOREIGN KEY (ol_supply_w_id, ol_i_id) REFERENCES stock (s_w_id, s_i_id) ON DELETE CASCADE,
        PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number))",
    "CREATE INDEX idx_customer_name ON customer (c_w_id, c_d_id, c_last, c_first)",
    "CREATE INDEX idx_stock_item ON stock (s_i_id)",
];

impl Suite for Tpcc {
    fn name(&self) -> &'static str {
        "tpcc"
    }

    fn definitions(&self) -> Vec<String> {
        DEFINITIONS.map(str::to_owned).to_vec()
    }

    fn contents(&self, draw: &mut Draw) -> Vec<String> {
        let items: Vec<_> = (1..=self.items)
            .map(|id| {
                let (name, price, data) = (letters(draw, 14, 24), cents(draw.within(100, 10_000)), data(draw));
                format!("({id}, '{name}', {price}, '{data}', {})", draw.within(1, 10_000))
            })
            .collect();
        let mut statements = insertions("item", &items);
        for warehouse in 1..=self.warehouses {
            self.fill(warehouse, draw, &mut statements);
        }
        statements
    }

    fn transact(&self, draw: &mut Draw, steps: &mut Steps<'_>) -> Result<(), Stop> {
        let warehouse = draw.within(1, self.warehouses);
        match draw.below(100) {
            0..=44 => self.new_order(warehouse, draw, steps),
            45..=87 => self.payment(warehouse, draw, steps),
            88..=91 => self.order_status(warehouse, draw, steps),
            92..=95 => deliver(warehouse, draw, steps),
            _ => stock_level(warehouse, draw, steps),
        }
    }

    fn conditions(&self) -> Vec<(&'static str, String)> {
        let conditions = [
            (
                "1: a warehouse has what its districts have",
                "SELECT w_id FROM warehouse WHERE w_ytd <> (SELECT sum(d_ytd) FROM district WHERE d_w_id = w_id)",
            ),
            (
                "2: the latest order has the number before the next one",
                "SELECT d_w_id, d_id FROM district WHERE d_next_o_id - 1 <>
                (SELECT max(o_id) FROM oorder WHERE o_w_id = d_w_id AND o_d_id = d_id) OR d_next_o_id - 1 <
                (SELECT max(no_o_id) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id)",
            ),
            (
                "3: new orders have no gaps",
                "SELECT no_w_id, no_d_id FROM new_order GROUP BY no_w_id, no_d_id
                HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)",
            ),
            (
                "4: orders have as many lines as they say",
                "SELECT o.w, o.d FROM (SELECT o_w_id w, o_d_id d, sum(o_ol_cnt) n FROM oorder GROUP BY 1, 2) o
                LEFT JOIN (SELECT ol_w_id w, ol_d_id d, count(*) n FROM order_line GROUP BY 1, 2) l
                ON o.w = l.w AND o.d = l.d WHERE o.n IS DISTINCT FROM l.n",
            ),
            (
                "5: an order has no carrier while it is new",
                "SELECT o_id FROM oorder LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
                WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)",
            ),
            (
                "6: each order has its lines",
                "SELECT o_id FROM oorder WHERE o_ol_cnt <> (SELECT count(*) FROM order_line
                WHERE ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id)",
            ),
            (
                "7: a line is delivered if its order is",
                "SELECT ol_o_id FROM order_line JOIN oorder ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
                WHERE (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)",
            ),
            (
                "8: a warehouse has what was paid",
                "SELECT w_id FROM warehouse WHERE w_ytd <> (SELECT sum(h_amount) FROM history WHERE h_w_id = w_id)",
            ),
            (
                "9: a district has what was paid",
                "SELECT d_id FROM district WHERE d_ytd <>
                (SELECT sum(h_amount) FROM history WHERE h_w_id = d_w_id AND h_d_id = d_id)",
            ),
            (
                "10, 12: a customer owes what was delivered and not paid",
                "SELECT c_w_id, c_d_id, c_id FROM customer LEFT JOIN
                (SELECT o_w_id w, o_d_id d, o_c_id c, sum(ol_amount) amount FROM oorder JOIN order_line
                    ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE ol_delivery_d IS NOT NULL
                    GROUP BY 1, 2, 3) delivered ON w = c_w_id AND d = c_d_id AND c = c_id LEFT JOIN
                (SELECT h_c_w_id hw, h_c_d_id hd, h_c_id hc, sum(h_amount) paid FROM history GROUP BY 1, 2, 3) payments
                    ON hw = c_w_id AND hd = c_d_id AND hc = c_id
                WHERE c_balance <> coalesce(amount, 0) - coalesce(paid, 0)
                    OR c_balance + c_ytd_payment <> coalesce(amount, 0)",
            ),
        ];
        conditions.map(|(name, text)| (name, text.to_owned())).to_vec()
    }
}

impl Tpcc {
    /// A warehouse and what belongs to it.
    fn fill(&self, warehouse: usize, draw: &mut Draw, statements: &mut Vec<String>) {
        let paid = cents(1_000 * self.customers * DISTRICTS);
        let row = format!("({warehouse}, {paid}, {}, {})", rate(draw, 2_000), place(draw));
        statements.extend(insertions("warehouse", &[row]));
        let stocks: Vec<_> = (1..=self.items)
            .map(|item| {
                let (quantity, data) = (draw.within(10, 100), data(draw));
                let places: Vec<_> = (0..DISTRICTS).map(|_| format!("'{}'", letters(draw, 24, 24))).collect();
                format!("({warehouse}, {item}, {quantity}, 0, 0, 0, '{data}', {})", places.join(", "))
            })
            .collect();
        statements.extend(insertions("stock", &stocks));
        for district in 1..=DISTRICTS {
            let [mut customers, mut payments, mut orders, mut waiting, mut lines] = [const { Vec::new() }; 5];
            let paid = cents(1_000 * self.customers);
            let next = self.customers + 1;
            let row = format!("({warehouse}, {district}, {paid}, {}, {next}, {})", rate(draw, 2_000), place(draw));
            statements.extend(insertions("district", &[row]));
            for id in 1..=self.customers {
                let credit = if draw.once_in(10) { "BC" } else { "GC" };
                let number = if id <= 1_000 { id - 1 } else { draw.non_uniform(255, 999) };
                let (discount, last, first) = (rate(draw, 5_000), last_name(number), letters(draw, 8, 16));
                let address = place(draw).split_once(", ").expect("a name comes first").1.to_owned();
                customers.push(format!(
                    "({warehouse}, {district}, {id}, {discount}, '{credit}', '{last}', '{first}', 50000, -10, 10, 1, 0, {address}, '{:016}', '2026-01-01', 'OE', '{}')",
                    draw.below(1 << 40),
                    letters(draw, 300, 500),
                ));
                let words = letters(draw, 12, 24);
                payments.push(format!(
                    "({id}, {district}, {warehouse}, {district}, {warehouse}, '2026-01-01', 10, '{words}')"
                ));
            }
            let ids: Vec<_> = (1..=self.customers).collect();
            for (at, customer) in draw.some(&ids, self.customers).into_iter().enumerate() {
                let (id, count) = (at + 1, draw.within(5, 15));
                // The latest three of ten wait.
                let waits = at * 10 >= self.customers * 7;
                let (carrier, delivered) =
                    if waits { ("NULL".to_owned(), "NULL") } else { (draw.within(1, 10).to_string(), "'2026-01-01'") };
                orders
                    .push(format!("({warehouse}, {district}, {id}, {customer}, {carrier}, {count}, 1, '2026-01-01')"));
                if waits {
                    waiting.push(format!("({warehouse}, {district}, {id})"));
                }
                for number in 1..=count {
                    let amount = if waits { cents(draw.within(1, 999_999)) } else { "0".into() };
                    let (item, words) = (draw.within(1, self.items), letters(draw, 24, 24));
                    lines.push(format!(
                        "({warehouse}, {district}, {id}, {number}, {item}, {delivered}, {amount}, {warehouse}, 5, '{words}')"
                    ));
                }
            }
            let tables = [
                ("customer", &customers),
                ("history", &payments),
                ("oorder", &orders),
                ("new_order", &waiting),
                ("order_line", &lines),
            ];
            statements.extend(tables.into_iter().flat_map(|(table, rows)| insertions(table, rows)));
        }
    }

    /// Clause 2.4.
    fn new_order(&self, warehouse: usize, draw: &mut Draw, steps: &mut Steps<'_>) -> Result<(), Stop> {
        let (w, d) = (warehouse as i64, draw.within(1, DISTRICTS) as i64);
        let c = draw.non_uniform(1_023, self.customers - 1) as i64 + 1;
        let count = draw.within(5, 15);
        let is_wrong = draw.once_in(100);
        let mut lines: Vec<_> = (0..count)
            .map(|_| {
                let item = draw.non_uniform(8_191, self.items - 1) as i64 + 1;
                let supplier = if draw.once_in(100) { draw.within(1, self.warehouses) as i64 } else { w };
                (item, supplier, draw.within(1, 10) as i64)
            })
            .collect();
        if is_wrong {
            lines[count - 1].0 = -1;
        }
        let customer =
            "SELECT c_discount, c_last, c_credit FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
        steps.row(customer, values![w, d, c])?;
        steps.row("SELECT w_tax FROM warehouse WHERE w_id = $1", values![w])?;
        let next = "SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = $1 AND d_id = $2 FOR UPDATE";
        let order = integer(&steps.row(next, values![w, d])?[0]);
        let text = "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = $1 AND d_id = $2";
        steps.change(text, values![w, d])?;
        let is_local = i64::from(lines.iter().all(|(_, supplier, _)| *supplier == w));
        let text = "INSERT INTO oorder (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local)
            VALUES ($1, $2, $3, $4, $5, $6, $7)";
        steps.change(text, values![order, d, w, c, "2026-02-03 04:05:06", count as i64, is_local])?;
        steps.change("INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES ($1, $2, $3)", values![order, d, w])?;
        let (mut rows, mut values) = (Vec::new(), Vec::<Value>::new());
        for (number, (item, supplier, quantity)) in lines.into_iter().enumerate() {
            let price = steps.find("SELECT i_price, i_name, i_data FROM item WHERE i_id = $1", values![item])?;
            let Some(price) = price else { return Err(Stop::RolledBack) };
            let text = format!(
                "SELECT s_quantity, s_data, s_dist_{d:02} FROM stock WHERE s_i_id = $1 AND s_w_id = $2 FOR UPDATE"
            );
            let stock = steps.row(&text, values![item, supplier])?;
            let left = integer(&stock[0]) - quantity;
            let left = if left >= 10 { left } else { left + 91 };
            let text = "UPDATE stock SET s_quantity = $1, s_ytd = s_ytd + $2, s_order_cnt = s_order_cnt + 1,
                s_remote_cnt = s_remote_cnt + $3 WHERE s_i_id = $4 AND s_w_id = $5";
            steps.change(text, values![left, quantity, i64::from(supplier != w), item, supplier])?;
            let first = values.len() + 1;
            let places: Vec<_> = (first..first + 9).map(|at| format!("${at}")).collect();
            rows.push(format!("({})", places.join(", ")));
            let amount = cents((integer(&price[0].replace('.', "")) * quantity) as usize);
            values.extend_from_slice(values![
                order,
                d,
                w,
                number as i64 + 1,
                item,
                supplier,
                quantity,
                amount,
                stock[2].as_str()
            ]);
        }
        let names =
            "ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info";
        steps.change(&format!("INSERT INTO order_line ({names}) VALUES {}", rows.join(", ")), &values)?;
        Ok(())
    }

    /// Clause 2.5.
    fn payment(&self, warehouse: usize, draw: &mut Draw, steps: &mut Steps<'_>) -> Result<(), Stop> {
        let (w, d) = (warehouse as i64, draw.within(1, DISTRICTS) as i64);
        let is_remote = draw.below(100) >= 85;
        let cw = if is_remote { draw.within(1, self.warehouses) as i64 } else { w };
        let cd = if is_remote { draw.within(1, DISTRICTS) as i64 } else { d };
        let amount = cents(draw.within(100, 500_000));
        let text = "UPDATE warehouse SET w_ytd = w_ytd + $1 WHERE w_id = $2
            RETURNING w_street_1, w_street_2, w_city, w_state, w_zip, w_name";
        let of_warehouse = steps.row(text, values![&*amount, w])?;
        let text = "UPDATE district SET d_ytd = d_ytd + $1 WHERE d_w_id = $2 AND d_id = $3
            RETURNING d_street_1, d_street_2, d_city, d_state, d_zip, d_name";
        let of_district = steps.row(text, values![&*amount, w, d])?;
        let c = self.customer(cw, cd, draw, steps)?;
        let text = "SELECT c_first, c_middle, c_last, c_street_1, c_city, c_phone, c_credit, c_credit_lim, c_discount,
            c_balance, c_since FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
        let customer = steps.row(text, values![cw, cd, c])?;
        let change = "UPDATE customer SET c_balance = c_balance - $1, c_ytd_payment = c_ytd_payment + $1,
            c_payment_cnt = c_payment_cnt + 1";
        let key = "WHERE c_w_id = $2 AND c_d_id = $3 AND c_id = $4";
        if customer[6] == "BC" {
            let note = format!("{c} {cd} {cw} {d} {w} {amount} | ");
            let text = format!("{change}, c_data = substr($5 || c_data, 1, 500) {key} RETURNING c_data");
            steps.row(&text, values![&*amount, cw, cd, c, note])?;
        } else {
            steps.change(&format!("{change} {key}"), values![&*amount, cw, cd, c])?;
        }
        let text = "INSERT INTO history (h_c_d_id, h_c_w_id, h_c_id, h_d_id, h_w_id, h_date, h_amount, h_data)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
        let names = format!("{}    {}", of_warehouse[5], of_district[5]);
        steps.change(text, values![cd, cw, c, d, w, "2026-02-03 04:05:06", amount, names])?;
        Ok(())
    }

    /// Clause 2.6.
    fn order_status(&self, warehouse: usize, draw: &mut Draw, steps: &mut Steps<'_>) -> Result<(), Stop> {
        let (w, d) = (warehouse as i64, draw.within(1, DISTRICTS) as i64);
        let c = self.customer(w, d, draw, steps)?;
        let text =
            "SELECT c_balance, c_first, c_middle, c_last FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
        steps.row(text, values![w, d, c])?;
        let text = "SELECT o_id, o_carrier_id, o_entry_d FROM oorder WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3
            ORDER BY o_id DESC LIMIT 1";
        let order = integer(&steps.row(text, values![w, d, c])?[0]);
        let text = "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line
            WHERE ol_o_id = $1 AND ol_d_id = $2 AND ol_w_id = $3 ORDER BY ol_number";
        steps.rows(text, values![order, d, w])?;
        Ok(())
    }

    /// A customer, in six of ten cases the middle one of those with a last name.
    fn customer(&self, w: i64, d: i64, draw: &mut Draw, steps: &mut Steps<'_>) -> Result<i64, Stop> {
        if draw.below(100) >= 60 {
            return Ok(draw.non_uniform(1_023, self.customers - 1) as i64 + 1);
        }
        let name = last_name(draw.non_uniform(255, self.customers.min(1_000) - 1));
        let text =
            "SELECT c_id, c_first FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first";
        let rows: Rows = steps.rows(text, values![w, d, name])?;
        let middle = rows[(rows.len() - 1) / 2][0].as_deref();
        Ok(integer(middle.expect("a key is not NULL")))
    }
}

/// Clause 2.7.
fn deliver(warehouse: usize, draw: &mut Draw, steps: &mut Steps<'_>) -> Result<(), Stop> {
    let (w, carrier) = (warehouse as i64, draw.within(1, 10) as i64);
    for d in 1..=DISTRICTS as i64 {
        let text =
            "SELECT no_o_id FROM new_order WHERE no_d_id = $1 AND no_w_id = $2 ORDER BY no_o_id LIMIT 1 FOR UPDATE";
        let Some(oldest) = steps.find(text, values![d, w])? else { continue };
        let order = integer(&oldest[0]);
        let text = "DELETE FROM new_order WHERE no_o_id = $1 AND no_d_id = $2 AND no_w_id = $3";
        steps.change(text, values![order, d, w])?;
        let text = "SELECT o_c_id FROM oorder WHERE o_id = $1 AND o_d_id = $2 AND o_w_id = $3";
        let customer = integer(&steps.row(text, values![order, d, w])?[0]);
        let text = "UPDATE oorder SET o_carrier_id = $1 WHERE o_id = $2 AND o_d_id = $3 AND o_w_id = $4";
        steps.change(text, values![carrier, order, d, w])?;
        let text = "UPDATE order_line SET ol_delivery_d = $1 WHERE ol_o_id = $2 AND ol_d_id = $3 AND ol_w_id = $4";
        steps.change(text, values!["2026-02-03 04:05:06", order, d, w])?;
        let text =
            "SELECT sum(ol_amount) AS ol_total FROM order_line WHERE ol_o_id = $1 AND ol_d_id = $2 AND ol_w_id = $3";
        let total = steps.row(text, values![order, d, w])?.swap_remove(0);
        let text = "UPDATE customer SET c_balance = c_balance + $1, c_delivery_cnt = c_delivery_cnt + 1
            WHERE c_w_id = $2 AND c_d_id = $3 AND c_id = $4";
        steps.change(text, values![total, w, d, customer])?;
    }
    Ok(())
}

/// Clause 2.8.
fn stock_level(warehouse: usize, draw: &mut Draw, steps: &mut Steps<'_>) -> Result<(), Stop> {
    let (w, d) = (warehouse as i64, draw.within(1, DISTRICTS) as i64);
    let least = draw.within(10, 20) as i64;
    let text = "SELECT d_next_o_id FROM district WHERE d_w_id = $1 AND d_id = $2";
    let next = integer(&steps.row(text, values![w, d])?[0]);
    let text = "SELECT count(DISTINCT s_i_id) AS stock_count FROM order_line, stock
        WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id < $3 AND ol_o_id >= $4
        AND s_w_id = $5 AND s_i_id = ol_i_id AND s_quantity < $6";
    steps.row(text, values![w, d, next, next - 20, w, least])?;
    Ok(())
}

fn integer(text: &str) -> i64 {
    text.parse().expect("an integer")
}

/// So many cents in full units.
fn cents(cents: usize) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

/// A rate of up to so many ten-thousandths.
fn rate(draw: &mut Draw, most: usize) -> String {
    format!("0.{:04}", draw.within(0, most))
}

/// A name and an address.
fn place(draw: &mut Draw) -> String {
    let (name, one, other, city) =
        (letters(draw, 6, 10), letters(draw, 10, 20), letters(draw, 10, 20), letters(draw, 10, 20));
    format!("'{name}', '{one}', '{other}', '{city}', '{}', '{:04}11111'", letters(draw, 2, 2), draw.below(10_000))
}

/// Letters, in every tenth case with a word that the specification wants.
fn data(draw: &mut Draw) -> String {
    let mut data = letters(draw, 26, 50);
    if draw.once_in(10) {
        let at = draw.below(data.len() - 7);
        data.replace_range(at..at + 8, "ORIGINAL");
    }
    data
}

/// Clause 4.3.2.3.
fn last_name(number: usize) -> String {
    const SYLLABLES: [&str; 10] = ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
    [number / 100, number / 10 % 10, number % 10].map(|at| SYLLABLES[at % 10]).concat()
}

impl Draw {
    /// An integer up to `most`, some more often than others (clause 2.1.6).
    fn non_uniform(&mut self, mask: usize, most: usize) -> usize {
        ((self.within(0, mask) | self.within(0, most)) + 123) % (most + 1)
    }
}
