//! What a power failure leaves of what was not synced.

use std::collections::{BTreeMap, BTreeSet};

use polychron_base::random::Random;
use polychron_log::disk::BLOCK;

use crate::content::{Block, Content, Image, block, bytes_of};
use crate::tree::{Id, Names, Node, Tree, apply};

/// A sector in bytes: the unit that disks write.
const SECTOR: usize = 512;

/// How much of what was not synced survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// Nothing.
    Nothing,
    /// Everything: what the end of a process leaves.
    Everything,
    /// In the order in which it was written, up to some write, which is cut within a sector.
    Prefix,
    /// Of each block, and of each name, any state since the last sync.
    Blocks,
    /// The same of each sector.
    Sectors,
    /// The same, with sectors of which a part is of one state and the rest of another.
    Bytes,
}

impl Survival {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Nothing, Self::Everything, Self::Prefix, Self::Blocks, Self::Sectors, Self::Bytes];
}

/// Makes of a tree what is left of it.
pub(crate) fn survive(tree: &mut Tree, survival: Survival, random: &mut Random) {
    let freed = tree.freed.clone();
    for node in tree.nodes.values_mut() {
        match node {
            Node::File(content) => survive_in_file(content, survival, &freed, random),
            Node::Directory(names) => survive_in_directory(names, survival, random),
        }
    }
    tree.collect(&BTreeSet::new());
}

fn survive_in_directory(names: &mut Names, survival: Survival, random: &mut Random) {
    let pending = std::mem::take(&mut names.pending);
    match survival {
        Survival::Nothing => {}
        Survival::Everything | Survival::Prefix => {
            let count = if survival == Survival::Prefix { random.below(pending.len() as u64 + 1) } else { u64::MAX };
            let count = count.min(pending.len() as u64) as usize;
            pending[..count].iter().for_each(|(name, id)| apply(&mut names.durable, name, *id));
        }
        Survival::Blocks | Survival::Sectors | Survival::Bytes => {
            let mut states: BTreeMap<String, Vec<Option<Id>>> = BTreeMap::new();
            for (name, id) in pending {
                let before = names.durable.get(&name).copied();
                states.entry(name).or_insert_with(|| vec![before]).push(id);
            }
            for (name, states) in states {
                apply(&mut names.durable, &name, states[random.below(states.len() as u64) as usize]);
            }
        }
    }
    names.cache = names.durable.clone();
}

fn survive_in_file(content: &mut Content, survival: Survival, freed: &[Block], random: &mut Random) {
    let before = content.durable.blocks;
    let blocks = match survival {
        Survival::Nothing => before,
        Survival::Everything => content.cache.blocks,
        _ => random.range_inclusive(before.min(content.cache.blocks), content.cache.blocks),
    };
    let mut image = content.durable.clone();
    image.resize(blocks);
    // A file system that makes a file longer before its blocks are written shows what they were of another file.
    if survival != Survival::Everything && !freed.is_empty() && random.chance(0.5) {
        (before..blocks).for_each(|at| image.set(at, freed[random.below(freed.len() as u64) as usize].clone()));
    }
    let pending = std::mem::take(&mut content.pending);
    match survival {
        Survival::Nothing => {}
        Survival::Everything => pending.into_iter().for_each(|(at, block)| set(&mut image, at, block)),
        Survival::Prefix => {
            let count = random.below(pending.len() as u64 + 1) as usize;
            let mut rest = pending.into_iter();
            rest.by_ref().take(count).for_each(|(at, block)| set(&mut image, at, block));
            if let Some((at, last)) = rest.next() {
                let cut = random.below(BLOCK as u64 + 1) as usize;
                let torn = mix(image.get(at), &last, |byte| byte < cut);
                set(&mut image, at, torn);
            }
        }
        Survival::Blocks | Survival::Sectors | Survival::Bytes => {
            let mut states: BTreeMap<u64, Vec<Block>> = BTreeMap::new();
            for (at, block) in pending {
                states.entry(at).or_insert_with(|| vec![image.get(at).clone()]).push(block);
            }
            for (at, states) in states {
                let survivor = survivor(&states, survival, random);
                set(&mut image, at, survivor);
            }
        }
    }
    content.cache = image.clone();
    content.durable = image;
}

/// Sets a block, unless the file ends before.
fn set(image: &mut Image, at: u64, block: Block) {
    if at < image.blocks {
        image.set(at, block);
    }
}

/// What a block is that had these states since the last sync.
fn survivor(states: &[Block], survival: Survival, random: &mut Random) -> Block {
    let mut any = || &states[random.below(states.len() as u64) as usize];
    if survival == Survival::Blocks {
        return any().clone();
    }
    let sectors: Vec<(&Block, &Block)> = (0..BLOCK / SECTOR).map(|_| (any(), any())).collect();
    let mut bytes = [0; BLOCK];
    for ((one, other), at) in sectors.into_iter().zip((0..BLOCK).step_by(SECTOR)) {
        let cut = if survival == Survival::Bytes { random.below(SECTOR as u64 + 1) as usize } else { SECTOR };
        bytes[at..at + cut].copy_from_slice(&bytes_of(one)[at..at + cut]);
        bytes[at + cut..at + SECTOR].copy_from_slice(&bytes_of(other)[at + cut..at + SECTOR]);
    }
    block(&bytes)
}

/// A block of the bytes of `new` where that is so, and else of `old`.
fn mix(old: &Block, new: &Block, is_new: impl Fn(usize) -> bool) -> Block {
    let (old, new) = (bytes_of(old), bytes_of(new));
    let bytes: Vec<u8> = (0..BLOCK).map(|at| if is_new(at) { new[at] } else { old[at] }).collect();
    block(&bytes)
}
