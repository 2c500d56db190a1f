//! What goes wrong with an operation.

use std::collections::BTreeMap;

use polychron_log::disk::{Cause, Operation};

/// A fault of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails ([`Cause::Device`]), having done any part of its work.
    Fail,
    /// The same, and so does every later operation.
    FailForEver,
    /// There is no room for what it allocates, if it allocates anything.
    Full,
    /// A sync, of a file or a directory, fails as by [`Fault::Fail`], and answers that there is no room.
    SyncFull,
    /// The power fails while it is done: any part may have happened. Every later operation fails.
    PowerFailure,
    /// A write answers that all is well, and nothing is written.
    LoseWrite,
    /// A write answers that all is well, and its first block lies where the file has its last one.
    Misdirect,
    /// A sync, of a file or a directory, answers that all is well, and nothing is durable by it.
    LoseSync,
    /// A read answers with one bit wrong.
    FlipBit,
}

/// An operation that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which one.
    pub operation: Operation,
    /// Of which file or directory.
    pub path: String,
    /// How many bytes it allocates, for a directory one block.
    pub allocates: u64,
}

/// What happens to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Go,
    /// It fails, and may do a part.
    Fail,
    /// It is the last one.
    PowerFailure,
    Full,
    SyncFull,
    LoseWrite,
    Misdirect,
    LoseSync,
    FlipBit,
}

impl Verdict {
    /// Whether it answers with an error of the device, and may do a part.
    pub(crate) fn is_failure(self) -> bool {
        matches!(self, Self::Fail | Self::PowerFailure)
    }
}

/// The faults of a disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) plan: BTreeMap<usize, Fault>,
    is_broken: bool,
    pub(crate) is_off: bool,
}

impl Faults {
    /// What happens to the operation of this number.
    ///
    /// # Errors
    /// When it is not begun.
    pub(crate) fn verdict(&mut self, number: usize, step: &Step) -> Result<Verdict, Cause> {
        if self.is_off {
            return Err(Cause::Device);
        }
        let fault = self.plan.get(&number);
        if self.is_broken {
            return Ok(Verdict::Fail);
        }
        let is = |operation| step.operation == operation;
        Ok(match fault {
            Some(Fault::Fail) => Verdict::Fail,
            Some(Fault::FailForEver) => {
                self.is_broken = true;
                Verdict::Fail
            }
            Some(Fault::Full) if step.allocates > 0 => Verdict::Full,
            Some(Fault::SyncFull) if is(Operation::Sync) || is(Operation::SyncDirectory) => Verdict::SyncFull,
            Some(Fault::PowerFailure) => {
                self.is_off = true;
                Verdict::PowerFailure
            }
            Some(Fault::LoseWrite) if is(Operation::Write) => Verdict::LoseWrite,
            Some(Fault::Misdirect) if is(Operation::Write) => Verdict::Misdirect,
            Some(Fault::LoseSync) if is(Operation::Sync) || is(Operation::SyncDirectory) => Verdict::LoseSync,
            Some(Fault::FlipBit) if is(Operation::Read) => Verdict::FlipBit,
            _ => Verdict::Go,
        })
    }
}
