//! The only way out of the process: dialling under an address policy and a bounded HTTP client.
//!
//! Nothing else in the workspace opens a connection to somewhere a caller or a page named. A name is resolved once, every address
//! it leads to is judged, and the judged address is what is dialled: nobody resolves again in between.

mod client;
mod dial;
mod forbidden;
mod outside;
mod resolve;

pub use client::{Client, ClientError, Credential, Reply, Request};
pub use dial::{AddressPolicy, DialError, Dialler};
pub use forbidden::Forbidden;
pub use outside::Outside;
pub use reqwest::Method;
pub use resolve::{Lookup, Names, NotLoopback, Resolver, SystemResolver};

/// Makes `ring` the process's TLS provider. Called first thing in `main` and in test binaries: without one, the first TLS
/// client panics. Calling it again changes nothing.
pub fn install_tls_provider() {
    // An error says that a provider is there already, which is what was wanted.
    drop(rustls::crypto::ring::default_provider().install_default());
}
