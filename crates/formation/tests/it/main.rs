//! The house rules, and the binary as a person meets it.

mod commands;
mod files;
mod graph;
mod house;
mod support;
