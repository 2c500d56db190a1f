//! What other crates are told of a database.
#![cfg(all(feature = "metrics", feature = "tracing"))]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use polychron::{Database, Error};
use tracing::span::{Attributes, Id, Record};

/// Remembers which metrics were recorded.
#[derive(Default)]
struct Names(Mutex<Vec<String>>);

impl Names {
    fn add(&self, key: &Key) {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        self.0.lock().unwrap().push(format!("{} {}", key.name(), labels.join(" ")));
    }
}

impl Recorder for Names {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.add(key);
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.add(key);
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.add(key);
        Histogram::noop()
    }
}

#[test]
fn metrics_are_recorded() -> Result<(), Error> {
    let database = Database::in_memory()?;
    database.request("nothing").transact(|_| polychron::Ok(()))?;
    let names = Names::default();
    metrics::with_local_recorder(&names, || database.record_metrics());
    let names = names.0.into_inner().unwrap();
    for name in [
        "polychron_commits ",
        "polychron_memory_used_bytes ",
        "polychron_requests_completed request=nothing",
        "polychron_request_seconds request=nothing quantile=0.99",
    ] {
        assert!(names.iter().any(|recorded| recorded == name), "{name} is not among {names:?}");
    }
    Ok(())
}

/// Counts events of this crate.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<tracing::Level>>>);

impl tracing::Subscriber for Events {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("polychron")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        self.0.lock().unwrap().push(*event.metadata().level());
    }

    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn slow_transactions_are_events() -> Result<(), Error> {
    let database = Database::builder().trace().slow_transactions(Duration::ZERO).in_memory()?;
    let events = Events::default();
    tracing::subscriber::with_default(events.clone(), || database.transact(|_| polychron::Ok(())))?;
    assert_eq!(*events.0.lock().unwrap(), [tracing::Level::WARN]);
    Ok(())
}
