//! Reads `config` objects by their catalog fields: what is stored is complete, in normal form and nothing else.

use formation_core::{hostlist::HostList, refusal::Code, settings::Invalid};
use serde_json::{Map, Value, json};

use crate::{Field, FieldKind};

/// The longest text of a field, in bytes.
const TEXT_BYTES: usize = 512;

/// The settings that `given` names, one by one as its field wants them. An optional text or choice that is blank is left out.
pub fn read(fields: &[Field], given: &Map<String, Value>) -> Result<Value, Invalid> {
    if let Some(name) = given.keys().find(|name| !fields.iter().any(|field| field.name == name.as_str())) {
        return Err(Invalid::of(Code::UnknownField, format!("config.{name}"), "This provider has no such setting."));
    }
    let mut config = Map::new();
    for field in fields {
        let read = given.get(field.name).map(|value| field.read(value)).transpose()?.flatten();
        match read {
            Some(value) => drop(config.insert(field.name.to_owned(), value)),
            None if field.required => return Err(field.invalid(format!("{} is required.", field.label))),
            None => {}
        }
    }
    Ok(Value::Object(config))
}

impl Field {
    fn read(&self, value: &Value) -> Result<Option<Value>, Invalid> {
        match self.kind {
            FieldKind::Text | FieldKind::Select => {
                let text = value.as_str().ok_or_else(|| self.invalid("A text."))?;
                if text.trim().is_empty() {
                    return Ok(None);
                }
                if self.kind == FieldKind::Select && !self.options.contains(&text) {
                    return Err(self.invalid(format!("One of: {}.", self.options.join(", "))));
                }
                let is_one_line = text.len() <= TEXT_BYTES && !text.chars().any(char::is_control);
                if !is_one_line || !(self.check)(text) {
                    return Err(self.invalid(format!("This is no {}.", self.label)));
                }
                Ok(Some(json!(text)))
            }
            FieldKind::Hostnames => {
                // The entry's number would be lost in serde's error, so both forms are read here.
                let list = match value {
                    Value::String(text) => HostList::parse(text),
                    Value::Array(entries) => {
                        let texts: Option<Vec<&str>> = entries.iter().map(Value::as_str).collect();
                        HostList::of(texts.ok_or_else(|| self.invalid("Every entry is a text."))?)
                    }
                    _ => return Err(self.invalid("An array of hostnames, or one text with commas.")),
                };
                let list = list.map_err(|error| {
                    self.invalid(format!("Entry {} is not a hostname or an IP address by itself.", error.position))
                })?;
                Ok(Some(json!(list)))
            }
        }
    }

    fn invalid(&self, says: impl Into<String>) -> Invalid {
        Invalid::value(format!("config.{}", self.name), says)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ALLOWED_HOSTS;

    const ACCOUNT: Field = Field {
        name: "account_id",
        label: "Account ID",
        kind: FieldKind::Text,
        required: true,
        default: "",
        options: &[],
        help: "",
        check: |text| text.bytes().all(|byte| byte.is_ascii_hexdigit()),
    };
    const ENGINE: Field = Field {
        name: "engine",
        label: "Engine",
        kind: FieldKind::Select,
        required: false,
        default: "slow",
        options: &["slow", "fast"],
        help: "",
        check: |_| true,
    };
    const FIELDS: &[Field] = &[ACCOUNT, ENGINE, ALLOWED_HOSTS];

    fn reads(given: &Value) -> Result<Value, (Code, String)> {
        let given = given.as_object().expect("an object").clone();
        read(FIELDS, &given).map_err(|invalid| (invalid.code, invalid.field))
    }

    #[test]
    fn what_is_stored_is_complete_and_in_normal_form() {
        let stored = reads(&json!({"account_id": "0a", "engine": "fast", "allowed_hosts": "B\u{fc}cher.de, example.org"}));
        let normal = json!({"account_id": "0a", "engine": "fast", "allowed_hosts": ["xn--bcher-kva.de", "example.org"]});
        assert_eq!(stored, Ok(normal.clone()));
        assert_eq!(reads(&normal), Ok(normal.clone()), "a normal form is its own");
        assert_eq!(reads(&json!({"account_id": "0a", "engine": " "})), Ok(json!({"account_id": "0a"})));
        assert_eq!(reads(&json!({"account_id": "0a", "allowed_hosts": []})), Ok(json!({"account_id": "0a", "allowed_hosts": []})));
    }

    #[test]
    fn each_misfit_names_its_field() {
        let invalid = |field: &str| Err((Code::InvalidValue, format!("config.{field}")));
        assert_eq!(reads(&json!({})), invalid("account_id"));
        assert_eq!(reads(&json!({"account_id": ""})), invalid("account_id"));
        for bad in [json!("xyz"), json!("0a\n"), json!("a".repeat(513)), json!(7), json!(null)] {
            assert_eq!(reads(&json!({"account_id": bad})), invalid("account_id"), "{bad}");
        }
        for bad in [json!("warp"), json!(["fast"])] {
            assert_eq!(reads(&json!({"account_id": "0a", "engine": bad})), invalid("engine"), "{bad}");
        }
        for bad in [json!("https://a.example"), json!(["a.example", "*.b.example"]), json!([1]), json!({}), json!(null)] {
            assert_eq!(reads(&json!({"account_id": "0a", "allowed_hosts": bad})), invalid("allowed_hosts"), "{bad}");
        }
        assert_eq!(reads(&json!({"account_id": "0a", "role": "owner"})), Err((Code::UnknownField, "config.role".to_owned())));
    }
}
