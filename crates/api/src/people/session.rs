//! Setting up the first owner; signing in, who one is, signing out.

use std::net::IpAddr;

use axum::{
    Json,
    extract::{FromRequestParts, State},
    response::{IntoResponse, Response},
};
use formation_core::{OperatorId, Secret, people::Role, refusal::Code};
use formation_runtime::people::{self, SignIn, SignInError, SignedIn};
use http::{HeaderMap, StatusCode, header, request::Parts};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Nothing, UNAUTHENTICATED_BYTES, name, password, shown};
use crate::{
    auth::{Operator, cookie},
    door::RequestId,
    guard::Body,
    problem::{Document, Problem},
    routes::Doors,
    server::Peer,
};

/// Who is signed in.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Session {
    /// Who.
    operator: Me,
    /// What a change by this session's cookie sends in `X-Formation-Csrf`; absent for a token, which needs none.
    #[serde(skip_serializing_if = "Option::is_none")]
    csrf: Option<String>,
}

/// Oneself.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Me {
    /// The operator's id.
    #[schema(value_type = String)]
    id: OperatorId,
    /// Their name.
    name: String,
    /// `owner` or `member`.
    #[schema(value_type = String)]
    role: Role,
}

impl Session {
    fn of(operator: &people::Operator, session: Option<&str>) -> Self {
        let me = Me { id: operator.id, name: operator.name.clone(), role: operator.role };
        Self { operator: me, csrf: session.map(people::csrf_of) }
    }
}

/// The first owner.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetUp {
    /// The end of the set-up link.
    token: String,
    /// Their name: 1 to 128 bytes.
    #[schema(min_length = 1, max_length = 128)]
    name: String,
    /// 12 to 200 characters.
    #[schema(min_length = 12, max_length = 200)]
    password: String,
}

/// A name and its password.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Credentials {
    /// Who signs in.
    name: String,
    /// Their password.
    password: String,
}

/// A request that comes from nobody yet, and from one of our own pages.
pub(crate) struct Visitor {
    source: IpAddr,
    request: Option<String>,
}

impl FromRequestParts<Doors> for Visitor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Doors) -> Result<Self, Problem> {
        cookie::has_origin(&parts.headers)?;
        let peer = parts.extensions.get::<Peer>().map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.0);
        let request = parts.extensions.get::<RequestId>().map(|id| id.0.clone());
        Ok(Self { source: source(peer, &parts.headers), request })
    }
}

impl Visitor {
    fn signs_in(self, name: String, password: Secret) -> SignIn {
        SignIn { name, password, source: self.source, request: self.request }
    }
}

/// Where a request came from. A proxy on this machine says so in the last entry of `X-Forwarded-For`; nobody else is believed.
fn source(peer: IpAddr, headers: &HeaderMap) -> IpAddr {
    if !peer.to_canonical().is_loopback() {
        return peer;
    }
    let lines = headers.get_all("x-forwarded-for").iter().next_back();
    let last = lines.and_then(|value| value.to_str().ok()).and_then(|text| text.rsplit(',').next());
    last.and_then(|text| text.trim().parse().ok()).unwrap_or(peer)
}

impl From<SignInError> for Problem {
    fn from(error: SignInError) -> Self {
        match error {
            SignInError::Wrong => Self::new(Code::Unauthenticated).detail("Name or password is wrong."),
            SignInError::NameTaken => Self::new(Code::NameTaken),
            SignInError::Wait(span) => {
                let seconds = span.as_secs() + u64::from(span.subsec_nanos() > 0);
                Self::new(Code::RateLimited).detail("Too many attempts; wait and try again.").retry_after(seconds.max(1))
            }
            SignInError::Runtime(error) => error.into(),
        }
    }
}

fn welcomed(status: StatusCode, signed_in: &SignedIn) -> Result<Response, Problem> {
    let session = shown(&signed_in.session);
    let cookie = cookie::set(&session).ok_or_else(|| Problem::new(Code::Internal))?;
    let body = Json(Session::of(&signed_in.operator, Some(&session)));
    Ok((status, [(header::SET_COOKIE, cookie)], body).into_response())
}

/// Makes the first owner, by the link that `serve` prints, and signs them in. Needs an `Origin` of this server.
#[utoipa::path(post, path = "/api/setup", tag = "people", operation_id = "install.setup", request_body = SetUp, responses(
    (status = 201, description = "You own this install and are signed in: the cookie is set", body = Session),
    (status = 404, description = "The link is used, too old, or never was; or there is an owner", body = Document, content_type = "application/problem+json"),
    (status = 429, description = "`rate_limited`", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn set_up(
    visitor: Visitor,
    State(doors): State<Doors>,
    Body(body): Body<SetUp, UNAUTHENTICATED_BYTES>,
) -> Result<Response, Problem> {
    let (name, password) = (name("name", body.name)?, password(body.password)?);
    match doors.runtime.set_up(&body.token, visitor.signs_in(name, password)).await {
        Ok(signed_in) => welcomed(StatusCode::CREATED, &signed_in),
        Err(SignInError::Wrong) => Err(Problem::new(Code::NotFound)
            .detail("This link is used, too old, or never was; starting the server again prints a new one while nobody owns it.")),
        Err(error) => Err(error.into()),
    }
}

/// Signs in. Needs an `Origin` of this server. Whoever isn't there and whoever typed a wrong password hear the same after the same time.
#[utoipa::path(post, path = "/api/session", tag = "people", operation_id = "session.open", request_body = Credentials, responses(
    (status = 200, description = "You are signed in: the cookie is set", body = Session),
    (status = 401, description = "`unauthenticated`: name or password is wrong", body = Document, content_type = "application/problem+json"),
    (status = 429, description = "`rate_limited`: wait as long as `Retry-After` says", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn sign_in(
    visitor: Visitor,
    State(doors): State<Doors>,
    Body(body): Body<Credentials, UNAUTHENTICATED_BYTES>,
) -> Result<Response, Problem> {
    let sign_in = visitor.signs_in(body.name, Secret::new(body.password.into_bytes()));
    welcomed(StatusCode::OK, &doors.runtime.sign_in(sign_in).await?)
}

/// Who am I, with the word that changes by cookie need.
#[utoipa::path(get, path = "/api/session", tag = "people", operation_id = "session.read",
    security(("operator_token" = ["operator"]), ("session" = ["operator"])), responses(
    (status = 200, description = "You", body = Session),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn who_am_i(Operator { person, session, .. }: Operator) -> Json<Session> {
    Json(Session::of(&person, session.as_deref()))
}

/// Signs out: the session is over, here and everywhere. A token isn't signed in; it is revoked.
#[utoipa::path(delete, path = "/api/session", tag = "people", operation_id = "session.close", request_body = Option<Nothing>,
    security(("operator_token" = ["operator"]), ("session" = ["operator"])), responses(
    (status = 204, description = "You are out"),
    (status = 403, description = "`forbidden`: this is a token", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn sign_out(
    Operator { actor, session, .. }: Operator,
    State(doors): State<Doors>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Response, Problem> {
    let session = session
        .ok_or_else(|| Problem::new(Code::Forbidden).detail("A token isn't signed in; `DELETE /api/tokens/{id}` revokes it."))?;
    doors.runtime.sign_out(&actor, &session).await?;
    let cookie = cookie::clear().ok_or_else(|| Problem::new(Code::Internal))?;
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_a_proxy_on_this_machine_is_believed() {
        let mut headers = HeaderMap::new();
        headers.append("x-forwarded-for", HeaderValue::from_static("198.51.100.7"));
        headers.append("x-forwarded-for", HeaderValue::from_static("203.0.113.1, 192.0.2.9"));
        let of = |peer: &str, headers: &HeaderMap| source(peer.parse().expect("an address"), headers).to_string();
        assert_eq!(of("127.0.0.1", &headers), "192.0.2.9");
        assert_eq!(of("::1", &headers), "192.0.2.9");
        assert_eq!(of("10.0.0.1", &headers), "10.0.0.1");
        assert_eq!(of("127.0.0.1", &HeaderMap::new()), "127.0.0.1");
        headers.append("x-forwarded-for", HeaderValue::from_static("unknown"));
        assert_eq!(of("127.0.0.1", &headers), "127.0.0.1");
    }
}
