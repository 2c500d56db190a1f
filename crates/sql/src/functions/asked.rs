//! Functions that ask the session: their types alone, as what they answer is the session's to say (`asked`).

use super::{Function, functions};
use crate::context::Context;
use crate::datum::Datum;
use crate::error::SqlError;

fn elsewhere<'a>(_: &[Datum<'a>], _: &Context<'a>) -> Result<Datum<'a>, SqlError> {
    Err(SqlError::internal("the session was not asked"))
}

pub(super) const FUNCTIONS: &[Function] = functions! {
    "pg_listening_channels"() -> Text = elsewhere;
    "pg_notification_queue_usage"() -> Float8 = elsewhere;
    "pg_advisory_lock"(Int8) -> Void = elsewhere;
    "pg_advisory_lock"(Int4, Int4) -> Void = elsewhere;
    "pg_advisory_lock_shared"(Int8) -> Void = elsewhere;
    "pg_advisory_lock_shared"(Int4, Int4) -> Void = elsewhere;
    "pg_advisory_xact_lock"(Int8) -> Void = elsewhere;
    "pg_advisory_xact_lock"(Int4, Int4) -> Void = elsewhere;
    "pg_advisory_xact_lock_shared"(Int8) -> Void = elsewhere;
    "pg_advisory_xact_lock_shared"(Int4, Int4) -> Void = elsewhere;
    "pg_try_advisory_lock"(Int8) -> Bool = elsewhere;
    "pg_try_advisory_lock"(Int4, Int4) -> Bool = elsewhere;
    "pg_try_advisory_lock_shared"(Int8) -> Bool = elsewhere;
    "pg_try_advisory_lock_shared"(Int4, Int4) -> Bool = elsewhere;
    "pg_try_advisory_xact_lock"(Int8) -> Bool = elsewhere;
    "pg_try_advisory_xact_lock"(Int4, Int4) -> Bool = elsewhere;
    "pg_try_advisory_xact_lock_shared"(Int8) -> Bool = elsewhere;
    "pg_try_advisory_xact_lock_shared"(Int4, Int4) -> Bool = elsewhere;
    "pg_advisory_unlock"(Int8) -> Bool = elsewhere;
    "pg_advisory_unlock"(Int4, Int4) -> Bool = elsewhere;
    "pg_advisory_unlock_shared"(Int8) -> Bool = elsewhere;
    "pg_advisory_unlock_shared"(Int4, Int4) -> Bool = elsewhere;
    "pg_advisory_unlock_all"() -> Void = elsewhere;
};

/// Those that are called with NULL, too.
pub(super) const LENIENT: &[Function] = functions! {
    "pg_notify"(Text, Text) -> Void = elsewhere;
};
