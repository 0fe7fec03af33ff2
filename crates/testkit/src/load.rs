//! R-01's second half: kills at random moments while many call.
//!
//! Each worker has a run at a time and navigates, or searches, under fresh keys. When the server dies it asks the same key of the next life until
//! there is an end, and opens another run when its own is over. What every key came to is compared with what the site saw.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use crate::{
    http::{Client, Run},
    kill::{HOST, Operation, Scene},
    processes,
};

/// Who calls at the same time; each has a browser of its own.
const WORKERS: usize = 3;
/// A worker asks once in so long, so that a key is under way at most times.
const PAUSE: Duration = Duration::from_millis(20);
/// The longest life of a server under random kills.
const LIFE_MS: u64 = 2_500;
/// How long browsers of a killed server may live, those included that were just being started.
const BROWSERS_END: Duration = Duration::from_secs(20);
/// Attempts of one key over all lives before it counts as lost.
const ATTEMPTS: u32 = 600;

/// The ends that callers were told, by key.
type Ends = Arc<Mutex<HashMap<String, Value>>>;

/// Kills the server `kills` times at moments that a fixed sequence picks, and answers the longest time a browser lived on. An error
/// says what doubled, was lost or untrue.
///
/// A browser that was just being started is still loading when its pipe ends, so on a busy machine some live longer than
/// [`crate::kill::BROWSER_ENDS`], which holds for browsers that had opened a page.
pub async fn kills(scene: &Scene, kills: u32) -> anyhow::Result<Duration> {
    let ends = Ends::default();
    let stop = Arc::new(AtomicBool::new(false));
    let (lives, life) = watch::channel(None::<Client>);
    let workers: Vec<_> =
        (0..WORKERS).map(|worker| tokio::spawn(work(worker, life.clone(), Arc::clone(&ends), Arc::clone(&stop)))).collect();
    let mut moments = Moments(0x5eed);
    let mut slowest = Duration::ZERO;
    for _ in 0..kills {
        let server = scene.start()?;
        lives.send_replace(Some(scene.client(&server)));
        sleep(Duration::from_millis(moments.next() % LIFE_MS)).await;
        server.kill();
        let killed = Instant::now();
        let gone = processes::comes_true(BROWSERS_END, || scene.place.browser_processes().is_empty()).await;
        ensure!(gone, "a browser outlived its server: {:?}", scene.place.browser_processes());
        slowest = slowest.max(killed.elapsed());
    }
    stop.store(true, Ordering::SeqCst);
    let server = scene.start()?;
    lives.send_replace(Some(scene.client(&server)));
    for worker in workers {
        worker.await??;
    }
    let ends = ends.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for (key, end) in &ends {
        truth(scene, key, end)?;
    }
    server.kill();
    scene.is_sound().await?;
    Ok(slowest)
}

/// What the site saw of a key against what its caller was told.
fn truth(scene: &Scene, key: &str, end: &Value) -> anyhow::Result<()> {
    let operation = of_key(key);
    let seen = scene.seen(operation, key);
    ensure!(seen <= 1, "the site saw {key} {seen} times: {end}");
    let execution = end["execution"].as_str().unwrap_or_default();
    ensure!(["succeeded", "failed", "refused"].contains(&execution), "{key}: {end}");
    match end["outcome"].as_str() {
        None | Some("not_dispatched") => ensure!(seen == 0, "{key} was sent, and the ledger says it wasn't: {end}"),
        Some("ok") => ensure!(seen == 1, "{key} was never sent, and the ledger says it was: {end}"),
        Some("uncertain" | "failed" | "input_dispatched") if operation == Operation::Navigate => {}
        Some("interrupted") if operation == Operation::Search => {}
        Some(_) => bail!("it can't end like this: {key} {end}"),
    }
    Ok(())
}

/// The first worker searches, the others navigate.
fn of_key(key: &str) -> Operation {
    if key.starts_with("load-0-") { Operation::Search } else { Operation::Navigate }
}

async fn work(worker: usize, life: watch::Receiver<Option<Client>>, ends: Ends, stop: Arc<AtomicBool>) -> anyhow::Result<()> {
    let mut run: Option<Run> = None;
    let mut number = 0_u32;
    while !stop.load(Ordering::SeqCst) {
        number += 1;
        let key = format!("load-{worker}-{number}");
        let end = ended(&key, &mut run, &life).await?;
        if end["outcome"] != "ok" {
            // Its browser died, or its effect is in doubt: on with another run.
            run = None;
        }
        ends.lock().unwrap_or_else(PoisonError::into_inner).insert(key, end);
        sleep(PAUSE).await;
    }
    Ok(())
}

/// Asks one key until it has an end, over as many lives as it takes.
async fn ended(key: &str, run: &mut Option<Run>, life: &watch::Receiver<Option<Client>>) -> anyhow::Result<Value> {
    let (tool, arguments) = match of_key(key) {
        Operation::Search => ("web_search", json!({"query": key})),
        _ => ("browser_navigate", json!({"url": format!("http://{HOST}/open?key={key}")})),
    };
    for _ in 0..ATTEMPTS {
        // The borrow ends here: it holds a lock.
        let client = life.borrow().clone();
        if let Some(client) = client
            && let Ok(current) = current(run, &client).await
            && let Ok(reply) = current.call(Some(key), tool, &arguments).await
            && reply.status == 200
        {
            return Ok(reply.json());
        }
        sleep(Duration::from_millis(100)).await;
    }
    bail!("{key} has no end after {ATTEMPTS} attempts")
}

/// The worker's run, reached in this life of the server.
async fn current(run: &mut Option<Run>, client: &Client) -> anyhow::Result<Run> {
    if run.is_none() {
        *run = Some(client.open_run(&json!({"max_tool_calls": 100_000})).await?);
    }
    let run = run.as_ref().context("it was opened")?;
    Ok(Run { client: client.with_token(run.client.token().context("a run has a token")?), ..run.clone() })
}

/// A fixed sequence of moments: a figure that can be had again.
struct Moments(u64);

impl Moments {
    /// One step of an xorshift.
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
