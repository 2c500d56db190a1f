//! `polychron serve`: a database that clients of PostgreSQL talk to.

mod signals;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use polychron::{Database, DefaultProtocol, Protocol as _};
use polychron_base::line::OneLine;
use polychron_server::{
    Configuration, Credentials, Metrics, Options, Password, Rule, Server, ServerError, SlowLog, Sources, TlsFiles,
    new_password, printed_configuration,
};

use crate::arguments::Serve;
use crate::output::{print_error, print_output};
use crate::progress::opening;
use crate::statements::check_protocol;

/// Workers beside those of clients: of definitions, and of what the database does by itself.
const OWN_WORKERS: usize = 56;
/// The most workers of clients: those that are silent have none, and no protocol has many more.
const WORKERS: usize = 400;

/// Runs `serve` until Ctrl-C, or a request of the system to end.
pub fn run(given: &Serve) -> u8 {
    if given.print_config {
        print_output(printed_configuration().trim_end());
        return 0;
    }
    let sources = Sources::new(given.path.as_deref(), given.config.as_deref(), variables(), said(given));
    let (configuration, others) = match sources.read_all() {
        Ok(read) => read,
        Err(error) => {
            print_error(OneLine(error.to_string()));
            return 1;
        }
    };
    if let Err(line) = check_protocol(protocol(&configuration)) {
        print_error(OneLine(line));
        return 2;
    }
    match Rule::of_table(&others)
        .map_err(|error| error.to_string())
        .and_then(|rules| serve(given, &Arc::new(sources), &configuration, rules))
    {
        Ok(()) => 0,
        Err(line) => {
            print_error(OneLine(line));
            1
        }
    }
}

/// The variables of the environment that are texts.
fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// What the command line says of settings.
fn said(given: &Serve) -> Vec<(String, String)> {
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let switch = |is_on: bool| is_on.then(|| "on".to_owned());
    let listen: Vec<_> = given.listen.iter().map(ToString::to_string).collect();
    let options = [
        ("listen", (!listen.is_empty()).then(|| listen.join(", "))),
        ("socket_directory", given.socket_directory.clone()),
        ("password_file", path(&given.password_file)),
        ("trust", switch(given.trust)),
        ("tls_certificate", path(&given.tls_certificate)),
        ("tls_key", path(&given.tls_key)),
        ("tls_client_roots", path(&given.tls_client_roots)),
        ("plain_text_on_the_network", switch(given.plain_text_on_the_network)),
        ("max_connections", given.max_connections.map(|count| count.to_string())),
        ("metrics", given.metrics.map(|address| address.to_string())),
        ("metrics_password_file", path(&given.metrics_password_file)),
        ("log_min_duration_transaction", given.log_slow_transactions.map(|ms| ms.to_string())),
        ("log_without_constants", switch(given.log_without_constants)),
        ("protocol", given.protocol.clone()),
    ];
    let options = options.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    options.chain(given.set.iter().cloned()).collect()
}

/// The addresses that a setting says.
fn addresses(configuration: &Configuration, name: &str) -> Result<Vec<SocketAddr>, String> {
    let texts = configuration.get(name).split(',').map(str::trim).filter(|text| !text.is_empty());
    texts.map(|text| text.parse().map_err(|_| format!("{name}: \"{text}\" is no address with a port"))).collect()
}

/// The name of the protocol.
fn protocol(configuration: &Configuration) -> &str {
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

fn serve(
    given: &Serve,
    sources: &Arc<Sources>,
    configuration: &Configuration,
    rules: Option<Vec<Rule>>,
) -> Result<(), String> {
    let max_connections =
        configuration.get("max_connections").parse().map_err(|_| "max_connections: it is no number")?;
    let options = Options {
        listen: addresses(configuration, "listen")?,
        socket_directory: path(configuration, "socket_directory"),
        tls: tls(configuration)?,
        rules,
        allows_plain_text_on_the_network: configuration.is_on("plain_text_on_the_network"),
        max_connections,
        max_unauthenticated: configuration.get("max_unauthenticated").parse().unwrap_or(max_connections),
        metrics: metrics(configuration)?,
        slow_log: slow_log(configuration),
        ..Options::new(Credentials::Trust)
    };
    let builder = Database::builder().on_event(opening()).protocol(protocol(configuration));
    let builder = builder.workers(max_connections.min(WORKERS) + OWN_WORKERS);
    let database = match &given.path {
        None => builder.in_memory(),
        Some(path) => builder.open(path),
    };
    let database = database.map_err(|error| error.to_string())?;
    let credentials = credentials(given.path.as_deref(), configuration).map_err(|error| error.to_string())?;
    database.sql_database().configure(configuration.clone(), Some(sources.clone()));
    let known = Arc::downgrade(database.sql_database());
    let server = Server::start(database, Options { credentials, ..options }).map_err(|error| error.to_string())?;
    if let Some(reloader) = server.reloader() {
        sources.listen(move |others| {
            let rules = Rule::of_table(others)?;
            reloader.read_certificate()?;
            reloader.set_rules(rules)
        });
    }
    let stopper = server.stopper();
    // What cannot be used is told, and what was there stays.
    let reload = move || {
        if let Some(Err(error)) = known.upgrade().map(|database| database.reload()) {
            print_error(OneLine(format!("not read again: {error}")));
        }
    };
    signals::listen(move || stopper.stop(), reload).map_err(|error| error.to_string())?;
    for address in server.addresses() {
        print_output(format_args!("listening on {address}"));
    }
    if let Some(address) = server.metrics_address() {
        print_output(format_args!("metrics on http://{address}/"));
    }
    if let Some(path) = server.socket() {
        print_output(format_args!("listening on {}", path.display()));
    }
    server.wait().map_or(Ok(()), |database| database.close().map_err(|error| error.to_string()))
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
        let text = std::fs::read_to_string(&file).map_err(|error| failed(&error))?;
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

/// How clients show who they are. A password that is made here is printed once, and nowhere else.
fn credentials(directory: Option<&Path>, configuration: &Configuration) -> Result<Credentials, ServerError> {
    if configuration.is_on("trust") {
        return Ok(Credentials::Trust);
    }
    if let Some(file) = path(configuration, "password_file") {
        return Password::of_file(&file).map(Credentials::Password);
    }
    let kept = directory.map(beside);
    if let Some(path) = &kept
        && let Some(password) = Password::kept(path)?
    {
        return Ok(Credentials::Password(password));
    }
    let text = new_password()?;
    let password = Password::new(&text)?;
    if let Some(path) = &kept {
        password.keep(path)?;
    }
    print_output(format_args!("the password of the role postgres, which is not shown again: {text}"));
    Ok(Credentials::Password(password))
}

/// Where the verifier of a database's password lies: beside its directory, in which all files are the database's.
fn beside(directory: &Path) -> PathBuf {
    let name = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let mut name = name.into_os_string();
    name.push(".password");
    name.into()
}
