//! A fixed number of transactions of a workload, each inside a function of its own, for tools that count instructions there:
//!
//! ```sh
//! cargo build --profile profiling -p polychron-workloads --example instructions
//! valgrind --tool=callgrind --toggle-collect='*instructions::counted*' target/profiling/examples/instructions tpcc maflingo 1500
//! ```
//!
//! One worker loads one warehouse, or 20,000 rows of 100 bytes, and executes. Workloads: `tpcc`, `ycsb95` and `ycsb50` (16 requests, the share of
//! reads in percent), `ycsb1` (one request, half of them reads, θ 0.99). Intervals of collection and epochs are 50 times as long as the
//! defaults, because the counted program is about as many times slower.

use std::hint::black_box;
use std::sync::Arc;

use clap::Parser;
use polychron_base::Error;
use polychron_engine::{Common, Protocol, Worker};
use polychron_protocols::{Bohm, Cicada, Hyper, Locking, Maflingo, bohm, cicada, hyper, locking, maflingo};
use polychron_workloads::run::Share;
use polychron_workloads::tpcc::{Tpcc, TpccOptions};
use polychron_workloads::ycsb::{Ycsb, YcsbOptions};
use polychron_workloads::{Client, Workload};

#[derive(Parser)]
struct Arguments {
    workload: String,
    protocol: String,
    count: usize,
    #[command(flatten)]
    tpcc: TpccOptions,
}

/// As many times slower is a program whose instructions are counted.
const SLOWER: u32 = 50;

#[inline(never)]
fn counted<W: Worker, C: Client>(worker: &mut W, procedure: &mut C::Procedure) -> Result<(), Error> {
    worker.execute(procedure).map(|output| drop(black_box(output)))
}

fn run<P: Protocol, W: Workload>(database: &Arc<P>, options: &W::Options, transactions: usize) -> Result<(), Error> {
    let workload = W::create(options, database)?;
    let mut worker = database.worker()?;
    workload.load_part(&mut worker, &Share { part: 0, parts: 1, seed: 1, progress: &|_| {} })?;
    let mut client = workload.client(1, 0, 1);
    for _ in 0..transactions {
        let mut procedure = client.next();
        match counted::<_, W::Client>(&mut worker, &mut procedure) {
            Ok(()) | Err(Error::RolledBack) => client.finished(&procedure),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn run_on<P: Protocol>(options: P::Options, arguments: &Arguments) -> Result<(), Error> {
    let database = P::open(options, Common::default())?;
    let ycsb = |requests, read_share, theta| {
        let options =
            YcsbOptions { records: 20_000, record_size: 100, requests, read_share, theta, ..YcsbOptions::default() };
        run::<P, Ycsb>(&database, &options, arguments.count)
    };
    match &*arguments.workload {
        "tpcc" => run::<P, Tpcc>(&database, &arguments.tpcc, arguments.count),
        "ycsb95" => ycsb(16, 0.95, 0.0),
        "ycsb50" => ycsb(16, 0.5, 0.0),
        "ycsb1" => ycsb(1, 0.5, 0.99),
        other => panic!("no workload is called {other}"),
    }
}

fn main() -> Result<(), Error> {
    let arguments = Arguments::parse();
    match &*arguments.protocol {
        "bohm" => run_on::<Bohm>(bohm::Options::default(), &arguments),
        "cicada" => {
            let options = cicada::Options::default();
            let collection_interval = options.collection_interval * SLOWER;
            run_on::<Cicada>(cicada::Options { collection_interval, ..options }, &arguments)
        }
        "hyper" => run_on::<Hyper>(hyper::Options::default(), &arguments),
        "locking" => run_on::<Locking>(locking::Options::default(), &arguments),
        "maflingo" => {
            let options = maflingo::Options::default();
            let epoch_interval = options.epoch_interval * SLOWER;
            run_on::<Maflingo>(maflingo::Options { epoch_interval, ..options }, &arguments)
        }
        other => panic!("no protocol is called {other}"),
    }
}
