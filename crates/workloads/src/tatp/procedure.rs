//! The seven transactions.

use polychron_engine::{Access, Declare, Error, Insertion, Operations, Procedure, Transaction};
use polychron_schema::FixedString;

use super::schema::{CallForwarding, SpecialFacility, Subscriber, Tables, digits};
use crate::Transact;

/// The kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    GetSubscriberData,
    GetNewDestination,
    GetAccessData,
    UpdateSubscriberData,
    UpdateLocation,
    InsertCallForwarding,
    DeleteCallForwarding,
}

impl Kind {
    /// The standard mix, for a draw in `0..100`.
    pub(super) fn of_percent(drawn: u64) -> Self {
        match drawn {
            ..35 => Self::GetSubscriberData,
            35..45 => Self::GetNewDestination,
            45..80 => Self::GetAccessData,
            80..82 => Self::UpdateSubscriberData,
            82..96 => Self::UpdateLocation,
            96..98 => Self::InsertCallForwarding,
            _ => Self::DeleteCallForwarding,
        }
    }

    /// Whether the subscriber is named by number.
    pub(super) fn finds_by_number(self) -> bool {
        matches!(self, Self::UpdateLocation | Self::InsertCallForwarding | Self::DeleteCallForwarding)
    }
}

/// Names of the kinds.
pub(super) const KINDS: &[&str] = &[
    "get-subscriber-data",
    "get-new-destination",
    "get-access-data",
    "update-subscriber-data",
    "update-location",
    "insert-call-forwarding",
    "delete-call-forwarding",
];

/// One transaction.
#[derive(Clone, Debug)]
pub struct TatpProcedure {
    pub(super) tables: Tables,
    pub(super) kind: Kind,
    pub(super) subscriber: u32,
    /// The subscriber's number in digits, where the transaction must find it by that.
    pub(super) number: FixedString<15>,
    /// An access type or a facility type.
    pub(super) some_type: u8,
    pub(super) start_time: u8,
    pub(super) end_time: u8,
    /// The value that is written.
    pub(super) value: u64,
    /// Call forwardings inserted less deleted, of the latest run.
    pub(super) inserted: i64,
}

/// A row that must be there is not.
#[derive(Debug, thiserror::Error)]
#[error("subscriber {0} is missing")]
struct Missing(u32);

impl From<Missing> for Error {
    fn from(error: Missing) -> Self {
        Self::other(error)
    }
}

impl TatpProcedure {
    fn get_subscriber_data<T: Transaction>(&self, transaction: &mut T) -> Result<u64, Error> {
        let row = transaction.get(&self.tables.subscribers, self.subscriber)?.ok_or(Missing(self.subscriber))?;
        let bytes = row.bytes().as_str().len() as u64;
        let locations = u64::from(row.msc_location()) ^ u64::from(row.vlr_location());
        Ok(bytes ^ locations ^ u64::from(row.bits()) ^ row.hexes())
    }

    fn get_new_destination<T: Transaction>(&self, transaction: &mut T) -> Result<u64, Error> {
        let facility = (self.subscriber, self.some_type);
        let active = transaction.get_columns(&self.tables.facilities, facility, SpecialFacility::IS_ACTIVE)?;
        if active != Some(true) {
            return Ok(0);
        }
        let at = |start_time| (self.subscriber, self.some_type, start_time);
        let mut found = 0;
        transaction.scan(&self.tables.forwardings, at(0)..=at(self.start_time)).for_each(|row| {
            if row.end_time() > self.end_time {
                found += row.number().as_str().len() as u64;
            }
        })?;
        Ok(found)
    }

    fn get_access_data<T: Transaction>(&self, transaction: &mut T) -> Result<u64, Error> {
        let row = transaction.get(&self.tables.access, (self.subscriber, self.some_type))?;
        Ok(row.map_or(0, |row| {
            let letters = row.data3().as_str().len() + row.data4().as_str().len();
            u64::from(row.data1()) + u64::from(row.data2()) + letters as u64
        }))
    }

    fn update_subscriber_data<T: Transaction>(&self, transaction: &mut T) -> Result<u64, Error> {
        let bit = self.value & 1;
        transaction.update_columns(&self.tables.subscribers, self.subscriber, Subscriber::BITS, |row| {
            row.set_bits(row.bits() & !1 | bit as u16);
        })?;
        let facility = (self.subscriber, self.some_type);
        let data = (self.value >> 8) as u8;
        let updated =
            transaction.update_columns(&self.tables.facilities, facility, SpecialFacility::DATA_A, |row| {
                row.set_data_a(data);
            })?;
        // The description lets the whole transaction fail when the subscriber has no such facility.
        if updated { Ok(1) } else { Err(Error::RolledBack) }
    }

    /// The subscriber's id, found by its number.
    fn find<T: Transaction>(&self, transaction: &mut T) -> Result<u32, Error> {
        let found = transaction
            .scan_by(&self.tables.subscribers, Subscriber::BY_NUMBER, self.number)
            .columns(Subscriber::ID)
            .first(|row| row.id())?;
        Ok(found.ok_or(Missing(self.subscriber))?)
    }

    fn update_location<T: Transaction>(&self, transaction: &mut T) -> Result<u64, Error> {
        let id = self.find(transaction)?;
        let location = self.value as u32;
        let column = Subscriber::VLR_LOCATION;
        transaction.update_columns(&self.tables.subscribers, id, column, |row| row.set_vlr_location(location))?;
        Ok(1)
    }

    fn insert_call_forwarding<T: Transaction>(&mut self, transaction: &mut T) -> Result<u64, Error> {
        let subscriber = self.find(transaction)?;
        let facility_type = self.some_type;
        if transaction.get(&self.tables.facilities, (subscriber, facility_type))?.is_none() {
            return Err(Error::RolledBack);
        }
        let (start_time, number) = (self.start_time, digits(self.value % 1_000_000_000_000_000));
        let end_time = start_time + 1 + self.end_time % 8;
        let row = CallForwarding { subscriber, facility_type, start_time, end_time, number };
        match transaction.try_insert(&self.tables.forwardings, &row)? {
            Insertion::Inserted => self.inserted = 1,
            Insertion::Duplicate(_) => return Err(Error::RolledBack),
        }
        Ok(1)
    }

    fn delete_call_forwarding<T: Transaction>(&mut self, transaction: &mut T) -> Result<u64, Error> {
        let subscriber = self.find(transaction)?;
        let key = (subscriber, self.some_type, self.start_time);
        let deleted = transaction.delete(&self.tables.forwardings, key)?;
        self.inserted = -i64::from(deleted);
        Ok(u64::from(deleted))
    }
}

impl Procedure for TatpProcedure {
    /// Something made of all that was read.
    type Output = u64;
    type Error = Error;

    #[inline]
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<u64, Error> {
        self.inserted = 0;
        match self.kind {
            Kind::GetSubscriberData => self.get_subscriber_data(transaction),
            Kind::GetNewDestination => self.get_new_destination(transaction),
            Kind::GetAccessData => self.get_access_data(transaction),
            Kind::UpdateSubscriberData => self.update_subscriber_data(transaction),
            Kind::UpdateLocation => self.update_location(transaction),
            Kind::InsertCallForwarding => self.insert_call_forwarding(transaction),
            Kind::DeleteCallForwarding => self.delete_call_forwarding(transaction),
        }
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        // A subscriber's number is the id in digits, as the loader has it, and never changes: what the index will say is known.
        let Tables { subscribers, access, facilities, forwardings } = &self.tables;
        let (subscriber, facility) = (self.subscriber, (self.subscriber, self.some_type));
        let forwarding = (self.subscriber, self.some_type, self.start_time);
        match self.kind {
            Kind::GetSubscriberData => declaration.row(subscribers, subscriber, Access::Read),
            Kind::GetNewDestination => declaration.row(facilities, facility, Access::Read),
            Kind::GetAccessData => declaration.row(access, facility, Access::Read),
            Kind::UpdateSubscriberData => {
                declaration.row(subscribers, subscriber, Access::Update);
                declaration.row(facilities, facility, Access::Update);
            }
            Kind::UpdateLocation => declaration.row(subscribers, subscriber, Access::Update),
            Kind::InsertCallForwarding => {
                declaration.row(subscribers, subscriber, Access::Read);
                declaration.row(facilities, facility, Access::Read);
                declaration.row(forwardings, forwarding, Access::Insert);
            }
            Kind::DeleteCallForwarding => {
                declaration.row(subscribers, subscriber, Access::Read);
                declaration.row(forwardings, forwarding, Access::Write);
            }
        }
    }
}

impl Transact for TatpProcedure {
    fn kind(&self) -> usize {
        self.kind as usize
    }
}
