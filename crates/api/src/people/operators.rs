//! Operators, as an owner manages them.

use axum::{
    Json,
    extract::{Path, State, rejection::PathRejection},
};
use formation_core::{OperatorId, Timestamp, people::Role};
use formation_runtime::people::OperatorRow;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Nothing, name, password, path_id};
use crate::{
    auth::InstallOwner,
    guard::Body,
    list::{After, List, Query},
    problem::{Document, Problem},
    routes::Doors,
};

/// A person.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Operator)]
pub(crate) struct Shown {
    /// Their id.
    #[schema(value_type = String)]
    id: OperatorId,
    /// Their name.
    name: String,
    /// `owner` or `member`.
    #[schema(value_type = String)]
    role: Role,
    /// When they came.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// Whether they are shut out.
    disabled: bool,
}

impl From<OperatorRow> for Shown {
    fn from(row: OperatorRow) -> Self {
        Self { id: row.id, name: row.name, role: row.role, created_at: row.created_at, disabled: row.disabled_at.is_some() }
    }
}

/// A new operator.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewOperator {
    /// Their name: 1 to 128 bytes; no two differ by capitals alone.
    #[schema(min_length = 1, max_length = 128)]
    name: String,
    /// `owner` or `member`.
    #[schema(value_type = String)]
    role: Role,
    /// 12 to 200 characters, for them to sign in with.
    #[schema(min_length = 12, max_length = 200)]
    password: String,
}

/// What can be changed of an operator.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OperatorChange {
    /// `true` ends their sessions and kills their tokens at once.
    disabled: bool,
}

/// Everybody, newest first.
#[utoipa::path(get, path = "/api/operators", tag = "people", operation_id = "operator.list", params(After),
    security(("operator_token" = ["owner"]), ("session" = ["owner"])), responses(
    (status = 200, description = "A page of them", body = List<Shown>),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn list(
    _: InstallOwner,
    State(doors): State<Doors>,
    Query(query): Query<After>,
) -> Result<Json<List<Shown>>, Problem> {
    let page = doors.runtime.operators(query.id(OperatorId::parse)?).await?;
    Ok(Json(List::of(page, |row| row.id.to_string())))
}

/// Makes an operator.
#[utoipa::path(post, path = "/api/operators", tag = "people", operation_id = "operator.create", request_body = NewOperator,
    security(("operator_token" = ["owner"]), ("session" = ["owner"])), responses(
    (status = 201, description = "They are in", body = Shown),
    (status = 409, description = "`name_taken`", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn create(
    InstallOwner { actor }: InstallOwner,
    State(doors): State<Doors>,
    Body(body): Body<NewOperator>,
) -> Result<(StatusCode, Json<Shown>), Problem> {
    let (name, password) = (name("name", body.name)?, password(body.password)?);
    let made = doors.runtime.make_operator(&actor, name, body.role, password).await?;
    Ok((StatusCode::CREATED, Json(made.into())))
}

/// Disables an operator or lets them in again. The last enabled owner stays.
#[utoipa::path(patch, path = "/api/operators/{id}", tag = "people", operation_id = "operator.change", request_body = OperatorChange,
    params(("id" = String, Path, description = "The operator")),
    security(("operator_token" = ["owner"]), ("session" = ["owner"])), responses(
    (status = 200, description = "As they are now", body = Shown),
    (status = 409, description = "`last_owner`", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn change(
    InstallOwner { actor }: InstallOwner,
    State(doors): State<Doors>,
    id: Result<Path<String>, PathRejection>,
    Body(body): Body<OperatorChange>,
) -> Result<Json<Shown>, Problem> {
    let id = path_id(id, OperatorId::parse)?;
    Ok(Json(doors.runtime.disable_operator(&actor, id, body.disabled).await?.into()))
}

/// Deletes an operator with their sessions, tokens and access. The last enabled owner stays.
#[utoipa::path(delete, path = "/api/operators/{id}", tag = "people", operation_id = "operator.delete", request_body = Option<Nothing>,
    params(("id" = String, Path, description = "The operator")),
    security(("operator_token" = ["owner"]), ("session" = ["owner"])), responses(
    (status = 204, description = "They are gone"),
    (status = 409, description = "`last_owner`", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn delete(
    InstallOwner { actor }: InstallOwner,
    State(doors): State<Doors>,
    id: Result<Path<String>, PathRejection>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<StatusCode, Problem> {
    doors.runtime.delete_operator(&actor, path_id(id, OperatorId::parse)?).await?;
    Ok(StatusCode::NO_CONTENT)
}
