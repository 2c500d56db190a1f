use polychron_schema::Column;

#[derive(Column, Clone, Copy)]
struct Id<T>(u64, std::marker::PhantomData<T>);

fn main() {}
