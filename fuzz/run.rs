//! Runs the target of the binary's name. See `lab/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| polychron_fuzz::run(env!("CARGO_BIN_NAME"), bytes));
