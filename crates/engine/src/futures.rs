//! Futures: values of a transaction that need not be known before its commit (lazy state determination).
