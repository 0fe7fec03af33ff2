//! Adapters to vendors: the traits a vendor implements, the catalog, and one folder a vendor.
//!
//! An adapter translates. It gets a request in our words and answers in our words or with a [`VendorFailure`], which has no room
//! for a vendor's text.
//!
//! [`VendorFailure`]: formation_core::failure::VendorFailure

mod catalog;
pub mod local;
mod ports;

pub use catalog::{Catalog, ENTRIES, Entry};
pub use ports::{Account, Browsers, Closed, OpenedBrowser, RemoteSession, Wanted};
