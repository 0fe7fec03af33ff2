//! Tokens of agents: what a harness or an MCP client sends.

use axum::{
    Json,
    extract::{Path, State, rejection::PathRejection},
};
use formation_core::TokenId;
use http::StatusCode;

use super::{MadeToken, NewToken, Nothing, ShownToken, name, second_id};
use crate::{
    auth::AgentManager,
    guard::Body,
    list::{After, List, Query},
    problem::{Document, Problem},
    routes::Doors,
};

/// The agent's tokens, newest first.
#[utoipa::path(get, path = "/api/agents/{slug}/tokens", tag = "people", operation_id = "agent_token.list", params(
    ("slug" = String, Path, description = "The agent"), After),
    security(("operator_token" = ["manager"]), ("session" = ["manager"])), responses(
    (status = 200, description = "A page of them", body = List<ShownToken>),
    (status = 404, description = "Absent, or not yours", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn list(
    AgentManager { agent, .. }: AgentManager,
    State(doors): State<Doors>,
    Query(query): Query<After>,
) -> Result<Json<List<ShownToken>>, Problem> {
    let page = doors.runtime.agent_tokens(&agent, query.id(TokenId::parse)?).await?;
    Ok(Json(List::of(page, |row| row.id.to_string())))
}

/// Makes a token for the agent.
#[utoipa::path(post, path = "/api/agents/{slug}/tokens", tag = "people", operation_id = "agent_token.create", request_body = NewToken,
    params(("slug" = String, Path, description = "The agent")),
    security(("operator_token" = ["manager"]), ("session" = ["manager"])), responses(
    (status = 201, description = "The token, shown this once", body = MadeToken),
    (status = 404, description = "Absent, or not yours", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn create(
    AgentManager { actor, agent }: AgentManager,
    State(doors): State<Doors>,
    Body(body): Body<NewToken>,
) -> Result<(StatusCode, Json<MadeToken>), Problem> {
    let name = name("name", body.name)?;
    let minted = doors.runtime.make_agent_token(&actor, &agent, name.clone()).await?;
    Ok((StatusCode::CREATED, Json(MadeToken::of(&minted, name))))
}

/// Revokes a token of the agent; its streams end with it.
#[utoipa::path(delete, path = "/api/agents/{slug}/tokens/{id}", tag = "people", operation_id = "agent_token.revoke",
    request_body = Option<Nothing>, params(
    ("slug" = String, Path, description = "The agent"),
    ("id" = String, Path, description = "The token's id")),
    security(("operator_token" = ["manager"]), ("session" = ["manager"])), responses(
    (status = 204, description = "It is dead"),
    (status = 404, description = "Absent, dead, or not yours", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn revoke(
    AgentManager { actor, agent }: AgentManager,
    State(doors): State<Doors>,
    path: Result<Path<(String, String)>, PathRejection>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<StatusCode, Problem> {
    doors.runtime.revoke_agent_token(&actor, &agent, second_id(path, TokenId::parse)?).await?;
    Ok(StatusCode::NO_CONTENT)
}
