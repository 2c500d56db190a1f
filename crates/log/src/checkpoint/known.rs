//! Which groups of keys the files of rows have that this opening has written: a file of which no group was touched stays as it is.

use std::collections::HashMap;

use polychron_engine::mutations::left_out;

use super::Contents;
use crate::manifest::{Checkpoint, CheckpointFile};
use crate::recover::{Grouping, Touched};
use crate::steps::CheckpointStep;

/// Groups take at most this share of their file's bytes.
const SHARE: u64 = 64;
const GROUP_BYTES: u64 = 8;

/// How many groups are known of a file of so many bytes at most.
fn most(bytes: u64) -> usize {
    (bytes / SHARE / GROUP_BYTES) as usize
}

/// The groups of a file that is being written.
#[derive(Debug)]
pub(super) struct Noted {
    /// `None` once there were too many.
    groups: Option<Vec<u64>>,
    most: usize,
}

impl Noted {
    /// Of a file that becomes about so long.
    pub(super) fn new(bytes: u64) -> Self {
        Self { groups: Some(Vec::new()), most: most(bytes) }
    }

    pub(super) fn extend(&mut self, more: &[u64]) {
        let Some(groups) = &mut self.groups else { return };
        groups.extend_from_slice(more);
        if groups.len() > 2 * self.most {
            in_order(groups);
            if groups.len() > self.most {
                self.groups = None;
            }
        }
    }

    /// All of them, if they are few for a file of so many bytes.
    pub(super) fn finish(self, bytes: u64) -> Option<Vec<u64>> {
        let mut groups = self.groups?;
        in_order(&mut groups);
        groups.shrink_to_fit();
        (groups.len() <= most(bytes)).then_some(groups)
    }
}

fn in_order(groups: &mut Vec<u64>) {
    groups.sort_unstable();
    groups.dedup();
}

/// The groups of the files of a checkpoint.
#[derive(Debug)]
pub(crate) struct Known {
    pub(super) grouping: Grouping,
    files: HashMap<(u64, Contents), Vec<u64>>,
}

impl Known {
    /// None yet.
    pub(crate) fn new(bits: u32) -> Self {
        Self { grouping: Grouping::new(bits), files: HashMap::new() }
    }

    /// Whether nothing was touched of a file for certain.
    pub(super) fn is_untouched(&self, file: &CheckpointFile, touched: &Touched) -> bool {
        let Contents::Rows { table, .. } = file.contents else { return false };
        let Some(groups) = self.files.get(&(file.number, file.contents)) else { return false };
        !meet(groups, touched.of_table(table)) || left_out(CheckpointStep::RewriteTouched)
    }

    /// A checkpoint counts, some of whose files were written with these groups.
    pub(super) fn follow(&mut self, checkpoint: &Checkpoint, written: Vec<(Contents, Vec<u64>)>) {
        let named = |number: u64, contents: Contents| {
            checkpoint.files.iter().any(|file| (file.number, file.contents) == (number, contents))
        };
        self.files.retain(|(number, contents), _| named(*number, *contents));
        self.files.extend(written.into_iter().map(|(contents, groups)| ((checkpoint.number, contents), groups)));
    }
}

/// Whether two lists in order have something in common.
fn meet(few: &[u64], others: &[u64]) -> bool {
    let (few, others) = if few.len() <= others.len() { (few, others) } else { (others, few) };
    few.iter().any(|group| others.binary_search(group).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_noted_once_while_they_are_few() {
        let mut noted = Noted::new(64 * 8 * 4);
        (0..100).for_each(|number| noted.extend(&[number % 4, 3]));
        assert_eq!(noted.finish(64 * 8 * 4), Some(vec![0, 1, 2, 3]));
        let mut noted = Noted::new(64 * 8 * 4);
        (0..100).for_each(|number| noted.extend(&[number]));
        assert_eq!(noted.finish(1 << 30), None);
        let mut noted = Noted::new(64 * 8 * 4);
        noted.extend(&[1, 2]);
        assert_eq!(noted.finish(64 * 8), None, "the file is shorter");
    }

    #[test]
    fn lists_meet_in_what_they_have_in_common() {
        assert!(meet(&[1, 5, 9], &[2, 9]) && meet(&[2, 9], &[1, 5, 9]) && meet(&[7], &[7]));
        assert!(!meet(&[], &[1]) && !meet(&[1, 3], &[0, 2, 4]));
    }
}
