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
    catalog.create(name, |id| Ok(Named(id, Arc::new(TableDefinition::new(name))))).unwrap()
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
    let table = Arc::downgrade(seen[0].as_ref().unwrap());
    catalog.remove(id).unwrap();
    for _ in 0..3 {
        catalog.release(epochs);
        epochs.advance();
    }
    assert_eq!(seen[0].as_ref().unwrap().1.name, "first", "the list is the one that was seen");
    let kept = seen.keep();
    drop(guard);
    epochs.advance();
    catalog.release(epochs);
    assert!(table.upgrade().is_some() && seen.len() == 1, "the list was kept");
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
        tables.push(Arc::downgrade(seen[id.position()].as_ref().unwrap()));
        drop(guard);
        catalog.remove(id).unwrap();
    }
    catalog.release(epochs);
    epochs.advance();
    catalog.release(epochs);
    assert!(tables.iter().all(|table| table.upgrade().is_none()));
}
