//! The GET stream of a legacy session: says when the grants changed, and that it lives.

use std::{convert::Infallible, time::Duration};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use formation_core::McpSessionId;
use formation_runtime::{Caller, Runtime};
use futures::{future::BoxFuture, stream};
use tokio::time::Interval;
use tokio_util::sync::CancellationToken;

use super::{patient, seats::Seat};

const LIST_CHANGED: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

struct Notices {
    runtime: Runtime,
    caller: Caller,
    session: Option<McpSessionId>,
    closing: CancellationToken,
    comments: Interval,
    changed: BoxFuture<'static, ()>,
    _seat: Seat,
}

impl Notices {
    /// What to say next; `None` when the session or the server ends.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        tokio::select! {
            () = self.closing.cancelled() => None,
            () = &mut self.changed => {
                self.changed = changed(&self.runtime, &self.caller);
                Some((Ok(patient::event(LIST_CHANGED)), self))
            }
            _ = self.comments.tick() => is_wanted(&self.runtime, &self.caller, self.session).await.then_some((Ok(patient::COMMENT), self)),
        }
    }
}

/// A session that was ended, or whose token was revoked, keeps no stream. A database that doesn't answer ends none.
async fn is_wanted(runtime: &Runtime, caller: &Caller, session: Option<McpSessionId>) -> bool {
    match session {
        Some(session) => runtime.has_mcp_session(caller, session).await.unwrap_or(true),
        None => true,
    }
}

/// Opens the stream.
pub(super) fn stream(
    runtime: Runtime,
    caller: Caller,
    session: Option<McpSessionId>,
    closing: CancellationToken,
    keep_alive: Duration,
    seat: Seat,
) -> Response {
    let changed = changed(&runtime, &caller);
    let notices = Notices { runtime, caller, session, closing, comments: patient::comments(keep_alive), changed, _seat: seat };
    patient::events(Body::from_stream(stream::unfold(notices, Notices::next)))
}

/// Waits for the next change. One that comes before a client has read of the last is told with it: it lists anew anyway.
fn changed(runtime: &Runtime, caller: &Caller) -> BoxFuture<'static, ()> {
    let runtime = runtime.clone();
    let agent = caller.agent();
    Box::pin(async move { runtime.offers_changed(agent).await })
}
