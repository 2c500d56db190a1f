//! Deliveries are queued, executed by the owner of the queue, and taken down.

use super::*;
use crate::tpcc::procedures::TpccProcedure;
use crate::tpcc::{DeliveryMode, TpccClient};

/// Draws and executes; answers how many deliveries the client executed.
fn work(loaded: &mut Loaded, client: &mut TpccClient, transactions: u32) -> u64 {
    let (committed, _) = loaded.run(client, transactions);
    u64::from(committed[3])
}

fn metric(loaded: &Loaded, name: &str) -> u64 {
    let metrics = loaded.workload.metrics();
    metrics.iter().find(|(known, _)| known.contains(name)).unwrap_or_else(|| panic!("{name} in {metrics:?}")).1
}

#[test]
fn the_owner_executes_what_all_terminals_ask_for() {
    let mut loaded = load(&tiny(), 1);
    let threads = usize::from(tiny().warehouses) + 1;
    let (mut owner, mut other) =
        (loaded.workload.client(3, 0, threads), loaded.workload.client(3, threads - 1, threads));
    assert_eq!(work(&mut loaded, &mut other, 500), 0, "the queue is another worker's");
    let queued = metric(&loaded, "still queued");
    assert!(queued > 5, "{queued} of 500");
    assert_eq!(work(&mut loaded, &mut owner, 3), 3, "what waits comes first");
    let executed = 3 + work(&mut loaded, &mut owner, 2000);
    assert_eq!(metric(&loaded, "executed"), executed);
    // Its own requests are among them; at most one waits for the next drawing.
    assert!(executed > queued && metric(&loaded, "still queued") <= 1, "{executed}");
    assert!(metric(&loaded, "longest wait") > 0);
    loaded.check();
}

#[test]
fn immediate_deliveries_do_not_wait() {
    let options = TpccOptions { delivery: DeliveryMode::Immediate, ..tiny() };
    let mut loaded = load(&options, 1);
    let threads = usize::from(options.warehouses) + 1;
    let mut other = loaded.workload.client(3, threads - 1, threads);
    let executed = work(&mut loaded, &mut other, 500);
    assert!(executed > 5, "{executed} of 500");
    assert_eq!((metric(&loaded, "executed"), metric(&loaded, "still queued")), (executed, 0));
    loaded.check();
}

#[test]
fn the_result_file_has_a_line_for_each() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let options = TpccOptions { warehouses: 1, delivery_results: Some(file.path().into()), ..tiny() };
    options.validate(1).expect("the file can be written");
    let mut loaded = load(&options, 1);
    let mut client = loaded.workload.client(5, 0, 1);
    // Without new orders, deliveries run out of work.
    for _ in 0..=options.scale.undelivered {
        let mut delivery = client.delivery();
        loaded.execute(&mut delivery);
        client.finished(&TpccProcedure::Delivery(delivery));
    }
    assert_eq!(metric(&loaded, "executed"), u64::from(options.scale.undelivered) + 1);
    assert_eq!(metric(&loaded, "skipped a district"), 1);
    assert_eq!(metric(&loaded, "districts skipped"), u64::from(options.scale.districts));
    let text = std::fs::read_to_string(file.path()).expect("the file");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len() as u32, options.scale.undelivered + 2, "{text}");
    assert!(lines[0].starts_with("queued_us,completed_us,warehouse,carrier"));
    let first = options.scale.orders - options.scale.undelivered + 1;
    assert!(lines[1].ends_with(&format!("1:{first} 2:{first} 3:{first}")), "{}", lines[1]);
    assert!(lines[lines.len() - 1].ends_with("1:skipped 2:skipped 3:skipped"), "{text}");

    let nowhere = TpccOptions { delivery_results: Some("/no/such/folder/results.csv".into()), ..tiny() };
    let refused = nowhere.validate(1).expect_err("no folder");
    assert!(refused.contains("--delivery-results /no/such/folder"), "{refused}");
}
