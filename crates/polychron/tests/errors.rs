//! What callers meet when something is refused: their own error types, and messages that tell all when the database is gone.

use polychron::{Database, Error, Operations, Row, Table};

#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "customer")]
struct Customer {
    #[key]
    #[column(max = 40)]
    name: String,
    #[key]
    branch: u32,
    credit: u64,
    #[column(max = 12)]
    note: Option<String>,
}

#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "order")]
#[index(name = "by_slip", columns(slip), unique)]
#[index(name = "by_customer", columns(customer, branch))]
#[references(row = Customer, columns(customer, branch))]
struct Order {
    #[key]
    id: u64,
    customer: String,
    branch: u32,
    slip: Option<String>,
}

fn customer(name: &str) -> Customer {
    Customer { name: name.into(), branch: 7, credit: 10, note: None }
}

fn shop() -> (Database, Table<Customer>, Table<Order>) {
    let database = Database::in_memory().unwrap();
    let (customers, orders) = (database.create_table().unwrap(), database.create_table().unwrap());
    database.transact(|t| t.insert(&customers, &customer("Ada\n"))).unwrap();
    (database, customers, orders)
}

/// The error of a transaction, when the database is gone.
fn refused<O: std::fmt::Debug>(
    act: impl Fn(&Database, &Table<Customer>, &Table<Order>) -> Result<O, Error>,
) -> (Error, String) {
    let (database, customers, orders) = shop();
    let error = act(&database, &customers, &orders).unwrap_err();
    drop(database);
    let text = error.to_string();
    (error, text)
}

#[test]
fn text_that_is_too_long_is_reported_alike_everywhere() {
    let expected = "customer.note holds at most 12 bytes, and 13 were given";
    let long = "thirteen more";
    let row = || Customer { note: Some(long.into()), ..customer("Ada\n") };
    let key = || ("Ada\n", 7);
    for (error, text) in [
        refused(|database, table, _| database.transact(|t| t.insert(table, &row()))),
        refused(|database, table, _| database.transact(|t| t.upsert(table, &row()))),
        refused(|database, table, _| database.transact(|t| t.update(table, key(), |row| row.set_note(Some(long))))),
    ] {
        assert_eq!(text, expected);
        assert!(matches!(error, Error::TooLong(details) if (details.bytes, details.limit) == (13, 12)));
    }
}

#[test]
fn duplicates_are_reported_by_name() {
    let (_, text) = refused(|database, customers, _| database.transact(|t| t.insert(customers, &customer("Ada\n"))));
    assert_eq!(text, r"duplicate key (name, branch)=(Ada\n, 7) in customer");

    let order = |id, slip: &str| Order { id, customer: "Ada\n".into(), branch: 7, slip: Some(slip.into()) };
    let expected = "duplicate key (slip)=(A-1) in order.by_slip";
    for (error, text) in [
        refused(|database, _, orders| {
            database.transact(|t| [1, 2].into_iter().try_for_each(|id| t.insert(orders, &order(id, "A-1"))))
        }),
        refused(|database, _, orders| {
            database.transact(|t| {
                t.insert(orders, &order(1, "A-1"))?;
                t.insert(orders, &order(2, "A-2"))?;
                t.upsert(orders, &order(2, "A-1"))
            })
        }),
        refused(|database, _, orders| {
            database.transact(|t| {
                t.insert(orders, &order(1, "A-1"))?;
                t.insert(orders, &order(2, "A-2"))?;
                t.update_columns(orders, 2, Order::SLIP, |row| row.set_slip(Some("A-1")))
            })
        }),
    ] {
        assert_eq!(text, expected);
        assert!(matches!(error, Error::Duplicate(details) if details.key.index.as_deref() == Some("by_slip")));
    }
}

/// The ids of indexes stay when others are dropped, and names follow the ids.
#[test]
fn duplicates_in_later_indexes_are_reported_by_name() {
    let (database, customers, _) = shop();
    let index = |name: &str, column| {
        let mut definition = polychron::schema::IndexDefinition::new(name, [column]);
        definition.unique = true;
        database.create_index_with(customers.id(), definition)
    };
    let first = index("by_note", 3).unwrap();
    index("by_credit", 2).unwrap();
    database.drop_index(customers.id(), first).unwrap();
    let error = database.transact(|t| t.insert(&customers, &customer("Eve"))).unwrap_err();
    assert_eq!(error.to_string(), "duplicate key (credit)=(10) in customer.by_credit");
    database.transact(|t| t.insert(&customers, &Customer { credit: 11, ..customer("Eve") })).unwrap();
    let error = database.transact(|t| t.update(&customers, ("Eve", 7), |row| row.set_credit(10))).unwrap_err();
    assert_eq!(error.to_string(), "duplicate key (credit)=(10) in customer.by_credit");
}

#[test]
fn foreign_keys_are_reported_by_name() {
    let order = |customer: &str| Order { id: 1, customer: customer.into(), branch: 7, slip: None };
    let (error, text) = refused(|database, _, orders| database.transact(|t| t.insert(orders, &order("B\tb"))));
    assert_eq!(text, r"order (customer, branch) refers to customer (name, branch)=(B\tb, 7), which does not exist");
    assert!(matches!(error, Error::NoParent(details) if details.reference.values == ["B\tb", "7"]));

    let (error, text) = refused(|database, customers, orders| {
        database.transact(|t| {
            t.insert(orders, &order("Ada\n"))?;
            t.delete(customers, ("Ada\n", 7))
        })
    });
    assert_eq!(text, r"order (customer, branch) refers to customer (name, branch)=(Ada\n, 7), which cannot go");
    assert!(matches!(error, Error::HasChildren(details) if details.reference.child == "order"));
}

/// An error of the caller's own.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{name} has {credit} left")]
struct Broke {
    name: String,
    credit: u64,
}

#[test]
fn anyhow_is_a_caller_s_error_type() {
    let (database, customers, _) = shop();
    let pay = |amount: u64| -> anyhow::Result<bool> {
        database.transact(|t| {
            t.update(&customers, ("Ada\n", 7), |row| {
                row.set_note(Some("pays"))?;
                let credit = row.credit();
                let left = credit.checked_sub(amount).ok_or_else(|| Broke { name: row.name().into(), credit })?;
                row.set_credit(left);
                anyhow::Ok(())
            })
        })
    };
    let of_caller = pay(11).unwrap_err();
    assert_eq!(of_caller.downcast::<Broke>().unwrap(), Broke { name: "Ada\n".into(), credit: 10 });
    let row = |key| database.transact(|t| t.get_owned(&customers, key)).unwrap();
    assert_eq!(row(("Ada\n", 7)), Some(customer("Ada\n")), "nothing is left of what failed");
    assert!(pay(4).unwrap());
    assert_eq!(row(("Ada\n", 7)).map(|row| (row.credit, row.note)), Some((6, Some("pays".into()))));

    let of_engine: anyhow::Result<()> = database.transact(|t| Ok(t.insert(&customers, &customer("Ada\n"))?));
    assert!(matches!(of_engine.unwrap_err().downcast::<Error>(), Ok(Error::Duplicate(_))));
}
