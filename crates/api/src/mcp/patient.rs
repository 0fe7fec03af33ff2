//! Keeps a connection alive while a call takes its time.
//!
//! An answer that comes soon is the JSON it is. One that doesn't becomes an event stream: comments until the answer is there, then
//! the answer as its one event. Proxies and clients that close silent connections would otherwise cut a call of 45 s and more. When
//! the client closes the stream, the answer's future is dropped with it, which under 2026-07-28 is the cancel.

use std::convert::Infallible;

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, future::BoxFuture, stream};
use http::{HeaderName, HeaderValue, header};
use http_body_util::BodyExt;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use crate::server::Timers;

/// A comment line: clients ignore it, proxies see life.
pub(super) const COMMENT: Bytes = Bytes::from_static(b": waiting\n\n");

/// The answer itself when it comes within [`Timers::quiet`], else a stream that ends with it.
pub(super) async fn answer(mut asked: BoxFuture<'static, Response>, timers: Timers) -> Response {
    if let Ok(response) = tokio::time::timeout(timers.quiet, &mut asked).await {
        return response;
    }
    let comments = comments(timers.keep_alive);
    let waiting = stream::unfold(Some((asked, comments)), |state| async {
        let (mut asked, mut comments) = state?;
        tokio::select! {
            response = &mut asked => Some((framed(response).await, None)),
            _ = comments.tick() => Some((Body::from(COMMENT), Some((asked, comments)))),
        }
    });
    let frames = waiting.flat_map(Body::into_data_stream).map(|frame| frame.or_else(|_| Ok::<_, Infallible>(Bytes::new())));
    events(Body::from_stream(frames))
}

/// An event stream that no proxy should hold back.
pub(super) fn events(body: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, body).into_response()
}

/// One JSON message as an event.
pub(super) fn event(message: &[u8]) -> Bytes {
    let mut event = BytesMut::from(&b"event: message\ndata: "[..]);
    event.extend_from_slice(message);
    event.extend_from_slice(b"\n\n");
    event.freeze()
}

/// Ticks each `every`, for the first time at once.
pub(super) fn comments(every: std::time::Duration) -> Interval {
    let mut comments = tokio::time::interval_at(Instant::now(), every);
    comments.set_missed_tick_behavior(MissedTickBehavior::Delay);
    comments
}

/// A late answer in the stream: an event of its JSON, or its own events. A late refusal in any other shape ends the stream without an
/// answer, which a client takes as a lost connection.
async fn framed(response: Response) -> Body {
    if has_media(&response, b"text/event-stream") {
        return response.into_body();
    }
    if !has_media(&response, b"application/json") {
        return Body::empty();
    }
    match response.into_body().collect().await {
        Ok(collected) => Body::from(event(&collected.to_bytes())),
        Err(_) => Body::empty(),
    }
}

/// Whether an answer's media type is `media`, parameters aside.
pub(super) fn has_media(response: &Response, media: &[u8]) -> bool {
    response.headers().get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(media))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::Json;
    use serde_json::json;

    use super::*;

    async fn after(wait: Duration) -> (String, String) {
        let asked = Box::pin(async move {
            tokio::time::sleep(wait).await;
            Json(json!({"id": 1})).into_response()
        });
        let response = answer(asked, Timers::default()).await;
        let media = response.headers()[header::CONTENT_TYPE].to_str().expect("text").to_owned();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (media, String::from_utf8(body.to_vec()).expect("text"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_quick_answer_is_json_and_a_slow_one_a_stream_that_ends_with_it() {
        assert_eq!(after(Duration::from_secs(9)).await, ("application/json".into(), r#"{"id":1}"#.into()));
        let (media, body) = after(Duration::from_secs(45)).await;
        assert_eq!(media, "text/event-stream");
        assert_eq!(body, ": waiting\n\n: waiting\n\n: waiting\n\nevent: message\ndata: {\"id\":1}\n\n");
    }

    #[tokio::test(start_paused = true)]
    async fn closing_the_stream_drops_the_call() {
        let (held, mut gone) = tokio::sync::oneshot::channel::<()>();
        let asked = Box::pin(async move {
            let _held = held;
            std::future::pending::<Response>().await
        });
        let response = answer(asked, Timers::default()).await;
        assert!(gone.try_recv().is_err_and(|error| error == tokio::sync::oneshot::error::TryRecvError::Empty));
        drop(response);
        assert!(gone.await.is_err());
    }
}
