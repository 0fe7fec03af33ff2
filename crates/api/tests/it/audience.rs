//! S-07's table: every route and who may call it. A route that is missing here, or here and nowhere else, fails the test.

use std::{collections::BTreeSet, path::Path};

use formation_api::{Audience, Route};

/// contract.md 1, for the routes that exist.
const TABLE: &[(&str, &str, Audience)] = &[
    ("GET", "/", Audience::Anybody),
    ("GET", "/healthz", Audience::Anybody),
    ("GET", "/readyz", Audience::Anybody),
    ("GET", "/api/openapi.json", Audience::Anybody),
    ("GET", "/api/health", Audience::Owner),
    ("GET", "/metrics", Audience::Owner),
    ("POST", "/v1/runs", Audience::Agent),
    ("POST", "/v1/run/finish", Audience::Run),
    ("GET", "/v1/run/tools", Audience::Run),
    ("POST", "/v1/run/tool-calls", Audience::Run),
    ("GET", "/v1/run/tool-calls/{id}", Audience::Run),
    ("GET", "/v1/run/artifacts/{artifact}", Audience::Run),
    ("GET", "/setup/{token}", Audience::Anybody),
    ("POST", "/api/setup", Audience::Anybody),
    ("POST", "/api/session", Audience::Anybody),
    ("GET", "/api/session", Audience::Operator),
    ("DELETE", "/api/session", Audience::Operator),
    ("GET", "/api/operators", Audience::Owner),
    ("POST", "/api/operators", Audience::Owner),
    ("PATCH", "/api/operators/{id}", Audience::Owner),
    ("DELETE", "/api/operators/{id}", Audience::Owner),
    ("GET", "/api/tokens", Audience::Operator),
    ("POST", "/api/tokens", Audience::Operator),
    ("DELETE", "/api/tokens/{id}", Audience::Operator),
    ("GET", "/api/agents", Audience::Operator),
    ("POST", "/api/agents", Audience::Owner),
    ("GET", "/api/agents/{slug}", Audience::Manager),
    ("PATCH", "/api/agents/{slug}", Audience::Manager),
    ("DELETE", "/api/agents/{slug}", Audience::Owner),
    ("GET", "/api/agents/{slug}/access", Audience::Manager),
    ("PUT", "/api/agents/{slug}/access", Audience::Owner),
    ("GET", "/api/agents/{slug}/tokens", Audience::Manager),
    ("POST", "/api/agents/{slug}/tokens", Audience::Manager),
    ("DELETE", "/api/agents/{slug}/tokens/{id}", Audience::Manager),
    ("GET", "/api/audit", Audience::Operator),
    ("GET", "/api/settings/install", Audience::Owner),
    ("PUT", "/api/settings/install", Audience::Owner),
    ("GET", "/api/settings/web", Audience::Owner),
    ("PUT", "/api/settings/web/vendors/{vendor}", Audience::Owner),
    ("DELETE", "/api/settings/web/vendors/{vendor}", Audience::Owner),
    ("PUT", "/api/settings/web/{capability}", Audience::Owner),
    ("GET", "/api/settings/web/usage", Audience::Owner),
    ("GET", "/api/agents/{slug}/web", Audience::Manager),
    ("PUT", "/api/agents/{slug}/web/vendors/{vendor}", Audience::Manager),
    ("DELETE", "/api/agents/{slug}/web/vendors/{vendor}", Audience::Manager),
    ("PUT", "/api/agents/{slug}/web/{capability}", Audience::Manager),
    ("GET", "/api/agents/{slug}/web/usage", Audience::Manager),
    ("GET", "/api/overview", Audience::Operator),
    ("GET", "/api/runs", Audience::Operator),
    ("GET", "/api/runs/{id}", Audience::Manager),
    ("POST", "/api/runs/{id}/cancel", Audience::Manager),
    ("GET", "/api/runs/{id}/trace", Audience::Manager),
    ("POST", "/api/runs/{id}/tool-calls/{call}/reconcile", Audience::Manager),
    ("GET", "/api/agents/{slug}/conversations", Audience::Manager),
    ("POST", "/mcp", Audience::AgentOrRun),
    ("GET", "/mcp", Audience::AgentOrRun),
    ("DELETE", "/mcp", Audience::AgentOrRun),
];

#[test]
fn every_route_has_its_written_audience() {
    let written: BTreeSet<Route> =
        TABLE.iter().map(|(method, path, audience)| Route { method, path: (*path).to_owned(), audience: *audience }).collect();
    let real: BTreeSet<Route> = formation_api::routes().into_iter().collect();
    assert_eq!(real, written);
}

/// `docs/openapi.json` is generated; `UPDATE_OPENAPI=1` renews it.
#[test]
fn the_checked_in_openapi_document_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let current = formation_api::openapi().to_pretty_json().expect("the document can be written") + "\n";
    #[expect(clippy::disallowed_methods, reason = "a switch of the test, not of the product")]
    let update = std::env::var_os("UPDATE_OPENAPI").is_some();
    if update {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("docs/ can be made");
        std::fs::write(&path, &current).expect("the document can be written");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == current, "docs/openapi.json is stale: run this test with UPDATE_OPENAPI=1");
}
