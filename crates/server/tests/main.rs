//! Tests of the server in one program; `silent.rs`, which counts its program's threads, is one of its own.

mod common;

mod admission;
mod clients;
mod drivers;
mod dumps;
mod frames;
mod notifications;
mod processes;
mod programs;
mod readers;
mod roles;
mod tls;
mod watching;
mod wire;
