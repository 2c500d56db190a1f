//! The list of protocols, and lists of them in general. It stands here once; the command line, the server and the tests go by it.

#[cfg(feature = "any")]
use polychron_engine::any::AnyOptions;
use polychron_engine::{Configuration, Error, Interactive, Isolation, Protocol};

/// A protocol's name and what it is.
///
/// ```
/// use polychron::{ProtocolList, Protocols};
///
/// let names: Vec<_> = Protocols::all().iter().map(|protocol| protocol.name).collect();
/// assert!(names.contains(&"serial"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolInfo {
    /// The name on the command line.
    pub name: &'static str,
    /// One line: what it is and when to take it.
    pub summary: &'static str,
    /// The isolation that it promises.
    pub isolation: Isolation,
    /// Its options that differ from the default ones, each a name and a value for [`Protocol::set_option`].
    pub options: &'static [(&'static str, &'static str)],
}

impl ProtocolInfo {
    /// The protocol `P` with its default options, and each of its named configurations.
    #[must_use]
    pub fn of<P: Protocol>() -> Vec<Self> {
        let default = Self { name: P::NAME, summary: P::SUMMARY, isolation: P::ISOLATION, options: &[] };
        let named = P::CONFIGURATIONS.iter().map(|it| {
            let &Configuration { name, summary, isolation, options } = it;
            Self { name, summary, isolation, options }
        });
        std::iter::once(default).chain(named).collect()
    }

    /// The default options of the protocol `P` with these set.
    ///
    /// # Errors
    /// [`Error::Options`], where they are not options of this protocol.
    pub fn options_of<P: Protocol>(&self) -> Result<P::Options, Error> {
        let mut options = P::Options::default();
        self.options.iter().try_for_each(|(name, value)| P::set_option(&mut options, name, value))?;
        Ok(options)
    }
}

/// Code that is compiled once for each protocol; see [`ProtocolList::visit`].
pub trait ProtocolVisitor {
    /// Its result.
    type Output;

    /// Does its work with the protocol `P`, of which `info` names the options.
    fn visit<P: Protocol>(self, info: &ProtocolInfo) -> Self::Output;

    /// The same with a protocol whose transactions a client can drive.
    fn visit_interactive<P: Protocol<Worker: Interactive>>(self, info: &ProtocolInfo) -> Self::Output
    where
        Self: Sized,
    {
        self.visit::<P>(info)
    }
}

/// There is no protocol of this name.
///
/// ```
/// let unknown = polychron::UnknownProtocol { name: "parallel".to_owned(), known: vec!["serial"] };
/// assert_eq!(unknown.to_string(), "there is no protocol `parallel`; the protocols are serial");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no protocol `{name}`; the protocols are {}", known.join(", "))]
pub struct UnknownProtocol {
    /// The name.
    pub name: String,
    /// The names that there are.
    pub known: Vec<&'static str>,
}

/// A list of protocols, which turns names into types; made by [`protocol_list`](crate::protocol_list).
pub trait ProtocolList {
    /// Every protocol of the list.
    fn all() -> Vec<ProtocolInfo>;

    /// Whether there is one of this name.
    fn has(name: &str) -> bool {
        Self::all().iter().any(|protocol| protocol.name == name)
    }

    /// Calls the visitor with the protocol of this name.
    ///
    /// # Errors
    /// [`UnknownProtocol`], which names all there are.
    fn visit<V: ProtocolVisitor>(name: &str, visitor: V) -> Result<V::Output, UnknownProtocol>;
}

/// Makes a type that is a list of protocols ([`ProtocolList`]), for programs that choose one by its name when they run. Protocols of other
/// crates may stand there, each behind its `#[cfg(…)]` if it has one. Those that execute whole procedures alone follow behind a semicolon.
///
/// ```
/// use polychron::protocols::{Bohm, Cicada, Maflingo};
/// use polychron::{ProtocolList, protocol_list};
///
/// protocol_list! {
///     /// Those that this program offers.
///     pub struct Offered;
///     Cicada,
///     Maflingo;
///     Bohm
/// }
/// assert!(Offered::has("cicada") && Offered::has("bohm") && !Offered::has("hyper"));
/// ```
#[macro_export]
macro_rules! protocol_list {
    (
        $(#[$attribute:meta])* $visibility:vis struct $list:ident;
        $($(#[$condition:meta])* $protocol:ty),* $(,)?
        $(; $($(#[$planned_condition:meta])* $planned:ty),+ $(,)?)?
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug)]
        $visibility struct $list;

        impl $crate::ProtocolList for $list {
            fn all() -> Vec<$crate::ProtocolInfo> {
                [
                    $($(#[$condition])* $crate::ProtocolInfo::of::<$protocol>(),)*
                    $($($(#[$planned_condition])* $crate::ProtocolInfo::of::<$planned>(),)+)?
                ]
                .concat()
            }

            fn visit<V: $crate::ProtocolVisitor>(
                name: &str,
                visitor: V,
            ) -> Result<V::Output, $crate::UnknownProtocol> {
                $(
                    $(#[$condition])*
                    if let Some(info) = $crate::ProtocolInfo::of::<$protocol>().iter().find(|info| info.name == name) {
                        return Ok(visitor.visit_interactive::<$protocol>(info));
                    }
                )*
                $($(
                    $(#[$planned_condition])*
                    if let Some(info) = $crate::ProtocolInfo::of::<$planned>().iter().find(|info| info.name == name) {
                        return Ok(visitor.visit::<$planned>(info));
                    }
                )+)?
                let known = Self::all().iter().map(|info| info.name).collect();
                Err($crate::UnknownProtocol { name: name.to_owned(), known })
            }
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
    any_protocol_of::<Protocols>(name, knobs)
}

/// As [`any_protocol`], of another list.
///
/// # Errors
/// As there.
#[cfg(feature = "any")]
pub fn any_protocol_of<L: ProtocolList>(name: &str, knobs: &[(&str, &str)]) -> Result<AnyOptions, Error> {
    struct Erase<'a>(&'a [(&'a str, &'a str)]);

    impl Erase<'_> {
        fn options<P: Protocol>(self, info: &ProtocolInfo) -> Result<P::Options, Error> {
            let mut options = info.options_of::<P>()?;
            self.0.iter().try_for_each(|(name, value)| P::set_option(&mut options, name, value))?;
            Ok(options)
        }
    }

    impl ProtocolVisitor for Erase<'_> {
        type Output = Result<AnyOptions, Error>;

        fn visit<P: Protocol>(self, info: &ProtocolInfo) -> Self::Output {
            Ok(AnyOptions::of::<P>(self.options::<P>(info)?))
        }

        fn visit_interactive<P: Protocol<Worker: Interactive>>(self, info: &ProtocolInfo) -> Self::Output {
            Ok(AnyOptions::interactive::<P>(self.options::<P>(info)?))
        }
    }

    L::visit(name, Erase(knobs)).map_err(|unknown| Error::options(unknown.to_string()))?
}

/// The protocol of a database that does not choose.
pub type DefaultProtocol = polychron_protocols::Cicada;

protocol_list! {
    /// Every protocol of this crate whose feature is on, as all are by default.
    ///
    /// ```
    /// use polychron::{Protocol, ProtocolInfo, ProtocolList, ProtocolVisitor, Protocols};
    ///
    /// struct HasTables;
    /// impl ProtocolVisitor for HasTables {
    ///     type Output = bool;
    ///     fn visit<P: Protocol>(self, info: &ProtocolInfo) -> bool {
    ///         let database = P::open(info.options_of::<P>().unwrap(), Default::default()).unwrap();
    ///         database.find_table("account").is_some()
    ///     }
    /// }
    /// assert!(!Protocols::visit("serial", HasTables).unwrap());
    /// assert!(Protocols::visit("parallel", HasTables).is_err());
    /// ```
    pub struct Protocols;
    polychron_protocols::Cicada,
    #[cfg(feature = "maflingo")]
    polychron_protocols::Maflingo,
    #[cfg(feature = "hyper")]
    polychron_protocols::Hyper,
    #[cfg(feature = "locking")]
    polychron_protocols::Locking,
    #[cfg(all(feature = "lazy", feature = "maflingo"))]
    polychron_protocols::LazyMaflingo,
    #[cfg(all(feature = "lazy", feature = "locking"))]
    polychron_protocols::LazyLocking,
    #[cfg(feature = "lazy")]
    polychron_protocols::LazyCicada,
    #[cfg(all(feature = "lazy", feature = "hyper"))]
    polychron_protocols::LazyHyper,
    #[cfg(feature = "serial")]
    polychron_protocols::Serial;
    #[cfg(feature = "bohm")]
    polychron_protocols::Bohm,
}

#[cfg(test)]
mod tests {
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
        let all = Protocols::all();
        for (position, protocol) in all.iter().enumerate() {
            assert_eq!(Protocols::visit(protocol.name, Name), Ok(protocol.name));
            assert!(all[..position].iter().all(|other| other.name != protocol.name));
            assert!(!protocol.summary.contains('\n'));
        }
        let refusal = Protocols::visit("nothing", Name).unwrap_err().to_string();
        assert!(refusal.contains("`nothing`") && refusal.contains("serial"), "{refusal}");
    }
}
