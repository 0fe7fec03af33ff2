//! Signing in, who one is, signing out.

use axum::{Json, response::IntoResponse};
use formation_core::{OperatorId, people::Role};
use formation_runtime::people;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    auth::Operator,
    problem::{Document, Problem},
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

/// Who am I, with the word that changes by cookie need.
#[utoipa::path(get, path = "/api/session", tag = "people", operation_id = "session.read",
    security(("operator_token" = ["operator"]), ("session" = ["operator"])), responses(
    (status = 200, description = "You", body = Session),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn who_am_i(Operator { person, session, .. }: Operator) -> Result<impl IntoResponse, Problem> {
    Ok(Json(Session::of(&person, session.as_deref())))
}
