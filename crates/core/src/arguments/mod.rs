//! Arguments of the tools, parsed into types before anything is spent. Unknown fields are refused, and so is a field that does
//! not belong to the chosen action (browser.md 1.5).

mod act;
mod keys;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use url::Url;

pub use act::{ActArguments, Action, Consent};
pub use keys::{Chord, Key, NamedKey};

use crate::{destination, limits, tool::Tool};

/// Why arguments were turned away: a sentence for the model that says what to send instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidArguments(pub String);

impl InvalidArguments {
    pub(crate) fn because(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// Arguments of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arguments {
    /// `web_search`.
    Search {
        /// 1 to 2,000 bytes, not white space alone.
        query: String,
        /// 1 to 10.
        limit: u8,
    },
    /// One of the browser's tools.
    Browse(Browse),
}

/// Arguments of one browser call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Browse {
    /// `browser_navigate`.
    Navigate {
        /// HTTP or HTTPS, without user-info; canonical.
        url: Url,
    },
    /// `browser_read`.
    Read {
        /// Where in the document's text to go on, in bytes.
        text_offset: usize,
        /// Only lines and controls that contain this, ignoring case.
        find: Option<String>,
    },
    /// `browser_act`.
    Act {
        /// What to do.
        action: Action,
        /// Consent to the first confirm or prompt.
        dialog: Option<Consent>,
    },
    /// `browser_screenshot`.
    Screenshot,
}

/// Arguments of `web_search`. It takes no other (S7).
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchArguments {
    /// What to search for, at most 2,000 bytes; the provider may take less and then says so before anything is spent.
    #[schemars(length(min = 1, max = 2000))]
    pub query: String,
    /// How many results, 1 to 10; 5 without it.
    #[serde(default)]
    #[schemars(range(min = 1, max = 10))]
    pub limit: Option<i64>,
}

/// Arguments of `browser_navigate`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NavigateArguments {
    /// Absolute http or https URL, at most 4,096 bytes, without user name or password.
    #[schemars(length(min = 1, max = 4096))]
    pub url: String,
}

/// Arguments of `browser_read`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadArguments {
    /// Byte offset into this document's text to go on from: `truncated.next_text_offset` of the last read.
    #[serde(default)]
    pub text_offset: Option<u32>,
    /// Return only text lines and controls that contain this, ignoring case; at most 200 bytes.
    #[serde(default)]
    #[schemars(length(min = 1, max = 200))]
    pub find: Option<String>,
}

/// Arguments of `browser_screenshot`: none.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScreenshotArguments {}

impl Arguments {
    /// Parses the arguments of `tool`. An absent or null object counts as an empty one.
    pub fn parse(tool: Tool, arguments: &Value) -> Result<Self, InvalidArguments> {
        let arguments = if arguments.is_null() { Value::Object(serde_json::Map::new()) } else { arguments.clone() };
        if !arguments.is_object() {
            return Err(InvalidArguments::because("The arguments must be a JSON object."));
        }
        if has_null_character(&arguments) {
            return Err(InvalidArguments::because("Text must not contain the character U+0000."));
        }
        match tool {
            Tool::WebSearch => search(&shape(arguments)?),
            Tool::BrowserNavigate => {
                let parsed: NavigateArguments = shape(arguments)?;
                destination::browser(&parsed.url)
                    .map(|url| Self::Browse(Browse::Navigate { url }))
                    .map_err(|verdict| InvalidArguments::because(verdict.explanation()))
            }
            Tool::BrowserRead => {
                let parsed: ReadArguments = shape(arguments)?;
                if let Some(find) = &parsed.find {
                    within("find", find, 1, limits::FIND_BYTES)?;
                }
                Ok(Self::Browse(Browse::Read { text_offset: parsed.text_offset.unwrap_or(0) as usize, find: parsed.find }))
            }
            Tool::BrowserAct => shape::<ActArguments>(arguments)?.check().map(Self::Browse),
            Tool::BrowserScreenshot => shape::<ScreenshotArguments>(arguments).map(|_| Self::Browse(Browse::Screenshot)),
        }
    }

    /// The schema offered for `tool`: one flat object, since some model vendors refuse a top-level `oneOf`.
    pub fn schema(tool: Tool) -> Value {
        let schema = match tool {
            Tool::WebSearch => schemars::schema_for!(SearchArguments),
            Tool::BrowserNavigate => schemars::schema_for!(NavigateArguments),
            Tool::BrowserRead => schemars::schema_for!(ReadArguments),
            Tool::BrowserAct => schemars::schema_for!(ActArguments),
            Tool::BrowserScreenshot => schemars::schema_for!(ScreenshotArguments),
        };
        let mut schema = schema.to_value();
        if let Some(object) = schema.as_object_mut() {
            object.remove("$schema");
            object.remove("title");
            object.entry("properties").or_insert_with(|| Value::Object(serde_json::Map::new()));
        }
        schema
    }

    /// Rises when a schema changes, so that offers made under the old one go stale.
    pub const SCHEMA_VERSION: u32 = 1;
}

fn search(parsed: &SearchArguments) -> Result<Arguments, InvalidArguments> {
    within("query", &parsed.query, 1, limits::QUERY_BYTES)?;
    if parsed.query.trim().is_empty() {
        return Err(InvalidArguments::because("`query` must say what to search for; it is white space alone."));
    }
    let limit = parsed.limit.unwrap_or(i64::from(limits::SEARCH_RESULTS_DEFAULT));
    let Some(limit) = u8::try_from(limit).ok().filter(|limit| (1..=limits::SEARCH_RESULTS).contains(limit)) else {
        return Err(InvalidArguments::because(format!("`limit` must be 1 to {}; it is {limit}.", limits::SEARCH_RESULTS)));
    };
    Ok(Arguments::Search { query: parsed.query.clone(), limit })
}

fn shape<T: serde::de::DeserializeOwned>(arguments: Value) -> Result<T, InvalidArguments> {
    // serde's message names a field or a type; values of ours can't be in it beyond the caller's own words.
    serde_json::from_value(arguments).map_err(|error| {
        let mut text = error.to_string();
        let end = text.char_indices().map(|(at, _)| at).take_while(|at| *at <= 200).last().unwrap_or(0);
        if text.len() > 200 {
            text.truncate(end);
        }
        InvalidArguments::because(format!("The arguments do not fit the tool's schema: {text}."))
    })
}

pub(crate) fn within(field: &str, text: &str, least: usize, most: usize) -> Result<(), InvalidArguments> {
    if text.len() < least || text.len() > most {
        return Err(InvalidArguments::because(format!(
            "`{field}` must be {least} to {most} bytes of UTF-8; it is {}.",
            text.len()
        )));
    }
    Ok(())
}

fn has_null_character(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_null_character),
        Value::Object(fields) => fields.iter().any(|(name, value)| name.contains('\0') || has_null_character(value)),
        _ => false,
    }
}
