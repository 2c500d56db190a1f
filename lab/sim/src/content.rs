//! What a file has: for its readers, on the medium, and in between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use polychron_base::random::Random;
use polychron_log::disk::BLOCK;

/// A block's bytes. `None` stands for zeroes.
pub(crate) type Block = Option<Arc<[u8; BLOCK]>>;

/// A block of these bytes.
pub(crate) fn block(bytes: &[u8]) -> Block {
    let bytes: [u8; BLOCK] = bytes.try_into().expect("a block has its length");
    bytes.iter().any(|byte| *byte != 0).then(|| Arc::new(bytes))
}

/// The bytes of a block.
pub(crate) fn bytes_of(block: &Block) -> &[u8; BLOCK] {
    const ZEROES: [u8; BLOCK] = [0; BLOCK];
    block.as_deref().unwrap_or(&ZEROES)
}

/// A file at one time: a length in blocks, and those that are not zeroes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    pub(crate) blocks: u64,
    written: BTreeMap<u64, Block>,
}

impl Image {
    pub(crate) fn get(&self, at: u64) -> &Block {
        self.written.get(&at).unwrap_or(&None)
    }

    /// Sets a block, which may lie behind the end.
    pub(crate) fn set(&mut self, at: u64, block: Block) {
        match block {
            Some(_) => self.written.insert(at, block),
            None => self.written.remove(&at),
        };
    }

    /// Cuts or lengthens the file; what is new is zero.
    pub(crate) fn resize(&mut self, blocks: u64) {
        self.blocks = blocks;
        self.written.split_off(&blocks);
    }

    pub(crate) fn written(&self) -> impl Iterator<Item = &Block> {
        self.written.values()
    }
}

/// A file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    /// What is on the medium whatever happens.
    pub(crate) durable: Image,
    /// What reads show.
    pub(crate) cache: Image,
    /// Blocks written since the last sync, in their order: each may be on the medium or not.
    pub(crate) pending: Vec<(u64, Block)>,
    /// What a block was on the medium before it became what it is.
    pub(crate) former: BTreeMap<u64, Block>,
    /// Blocks that cannot be read.
    pub(crate) unreadable: BTreeSet<u64>,
}

impl Content {
    /// A file of zeroes on the medium.
    pub(crate) fn zeroed(blocks: u64) -> Self {
        let image = Image { blocks, ..Image::default() };
        Self { durable: image.clone(), cache: image, ..Self::default() }
    }

    /// Takes over some of the blocks of a write, which begin at block `at`.
    pub(crate) fn write(&mut self, at: u64, bytes: &[u8], is_taken: &mut dyn FnMut() -> bool) {
        let blocks = (bytes.len() / BLOCK) as u64;
        self.cache.blocks = self.cache.blocks.max(at + blocks);
        for (number, bytes) in (at..).zip(bytes.chunks_exact(BLOCK)) {
            if is_taken() {
                let block = block(bytes);
                self.unreadable.remove(&number);
                self.cache.set(number, block.clone());
                self.pending.push((number, block));
            }
        }
    }

    /// Everything that was written is on the medium now.
    pub(crate) fn sync(&mut self) {
        self.durable.blocks = self.cache.blocks;
        for (number, block) in std::mem::take(&mut self.pending) {
            self.store(number, block);
        }
    }

    /// A block comes to lie on the medium.
    pub(crate) fn store(&mut self, number: u64, block: Block) {
        let former = self.durable.get(number).clone();
        if former != block {
            self.former.insert(number, former);
        }
        self.durable.set(number, block);
    }

    /// A sync fails: some of what was written is on the medium, the rest is dropped, and yet no longer counts as unwritten. Reads go on to show it or
    /// what was there before.
    pub(crate) fn fail_sync(&mut self, random: &mut Random) {
        let shows = random.chance(0.5);
        let has_length = random.chance(0.5);
        if has_length {
            self.durable.blocks = self.cache.blocks;
        }
        for (number, block) in std::mem::take(&mut self.pending) {
            if number < self.durable.blocks && random.chance(0.5) {
                self.store(number, block);
            }
        }
        if !shows {
            // The length is the file system's, and stays.
            let blocks = self.cache.blocks;
            self.cache = self.durable.clone();
            self.cache.blocks = blocks;
        }
    }

    /// The room that the file takes, in bytes.
    pub(crate) fn room(&self) -> u64 {
        self.cache.blocks * BLOCK as u64
    }
}
