//! TATP: subscribers of a telephone network, and seven transactions.

use super::{Steps, Stop, Suite, insertions, letters, values};
use crate::draw::Draw;

/// The benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Tatp {
    /// How many subscribers there are.
    pub subscribers: usize,
}

const DEFINITIONS: [&str; 4] = [
    "CREATE TABLE access_info (s_id integer NOT NULL, ai_type smallint NOT NULL, data1 smallint, data2 smallint,
        data3 varchar(3), data4 varchar(5), PRIMARY KEY (s_id, ai_type),
        FOREIGN KEY (s_id) REFERENCES subscriber (s_id) ON DELETE CASCADE)",
    "CREATE TABLE special_facility (s_id integer NOT NULL, sf_type smallint NOT NULL, is_active smallint NOT NULL,
        error_cntrl smallint, data_a smallint, data_b varchar(5), PRIMARY KEY (s_id, sf_type),
        FOREIGN KEY (s_id) REFERENCES subscriber (s_id) ON DELETE CASCADE)",
    "CREATE TABLE call_forwarding (s_id integer NOT NULL, sf_type smallint NOT NULL, start_time smallint NOT NULL,
        end_time smallint, numberx varchar(15), PRIMARY KEY (s_id, sf_type, start_time),
        FOREIGN KEY (s_id, sf_type) REFERENCES special_facility (s_id, sf_type) ON DELETE CASCADE)",
    "CREATE INDEX idx_cf ON call_forwarding (s_id)",
];

impl Suite for Tatp {
    fn name(&self) -> &'static str {
        "tatp"
    }

    fn definitions(&self) -> Vec<String> {
        let small =
            |name: &str, kind: &str| (1..=10).map(|at| format!("{name}_{at} {kind}")).collect::<Vec<_>>().join(", ");
        let subscriber = format!(
            "CREATE TABLE subscriber (s_id integer NOT NULL PRIMARY KEY, sub_nbr varchar(15) NOT NULL UNIQUE, {}, {}, {}, msc_location integer, vlr_location integer)",
            small("bit", "smallint"),
            small("hex", "smallint"),
            small("byte2", "smallint"),
        );
        std::iter::once(subscriber).chain(DEFINITIONS.map(str::to_owned)).collect()
    }

    fn contents(&self, draw: &mut Draw) -> Vec<String> {
        let [mut subscribers, mut accesses, mut facilities, mut forwardings] = [const { Vec::new() }; 4];
        for id in 1..=self.subscribers {
            let mut small =
                |below: usize| (0..10).map(|_| draw.below(below).to_string()).collect::<Vec<_>>().join(", ");
            let (bits, hexes, bytes) = (small(2), small(16), small(256));
            let (msc, vlr) = (draw.below(1 << 31), draw.below(1 << 31));
            subscribers.push(format!("({id}, '{}', {bits}, {hexes}, {bytes}, {msc}, {vlr})", number(id)));
            let count = draw.within(1, 4);
            for kind in draw.some(&[1, 2, 3, 4], count) {
                let (one, other) = (draw.below(256), draw.below(256));
                accesses.push(format!(
                    "({id}, {kind}, {one}, {other}, '{}', '{}')",
                    letters(draw, 3, 3),
                    letters(draw, 5, 5)
                ));
            }
            let count = draw.within(1, 4);
            for kind in draw.some(&[1, 2, 3, 4], count) {
                let active = i32::from(draw.below(100) < 85);
                let (one, other) = (draw.below(256), draw.below(256));
                facilities.push(format!("({id}, {kind}, {active}, {one}, {other}, '{}')", letters(draw, 5, 5)));
                let count = draw.below(4);
                for start in draw.some(&[0, 8, 16], count) {
                    let end = start + draw.within(1, 8);
                    forwardings.push(format!("({id}, {kind}, {start}, {end}, '{}')", number(draw.below(1 << 20))));
                }
            }
        }
        let tables = [
            ("subscriber", &subscribers),
            ("access_info", &accesses),
            ("special_facility", &facilities),
            ("call_forwarding", &forwardings),
        ];
        tables.into_iter().flat_map(|(table, rows)| insertions(table, rows)).collect()
    }

    fn transact(&self, draw: &mut Draw, steps: &mut Steps<'_>) -> Result<(), Stop> {
        let id = draw.within(1, self.subscribers) as i64;
        let kind = draw.within(1, 4) as i64;
        let start = *draw.one(&[0_i64, 8, 16]);
        match draw.below(100) {
            0..=34 => drop(steps.row("SELECT * FROM subscriber WHERE s_id = $1", values![id])?),
            35..=44 => {
                let text = "SELECT cf.numberx FROM special_facility sf, call_forwarding cf
                    WHERE sf.s_id = $1 AND sf.sf_type = $2 AND sf.is_active = 1 AND cf.s_id = sf.s_id
                    AND cf.sf_type = sf.sf_type AND cf.start_time <= $3 AND cf.end_time > $4 ORDER BY cf.numberx";
                let end = draw.within(1, 24) as i64;
                steps.rows(text, values![id, kind, start, end])?;
            }
            45..=79 => {
                let text = "SELECT data1, data2, data3, data4 FROM access_info WHERE s_id = $1 AND ai_type = $2";
                steps.find(text, values![id, kind])?;
            }
            80..=81 => {
                let bit = draw.below(2) as i64;
                steps.change("UPDATE subscriber SET bit_1 = $1 WHERE s_id = $2", values![bit, id])?;
                let text = "UPDATE special_facility SET data_a = $1 WHERE s_id = $2 AND sf_type = $3";
                if steps.change(text, values![draw.below(256) as i64, id, kind])? == 0 {
                    return Err(Stop::RolledBack);
                }
            }
            82..=95 => {
                let location = draw.below(1 << 31) as i64;
                let text = "UPDATE subscriber SET vlr_location = $1 WHERE sub_nbr = $2";
                steps.change(text, values![location, number(id as usize)])?;
            }
            96..=97 => {
                let text = "SELECT s_id FROM subscriber WHERE sub_nbr = $1";
                let found = steps.row(text, values![number(id as usize)])?;
                steps.rows("SELECT sf_type FROM special_facility WHERE s_id = $1 ORDER BY 1", values![&*found[0]])?;
                let (end, forward) = (start + draw.within(1, 8) as i64, number(draw.below(1 << 20)));
                let text = "INSERT INTO call_forwarding (s_id, sf_type, start_time, end_time, numberx) VALUES ($1, $2, $3, $4, $5)";
                steps.change(text, values![id, kind, start, end, forward])?;
            }
            _ => {
                let found =
                    steps.row("SELECT s_id FROM subscriber WHERE sub_nbr = $1", values![number(id as usize)])?;
                let text = "DELETE FROM call_forwarding WHERE s_id = $1 AND sf_type = $2 AND start_time = $3";
                steps.change(text, values![&*found[0], kind, start])?;
            }
        }
        Ok(())
    }

    /// An insertion may find its row, or no facility.
    fn permits(&self, code: &str) -> bool {
        matches!(code, "23505" | "23503")
    }

    fn conditions(&self) -> Vec<(&'static str, String)> {
        let orphans = "SELECT cf.s_id FROM call_forwarding cf LEFT JOIN special_facility sf USING (s_id, sf_type) WHERE sf.s_id IS NULL";
        let count = format!("SELECT count(*) FROM subscriber HAVING count(*) <> {}", self.subscribers);
        vec![("facilities of forwardings", orphans.into()), ("subscribers", count)]
    }
}

fn number(id: usize) -> String {
    format!("{id:015}")
}
