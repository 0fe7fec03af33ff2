//! An operator's own tokens: what they may do, without a cookie.

use axum::{
    Json,
    extract::{Path, State, rejection::PathRejection},
};
use formation_core::TokenId;
use http::StatusCode;

use super::{MadeToken, NewToken, Nothing, ShownToken, name, path_id};
use crate::{
    auth::Operator,
    guard::Body,
    list::{After, List, Query},
    problem::{Document, Problem},
    routes::Doors,
};

/// One's own tokens, newest first.
#[utoipa::path(get, path = "/api/tokens", tag = "people", operation_id = "token.list", params(After),
    security(("operator_token" = ["operator"]), ("session" = ["operator"])), responses(
    (status = 200, description = "A page of them", body = List<ShownToken>),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn list(
    Operator { person, .. }: Operator,
    State(doors): State<Doors>,
    Query(query): Query<After>,
) -> Result<Json<List<ShownToken>>, Problem> {
    let page = doors.runtime.operator_tokens(person.id, query.id(TokenId::parse)?).await?;
    Ok(Json(List::of(page, |row| row.id.to_string())))
}

/// Makes a token that can do what oneself can.
#[utoipa::path(post, path = "/api/tokens", tag = "people", operation_id = "token.create", request_body = NewToken,
    security(("operator_token" = ["operator"]), ("session" = ["operator"])), responses(
    (status = 201, description = "The token, shown this once", body = MadeToken),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn create(
    Operator { person, actor, .. }: Operator,
    State(doors): State<Doors>,
    Body(body): Body<NewToken>,
) -> Result<(StatusCode, Json<MadeToken>), Problem> {
    let name = name("name", body.name)?;
    let minted = doors.runtime.make_operator_token(&actor, &person, name.clone()).await?;
    Ok((StatusCode::CREATED, Json(MadeToken::of(&minted, name))))
}

/// Revokes one of one's own tokens.
#[utoipa::path(delete, path = "/api/tokens/{id}", tag = "people", operation_id = "token.revoke", request_body = Option<Nothing>,
    params(("id" = String, Path, description = "The token's id")),
    security(("operator_token" = ["operator"]), ("session" = ["operator"])), responses(
    (status = 204, description = "It is dead"),
    (status = 404, description = "Absent, dead, or not yours", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn revoke(
    Operator { person, actor, .. }: Operator,
    State(doors): State<Doors>,
    id: Result<Path<String>, PathRejection>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<StatusCode, Problem> {
    doors.runtime.revoke_operator_token(&actor, person.id, path_id(id, TokenId::parse)?).await?;
    Ok(StatusCode::NO_CONTENT)
}
