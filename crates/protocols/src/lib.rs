//! The protocols, a folder each. Nothing outside of a folder names what is inside, except the list in the crate
//! `polychron`.

pub mod bohm;
pub mod cicada;
#[cfg(test)]
mod contested_tests;
pub mod hyper;
pub mod lazy;
#[cfg(test)]
mod lazy_tests;
pub mod locking;
pub mod maflingo;
pub mod serial;

pub use bohm::Bohm;
pub use cicada::Cicada;
pub use hyper::Hyper;
pub use lazy::Lazy;
pub use locking::Locking;
pub use maflingo::Maflingo;
pub use serial::Serial;

/// `lazy-occ`: futures over [`Maflingo`].
pub type LazyMaflingo = Lazy<Maflingo>;
/// `lazy-2pl`: futures over [`Locking`].
pub type LazyLocking = Lazy<Locking>;
/// `lazy-cicada`: futures over [`Cicada`].
pub type LazyCicada = Lazy<Cicada>;
/// `lazy-hyper`: futures over [`Hyper`].
pub type LazyHyper = Lazy<Hyper>;
