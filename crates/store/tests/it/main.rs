//! The store on both databases.

mod admission;
mod aggregates;
mod budget;
mod combining;
mod facade;
mod keys;
mod ledger;
mod meters;
mod people;
mod recovery;
mod runs;
mod schema;
mod sessions;
mod settings;
mod support;
