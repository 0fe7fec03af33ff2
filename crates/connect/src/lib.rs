//! Connections to remote MCP servers and REST APIs, with the credentials their owners stored.
//!
//! Will hold: the remote MCP client (discovery, tool catalog, calls), OAuth for it, REST API calls and native packages. Everything
//! goes out through `wire`; refresh tokens are the store's, and only access tokens reach a request. It knows no database and no
//! route.
//!
//! Nothing is here yet: connections come after search, reading and hosted browsers.
