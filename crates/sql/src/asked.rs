//! Functions that ask the session itself, and not its values: notifications and advisory locks.

use crate::advisory::{self, Key};
use crate::arrays::Array;
use crate::context::Context;
use crate::datum::Datum;
use crate::error::{SqlError, SqlState};
use crate::outcome::Notice;
use crate::sequences::Drawn;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Notify,
    Channels,
    Usage,
    Lock(&'static str, advisory::Call),
}

impl Asked {
    /// What a function of this name asks, if it asks something.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "pg_notify" => Self::Notify,
            "pg_listening_channels" => Self::Channels,
            "pg_notification_queue_usage" => Self::Usage,
            _ => {
                let (name, call) = advisory::CALLS.iter().find(|(own, _)| *own == name)?;
                Self::Lock(name, *call)
            }
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Notify => "pg_notify",
            Self::Channels => "pg_listening_channels",
            Self::Usage => "pg_notification_queue_usage",
            Self::Lock(name, _) => name,
        }
    }

    pub(crate) fn answer<'a>(
        self,
        drawn: &Drawn,
        arguments: &[Datum<'a>],
        context: &Context<'a>,
    ) -> Result<Datum<'a>, SqlError> {
        match self {
            Self::Notify => drawn.outbox.notify(arguments).map(|()| Datum::Text("")),
            Self::Channels => {
                let channels = drawn.outbox.channels();
                let channels: Vec<_> = channels.iter().map(|it| Datum::Text(context.arena.alloc_str(it))).collect();
                Ok(Array::list(context.arena, &channels))
            }
            Self::Usage => Ok(Datum::Float(drawn.outbox.usage())),
            Self::Lock(_, call) => {
                let key = match arguments {
                    [] => Key::One(0),
                    [Datum::Int(key)] => Key::One(*key),
                    // They are integers of 32 bits.
                    [Datum::Int(class), Datum::Int(object)] => Key::Two(*class as i32, *object as i32),
                    _ => return Ok(Datum::Null),
                };
                let is_done = drawn.locks.answer(call, key, drawn.activity.get().map(|it| &**it))?;
                if !is_done && call.is_unlock() {
                    let mode = if call.is_shared { "ShareLock" } else { "ExclusiveLock" };
                    let message = format!("you don't own a lock of type {mode}");
                    context.exec.iter().for_each(|exec| exec.note(Notice::warning(SqlState("01000"), &*message)));
                }
                Ok(if call.is_asking() { Datum::Bool(is_done) } else { Datum::Text("") })
            }
        }
    }
}
