//! Passwords: Argon2id with 19 MiB, two passes and one lane, at most two at once: a flood of sign-ins costs neither all memory nor
//! all processors. Every check costs the same, whether or not there is such a person.

use std::sync::Arc;

use argon2::{
    Argon2, PasswordVerifier,
    password_hash::{PasswordHasher, phc::PasswordHash},
};
use formation_core::{Entropy, Secret};
use tokio::sync::{OnceCell, Semaphore};

use crate::RuntimeError;

/// Hashes computed at once.
const AT_ONCE: usize = 2;
/// Checks that may wait for their turn; the next one is told to come back.
const WAITING: usize = 32;

/// Where all passwords of this process are checked.
#[derive(Debug)]
pub(crate) struct Passwords {
    turns: Arc<Semaphore>,
    places: Semaphore,
    /// Of a password that nobody has.
    nobodys: OnceCell<String>,
    entropy: Entropy,
}

/// What became of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checked {
    /// It is theirs.
    Right,
    /// It isn't, or they aren't there.
    Wrong,
    /// Too many wait already.
    Busy,
}

impl Passwords {
    pub(crate) fn new(entropy: Entropy) -> Self {
        Self { turns: Arc::new(Semaphore::new(AT_ONCE)), places: Semaphore::new(WAITING), nobodys: OnceCell::new(), entropy }
    }

    /// The hash to store for a password.
    pub(crate) async fn hash(&self, password: Secret) -> Result<String, RuntimeError> {
        let entropy = self.entropy.clone();
        self.computed(move || hash(&password, &entropy)).await
    }

    /// Whether `password` is the one `stored` was made of. `None` for somebody who isn't there takes as long.
    pub(crate) async fn check(&self, password: Secret, stored: Option<String>) -> Result<Checked, RuntimeError> {
        let Ok(_place) = self.places.try_acquire() else { return Ok(Checked::Busy) };
        let nobodys = self.nobodys.get_or_try_init(|| self.hash(Secret::new(self.entropy.bytes::<32>().to_vec()))).await?.clone();
        let is_somebody = stored.is_some();
        let is_right = self.computed(move || is_of(&password, stored.as_deref().unwrap_or(&nobodys))).await?;
        Ok(if is_right && is_somebody { Checked::Right } else { Checked::Wrong })
    }

    async fn computed<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, RuntimeError> {
        let turn = Arc::clone(&self.turns).acquire_owned().await.map_err(|_| RuntimeError::Internal)?;
        let computed = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(turn);
            done
        });
        computed.await.map_err(|_| RuntimeError::Internal)
    }
}

/// The hash to store for a password, as a PHC string. Takes tens of milliseconds of a processor.
pub fn hash(password: &Secret, entropy: &Entropy) -> String {
    let salt: [u8; 16] = entropy.bytes();
    let hashed: PasswordHash = Argon2::default()
        .hash_password_with_salt(password.expose(), &salt)
        .expect("a salt of 16 bytes and the default costs are good");
    hashed.to_string()
}

fn is_of(password: &Secret, stored: &str) -> bool {
    // What can't be read is nobody's hash; a stored one always can.
    PasswordHash::new(stored).is_ok_and(|stored| Argon2::default().verify_password(password.expose(), &stored).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::new(text.as_bytes().to_vec())
    }

    #[tokio::test]
    async fn only_the_password_itself_is_right_and_only_for_somebody() {
        let passwords = Passwords::new(Entropy::counting(1));
        let stored = passwords.hash(secret("correct horse battery")).await.expect("a hash");
        assert!(stored.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{stored}");
        assert_ne!(stored, passwords.hash(secret("correct horse battery")).await.expect("a hash"), "salted");
        for (password, stored, checked) in [
            ("correct horse battery", Some(stored.clone()), Checked::Right),
            ("correct horse batterz", Some(stored.clone()), Checked::Wrong),
            ("", Some(stored), Checked::Wrong),
            ("correct horse battery", Some("none".to_owned()), Checked::Wrong),
            ("correct horse battery", None, Checked::Wrong),
        ] {
            assert_eq!(passwords.check(secret(password), stored.clone()).await.expect("checked"), checked, "{password} {stored:?}");
        }
    }
}
