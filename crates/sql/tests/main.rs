//! All tests in one program: the crate is compiled once for each protocol, not once for each of them and each file.

mod common;

mod beside;
mod between;
mod copies;
mod corpus;
mod cursors;
mod definitions;
mod enums;
mod explain;
mod futures;
mod interrupts;
mod limits;
mod names;
mod one_table;
mod parking;
mod planned;
mod prepared;
mod privileges;
mod procedures;
mod read_only;
mod readers;
mod replays;
mod roles;
mod settings;
mod streams;
mod texts;
mod tpcc;
mod transactions;
mod watching;
