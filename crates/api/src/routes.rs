//! All routes, registered once: the router, the OpenAPI document and the list that the audience test reads are the same thing (S-07).

use std::collections::{BTreeMap, BTreeSet};

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
    security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    auth, health,
    health::Checks,
    mcp, measure, oversight, people,
    problem::Problem,
    run_api,
    server::{App, Matched, ServerConfig, Timers},
    settings,
};

/// What every handler can reach.
#[derive(Debug, Clone)]
pub(crate) struct Doors {
    pub(crate) runtime: Runtime,
    pub(crate) mcp: mcp::Gate,
    pub(crate) timers: Timers,
    pub(crate) checks: Checks,
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
    /// Any operator, by token or session.
    Operator,
    /// Whoever manages the agent or run of the path: its members, and every owner.
    Manager,
    /// Owners of the install.
    Owner,
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
    measure::start();
    let closing = CancellationToken::new();
    let mcp = mcp::Gate::new(runtime.clone(), config, closing.clone());
    let (router, _) = registered().split_for_parts();
    let doors = Doors { runtime, mcp, timers: config.timers, checks: config.checks.clone() };
    let router = router.layer(middleware::from_fn_with_state(doors.clone(), auth::audited));
    let router: Router = finished(router).with_state(doors);
    App::around(router, config, closing)
}

/// The OpenAPI document: generated, served and checked in.
pub fn openapi() -> OpenApi {
    registered().into_openapi()
}

/// Every route with its audience, enumerated from the router.
pub fn routes() -> Vec<Route> {
    let each = every_operation().into_iter();
    each.map(|(method, path, operation)| Route { method, path, audience: audience(&operation) }).collect()
}

/// The id of each operation under its method and path: the audit trail's words.
pub(crate) fn operations() -> BTreeMap<(String, String), String> {
    let each = every_operation().into_iter();
    each.filter_map(|(method, path, operation)| Some(((method.to_owned(), path), operation.operation_id?))).collect()
}

fn every_operation() -> Vec<(&'static str, String, Operation)> {
    let mut found = Vec::new();
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
        found.extend(methods.into_iter().filter_map(|(method, operation)| Some((method, path.clone(), operation?))));
    }
    found
}

/// An operation without `security` is open to anybody: the audience test compares with the written table.
fn audience(operation: &Operation) -> Audience {
    let requirements = operation.security.iter().flatten().filter_map(|requirement| serde_json::to_value(requirement).ok());
    let schemes: BTreeMap<String, Vec<String>> = requirements
        .filter_map(|requirement| serde_json::from_value::<BTreeMap<String, Vec<String>>>(requirement).ok())
        .flatten()
        .collect();
    let roles: BTreeSet<&str> =
        ["operator_token", "session"].iter().filter_map(|scheme| schemes.get(*scheme)).flatten().map(String::as_str).collect();
    match (schemes.contains_key("agent_token"), schemes.contains_key("run_token")) {
        (true, true) => Audience::AgentOrRun,
        (true, false) => Audience::Agent,
        (false, true) => Audience::Run,
        (false, false) if roles.contains("operator") => Audience::Operator,
        (false, false) if roles.contains("manager") => Audience::Manager,
        (false, false) if roles.contains("owner") => Audience::Owner,
        (false, false) => Audience::Anybody,
    }
}

fn registered() -> OpenApiRouter<Doors> {
    OpenApiRouter::with_openapi(document())
        .routes(routes!(health::front_page))
        .routes(routes!(health::alive))
        .routes(routes!(health::ready))
        .routes(routes!(health::openapi_document))
        .routes(routes!(health::checked))
        .routes(routes!(measure::metrics))
        .routes(routes!(run_api::open_run))
        .routes(routes!(run_api::finish_run))
        .routes(routes!(run_api::list_tools))
        .routes(routes!(run_api::call_tool))
        .routes(routes!(run_api::read_call))
        .routes(routes!(run_api::read_artifact))
        .routes(routes!(mcp::post, mcp::get, mcp::delete))
        .routes(routes!(people::page::set_up))
        .routes(routes!(people::session::set_up))
        .routes(routes!(people::session::sign_in, people::session::who_am_i, people::session::sign_out))
        .routes(routes!(people::operators::list, people::operators::create))
        .routes(routes!(people::operators::change, people::operators::delete))
        .routes(routes!(people::tokens::list, people::tokens::create))
        .routes(routes!(people::tokens::revoke))
        .routes(routes!(people::agents::list, people::agents::create))
        .routes(routes!(people::agents::read, people::agents::change, people::agents::delete))
        .routes(routes!(people::access::read, people::access::replace))
        .routes(routes!(people::agent_tokens::list, people::agent_tokens::create))
        .routes(routes!(people::agent_tokens::revoke))
        .routes(routes!(people::audit::list))
        .routes(routes!(settings::install::read, settings::install::save))
        .routes(routes!(settings::web::install_list))
        .routes(routes!(settings::web::install_save_account, settings::web::install_remove_account))
        .routes(routes!(settings::web::install_save_connection))
        .routes(routes!(settings::web::install_usage))
        .routes(routes!(settings::web::agent_list))
        .routes(routes!(settings::web::agent_save_account, settings::web::agent_remove_account))
        .routes(routes!(settings::web::agent_save_connection))
        .routes(routes!(settings::web::agent_usage))
        .routes(routes!(oversight::overview::read))
        .routes(routes!(oversight::runs::list))
        .routes(routes!(oversight::runs::read))
        .routes(routes!(oversight::runs::cancel))
        .routes(routes!(oversight::trace::read))
        .routes(routes!(oversight::trace::reconcile))
        .routes(routes!(oversight::conversations::list))
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
                .security_scheme(
                    "operator_token",
                    bearer("A token of an operator, `fmo_…`. The scope says whom a route lets in: any `operator`, a `manager` of the agent, or an `owner`."),
                )
                .security_scheme(
                    "session",
                    SecurityScheme::ApiKey(ApiKey::Cookie(ApiKeyValue::with_description(
                        "__Host-formation",
                        "An operator who signed in. A change also needs an `Origin` of this server and `X-Formation-Csrf`.",
                    ))),
                )
                .security_scheme("run_token", bearer("The token of one run, `fmr_…`: good for that run alone."))
                .build(),
        ))
        .build()
}
