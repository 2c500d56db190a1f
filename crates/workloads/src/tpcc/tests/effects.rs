//! What each transaction does to the rows.

use polychron_engine::{Operations, Row};
use polychron_schema::{Decimal, FixedString, Timestamp};

use super::*;
use crate::tpcc::procedures::{CustomerChoice, TpccProcedure};
use crate::tpcc::random::last_name;
use crate::tpcc::schema::{Customer, Rate};

#[test]
fn new_order_enters_an_order_and_takes_from_the_stock() {
    new_order_has_its_effects(false);
    new_order_has_its_effects(true);
}

fn new_order_has_its_effects(futures: bool) {
    let mut loaded = load(&TpccOptions { remote_item_percent: 50, talk: talk(futures), ..tiny() }, 1);
    let tables = loaded.workload.tables;
    let mut client = loaded.workload.client(1, 0, 2);
    let mut order = client.new_order();
    order.lines[0].item = 17;
    // A repeated item is taken twice.
    order.lines[1] = order.lines[0];
    order.line_count = 5;
    order.lines[4].item = 18;
    loaded.transact(|transaction| {
        let original = FixedString::truncated("some ORIGINAL text");
        assert!(transaction.update(&tables.item, 17, |row| row.set_data(&original))?);
        assert!(transaction.update(&tables.stock, (order.lines[0].supplier, 17), |row| row.set_data(&original))?);
        Ok(())
    });
    let before = loaded.transact(|transaction| {
        transaction.get(&tables.stock, (order.lines[0].supplier, 17)).map(|row| {
            let row = row.expect("stock");
            (row.quantity(), row.year_to_date(), row.order_count())
        })
    });
    loaded.execute(&mut order);
    assert_eq!(order.order, 31);
    loaded.transact(|transaction| {
        let key = (order.warehouse, order.district);
        assert_eq!(transaction.get(&tables.district, key)?.expect("district").next_order(), 32);
        let key = (order.warehouse, order.district, 31);
        let row = transaction.get(&tables.order, key)?.expect("order");
        assert_eq!((row.customer(), row.carrier(), row.line_count()), (order.customer, None, 5));
        assert_eq!((row.all_local(), row.entered()), (order.all_local, order.entered));
        assert!(transaction.get(&tables.undelivered, key)?.is_some());
        let mut sum = 0;
        for (number, line) in (1..).zip(&order.lines[..5]) {
            let price = transaction.get(&tables.item, line.item)?.expect("item").price();
            let stock = transaction.get(&tables.stock, (line.supplier, line.item))?.expect("stock");
            let info =
                *[stock.district_01(), stock.district_02(), stock.district_03()][usize::from(order.district) - 1];
            let key = (order.warehouse, order.district, 31, number);
            let row = transaction.get(&tables.order_line, key)?.expect("line");
            assert_eq!((row.item(), row.supplier(), row.quantity()), (line.item, line.supplier, line.quantity));
            assert_eq!(row.amount().units(), price.units() * i64::from(line.quantity));
            assert_eq!((row.delivered(), *row.district_info()), (None, info));
            sum += row.amount().units();
        }
        let mut generic = 0;
        for (position, line) in order.lines[..5].iter().enumerate() {
            let item = transaction.get(&tables.item, line.item)?.expect("item").data().as_str().contains("ORIGINAL");
            let stock = transaction.get(&tables.stock, (line.supplier, line.item))?.expect("stock");
            generic |= u16::from(item && stock.data().as_str().contains("ORIGINAL")) << position;
        }
        assert_eq!((order.generic, generic & 0b11), (generic, 0b11));
        let key = (order.warehouse, order.district, order.customer);
        let discount = transaction.get(&tables.customer, key)?.expect("customer").discount().to_f64();
        let warehouse = transaction.get(&tables.warehouse, order.warehouse)?.expect("warehouse").tax().to_f64();
        let key = (order.warehouse, order.district);
        let district = transaction.get(&tables.district, key)?.expect("district").tax().to_f64();
        let total = sum as f64 * (1.0 - discount) * (1.0 + warehouse + district);
        assert!((total - order.total.units() as f64).abs() <= 0.51, "{total} is not {}", order.total);
        let line = order.lines[0];
        let row = transaction.get(&tables.stock, (line.supplier, 17))?.expect("stock");
        let taken = i16::from(line.quantity);
        let mut quantity = before.0;
        for _ in 0..2 {
            quantity = if quantity >= taken + 10 { quantity - taken } else { quantity - taken + 91 };
        }
        assert_eq!(row.quantity(), quantity);
        assert_eq!(row.year_to_date(), before.1 + 2 * u32::from(line.quantity));
        assert_eq!(row.order_count(), before.2 + 2);
        assert_eq!(row.remote_count(), if line.supplier == order.warehouse { 0 } else { 2 });
        Ok(())
    });
    loaded.check();
}

#[test]
fn an_unused_item_leaves_nothing_behind() {
    let mut loaded = load(&tiny(), 1);
    let tables = loaded.workload.tables;
    let mut client = loaded.workload.client(1, 0, 2);
    let mut order = client.new_order();
    order.lines[usize::from(order.line_count) - 1].item = Scale::tiny().items + 1;
    assert!(matches!(loaded.worker.execute(&mut order), Err(Error::RolledBack)));
    loaded.transact(|transaction| {
        let key = (order.warehouse, order.district);
        assert_eq!(transaction.get(&tables.district, key)?.expect("district").next_order(), 31);
        assert!(transaction.get(&tables.order, (order.warehouse, order.district, 31))?.is_none());
        let line = order.lines[0];
        let stock = transaction.get(&tables.stock, (line.supplier, line.item))?.expect("stock");
        assert_eq!((stock.order_count(), stock.year_to_date()), (0, 0));
        Ok(())
    });
    loaded.check();
}

/// Balance, payments and their number, and data of a customer.
fn account(loaded: &mut Loaded, key: (u16, u8, u32)) -> (i64, i64, u32, FixedString<500>) {
    let tables = loaded.workload.tables;
    loaded.transact(|transaction| {
        let row = transaction.get(&tables.customer, key)?.expect("customer");
        let (balance, paid) = (row.balance().units(), row.year_to_date_payment().units());
        Ok((balance, paid, row.payment_count(), *row.data()))
    })
}

#[test]
fn payment_moves_money() {
    payment_has_its_effects(false);
    payment_has_its_effects(true);
}

fn payment_has_its_effects(futures: bool) {
    let mut loaded = load(&TpccOptions { talk: talk(futures), ..tiny() }, 1);
    let tables = loaded.workload.tables;
    let mut client = loaded.workload.client(1, 0, 2);
    for credit in ["GC", "BC"] {
        let mut payment = client.payment();
        (payment.customer_warehouse, payment.customer_district) = (2, 3);
        payment.customer = CustomerChoice::Id(12);
        loaded.transact(|transaction| {
            let credit = FixedString::truncated(credit);
            transaction.update(&tables.customer, (2, 3, 12), |row| row.set_credit(&credit)).map(drop)
        });
        let before = account(&mut loaded, (2, 3, 12));
        loaded.execute(&mut payment);
        let after = account(&mut loaded, (2, 3, 12));
        let amount = payment.amount.units();
        assert_eq!((after.0, after.1, after.2), (before.0 - amount, before.1 + amount, before.2 + 1));
        assert_eq!((payment.customer_id, payment.customer_balance.units()), (12, after.0));
        if credit == "GC" {
            assert_eq!(after.3, before.3);
        } else {
            let note = format!("12 3 2 {} {} {amount}|{}", payment.district, payment.warehouse, before.3.as_str());
            assert_eq!(after.3, FixedString::truncated(&note));
        }
        loaded.transact(|transaction| {
            let warehouse = *transaction.get(&tables.warehouse, 1)?.expect("warehouse").name();
            let district = *transaction.get(&tables.district, (1, payment.district))?.expect("district").name();
            let key = (1, payment.history.0, payment.history.1);
            let row = transaction.get(&tables.history, key)?.expect("history");
            assert_eq!((row.amount(), row.date(), row.district()), (payment.amount, payment.date, payment.district));
            assert_eq!((row.customer_warehouse(), row.customer_district(), row.customer()), (2, 3, 12));
            assert_eq!(row.data().as_str(), format!("{}    {}", warehouse.as_str(), district.as_str()));
            Ok(())
        });
        loaded.check();
    }
}

#[test]
fn customers_are_found_in_the_middle_of_their_namesakes() {
    // With few and with more namesakes than are kept in one pass.
    for namesakes in [1u32, 2, 5, 100] {
        let mut loaded = load(&tiny(), 1);
        let tables = loaded.workload.tables;
        let last = last_name(999);
        let template = loaded.transact(|transaction| {
            Ok(Customer::from_ref(transaction.get(&tables.customer, (1, 1, 1))?.expect("customer")))
        });
        loaded.transact(|transaction| {
            for number in 0..namesakes {
                // First names in another order than numbers.
                let first = FixedString::truncated(&format!("{:03}", (number * 37) % 101));
                let row = Customer { id: 1000 + number, first, last, ..template.clone() };
                transaction.insert(&tables.customer, &row)?;
            }
            Ok(())
        });
        let mut names: Vec<_> = (0..namesakes).map(|number| ((number * 37) % 101, 1000 + number)).collect();
        names.sort_unstable();
        let middle = names[namesakes.div_ceil(2) as usize - 1].1;
        let mut payment = loaded.workload.client(1, 0, 2).payment();
        (payment.customer_warehouse, payment.customer_district) = (1, 1);
        payment.customer = CustomerChoice::Last(last);
        loaded.execute(&mut payment);
        assert_eq!(payment.customer_id, middle);
    }
}

#[test]
fn order_status_shows_the_latest_order() {
    let mut loaded = load(&tiny(), 1);
    let mut client = loaded.workload.client(1, 0, 2);
    let mut order = client.new_order();
    loaded.execute(&mut order);
    let mut status = client.order_status();
    (status.district, status.customer) = (order.district, CustomerChoice::Id(order.customer));
    loaded.execute(&mut status);
    assert_eq!(status.order, Some((order.order, order.entered, None)));
    assert_eq!(status.line_count, usize::from(order.line_count));
    for (shown, line) in status.lines.iter().zip(&order.lines[..status.line_count]) {
        assert_eq!((shown.item, shown.supplier, shown.quantity), (line.item, line.supplier, line.quantity));
    }
}

#[test]
fn delivery_sends_the_oldest_orders_until_there_are_none() {
    let mut loaded = load(&tiny(), 1);
    let tables = loaded.workload.tables;
    let mut client = loaded.workload.client(1, 0, 2);
    let first = Scale::tiny().orders - Scale::tiny().undelivered + 1;
    let customer =
        loaded.transact(|transaction| Ok(transaction.get(&tables.order, (1, 1, first))?.expect("order").customer()));
    let before = account(&mut loaded, (1, 1, customer));
    let mut delivery = client.delivery();
    loaded.execute(&mut delivery);
    assert_eq!(delivery.delivered, Scale::tiny().districts);
    assert_eq!(delivery.search_next[..3], [first + 1; 3]);
    let amount = loaded.transact(|transaction| {
        for district in 1..=Scale::tiny().districts {
            assert!(transaction.get(&tables.undelivered, (1, district, first))?.is_none());
            let order = transaction.get(&tables.order, (1, district, first))?.expect("order");
            assert_eq!(order.carrier(), Some(delivery.carrier));
        }
        let lines = transaction.scan(&tables.order_line, (1, 1, first, 0)..=(1, 1, first, u8::MAX)).rows()?;
        assert!(lines.iter().all(|line| line.delivered == Some(delivery.date)));
        assert_eq!(transaction.get(&tables.customer, (1, 1, customer))?.expect("customer").delivery_count(), 1);
        Ok(lines.iter().map(|line| line.amount.units()).sum::<i64>())
    });
    assert_eq!(account(&mut loaded, (1, 1, customer)).0, before.0 + amount);
    loaded.check();

    client.finished(&TpccProcedure::Delivery(delivery));
    for remaining in (0..Scale::tiny().undelivered).rev() {
        let mut delivery = client.delivery();
        assert_eq!(delivery.search_from[0], Scale::tiny().orders + 1 - remaining);
        loaded.execute(&mut delivery);
        assert_eq!(delivery.delivered, if remaining > 0 { Scale::tiny().districts } else { 0 });
        client.finished(&TpccProcedure::Delivery(delivery));
    }
    loaded.check();
}

#[test]
fn stock_level_counts_distinct_low_items() {
    let mut loaded = load(&tiny(), 1);
    let tables = loaded.workload.tables;
    let mut level = loaded.workload.client(1, 0, 2).stock_level();
    loaded.execute(&mut level);
    let expected = loaded.transact(|transaction| {
        let lines =
            transaction.scan(&tables.order_line, (1, level.district, 11, 0)..(1, level.district, 31, 0)).rows()?;
        let items: std::collections::BTreeSet<u32> = lines.iter().map(|line| line.item).collect();
        let mut low = 0;
        for item in items {
            let stock = transaction.get(&tables.stock, (1, item))?.expect("stock");
            low += u32::from(stock.quantity() < level.threshold);
        }
        Ok(low)
    });
    assert_eq!(level.low, expected);
    level.threshold = i16::MAX;
    loaded.execute(&mut level);
    assert!(level.low > 30, "{}", level.low);
}

#[test]
fn the_top_customer_is_rewarded() {
    let mut loaded = load(&tiny(), 1);
    let tables = loaded.workload.tables;
    loaded.transact(|transaction| {
        let credits = [(4, "GC", 500), (5, "BC", 900), (6, "GC", 700)];
        for (customer, credit, balance) in credits {
            let credit = FixedString::truncated(credit);
            assert!(transaction.update(&tables.customer, (1, 2, customer), |row| {
                row.set_credit(&credit);
                row.set_balance(Decimal::from_units(balance));
            })?);
        }
        Ok(())
    });
    let mut top = loaded.workload.client(1, 0, 2).top_customer();
    top.district = 2;
    loaded.execute(&mut top);
    assert_eq!(top.top, Some((Decimal::from_units(700), 6)));
    loaded.transact(|transaction| {
        let limit = transaction.get(&tables.customer, (1, 2, 6))?.expect("customer").credit_limit();
        assert_eq!(limit, Decimal::from_units(5_000_100));
        Ok(())
    });
}

#[test]
fn what_is_loaded_has_the_specified_shape() {
    let mut loaded = load(&TpccOptions { scale: Scale { items: 2_000, ..Scale::tiny() }, ..tiny() }, 2);
    let tables = loaded.workload.tables;
    loaded.transact(|transaction| {
        let (mut original, mut dates) = (0, std::collections::BTreeSet::new());
        for item in 1..=2_000 {
            let row = transaction.get(&tables.item, item)?.expect("item");
            assert!((100..=10_000).contains(&row.price().units()) && (14..=24).contains(&row.name().as_str().len()));
            original += u32::from(row.data().as_str().contains("ORIGINAL"));
            let stock = transaction.get(&tables.stock, (2, item))?.expect("stock");
            assert!((10..=100).contains(&stock.quantity()) && stock.district_10().as_str().len() == 24);
        }
        assert!((140..270).contains(&original), "{original}");
        let mut customers = Vec::new();
        for id in 1..=30 {
            let row = transaction.get(&tables.order, (2, 3, id))?.expect("order");
            assert_eq!(row.carrier().is_none(), id > 21);
            customers.push(row.customer());
            dates.insert(row.entered());
            let customer = transaction.get(&tables.customer, (2, 3, id))?.expect("customer");
            assert_eq!(*customer.last(), last_name(id - 1));
            assert!(customer.discount() <= Rate::from_units(5_000) && customer.data().as_str().len() >= 300);
        }
        assert!(dates.len() == 30 && dates.iter().all(|date| *date < Timestamp(1 << 50)));
        assert_ne!(customers, (1..=30).collect::<Vec<_>>());
        customers.sort_unstable();
        assert_eq!(customers, (1..=30).collect::<Vec<_>>());
        Ok(())
    });
}
