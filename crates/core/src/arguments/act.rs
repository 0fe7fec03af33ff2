//! `browser_act`: one flat object on the wire, one strict action inside.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Browse, Chord, InvalidArguments, within};
use crate::limits;

/// An action on a ref of the newest observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// One left click.
    Click {
        /// The target.
        reference: String,
    },
    /// Replaces the whole value.
    Type {
        /// The target.
        reference: String,
        /// At most 2,000 bytes; empty clears.
        text: String,
    },
    /// Focuses the target and sends one key or chord.
    Press {
        /// The target.
        reference: String,
        /// What to press.
        chord: Chord,
    },
}

impl Action {
    /// The ref it aims at.
    pub fn reference(&self) -> &str {
        match self {
            Self::Click { reference } | Self::Type { reference, .. } | Self::Press { reference, .. } => reference,
        }
    }
}

/// Consent of the model to the first confirm or prompt of the action, given beforehand.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Consent {
    /// true answers OK, false Cancel.
    pub accept: bool,
    /// For a prompt only: the text to answer, at most 200 bytes.
    #[serde(default)]
    #[schemars(length(max = 200))]
    pub text: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ActionWord {
    Click,
    Type,
    Press,
}

/// Arguments of `browser_act`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActArguments {
    /// What to do with the control that `ref` names.
    action: ActionWord,
    /// `ref` of a control in the newest observation.
    #[serde(rename = "ref")]
    #[schemars(length(min = 1, max = 24))]
    reference: String,
    /// With `type`: the new value of the field, at most 2,000 bytes; empty clears it. It is kept in the run's ledger.
    #[serde(default)]
    #[schemars(length(max = 2000))]
    text: Option<String>,
    /// With `press`: one key or chord such as `Enter`, `Control+a`, `Shift+Tab`.
    #[serde(default)]
    #[schemars(length(min = 1, max = 64))]
    key: Option<String>,
    /// How to answer the first confirm or prompt this action opens; without it they are dismissed.
    #[serde(default)]
    dialog: Option<Consent>,
}

impl ActArguments {
    /// Checks the fields against the action.
    pub(super) fn check(self) -> Result<Browse, InvalidArguments> {
        within("ref", &self.reference, 1, 24)?;
        if let Some(text) = self.dialog.as_ref().and_then(|consent| consent.text.as_ref()) {
            within("dialog.text", text, 0, limits::DIALOG_TEXT_BYTES)?;
        }
        let reference = self.reference;
        let action = match (self.action, self.text, self.key) {
            (ActionWord::Click, None, None) => Action::Click { reference },
            (ActionWord::Type, Some(text), None) => {
                within("text", &text, 0, limits::TYPE_BYTES)?;
                Action::Type { reference, text }
            }
            (ActionWord::Press, None, Some(key)) => Action::Press { reference, chord: Chord::parse(&key)? },
            (ActionWord::Type, None, _) => return Err(InvalidArguments::because("`type` needs `text`.")),
            (ActionWord::Press, _, None) => return Err(InvalidArguments::because("`press` needs `key`.")),
            (ActionWord::Click | ActionWord::Press, Some(_), _) => {
                return Err(InvalidArguments::because("`text` belongs to `type` alone."));
            }
            (ActionWord::Click | ActionWord::Type, _, Some(_)) => {
                return Err(InvalidArguments::because("`key` belongs to `press` alone."));
            }
        };
        Ok(Browse::Act { action, dialog: self.dialog })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{arguments::Arguments, tool::Tool};

    fn parse(arguments: &serde_json::Value) -> Result<Browse, InvalidArguments> {
        match Arguments::parse(Tool::BrowserAct, arguments)? {
            Arguments::Browse(browse) => Ok(browse),
            Arguments::Search { .. } => panic!("an action is no search"),
        }
    }

    #[test]
    fn each_action_takes_its_own_fields_and_no_others() {
        assert!(parse(&json!({"action": "click", "ref": "a.1"})).is_ok());
        assert!(parse(&json!({"action": "type", "ref": "a.1", "text": ""})).is_ok());
        assert!(parse(&json!({"action": "press", "ref": "a.1", "key": "Control+a"})).is_ok());
        for wrong in [
            json!({}),
            json!({"action": "click"}),
            json!({"action": "click", "ref": ""}),
            json!({"action": "click", "ref": "a.1", "text": "x"}),
            json!({"action": "click", "ref": "a.1", "key": "a"}),
            json!({"action": "type", "ref": "a.1"}),
            json!({"action": "type", "ref": "a.1", "text": "x".repeat(2001)}),
            json!({"action": "type", "ref": "a.1", "text": "a\u{0}b"}),
            json!({"action": "press", "ref": "a.1"}),
            json!({"action": "press", "ref": "a.1", "key": "Hyper+a"}),
            json!({"action": "press", "ref": "a.1", "key": "a", "text": "b"}),
            json!({"action": "hover", "ref": "a.1"}),
            json!({"action": "click", "ref": "a.1", "script": "alert(1)"}),
            json!({"action": "click", "ref": "a.1", "dialog": {"accept": true, "text": "x".repeat(201)}}),
            json!([1]),
        ] {
            assert!(parse(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_empty_text_clears_and_is_not_a_missing_one() {
        let parsed = parse(&json!({"action": "type", "ref": "a.1", "text": ""}));
        assert_eq!(parsed, Ok(Browse::Act { action: Action::Type { reference: "a.1".into(), text: String::new() }, dialog: None }));
    }
}
