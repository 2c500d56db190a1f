//! What a configuration says of a server.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use polychron::{DefaultProtocol, Protocol as _};
use polychron_server::{Configuration, Credentials, Metrics, Options, Password, Rule, SlowLog, TlsFiles};

/// The options of a server. Its credentials are those of one that admits everybody, unless a file says them.
pub(super) fn options(configuration: &Configuration, rules: Option<Vec<Rule>>) -> Result<Options, String> {
    let number = |name: &str| configuration.get(name).parse().map_err(|_| format!("{name}: it is no number"));
    let credentials = match path(configuration, "password_file") {
        Some(file) if !configuration.is_on("trust") => {
            Credentials::Password(Password::of_file(&file).map_err(|error| error.to_string())?)
        }
        _ => Credentials::Trust,
    };
    let mode = configuration.get("unix_socket_permissions");
    Ok(Options {
        listen: addresses(configuration, "listen")?,
        socket_directory: path(configuration, "socket_directory"),
        socket_permissions: u32::from_str_radix(mode, 8).map_err(|_| "unix_socket_permissions: it is no mode")?,
        tls: tls(configuration)?,
        rules,
        allows_plain_text_on_the_network: configuration.is_on("plain_text_on_the_network"),
        max_connections: number("max_connections")?,
        superuser_reserved_connections: number("superuser_reserved_connections")?,
        max_unauthenticated: number("max_unauthenticated")?,
        metrics: metrics(configuration)?,
        slow_log: slow_log(configuration),
        ..Options::new(credentials)
    })
}

/// The addresses that a setting says.
fn addresses(configuration: &Configuration, name: &str) -> Result<Vec<SocketAddr>, String> {
    let texts = configuration.get(name).split(',').map(str::trim).filter(|text| !text.is_empty());
    texts.map(|text| text.parse().map_err(|_| format!("{name}: \"{text}\" is no address with a port"))).collect()
}

/// The name of the protocol.
pub(super) fn protocol(configuration: &Configuration) -> &str {
    Some(configuration.get("protocol")).filter(|name| !name.is_empty()).unwrap_or(DefaultProtocol::NAME)
}

/// The path that a setting says, if it says one.
fn path(configuration: &Configuration, name: &str) -> Option<PathBuf> {
    Some(configuration.get(name)).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The files of the certificate, if there is one.
fn tls(configuration: &Configuration) -> Result<Option<TlsFiles>, String> {
    let file = |name| path(configuration, name);
    match (file("tls_certificate"), file("tls_key"), file("tls_client_roots")) {
        (Some(certificate), Some(key), client_roots) => Ok(Some(TlsFiles { certificate, key, client_roots })),
        (None, None, None) => Ok(None),
        _ => Err("TLS needs both tls_certificate and tls_key".to_owned()),
    }
}

fn metrics(configuration: &Configuration) -> Result<Option<Metrics>, String> {
    let file = path(configuration, "metrics_password_file");
    let address = match (&addresses(configuration, "metrics")?[..], &file) {
        ([], None) => return Ok(None),
        ([address], _) => *address,
        ([], Some(_)) => return Err("metrics_password_file: there are no metrics".to_owned()),
        _ => return Err("metrics: there may be one address".to_owned()),
    };
    let password = file.map(|file| {
        let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
        let text = polychron_server::text_of(&file).map_err(|error| failed(&error))?;
        let line = text.lines().next().filter(|line| !line.is_empty());
        line.map(str::to_owned).ok_or_else(|| failed(&"the first line is empty"))
    });
    Ok(Some(Metrics { address, password: password.transpose()? }))
}

/// The log of slow transactions. It is there where none is told at first, too: sessions may set from when on theirs are.
fn slow_log(configuration: &Configuration) -> Option<SlowLog> {
    let line = Arc::new(|line: &str| {
        // Nobody may read it.
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    });
    let after = Some(configuration.time("log_min_duration_transaction")).filter(|after| !after.is_zero());
    Some(SlowLog { after, cuts_constants: configuration.is_on("log_without_constants"), line })
}
