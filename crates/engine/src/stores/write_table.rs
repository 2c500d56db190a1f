//! Finds the latest write of a record or key among those of a transaction: a small hash table of positions in its list of writes.

/// Positions of writes by what they write. Where that has the same hash, whoever asks tells which one it is.
#[derive(Debug)]
pub struct WriteTable {
    slots: Vec<u32>,
}

const EMPTY: u32 = u32::MAX;
const FIRST_SLOTS: usize = 64;
/// More slots are given back at the end of a transaction.
const KEPT_SLOTS: usize = 1 << 12;

impl Default for WriteTable {
    fn default() -> Self {
        Self { slots: vec![EMPTY; FIRST_SLOTS] }
    }
}

impl WriteTable {
    /// The slot of what has this hash, and for whose latest write `is_it` is true; or the empty one where it would go.
    #[inline(always)]
    pub fn slot(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> usize {
        let mut at = (hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & (self.slots.len() - 1);
        while self.slots[at] != EMPTY && !is_it(self.slots[at]) {
            at = (at + 1) & (self.slots.len() - 1);
        }
        at
    }

    /// The position in a slot.
    #[inline]
    pub fn get(&self, slot: usize) -> Option<u32> {
        let position = self.slots[slot];
        (position != EMPTY).then_some(position)
    }

    /// Changes the position in a slot.
    ///
    /// Taking the newest write out leaves the table as it was before that write: it had either changed its slot or filled the last one of a run of
    /// slots.
    #[inline]
    pub fn set(&mut self, slot: usize, position: Option<u32>) {
        self.slots[slot] = position.unwrap_or(EMPTY);
    }

    /// Whether there must be more slots before there are more than so many writes.
    #[inline]
    pub fn is_full(&self, writes: usize) -> bool {
        (writes + 1) * 2 > self.slots.len()
    }

    /// Has twice the slots, which are empty: all writes are to be put in again, in their order.
    pub fn begin_anew(&mut self) {
        let slots = 2 * self.slots.len();
        self.slots.clear();
        self.slots.resize(slots, EMPTY);
    }

    /// Empties the slots behind a transaction of so many writes. After a large one, small ones clear half as many slots each.
    pub fn clear(&mut self, writes: usize) {
        if self.slots.len() > FIRST_SLOTS.max(8 * writes) {
            self.slots.truncate(self.slots.len() / 2);
        }
        if self.slots.len() > KEPT_SLOTS {
            *self = Self::default();
        } else {
            self.slots.fill(EMPTY);
        }
    }

    /// The number of slots.
    #[inline]
    pub fn room(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Puts a write of a number in.
    fn put(table: &mut WriteTable, writes: &mut Vec<u64>, number: u64) -> Option<u32> {
        if table.is_full(writes.len()) {
            table.begin_anew();
            for (position, &write) in writes.iter().enumerate() {
                let slot = table.slot(write % 7, |other| writes[other as usize] == write);
                table.set(slot, Some(position as u32));
            }
        }
        let slot = table.slot(number % 7, |position| writes[position as usize] == number);
        let prior = table.get(slot);
        table.set(slot, Some(writes.len() as u32));
        writes.push(number);
        prior
    }

    fn latest(table: &WriteTable, writes: &[u64], number: u64) -> Option<u32> {
        table.get(table.slot(number % 7, |position| writes[position as usize] == number))
    }

    #[test]
    fn the_latest_write_is_found_whatever_shares_its_hash() {
        let (mut table, mut writes) = (WriteTable::default(), Vec::new());
        for round in 0..3 {
            for number in 0..500 {
                let prior = put(&mut table, &mut writes, number);
                assert_eq!(prior.map(u64::from), (round > 0).then(|| (round - 1) * 500 + number));
            }
        }
        assert!((0..500).all(|number| latest(&table, &writes, number) == Some(1000 + number as u32)));
        // Taken out again from the end, each write leaves the one before it.
        for number in (0..500).rev() {
            let slot = table.slot(number % 7, |position| writes[position as usize] == number);
            table.set(slot, Some(500 + number as u32));
            writes.pop();
        }
        assert!((0..500).all(|number| latest(&table, &writes, number) == Some(500 + number as u32)));
        assert_eq!(latest(&table, &writes, 500), None);
    }

    #[test]
    fn small_transactions_clear_few_slots() {
        let (mut table, mut writes) = (WriteTable::default(), Vec::new());
        for number in 0..1000 {
            put(&mut table, &mut writes, number);
        }
        assert!(table.room() >= 2000);
        table.clear(1000);
        for _ in 0..10 {
            table.clear(3);
        }
        assert_eq!(table.room(), FIRST_SLOTS);
        writes.clear();
        for number in 0..5_000 {
            put(&mut table, &mut writes, number);
        }
        table.clear(5_000);
        assert_eq!(table.room(), FIRST_SLOTS, "a huge table is not kept");
    }
}
