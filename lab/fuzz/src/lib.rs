//! Fuzz targets: what is true of keys, rows, indexes, frames, manifests, origins of backups, blocks of checkpoints, catalogs, records that are recovered, statements and values of SQL, whatever the bytes say.
//!
//! A target is a function of bytes that panics where something is not as it should be. Three drivers run the same
//! targets: libFuzzer (`fuzz/` beside the workspace), property tests, which shrink what fails, and a smoke run in every test run.
//! The [`CANARIES`] are wrong on purpose: a driver that does not find that out is blind.

mod catalog;
mod index;
mod input;
mod keys;
mod log;
mod rows;
mod sql;
mod tail;

/// A named function of bytes that panics where something is wrong.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// As in `fuzz/Cargo.toml`, for libFuzzer, and in `fuzz/seeds`.
    pub name: &'static str,
    /// Tries the bytes.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "keys", run: keys::run },
    Target { name: "rows", run: rows::run },
    Target { name: "ordered_index", run: index::run_ordered },
    Target { name: "hash_index", run: index::run_hash },
    Target { name: "frames", run: log::run_frames },
    Target { name: "manifests", run: log::run_manifests },
    Target { name: "origins", run: log::run_origins },
    Target { name: "blocks", run: log::run_blocks },
    Target { name: "catalogs", run: catalog::run_catalogs },
    Target { name: "tails", run: tail::run_tails },
    Target { name: "statements", run: sql::run_statements },
    Target { name: "casts", run: sql::run_casts },
    Target { name: "containers", run: sql::run_containers },
];

/// Targets that fail: an index that forgets now and then to remove a key, and numbers that are said to be written as they were read.
pub const CANARIES: &[Target] = &[
    Target { name: "forgetful index", run: index::run_forgetful },
    Target { name: "unchanged numbers", run: sql::run_unchanged },
];

/// Runs the target of this name.
///
/// # Panics
/// When there is none, and where the target does.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("the target is in the list");
    (target.run)(bytes);
}
