//! White-box tests; behaviour is tested in the crate `check`.
