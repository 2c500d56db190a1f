use polychron_memory::{Memory, Options};

use super::*;

struct Named(TableId, Arc<TableDefinition>);

impl Described for Named {
    fn id(&self) -> TableId {
        self.0
    }

    fn definition(&self) -> &Arc<TableDefinition> {
        &self.1
    }
}

fn add(catalog: &Catalog<Named>, name: &str) -> TableId {
    let make = |id, _: &[_]| Ok((Named(id, Arc::new(TableDefinition::new(name))), Vec::new()));
    catalog.create(name, Standing::Permanent, make).unwrap()
}

#[test]
fn a_list_stays_for_the_guards_of_its_time() {
    let memory = Memory::new(Options::tiny()).unwrap();
    let (local, epochs) = (memory.register().unwrap(), memory.epochs());
    let catalog = Catalog::default();
    let id = add(&catalog, "first");
    let mut seen = Seen::default();
    assert!(seen.is_empty() && seen.keep().is_empty());
    let guard = local.pin();
    // SAFETY: the guard stays as long as the list is looked at, but where it is kept.
    unsafe { seen.renew(&catalog) };
    let table = Arc::downgrade(known(&seen, id).unwrap());
    catalog.remove(id, |_| ()).unwrap();
    for _ in 0..3 {
        catalog.release(epochs);
        epochs.advance();
    }
    assert_eq!(known(&seen, id).unwrap().1.name, "first", "the list is the one that was seen");
    let kept = seen.keep();
    drop(guard);
    epochs.advance();
    catalog.release(epochs);
    assert!(table.upgrade().is_some() && seen.iter().flatten().count() == 1, "the list was kept");
    drop(kept);
    assert!(table.upgrade().is_none(), "nothing else kept it");
}

#[test]
fn idle_workers_keep_no_table() {
    let memory = Memory::new(Options::tiny()).unwrap();
    let (local, epochs) = (memory.register().unwrap(), memory.epochs());
    let catalog = Catalog::default();
    let (mut seen, mut tables) = (Seen::default(), Vec::new());
    for round in 0..5 {
        let id = add(&catalog, &format!("table {round}"));
        let guard = local.pin();
        // SAFETY: the guard stays until the list was looked at.
        unsafe { seen.renew(&catalog) };
        tables.push(Arc::downgrade(known(&seen, id).unwrap()));
        drop(guard);
        catalog.remove(id, |_| ()).unwrap();
    }
    catalog.release(epochs);
    epochs.advance();
    catalog.release(epochs);
    assert!(tables.iter().all(|table| table.upgrade().is_none()));
}

#[test]
fn lists_are_kept_for_transactions_that_leave_their_epochs() {
    let memory = Memory::new(Options::tiny()).unwrap();
    let (local, epochs) = (memory.register().unwrap(), memory.epochs());
    let (catalog, kept) = (Catalog::default(), Kept::new(1));
    let release = || {
        epochs.advance();
        catalog.release(epochs);
        epochs.advance();
        catalog.release(epochs);
    };
    let mut seen = Seen::default();
    let mut begin = |name: &str| {
        let id = add(&catalog, name);
        let guard = local.pin();
        // SAFETY: the list is kept until it was looked at.
        unsafe { seen.renew(&catalog) };
        kept.keep(0, &mut seen);
        drop(guard);
        (id, Arc::downgrade(known(&seen, id).unwrap()))
    };
    let (id, first) = begin("first");
    catalog.remove(id, |_| ()).unwrap();
    kept.take_from_idle(&catalog, |_| false);
    release();
    assert!(first.upgrade().is_some(), "a transaction is open");
    kept.take_from_idle(&catalog, |_| true);
    assert!(first.upgrade().is_none(), "its worker is idle");
    let (id, second) = begin("second");
    catalog.remove(id, |_| ()).unwrap();
    release();
    assert!(second.upgrade().is_some(), "the next transaction keeps its own");
    kept.let_old_go(0, &mut seen, &catalog);
    assert!(second.upgrade().is_none());
}

/// The list has slots for the tables that there are, however many there have been; ids of dropped tables lead nowhere.
#[test]
fn the_list_is_as_long_as_there_are_tables() {
    let catalog = Catalog::default();
    let (mut ids, mut gone) = (Vec::new(), Vec::new());
    let mut random = polychron_base::random::Random::stream(3, 0);
    for round in 0..2000 {
        let (before, list) = catalog.snapshot();
        // Few tables, many, and few again.
        let most = if (500..1000).contains(&round) { 200 } else { 5 };
        if ids.len() < most && random.below(8) > 0 {
            let id = add(&catalog, &format!("table {round}"));
            assert!(list.is_older_than(id) && known(&list, id).is_none());
            assert!(!catalog.snapshot().1.is_older_than(id));
            ids.push(id);
        } else if !ids.is_empty() {
            let id = ids.swap_remove(random.below(ids.len() as u64) as usize);
            catalog.remove(id, |_| ()).unwrap();
            assert!(!list.is_older_than(id) && known(&list, id).is_some());
            gone.push(id);
        }
        let (after, list) = catalog.snapshot();
        assert!(after <= before + 1);
        assert!(ids.iter().all(|&id| known(&list, id).is_some_and(|table| table.id() == id)));
        assert!(gone.iter().all(|&id| known(&list, id).is_none() && !list.is_older_than(id)));
        assert_eq!(list.iter().flatten().count(), ids.len());
        assert!(list.len() <= 1024, "{} slots for {} tables", list.len(), ids.len());
    }
    ids.drain(..).for_each(|id| drop(catalog.remove(id, |_| ()).unwrap()));
    assert_eq!(catalog.snapshot().1.len(), 1);
}
