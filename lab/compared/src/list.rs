//! The lists of protocols that the laboratory knows.

use polychron::{
    AnyOptions, Error, ProtocolInfo, ProtocolList, ProtocolVisitor, Protocols, UnknownProtocol, any_protocol_of,
};

use crate::hekaton::Hekaton;
use crate::key_value::KeyValue;
use crate::partitioned_store::PartitionedStore;

polychron::protocol_list! {
    /// The systems of this crate.
    pub struct Compared;
    Hekaton,
    KeyValue,
    PartitionedStore,
}

/// The product's protocols, and the systems they are compared with.
#[derive(Clone, Copy, Debug)]
pub struct Everything;

impl ProtocolList for Everything {
    fn all() -> Vec<ProtocolInfo> {
        [Protocols::all(), Compared::all()].concat()
    }

    fn visit<V: ProtocolVisitor>(name: &str, visitor: V) -> Result<V::Output, UnknownProtocol> {
        if Compared::has(name) {
            return Compared::visit(name, visitor);
        }
        Protocols::visit(name, visitor).map_err(|unknown| UnknownProtocol { name: unknown.name, known: names() })
    }
}

fn names() -> Vec<&'static str> {
    Everything::all().iter().map(|protocol| protocol.name).collect()
}

/// The protocol of this name, of the product or of this crate, with these knobs, behind virtual calls.
///
/// # Errors
/// [`Error::Options`]: there is no protocol of this name, or it has no such knob.
pub fn any_protocol(name: &str, knobs: &[(&str, &str)]) -> Result<AnyOptions, Error> {
    if Compared::has(name) {
        return any_protocol_of::<Compared>(name, knobs);
    }
    if Protocols::has(name) {
        // Compiled in that crate.
        return polychron::any_protocol(name, knobs);
    }
    Err(Error::options(UnknownProtocol { name: name.to_owned(), known: names() }.to_string()))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use polychron::{Protocol, ProtocolInfo};

    use super::*;

    #[test]
    fn names_are_unique_and_listed_in_refusals() {
        struct Name;
        impl ProtocolVisitor for Name {
            type Output = &'static str;
            fn visit<P: Protocol>(self, info: &ProtocolInfo) -> &'static str {
                let database = P::open(info.options_of::<P>().unwrap(), Default::default()).unwrap();
                assert_eq!(database.isolation(), info.isolation);
                database.name()
            }
        }
        let all = Everything::all();
        for (position, protocol) in all.iter().enumerate() {
            assert_eq!(Everything::visit(protocol.name, Name), Ok(protocol.name));
            assert!(any_protocol(protocol.name, &[]).is_ok());
            assert!(all[..position].iter().all(|other| other.name != protocol.name));
        }
        let refusal = Everything::visit("nothing", Name).unwrap_err().to_string();
        assert!(
            refusal.contains("`nothing`") && refusal.contains("serial") && refusal.contains("hekaton"),
            "{refusal}"
        );
        let refusal = any_protocol("nothing", &[]).unwrap_err().to_string();
        assert!(refusal.contains("`nothing`") && refusal.contains("hekaton"), "{refusal}");
    }
}
