//! Savepoints, and which of them a transaction can still be undone to. What is void is found out here, once for every protocol. So is the scope
//! of a transaction's futures: both are a transaction's own, and end with it.

use polychron_base::Error;
use polychron_sync::new_number;

use crate::futures::Scope;

/// A place inside a transaction to which it can be undone.
///
/// It is void, and refused with [`Error::VoidSavepoint`](crate::Error::VoidSavepoint), as soon as its transaction has ended or was undone
/// to a place before it. Undoing a transaction to a savepoint leaves that one valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint {
    /// The [`Savepoints`] that it stands in.
    holder: u32,
    /// Unique there.
    serial: u64,
}

/// The savepoints to which a worker's running transaction can be undone.
///
/// A worker keeps it from one transaction to the next, so that serial numbers never come back and setting a savepoint allocates nothing; each
/// transaction begins by [`Savepoints::clear`].
#[derive(Debug, Default)]
pub struct Savepoints {
    /// Drawn with the first savepoint; 0 before.
    holder: u32,
    /// The latest serial number.
    latest: u64,
    /// In the order in which they were set, hence by serial number and by position.
    valid: Vec<Valid>,
    /// Why a savepoint could not be set, or something had failed that was undone.
    refused: Option<Error>,
    /// The owner of the running transaction's futures, once it was requested.
    scope: Option<Scope>,
}

#[derive(Clone, Copy, Debug)]
struct Valid {
    serial: u64,
    /// The result of [`Transaction::mark`](crate::Transaction::mark).
    position: usize,
}

impl Savepoints {
    /// Room that is kept from one transaction to the next.
    const KEPT: usize = 1024;

    /// A transaction begins: the savepoints of the one before are void.
    #[inline]
    pub fn clear(&mut self) {
        self.valid.clear();
        self.scope = None;
        if self.refused.is_some() {
            self.refused = None;
        }
    }

    /// The owner of the running transaction's futures.
    #[inline]
    pub fn scope(&mut self) -> Scope {
        *self.scope.get_or_insert_with(Scope::fresh)
    }

    /// A savepoint at this position; one that is void from the start where there is no position.
    pub(crate) fn set(&mut self, position: Result<usize, Error>) -> Savepoint {
        if self.valid.is_empty() && self.valid.capacity() > Self::KEPT {
            self.valid = Vec::new();
        }
        if self.holder == 0 {
            self.holder = new_number();
        }
        self.latest += 1;
        match position {
            Ok(position) => self.valid.push(Valid { serial: self.latest, position }),
            Err(error) => self.refused = Some(error),
        }
        Savepoint { holder: self.holder, serial: self.latest }
    }

    /// Something that was undone had failed, and the transaction was not told: its return to a savepoint tells it.
    pub fn report_on_return(&mut self, error: Error) {
        self.refused = Some(error);
    }

    /// The transaction is told of a failure for which it may have a savepoint that could not be set.
    pub fn failure_reported(&mut self) {
        self.refused = None;
    }

    /// Why a savepoint of the running transaction could not be set, or what had failed that was undone, if that was so; tells it once.
    pub(crate) fn take_refused(&mut self) -> Result<(), Error> {
        self.refused.take().map_or(Ok(()), Err)
    }

    /// The position of a savepoint in the list, and its position in the transaction. `None`: it is void.
    fn find(&self, savepoint: Savepoint) -> Option<(usize, usize)> {
        if savepoint.holder != self.holder {
            return None;
        }
        let position = self.valid.binary_search_by_key(&savepoint.serial, |valid| valid.serial).ok()?;
        Some((position, self.valid[position].position))
    }

    /// The position of a valid savepoint.
    pub(crate) fn position_of(&self, savepoint: Savepoint) -> Option<usize> {
        self.find(savepoint).map(|(_, position)| position)
    }

    /// The transaction was undone to this savepoint: those that were set later are void.
    pub(crate) fn undone_to(&mut self, savepoint: Savepoint) {
        if let Some((position, _)) = self.find(savepoint) {
            self.valid.truncate(position + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use polychron_base::Error;

    use super::*;

    #[test]
    fn savepoints_are_valid_until_something_before_them_is_undone() {
        let mut savepoints = Savepoints::default();
        let [first, second, third] = [3, 3, 7].map(|position| savepoints.set(Ok(position)));
        assert_eq!([first, second, third].map(|it| savepoints.position_of(it)), [Some(3), Some(3), Some(7)]);
        savepoints.undone_to(second);
        assert_eq!([first, second, third].map(|it| savepoints.position_of(it)), [Some(3), Some(3), None]);
        let fourth = savepoints.set(Ok(7));
        assert_eq!([third, fourth].map(|it| savepoints.position_of(it)), [None, Some(7)]);
        savepoints.clear();
        let fifth = savepoints.set(Ok(3));
        assert_eq!([first, fourth, fifth].map(|it| savepoints.position_of(it)), [None, None, Some(3)]);
    }

    #[test]
    fn savepoints_of_others_are_void() {
        let (mut one, mut other, unused) = (Savepoints::default(), Savepoints::default(), Savepoints::default());
        let (mine, its) = (one.set(Ok(1)), other.set(Ok(1)));
        assert_eq!((one.position_of(its), other.position_of(mine), unused.position_of(mine)), (None, None, None));
        assert_eq!(one.position_of(mine), Some(1));
    }

    #[test]
    fn a_savepoint_that_could_not_be_set_reports_why_in_its_transaction() {
        let mut savepoints = Savepoints::default();
        let unset = savepoints.set(Err(Error::ReadOnly));
        assert_eq!(savepoints.position_of(unset), None);
        assert!(savepoints.take_refused().is_err());
        assert!(savepoints.take_refused().is_ok());
        savepoints.set(Err(Error::ReadOnly));
        savepoints.clear();
        assert!(savepoints.take_refused().is_ok());
    }

    #[test]
    fn many_savepoints_of_one_transaction_leave_no_memory() {
        let mut savepoints = Savepoints::default();
        for position in 0..10 * Savepoints::KEPT {
            savepoints.set(Ok(position));
        }
        savepoints.clear();
        savepoints.set(Ok(0));
        assert!(savepoints.valid.capacity() <= Savepoints::KEPT);
    }
}
