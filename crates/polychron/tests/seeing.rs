//! What users see of a database while it works.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
#[cfg(feature = "any")]
use std::thread;
use std::time::Duration;

use polychron::{Database, Error, Event, Operations, Options, Row};

#[derive(Row)]
struct Account {
    #[key]
    id: u64,
    balance: i64,
}

/// Has a transaction conflict at account 1.
fn conflict(database: &Database) -> Result<(), Error> {
    let accounts = database.create_or_open_table::<Account>()?;
    database.transact(|transaction| transaction.upsert(&accounts, &Account { id: 1, balance: 0 }))?;
    let (mut session, mut other) = (database.session()?, database.session()?);
    let mut is_first = true;
    session.transact(|transaction| {
        let balance = transaction.get_owned(&accounts, 1)?.expect("it was inserted").balance;
        if std::mem::take(&mut is_first) {
            other.transact(|other| other.update(&accounts, 1, |row| row.set_balance(row.balance() + 1)))?;
        }
        transaction.update(&accounts, 1, |row| row.set_balance(balance))
    })?;
    Ok(())
}

#[test]
fn keys_at_which_transactions_conflict_are_counted() -> Result<(), Error> {
    let database = Database::in_memory()?;
    assert!(database.hot_keys().is_empty());
    (0..3).try_for_each(|_| conflict(&database))?;
    let hot = database.hot_keys();
    assert_eq!(hot.len(), 1, "{hot:?}");
    assert_eq!((hot[0].0.to_string(), hot[0].1), ("(id)=(1) in account".to_owned(), 3));
    assert_eq!(database.statistics().conflicts(), 3);
    // What is gone keeps its name.
    database.drop_table(database.find_table("account").expect("it was created"))?;
    database.transact(|_| polychron::Ok(()))?;
    assert!(database.hot_keys()[0].0.to_string().ends_with("in account"), "{:?}", database.hot_keys());
    let text = format!("{:?}", database.statistics());
    assert!(text.contains("aborts: {\"") && text.len() < 2000, "{text}");
    Ok(())
}

#[test]
fn conflicts_and_slow_transactions_are_reported() -> Result<(), Error> {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&heard);
    let database = Database::builder()
        .on_event(move |event| {
            let said = match event {
                Event::Conflict { abort, attempts, .. } => format!("{attempts} {}", abort.table),
                Event::Slow { conflicts, committed, .. } => format!("slow {conflicts} {committed}"),
                _ => return,
            };
            hears.lock().unwrap().push(said);
            panic!("what a listener panics with is dropped");
        })
        .slow_transactions(Duration::ZERO)
        .in_memory()?;
    conflict(&database)?;
    let table = database.find_table("account").unwrap();
    let heard = std::mem::take(&mut *heard.lock().unwrap());
    // The transactions that insert the account, write in between, conflict, and conflicted once.
    let expected = ["slow 0 true".into(), "slow 0 true".into(), format!("1 {table}"), "slow 1 true".into()];
    assert_eq!(heard, expected);
    Ok(())
}

#[test]
fn requests_are_counted_by_name() -> Result<(), Error> {
    let database = Database::in_memory()?;
    let accounts = database.create_table::<Account>()?;
    let (open, read) = (database.request("open"), database.request("read"));
    for id in 0..100 {
        open.transact(|transaction| transaction.insert(&accounts, &Account { id, balance: 1 }))?;
    }
    assert!(open.transact(|transaction| transaction.insert(&accounts, &Account { id: 7, balance: 1 })).is_err());
    let mut session = database.session()?;
    assert!(database.request("read").transact_in(&mut session, |transaction| transaction.contains(&accounts, 7))?);
    read.snapshot(|transaction| transaction.get_owned(&accounts, 7).map(drop))?;
    let requests = database.requests();
    let counts: Vec<_> = requests.iter().map(|of| (of.name.as_str(), of.completed, of.failed)).collect();
    assert_eq!(counts, [("open", 100, 1), ("read", 2, 0)]);
    let (median, most) = (requests[0].latency(0.5).unwrap(), requests[0].latency(1.0).unwrap());
    assert!(Duration::ZERO < median && median <= most);
    assert!(requests[1].latency_of_failed(0.5).is_none());
    assert!(requests[0].to_string().starts_with("open: 100 completed, 1 failed, p50 "));
    Ok(())
}

/// A listener that sends the events of which `pick` answers something.
fn sends<T: Send + 'static>(
    pick: impl Fn(&Event<'_>) -> Option<T> + Send + Sync + 'static,
) -> (impl Fn(&Event<'_>) + Send + Sync + 'static, Receiver<T>) {
    let (sender, receiver) = channel();
    let listener = move |event: &Event<'_>| {
        if let Some(picked) = pick(event) {
            // The test may have ended.
            let _ = sender.send(picked);
        }
    };
    (listener, receiver)
}

const LIMIT: Duration = Duration::from_secs(60);

#[cfg(feature = "any")]
#[test]
fn transactions_that_stay_open_are_reported_with_their_thread() -> Result<(), Error> {
    let protocols = ["cicada", "maflingo", "hyper", "lazy-occ", "locking"];
    let cases = protocols.into_iter().flat_map(|protocol| [(protocol, true), (protocol, false)]);
    let clients: Vec<_> =
        cases.map(|(protocol, is_snapshot)| thread::spawn(move || stays_open(protocol, is_snapshot))).collect();
    clients.into_iter().try_for_each(|client| client.join().expect("it does not panic"))
}

#[cfg(feature = "any")]
fn stays_open(protocol: &str, is_snapshot: bool) -> Result<(), Error> {
    let (listener, heard) = sends(|event| match event {
        Event::Open { time, thread, .. } => Some((*time, thread.name().map(str::to_owned))),
        _ => None,
    });
    let database = Database::builder().protocol(protocol).on_event(listener).in_memory()?;
    let accounts = database.create_table::<Account>()?;
    database.transact(|transaction| transaction.insert(&accounts, &Account { id: 1, balance: 0 }))?;
    let (database, accounts) = (&database, &accounts);
    let idle = move || -> Result<_, Error> {
        let mut open = if is_snapshot { database.begin_snapshot()? } else { database.begin()? };
        open.get_owned(accounts, 1)?;
        Ok(heard.recv_timeout(LIMIT))
    };
    let (time, name) = thread::scope(|scope| {
        let thread = thread::Builder::new().name("idle".to_owned()).spawn_scoped(scope, idle);
        thread.expect("there are threads left").join().expect("it does not panic")
    })?
    .unwrap_or_else(|error| panic!("{protocol}, snapshot {is_snapshot}: {error}"));
    assert!(time >= Duration::from_secs(1), "{protocol}: {time:?}");
    assert_eq!(name.as_deref(), Some("idle"), "{protocol}");
    Ok(())
}

#[test]
fn memory_that_fills_up_is_reported() -> Result<(), Error> {
    let (listener, heard) = sends(|event| match event {
        Event::Memory { mark_percent, used_bytes, limit_bytes, .. } => Some((*mark_percent, *used_bytes, *limit_bytes)),
        _ => None,
    });
    let database = Database::builder().small().on_event(listener).in_memory()?;
    let accounts = database.create_table::<Account>()?;
    for mark in [80, 95] {
        let mut id = 0;
        let (percent, used, limit) = loop {
            if let Ok(heard) = heard.try_recv() {
                break heard;
            }
            // It is full before the next mark is seen: then it stays so.
            let filled = database.transact(|transaction| {
                (0..1000).try_for_each(|step| {
                    transaction.upsert(&accounts, &Account { id: mark << 32 | (id + step), balance: 0 })
                })
            });
            id += if filled.is_ok() { 1000 } else { 0 };
        };
        assert_eq!(u64::from(percent), mark);
        assert!(limit == 64 << 20 && used <= limit && used >= limit / 100 * usize::from(percent), "{used} of {limit}");
    }
    Ok(())
}

#[test]
fn the_last_handle_may_go_in_a_listener() -> Result<(), Error> {
    let last = Arc::new(Mutex::new(None::<Database>));
    let (taken, (ended, end)) = (Arc::clone(&last), channel());
    let listener = move |event: &Event<'_>| {
        if let Event::Memory { .. } = event {
            drop(taken.lock().unwrap().take());
            let _ = ended.send(());
        }
    };
    let mut options = Options::default();
    options.common.memory.soft_percent = 0;
    *last.lock().unwrap() = Some(Database::builder().options(options).on_event(listener).in_memory()?);
    end.recv_timeout(LIMIT).expect("it does not wait for itself");
    Ok(())
}
