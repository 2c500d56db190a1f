//! See `lab/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| polychron_fuzz::run("keys", bytes));
