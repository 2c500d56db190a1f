//! A crate that depends on the library `polychron` alone can derive rows: this one does not name `polychron-schema`.

use polychron::{Database, Operations, Row};

#[derive(Row, Clone, Debug, PartialEq)]
#[index(name = "by_name", columns(name))]
struct City {
    #[key]
    id: u32,
    name: String,
    mayor: Option<String>,
}

#[test]
fn rows_are_derived_through_the_library() {
    let database = Database::in_memory().unwrap();
    let cities = database.create_table::<City>().unwrap();
    let city = City { id: 1, name: "Oslo".to_owned(), mayor: None };
    database.transact(|transaction| transaction.insert(&cities, &city)).unwrap();
    assert_eq!(database.transact(|transaction| transaction.scan(&cities, ..).rows()).unwrap(), [city]);
}
