//! What most tests of the doors start from: a server, two agents, and everything the database holds, to compare.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use formation_store::Engine;
use formation_testkit::{
    databases::TestDb,
    http::Client,
    server::{Place, Server, Setup},
    site::{Page, Site},
};
use serde_json::Value;

/// The name of the test's site in the browser.
pub(crate) const HOST: &str = "site.example.test";

/// A server with two agents.
pub(crate) struct Stage {
    pub(crate) place: Place,
    pub(crate) setup: Setup,
    /// A client without a token.
    pub(crate) client: Client,
    /// Where the server answers, without a slash at the end.
    pub(crate) url: String,
    /// Where its first owner is made.
    pub(crate) setup_url: Option<String>,
    /// Its process.
    pub(crate) pid: u32,
    /// Kept so that it lives; locked so that a stage can be lent to another thread.
    server: Mutex<Server>,
    /// The agent `alpha`.
    pub(crate) alpha: Client,
    /// The agent `beta`.
    pub(crate) beta: Client,
}

impl Stage {
    /// Starts `setup` on the test's database.
    pub(crate) fn of(db: &TestDb, setup: Setup) -> Self {
        let place = Place::of(db).expect("a place for the server");
        let server = setup.start(&place).expect("a server");
        let alpha = server.agent(&place, "alpha").expect("an agent");
        let beta = server.agent(&place, "beta").expect("another agent");
        let (client, url, pid) = (server.client.clone(), server.url().to_owned(), server.pid());
        let setup_url = server.setup_url().map(str::to_owned);
        Self { place, setup, client, url, setup_url, pid, server: Mutex::new(server), alpha, beta }
    }

    /// Ends the server in good order; what it leaves behind is the next life's.
    pub(crate) fn end(self) -> (Place, Setup) {
        let server = self.server.into_inner().expect("nobody panicked with it");
        let code = server.terminate(Duration::from_secs(20)).expect("it ends");
        assert_eq!(code, Some(0), "it ends well");
        (self.place, self.setup)
    }
}

/// A server without a browser.
pub(crate) fn plain() -> Setup {
    Setup::new(crate::BINARY)
}

/// A server whose browser finds `site` under [`HOST`].
pub(crate) fn browsing(site: &Site) -> Setup {
    plain().with_browser().name(&format!("{HOST}:80"), site.address())
}

/// A site with one page at `/`.
pub(crate) async fn site_with(body: &str) -> Site {
    Site::start().await.expect("a site").with("/", Page::html(body))
}

/// The address of a page of the site.
pub(crate) fn at(path: &str) -> Value {
    serde_json::json!({ "url": format!("http://{HOST}{path}") })
}

/// Every row of every table, but for what a server at rest writes: its heartbeat, and when a token was last seen.
pub(crate) async fn contents(db: &TestDb) -> BTreeMap<String, Vec<String>> {
    let tables = match db.db.engine() {
        Engine::Sqlite => db.texts("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").await,
        Engine::Postgres => db.texts("SELECT tablename::text FROM pg_tables WHERE schemaname = 'public' ORDER BY 1").await,
    };
    let mut contents = BTreeMap::new();
    for table in tables.into_iter().filter(|table| table != "instances") {
        let rows = match db.db.engine() {
            Engine::Sqlite => {
                let columns = db.texts(&format!("SELECT name FROM pragma_table_info('{table}')")).await;
                let quoted: Vec<_> =
                    columns.iter().filter(|name| *name != "last_used_at").map(|name| format!("quote({name})")).collect();
                db.texts(&format!("SELECT {} FROM {table} ORDER BY 1", quoted.join(" || ' ' || "))).await
            }
            Engine::Postgres => db.texts(&format!("SELECT (to_jsonb(t) - 'last_used_at')::text FROM {table} t ORDER BY 1")).await,
        };
        contents.insert(table, rows);
    }
    assert!(contents.len() >= 10, "all tables are there: {:?}", contents.keys());
    contents
}

/// Writes the settings row of one capability as a settings change would: alone, under its owner's lock, with the next version.
pub(crate) async fn set_browser(db: &TestDb, agent: Option<&str>, mode: &str) {
    set_browser_config(db, agent, mode, "{}").await;
}

/// The same with the row's configuration.
pub(crate) async fn set_browser_config(db: &TestDb, agent: Option<&str>, mode: &str, config: &str) {
    let scope = agent.map_or_else(|| "install".to_owned(), |id| format!("agent:{id}"));
    let agent = agent.map_or_else(|| "NULL".to_owned(), |id| format!("'{id}'"));
    let vendor = if mode == "own" { "'local'" } else { "NULL" };
    let write = format!(
        "INSERT INTO capability_settings (scope, agent_id, capability, mode, vendor, config, version, updated_at, updated_by) \
         VALUES ('{scope}', {agent}, 'browser', '{mode}', {vendor}, '{config}', 1, 0, 'test') \
         ON CONFLICT (scope, capability) DO UPDATE SET mode = excluded.mode, vendor = excluded.vendor, config = excluded.config, \
         version = capability_settings.version + 1"
    );
    let begin = match db.db.engine() {
        Engine::Sqlite => "BEGIN IMMEDIATE".to_owned(),
        Engine::Postgres => format!("BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('{scope}', 73001))"),
    };
    db.meddle(&format!("{begin}; {write}; COMMIT")).await;
}

/// The id of the agent `slug`.
pub(crate) async fn agent_id(db: &TestDb, slug: &str) -> String {
    db.texts(&format!("SELECT CAST(id AS TEXT) FROM agents WHERE slug = '{slug}'")).await.pop().expect("the agent is there")
}

/// Fails with the rows that came, went or changed since `before`.
pub(crate) async fn assert_untouched(db: &TestDb, before: &BTreeMap<String, Vec<String>>) {
    let after = contents(db).await;
    let none = Vec::new();
    let mut touched = Vec::new();
    for (table, rows) in &after {
        let earlier = before.get(table).unwrap_or(&none);
        touched.extend(rows.iter().filter(|row| !earlier.contains(row)).map(|row| format!("{table} has {row}")));
        touched.extend(earlier.iter().filter(|row| !rows.contains(row)).map(|row| format!("{table} had {row}")));
    }
    assert!(touched.is_empty(), "{}", touched.join("\n"));
}
