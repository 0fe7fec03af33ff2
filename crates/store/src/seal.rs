//! Envelope encryption: what is stolen with the database stays shut (S-04), and what is moved does not open (S-16).
//!
//! Each value gets a data key of its own. The value is sealed under it with AES-256-GCM; the data key is wrapped by a master key
//! with XChaCha20-Poly1305, whose nonces are long enough to be random. Both carry the place of the value (owner, kind, row,
//! revision, key id) as associated data. Rotation re-wraps data keys only.
//!
//! Where the master keys come from is the binary's business: it hands in their text.

use std::collections::BTreeMap;

use aes_gcm::{Aes256Gcm, KeyInit as _, aead::Aead as _, aead::Payload};
use chacha20poly1305::XChaCha20Poly1305;
use formation_core::{Entropy, Secret};
use hkdf::Hkdf;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use zeroize::{Zeroize as _, Zeroizing};

const DATA_NONCE: usize = 12;
const WRAP_NONCE: usize = 24;
/// The payload is sealed under a key that is used once, so its nonce may be constant.
const PAYLOAD_NONCE: [u8; DATA_NONCE] = [0; DATA_NONCE];

/// A master key's name: 16 hexadecimal digits derived from it, so that two people who hold the same key call it the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(String);

impl KeyId {
    /// From storage.
    pub fn stored(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Its digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for KeyId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is not a list of master keys. It says where, never what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyTextError {
    /// Nothing in it.
    #[error(
        "no master key given; a master key is 64 hexadecimal digits, several are separated by commas, the one to seal with first"
    )]
    Empty,
    /// One of them has another form.
    #[error("master key number {0} is not 64 hexadecimal digits")]
    Malformed(usize),
    /// One stands there twice.
    #[error("master key number {0} is given twice")]
    Repeated(usize),
}

/// The master keys of this process: the first seals, all of them open.
pub struct MasterKeys {
    current: KeyId,
    keys: BTreeMap<KeyId, Zeroizing<[u8; 32]>>,
}

impl std::fmt::Debug for MasterKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MasterKeys").field("current", &self.current).field("keys", &self.keys.len()).finish()
    }
}

impl MasterKeys {
    /// Reads `FORMATION_MASTER_KEY`, `FORMATION_MASTER_KEYS` or the key file: 64 hexadecimal digits each, separated by commas or
    /// white space, the one that seals first.
    pub fn parse(text: &str) -> Result<Self, KeyTextError> {
        let mut current = None;
        let mut keys = BTreeMap::new();
        let words = text.split(|c: char| c == ',' || c.is_ascii_whitespace()).filter(|word| !word.is_empty());
        for (index, word) in words.enumerate() {
            let key = from_hex(word).ok_or(KeyTextError::Malformed(index + 1))?;
            let id = id_of(&key);
            if keys.insert(id.clone(), key).is_some() {
                return Err(KeyTextError::Repeated(index + 1));
            }
            current.get_or_insert(id);
        }
        Ok(Self { current: current.ok_or(KeyTextError::Empty)?, keys })
    }

    /// A new master key, as the text of a key file.
    pub fn generate(entropy: &Entropy) -> Secret {
        let mut bytes = Zeroizing::new([0_u8; 32]);
        entropy.fill(bytes.as_mut());
        let mut text = to_hex(bytes.as_ref());
        text.push('\n');
        Secret::new(text.into_bytes())
    }

    /// The key that seals.
    pub const fn current(&self) -> &KeyId {
        &self.current
    }

    /// All keys at hand.
    pub fn ids(&self) -> impl Iterator<Item = &KeyId> {
        self.keys.keys()
    }

    /// What the table of master keys remembers of one, to recognise it: it tells nothing about the key.
    pub(crate) fn check_value(&self, id: &KeyId) -> Option<[u8; 32]> {
        self.keys.get(id).map(|key| expand(key, b"formation check value"))
    }

    /// A keyed hash under a key of its own, derived from the key that seals: for fingerprints of what the environment brings.
    pub fn fingerprint(&self, purpose: &str, content: &[u8]) -> [u8; 32] {
        let master = &self.keys[&self.current];
        let subkey = Zeroizing::new(expand(master, format!("formation fingerprint {purpose}").as_bytes()));
        let mut mac = Hmac::<Sha256>::new_from_slice(subkey.as_ref()).expect("HMAC takes keys of any length");
        mac.update(content);
        mac.finalize().into_bytes().into()
    }

    /// Seals `plain` for its place.
    pub fn seal(&self, entropy: &Entropy, place: &Place<'_>, plain: &[u8]) -> Sealed {
        let key_id = self.current.clone();
        let aad = place.associated(&key_id);
        let mut data_key = Zeroizing::new([0_u8; 32]);
        entropy.fill(data_key.as_mut());
        let sealed = Aes256Gcm::new((&*data_key).into())
            .encrypt((&PAYLOAD_NONCE).into(), Payload { msg: plain, aad: &aad })
            .expect("AES-GCM takes 64 GiB; bodies are bounded far below");
        let nonce: [u8; WRAP_NONCE] = entropy.bytes();
        let wrapped = XChaCha20Poly1305::new((&*self.keys[&key_id]).into())
            .encrypt((&nonce).into(), Payload { msg: data_key.as_ref(), aad: &aad })
            .expect("32 bytes can be wrapped");
        let mut wrapped_key = nonce.to_vec();
        wrapped_key.extend_from_slice(&wrapped);
        Sealed { key_id, wrapped_key, sealed }
    }

    /// Opens what was sealed for this very place.
    pub fn open(&self, place: &Place<'_>, sealed: &Sealed) -> Result<Secret, CannotOpen> {
        let master = self.keys.get(&sealed.key_id).ok_or(CannotOpen::NoKey)?;
        let aad = place.associated(&sealed.key_id);
        let (nonce, wrapped) = sealed.wrapped_key.split_first_chunk::<WRAP_NONCE>().ok_or(CannotOpen::Damaged)?;
        let data_key = Zeroizing::new(
            XChaCha20Poly1305::new((&**master).into())
                .decrypt(nonce.into(), Payload { msg: wrapped, aad: &aad })
                .map_err(|_| CannotOpen::Damaged)?,
        );
        let data_key: &[u8; 32] = data_key.as_slice().try_into().map_err(|_| CannotOpen::Damaged)?;
        Aes256Gcm::new(data_key.into())
            .decrypt((&PAYLOAD_NONCE).into(), Payload { msg: &sealed.sealed, aad: &aad })
            .map(Secret::new)
            .map_err(|_| CannotOpen::Damaged)
    }
}

/// Where a sealed value lives. A value moved to another place does not open there.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Whose it is: `install` or `agent:<id>`.
    pub owner: &'a str,
    /// What it is, a constant of ours.
    pub kind: &'a str,
    /// Its row.
    pub row: &'a str,
    /// Which revision of the row.
    pub revision: i64,
}

impl Place<'_> {
    /// Each part is preceded by its length: no two places have the same bytes.
    fn associated(&self, key: &KeyId) -> Vec<u8> {
        let revision = self.revision.to_be_bytes();
        let parts: [&[u8]; 6] =
            [b"formation seal 1", self.owner.as_bytes(), self.kind.as_bytes(), self.row.as_bytes(), &revision, key.0.as_bytes()];
        let mut bytes = Vec::with_capacity(160);
        for part in parts {
            bytes.extend_from_slice(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            bytes.extend_from_slice(part);
        }
        bytes
    }
}

/// A sealed value, as its columns.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed {
    /// Which master key wraps its data key.
    pub key_id: KeyId,
    /// Nonce and wrapped data key.
    pub wrapped_key: Vec<u8>,
    /// The value under its data key.
    pub sealed: Vec<u8>,
}

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealed").field("key_id", &self.key_id).field("bytes", &self.sealed.len()).finish_non_exhaustive()
    }
}

/// Why a value does not open. Which byte is wrong nobody can say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CannotOpen {
    /// Its master key is not at hand.
    #[error("the master key of a sealed value is not at hand")]
    NoKey,
    /// It was changed, or sealed for another place.
    #[error("a sealed value does not open: it was changed, or moved")]
    Damaged,
}

fn expand(key: &[u8; 32], info: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    Hkdf::<Sha256>::new(None, key).expand(info, &mut out).expect("32 bytes are within what HKDF-SHA-256 gives");
    out
}

fn id_of(key: &[u8; 32]) -> KeyId {
    KeyId(to_hex(&expand(key, b"formation key id")[..8]))
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

fn from_hex(text: &str) -> Option<Zeroizing<[u8; 32]>> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut key = Zeroizing::new([0_u8; 32]);
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16);
        let low = char::from(pair[1]).to_digit(16);
        let Some(value) = high.zip(low).and_then(|(high, low)| u8::try_from(high * 16 + low).ok()) else {
            key.zeroize();
            return None;
        };
        *byte = value;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const HERE: Place<'static> = Place { owner: "install", kind: "vendor_key", row: "row-1", revision: 1 };

    fn keys(seed: u64) -> MasterKeys {
        let text = MasterKeys::generate(&Entropy::counting(seed));
        MasterKeys::parse(std::str::from_utf8(text.expose()).expect("hexadecimal")).expect("its own form")
    }

    #[test]
    fn bar_s16_a_value_opens_in_its_own_place_only() {
        let keys = keys(1);
        let sealed = keys.seal(&Entropy::counting(2), &HERE, b"the value");
        assert_eq!(keys.open(&HERE, &sealed).expect("its place").expose(), b"the value");
        for place in [
            Place { owner: "agent:1", ..HERE },
            Place { kind: "vault", ..HERE },
            Place { row: "row-2", ..HERE },
            Place { revision: 2, ..HERE },
            // The same letters cut elsewhere.
            Place { owner: "installv", kind: "endor_key", ..HERE },
        ] {
            assert_eq!(keys.open(&place, &sealed).map(|_| ()), Err(CannotOpen::Damaged), "{place:?}");
        }
    }

    #[test]
    fn bar_s16_no_byte_can_be_changed() {
        let keys = keys(1);
        let sealed = keys.seal(&Entropy::counting(2), &HERE, b"the value");
        for index in 0..sealed.wrapped_key.len() {
            let mut changed = sealed.clone();
            changed.wrapped_key[index] ^= 1;
            assert_eq!(keys.open(&HERE, &changed).map(|_| ()), Err(CannotOpen::Damaged), "key byte {index}");
        }
        for index in 0..sealed.sealed.len() {
            let mut changed = sealed.clone();
            changed.sealed[index] ^= 0x80;
            assert_eq!(keys.open(&HERE, &changed).map(|_| ()), Err(CannotOpen::Damaged), "value byte {index}");
        }
        for length in 0..=WRAP_NONCE {
            let cut = Sealed { wrapped_key: sealed.wrapped_key[..length].to_vec(), ..sealed.clone() };
            assert_eq!(keys.open(&HERE, &cut).map(|_| ()), Err(CannotOpen::Damaged), "cut to {length}");
        }
    }

    #[test]
    fn bar_s16_the_master_key_is_bound_too() {
        let (one, two) = (keys(1), keys(2));
        let sealed = one.seal(&Entropy::counting(3), &HERE, b"the value");
        assert_eq!(two.open(&HERE, &sealed).map(|_| ()), Err(CannotOpen::NoKey));
        let relabelled = Sealed { key_id: two.current().clone(), ..sealed };
        assert_eq!(two.open(&HERE, &relabelled).map(|_| ()), Err(CannotOpen::Damaged));
    }

    /// The bar is a million seals, which `scripts/bench secrets` makes with the system's randomness; here the nonces and data keys of
    /// 20,000 are compared.
    #[test]
    fn bar_s16_no_nonce_and_no_data_key_repeats() {
        let (keys, entropy) = (keys(1), Entropy::counting(4));
        let mut nonces = HashSet::new();
        let mut payloads = HashSet::new();
        for _ in 0..20_000 {
            let sealed = keys.seal(&entropy, &HERE, b"the same value");
            assert!(nonces.insert(sealed.wrapped_key[..WRAP_NONCE].to_vec()));
            // One key under one constant nonce would give the same bytes again.
            assert!(payloads.insert(sealed.sealed));
        }
    }

    #[test]
    fn several_keys_open_and_the_first_seals() {
        let text = |seed| String::from_utf8(MasterKeys::generate(&Entropy::counting(seed)).expose().to_vec()).expect("text");
        let old = MasterKeys::parse(&text(1)).expect("one key");
        let both = MasterKeys::parse(&format!("{},{}", text(2).trim(), text(1))).expect("two keys");
        let sealed = old.seal(&Entropy::counting(5), &HERE, b"old");
        assert_eq!(both.open(&HERE, &sealed).expect("the old key is there").expose(), b"old");
        assert_ne!(both.current(), old.current());
        assert_eq!(both.ids().count(), 2);
    }

    #[test]
    fn a_key_text_is_refused_without_being_shown() {
        assert_eq!(MasterKeys::parse(" ,\n").map(|_| ()), Err(KeyTextError::Empty));
        let good = "0".repeat(64);
        for (text, error) in [
            (format!("{good},{}", "0".repeat(63)), KeyTextError::Malformed(2)),
            (format!("{}g", "0".repeat(63)), KeyTextError::Malformed(1)),
            (format!("{good} {good}"), KeyTextError::Repeated(2)),
        ] {
            let refused = MasterKeys::parse(&text).expect_err("not keys");
            assert_eq!(refused, error);
            assert!(!refused.to_string().contains("00000000"));
        }
        assert!(!format!("{:?}", keys(1)).contains("keys: {"));
    }

    #[test]
    fn fingerprints_hang_on_key_purpose_and_content() {
        let keys_one = keys(1);
        let one = keys_one.fingerprint("environment", b"a");
        assert_eq!(one, keys_one.fingerprint("environment", b"a"));
        assert_ne!(one, keys_one.fingerprint("environment", b"b"));
        assert_ne!(one, keys_one.fingerprint("session", b"a"));
        assert_ne!(one, keys(2).fingerprint("environment", b"a"));
    }
}
