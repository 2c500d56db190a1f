//! A server in a process of its own, which is killed.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use polychron::Database;
use polychron_server::{Credentials, Options, Server};
use postgres::{Client, NoTls};

/// Names the directory of the database in the process of the server.
const PATH: &str = "POLYCHRON_SERVED_BY_A_TEST";

/// What the process of the server does; in other runs it is nothing.
#[test]
fn serve() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let database = Database::builder().small().workers(32).open(path).unwrap();
    let mut options = Options::new(Credentials::Trust);
    options.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    let server = Server::start(database, options).unwrap();
    println!("\nlistening on {}", server.addresses()[0]);
    // It ends with its parent, if not before.
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn what_was_acknowledged_outlives_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bank");
    let mut acknowledged = 0_i64;
    for round in 0..3_i64 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "processes::serve", "--nocapture"]).env(PATH, &path);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| line.unwrap().strip_prefix("listening on ").map(str::to_owned));
        let address: SocketAddr = address.expect("it listens").parse().unwrap();
        let text = format!("host=127.0.0.1 port={} user=postgres", address.port());
        let mut client = Client::connect(&text, NoTls).unwrap();
        client.batch_execute("CREATE TABLE IF NOT EXISTS t (id bigint PRIMARY KEY)").unwrap();
        let count: i64 = client.query_one("SELECT count(*) FROM t", &[]).unwrap().get(0);
        assert_eq!(count, acknowledged, "in round {round}");
        for _ in 0..20 {
            client.execute("INSERT INTO t VALUES ($1)", &[&acknowledged]).unwrap();
            acknowledged += 1;
        }
        // What has not committed is not there.
        client.batch_execute("BEGIN; INSERT INTO t VALUES (-1)").unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
