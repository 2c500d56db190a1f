//! Which protocols take statements.

use polychron::{Interactive, Protocol, ProtocolInfo, ProtocolList as _, ProtocolVisitor, Protocols};

/// Refuses a protocol of this name whose transactions cannot be driven by statements.
///
/// # Errors
/// A line that says why.
pub(crate) fn check_protocol(name: &str) -> Result<(), String> {
    match Protocols::visit(name, TakesStatements) {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("--protocol {name}: it executes whole procedures alone, and no statements")),
        Err(unknown) => Err(format!("--protocol: {unknown}")),
    }
}

/// Whether a protocol's transactions can be driven by statements.
struct TakesStatements;

impl ProtocolVisitor for TakesStatements {
    type Output = bool;

    fn visit<P: Protocol>(self, _: &ProtocolInfo) -> bool {
        false
    }

    fn visit_interactive<P: Protocol<Worker: Interactive>>(self, _: &ProtocolInfo) -> bool {
        true
    }
}
