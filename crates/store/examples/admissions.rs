//! How many admissions a second are committed through the combiner, against a bare one-row insert on the same database.
//!
//! ```text
//! cargo run --profile ci -p formation-store --example admissions -- [--json] [--seconds N] [DATABASE]
//! ```
//!
//! Without DATABASE: a SQLite file in a temporary folder, WAL, `synchronous=FULL`. With `postgres://…`: that database, which must be
//! empty or a test's. Ratios in one run are what counts; the figures themselves are the machine's. Bar: ≥ 1.0 at 8 callers on SQLite.

use std::time::{Duration, Instant};

use formation_core::{
    AgentId, Binding, BrowserSessionId, Capability, Clock, Entropy, InstanceId, OfferId, RunId, Timestamp, Tool, VendorId, limits,
    settings::EnvironmentAccount,
};
use formation_store::{
    Db, Location, StoreError, TimeSource,
    admission::{Admission, Ask, SessionAsk},
    agents::{self, Created, Slug},
    combine::Combiner,
    conversations, instances,
    ledger::{self, NewCall, Queued, Settle, Settled},
    offers::{self, NewOffer},
    runs::{self, NewRun},
    settings::Rules,
    tokens,
};

const CALLERS: [usize; 3] = [1, 8, 32];
/// Admissions of one caller between two rests.
const ROUND: usize = 16;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut seconds = 3;
    let (mut json, mut database) = (false, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => json = true,
            "--seconds" => seconds = arguments.next().ok_or("`--seconds` takes a number")?.parse()?,
            _ => database = Some(argument),
        }
    }
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("bench.db").display().to_string();
    let location = Location::parse(database.as_deref().unwrap_or(&file));
    let bench = Bench::new(&location).await?;
    let span = Duration::from_secs(seconds);
    let mut lines = Vec::new();
    for callers in CALLERS {
        let bare = bench.bare(callers, span).await?;
        let admitted = bench.admissions(callers, span).await?;
        lines.push(Line { callers, bare, admitted });
    }
    report(&lines, &location, json);
    Ok(())
}

struct Line {
    callers: usize,
    bare: f64,
    admitted: f64,
}

#[expect(clippy::print_stdout, reason = "a bench prints")]
fn report(lines: &[Line], location: &Location, json: bool) {
    let engine = match location {
        Location::Sqlite(_) => "sqlite",
        Location::Postgres(_) => "postgres",
    };
    if json {
        let rows: Vec<_> = lines
            .iter()
            .map(|line| {
                serde_json::json!({"callers": line.callers, "bare_per_second": line.bare, "admissions_per_second": line.admitted,
                    "ratio": line.admitted / line.bare})
            })
            .collect();
        println!("{}", serde_json::json!({"bench": "admissions", "engine": engine, "rows": rows}));
        return;
    }
    println!("{engine:<10} {:>10} {:>14} {:>10}", "bare/s", "admissions/s", "ratio");
    for line in lines {
        let name = format!("{} callers", line.callers);
        println!("{name:<10} {:>10.0} {:>14.0} {:>10.2}", line.bare, line.admitted, line.admitted / line.bare);
    }
}

/// One agent, and for each admission of a round a run of its own, whose session the admission takes.
struct Bench {
    db: Db,
    rules: Rules,
    agent: AgentId,
    holder: InstanceId,
    binding: Binding,
    runs: Vec<(RunId, OfferId)>,
}

impl Bench {
    async fn new(location: &Location) -> Result<Self, Failure> {
        let started = Instant::now();
        let clock = Clock::new(move || Timestamp::from_micros(1_796_000_000_000_000).after(started.elapsed()));
        let db = Db::open(location, TimeSource::Process(clock), Entropy::counting(std::process::id().into())).await?;
        db.migrate().await?;
        let slug = Slug::parse(&format!("bench-{}", std::process::id())).ok_or("a slug")?;
        let created = db.write(move |tx| Box::pin(async move { agents::create(tx, &slug, "Bench", "bench").await })).await?;
        let Created::Made(agent) = created else { return Err("the agent of this bench is there already".into()) };
        let agent = agent.id;
        let token = db.write(move |tx| Box::pin(async move { tokens::mint_agent(tx, agent, "bench", "bench").await })).await?.id;
        let holder = instances::start(&db, Duration::from_hours(1)).await?;
        let rules = Rules::new(
            |_| vec![VendorId::known("local")],
            || vec![EnvironmentAccount { vendor: VendorId::known("local"), fingerprint: "00".into() }],
        );
        let binding = rules.resolve_now(&db, agent, Capability::Browser).await?.map_err(|why| why.to_string())?.binding;
        let mut opened = Vec::new();
        for _ in 0..CALLERS[2] * ROUND {
            let new = NewRun { agent, token, conversation: None, deadline: Duration::from_hours(1), max_calls: 1_000_000 };
            let run = db.write(move |tx| Box::pin(async move { runs::open(tx, &new).await })).await?.ok_or("a good token")?.run.id;
            let offer = NewOffer { tool: Tool::BrowserRead, schema_version: 1, binding: binding.clone() };
            let offers = db.write(move |tx| Box::pin(async move { offers::record(tx, run, &[offer]).await })).await?;
            opened.push((run, offers[0].id));
        }
        Ok(Self { db, rules, agent, holder, binding, runs: opened })
    }

    /// One row, one transaction, nothing else.
    async fn bare(&self, callers: usize, span: Duration) -> Result<f64, Failure> {
        let agent = self.agent;
        let begun = Instant::now();
        let workers: Vec<_> = (0..callers)
            .map(|_| {
                let db = self.db.clone();
                tokio::spawn(async move {
                    let mut written = 0;
                    while begun.elapsed() < span {
                        db.write(move |tx| Box::pin(async move { conversations::named_or_new(tx, agent, None).await })).await?;
                        written += 1;
                    }
                    Ok::<u64, StoreError>(written)
                })
            })
            .collect();
        let mut written = 0;
        for worker in workers {
            written += worker.await??;
        }
        Ok(per_second(written, begun.elapsed()))
    }

    /// Only the admissions are timed: queueing before and settling after are not. Each compares an offer, takes a session's lease
    /// and leaves an evidence row.
    async fn admissions(&self, callers: usize, span: Duration) -> Result<f64, Failure> {
        let combiner = Combiner::start(self.db.clone(), self.rules.clone());
        self.round(&combiner, callers).await?;
        let (mut admitted, mut spent) = (0, Duration::ZERO);
        while spent < span {
            spent += self.round(&combiner, callers).await?;
            admitted += callers * ROUND;
        }
        Ok(per_second(u64::try_from(admitted)?, spent))
    }

    async fn round(&self, combiner: &Combiner, callers: usize) -> Result<Duration, Failure> {
        let mut shares = Vec::new();
        for caller in 0..callers {
            shares.push(self.prepared(caller).await?);
        }
        let begun = Instant::now();
        let workers: Vec<_> = shares
            .into_iter()
            .map(|asks| {
                let combiner = combiner.clone();
                tokio::spawn(async move {
                    let mut answers = Vec::with_capacity(asks.len());
                    for ask in asks {
                        answers.push((ask.call, combiner.admit(ask).await?));
                    }
                    Ok::<_, StoreError>(answers)
                })
            })
            .collect();
        let mut answers = Vec::new();
        for worker in workers {
            answers.extend(worker.await??);
        }
        let spent = begun.elapsed();
        for (call, admission) in answers {
            if !matches!(admission, Admission::Granted(_)) {
                return Err(format!("not granted: {admission:?}").into());
            }
            self.settle(call).await?;
        }
        Ok(spent)
    }

    /// A fresh call on each of this caller's runs.
    async fn prepared(&self, caller: usize) -> Result<Vec<Ask>, Failure> {
        let mut asks = Vec::with_capacity(ROUND);
        for (run, offer) in self.runs[caller * ROUND..][..ROUND].iter().copied() {
            let new = NewCall {
                agent: self.agent,
                run,
                key: None,
                tool: Tool::BrowserRead,
                arguments: serde_json::json!({}),
                holder: self.holder,
                bound: limits::RUN_DEADLINE,
            };
            let queued = self.db.write(move |tx| Box::pin(async move { ledger::queue(tx, &new).await })).await?;
            let Queued::Fresh(call) = queued else { return Err("a fresh call was expected".into()) };
            asks.push(Ask {
                call,
                run,
                agent: self.agent,
                holder: self.holder,
                offer,
                offered: self.binding.clone(),
                class: Tool::BrowserRead.class(),
                session: SessionAsk::ExistingOrNew(BrowserSessionId::parse(&call.to_string())?),
                bound: limits::CALL_BOUND,
            });
        }
        Ok(asks)
    }

    async fn settle(&self, call: formation_core::CallId) -> Result<(), Failure> {
        let settle =
            Settle::failed(call, self.holder, formation_core::Outcome::Interrupted, formation_core::refusal::Code::Cancelled);
        match ledger::settle(&self.db, &self.rules, settle).await? {
            Settled::Stored(_) => Ok(()),
            other => Err(format!("not settled: {other:?}").into()),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of seconds' work is far below 2^52")]
fn per_second(count: u64, span: Duration) -> f64 {
    count as f64 / span.as_secs_f64()
}
