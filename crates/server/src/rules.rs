//! Rules that say who may come from where, and how they show who they are: `[[rule]]` in `polychron.toml`, in the manner of PostgreSQL's `pg_hba.conf`.

use std::net::IpAddr;

use polychron_sql::DATABASE;
use toml::Value;

use crate::error::ServerError;

/// A rule. Of several, the first one counts that fits the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    kind: Kind,
    databases: Names,
    roles: Names,
    network: Network,
    method: Method,
}

/// Which connections a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Those of the unix socket.
    Local,
    /// Those of TCP.
    Host,
    /// Those of TCP with TLS.
    HostSsl,
    /// Those of TCP without.
    HostNoSsl,
}

/// How a client shows who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// By the password.
    Scram,
    /// By the account of its process, which is that of the server.
    Peer,
    /// By that, or else by the password.
    PeerOrScram,
    /// By a certificate whose common name is the role.
    Certificate,
    /// It need not.
    Trust,
    /// It is refused.
    Reject,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Names {
    All,
    These(Vec<String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    All,
    /// Addresses whose first bits are those of this one.
    Of(IpAddr, u32),
}

/// A client that has said who it wants to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client<'c> {
    /// `None`: it has come over the unix socket.
    pub(crate) address: Option<IpAddr>,
    pub(crate) is_secured: bool,
    pub(crate) database: &'c str,
    pub(crate) role: &'c str,
}

/// What a rule may say.
const KNOWN: [&str; 5] = ["kind", "database", "role", "address", "method"];

impl Rule {
    /// The rules of a configuration: its tables `rule`, in their order. `None`: it has none.
    ///
    /// # Errors
    /// One of them says something that is not supported, or would admit other machines without a password.
    pub fn of_table(table: &toml::Table) -> Result<Option<Vec<Self>>, ServerError> {
        let Some(rules) = table.get("rule") else { return Ok(None) };
        let Value::Array(rules) = rules else {
            return Err(ServerError::Rules("rules are written as [[rule]]".to_owned()));
        };
        let numbered = rules.iter().enumerate().map(|(at, rule)| {
            let rule = rule.as_table().ok_or_else(|| "it is no table".to_owned()).and_then(Self::of);
            rule.map_err(|what| ServerError::Rules(format!("rule {}: {what}", at + 1)))
        });
        numbered.collect::<Result<_, _>>().map(Some)
    }

    /// Those of a server without rules of its own.
    pub(crate) fn usual() -> Vec<Self> {
        let rule = |kind, method| {
            let (databases, roles, network) = (Names::All, Names::All, Network::All);
            Self { kind, databases, roles, network, method }
        };
        vec![rule(Kind::Local, Method::PeerOrScram), rule(Kind::Host, Method::Scram)]
    }

    fn of(written: &toml::Table) -> Result<Self, String> {
        if let Some(other) = written.keys().find(|key| !KNOWN.contains(&key.as_str())) {
            return Err(format!("\"{other}\" is not supported"));
        }
        let kind = match text(written, "kind")?.ok_or("it has no kind")? {
            "local" => Kind::Local,
            "host" => Kind::Host,
            "hostssl" => Kind::HostSsl,
            "hostnossl" => Kind::HostNoSsl,
            other => return Err(format!("the kind \"{other}\" is not supported")),
        };
        let network = match (kind, text(written, "address")?) {
            (Kind::Local, None) => Network::All,
            (Kind::Local, Some(_)) => return Err("connections of the unix socket have no address".to_owned()),
            (_, None) => return Err("an address is needed: \"all\", or such as \"10.0.0.0/8\"".to_owned()),
            (_, Some(text)) => Network::parse(text).ok_or_else(|| format!("\"{text}\" is no address"))?,
        };
        let method = match text(written, "method")?.ok_or("it has no method")? {
            "scram" | "scram-sha-256" => Method::Scram,
            "peer" if kind == Kind::Local => Method::Peer,
            "peer" => return Err("\"peer\" is for connections of the unix socket".to_owned()),
            "trust" if kind == Kind::Local || network.is_of_this_machine() => Method::Trust,
            "trust" => {
                return Err("\"trust\" is for this machine alone: clients of other machines need a password".to_owned());
            }
            "cert" if kind == Kind::HostSsl => Method::Certificate,
            "cert" => return Err("\"cert\" is for the kind \"hostssl\"".to_owned()),
            "reject" => Method::Reject,
            other => return Err(format!("the method \"{other}\" is not supported")),
        };
        let databases = Names::of(written, "database", &["sameuser", "samerole", "samegroup", "replication"])?;
        let roles = Names::of(written, "role", &[])?;
        Ok(Self { kind, databases, roles, network, method })
    }

    fn fits(&self, client: Client<'_>) -> bool {
        let is_kind = match (self.kind, client.address) {
            (Kind::Local, address) => address.is_none(),
            (Kind::Host, address) => address.is_some(),
            (Kind::HostSsl, address) => address.is_some() && client.is_secured,
            (Kind::HostNoSsl, address) => address.is_some() && !client.is_secured,
        };
        // The database has several names for clients, and one here.
        let is_the_one = crate::startup::is_database(client.database, client.role);
        let database = if is_the_one { DATABASE } else { client.database };
        is_kind
            && self.databases.contain(database)
            && self.roles.contain(client.role)
            && client.address.is_none_or(|address| self.network.contains(address))
    }
}

/// Whether one of them asks for certificates of clients.
pub(crate) fn need_certificates(rules: &[Rule]) -> bool {
    rules.iter().any(|rule| rule.method == Method::Certificate)
}

/// What the first rule says that fits; `None`: there is none.
pub(crate) fn method(rules: &[Rule], client: Client<'_>) -> Option<Method> {
    rules.iter().find(|rule| rule.fits(client)).map(|rule| rule.method)
}

fn text<'t>(written: &'t toml::Table, key: &str) -> Result<Option<&'t str>, String> {
    match written.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("\"{key}\" is no text")),
    }
}

impl Names {
    fn of(written: &toml::Table, key: &str, unsupported: &[&str]) -> Result<Self, String> {
        let names = match written.get(key) {
            None => vec!["all".to_owned()],
            Some(Value::String(name)) => vec![name.clone()],
            Some(Value::Array(names)) => {
                let names = names.iter().map(|name| name.as_str().map(str::to_owned));
                names.collect::<Option<_>>().ok_or_else(|| format!("\"{key}\" has what is no name"))?
            }
            Some(_) => return Err(format!("\"{key}\" is no name")),
        };
        if let Some(name) = names.iter().find(|name| unsupported.contains(&name.as_str())) {
            return Err(format!("\"{name}\" is not supported"));
        }
        if let Some(name) = names.iter().find(|name| name.starts_with(['+', '/', '@']) || name.is_empty()) {
            return Err(format!("\"{name}\" is no name: members, patterns and files are not supported"));
        }
        Ok(if names.iter().any(|name| name == "all") { Self::All } else { Self::These(names) })
    }

    fn contain(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::These(names) => names.iter().any(|own| own == name),
        }
    }
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        if text == "all" {
            return Some(Self::All);
        }
        let (address, bits) = match text.split_once('/') {
            None => (text, None),
            Some((address, bits)) if bits.bytes().all(|byte| byte.is_ascii_digit()) => (address, Some(bits)),
            Some(_) => return None,
        };
        let address: IpAddr = address.parse().ok()?;
        let most = width(address);
        let bits: u32 = bits.map_or(Some(most), |bits| bits.parse().ok())?;
        // Clients of IPv4 are such, however they are written.
        let is_usual = bits <= most && address.to_canonical() == address;
        is_usual.then_some(Self::Of(address, bits))
    }

    fn contains(self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        match self {
            Self::All => true,
            Self::Of(own, bits) => {
                let others = width(own) - bits;
                let first = |address| bits_of(address).checked_shr(others);
                width(own) == width(address) && first(own) == first(address)
            }
        }
    }

    fn is_of_this_machine(self) -> bool {
        match self {
            Self::All => false,
            Self::Of(IpAddr::V4(address), bits) => address.is_loopback() && bits >= 8,
            Self::Of(IpAddr::V6(address), bits) => address.is_loopback() && bits == 128,
        }
    }
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Result<Vec<Rule>, String> {
        let table = text.parse().unwrap();
        Rule::of_table(&table).map(Option::unwrap).map_err(|error| error.to_string())
    }

    fn client(address: Option<&str>, is_secured: bool) -> Client<'static> {
        let address = address.map(|text| text.parse().unwrap());
        Client { address, is_secured, database: DATABASE, role: "ann" }
    }

    #[test]
    fn the_first_rule_counts_that_fits() {
        let rules = rules(
            r#"
            [[rule]]
            kind = "local"
            method = "peer"
            [[rule]]
            kind = "hostssl"
            address = "10.1.0.0/16"
            role = ["ann", "bob"]
            method = "scram"
            [[rule]]
            kind = "hostnossl"
            address = "2001:db8::/32"
            method = "reject"
            [[rule]]
            kind = "host"
            address = "127.0.0.1"
            database = "polychron"
            method = "trust"
            "#,
        );
        let rules = rules.unwrap();
        let found = |client| method(&rules, client);
        assert_eq!(found(client(None, false)), Some(Method::Peer));
        assert_eq!(found(client(Some("10.1.255.7"), true)), Some(Method::Scram));
        assert_eq!(found(client(Some("::ffff:10.1.2.3"), true)), Some(Method::Scram));
        assert_eq!(found(Client { role: "eve", ..client(Some("10.1.2.3"), true) }), None);
        assert_eq!(found(client(Some("10.1.2.3"), false)), None);
        assert_eq!(found(client(Some("10.2.0.1"), true)), None);
        assert_eq!(found(client(Some("2001:db8:ffff::1"), false)), Some(Method::Reject));
        assert_eq!(found(client(Some("2001:db8:ffff::1"), true)), None);
        assert_eq!(found(client(Some("2001:db9::1"), false)), None);
        for is_secured in [false, true] {
            assert_eq!(found(client(Some("127.0.0.1"), is_secured)), Some(Method::Trust));
            assert_eq!(found(client(Some("127.0.0.2"), is_secured)), None);
        }
        // Other names of the database are no way around a rule.
        for (database, is_found) in [("ann", true), ("postgres", true), ("other", false)] {
            let client = Client { database, ..client(Some("127.0.0.1"), false) };
            assert_eq!(found(client).is_some(), is_found, "{database}");
        }
    }

    #[test]
    fn networks_are_those_of_their_first_bits() {
        let contains =
            |network: &str, address: &str| Network::parse(network).unwrap().contains(address.parse().unwrap());
        assert!(contains("0.0.0.0/0", "255.1.2.3") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("::/0", "fe80::1") && !contains("::/0", "127.0.0.1"));
        assert!(contains("10.0.0.8/29", "10.0.0.15") && !contains("10.0.0.8/29", "10.0.0.16"));
        assert!(contains("all", "10.0.0.1") && contains("all", "::1"));
        for text in
            ["", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/", "10.0.0.0/+8", "a.example", "::ffff:10.0.0.1"]
        {
            assert_eq!(Network::parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_not_supported_is_refused_and_named() {
        let host = "[[rule]]\nkind = \"host\"\n";
        for (text, wanted) in [
            (format!("{host}address = \"all\"\nmethod = \"md5\""), "rule 1: the method \"md5\" is not supported"),
            (format!("{host}address = \"all\"\nmethod = \"cert\""), "rule 1: \"cert\" is for the kind \"hostssl\""),
            (format!("{host}address = \"all\"\nmethod = \"trust\""), "rule 1: \"trust\" is for this machine alone"),
            (format!("{host}address = \"127.0.0.0/7\"\nmethod = \"trust\""), "rule 1: \"trust\" is for this machine"),
            (format!("{host}address = \"all\"\nmethod = \"peer\""), "rule 1: \"peer\" is for connections of the unix"),
            (format!("{host}address = \"a.example\"\nmethod = \"scram\""), "rule 1: \"a.example\" is no address"),
            (format!("{host}method = \"scram\""), "rule 1: an address is needed"),
            (
                format!("{host}address = \"all\"\nmethod = \"scram\"\nclientcert = \"x\""),
                "\"clientcert\" is not supported",
            ),
            (format!("{host}address = \"all\"\nrole = \"+all\"\nmethod = \"scram\""), "\"+all\" is no name"),
            (format!("{host}address = \"all\"\ndatabase = \"sameuser\"\nmethod = \"scram\""), "\"sameuser\" is not"),
            ("[[rule]]\nkind = \"local\"\nmethod = \"peer\"\naddress = \"all\"".to_owned(), "have no address"),
            (
                "[[rule]]\nkind = \"hostgssenc\"\nmethod = \"peer\"".to_owned(),
                "the kind \"hostgssenc\" is not supported",
            ),
            ("[[rule]]\nmethod = \"peer\"".to_owned(), "it has no kind"),
            ("[[rule]]\nkind = 5\nmethod = \"peer\"".to_owned(), "\"kind\" is no text"),
            ("[[rule]]\nkind = \"local\"".to_owned(), "it has no method"),
            (format!("{host}address = \"all\"\nrole = [1]\nmethod = \"scram\""), "\"role\" has what is no name"),
            ("rule = [1]".to_owned(), "rule 1: it is no table"),
            ("rule = 5".to_owned(), "rules are written as [[rule]]"),
        ] {
            let error = rules(&text).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
        assert_eq!(Rule::of_table(&toml::Table::new()).unwrap(), None);
    }
}
