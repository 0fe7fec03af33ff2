//! The run API: a harness of one's own opens a run, lists what it is offered, and calls (contract.md 3).
//!
//! The parts that a caller words itself (its id for a call, its name for a conversation) are checked here; arguments of a tool are
//! not: a call with bad arguments is a call, and is refused on record.

mod shapes;

pub(crate) use self::shapes::{Annotations, CallProblem, is_caller_word};

use axum::{
    Json,
    extract::{Path, State, rejection::PathRejection},
    response::{IntoResponse, Response},
};
use formation_core::{ArtifactId, CallId, OfferId, Tool, ids::MalformedId, limits, refusal::Code};
use formation_runtime::{Answer, ArtifactRead, CallRequest, Door, ExecuteError, OpenRun};
use http::{HeaderValue, StatusCode, header};
use tokio_util::sync::CancellationToken;

use self::shapes::{CallTool, Listed, OpenRunBody, Opened, Pending, Settled};
use crate::{
    auth::{AgentCaller, RunCaller},
    guard::Body,
    problem::{Document, Problem},
    routes::Doors,
};

/// Opens a run, with a token of its own.
#[utoipa::path(post, path = "/v1/runs", tag = "runs", security(("agent_token" = [])), request_body = OpenRunBody, responses(
    (status = 200, description = "The run; its token is shown this once", body = Opened),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`: nothing was opened", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn open_run(
    caller: AgentCaller,
    State(doors): State<Doors>,
    Body(body): Body<OpenRunBody>,
) -> Result<Json<Opened>, Problem> {
    let open = OpenRun::try_from(body)?;
    let opened = doors.runtime.open_run(caller.agent, caller.token, open).await?;
    Ok(Json(Opened::from(opened)))
}

/// Ends the run: its calls are refused from now on and its browser is closed. Asking again changes nothing.
#[utoipa::path(post, path = "/v1/run/finish", tag = "runs", security(("run_token" = [])), request_body = Option<shapes::Nothing>, responses(
    (status = 204, description = "It is over"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn finish_run(
    caller: RunCaller,
    State(doors): State<Doors>,
    Body(shapes::Nothing {}): Body<shapes::Nothing>,
) -> Result<StatusCode, Problem> {
    doors.runtime.finish_run(&caller.run_ref()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What the run is offered now, in fixed order; each listing records its offers.
#[utoipa::path(get, path = "/v1/run/tools", tag = "runs", security(("run_token" = [])), responses(
    (status = 200, description = "The offers", body = Vec<Listed>),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn list_tools(caller: RunCaller, State(doors): State<Doors>) -> Result<Json<Vec<Listed>>, Problem> {
    let offers = doors.runtime.offers(&caller.run_ref()).await?;
    Ok(Json(offers.iter().map(Listed::from).collect()))
}

/// Calls a tool and waits for its end.
///
/// `id` is the caller's own word for the call: the same one with the same tool and arguments answers what is stored and sends
/// nothing again. A call that fails or is refused is answered with 200 and says so in its observation.
#[utoipa::path(post, path = "/v1/run/tool-calls", tag = "runs", security(("run_token" = [])), request_body = CallTool, responses(
    (status = 200, description = "The call has ended", body = Settled),
    (status = 202, description = "A call of this id runs; ask again", body = Pending),
    (status = 409, description = "`id_reused`: the id stands for another call", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Not a call", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`: it could not be recorded, nothing was sent", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn call_tool(
    caller: RunCaller,
    State(doors): State<Doors>,
    Body(body): Body<CallTool>,
) -> Result<Response, Problem> {
    let request = call_request(body)?;
    let answer = match doors.runtime.execute(caller.run_ref(), request).await {
        // On record and without an end yet: to ask again is all there is to do, as for one that runs.
        Err(ExecuteError::Unsettled { id }) => Answer::Running { id },
        ended => ended?,
    };
    Ok(answered(answer))
}

/// A call of this run, by the id of its answer.
#[utoipa::path(get, path = "/v1/run/tool-calls/{id}", tag = "runs", security(("run_token" = [])),
    params(("id" = String, Path, description = "The id a call was answered with")), responses(
    (status = 200, description = "The call has ended", body = Settled),
    (status = 202, description = "It runs; ask again", body = Pending),
    (status = 400, description = "`malformed_id`", body = Document, content_type = "application/problem+json"),
    (status = 404, description = "Absent, or another run's", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn read_call(
    caller: RunCaller,
    State(doors): State<Doors>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Problem> {
    let id = path_id(id, CallId::parse)?;
    let answer = doors.runtime.call(&caller.run_ref(), id).await?.ok_or_else(|| Problem::new(Code::NotFound))?;
    Ok(answered(answer))
}

/// A screenshot of this run, for 24 hours.
#[utoipa::path(get, path = "/v1/run/artifacts/{artifact}", tag = "runs", security(("run_token" = [])),
    params(("artifact" = String, Path, description = "The `artifact` of an observation")), responses(
    (status = 200, description = "The picture", content_type = "image/jpeg"),
    (status = 400, description = "`malformed_id`", body = Document, content_type = "application/problem+json"),
    (status = 404, description = "Absent, or another run's", body = Document, content_type = "application/problem+json"),
    (status = 410, description = "`artifact_expired`", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn read_artifact(
    caller: RunCaller,
    State(doors): State<Doors>,
    artifact: Result<Path<String>, PathRejection>,
) -> Result<Response, Problem> {
    let artifact = path_id(artifact, ArtifactId::parse)?;
    match doors.runtime.artifact(&caller.run_ref(), artifact).await? {
        ArtifactRead::Jpeg(bytes) => {
            let headers = [
                (header::CONTENT_TYPE, HeaderValue::from_static("image/jpeg")),
                (header::CONTENT_DISPOSITION, HeaderValue::from_static("inline")),
                (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
            ];
            Ok((headers, bytes).into_response())
        }
        ArtifactRead::Expired => Err(Problem::new(Code::ArtifactExpired)),
        ArtifactRead::Missing => Err(Problem::new(Code::NotFound)),
    }
}

/// An id in the path: canonical, or 400 whatever exists (S-08).
fn path_id<T>(path: Result<Path<String>, PathRejection>, parse: fn(&str) -> Result<T, MalformedId>) -> Result<T, Problem> {
    let id = path.ok().and_then(|Path(text)| parse(&text).ok());
    id.ok_or_else(|| Problem::new(Code::MalformedId))
}

fn call_request(body: CallTool) -> Result<CallRequest, Problem> {
    if let Some(key) = &body.id {
        shapes::caller_word("id", key)?;
    }
    let offer = body
        .offer
        .map(|offer| OfferId::parse(&offer))
        .transpose()
        .map_err(|_| Problem::new(Code::MalformedId).field("offer").detail("`offer` is the id that a listing gave."))?;
    let tool = Tool::parse(&body.tool)
        .ok_or_else(|| Problem::new(Code::InvalidValue).field("tool").detail("No such tool: `GET /v1/run/tools` lists them."))?;
    if !body.arguments.is_object() {
        return Err(Problem::new(Code::InvalidValue).field("arguments").detail("Arguments are a JSON object."));
    }
    // A harness that hangs up has not given up: the outcome waits for it under its id.
    let cancel = CancellationToken::new();
    Ok(CallRequest { key: body.id, tool, arguments: body.arguments, offer, door: Door::Run, cancel })
}

fn answered(answer: Answer) -> Response {
    match answer {
        Answer::Settled { call, image } => Json(Settled::new(&call, image.as_ref())).into_response(),
        Answer::Running { id } => {
            (StatusCode::ACCEPTED, [(header::RETRY_AFTER, HeaderValue::from_static("1"))], Json(Pending::of(id))).into_response()
        }
    }
}

/// The longest deadline, in seconds.
pub(crate) const DEADLINE_SECONDS: u64 = limits::RUN_DEADLINE.as_secs();
