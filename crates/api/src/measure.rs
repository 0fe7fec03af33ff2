//! Metrics, as Prometheus reads them: counted where things happen, rendered here, for an owner or on a listener of its own.
//!
//! Labels are words of closed sets: templates of routes, statuses, tools, outcomes, reasons, vendors of the catalog (never an id, a
//! slug, or anything a caller chose).

use std::{sync::OnceLock, time::Duration};

use axum::{
    Router,
    extract::State,
    response::{IntoResponse, Response},
    routing,
};
use formation_core::refusal::Code;
use formation_runtime::Runtime;
use http::{HeaderValue, StatusCode, header};
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::{
    auth::InstallOwner,
    problem::{Document, Problem},
    routes::Doors,
    server::{App, ServerConfig},
};

/// How often what was measured is folded together, so that it takes no room while nobody reads it.
pub(crate) const UPKEEP: Duration = Duration::from_secs(5);
/// Upper ends of the buckets of durations, in seconds.
const BUCKETS: [f64; 15] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

static RECORDER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

/// Starts counting, once a process. Whoever embeds this and counts already keeps their own recorder; then there is nothing to render.
pub(crate) fn start() {
    RECORDER.get_or_init(|| {
        let builder = PrometheusBuilder::new();
        let builder = builder.set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS).ok()?;
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder).ok()?;
        describe();
        Some(handle)
    });
}

fn describe() {
    describe_counter!("formation_http_requests_total", "Requests answered, by the route's template and status.");
    describe_counter!("formation_calls_total", "Tool calls that ended in this process, by tool, vendor, execution and outcome.");
    describe_counter!("formation_refusals_total", "Tool calls turned away, by tool and reason.");
    describe_histogram!("formation_call_duration_seconds", Unit::Seconds, "From a call's record to its end, its turn included.");
    describe_histogram!("formation_admission_duration_seconds", Unit::Seconds, "One admission, from asking to its commit.");
    describe_histogram!("formation_provider_duration_seconds", Unit::Seconds, "What a provider took, by tool and vendor.");
    describe_gauge!("formation_running_calls", "Calls that run in this process.");
    describe_gauge!("formation_browser_sessions", "Browsers that this process drives.");
    describe_gauge!("formation_database_connections", "Connections to the database, by state.");
}

fn handle() -> Option<&'static PrometheusHandle> {
    RECORDER.get().and_then(Option::as_ref)
}

/// Folds what was measured together.
pub(crate) fn keep_up() {
    if let Some(handle) = handle() {
        handle.run_upkeep();
    }
}

/// One request was answered. Paths that no route has count as one.
pub(crate) fn answered(route: &str, status: StatusCode) {
    let route = if route.is_empty() { "none" } else { route }.to_owned();
    counter!("formation_http_requests_total", "route" => route, "status" => status.as_str().to_owned()).increment(1);
}

/// What is counted, in Prometheus' text format. Also without a credential on the listener of `--metrics-listen`.
#[utoipa::path(get, path = "/metrics", tag = "server", operation_id = "metrics.read",
    security(("operator_token" = ["owner"]), ("session" = ["owner"])), responses(
    (status = 200, description = "Prometheus' text format", content_type = "text/plain"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn metrics(_: InstallOwner, State(doors): State<Doors>) -> Response {
    rendered(State(doors.runtime)).await
}

async fn rendered(State(runtime): State<Runtime>) -> Response {
    runtime.gauge().await;
    let text = handle().map(PrometheusHandle::render).unwrap_or_default();
    ([(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"))], text).into_response()
}

/// `GET /metrics` alone, for a listener of its own.
#[expect(clippy::disallowed_methods, reason = "the one route of another listener; the document and S-07 have it as an owner's")]
pub fn app(runtime: Runtime, config: &ServerConfig) -> App {
    start();
    let router = Router::new().route("/metrics", routing::get(rendered)).with_state(runtime);
    App::of_any_name(router.fallback(async || Problem::new(Code::NotFound)), config)
}
