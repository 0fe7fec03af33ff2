//! The house rules, and the binary as a person meets it.

mod call;
mod commands;
mod files;
mod graph;
mod house;
mod support;
