//! The GET stream of a legacy session: says when the grants changed, and that it lives.

use std::{convert::Infallible, time::Duration};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use formation_core::McpSessionId;
use formation_runtime::{Caller, Change, OfferWatch, Runtime};
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
    change: BoxFuture<'static, (Change, OfferWatch)>,
    _seat: Seat,
}

impl Notices {
    /// What to say next; `None` when the session or the server ends.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        tokio::select! {
            () = self.closing.cancelled() => None,
            (change, watch) = &mut self.change => match change {
                Change::Revoked => None,
                Change::Offers => {
                    self.change = next_change(watch);
                    Some((Ok(patient::event(LIST_CHANGED)), self))
                }
            },
            _ = self.comments.tick() => is_wanted(&self.runtime, &self.caller, self.session).await.then_some((Ok(patient::COMMENT), self)),
        }
    }
}

/// A session that was ended keeps no stream; a revoked token's ends with its change. A database that doesn't answer ends none.
async fn is_wanted(runtime: &Runtime, caller: &Caller, session: Option<McpSessionId>) -> bool {
    match session {
        Some(session) => runtime.has_mcp_session(caller, session).await.unwrap_or(true),
        None => true,
    }
}

/// Opens the stream. `watch` was made before the answer's head: a change from here on is told.
pub(super) fn stream(
    runtime: Runtime,
    caller: Caller,
    watch: OfferWatch,
    session: Option<McpSessionId>,
    closing: CancellationToken,
    keep_alive: Duration,
    seat: Seat,
) -> Response {
    let change = next_change(watch);
    let notices = Notices { runtime, caller, session, closing, comments: patient::comments(keep_alive), change, _seat: seat };
    patient::events(Body::from_stream(stream::unfold(notices, Notices::next)))
}

/// Waits for the next change. One that comes before a client has read of the last is told with it: it lists anew anyway.
fn next_change(mut watch: OfferWatch) -> BoxFuture<'static, (Change, OfferWatch)> {
    Box::pin(async move { (watch.change().await, watch) })
}
