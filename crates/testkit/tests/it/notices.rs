//! What listening MCP clients are told when a grant changes: at once, by a change over HTTP, here and on the other replica.

use std::time::{Duration, Instant};

use formation_testkit::{
    brave::KEY,
    grants::{INSTALL, of_agent},
    mcp::{MODERN, Mcp},
    on_both_databases,
};
use http::Method;
use serde_json::json;

use crate::{revocation::replica, search::Searching};

const BOTH: &str = "application/json, text/event-stream";
const LIST_CHANGED: &str = "notifications/tools/list_changed";
/// «At once»; the poll that stands in for lost news is put far behind it.
const AT_ONCE: Duration = Duration::from_millis(700);

/// An open stream of notices, and what it has said since it was last asked.
pub(crate) struct Listening {
    stream: reqwest::Response,
    said: String,
}

impl Listening {
    /// The GET stream of a legacy session, open when this returns.
    pub(crate) async fn legacy(session: &Mcp) -> Self {
        let stream = session.request(Method::GET).header("accept", "text/event-stream").send().await.expect("a stream");
        assert_eq!(stream.status().as_u16(), 200);
        Self { stream, said: String::new() }
    }

    /// `subscriptions/listen` of the sessionless revision, acknowledged when this returns.
    pub(crate) async fn modern(client: &Mcp) -> Self {
        let listen = json!({"jsonrpc": "2.0", "id": 7, "method": "subscriptions/listen", "params": {
            "notifications": {"toolsListChanged": true}, "_meta": {
                "io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}}});
        let request = client.request(Method::POST).header("accept", BOTH).header("mcp-method", "subscriptions/listen");
        let stream = request.json(&listen).send().await.expect("a stream");
        assert_eq!(stream.status().as_u16(), 200);
        let mut this = Self { stream, said: String::new() };
        assert!(this.hears("acknowledged", Duration::from_secs(10)).await, "{}", this.said);
        this
    }

    /// Whether it says `word` within that time; what it said before is forgotten then.
    pub(crate) async fn hears(&mut self, word: &str, within: Duration) -> bool {
        let heard = async {
            loop {
                if let Some(at) = self.said.find(word) {
                    self.said.drain(..at + word.len());
                    return true;
                }
                let Ok(Some(chunk)) = self.stream.chunk().await else { return false };
                self.said.push_str(&String::from_utf8_lossy(&chunk));
            }
        };
        tokio::time::timeout(within, heard).await.unwrap_or(false)
    }

    /// Whether it ends within that time, whatever it still says.
    pub(crate) async fn ends(&mut self, within: Duration) -> bool {
        let read = async { while matches!(self.stream.chunk().await, Ok(Some(_))) {} };
        tokio::time::timeout(within, read).await.is_ok()
    }
}

on_both_databases! {
    /// W20, S-06: each settings write that changes what an agent is offered is told on both kinds of stream well within a second, on
    /// every replica, and to no agent whose offers it doesn't touch.
    async fn w20_a_changed_grant_is_told_at_once(db) {
        // Should news be lost, the poll comes far too late.
        let searching = Searching::with(&db, |setup| setup.timing("poll_ms=60000,keep_alive_ms=500")).await;
        let second = replica(&searching);
        let (owner, own) = (&searching.owner.client, of_agent("alpha"));
        let stage = &searching.stage;
        let mut servers = vec![stage.alpha.clone()];
        servers.extend(second.as_ref().map(|server| server.client.with_token(stage.alpha.token().expect("a token"))));
        let legacy = Mcp::legacy(&stage.alpha).await.expect("a session");
        let betas = Mcp::legacy(&stage.beta).await.expect("a session");
        let mut streams = Vec::new();
        for server in &servers {
            streams.push(Listening::legacy(&legacy.through(server)).await);
            streams.push(Listening::modern(&Mcp::modern(server, None)).await);
        }
        let mut stranger = Listening::legacy(&betas).await;
        // The other replica listens once its server has been up for a moment.
        tokio::time::sleep(Duration::from_millis(1_500)).await;

        let mode = |mode: &str, provider: &str| json!({"mode": mode, "provider": provider, "config": {}});
        let mut waits = Vec::new();
        for (change, is_granted) in [("disabled", false), ("auto", true), ("rotate", true), ("pin", true), ("remove", false), ("own", true), ("off", false), ("inherit", false), ("connect", true)] {
            match change {
                "disabled" | "auto" => owner.set(INSTALL, "search", mode(change, "")).await,
                "rotate" | "connect" => owner.connect(INSTALL, "brave", KEY).await,
                "pin" => owner.set(INSTALL, "search", mode("own", "brave")).await,
                "remove" => owner.disconnect(INSTALL, "brave").await,
                "own" => {
                    owner.connect(&own, "brave", KEY).await.expect("an account alone offers nothing");
                    owner.set(&own, "search", mode("own", "brave")).await
                }
                "off" => owner.set(&own, "search", mode("disabled", "")).await,
                _ => owner.set(&own, "search", mode("inherit", "")).await,
            }.expect("the change is made");
            let changed = Instant::now();
            // Going back to nothing from nothing is no news.
            let is_news = change != "inherit";
            for (number, stream) in streams.iter_mut().enumerate() {
                let heard = stream.hears(LIST_CHANGED, if is_news { AT_ONCE } else { Duration::from_millis(300) }).await;
                assert_eq!(heard, is_news, "{change} on stream {number} after {:?}", changed.elapsed());
            }
            if is_news {
                waits.push(changed.elapsed());
            }
            for server in &servers {
                let listed = Mcp::modern(server, None).tools().await.expect("tools");
                assert_eq!(listed.contains(&"web_search".to_owned()), is_granted, "{change}: {listed:?}");
            }
            let concerns_all = !matches!(change, "own" | "off" | "inherit");
            let told = stranger.hears(LIST_CHANGED, if concerns_all { AT_ONCE } else { Duration::from_millis(300) }).await;
            assert_eq!(told, concerns_all, "{change}: the other agent");
        }
        assert!(waits.iter().all(|wait| *wait <= AT_ONCE), "{waits:?}");
    }
}
