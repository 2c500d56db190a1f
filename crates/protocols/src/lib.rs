//! The protocols, a folder each. Nothing outside of a folder names what is inside, except the list in the crate
//! `polychron`. Each but the default one is a feature. `polychron` turns none of them on by default, so a program compiles those that it uses.

#[cfg(feature = "bohm")]
pub mod bohm;
pub mod cicada;
#[cfg(test)]
mod contested_tests;
#[cfg(test)]
mod displaced_tests;
#[cfg(feature = "hyper")]
pub mod hyper;
#[cfg(feature = "lazy")]
pub mod lazy;
#[cfg(test)]
mod lazy_tests;
#[cfg(feature = "locking")]
pub mod locking;
#[cfg(feature = "maflingo")]
pub mod maflingo;
#[cfg(feature = "serial")]
pub mod serial;

#[cfg(feature = "bohm")]
pub use bohm::Bohm;
pub use cicada::Cicada;
#[cfg(feature = "hyper")]
pub use hyper::Hyper;
#[cfg(feature = "lazy")]
pub use lazy::Lazy;
#[cfg(feature = "locking")]
pub use locking::Locking;
#[cfg(feature = "maflingo")]
pub use maflingo::Maflingo;
#[cfg(feature = "serial")]
pub use serial::Serial;

/// `lazy-occ`: futures over [`Maflingo`].
#[cfg(all(feature = "lazy", feature = "maflingo"))]
pub type LazyMaflingo = Lazy<Maflingo>;
/// `lazy-2pl`: futures over [`Locking`].
#[cfg(all(feature = "lazy", feature = "locking"))]
pub type LazyLocking = Lazy<Locking>;
/// `lazy-cicada`: futures over [`Cicada`].
#[cfg(feature = "lazy")]
pub type LazyCicada = Lazy<Cicada>;
/// `lazy-hyper`: futures over [`Hyper`].
#[cfg(all(feature = "lazy", feature = "hyper"))]
pub type LazyHyper = Lazy<Hyper>;
