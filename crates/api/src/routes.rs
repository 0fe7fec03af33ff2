//! All routes, registered once: the router, the OpenAPI document and the list that the audience test reads are the same thing (S-07).

use std::collections::BTreeSet;

use axum::{
    Router,
    extract::{FromRef, MatchedPath, Request},
    middleware::{self, Next},
    response::Response,
};
use formation_core::refusal::Code;
use formation_runtime::Runtime;
use tokio_util::sync::CancellationToken;
use utoipa::openapi::{
    ComponentsBuilder, InfoBuilder, OpenApi, OpenApiBuilder,
    path::Operation,
    security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    health, mcp,
    problem::Problem,
    run_api,
    server::{App, Matched, ServerConfig, Timers},
};

/// What every handler can reach.
#[derive(Debug, Clone)]
pub(crate) struct Doors {
    pub(crate) runtime: Runtime,
    pub(crate) mcp: mcp::Gate,
    pub(crate) timers: Timers,
}

impl FromRef<Doors> for Timers {
    fn from_ref(doors: &Doors) -> Self {
        doors.timers
    }
}

/// Who may call a route (contract.md 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Audience {
    /// Without a credential.
    Anybody,
    /// With an agent token.
    Agent,
    /// With a run token.
    Run,
    /// With either.
    AgentOrRun,
}

/// One route, as the router knows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// In capitals.
    pub method: &'static str,
    /// The template, with its `{…}`.
    pub path: String,
    /// From the operation's `security`.
    pub audience: Audience,
}

/// Everything behind the door, ready for [`crate::serve`]. Cheap: nothing is opened or asked.
pub fn app(runtime: Runtime, config: &ServerConfig) -> App {
    let closing = CancellationToken::new();
    let mcp = mcp::Gate::new(runtime.clone(), config, closing.clone());
    let (router, _) = registered().split_for_parts();
    let router: Router = finished(router).with_state(Doors { runtime, mcp, timers: config.timers });
    App::around(router, config, closing)
}

/// The OpenAPI document: generated, served and checked in.
pub fn openapi() -> OpenApi {
    registered().into_openapi()
}

/// Every route with its audience, enumerated from the router.
pub fn routes() -> Vec<Route> {
    let mut routes = Vec::new();
    for (path, item) in openapi().paths.paths {
        let methods = [
            ("GET", item.get),
            ("PUT", item.put),
            ("POST", item.post),
            ("DELETE", item.delete),
            ("PATCH", item.patch),
            ("HEAD", item.head),
            ("OPTIONS", item.options),
            ("TRACE", item.trace),
        ];
        for (method, operation) in methods {
            if let Some(operation) = operation {
                routes.push(Route { method, path: path.clone(), audience: audience(&operation) });
            }
        }
    }
    routes
}

/// An operation without `security` is open to anybody: the audience test compares with the written table.
fn audience(operation: &Operation) -> Audience {
    let schemes: BTreeSet<String> = operation
        .security
        .iter()
        .flatten()
        .filter_map(|requirement| serde_json::to_value(requirement).ok())
        .filter_map(|requirement| requirement.as_object().and_then(|schemes| schemes.keys().next().cloned()))
        .collect();
    match (schemes.contains("agent_token"), schemes.contains("run_token")) {
        (true, true) => Audience::AgentOrRun,
        (true, false) => Audience::Agent,
        (false, true) => Audience::Run,
        (false, false) => Audience::Anybody,
    }
}

fn registered() -> OpenApiRouter<Doors> {
    OpenApiRouter::with_openapi(document())
        .routes(routes!(health::front_page))
        .routes(routes!(health::alive))
        .routes(routes!(health::ready))
        .routes(routes!(health::openapi_document))
        .routes(routes!(run_api::open_run))
        .routes(routes!(run_api::finish_run))
        .routes(routes!(run_api::list_tools))
        .routes(routes!(run_api::call_tool))
        .routes(routes!(run_api::read_call))
        .routes(routes!(run_api::read_artifact))
        .routes(routes!(mcp::post, mcp::get, mcp::delete))
}

/// What is not in the table answers with a problem too.
fn finished<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
    router
        .fallback(async || Problem::new(Code::NotFound))
        .method_not_allowed_fallback(async || Problem::new(Code::MethodNotAllowed))
        .layer(middleware::from_fn(tell_route))
}

/// Lets the log name the route's template, which says less than the path and is bounded.
async fn tell_route(request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>().map(|matched| Matched(matched.as_str().to_owned()));
    let mut response = next.run(request).await;
    if let Some(matched) = matched {
        response.extensions_mut().insert(matched);
    }
    response
}

fn document() -> OpenApi {
    let bearer =
        |text: &str| SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(text)).build());
    OpenApiBuilder::new()
        .info(
            InfoBuilder::new()
                .title("Formation")
                .version(env!("CARGO_PKG_VERSION"))
                .description(Some(
                    "What stands between AI agents and the outside: the run API for a harness of one's own, and MCP. Errors are \
                     problem details (RFC 9457) with a stable `code`.",
                ))
                .build(),
        )
        .components(Some(
            ComponentsBuilder::new()
                .security_scheme("agent_token", bearer("A token of an agent, `fma_…`: long-lived, revocable."))
                .security_scheme("run_token", bearer("The token of one run, `fmr_…`: good for that run alone."))
                .build(),
        ))
        .build()
}
