//! What takes too long for a test or wants a machine of its own: how long refusals take (S-08), and a million seals (S-16).
//!
//! `cargo run --profile ci -p formation-testkit --example secrets -- [ROUNDS]`, by default 400. In each round every route is asked for
//! somebody else's thing, for one that isn't there, and for another one that isn't there, in an order of chance. The last two are the
//! same question: how far their medians are apart is what the machine makes of it.
//!
//! Exits with 1 when a nonce came twice, an answer differed, or a route's medians are 5 % apart or more.

use std::{
    collections::HashSet,
    io::Write as _,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use formation::Wiring;
use formation_core::{Entropy, McpSessionId, RunId, TokenId};
use formation_store::seal::{MasterKeys, Place as Sealing};
use formation_testkit::{
    databases::{self, Backend, TestDb},
    http::{Client, Reply, send},
    mcp::Mcp,
    server::{Place, Server, Setup},
};
use http::Method;
use serde_json::json;

const SEALS: usize = 1_000_000;
/// S-08: the medians' distance.
const APART: f64 = 0.05;

fn main() -> ExitCode {
    let rounds = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(400);
    let (sender, ended) = std::sync::mpsc::channel();
    databases::run(Backend::Sqlite, move |db| async move {
        // The receiver lives until this has ended.
        let _ = sender.send(bench(db, rounds).await);
    });
    match ended.recv().expect("a run that ended has sent what it saw") {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            write_out(&format!("error: {error:#}"));
            ExitCode::from(2)
        }
    }
}

async fn bench(db: TestDb, rounds: usize) -> anyhow::Result<bool> {
    let wiring = formation::Wiring::production();
    let entropy = &wiring.entropy;
    let place = Place::of(&db)?;
    let server = Setup::beside_this_example()?.start(&place)?;
    let routes = routes(&db, &server, &place, &wiring).await?;
    let mut are_alike = true;
    write_out(&format!("{:<44} {:>10} {:>10} {:>8} {:>8}", "", "theirs ms", "absent ms", "apart", "noise"));
    for route in &routes {
        let [theirs, absent, again] = route.times(rounds, entropy).await?;
        let (apart, noise) = ((theirs / absent - 1.0).abs(), (again / absent - 1.0).abs());
        let verdict = if apart < APART { "" } else { "  too far" };
        are_alike &= apart < APART;
        write_out(&format!(
            "{:<44} {theirs:>10.3} {absent:>10.3} {:>6.1} % {:>6.1} %{verdict}",
            route.name,
            apart * 100.0,
            noise * 100.0
        ));
    }
    server.kill();
    Ok(seals(entropy)? && are_alike)
}

/// S-16: nonces and payloads of a million seals of one value, with the operating system's randomness.
fn seals(entropy: &Entropy) -> anyhow::Result<bool> {
    let keys = MasterKeys::parse(std::str::from_utf8(MasterKeys::generate(entropy).expose())?)?;
    let here = Sealing { owner: "install", kind: "vendor_key", row: "one", revision: 1 };
    let (mut nonces, mut payloads) = (HashSet::with_capacity(SEALS), HashSet::with_capacity(SEALS));
    let began = Instant::now();
    for _ in 0..SEALS {
        let sealed = keys.seal(entropy, &here, b"the same value");
        let nonce: [u8; 24] = *sealed.wrapped_key.first_chunk().context("a nonce stands first")?;
        nonces.insert(nonce);
        // A data key that came twice would give the same bytes again.
        payloads.insert(<[u8; 30]>::try_from(sealed.sealed.as_slice()).context("14 bytes and a tag")?);
    }
    let spent = began.elapsed().as_secs_f64();
    write_out(&format!("\n{SEALS} seals in {spent:.1} s: {} nonces, {} payloads", nonces.len(), payloads.len()));
    Ok(nonces.len() == SEALS && payloads.len() == SEALS)
}

/// One route, asked with an id.
struct Route {
    name: &'static str,
    client: Client,
    method: Method,
    /// `{}` is the id.
    path: String,
    /// Where the id goes instead of the path.
    header: Option<&'static str>,
    theirs: String,
    absent: [String; 2],
}

impl Route {
    async fn ask(&self, id: &str) -> anyhow::Result<Reply> {
        let request = self.client.request(self.method.clone(), &self.path.replace("{}", id));
        let request = match self.header {
            Some(name) => request.header(name, id).header("accept", "application/json, text/event-stream"),
            None => request,
        };
        let has_body = matches!(self.method, Method::POST | Method::PUT | Method::PATCH | Method::DELETE);
        let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}});
        let body = if self.header.is_some() { list } else { json!({}) };
        send(if has_body { request.json(&body) } else { request }).await
    }

    /// The medians in milliseconds: theirs, absent, and absent once more.
    async fn times(&self, rounds: usize, entropy: &Entropy) -> anyhow::Result<[f64; 3]> {
        let ids = [&self.theirs, &self.absent[0], &self.absent[1]];
        let said = |reply: &Reply| (reply.status, reply.header("content-type").to_owned(), reply.body.clone());
        let expected = said(&self.ask(ids[1]).await?);
        ensure!(expected.0 == 404, "{}: {}", self.name, expected.0);
        let mut times: [Vec<Duration>; 3] = Default::default();
        for round in 0..rounds + rounds / 10 {
            let [first, turn] = entropy.bytes::<2>();
            for step in 0..3_usize {
                let step = if turn % 2 == 0 { step } else { 2 - step };
                let which = (usize::from(first) + step) % 3;
                let asked = Instant::now();
                let reply = self.ask(ids[which]).await?;
                let took = asked.elapsed();
                ensure!(said(&reply) == expected, "{}: {reply:?} instead of {expected:?}", self.name);
                // The first tenth warms up what can be warm.
                if round >= rounds / 10 {
                    times[which].push(took);
                }
            }
        }
        Ok(times.map(median))
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1_000.0
}

/// What a member, an agent and a run can ask for and doesn't belong to them.
async fn routes(db: &TestDb, server: &Server, place: &Place, wiring: &Wiring) -> anyhow::Result<Vec<Route>> {
    let kept = Client::kept_alive(server.url());
    let on = |client: &Client| Ok::<_, anyhow::Error>(kept.with_token(client.token().context("a token")?));
    let (alpha, beta) = (server.agent(place, "alpha")?, server.agent(place, "beta")?);
    let owner = db.owner(&server.client, "Owner").await.client;
    let member = on(&db.member(&server.client, "Member", &["alpha"]).await.client)?;
    let (mine, foreign) = (alpha.open_run(&json!({})).await?, beta.open_run(&json!({})).await?);
    let called = foreign.call(None, "browser_read", &json!({})).await?.json();
    let call = called["id"].as_str().context("a recorded call has an id")?.to_owned();
    let minted = owner.post("/api/agents/beta/tokens", &json!({"name": "one"})).await?.json();
    let token = minted["id"].as_str().context("a token has an id")?.to_owned();
    let session = Mcp::legacy(&beta).await?.session().context("a session")?.to_owned();
    // Ids are made from a time: as old as theirs, so that no index is walked elsewhere.
    let (now, entropy) = (wiring.clock.now(), &wiring.entropy);
    let run_ids = || [RunId::mint(now, entropy).to_string(), RunId::mint(now, entropy).to_string()];
    let token_ids = || [TokenId::mint(now, entropy).to_string(), TokenId::mint(now, entropy).to_string()];
    let sessions = || {
        let other = || McpSessionId::mint(now, entropy).to_string();
        [other(), other()]
    };
    let route = |name, client: &Client, method: &Method, path: &str, theirs: &str, absent: [String; 2]| Route {
        name,
        client: client.clone(),
        method: method.clone(),
        path: path.to_owned(),
        header: None,
        theirs: theirs.to_owned(),
        absent,
    };
    let slugs = || ["gone".to_owned(), "none".to_owned()];
    let run = on(&mine.client)?;
    Ok(vec![
        route("a run's call, by another run", &run, &Method::GET, "/v1/run/tool-calls/{}", &call, run_ids()),
        route("a run, by another agent's member", &member, &Method::GET, "/api/runs/{}", &foreign.id, run_ids()),
        route("a run's trace", &member, &Method::GET, "/api/runs/{}/trace", &foreign.id, run_ids()),
        route("the end of a run", &member, &Method::POST, "/api/runs/{}/cancel", &foreign.id, run_ids()),
        route("an agent", &member, &Method::GET, "/api/agents/{}", "beta", slugs()),
        route("an agent's settings", &member, &Method::GET, "/api/agents/{}/web", "beta", slugs()),
        route("an agent's name", &member, &Method::PATCH, "/api/agents/{}", "beta", slugs()),
        route(
            "an agent's token, by another's member",
            &member,
            &Method::DELETE,
            "/api/agents/alpha/tokens/{}",
            &token,
            token_ids(),
        ),
        route("an operator's token, by another", &member, &Method::DELETE, "/api/tokens/{}", &token, token_ids()),
        Route {
            header: Some("mcp-session-id"),
            ..route("an MCP session", &on(&alpha)?, &Method::POST, "/mcp", &session, sessions())
        },
    ])
}

/// A reader that went away is no error.
fn write_out(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}
