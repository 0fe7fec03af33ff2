//! What an operator grants over the API, in one line a test.

use anyhow::ensure;
use http::Method;
use serde_json::{Value, json};

use crate::http::{Client, Reply, send};

/// The install's web settings.
pub const INSTALL: &str = "/api/settings/web";

/// The web settings of the agent `slug`.
pub fn of_agent(slug: &str) -> String {
    format!("/api/agents/{slug}/web")
}

impl Client {
    /// PUT of a JSON body.
    pub async fn put(&self, path: &str, body: &Value) -> anyhow::Result<Reply> {
        send(self.request(Method::PUT, path).json(body)).await
    }

    /// DELETE with a JSON body.
    pub async fn remove(&self, path: &str, body: &Value) -> anyhow::Result<Reply> {
        send(self.request(Method::DELETE, path).json(body)).await
    }

    /// Connects or rotates the account of `vendor` below `base`, whatever its version is; answers the listing.
    pub async fn connect(&self, base: &str, vendor: &str, key: &str) -> anyhow::Result<Value> {
        let version = self.version_of(base, "vendors", "vendor", vendor).await?;
        saved(&self.put(&format!("{base}/vendors/{vendor}"), &json!({"version": version, "api_key": key})).await?)
    }

    /// Takes the account of `vendor` away.
    pub async fn disconnect(&self, base: &str, vendor: &str) -> anyhow::Result<Value> {
        let version = self.version_of(base, "vendors", "vendor", vendor).await?;
        saved(&self.remove(&format!("{base}/vendors/{vendor}"), &json!({"version": version})).await?)
    }

    /// Replaces the settings of `capability`; `settings` is the body without its version.
    pub async fn set(&self, base: &str, capability: &str, settings: Value) -> anyhow::Result<Value> {
        let mut body = settings;
        body["version"] = json!(self.version_of(base, "capabilities", "capability", capability).await?);
        saved(&self.put(&format!("{base}/{capability}"), &body).await?)
    }

    async fn version_of(&self, base: &str, list: &str, name: &str, word: &str) -> anyhow::Result<i64> {
        let listing = saved(&self.get(base).await?)?;
        let entries = listing[list].as_array().cloned().unwrap_or_default();
        let entry = entries.into_iter().find(|entry| entry[name] == word).unwrap_or_default();
        let version = if list == "vendors" { &entry["version"] } else { &entry["settings"]["version"] };
        Ok(version.as_i64().unwrap_or(0))
    }
}

fn saved(reply: &Reply) -> anyhow::Result<Value> {
    ensure!(reply.status == 200, "not saved: {reply:?}");
    Ok(reply.json())
}
