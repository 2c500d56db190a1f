//! Hand-made histories: each anomaly is found, and called by its name.
