//! What becomes of what is stored.

use polychron_base::random::Random;
use polychron_log::disk::{BLOCK, Cause};

use crate::content::{Content, block, bytes_of};

/// Damage to one block that is on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// One bit is another.
    FlipBit {
        /// Which one of the block, from 0 to 32,767.
        bit: usize,
    },
    /// It is all zeroes.
    Zero,
    /// It has bytes of no meaning.
    Garbage,
    /// It is what it was before the last write to it.
    Stale,
    /// It has what another block of the file has.
    Misdirect {
        /// The number of the other one.
        from: u64,
    },
    /// It cannot be read until it is written.
    Unreadable,
    /// The file ends before it.
    Cut,
}

impl Damage {
    /// Any damage, to a block of a file that has so many.
    pub fn draw(random: &mut Random, blocks: u64) -> Self {
        match random.below(7) {
            0 => Self::FlipBit { bit: random.below(8 * BLOCK as u64) as usize },
            1 => Self::Zero,
            2 => Self::Garbage,
            3 => Self::Stale,
            4 => Self::Misdirect { from: random.below(blocks) },
            5 => Self::Unreadable,
            _ => Self::Cut,
        }
    }
}

/// Damages a block of a file. Answers whether that made a difference.
pub(crate) fn damage(content: &mut Content, at: u64, damage: Damage, random: &mut Random) -> Result<bool, Cause> {
    if at >= content.durable.blocks {
        return Err(Cause::Ended);
    }
    let old = content.durable.get(at).clone();
    let new = match damage {
        Damage::FlipBit { bit } => {
            let mut bytes = *bytes_of(&old);
            bytes[bit / 8 % BLOCK] ^= 1 << (bit % 8);
            block(&bytes)
        }
        Damage::Zero => None,
        Damage::Garbage => {
            let mut bytes = [0; BLOCK];
            random.fill(&mut bytes);
            block(&bytes)
        }
        Damage::Stale => content.former.get(&at).cloned().unwrap_or_else(|| old.clone()),
        Damage::Misdirect { from } => content.durable.get(from).clone(),
        Damage::Unreadable => {
            content.unreadable.insert(at);
            return Ok(true);
        }
        Damage::Cut => {
            content.durable.resize(at);
            content.cache.resize(at);
            return Ok(true);
        }
    };
    let is_other = new != old;
    content.durable.set(at, new.clone());
    content.cache.set(at, new);
    Ok(is_other)
}
