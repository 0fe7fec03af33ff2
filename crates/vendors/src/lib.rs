//! Adapters to vendors: the traits a vendor implements, the catalog, and one folder a vendor.
//!
//! An adapter translates. It gets a request in our words and answers in our words or with a [`VendorFailure`] or [`CallFailure`],
//! which have no room for a vendor's text.
//!
//! [`VendorFailure`]: formation_core::failure::VendorFailure
//! [`CallFailure`]: formation_core::failure::CallFailure

pub mod brave;
mod catalog;
mod clean;
pub mod config;
pub mod local;
mod ports;
mod transport;

pub use catalog::{ALLOWED_HOSTS, Catalog, Credential, ENTRIES, Entry, Field, FieldKind, Link, Provider, entry};
pub use ports::{Account, Browsers, Closed, OpenedBrowser, RemoteSession, Search, Wanted};
