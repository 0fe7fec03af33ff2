//! The audit row of what was turned away: one layer around the mutating routes under `/api`.
//!
//! What is done leaves its row in the transaction of the change, written by the runtime. Everything else that a known caller asked
//! for and didn't get leaves one here, in a transaction of its own, after the handler; if that can't be written the answer is 503.
//! Who sent no good credential leaves none (sign-in and set-up, whose callers are nobody yet, write their own), and neither does a fault of ours (5xx): then nobody was judged.
//!
//! The action is the operation's id in the OpenAPI document, which a route that changes something writes as `noun.verb`.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use axum::{
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use formation_core::{AgentId, people::Actor};
use formation_runtime::people::TurnedAway;
use http::Method;

use crate::{
    problem::Problem,
    routes::{self, Doors},
};

/// What an extractor found out about a request before somebody turned it away.
#[derive(Debug, Clone, Default)]
pub(crate) struct Witness(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    actor: Option<Actor>,
    agent: Option<AgentId>,
}

impl Witness {
    /// Somebody's credential was good.
    pub(super) fn saw(&self, actor: Actor) {
        self.seen(|seen| seen.actor = Some(actor));
    }

    /// It is about this agent.
    pub(super) fn concerns(&self, agent: AgentId) {
        self.seen(|seen| seen.agent = Some(agent));
    }

    fn seen<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The layer.
pub(crate) async fn audited(State(doors): State<Doors>, mut request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>().map(|matched| matched.as_str().to_owned());
    let (Some(matched), false) = (matched, request.method().is_safe()) else { return next.run(request).await };
    if !matched.starts_with("/api/") {
        return next.run(request).await;
    }
    let witness = Witness::default();
    request.extensions_mut().insert(witness.clone());
    let (method, subject) = (request.method().clone(), subject(request.uri().path()));
    let response = next.run(request).await;
    let Some(action) = action(&method, &matched) else { return response };
    let (status, code) = match response.extensions().get::<Problem>() {
        Some(problem) if problem.status().is_client_error() => (problem.status().as_u16(), problem.code().to_string()),
        _ => return response,
    };
    let Some((actor, agent)) = witness.seen(|seen| seen.actor.take().map(|actor| (actor, seen.agent))) else {
        return response;
    };
    let turned = TurnedAway { actor, agent, action: action.to_owned(), subject, status, code };
    match doors.runtime.record_turned_away(turned).await {
        Ok(()) => response,
        Err(_) => Problem::unrecorded().into_response(),
    }
}

/// The operation's id, for the methods that a route has.
fn action(method: &Method, matched: &str) -> Option<&'static str> {
    static ACTIONS: LazyLock<BTreeMap<(String, String), String>> = LazyLock::new(routes::operations);
    ACTIONS.get(&(method.to_string(), matched.to_owned())).map(String::as_str)
}

/// The path with what could be a secret cut out: slugs, words and ids are shorter than any token and plainer than most passwords.
fn subject(path: &str) -> String {
    let is_word = |part: &str| {
        part.len() <= 63 && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte))
    };
    path.split('/').map(|part| if is_word(part) { part } else { "…" }).take(12).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_in_a_path_is_not_kept() {
        let token = format!("fmo_{}", "0".repeat(64));
        assert_eq!(subject(&format!("/api/tokens/{token}")), "/api/tokens/…");
        let id = "019ad012-3456-7abc-8def-0123456789ab";
        assert_eq!(subject(&format!("/api/runs/{id}/cancel")), format!("/api/runs/{id}/cancel"));
        assert_eq!(subject("/api/agents/de mo"), "/api/agents/…");
    }
}
