//! The processors of the machine and the memory near to them: where pinned workers run, and what they take.

use crate::system;

/// The processors that the process may use, and the memory nodes of the machine.
#[derive(Clone, Debug)]
pub(crate) struct Topology {
    /// The processors of each node; one empty list where there is one node or none is known of.
    nodes: Vec<Vec<usize>>,
    /// In the order of their numbers.
    processors: Vec<usize>,
}

/// Where a pinned worker runs, and the node whose memory it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) processor: usize,
    pub(crate) node: usize,
}

impl Topology {
    pub(crate) fn of_machine() -> Self {
        Self { nodes: system::nodes(), processors: system::allowed_processors().to_vec() }
    }

    /// The number of nodes, at least one.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The place of a worker: each processor has one before any has two.
    pub(crate) fn place(&self, worker: usize) -> Option<Place> {
        let processor = *self.processors.get(worker.checked_rem(self.processors.len())?)?;
        Some(Place { processor, node: self.node_of(processor) })
    }

    /// The node that the calling thread runs on just now.
    pub(crate) fn current_node(&self) -> usize {
        if self.nodes.len() > 1 {
            system::current_processor().map_or(0, |processor| self.node_of(processor))
        } else {
            0
        }
    }

    fn node_of(&self, processor: usize) -> usize {
        self.nodes.iter().position(|node| node.contains(&processor)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_spread_over_processors_and_take_memory_of_their_nodes() {
        // A machine whose nodes alternate, of which the process may use a part; one with a node alone; one that tells nothing.
        let alternating = Topology { nodes: vec![vec![0, 2, 4, 6], vec![1, 3, 5, 7]], processors: vec![2, 3, 5, 6] };
        let places: Vec<_> = (0..6).filter_map(|worker| alternating.place(worker)).collect();
        let expected = [(2, 0), (3, 1), (5, 1), (6, 0), (2, 0), (3, 1)];
        assert_eq!(places, expected.map(|(processor, node)| Place { processor, node }));
        let single = Topology { nodes: vec![Vec::new()], processors: vec![0, 1] };
        assert_eq!(single.place(3), Some(Place { processor: 1, node: 0 }));
        assert_eq!(Topology { nodes: vec![Vec::new()], processors: Vec::new() }.place(3), None);
    }

    /// Two nodes are made up of the machine's own processors, as far as it has two.
    #[cfg(not(any(loom, miri, polychron_slow)))]
    #[test]
    fn pinned_workers_stay_where_they_belong() {
        use crate::{Memory, Options};

        let processors = system::allowed_processors().to_vec();
        let nodes = vec![processors[..1].to_vec(), processors[1..].to_vec()];
        let topology = Topology { nodes, processors };
        let memory = Memory::on(Options { pin_workers: true, ..Options::tiny() }, topology.clone()).unwrap();
        let pinned =
            |memory: &Memory| memory.statistics().nodes.iter().map(|node| node.pinned_workers).collect::<Vec<_>>();
        let mut expected = vec![0; 2];
        let mut locals = Vec::new();
        for worker in 0..4 {
            // It is made on one thread, and used on another.
            let local = memory.register().unwrap();
            let place = topology.place(worker).unwrap();
            let local = std::thread::spawn(move || {
                // It goes with the memory as a whole.
                let _block = local.pin().allocate(100).unwrap();
                assert_eq!(system::current_processor(), Some(place.processor));
                local
            });
            locals.push(local.join().unwrap());
            expected[place.node] += 1;
            assert_eq!(pinned(&memory), expected);
        }
        for (node, statistics) in memory.statistics().nodes.iter().enumerate() {
            assert_eq!(statistics.mapped_bytes > 0, expected[node] > 0, "node {node}");
        }
        drop(locals);
        assert_eq!(pinned(&memory), [0, 0]);
    }

    #[test]
    fn threads_stay_where_they_are_without_the_option() {
        let memory = crate::Memory::new(crate::Options::tiny()).unwrap();
        let local = memory.register().unwrap();
        drop(local.pin());
        assert!(memory.statistics().nodes.iter().all(|node| node.pinned_workers == 0));
    }
}
