//! `polychron serve`: a database that clients of PostgreSQL talk to.

mod options;
mod signals;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use polychron::Database;
use polychron_base::line::OneLine;
use polychron_server::{
    Configuration, Credentials, Options, Password, Rule, Server, ServerError, Sources, new_password,
    printed_configuration,
};

use crate::arguments::Serve;
use crate::output::{print_error, print_output};
use crate::progress::opening;
use crate::statements::check_protocol;

use options::{options, protocol};

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
    if let unknown @ [_, ..] = sources.unknown_variables() {
        print_error(OneLine(format!("variables of the environment that name no setting: {}", unknown.join(", "))));
    }
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

fn serve(
    given: &Serve,
    sources: &Arc<Sources>,
    configuration: &Configuration,
    rules: Option<Vec<Rule>>,
) -> Result<(), String> {
    let options = options(configuration, rules)?;
    let max_connections = options.max_connections;
    let builder = Database::builder().on_event(opening()).protocol(protocol(configuration));
    let builder = builder.workers(max_connections.min(WORKERS) + OWN_WORKERS);
    let database = match &given.path {
        None => builder.in_memory(),
        Some(path) => builder.open(path),
    };
    let database = database.map_err(|error| error.to_string())?;
    let kept = given.path.as_deref().map(beside);
    let (credentials, new) =
        credentials(kept.as_deref(), configuration, &options).map_err(|error| error.to_string())?;
    database.sql_database().configure(configuration.clone(), Some(sources.clone()));
    let known = Arc::downgrade(database.sql_database());
    let server = Server::start(database, Options { credentials, ..options }).map_err(|error| error.to_string())?;
    if let Some(new) = new {
        new.tell(kept.as_deref()).map_err(|error| error.to_string())?;
    }
    let own: Vec<_> = server.addresses().into_iter().chain(server.metrics_address()).collect();
    sources.try_with(move |configuration, rules| try_start(configuration, rules, &own));
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

/// A password that was made for the first start.
struct NewPassword {
    text: String,
    password: Password,
}

impl NewPassword {
    /// Keeps what it is known by, and prints it, once and nowhere else. A server that does not start has none.
    fn tell(&self, kept: Option<&Path>) -> Result<(), ServerError> {
        kept.map_or(Ok(()), |path| self.password.keep(path))?;
        print_output(format_args!("the password of the role postgres, which is not shown again: {}", self.text));
        Ok(())
    }
}

/// How clients show who they are, and the password that was made for it.
fn credentials(
    kept: Option<&Path>,
    configuration: &Configuration,
    options: &Options,
) -> Result<(Credentials, Option<NewPassword>), ServerError> {
    if configuration.is_on("trust") || matches!(options.credentials, Credentials::Password(_)) {
        return Ok((options.credentials.clone(), None));
    }
    if let Some(password) = kept.map(Password::kept).transpose()?.flatten() {
        return Ok((Credentials::Password(password), None));
    }
    let text = new_password()?;
    let password = Password::new(&text)?;
    Ok((Credentials::Password(password.clone()), Some(NewPassword { text, password })))
}

/// Tries whether a server would start with a configuration when this one, which listens to these addresses, has ended.
fn try_start(configuration: &Configuration, rules: Option<Vec<Rule>>, own: &[SocketAddr]) -> Result<(), String> {
    check_protocol(protocol(configuration)).map_err(|error| error.replace("--protocol", "protocol"))?;
    let mut options = options(configuration, rules)?;
    if !configuration.is_on("trust") && matches!(options.credentials, Credentials::Trust) {
        options.credentials = Credentials::Password(Password::new("tried").map_err(|error| error.to_string())?);
    }
    options.check(own).map_err(|error| error.to_string())
}

/// Where the verifier of a database's password lies: beside its directory, in which all files are the database's.
fn beside(directory: &Path) -> PathBuf {
    let name = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let mut name = name.into_os_string();
    name.push(".password");
    name.into()
}
