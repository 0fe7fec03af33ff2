//! A JSON reader that refuses what two readers could understand differently, and what is only there to be expensive.

use std::{cell::Cell, fmt};

use formation_core::refusal::Code;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::problem::Problem;

/// How deep arrays and objects may nest.
const DEPTH: usize = 64;
/// How many members all objects may have together.
const MEMBERS: usize = 4_096;

/// Why a text that may well be JSON was turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Duplicate,
    TooDeep,
    TooMany,
    Null,
}

/// Reads one JSON value and nothing after it.
pub(super) fn read(bytes: &[u8]) -> Result<Value, Problem> {
    let bounds = Bounds { members: Cell::new(0), fault: Cell::new(None) };
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Strict { depth: 0, bounds: &bounds }.deserialize(&mut reader);
    match value.and_then(|value| reader.end().map(|()| value)) {
        Ok(value) => Ok(value),
        Err(error) => Err(match bounds.fault.get() {
            Some(Fault::TooMany) => {
                Problem::new(Code::TooLarge).detail(format!("A body has at most {MEMBERS} members over all its objects."))
            }
            Some(Fault::TooDeep) => {
                Problem::new(Code::InvalidJson).detail(format!("Arrays and objects nest at most {DEPTH} levels deep."))
            }
            Some(Fault::Duplicate) => Problem::new(Code::InvalidJson).detail("An object has the same name twice."),
            Some(Fault::Null) => Problem::new(Code::InvalidJson).detail("Text must not contain the character U+0000."),
            None => Problem::new(Code::InvalidJson).detail(format!(
                "Not JSON in UTF-8, near line {}, column {}.",
                error.line(),
                error.column()
            )),
        }),
    }
}

struct Bounds {
    members: Cell<usize>,
    fault: Cell<Option<Fault>>,
}

#[derive(Clone, Copy)]
struct Strict<'b> {
    depth: usize,
    bounds: &'b Bounds,
}

impl Strict<'_> {
    fn stop<E: serde::de::Error>(self, fault: Fault) -> E {
        self.bounds.fault.set(Some(fault));
        E::custom("refused")
    }

    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth == DEPTH { Err(self.stop(Fault::TooDeep)) } else { Ok(Self { depth: self.depth + 1, ..self }) }
    }

    fn text<E: serde::de::Error>(self, text: String) -> Result<String, E> {
        if text.contains('\0') { Err(self.stop(Fault::Null)) } else { Ok(text) }
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a number"))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.text(value.to_owned()).map(Value::String)
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Value, E> {
        self.text(value).map(Value::String)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut read = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            read.push(item);
        }
        Ok(Value::Array(read))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut read = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let name = self.text(name)?;
            self.bounds.members.set(self.bounds.members.get() + 1);
            if self.bounds.members.get() > MEMBERS {
                return Err(self.stop(Fault::TooMany));
            }
            if read.contains_key(&name) {
                return Err(self.stop(Fault::Duplicate));
            }
            read.insert(name, members.next_value_seed(inner)?);
        }
        Ok(Value::Object(read))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn code(text: &str) -> &'static str {
        read(text.as_bytes()).map_or_else(|problem| problem.code().as_str(), |_| "ok")
    }

    #[test]
    fn what_is_read_is_what_serde_reads() {
        let text = r#"{"a":[1,-2,3.5,true,null,"é\ud83d\ude00"],"b":{"a":{}},"":18446744073709551615}"#;
        assert_eq!(read(text.as_bytes()).expect("JSON"), serde_json::from_str::<Value>(text).expect("JSON"));
        assert_eq!(read(b" [] ").expect("JSON"), json!([]));
    }

    #[test]
    fn what_readers_disagree_on_is_refused() {
        for text in [
            r#"{"a":1,"a":2}"#,
            r#"[{"x":{"a":1,"\u0061":2}}]"#,
            r#""\u0000""#,
            r#"{"\u0000":1}"#,
            r#""\ud800""#,
            r#""\udc00\ud800""#,
            "{",
            "{} {}",
            "nul",
            "1e999",
            "\u{feff}{}",
            "{\"a\":1,}",
            "",
        ] {
            assert_eq!(code(text), "invalid_json", "{text}");
        }
        assert!(read(b"\"\xff\"").is_err() && read(b"\"\xed\xa0\x80\"").is_err());
    }

    #[test]
    fn depth_and_members_are_bounded() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!((code(&nested(DEPTH)), code(&nested(DEPTH + 1)), code(&nested(10_000))), ("ok", "invalid_json", "invalid_json"));

        let wide = |members: usize| {
            let members: Vec<_> = (0..members).map(|n| format!("\"{n}\":0")).collect();
            format!("{{{}}}", members.join(","))
        };
        assert_eq!((code(&wide(MEMBERS)), code(&wide(MEMBERS + 1))), ("ok", "too_large"));
    }
}
