//! Trees against a map.
