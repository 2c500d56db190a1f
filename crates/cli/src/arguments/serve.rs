//! Arguments of `serve`. What is left out is what the configuration says.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

/// Options of `serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// The database's directory; where there is none, one is made [default: a database in memory, gone with the server]
    #[arg(value_name = "PATH")]
    pub path: Option<PathBuf>,

    /// Listen to this address of TCP; may be given several times; with the port 0 to any that is free [default: 127.0.0.1:5432]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Vec<SocketAddr>,

    /// The directory of the unix socket; without a name there is none [default: /tmp]
    #[arg(long, value_name = "DIR")]
    pub socket_directory: Option<String>,

    /// The password of the role `postgres` is the first line of this file [default: that of the first start, which prints it]
    #[arg(long, value_name = "FILE", conflicts_with = "trust")]
    pub password_file: Option<PathBuf>,

    /// Admit whoever comes, without a password; on this machine alone
    #[arg(long)]
    pub trust: bool,

    /// Encrypt connections of TCP that ask for it, and refuse those of other machines that do not: the certificate, and those that lead to its root (PEM). SIGHUP has it read again
    #[arg(long, value_name = "FILE")]
    pub tls_certificate: Option<PathBuf>,

    /// The key of the certificate (PEM), which other accounts may not read
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// Clients may show certificates that those in this file (PEM) have signed; rules with the method `cert` ask for them
    #[arg(long, value_name = "FILE")]
    pub tls_client_roots: Option<PathBuf>,

    /// Read settings, and the rules that say who may come from where, from this file; SIGHUP has it read again [default: polychron.toml beside the database's directory, if it is there]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Say the value of any setting; may be given several times
    #[arg(long, short = 'c', value_name = "NAME=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,

    /// Print all settings with their defaults, as such a file
    #[arg(long)]
    pub print_config: bool,

    /// Let other machines connect although nothing is encrypted: whoever reads the wire reads the data
    #[arg(long)]
    pub plain_text_on_the_network: bool,

    /// The most clients at once [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub max_connections: Option<u16>,

    /// Show what goes on at this address: /metrics for Prometheus, and a page
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<SocketAddr>,

    /// Who looks at the metrics has to know the first line of this file; needed where other machines reach the address
    #[arg(long, value_name = "FILE")]
    pub metrics_password_file: Option<PathBuf>,

    /// Tell transactions that take so many milliseconds or longer, a line of JSON each on the error output
    #[arg(long, value_name = "MS")]
    pub log_slow_transactions: Option<u64>,

    /// Tell their statements without constants
    #[arg(long)]
    pub log_without_constants: bool,

    /// Concurrency-control protocol; `polychron bench list` names them, the default one first
    #[arg(long)]
    pub protocol: Option<String>,
}

/// A name and a value with `=` between them.
fn assignment(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    pair.map(|(name, value)| (name.replace('-', "_"), value.to_owned())).ok_or_else(|| "it is no NAME=VALUE".to_owned())
}
