//! Who calls: a Bearer token, taken out of the request before anything else sees it.
//!
//! The extractor's type is the authorization (S-07): a handler with an [`AgentCaller`] can't be reached with a run token, nor the
//! other way round. What can't be a token of ours is refused before the database is asked; what could be one and isn't gets the
//! same 401 after it.

use axum::extract::FromRequestParts;
use formation_core::{AgentId, RunId, TokenId, refusal::Code};
use formation_runtime::{Caller, RunRef};
use http::{HeaderMap, header, request::Parts};

use crate::{problem::Problem, routes::Doors};

/// Tokens of ours are shorter.
const TOKEN_BYTES: usize = 128;

/// The holder of an agent token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AgentCaller {
    pub(crate) agent: AgentId,
    pub(crate) token: TokenId,
}

/// The holder of a run token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunCaller {
    pub(crate) run: RunId,
    pub(crate) agent: AgentId,
}

impl RunCaller {
    /// Its run, over or not.
    pub(crate) const fn run_ref(self) -> RunRef {
        RunRef { run: self.run, agent: self.agent, is_successor: false }
    }
}

/// The holder of either.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnyCaller(pub(crate) Caller);

impl FromRequestParts<Doors> for AnyCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, doors: &Doors) -> Result<Self, Problem> {
        let token = take_token(&mut parts.headers).ok_or_else(unauthenticated)?;
        doors.runtime.authenticate(&token).await?.map(Self).ok_or_else(unauthenticated)
    }
}

impl FromRequestParts<Doors> for AgentCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, doors: &Doors) -> Result<Self, Problem> {
        match AnyCaller::from_request_parts(parts, doors).await?.0 {
            Caller::Agent { agent, token } => Ok(Self { agent, token }),
            Caller::Run { .. } => Err(Problem::new(Code::Forbidden).detail("This route takes an agent's token, not a run's.")),
        }
    }
}

impl FromRequestParts<Doors> for RunCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, doors: &Doors) -> Result<Self, Problem> {
        match AnyCaller::from_request_parts(parts, doors).await?.0 {
            Caller::Run { run, agent, .. } => Ok(Self { run, agent }),
            Caller::Agent { .. } => {
                Err(Problem::new(Code::Forbidden).detail("This route takes the token of a run: open one with `POST /v1/runs`."))
            }
        }
    }
}

fn unauthenticated() -> Problem {
    Problem::new(Code::Unauthenticated).detail("Send `Authorization: Bearer` with a token of Formation's.")
}

/// The token of the one `Authorization` header, if it could be ours. The header is gone afterwards, so that nothing behind can log it.
fn take_token(headers: &mut HeaderMap) -> Option<String> {
    let header::Entry::Occupied(entry) = headers.entry(header::AUTHORIZATION) else { return None };
    let (_, mut values) = entry.remove_entry_mult();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let could_be_ours = !token.is_empty()
        && token.len() <= TOKEN_BYTES
        && token.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    (scheme.eq_ignore_ascii_case("bearer") && could_be_ours).then(|| token.to_owned())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn taken(values: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, HeaderValue::from_str(value).expect("a header value"));
        }
        let token = take_token(&mut headers);
        assert!(headers.is_empty(), "the header stays nowhere");
        token
    }

    /// S-11: what can't be a token of ours never reaches the database.
    #[test]
    fn only_one_well_formed_bearer_token_is_looked_up() {
        assert_eq!(taken(&["Bearer fma_abc-DEF_123"]).as_deref(), Some("fma_abc-DEF_123"));
        assert_eq!(taken(&["bearer fma_x"]).as_deref(), Some("fma_x"));
        let long = format!("Bearer {}", "a".repeat(TOKEN_BYTES + 1));
        for values in [
            &[][..],
            &["Bearer"],
            &["Bearer "],
            &["Bearer  fma_x"],
            &["Basic fma_x"],
            &["fma_x"],
            &["Bearer fma_x fma_y"],
            &["Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJvd25lciJ9."],
            &["Bearer fma_x,fma_y"],
            &["Bearer fma_x", "Bearer fma_x"],
            &[long.as_str()],
        ] {
            assert_eq!(taken(values), None, "{values:?}");
        }
    }
}
