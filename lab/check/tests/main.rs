//! Tests of protocols in one program: what many of them need is compiled once. Those with flags or steps of their own are programs apart.

mod setups;

mod answers;
mod cicada;
mod direct;
mod foreign_keys;
mod histories;
mod journal;
mod known;
mod liveness;
mod maflingo;
mod matrix;
mod puts;
mod standby;
