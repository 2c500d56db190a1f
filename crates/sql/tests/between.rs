//! What sessions do with each other besides tables: notifications and advisory locks.

/// Tests under protocols of each kind; also under one that runs one transaction at a time, and one that plans whole transactions, where these are named.
macro_rules! on_each_protocol {
    ($($test:ident $(, $more:ty)*;)*) => {$(
        #[test]
        fn $test() {
            super::$test::<polychron_protocols::cicada::Cicada>();
            super::$test::<polychron_protocols::locking::Locking>();
            $(super::$test::<$more>();)*
        }
    )*};
}

mod advisory;
mod notifications;
