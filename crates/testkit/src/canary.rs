//! Canaries: secrets planted on purpose, and one scanner that looks for them everywhere (S-04).
//!
//! A secret leaks in many spellings. Each canary is looked for as it is, in Base64 and Base64url at the three alignments a longer
//! text can give it, in hexadecimal, escaped as in URLs and as in JSON, and in every piece of eight characters.
//!
//! Adding a spelling: a line in `spellings` and a row in the first test below.

use std::collections::HashMap;

use base64::{Engine as _, alphabet, engine::GeneralPurpose, engine::general_purpose::NO_PAD};

/// What a needle is found by: its first bytes, so none may be shorter.
const PIECE: usize = 8;
/// Pieces of what is all hexadecimal digits: ids and dumps are full of eight such digits by chance, of twelve they aren't.
const HEX_PIECE: usize = 12;

/// Looks for a set of canaries in one pass.
#[derive(Debug, Default)]
pub struct Scanner {
    by_beginning: HashMap<[u8; PIECE], Vec<Needle>>,
}

#[derive(Debug, Clone)]
struct Needle {
    canary: &'static str,
    spelling: &'static str,
    bytes: Vec<u8>,
}

/// A canary where none should be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hit {
    /// Where: the caller's word for what was scanned.
    pub sink: String,
    /// Which canary.
    pub canary: &'static str,
    /// How it was spelled.
    pub spelling: &'static str,
    /// At which byte.
    pub at: usize,
}

impl Scanner {
    /// Adds a canary of at least eight bytes, with every spelling of it.
    pub fn with(mut self, canary: &'static str, value: &[u8]) -> Self {
        assert!(value.len() >= PIECE, "the canary `{canary}` is too short to be told from chance");
        for (spelling, bytes) in spellings(value) {
            if let Some(beginning) = bytes.first_chunk::<PIECE>() {
                self.by_beginning.entry(*beginning).or_default().push(Needle { canary, spelling, bytes });
            }
        }
        self
    }

    /// Every canary in `text`, at most one hit a canary and spelling. `sink` says what `text` is.
    pub fn scan(&self, sink: &str, text: &[u8]) -> Vec<Hit> {
        let mut hits: Vec<Hit> = Vec::new();
        for (at, beginning) in text.windows(PIECE).enumerate() {
            let Some(needles) = beginning.first_chunk::<PIECE>().and_then(|beginning| self.by_beginning.get(beginning)) else {
                continue;
            };
            for needle in needles {
                let is_new = !hits.iter().any(|hit| hit.canary == needle.canary && hit.spelling == needle.spelling);
                if is_new && text[at..].starts_with(&needle.bytes) {
                    hits.push(Hit { sink: sink.to_owned(), canary: needle.canary, spelling: needle.spelling, at });
                }
            }
        }
        hits
    }
}

fn spellings(value: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let each = |write: &dyn Fn(u8) -> String| value.iter().map(|byte| write(*byte)).collect::<String>().into_bytes();
    let mut all = vec![
        ("raw", value.to_vec()),
        ("hex", each(&|byte| format!("{byte:02x}"))),
        ("upper-case hex", each(&|byte| format!("{byte:02X}"))),
        ("escaped as in a URL", each(&|byte| escaped(byte, |byte| format!("%{byte:02X}")))),
        ("escaped as in a URL, lower case", each(&|byte| escaped(byte, |byte| format!("%{byte:02x}")))),
        (
            "escaped as in a form",
            each(&|byte| if byte == b' ' { "+".into() } else { escaped(byte, |byte| format!("%{byte:02X}")) }),
        ),
        ("escaped throughout, URL", each(&|byte| format!("%{byte:02X}"))),
        ("escaped throughout, JSON", each(&|byte| format!("\\u{byte:04x}"))),
    ];
    if let Ok(text) = std::str::from_utf8(value) {
        let quoted = serde_json::to_string(text).expect("a string can be written");
        all.push(("escaped as in JSON", quoted.trim_matches('"').as_bytes().to_vec()));
        let twice = serde_json::to_string(&quoted).expect("a string can be written");
        all.push(("escaped as in JSON, twice", twice.trim_matches(['"', '\\']).as_bytes().to_vec()));
        let non_ascii: String = text
            .chars()
            .flat_map(|c| if c.is_ascii() { vec![c] } else { format!("\\u{:04x}", u32::from(c)).chars().collect() })
            .collect();
        all.push(("escaped as in ASCII JSON", non_ascii.into_bytes()));
    }
    for (spelling, alphabet) in [("base64", &alphabet::STANDARD), ("base64url", &alphabet::URL_SAFE)] {
        let engine = GeneralPurpose::new(alphabet, NO_PAD);
        all.extend((0..3).map(|shift| (spelling, aligned(&engine, value, shift))));
    }
    let is_hex = |piece: &[u8]| piece.iter().all(u8::is_ascii_hexdigit);
    let length = if is_hex(value.get(4..).unwrap_or_default()) { HEX_PIECE } else { PIECE };
    all.extend(value.windows(length).map(|piece| ("a piece", piece.to_vec())));
    all
}

/// What RFC 3986 leaves alone stays.
fn escaped(byte: u8, escape: impl Fn(u8) -> String) -> String {
    if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) { char::from(byte).to_string() } else { escape(byte) }
}

/// The characters that `value` alone decides when `shift` bytes stand before it.
fn aligned(engine: &GeneralPurpose, value: &[u8], shift: usize) -> Vec<u8> {
    let mut bytes = vec![0; shift];
    bytes.extend_from_slice(value);
    let text = engine.encode(&bytes).into_bytes();
    let first = (shift * 8).div_ceil(6);
    let end = bytes.len() * 8 / 6;
    text[first..end].to_vec()
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

    use super::*;

    const VALUE: &str = "pa\"ss/wörd & öther>?";

    fn spelled(text: &str) -> Vec<&'static str> {
        let scanner = Scanner::default().with("password", VALUE.as_bytes());
        let mut found: Vec<_> = scanner.scan("a test", text.as_bytes()).into_iter().map(|hit| hit.spelling).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    #[test]
    fn every_spelling_is_found_in_the_middle_of_anything() {
        for before in ["", "x", "xy", "xyz"] {
            let whole = format!("{before}{VALUE}tail");
            assert!(spelled(&STANDARD.encode(&whole)).contains(&"base64"), "{before}");
            assert!(spelled(&URL_SAFE_NO_PAD.encode(&whole)).contains(&"base64url"), "{before}");
        }
        let hex = VALUE.bytes().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
        let query: String = url::form_urlencoded::byte_serialize(VALUE.as_bytes()).collect();
        let json = serde_json::json!({ "value": VALUE }).to_string();
        for (text, spelling) in [
            (format!("log: {VALUE}."), "raw"),
            (format!("\\x{hex}00"), "hex"),
            (hex.to_uppercase(), "upper-case hex"),
            (format!("/?q={query}"), "escaped as in a form"),
            (format!("/?q={}", query.replace('+', "%20")), "escaped as in a URL"),
            (json.clone(), "escaped as in JSON"),
            (serde_json::json!([json]).to_string(), "escaped as in JSON, twice"),
            (json.replace('ö', "\\u00f6").replace("\\\"", "\""), "escaped as in ASCII JSON"),
            (format!("…{}…", &VALUE[9..18]), "a piece"),
        ] {
            assert!(spelled(&text).contains(&spelling), "{spelling} in {text}: {:?}", spelled(&text));
        }
    }

    #[test]
    fn what_only_looks_alike_is_no_hit() {
        assert_eq!(spelled("pa\"ss/w"), Vec::<&str>::new());
        let token = format!("fma_{}", "0123456789abcdef".repeat(4));
        let scanner = Scanner::default().with("token", token.as_bytes());
        assert_eq!(scanner.scan("ids", b"019ad012345678-9abcdef0"), []);
        let hits = scanner.scan("a log", b"..., token 456789abcdef");
        assert_eq!(hits, [Hit { sink: "a log".into(), canary: "token", spelling: "a piece", at: 11 }]);
    }
}
