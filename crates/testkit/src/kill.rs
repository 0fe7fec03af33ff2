//! kill -9 never doubles, never loses and never lies.
//!
//! One [`kill`] stops the real server at one of seven points of one call, starts it again on the same data and asks the same key
//! again. [`check`] then compares three records that know nothing of each other: what the site saw, what the ledger says, and what
//! the caller was answered. What only one of them claims is an error.
//!
//! Adding an operation: a variant of [`Operation`], its arm in `arrange`, and what the site sees of it.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    brave::{self, FakeBrave},
    databases::TestDb,
    grants::INSTALL,
    http::{Client, Reply, Run, reference},
    processes,
    server::{Place, Server, Setup},
    site::{Hold, Page, Site},
};

/// The name under which the browser knows the site.
pub const HOST: &str = "shop.example.test";
/// How long a killed server's browser may live.
pub const BROWSER_ENDS: Duration = Duration::from_secs(2);
/// How long a server may take to reach a point, on a machine that is busy with others.
const REACH: Duration = Duration::from_secs(45);
/// How long recovery may take: a lease of 1.5 s and a sweep.
const RECOVERY: Duration = Duration::from_secs(20);

/// What is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `browser_navigate` to a page whose address holds the key.
    Navigate,
    /// `browser_act` `click` on a button that tells the site the key.
    Click,
    /// `web_search` for the key.
    Search,
}

/// Where it is killed (spine.md 11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// Before the admission transaction.
    BeforeAdmission,
    /// In it.
    InAdmission,
    /// `dispatched` is committed, nothing has left.
    BeforeSend,
    /// The site has the request line; the button is pressed and not let go; the provider took the connection and reads nothing.
    MidSend,
    /// The site has it all and has not answered, or the page waits in its handler.
    NoReply,
    /// The outcome is known and not written.
    BeforeSettle,
    /// It is written and not answered.
    AfterSettle,
}

impl Operation {
    /// All of this step.
    pub const ALL: [Self; 3] = [Self::Search, Self::Navigate, Self::Click];

    /// As the tables write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Navigate => "navigate",
            Self::Click => "click",
            Self::Search => "search",
        }
    }

    const fn tool(self) -> &'static str {
        match self {
            Self::Navigate => "browser_navigate",
            Self::Click => "browser_act",
            Self::Search => "web_search",
        }
    }
}

impl Point {
    /// All, in order of time.
    pub const ALL: [Self; 7] = [
        Self::BeforeAdmission,
        Self::InAdmission,
        Self::BeforeSend,
        Self::MidSend,
        Self::NoReply,
        Self::BeforeSettle,
        Self::AfterSettle,
    ];

    /// As the tables write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BeforeAdmission => "admission.before",
            Self::InAdmission => "admission.inside",
            Self::BeforeSend => "send.before",
            Self::MidSend => "mid-send",
            Self::NoReply => "sent, no reply",
            Self::BeforeSettle => "settle.before",
            Self::AfterSettle => "settle.after",
        }
    }

    /// The fault point of the server, where it is one; else the site says when.
    const fn fault(self, operation: Operation) -> Option<&'static str> {
        match (self, operation) {
            (Self::BeforeAdmission, _) => Some("admission.before"),
            (Self::InAdmission, _) => Some("admission.inside"),
            (Self::BeforeSend, _) => Some("send.before"),
            (Self::MidSend, Operation::Click) => Some("send.mid"),
            (Self::MidSend, Operation::Navigate | Operation::Search) | (Self::NoReply, _) => None,
            (Self::BeforeSettle, _) => Some("settle.before"),
            (Self::AfterSettle, _) => Some("settle.after"),
        }
    }

    /// What the ledger must say in the end, and how often the site saw it.
    pub const fn truth(self, operation: Operation) -> Truth {
        let (execution, outcome, seen) = match (self, operation) {
            (Self::BeforeAdmission | Self::InAdmission, _) => ("failed", "not_dispatched", 0),
            // What only looks may have been sent and leaves nothing to settle (L6).
            (Self::BeforeSend | Self::MidSend, Operation::Search) => ("failed", "interrupted", 0),
            (Self::NoReply | Self::BeforeSettle, Operation::Search) => ("failed", "interrupted", 1),
            (Self::BeforeSend, _) | (Self::MidSend, Operation::Click) => ("failed", "uncertain", 0),
            (Self::MidSend, Operation::Navigate) | (Self::NoReply | Self::BeforeSettle, _) => ("failed", "uncertain", 1),
            (Self::AfterSettle, _) => ("succeeded", "ok", 1),
        };
        Truth { execution, outcome, seen }
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truth {
    /// The ledger's first column.
    pub execution: &'static str,
    /// Its second.
    pub outcome: &'static str,
    /// Requests of the key at the site.
    pub seen: usize,
}

/// A server, its state and a site, for one kill after the other.
#[derive(Debug)]
pub struct Scene {
    /// Where the server keeps its state.
    pub place: Place,
    /// What its browser opens.
    pub site: Site,
    /// Where it searches.
    pub brave: FakeBrave,
    db: TestDb,
    setup: Setup,
    token: String,
}

impl Scene {
    /// On a fresh database; `binary` is the server under test.
    pub async fn set(db: TestDb, binary: &std::path::Path) -> anyhow::Result<Self> {
        let site = Site::start()
            .await?
            .with("/open", Page::html("<h1>Open</h1>{KEY}"))
            .with("/form", Page::html("<button onclick=\"ask('{KEY}')\">Buy</button>"));
        let place = Place::of(&db)?;
        let brave = FakeBrave::start().await?;
        let setup = Setup::new(binary).with_browser().with_short_leases().name(&format!("{HOST}:80"), site.address());
        let setup = setup.with_brave(&brave);
        let token = setup.agent(&place, "shopper")?;
        let first = setup.start(&place)?;
        let owner = db.owner(&first.client, "owner").await.client;
        owner.connect(INSTALL, "brave", brave::KEY).await?;
        let limits = json!({"requests_per_minute": 6_000, "requests_per_run": 10_000});
        owner.set(INSTALL, "search", json!({"mode": "auto", "provider": "", "config": {}, "limits": limits})).await?;
        first.terminate(Duration::from_secs(20))?;
        Ok(Self { place, site, brave, db, setup, token })
    }

    /// One life of the server without a fault.
    pub fn start(&self) -> anyhow::Result<Server> {
        self.setup.start(&self.place)
    }

    /// A client of `server` with the agent's token.
    pub fn client(&self, server: &Server) -> Client {
        server.client.with_token(&self.token)
    }

    /// How often the site saw the effect of `key`.
    pub fn seen(&self, operation: Operation, key: &str) -> usize {
        match operation {
            Operation::Navigate => self.site.count_ending(&format!("/open?key={key}")),
            Operation::Click => self.site.count_ending(&format!("/said?word={key}")),
            Operation::Search => self.brave.sends().iter().filter(|sent| sent.query == key).count(),
        }
    }

    /// Whether the whole ledger is: no call without an end, no key twice, one evidence row an admitted call
    /// and none for others, one unit an admitted search and none for others.
    pub async fn is_sound(&self) -> anyhow::Result<()> {
        for (what, sql) in [
            ("calls without an end", "SELECT count(*) FROM tool_calls WHERE settled_at IS NULL"),
            (
                "keys on two rows",
                "SELECT count(*) FROM (SELECT key FROM tool_calls WHERE key IS NOT NULL GROUP BY agent_id, key HAVING count(*) > 1) twice",
            ),
            (
                "admitted calls without evidence, or evidence of others",
                "SELECT (SELECT count(*) FROM tool_calls c WHERE c.admitted_at IS NOT NULL \
                 AND NOT EXISTS (SELECT 1 FROM evidence e WHERE e.call_id = c.id)) + (SELECT count(*) FROM evidence e \
                 WHERE NOT EXISTS (SELECT 1 FROM tool_calls c WHERE c.id = e.call_id AND c.admitted_at IS NOT NULL))",
            ),
            (
                "admitted searches without a unit, or units of others",
                "SELECT (SELECT count(*) FROM tool_calls c WHERE c.admitted_at IS NOT NULL AND c.tool = 'web_search' \
                 AND NOT EXISTS (SELECT 1 FROM reservations r WHERE r.call_id = c.id)) + (SELECT count(*) FROM reservations r \
                 WHERE NOT EXISTS (SELECT 1 FROM tool_calls c WHERE c.id = r.call_id AND c.tool = 'web_search' AND c.admitted_at IS NOT NULL))",
            ),
            (
                "run counters that say something else than the units",
                "SELECT count(*) FROM run_counters t WHERE t.used <> \
                 (SELECT count(*) FROM reservations r WHERE r.run_id = t.run_id AND r.capability = t.capability)",
            ),
        ] {
            let count = self.db.number(sql).await;
            ensure!(count == 0, "{count} {what}");
        }
        Ok(())
    }

    /// Kills the server at `point` of a call with `key`, which must be new, and checks what became of the call. An error says what
    /// doubled, was lost or untrue.
    pub async fn kill(&self, operation: Operation, point: Point, key: &str) -> anyhow::Result<()> {
        let (run, arguments) = self.cut(operation, point, key).await?;
        let server = self.start()?;
        let run = Run { client: server.client.with_token(run.client.token().context("a run has a token")?), ..run };
        let checked = self.check(&run, operation, key, &arguments, point.truth(operation)).await;
        server.kill();
        checked
    }

    /// The first life: up to the kill.
    async fn cut(&self, operation: Operation, point: Point, key: &str) -> anyhow::Result<(Run, Value)> {
        let mut setup = self.setup.clone();
        if let Some(fault) = point.fault(operation) {
            // The navigation before a click passes all points but the one between press and release.
            let pass = if operation == Operation::Click && point != Point::MidSend { 2 } else { 1 };
            setup = setup.fault(&format!("{fault}:{pass}"));
        }
        let server = setup.start(&self.place)?;
        let run = self.client(&server).open_run(&json!({})).await?;
        let (tool, arguments) = self.arrange(&run, operation, key).await?;
        match point {
            Point::MidSend if operation == Operation::Search => self.brave.stop_reading(),
            Point::NoReply if operation == Operation::Search => self.brave.hold(key),
            Point::MidSend => self.site.hold(Hold::Answers("/open?")),
            Point::NoReply if operation == Operation::Navigate => self.site.hold(Hold::Bodies("/open?")),
            Point::NoReply => self.site.hold(Hold::Answers("/said?")),
            _ => {}
        }
        let connections = self.brave.connections();
        let call = tokio::spawn({
            let (run, key, arguments) = (run.clone(), key.to_owned(), arguments.clone());
            async move { run.call(Some(&key), tool, &arguments).await }
        });
        match point.fault(operation) {
            Some(fault) => server.stands_at(fault, REACH)?,
            None => ensure!(self.reaches(operation, point, key, connections).await, "nobody ever saw the call"),
        }
        ensure!(!call.is_finished(), "the call was answered before the kill: {:?}", call.await);
        server.kill();
        let answered = call.await?;
        ensure!(answered.is_err(), "a killed server answered: {answered:?}");
        let gone = processes::comes_true(BROWSER_ENDS, || self.place.browser_processes().is_empty()).await;
        self.site.release();
        self.brave.release();
        ensure!(gone, "a browser outlived its server: {:?}", self.place.browser_processes());
        Ok((run, arguments))
    }

    async fn arrange(&self, run: &Run, operation: Operation, key: &str) -> anyhow::Result<(&'static str, Value)> {
        match operation {
            Operation::Search => Ok((operation.tool(), json!({"query": key}))),
            Operation::Navigate => Ok((operation.tool(), json!({"url": format!("http://{HOST}/open?key={key}")}))),
            Operation::Click => {
                let url = format!("http://{HOST}/form?key={key}");
                let page = run.does("browser_navigate", &json!({"url": url})).await?;
                Ok((operation.tool(), json!({"action": "click", "ref": reference(&page, "Buy")?})))
            }
        }
    }

    /// Whether whoever is called has the call as far as `point` says; `connections` the provider had before.
    async fn reaches(&self, operation: Operation, point: Point, key: &str, connections: usize) -> bool {
        match (operation, point) {
            (Operation::Search, Point::MidSend) => processes::comes_true(REACH, || self.brave.connections() > connections).await,
            (Operation::Search, _) => self.brave.sees(key, REACH).await,
            (Operation::Navigate, Point::NoReply) => self.site.answers_half(&format!("/open?key={key}"), REACH).await,
            (Operation::Navigate, _) => self.site.sees(&format!("/open?key={key}"), REACH).await,
            (Operation::Click, _) => self.site.sees(&format!("/said?word={key}"), REACH).await,
        }
    }

    /// The second life: the same key is asked again, and site, ledger and answer are compared.
    async fn check(&self, run: &Run, operation: Operation, key: &str, arguments: &Value, truth: Truth) -> anyhow::Result<()> {
        let tool = operation.tool();
        let answer = settled(run, key, tool, arguments).await?;
        let again = run.call(Some(key), tool, arguments).await?;
        ensure!(again.json() == answer, "two answers to one key: {answer} and {again:?}");
        let seen = self.seen(operation, key);
        ensure!(seen == truth.seen, "the site saw {seen} of {key}, not {}", truth.seen);
        ensure!(
            answer["execution"] == truth.execution && answer["outcome"] == truth.outcome,
            "the caller is told {answer}, and {truth:?} is true"
        );
        let rows = consistent(self, &run.id).await?;
        let row = rows.iter().find(|row| row["key"] == key).context("the call isn't on record")?;
        ensure!(row["id"] == answer["id"], "the answer is another call's: {row} {answer}");
        ensure!(row["execution"] == answer["execution"] && row["outcome"] == answer["outcome"], "ledger and answer differ: {row}");
        Ok(())
    }
}

/// Asks the same call again until it has an end.
async fn settled(run: &Run, key: &str, tool: &str, arguments: &Value) -> anyhow::Result<Value> {
    let until = Instant::now() + RECOVERY;
    loop {
        let reply: Reply = run.call(Some(key), tool, arguments).await?;
        match reply.status {
            200 => return Ok(reply.json()),
            202 if Instant::now() < until => sleep(Duration::from_millis(50)).await,
            _ => bail!("the call has no end: {reply:?}"),
        }
    }
}

/// The run's ledger, when every row of it is settled and no row contradicts itself: an effect is uncertain only when it was on
/// record as dispatched, and has no other end than `not_dispatched` when it was not; one evidence row an admitted call.
async fn consistent(scene: &Scene, run: &str) -> anyhow::Result<Vec<Value>> {
    let trace = scene.setup.trace(&scene.place, run)?;
    let rows = trace["calls"].as_array().context("a trace has calls")?.clone();
    let mut keys = std::collections::HashSet::new();
    for row in &rows {
        ensure!(row["key"].is_null() || keys.insert(row["key"].to_string()), "two rows of one key: {row}");
        ensure!(!row["settled_at"].is_null(), "a call without an end: {row}");
        ensure!(["succeeded", "failed", "refused"].contains(&row["execution"].as_str().unwrap_or_default()), "{row}");
        let was_dispatched = !row["dispatched_at"].is_null();
        match row["outcome"].as_str() {
            Some("uncertain" | "input_dispatched") => ensure!(was_dispatched, "never dispatched: {row}"),
            Some("ok") if row["class"] == "external_effect" => ensure!(was_dispatched, "never dispatched: {row}"),
            _ => {}
        }
        let id = row["id"].as_str().context("a call has an id")?;
        let evidence = scene.db.number(&format!("SELECT count(*) FROM evidence WHERE call_id = '{id}'")).await;
        ensure!(evidence == i64::from(!row["admitted_at"].is_null()), "{evidence} evidence rows: {row}");
        let units = scene.db.number(&format!("SELECT count(*) FROM reservations WHERE call_id = '{id}'")).await;
        let is_search = row["tool"] == Operation::Search.tool();
        ensure!(units == i64::from(is_search && !row["admitted_at"].is_null()), "{units} units: {row}");
    }
    Ok(rows)
}
