//! Rules of a layer above the engine: every write is held to them that the layer does not make itself, and what is refused leaves nothing.

use std::ops::ControlFlow;
use std::sync::Arc;

use polychron_base::Error;
use polychron_engine::write_rules::obeying;
use polychron_engine::{
    Becomes, Futures, Interactive, Operations, Projection, Protocol, RowBuffer, RowRef, Scan, Table, Transaction,
    WriteRules,
};
use polychron_schema::{KeyExtractor, KeyScratch, Layout, Row, Value, build_row, set_value};

use crate::Setup;
use crate::rows::Item;
use crate::setup::{Tx, all, items, run};

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refused(&'static str);

/// Values are not negative, and no row goes.
#[derive(Debug)]
struct NotNegative(Layout);

impl WriteRules for NotNegative {
    fn check_row(&self, row: RowRef<'_>) -> Result<(), Error> {
        let Value::Integer(value) = row.value(&self.0, 1) else { panic!("the second column is a number") };
        if value < 0 { Err(Error::other(Refused("negative"))) } else { Ok(()) }
    }

    fn check_deletion(&self) -> Result<(), Error> {
        Err(Error::other(Refused("deleted")))
    }
}

polychron_engine::named! {
    /// How a row gets a value, or goes.
    enum Write {
        Insert, Upsert, UpsertNew, Update, InsertBytes, PutBytes, UpdateBytes, SetFuture, SetFutureAgain, SetFutureAt,
        InsertFuture, Delete, DeleteBytes,
    }
}

impl Write {
    fn is_deletion(self) -> bool {
        matches!(self, Self::Delete | Self::DeleteBytes)
    }

    /// Row 1 is there, and row 3 is not.
    fn is_of_new_row(self) -> bool {
        matches!(self, Self::Insert | Self::UpsertNew | Self::InsertBytes | Self::InsertFuture)
    }

    fn run<T: Transaction>(self, t: &mut T, table: &Table<Item>, value: i64) -> Result<(), Error> {
        let id = if self.is_of_new_row() { 3 } else { 1 };
        let row = Item { id, value };
        let definition = Item::definition();
        let layout = definition.layout()?;
        let (mut bytes, mut scratch) = (RowBuffer::new(), KeyScratch::new());
        build_row(&layout, &[Value::Unsigned(id), Value::Integer(value)], &mut bytes)?;
        let key = KeyExtractor::primary(&definition)?.extract(bytes.as_row(), &mut scratch)?.to_vec();
        match self {
            Self::Insert => t.insert(table, &row),
            Self::Upsert | Self::UpsertNew => t.upsert(table, &row),
            Self::Update => t.update(table, id, |row| row.set_value(value)).map(drop),
            Self::InsertBytes => t.insert_row(table.id(), key.as_slice(), bytes.as_row()).map(drop),
            Self::PutBytes => t.put_row(table.id(), key.as_slice(), bytes.as_row()).map(drop),
            Self::UpdateBytes => t
                .update_row(table.id(), key.as_slice(), &Projection::ALL, |row| {
                    set_value(row, &layout, 1, &Value::Integer(value)).map_err(Error::from)
                })
                .map(drop),
            Self::SetFuture => {
                let other = t.future(table, 2, Item::VALUE)?;
                t.set_future(table, id, Item::VALUE, other - 5 + value)
            }
            Self::SetFutureAgain => {
                let own = t.future(table, id, Item::VALUE)?;
                t.set_future(table, id, Item::VALUE, own + 1)?;
                let own = t.future(table, id, Item::VALUE)?;
                t.set_future(table, id, Item::VALUE, own - 5 + value)
            }
            // The key is a future, too.
            Self::SetFutureAt => {
                let key = t.future(table, 2, Item::ID)?;
                t.set_futures_at(table, key - (2 - id), [Item::VALUE.becomes(value)])
            }
            Self::InsertFuture => {
                let other = t.future(table, 2, Item::VALUE)?;
                t.insert_future(table, &row, [Item::VALUE.becomes(other - 5 + value)])
            }
            Self::Delete => t.delete(table, id).map(drop),
            Self::DeleteBytes => t.delete_row(table.id(), key.as_slice()).map(drop),
        }
    }
}

/// Row 1 of value 4 and row 2 of value 5 are there.
fn ruled<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) -> (Arc<P>, Table<Item>) {
    let (database, table) = items(setup, &[(1, 4), (2, 5)]);
    let rules = NotNegative(Item::definition().layout().unwrap());
    database.storage().set_write_rules(table.id(), Some(Arc::new(rules))).unwrap();
    (database, table)
}

fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Other(inner) if inner.downcast_ref::<Refused>().is_some())
}

/// A write that breaks a rule is refused and undone, and the transaction goes on with one that does not.
pub fn of_others<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    for &write in Write::ALL {
        let (database, table) = ruled(setup);
        let mut worker = database.worker().unwrap();
        let before = all(&mut worker, &table);
        let step = |t: &mut Tx<'_, P>, value| write.run(t, &table, value);
        let refused = run(&mut worker, |t| step(t, -1));
        assert!(refused.is_err_and(|error| is_refusal(&error)), "{write:?}");
        assert_eq!(all(&mut worker, &table), before, "{write:?}");
        // Whoever catches the error finds nothing of it.
        run(&mut worker, |t| {
            let refused = step(t, -1);
            assert!(refused.is_err_and(|error| is_refusal(&error)), "{write:?}");
            let mut seen = Vec::new();
            t.scan_rows(&Scan::all(table.id()), &mut |row| {
                seen.push(row.as_bytes().to_vec());
                ControlFlow::Continue(())
            })?;
            assert_eq!(seen.len(), 2, "{write:?}");
            t.update(&table, 2, |row| row.set_value(row.value() + 1)).map(drop)
        })
        .unwrap();
        let allowed = run(&mut worker, |t| step(t, 7));
        assert_eq!(allowed.is_ok(), !write.is_deletion(), "{write:?}: {allowed:?}");
        database.storage().set_write_rules(table.id(), None).unwrap();
        run(&mut worker, |t| step(t, -3)).unwrap_or_else(|error| {
            assert!(write.is_of_new_row() && matches!(error, Error::Duplicate(_)), "{write:?}: {error}");
        });
    }
}

/// The layer whose rules they are is not asked, and neither is a writer of another table.
pub fn of_the_layer<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    for &write in Write::ALL {
        let (database, table) = ruled(setup);
        let mut worker = database.worker().unwrap();
        run(&mut worker, |t| obeying(|| write.run(t, &table, -1))).unwrap();
        let caught = std::panic::catch_unwind(|| obeying::<()>(|| std::panic::resume_unwind(Box::new(()))));
        assert!(caught.is_err());
        let refused = run(&mut worker, |t| t.upsert(&table, &Item { id: 9, value: -1 }));
        assert!(refused.is_err_and(|error| is_refusal(&error)), "{write:?}");
    }
}
