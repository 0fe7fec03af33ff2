//! Operators, as an owner manages them.

use axum::{Json, extract::State};
use formation_core::{OperatorId, Timestamp, people::Role};
use formation_runtime::people::OperatorRow;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    auth::InstallOwner,
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
