//! `polychron serve`: a database that clients of PostgreSQL talk to.

mod signals;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use polychron::Database;
use polychron_base::line::OneLine;
use polychron_server::{
    Credentials, Metrics, Options, Password, Reloader, Rule, Server, ServerError, SlowLog, TlsFiles, new_password,
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
    if let Err(line) = check_protocol(&given.protocol) {
        print_error(OneLine(line));
        return 2;
    }
    match serve(given) {
        Ok(()) => 0,
        Err(line) => {
            print_error(OneLine(line));
            1
        }
    }
}

fn serve(given: &Serve) -> Result<(), String> {
    let max_connections = usize::from(given.max_connections);
    let builder = Database::builder().on_event(opening()).protocol(&given.protocol);
    let builder = builder.workers(max_connections.min(WORKERS) + OWN_WORKERS);
    let database = match &given.path {
        None => builder.in_memory(),
        Some(path) => builder.open(path),
    };
    let database = database.map_err(|error| error.to_string())?;
    let options = Options {
        listen: given.listen.clone(),
        socket_directory: Some(PathBuf::from(&given.socket_directory)).filter(|path| !path.as_os_str().is_empty()),
        tls: tls(given),
        rules: rules(given.config.as_deref()).map_err(|error| error.to_string())?,
        allows_plain_text_on_the_network: given.plain_text_on_the_network,
        max_connections,
        metrics: metrics(given)?,
        slow_log: slow_log(given),
        ..Options::new(credentials(given).map_err(|error| error.to_string())?)
    };
    let server = Server::start(database, options).map_err(|error| error.to_string())?;
    let (stopper, reloader, config) = (server.stopper(), server.reloader(), given.config.clone());
    let reload = move || reloader.iter().for_each(|reloader| reload(reloader, config.as_deref()));
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

fn tls(given: &Serve) -> Option<TlsFiles> {
    let (certificate, key) = (given.tls_certificate.clone()?, given.tls_key.clone()?);
    Some(TlsFiles { certificate, key, client_roots: given.tls_client_roots.clone() })
}

fn rules(config: Option<&Path>) -> Result<Option<Vec<Rule>>, ServerError> {
    config.map_or(Ok(None), Rule::of_file)
}

/// Reads the files of a server again. What cannot be used is told, and what was there stays.
fn reload(reloader: &Reloader, config: Option<&Path>) {
    let certificate = reloader.read_certificate();
    let rules = rules(config).and_then(|rules| reloader.set_rules(rules));
    for error in [certificate, rules].into_iter().filter_map(Result::err) {
        print_error(OneLine(format!("not read again: {error}")));
    }
}

fn metrics(given: &Serve) -> Result<Option<Metrics>, String> {
    let Some(address) = given.metrics else { return Ok(None) };
    let password = given.metrics_password_file.as_deref().map(|file| {
        let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
        let text = std::fs::read_to_string(file).map_err(|error| failed(&error))?;
        let line = text.lines().next().filter(|line| !line.is_empty());
        line.map(str::to_owned).ok_or_else(|| failed(&"the first line is empty"))
    });
    Ok(Some(Metrics { address, password: password.transpose()? }))
}

fn slow_log(given: &Serve) -> Option<SlowLog> {
    let after = Duration::from_millis(given.log_slow_transactions?);
    let line = Arc::new(|line: &str| {
        // Nobody may read it.
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    });
    Some(SlowLog { after, cuts_constants: given.log_without_constants, line })
}

/// How clients show who they are. A password that is made here is printed once, and nowhere else.
fn credentials(given: &Serve) -> Result<Credentials, ServerError> {
    if given.trust {
        return Ok(Credentials::Trust);
    }
    if let Some(file) = &given.password_file {
        return Password::of_file(file).map(Credentials::Password);
    }
    let kept = given.path.as_deref().map(beside);
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
