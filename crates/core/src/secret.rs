//! Values that must not be seen: they print as `****`, are wiped when dropped and cannot be serialised.

use std::fmt;

use secrecy::{ExposeSecret, SecretBox};

/// A secret, text or bytes.
pub struct Secret(SecretBox<[u8]>);

impl Secret {
    /// Takes a secret in. The caller's copy is the caller's to wipe.
    pub fn new(bytes: impl Into<Box<[u8]>>) -> Self {
        Self(SecretBox::new(bytes.into()))
    }

    /// The bytes themselves. Name the reason where you call this.
    pub fn expose(&self) -> &[u8] {
        self.0.expose_secret()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("****")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("****")
    }
}
