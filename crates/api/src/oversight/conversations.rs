//! Conversations of an agent.

use axum::{Json, extract::State};
use formation_core::{ConversationId, Timestamp};
use formation_runtime::oversight::Conversation;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    auth::AgentManager,
    list::{After, List, Query},
    problem::{Document, Problem},
    routes::Doors,
};

/// A conversation: what belongs together over several runs.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Conversation)]
pub(crate) struct Shown {
    /// Its id.
    #[schema(value_type = String)]
    id: ConversationId,
    /// The caller's word for it; null when it is one run's own.
    #[schema(required)]
    name: Option<String>,
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// How many runs belong to it.
    runs: i64,
    /// When the newest of them was opened.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    last_run_at: Option<Timestamp>,
}

impl From<Conversation> for Shown {
    fn from(conversation: Conversation) -> Self {
        let Conversation { id, name, created_at, runs, last_run_at } = conversation;
        Self { id, name, created_at, runs, last_run_at }
    }
}

/// The agent's conversations, newest first.
#[utoipa::path(get, path = "/api/agents/{slug}/conversations", tag = "oversight", operation_id = "conversation.list", params(
    ("slug" = String, Path, description = "The agent"), After),
    security(("operator_token" = ["manager"]), ("session" = ["manager"])), responses(
    (status = 200, description = "A page of them", body = List<Shown>),
    (status = 404, description = "Absent, or not yours", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn list(
    AgentManager { agent, .. }: AgentManager,
    State(doors): State<Doors>,
    Query(query): Query<After>,
) -> Result<Json<List<Shown>>, Problem> {
    let page = doors.runtime.conversations(&agent, query.id(ConversationId::parse)?).await?;
    Ok(Json(List::of(page, |conversation| conversation.id.to_string())))
}
