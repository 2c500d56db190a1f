//! The targets under two drivers: a smoke run over seeds and random bytes, and property tests that shrink what fails.
//! `POLYCHRON_FUZZ_INPUTS`, `PROPTEST_CASES` and `POLYCHRON_FIRST_SEED` say how much, and
//! from which seed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use polychron_base::random::Random;
use polychron_base::sizes::scaled;
use polychron_fuzz::{CANARIES, TARGETS, Target};
use proptest::prelude::*;

/// The first random input on which a target fails, and what it said.
fn first_failure(target: Target, inputs: usize) -> Option<(usize, String)> {
    let mut random = Random::from_seed(wanted("POLYCHRON_FIRST_SEED").unwrap_or(31));
    (0..inputs).find_map(|number| {
        let mut bytes = vec![0; random.below(600) as usize];
        random.fill(&mut bytes);
        // Random bytes are all different; small ones meet.
        if number % 2 == 0 {
            bytes.iter_mut().for_each(|byte| *byte %= 8);
        }
        let panic = catch_unwind(AssertUnwindSafe(|| (target.run)(&bytes))).err()?;
        let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        Some((number, text))
    })
}

/// A number from the environment.
fn wanted(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn inputs() -> usize {
    scaled(wanted("POLYCHRON_FUZZ_INPUTS").unwrap_or(1000) as usize, 10)
}

#[test]
fn targets_take_random_bytes() {
    for target in TARGETS {
        assert_eq!(first_failure(*target, inputs()), None, "{}", target.name);
    }
}

/// The run above can fail: it finds what is wrong with the canaries, in fewer inputs.
#[test]
fn the_canaries_are_found() {
    let seen_as = ["lookup", "insertion", "removal", "replacement", "scan", "content", "written as it was read"];
    for canary in CANARIES {
        let (_, text) = first_failure(*canary, inputs()).expect("the smoke run is blind");
        assert!(seen_as.iter().any(|sign| text.contains(sign)), "{}: {text}", canary.name);
    }
}

/// Inputs that once were of interest stay right.
#[test]
fn targets_take_their_seeds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    for target in TARGETS {
        let files = std::fs::read_dir(folder.join(target.name)).expect("each target has seeds");
        let mut count = 0;
        for file in files {
            let bytes = std::fs::read(file.expect("the folder can be read").path()).expect("a seed can be read");
            (target.run)(&bytes);
            count += 1;
        }
        assert!(count > 0, "{} has no seeds", target.name);
    }
}

/// Bytes as the targets like them: short runs, small numbers, now and then anything.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![3 => 0..8u8, 1 => any::<u8>()], 0..600)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn keys_hold(bytes in bytes()) {
        polychron_fuzz::run("keys", &bytes);
    }

    #[test]
    fn rows_hold(bytes in bytes()) {
        polychron_fuzz::run("rows", &bytes);
    }

    #[test]
    fn the_ordered_index_is_a_map(bytes in bytes()) {
        polychron_fuzz::run("ordered_index", &bytes);
    }

    #[test]
    fn the_hash_index_is_a_map(bytes in bytes()) {
        polychron_fuzz::run("hash_index", &bytes);
    }

    #[test]
    fn frames_hold(bytes in bytes()) {
        polychron_fuzz::run("frames", &bytes);
    }

    #[test]
    fn manifests_hold(bytes in bytes()) {
        polychron_fuzz::run("manifests", &bytes);
    }

    #[test]
    fn origins_hold(bytes in bytes()) {
        polychron_fuzz::run("origins", &bytes);
    }

    #[test]
    fn blocks_hold(bytes in bytes()) {
        polychron_fuzz::run("blocks", &bytes);
    }

    #[test]
    fn catalogs_hold(bytes in bytes()) {
        polychron_fuzz::run("catalogs", &bytes);
    }

    #[test]
    fn tails_hold(bytes in bytes()) {
        polychron_fuzz::run("tails", &bytes);
    }

    #[test]
    fn statements_hold(bytes in bytes()) {
        polychron_fuzz::run("statements", &bytes);
    }

    #[test]
    fn casts_hold(bytes in bytes()) {
        polychron_fuzz::run("casts", &bytes);
    }

    #[test]
    fn containers_hold(bytes in bytes()) {
        polychron_fuzz::run("containers", &bytes);
    }
}

fn cases() -> u32 {
    wanted("PROPTEST_CASES").map_or(scaled(256, 4), |cases| cases as usize) as u32
}

#[test]
fn libfuzzer_has_every_target() {
    let manifest = include_str!("../../../fuzz/Cargo.toml");
    for target in TARGETS {
        assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "{}", target.name);
    }
}
