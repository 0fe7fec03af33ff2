//! People and what they manage: sign-in, operators, agents, tokens, access, the audit trail (contract.md 2).
//!
//! Owners make and delete agents and say who manages them; who manages an agent does everything else with it. A handler reads its
//! body before it looks at ids in its path: who isn't let in hears nothing of either.

pub(crate) mod access;
pub(crate) mod agent_tokens;
pub(crate) mod agents;
pub(crate) mod audit;
pub(crate) mod operators;
pub(crate) mod page;
pub(crate) mod session;
pub(crate) mod tokens;

use axum::extract::{Path, rejection::PathRejection};
use formation_core::{Secret, Timestamp, TokenId, ids::MalformedId, people, refusal::Code};
use formation_runtime::people::{ChangeError, Minted, TokenRow};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::problem::Problem;

/// What is asked of a route without a credential.
const UNAUTHENTICATED_BYTES: usize = 4 * 1024;

/// No fields.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// A token as people see it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Token)]
pub(crate) struct ShownToken {
    /// Its id; the token itself is kept nowhere.
    #[schema(value_type = String)]
    id: TokenId,
    /// What it was called.
    name: String,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When it was last sent, to the minute.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    last_used_at: Option<Timestamp>,
    /// Since when it is dead.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    revoked_at: Option<Timestamp>,
}

impl From<TokenRow> for ShownToken {
    fn from(row: TokenRow) -> Self {
        let TokenRow { id, name, created_at, last_used_at, revoked_at } = row;
        Self { id, name, created_at, last_used_at, revoked_at }
    }
}

/// What a new token is called.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewToken {
    /// What it is for: 1 to 128 bytes.
    #[schema(min_length = 1, max_length = 128)]
    name: String,
}

/// A new token.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MadeToken {
    /// Its id.
    #[schema(value_type = String)]
    id: TokenId,
    /// What it is called.
    name: String,
    /// Its text, shown this once.
    token: String,
}

impl MadeToken {
    /// The one place where a token's text is shown: to who asked for it.
    fn of(minted: &Minted, name: String) -> Self {
        Self { id: minted.id, name, token: shown(&minted.text) }
    }
}

fn shown(secret: &Secret) -> String {
    String::from_utf8_lossy(secret.expose()).into_owned()
}

impl From<ChangeError> for Problem {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::NotFound => Self::new(Code::NotFound),
            ChangeError::NameTaken => Self::new(Code::NameTaken).detail("Names differ by more than capitals."),
            ChangeError::SlugTaken => Self::new(Code::SlugTaken),
            ChangeError::LastOwner => Self::new(Code::LastOwner).detail("Make another owner first."),
            ChangeError::NoSlug => Self::new(Code::InvalidValue)
                .field("slug")
                .detail("1 to 63 lower-case letters, digits and hyphens, a letter or digit first."),
            ChangeError::NoSuchOperator => {
                Self::new(Code::InvalidValue).field("operators").detail("One of them isn't the id of an operator.")
            }
            ChangeError::Runtime(error) => error.into(),
        }
    }
}

/// A name, or 422.
fn name(field: &str, text: String) -> Result<String, Problem> {
    if people::is_name(&text) {
        return Ok(text);
    }
    let detail = "1 to 128 bytes, without control characters and without space at either end.";
    Err(Problem::new(Code::InvalidValue).field(field).detail(detail))
}

/// A password to be, or 422.
fn password(text: String) -> Result<Secret, Problem> {
    if people::PASSWORD_CHARACTERS.contains(&text.chars().count()) {
        return Ok(Secret::new(text.into_bytes()));
    }
    Err(Problem::new(Code::InvalidValue).field("password").detail("12 to 200 characters."))
}

/// An id in the path: canonical, or 400 whatever exists (S-08).
fn path_id<T>(path: Result<Path<String>, PathRejection>, parse: fn(&str) -> Result<T, MalformedId>) -> Result<T, Problem> {
    path.ok().and_then(|Path(text)| parse(&text).ok()).ok_or_else(|| Problem::new(Code::MalformedId))
}

/// The second parameter of a path with a slug before it.
fn second_id<T>(
    path: Result<Path<(String, String)>, PathRejection>,
    parse: fn(&str) -> Result<T, MalformedId>,
) -> Result<T, Problem> {
    path.ok().and_then(|Path((_, text))| parse(&text).ok()).ok_or_else(|| Problem::new(Code::MalformedId))
}
