//! SmallBank: accounts with savings and checking, and six short transactions.

use super::{Steps, Stop, Suite, insertions, values};
use crate::draw::Draw;

/// The benchmark.
#[derive(Clone, Copy, Debug)]
pub struct SmallBank {
    /// How many customers there are.
    pub customers: usize,
}

const BALANCE: i64 = 10_000;

impl Suite for SmallBank {
    fn name(&self) -> &'static str {
        "smallbank"
    }

    fn definitions(&self) -> Vec<String> {
        [
            "CREATE TABLE accounts (custid bigint NOT NULL, name varchar(64) NOT NULL, CONSTRAINT pk_accounts PRIMARY KEY (custid))",
            "CREATE INDEX idx_accounts_name ON accounts (name)",
            "CREATE TABLE savings (custid bigint NOT NULL, bal bigint NOT NULL, PRIMARY KEY (custid), FOREIGN KEY (custid) REFERENCES accounts (custid))",
            "CREATE TABLE checking (custid bigint NOT NULL, bal bigint NOT NULL, PRIMARY KEY (custid), FOREIGN KEY (custid) REFERENCES accounts (custid))",
            // What has come from outside, so that the sum can be checked.
            "CREATE TABLE outside (amount bigint NOT NULL)",
        ]
        .map(str::to_owned)
        .to_vec()
    }

    fn contents(&self, _: &mut Draw) -> Vec<String> {
        let ids = 0..self.customers;
        let accounts: Vec<_> = ids.clone().map(|id| format!("({id}, '{id:064}')")).collect();
        let balances: Vec<_> = ids.map(|id| format!("({id}, {BALANCE})")).collect();
        let tables = [("accounts", &accounts), ("savings", &balances), ("checking", &balances)];
        tables.into_iter().flat_map(|(table, rows)| insertions(table, rows)).collect()
    }

    fn transact(&self, draw: &mut Draw, steps: &mut Steps<'_>) -> Result<(), Stop> {
        let (one, other) = (draw.below(self.customers), draw.below(self.customers));
        let amount = draw.within(1, 100) as i64;
        let kind = draw.below(6);
        let one = customer(steps, one)?;
        match kind {
            0 => {
                // Amalgamate.
                let other = customer(steps, other)?;
                let savings = balance(steps, "savings", one)?;
                let checking = balance(steps, "checking", one)?;
                steps.change("UPDATE checking SET bal = 0 WHERE custid = $1", values![one])?;
                steps.change("UPDATE savings SET bal = 0 WHERE custid = $1", values![one])?;
                let text = "UPDATE checking SET bal = bal + $1 WHERE custid = $2";
                steps.change(text, values![savings + checking, other])?;
            }
            1 => {
                // Balance.
                balance(steps, "savings", one)?;
                balance(steps, "checking", one)?;
            }
            2 => {
                // DepositChecking.
                steps.change("UPDATE checking SET bal = bal + $1 WHERE custid = $2", values![amount, one])?;
                steps.change("INSERT INTO outside VALUES ($1)", values![amount])?;
            }
            3 => {
                // SendPayment.
                let other = customer(steps, other)?;
                if balance(steps, "checking", one)? < amount {
                    return Err(Stop::RolledBack);
                }
                steps.change("UPDATE checking SET bal = bal - $1 WHERE custid = $2", values![amount, one])?;
                steps.change("UPDATE checking SET bal = bal + $1 WHERE custid = $2", values![amount, other])?;
            }
            4 => {
                // TransactSavings.
                if balance(steps, "savings", one)? < amount {
                    return Err(Stop::RolledBack);
                }
                steps.change("UPDATE savings SET bal = bal - $1 WHERE custid = $2", values![amount, one])?;
                steps.change("INSERT INTO outside VALUES ($1)", values![-amount])?;
            }
            _ => {
                // WriteCheck.
                let total = balance(steps, "savings", one)? + balance(steps, "checking", one)?;
                let charged = if total < amount { amount + 1 } else { amount };
                steps.change("UPDATE checking SET bal = bal - $1 WHERE custid = $2", values![charged, one])?;
                steps.change("INSERT INTO outside VALUES ($1)", values![-charged])?;
            }
        }
        Ok(())
    }

    fn conditions(&self) -> Vec<(&'static str, String)> {
        let there = "(SELECT sum(bal) FROM savings) + (SELECT sum(bal) FROM checking)";
        let come = format!("{} + (SELECT coalesce(sum(amount), 0) FROM outside)", 2 * BALANCE * self.customers as i64);
        vec![("money", format!("SELECT 1 WHERE {there} <> {come}"))]
    }
}

fn customer(steps: &mut Steps<'_>, number: usize) -> Result<i64, Stop> {
    let row = steps.row("SELECT custid FROM accounts WHERE name = $1", values![format!("{number:064}")])?;
    Ok(row[0].parse().expect("an integer"))
}

fn balance(steps: &mut Steps<'_>, table: &str, customer: i64) -> Result<i64, Stop> {
    let row = steps.row(&format!("SELECT bal FROM {table} WHERE custid = $1"), values![customer])?;
    Ok(row[0].parse().expect("an integer"))
}
