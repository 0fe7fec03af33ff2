//! What a search costs over the bare request: MCP in, three durable steps on SQLite FULL, one request to a provider that answers at
//! once, and back.
//!
//! `cargo run --profile ci -p formation-testkit --example searches -- [--seconds N] [--hold]`. The stand-in for Brave runs in this
//! process, so its work is in both figures. `--hold` keeps the server up and prints what a load generator of one's own needs.
//!
//! The connection's limits are lifted in the database: the product's largest minute is shorter than a second here.

use std::{
    io::Write as _,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use formation_core::{Clock, Secret, Timestamp};
use formation_testkit::{
    brave::{FakeBrave, KEY},
    databases::{self, Backend, TestDb},
    grants::INSTALL,
    http::Client,
    mcp::Mcp,
    server::{Place, Setup},
};
use formation_vendors::{Account, Search, brave::Brave};
use formation_wire::{Names, Outside, SystemResolver};
use serde_json::{Value, json};

const LEVELS: [usize; 3] = [1, 8, 32];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let seconds = words.iter().position(|word| word == "--seconds").and_then(|at| words.get(at + 1)?.parse().ok()).unwrap_or(4);
    let is_held = words.iter().any(|word| word == "--hold");
    let (sender, ended) = std::sync::mpsc::channel();
    databases::run(Backend::Sqlite, move |db| async move {
        // The receiver lives until this has ended.
        let _ = sender.send(bench(db, Duration::from_secs(seconds), is_held).await);
    });
    match ended.recv().expect("a run that ended has sent what it saw") {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            write_out(&format!("error: {error:#}"));
            ExitCode::from(2)
        }
    }
}

async fn bench(db: TestDb, span: Duration, is_held: bool) -> anyhow::Result<()> {
    let brave = FakeBrave::start().await?;
    let place = Place::of(&db)?;
    let setup = Setup::beside_this_example()?.with_brave(&brave);
    let server = setup.start(&place)?;
    let client = server.agent(&place, "bench")?;
    let owner = db.owner(&server.client, "owner").await.client;
    owner.connect(INSTALL, "brave", KEY).await?;
    owner.set(INSTALL, "search", json!({"mode": "auto", "provider": "", "config": {}})).await?;
    db.meddle("UPDATE capability_settings SET requests_per_minute = 1000000000, requests_per_run = 1000000000").await;
    let defaults = json!({"deadline_seconds": 21_600, "max_tool_calls": 1_000_000, "browser_profile": false});
    db.meddle(&format!("UPDATE agents SET run_defaults = '{defaults}'")).await;

    let bare = Arc::new(Bare::new(&brave)?);
    write_out(&format!("{:<10} {:>10} {:>9} {:>12} {:>9}", "", "bare/s", "p50 ms", "over MCP/s", "p50 ms"));
    for callers in LEVELS {
        let bare = Arc::clone(&bare);
        let direct = level(callers, span, move |_| {
            let bare = Arc::clone(&bare);
            async move { bare.search().await }
        })
        .await?;
        let token = client.token().context("a token")?;
        let clients: Vec<_> = (0..callers)
            .map(|caller| Mcp::modern(&Client::kept_alive(server.url()).with_token(token), Some(&format!("caller-{caller}"))))
            .collect();
        let governed = level(callers, span, move |caller| {
            let client = clients[caller].clone();
            async move {
                let seen = client.call("web_search", &json!({"query": "tide tables"})).await?;
                ensure!(seen["is_error"] == false, "{seen}");
                Ok(())
            }
        })
        .await?;
        let (name, added) = (format!("{callers} callers"), governed.median - direct.median);
        write_out(&format!(
            "{name:<10} {:>10.0} {:>9.2} {:>12.0} {:>9.2}   +{added:.2} ms, {:.2} of the requests",
            direct.rate,
            direct.median,
            governed.rate,
            governed.median,
            governed.rate / direct.rate
        ));
    }
    if is_held {
        let told: Value = json!({
            "FORMATION_MCP_URL": format!("{}/mcp", server.url()), "FORMATION_MCP_TOKEN": client.token(), "FORMATION_PID": server.pid().to_string(),
        });
        write_out(&told.to_string());
        tokio::signal::ctrl_c().await?;
    }
    server.kill();
    Ok(())
}

/// The adapter without a server around it.
struct Bare {
    brave: Brave,
    key: Secret,
}

impl Bare {
    fn new(fake: &FakeBrave) -> anyhow::Result<Self> {
        formation_wire::install_tls_provider();
        let names = Names::none().with("api.search.brave.com", 443, fake.address())?;
        let outside = Outside {
            resolver: Arc::new(SystemResolver),
            names: Arc::new(names),
            only_roots: Some(vec![fake.ca()]),
            call: Duration::from_secs(45),
        };
        let clock = Clock::new(|| Timestamp::from_micros(1_796_000_000_000_000));
        Ok(Self { brave: Brave::new(&outside, clock)?, key: Secret::new(KEY.as_bytes().to_vec()) })
    }

    async fn search(&self) -> anyhow::Result<()> {
        let account = Account { key: Some(&self.key), config: &Value::Null };
        let hits = self.brave.search(account, &Value::Null, "tide tables", 5).await?;
        ensure!(!hits.is_empty(), "nothing was found");
        Ok(())
    }
}

struct Level {
    rate: f64,
    /// In milliseconds.
    median: f64,
}

/// So many callers, each one call after the other. `caller` makes what one of them repeats.
async fn level<F, C>(callers: usize, span: Duration, call: F) -> anyhow::Result<Level>
where
    F: Fn(usize) -> C + Clone + Send + 'static,
    C: Future<Output = anyhow::Result<()>> + Send,
{
    // Connections are made and statements prepared before anything is counted.
    for caller in 0..callers {
        call(caller).await?;
    }
    let begun = Instant::now();
    let workers: Vec<_> = (0..callers)
        .map(|caller| {
            let call = call.clone();
            tokio::spawn(async move {
                let mut times = Vec::new();
                while begun.elapsed() < span {
                    let started = Instant::now();
                    call(caller).await?;
                    times.push(started.elapsed());
                }
                Ok::<_, anyhow::Error>(times)
            })
        })
        .collect();
    let mut times = Vec::new();
    for worker in workers {
        times.extend(worker.await??);
    }
    let spent = begun.elapsed().as_secs_f64();
    times.sort();
    let median = times.get(times.len() / 2).context("at least one call")?.as_secs_f64() * 1_000.0;
    let count = u32::try_from(times.len())?;
    Ok(Level { rate: f64::from(count) / spent, median })
}

/// A reader that went away is no error.
fn write_out(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}
