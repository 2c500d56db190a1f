//! YCSB: one table with a key and ten texts.

use super::{Steps, Stop, Suite, insertions, letters, values};
use crate::draw::Draw;

/// The benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Ycsb {
    /// How many rows are loaded.
    pub rows: usize,
}

const FIELDS: usize = 10;

impl Suite for Ycsb {
    fn name(&self) -> &'static str {
        "ycsb"
    }

    fn definitions(&self) -> Vec<String> {
        let fields: Vec<_> = (1..=FIELDS).map(|at| format!("field{at} text")).collect();
        vec![format!("CREATE TABLE usertable (ycsb_key int PRIMARY KEY, {})", fields.join(", "))]
    }

    fn contents(&self, draw: &mut Draw) -> Vec<String> {
        let rows: Vec<_> = (0..self.rows).map(|key| format!("({key}, {})", fields(draw).join(", "))).collect();
        insertions("usertable", &rows)
    }

    fn transact(&self, draw: &mut Draw, steps: &mut Steps<'_>) -> Result<(), Stop> {
        let key = draw.below(self.rows) as i64;
        match draw.below(12) {
            0..=3 => drop(steps.find("SELECT * FROM usertable WHERE ycsb_key = $1", values![key])?),
            4 | 5 => {
                let names: Vec<_> = (1..=FIELDS).map(|at| format!("field{at} = ${at}")).collect();
                let text = format!("UPDATE usertable SET {} WHERE ycsb_key = ${}", names.join(", "), FIELDS + 1);
                let mut values: Vec<_> = (0..FIELDS).map(|_| letters(draw, 20, 100).into()).collect();
                values.push(key.into());
                steps.change(&text, &values)?;
            }
            6 | 7 => {
                let last = key + draw.within(1, 50) as i64;
                let text = "SELECT * FROM usertable WHERE ycsb_key > $1 AND ycsb_key < $2 ORDER BY ycsb_key";
                steps.rows(text, values![key, last])?;
            }
            8 | 9 => {
                let text = "SELECT * FROM usertable WHERE ycsb_key = $1 FOR UPDATE";
                if let Some(row) = steps.find(text, values![key])? {
                    let text = "UPDATE usertable SET field1 = $1, field2 = $2 WHERE ycsb_key = $3";
                    steps.change(text, values![row[2].as_str(), row[1].as_str(), key])?;
                }
            }
            10 => drop(steps.change("DELETE FROM usertable WHERE ycsb_key = $1", values![key])?),
            _ => {
                let text = format!("INSERT INTO usertable VALUES ({key}, {})", fields(draw).join(", "));
                steps.change(&format!("{text} ON CONFLICT (ycsb_key) DO NOTHING"), &[])?;
            }
        }
        Ok(())
    }

    fn conditions(&self) -> Vec<(&'static str, String)> {
        let whole = (1..=FIELDS).map(|at| format!("field{at} IS NULL")).collect::<Vec<_>>().join(" OR ");
        vec![("rows are whole", format!("SELECT ycsb_key FROM usertable WHERE {whole}"))]
    }
}

fn fields(draw: &mut Draw) -> Vec<String> {
    (0..FIELDS).map(|_| format!("'{}'", letters(draw, 20, 100))).collect()
}
