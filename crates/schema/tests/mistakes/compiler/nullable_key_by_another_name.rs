use polychron_schema::Row;

type Maybe = Option<u64>;

#[derive(Row)]
struct Account {
    #[key]
    id: Maybe,
}

fn main() {}
