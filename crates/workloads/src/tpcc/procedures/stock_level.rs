//! StockLevel (clause 2.8): how many items of the district's latest orders run low.

use polychron_engine::{Access, Declare, Error, Operations, Procedure, Transaction};

use super::missing;
use super::new_order::MOST_LINES;
use crate::tpcc::schema::{District, OrderLine, Stock, Tables};

/// Orders looked at.
const ORDERS: u32 = 20;

/// Counts items of the last 20 orders that are below a threshold in the warehouse.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the inputs of clause 2.8.1")]
pub struct StockLevel {
    pub tables: Tables,
    pub warehouse: u16,
    pub district: u8,
    pub threshold: i16,
    pub snapshot: bool,
    /// Shown: how many are below.
    pub low: u32,
}

impl Procedure for StockLevel {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        let Self { tables, warehouse, district, threshold, .. } = *self;
        let key = (warehouse, district);
        let next = transaction.get_columns(&tables.district, key, District::NEXT_ORDER)?;
        let Some(next) = next else { return Err(missing::<District>(&key)) };

        let mut items = [0; ORDERS as usize * MOST_LINES];
        let mut count = 0;
        let first = (warehouse, district, next.saturating_sub(ORDERS), 0);
        let range = transaction.scan(&tables.order_line, first..(warehouse, district, next, 0));
        range.columns(OrderLine::ITEM).for_each(|line| {
            if let Some(item) = items.get_mut(count) {
                *item = line.item();
                count += 1;
            }
        })?;

        let items = distinct(&mut items[..count]);
        for &item in items.iter() {
            transaction.prefetch(&tables.stock, (warehouse, item));
        }
        self.low = 0;
        for &item in items.iter() {
            let key = (warehouse, item);
            let quantity = transaction.get_columns(&tables.stock, key, Stock::QUANTITY)?;
            let Some(quantity) = quantity else { return Err(missing::<Stock>(&key)) };
            self.low += u32::from(quantity < threshold);
        }
        Ok(())
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.partition(u64::from(self.warehouse));
        declaration.row(&self.tables.district, (self.warehouse, self.district), Access::Read);
    }
}

/// Each of the values once.
fn distinct(values: &mut [u32]) -> &[u32] {
    values.sort_unstable();
    let mut kept = 0;
    for position in 0..values.len() {
        if position == 0 || values[position] != values[kept - 1] {
            values[kept] = values[position];
            kept += 1;
        }
    }
    &values[..kept]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_kept_once() {
        assert_eq!(distinct(&mut [3, 1, 3, 2, 1, 1]), [1, 2, 3]);
        assert_eq!(distinct(&mut []), [0u32; 0]);
        assert_eq!(distinct(&mut [7, 7]), [7]);
    }
}
