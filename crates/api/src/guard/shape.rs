//! From a [`Value`] to a type, with the name of the field that does not fit.
//!
//! serde's own errors are sentences; ours are kept as what they are, so that an answer can name the field without reading prose.

use std::{cell::RefCell, fmt};

use formation_core::refusal::Code;
use serde::de::{DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess, value::MapAccessDeserializer};
use serde_json::Value;

use crate::problem::Problem;

/// Reads an object into `T`, which denies unknown fields.
pub(super) fn read<T: DeserializeOwned>(value: Value) -> Result<T, Problem> {
    let Value::Object(members) = value else {
        return Err(Problem::new(Code::InvalidBody).detail("The body must be a JSON object."));
    };
    let current = RefCell::new(String::new());
    let members = Members { rest: members.into_iter(), value: None, current: &current };
    T::deserialize(MapAccessDeserializer::new(members)).map_err(|misfit| match misfit {
        Misfit::Unknown(name) => Problem::new(Code::UnknownField).field(&name),
        Misfit::Missing(name) => Problem::new(Code::InvalidValue).field(name).detail("This field is required."),
        Misfit::Value => Problem::new(Code::InvalidValue).field(&current.borrow()),
    })
}

#[derive(Debug)]
enum Misfit {
    Unknown(String),
    Missing(&'static str),
    Value,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body does not fit")
    }
}

impl std::error::Error for Misfit {}

impl serde::de::Error for Misfit {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Value
    }

    fn unknown_field(field: &str, _: &'static [&'static str]) -> Self {
        Self::Unknown(field.to_owned())
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field)
    }
}

struct Members<'c> {
    rest: serde_json::map::IntoIter,
    value: Option<Value>,
    current: &'c RefCell<String>,
}

impl<'de> MapAccess<'de> for Members<'_> {
    type Error = Misfit;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Misfit> {
        let Some((name, value)) = self.rest.next() else { return Ok(None) };
        self.value = Some(value);
        self.current.replace(name.clone());
        seed.deserialize(name.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Misfit> {
        let value = self.value.take().ok_or(Misfit::Value)?;
        seed.deserialize(value).map_err(|_| Misfit::Value)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Order {
        item: String,
        #[serde(default)]
        count: Option<u8>,
    }

    fn said(body: Value) -> Value {
        let problem = read::<Order>(body).expect_err("a misfit");
        let document: Value = serde_json::from_slice(&problem.document(None)).expect("JSON");
        json!([document["code"], document["fields"]["field"]])
    }

    #[test]
    fn the_answer_names_the_field() {
        assert_eq!(read::<Order>(json!({"item": "x", "count": null})).expect("it fits"), Order { item: "x".into(), count: None });
        assert_eq!(said(json!({"item": "x", "is_admin": true})), json!(["unknown_field", "is_admin"]));
        assert_eq!(said(json!({"count": 1})), json!(["invalid_value", "item"]));
        assert_eq!(said(json!({"item": "x", "count": 256})), json!(["invalid_value", "count"]));
        assert_eq!(said(json!({"item": 7})), json!(["invalid_value", "item"]));
        assert_eq!(said(json!([])), json!(["invalid_body", null]));
    }
}
