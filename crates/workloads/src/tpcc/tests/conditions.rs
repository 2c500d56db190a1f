//! Every condition fails when a row is tampered with that it looks at.

use polychron_engine::Operations;
use polychron_schema::{Decimal, Timestamp};

use super::*;
use crate::CheckError;
use crate::tpcc::schema::{History, Money, Tables, Undelivered};

/// An order that was loaded as delivered, and one that was not.
const DELIVERED: (u16, u8, u32) = (2, 2, 5);
const NEW: (u16, u8, u32) = (2, 2, 25);

fn more(amount: Money, units: i64) -> Money {
    Decimal::from_units(amount.units() + units)
}

/// The conditions that fail after a change, with and without transactions before it.
fn failing_after(mut change: impl FnMut(&mut Transaction<'_>, &Tables) -> Result<(), Error>) -> Vec<usize> {
    let mut loaded = load(&tiny(), 1);
    loaded.check();
    let tables = loaded.workload.tables;
    loaded.transact(|transaction| change(transaction, &tables));
    loaded.failing()
}

/// Changes a row that is there.
macro_rules! change {
    ($transaction:expr, $table:expr, $key:expr, |$row:ident| $change:expr) => {
        assert!($transaction.update(&$table, $key, |$row| $change)?)
    };
}

#[test]
fn condition_1_warehouse_is_the_sum_of_its_districts() {
    let failing = failing_after(|transaction, tables| {
        change!(transaction, tables.warehouse, 2, |row| row.set_year_to_date(more(row.year_to_date(), 1)));
        Ok(())
    });
    assert_eq!(failing, [1, 8]);
}

#[test]
fn condition_2_next_order_follows_the_last() {
    let failing = failing_after(|transaction, tables| {
        change!(transaction, tables.district, (2, 2), |row| row.set_next_order(row.next_order() + 1));
        Ok(())
    });
    assert_eq!(failing, [2]);
    let failing = failing_after(|transaction, tables| {
        change!(transaction, tables.district, (2, 2), |row| row.set_next_order(row.next_order() - 1));
        Ok(())
    });
    assert!(failing.contains(&2));
}

#[test]
fn condition_2_looks_at_new_orders_too() {
    let failing = failing_after(|transaction, tables| {
        transaction.insert(&tables.undelivered, &Undelivered { warehouse: 2, district: 2, order: 1_000_000 })
    });
    assert_eq!(failing, [2, 5, 11]);
}

#[test]
fn condition_3_new_orders_have_no_gap() {
    let failing = failing_after(|transaction, tables| {
        assert!(transaction.delete(&tables.undelivered, NEW)?);
        Ok(())
    });
    assert_eq!(failing, [3, 5, 11]);
}

#[test]
fn condition_4_lines_are_as_many_as_orders_state() {
    let failing = failing_after(|transaction, tables| {
        change!(transaction, tables.order, DELIVERED, |row| row.set_line_count(row.line_count() + 1));
        Ok(())
    });
    assert_eq!(failing, [4, 6]);
    let failing = failing_after(|transaction, tables| {
        assert!(transaction.delete(&tables.order_line, (2, 2, 5, 1))?);
        Ok(())
    });
    assert_eq!(failing, [4, 6]);
}

#[test]
fn condition_5_carrier_or_new_order() {
    let failing = failing_after(|transaction, tables| {
        change!(transaction, tables.order, NEW, |row| row.set_carrier(Some(3)));
        Ok(())
    });
    assert_eq!(failing, [5, 7]);
}

#[test]
fn condition_6_each_order_has_its_lines() {
    let failing = failing_after(|transaction, tables| {
        change!(transaction, tables.order, DELIVERED, |row| row.set_line_count(row.line_count() + 1));
        change!(transaction, tables.order, NEW, |row| row.set_line_count(row.line_count() - 1));
        Ok(())
    });
    assert_eq!(failing, [6]);
}

#[test]
fn condition_7_lines_are_delivered_with_their_order() {
    let failing = failing_after(|transaction, tables| {
        change!(transaction, tables.order_line, (2, 2, 5, 1), |row| row.set_delivered(None));
        Ok(())
    });
    assert_eq!(failing, [7]);
    let failing = failing_after(|transaction, tables| {
        change!(transaction, tables.order_line, (2, 2, 25, 1), |row| row.set_delivered(Some(Timestamp(1))));
        Ok(())
    });
    assert_eq!(failing, [7, 10, 12]);
}

#[test]
fn condition_8_warehouse_is_the_sum_of_its_payments() {
    let failing = failing_after(|transaction, tables| {
        change!(transaction, tables.warehouse, 2, |row| row.set_year_to_date(more(row.year_to_date(), 1)));
        change!(transaction, tables.district, (2, 2), |row| row.set_year_to_date(more(row.year_to_date(), 1)));
        Ok(())
    });
    assert_eq!(failing, [8, 9]);
}

#[test]
fn condition_9_district_is_the_sum_of_its_payments() {
    let failing = failing_after(|transaction, tables| {
        change!(transaction, tables.district, (2, 1), |row| row.set_year_to_date(more(row.year_to_date(), 1)));
        change!(transaction, tables.district, (2, 2), |row| row.set_year_to_date(more(row.year_to_date(), -1)));
        Ok(())
    });
    assert_eq!(failing, [9]);
}

#[test]
fn condition_10_balance_is_delivered_less_paid() {
    let failing = failing_after(|transaction, tables| {
        change!(transaction, tables.history, (2, History::LOADED, 3), |row| row.set_amount(more(row.amount(), 1)));
        change!(transaction, tables.history, (2, History::LOADED, 4), |row| row.set_amount(more(row.amount(), -1)));
        Ok(())
    });
    assert_eq!(failing, [10]);
    let failing = failing_after(|transaction, tables| {
        change!(transaction, tables.customer, (2, 2, 9), |row| row.set_balance(more(row.balance(), 1)));
        Ok(())
    });
    assert_eq!(failing, [10, 12]);
}

#[test]
fn condition_11_deliveries_are_counted() {
    let failing = failing_after(|transaction, tables| {
        change!(transaction, tables.customer, (2, 2, 9), |row| row.set_delivery_count(row.delivery_count() + 1));
        Ok(())
    });
    assert_eq!(failing, [11]);
}

#[test]
fn condition_12_balance_and_payments_are_what_was_delivered() {
    let failing = failing_after(|transaction, tables| {
        let customer = (2, 2, 9);
        change!(transaction, tables.customer, customer, |row| {
            row.set_year_to_date_payment(more(row.year_to_date_payment(), 1));
        });
        Ok(())
    });
    assert_eq!(failing, [12]);
}

#[test]
fn a_lost_payment_is_noticed() {
    let failing = failing_after(|transaction, tables| {
        assert!(transaction.delete(&tables.history, (1, History::LOADED, 0))?);
        Ok(())
    });
    assert_eq!(failing, [8, 9, 10]);
}

#[test]
fn a_lost_order_is_noticed() {
    let failing = failing_after(|transaction, tables| {
        assert!(transaction.delete(&tables.order, DELIVERED)?);
        Ok(())
    });
    assert_eq!(failing, [4, 6, 7, 11]);
}

#[test]
fn the_report_names_the_condition_and_the_rows() {
    let mut loaded = load(&tiny(), 1);
    let tables = loaded.workload.tables;
    loaded.transact(|transaction| {
        change!(transaction, tables.customer, (1, 3, 9), |row| row.set_delivery_count(7));
        Ok(())
    });
    match loaded.workload.check(&loaded.database) {
        Err(CheckError::Broken { condition, rows }) => {
            assert!(condition.starts_with("condition 11"), "{condition}");
            assert!(rows.contains("district 3 of warehouse 1"), "{rows}");
        }
        other => panic!("{other:?}"),
    }
}
