//! The front doors: the HTTP shape of the run API, MCP over streamable HTTP, and the OpenAPI document of both.
//!
//! A request passes the accept loop ([`server`]), the door (`door`: sizes, Host, Origin), the router, an extractor that is its
//! authorization (`auth`), the body guard (`guard`) and a handler that makes one call into `runtime`. Errors leave as problems
//! ([`problem`]). Nothing here knows the store or a vendor.
//!
//! Adding a route: write the handler with its `utoipa::path`, register it in [`routes`], give it a row in the audience table of
//! `tests/it/audience.rs`, and renew `docs/openapi.json` with `UPDATE_OPENAPI=1 cargo nextest run -p formation-api openapi`.

mod auth;
mod door;
mod guard;
mod health;
mod list;
mod mcp;
mod measure;
mod oversight;
mod people;
pub mod problem;
pub mod routes;
mod run_api;
pub mod server;
mod settings;

pub use door::{HEADER_BYTES, URI_BYTES};
pub use guard::Body;
pub use health::{Check, Checks, Report, State};
pub use measure::app as metrics_app;
pub use problem::Problem;
pub use routes::{Audience, Route, app, openapi, routes};
pub use server::{App, ServerConfig, Timers, serve};
