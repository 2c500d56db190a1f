//! The list of protocols. It stands here once; the command line, the server and the tests go by it.

#[cfg(feature = "any")]
use polychron_engine::{Error, any::AnyOptions};
use polychron_engine::{Isolation, Protocol};

/// A protocol's name and what it is.
///
/// ```
/// let names: Vec<_> = polychron::PROTOCOLS.iter().map(|protocol| protocol.name).collect();
/// assert!(names.contains(&"serial"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolInfo {
    /// The name on the command line.
    pub name: &'static str,
    /// One line: what it is and when to take it.
    pub summary: &'static str,
    /// What it promises transactions of each other.
    pub isolation: Isolation,
}

/// Code that is compiled once for each protocol; see [`for_protocol`].
pub trait ProtocolVisitor {
    /// What it answers with.
    type Output;

    /// Does its work with the protocol `P`.
    fn visit<P: Protocol>(self) -> Self::Output;
}

/// There is no protocol of this name.
///
/// ```
/// let unknown = polychron::UnknownProtocol { name: "parallel".to_owned() };
/// assert!(unknown.to_string().starts_with("there is no protocol `parallel`; the protocols are "));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no protocol `{name}`; the protocols are {}", names())]
pub struct UnknownProtocol {
    /// The name.
    pub name: String,
}

fn names() -> String {
    PROTOCOLS.iter().map(|protocol| protocol.name).collect::<Vec<_>>().join(", ")
}

macro_rules! protocols {
    ($default:ty; $($protocol:ty),+ $(,)?) => {
        /// The protocol of a database that does not choose.
        pub type DefaultProtocol = $default;

        /// Every protocol there is.
        pub const PROTOCOLS: &[ProtocolInfo] = &[
            $(ProtocolInfo {
                name: <$protocol as Protocol>::NAME,
                summary: <$protocol as Protocol>::SUMMARY,
                isolation: <$protocol as Protocol>::ISOLATION,
            }),+
        ];

        /// The protocol of this name with its default options, for tests that drive transactions step by step: also those that
        /// plan whole procedures, one transaction at a time.
        #[cfg(feature = "by-hand")]
        pub fn protocol_by_hand(name: &str) -> Option<AnyOptions> {
            $(
                if name == <$protocol as Protocol>::NAME {
                    return Some(AnyOptions::by_hand::<$protocol>(Default::default()));
                }
            )+
            None
        }

        /// Calls the visitor with the protocol of this name: the one place where a name becomes a type.
        ///
        /// ```
        /// use polychron::{Options, Protocol, ProtocolVisitor, for_protocol};
        ///
        /// struct CountTables;
        /// impl ProtocolVisitor for CountTables {
        ///     type Output = bool;
        ///     fn visit<P: Protocol>(self) -> bool {
        ///         let database = P::open(P::Options::default(), Default::default()).unwrap();
        ///         database.find_table("account").is_some()
        ///     }
        /// }
        /// assert!(!for_protocol("serial", CountTables).unwrap());
        /// assert!(for_protocol("parallel", CountTables).is_err());
        /// ```
        ///
        /// # Errors
        /// [`UnknownProtocol`], which names all there are.
        pub fn for_protocol<V: ProtocolVisitor>(name: &str, visitor: V) -> Result<V::Output, UnknownProtocol> {
            $(
                if name == <$protocol as Protocol>::NAME {
                    return Ok(visitor.visit::<$protocol>());
                }
            )+
            Err(UnknownProtocol { name: name.to_owned() })
        }
    };
}

/// The protocol of this name with these knobs, each a name and a value, for [`polychron_engine::any`]. What it is compiled for is
/// compiled in this crate, once for all that use it.
///
/// ```
/// use polychron::{AnyProtocol, Protocol, any_protocol};
///
/// let database = AnyProtocol::open(any_protocol("cicada", &[("indexes", "multi-version")])?, Default::default())?;
/// assert!(database.find_table("account").is_none());
/// assert!(any_protocol("cicada", &[("indices", "many")]).is_err());
/// assert!(any_protocol("parallel", &[]).is_err());
/// # Ok::<(), polychron::Error>(())
/// ```
///
/// # Errors
/// [`polychron_engine::Error::Options`]: there is no protocol of this name, or it has no such knob.
#[cfg(feature = "any")]
pub fn any_protocol(name: &str, knobs: &[(&str, &str)]) -> Result<AnyOptions, Error> {
    struct Erase<'a>(&'a [(&'a str, &'a str)]);

    impl ProtocolVisitor for Erase<'_> {
        type Output = Result<AnyOptions, Error>;

        fn visit<P: Protocol>(self) -> Self::Output {
            let mut options = P::Options::default();
            self.0.iter().try_for_each(|(name, value)| P::set_option(&mut options, name, value))?;
            Ok(AnyOptions::of::<P>(options))
        }
    }

    for_protocol(name, Erase(knobs)).map_err(|unknown| Error::Options(unknown.to_string()))?
}

protocols! {
    polychron_protocols::cicada::Cicada;
    polychron_protocols::cicada::Cicada,
    polychron_protocols::maflingo::Maflingo,
    polychron_protocols::maflingo::Maflingo<polychron_protocols::maflingo::GlobalTid>,
    polychron_protocols::bohm::Bohm,
    polychron_protocols::hekaton::Hekaton,
    polychron_protocols::hekaton::Hekaton<polychron_protocols::hekaton::Snapshot>,
    polychron_protocols::hyper::Hyper,
    polychron_protocols::hyper::Hyper<polychron_protocols::hyper::ByRecord>,
    polychron_protocols::hyper::Hyper<polychron_protocols::hyper::Snapshot>,
    polychron_protocols::key_value::KeyValue,
    polychron_protocols::locking::Locking,
    polychron_protocols::locking::Locking<polychron_protocols::locking::NoWait>,
    polychron_protocols::locking::Locking<polychron_protocols::locking::WoundWait>,
    polychron_protocols::lazy::Lazy<polychron_protocols::maflingo::Maflingo>,
    polychron_protocols::lazy::Lazy<polychron_protocols::locking::Locking<polychron_protocols::locking::Conditional>>,
    polychron_protocols::lazy::Lazy<polychron_protocols::maflingo::Maflingo, polychron_protocols::lazy::AtOnce>,
    polychron_protocols::lazy::Lazy<polychron_protocols::cicada::Cicada>,
    polychron_protocols::lazy::Lazy<polychron_protocols::hyper::Hyper>,
    polychron_protocols::partitioned_store::PartitionedStore,
    polychron_protocols::serial::Serial,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_listed_in_refusals() {
        struct Name;
        impl ProtocolVisitor for Name {
            type Output = &'static str;
            fn visit<P: Protocol>(self) -> &'static str {
                P::NAME
            }
        }
        for (position, protocol) in PROTOCOLS.iter().enumerate() {
            assert_eq!(for_protocol(protocol.name, Name), Ok(protocol.name));
            assert!(PROTOCOLS[..position].iter().all(|other| other.name != protocol.name));
            assert!(!protocol.summary.contains('\n'));
        }
        let refusal = for_protocol("nothing", Name).unwrap_err().to_string();
        assert!(refusal.contains("`nothing`") && refusal.contains("serial"), "{refusal}");
    }
}
