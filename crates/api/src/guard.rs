//! The one guard in front of every JSON body, `/mcp` included.
//!
//! A body is cut at its limit before it is buffered, has a bounded time to arrive, and is then read by one strict reader: at most 64
//! levels and 4,096 members, no name twice in an object (two readers could see two values), no U+0000, no lone surrogate, and no
//! text that is not UTF-8. What passes is an ordinary [`Value`]; [`Body`] turns it into a type that knows all its fields (S-09, R-13).

mod shape;
mod strict;

use std::time::Duration;

use axum::extract::{FromRef, FromRequest, Request};
use bytes::{Bytes, BytesMut};
use formation_core::{limits, refusal::Code};
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{problem::Problem, server::Timers};

/// A JSON body as a type, of at most `MOST` bytes. `T` denies unknown fields; an empty body reads as `{}`.
#[derive(Debug)]
pub struct Body<T, const MOST: usize = { limits::BODY_BYTES }>(pub T);

impl<S, T, const MOST: usize> FromRequest<S> for Body<T, MOST>
where
    S: Send + Sync,
    T: DeserializeOwned,
    Timers: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let (_, value) = json(request, Timers::from_ref(state).body, MOST).await?;
        shape::read(value).map(Self)
    }
}

/// The bytes of a JSON body and what they say; an empty body is `{}`.
pub(crate) async fn json(request: Request, patience: Duration, most: usize) -> Result<(Bytes, Value), Problem> {
    let (parts, body) = request.into_parts();
    refuse_encodings(&parts.headers)?;
    let bytes = collect(&parts.headers, body, patience, most).await?;
    if bytes.is_empty() {
        return Ok((bytes, Value::Object(serde_json::Map::new())));
    }
    refuse_other_media(&parts.headers)?;
    let value = strict::read(&bytes)?;
    Ok((bytes, value))
}

fn refuse_encodings(headers: &HeaderMap) -> Result<(), Problem> {
    let plain = headers.get_all(header::CONTENT_ENCODING).iter().all(|value| value.as_bytes().eq_ignore_ascii_case(b"identity"));
    if plain {
        return Ok(());
    }
    Err(Problem::new(Code::UnsupportedMediaType).detail("Send the body uncompressed.").closing())
}

fn refuse_other_media(headers: &HeaderMap) -> Result<(), Problem> {
    let mut values = headers.get_all(header::CONTENT_TYPE).iter();
    let is_json = match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().is_ok_and(|text| {
            let essence = text.split_once(';').map_or(text, |(essence, _)| essence);
            essence.trim().eq_ignore_ascii_case("application/json")
        }),
        _ => false,
    };
    if is_json {
        return Ok(());
    }
    Err(Problem::new(Code::UnsupportedMediaType).detail("Send the body as `application/json`."))
}

/// Reads at most `most` bytes, all of it within `patience`: a body that dribbles is as bad as one that never comes.
async fn collect(headers: &HeaderMap, body: axum::body::Body, patience: Duration, most: usize) -> Result<Bytes, Problem> {
    let announced =
        headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()).and_then(|text| text.parse::<u64>().ok());
    if announced.is_some_and(|length| length > most as u64) {
        return Err(too_large(most));
    }
    match tokio::time::timeout(patience, collect_frames(body, most)).await {
        Ok(read) => read,
        Err(_) => Err(Problem::new(Code::InvalidJson).detail("The body did not arrive in time.").closing()),
    }
}

async fn collect_frames(mut body: axum::body::Body, most: usize) -> Result<Bytes, Problem> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::new(Code::InvalidJson).detail("The body was cut off.").closing())?;
        let Ok(data) = frame.into_data() else { continue };
        if data.len() > most - bytes.len() {
            return Err(too_large(most));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.freeze())
}

fn too_large(most: usize) -> Problem {
    Problem::new(Code::TooLarge).detail(format!("A body holds at most {most} bytes.")).closing()
}
