//! Taking back: offers die with what they stand on, calls in flight are cut within a second, and no result comes late.

use std::time::{Duration, Instant};

use formation_testkit::{
    brave::KEY,
    grants::{INSTALL, of_agent},
    http::{Client, Run},
    on_both_databases,
    server::Server,
};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::{
    search::{Searching, observed, query},
    within,
};

/// S-05: in flight at each change.
const IN_FLIGHT: usize = 125;
/// S-05: races between a result and a change, in rounds.
const ROUNDS: usize = 25;
const RACERS: usize = 40;
/// S-06: calls on each stale offer.
const STALE: usize = 50;

const NOT_LIMITED: (i64, i64) = (6_000, 10_000);

/// The ways to take a search grant back.
#[derive(Debug, Clone, Copy)]
enum Change {
    Rotate,
    Remove,
    Disable,
    /// From automatic to the same vendor pinned: other terms.
    Switch,
}

impl Change {
    const ALL: [Self; 4] = [Self::Rotate, Self::Remove, Self::Disable, Self::Switch];

    async fn make(self, owner: &Client) {
        match self {
            Self::Rotate => owner.connect(INSTALL, "brave", "BSA-formation-another-key").await,
            Self::Remove => owner.disconnect(INSTALL, "brave").await,
            Self::Disable => owner.set(INSTALL, "search", mode("disabled", "")).await,
            Self::Switch => owner.set(INSTALL, "search", mode("own", "brave")).await,
        }
        .expect("the change is made");
    }
}

fn mode(mode: &str, provider: &str) -> Value {
    let (minute, run) = NOT_LIMITED;
    json!({"mode": mode, "provider": provider, "config": {}, "limits": {"requests_per_minute": minute, "requests_per_run": run}})
}

/// Everything granted again, without limits in the way.
async fn granted(searching: &Searching) {
    let owner = &searching.owner.client;
    owner.connect(INSTALL, "brave", KEY).await.expect("an account");
    owner.set(INSTALL, "search", mode("auto", "")).await.expect("automatic");
}

/// On PostgreSQL a second replica; every other caller goes there.
pub(crate) fn replica(searching: &Searching) -> Option<Server> {
    let stage = &searching.stage;
    let url = stage.place.database()?;
    let place = stage.place.replica(url).expect("a second place");
    Some(stage.setup.start(&place).expect("a second server"))
}

pub(crate) fn through(run: &Run, server: Option<&Server>, index: usize) -> Run {
    match server.filter(|_| index % 2 == 1) {
        Some(server) => Run { client: server.client.with_token(run.client.token().expect("a token")), ..run.clone() },
        None => run.clone(),
    }
}

on_both_databases! {
    /// S-05, W20, W21: each kind of change during requests in flight: they are answered `interrupted` within a second of it, here and
    /// on the other replica, and their units stay spent.
    async fn bar_s05_calls_in_flight_are_cut_within_a_second(db) {
        let searching = Searching::start(&db).await;
        let second = replica(&searching);
        let mut waits = Vec::new();
        for change in Change::ALL {
            granted(&searching).await;
            let run = searching.run().await;
            let word = format!("held {change:?}");
            searching.brave.hold("held");
            let calls = (0..IN_FLIGHT).map(|index| {
                let (run, text) = (through(&run, second.as_ref(), index), format!("{word} {index}"));
                tokio::spawn(async move {
                    let seen = observed(&run, None, &query(&text)).await;
                    (seen, Instant::now())
                })
            });
            let calls: Vec<_> = calls.collect();
            let until = Instant::now() + within(60);
            while searching.brave.count(&word) < IN_FLIGHT {
                assert!(Instant::now() < until, "{} of them are in flight", searching.brave.count(&word));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert!(calls.iter().all(|call| !call.is_finished()));
            change.make(&searching.owner.client).await;
            let changed = Instant::now();
            for call in calls {
                let (seen, at) = call.await.expect("an answer");
                let refusal = &seen["refusal"];
                assert_eq!((refusal["reason"].as_str(), refusal["outcome"].as_str()), (Some("grant_revoked"), Some("interrupted")), "{change:?}: {seen}");
                assert_eq!(seen.get("results"), None);
                waits.push(at.saturating_duration_since(changed));
            }
            searching.brave.release();
            assert_eq!(searching.brave.count(&word), IN_FLIGHT, "nothing is sent again");
        }
        waits.sort();
        let p99 = waits[waits.len() * 99 / 100];
        assert!(p99 <= Duration::from_secs(1) && waits[waits.len() - 1] <= Duration::from_millis(1_200), "p99 {p99:?}, longest {:?}", waits.last());
        assert_eq!(db.number("SELECT count(*) FROM reservations").await, i64::try_from(4 * IN_FLIGHT).expect("a count"));
        assert_eq!(db.number("SELECT count(*) FROM tool_calls WHERE outcome = 'interrupted' AND observation NOT LIKE '%results%'").await, i64::try_from(4 * IN_FLIGHT).expect("a count"));
    }

    /// S-05, W20: results and changes at the same moment. What was answered with a result was settled before the change was
    /// committed; all others carry none.
    async fn bar_s05_no_result_is_late(db) {
        let searching = Searching::start(&db).await;
        let second = replica(&searching);
        let (mut results, mut held_back) = (0, 0);
        for round in 0..ROUNDS {
            granted(&searching).await;
            let run = searching.run().await;
            searching.brave.hold("race");
            let word = format!("race {round}-");
            let calls: Vec<_> = (0..RACERS).map(|index| {
                let (run, text) = (through(&run, second.as_ref(), index), format!("{word}{index}"));
                tokio::spawn(async move { observed(&run, None, &query(&text)).await })
            }).collect();
            let until = Instant::now() + within(60);
            while searching.brave.count(&word) < RACERS {
                assert!(Instant::now() < until, "{} of them are in flight", searching.brave.count(&word));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            // Sometimes the results are a little ahead, sometimes the change.
            searching.brave.release();
            tokio::time::sleep(Duration::from_millis(u64::try_from(round % 8).expect("small") * 3)).await;
            Change::Disable.make(&searching.owner.client).await;
            for call in calls {
                let seen = call.await.expect("an answer");
                if seen["is_error"] == false {
                    results += 1;
                } else {
                    assert_eq!(seen["refusal"]["reason"], "grant_revoked", "{seen}");
                    assert!(matches!(seen["refusal"]["outcome"].as_str(), Some("interrupted" | "withheld")), "{seen}");
                    assert_eq!(seen.get("results"), None);
                    held_back += 1;
                }
            }
            let late = db.number(&format!(
                "SELECT count(*) FROM tool_calls WHERE run_id = '{}' AND outcome = 'ok' AND settled_at > \
                 (SELECT updated_at FROM capability_settings WHERE scope = 'install' AND capability = 'search')", run.id
            )).await;
            assert_eq!(late, 0, "round {round}");
        }
        assert_eq!(results + held_back, ROUNDS * RACERS);
        assert!(results > 0 && held_back > 0, "both sides of the race were seen: {results}, {held_back}");
    }

    /// S-06, W11, W17, W19: eight changes under each owner; calls on the offer of before send nothing, reach nobody else's account and
    /// cost nothing. Where the tool is still granted the next call runs on the new terms.
    async fn bar_s06_stale_offers_send_nothing(db) {
        let searching = Searching::start(&db).await;
        let owner = searching.owner.client.clone();
        let own = of_agent("alpha");
        for base in [INSTALL, &own] {
            for change in 0..8 {
                granted(&searching).await;
                if base != INSTALL {
                    owner.connect(&own, "brave", "BSA-formation-the-agents-own").await.expect("an account of its own");
                    owner.set(&own, "search", mode("own", "brave")).await.expect("its own");
                } else if change == 0 {
                    owner.set(&own, "search", json!({"mode": "inherit", "provider": "", "config": {}})).await.expect("inherits");
                }
                let run = searching.run().await;
                let offers = run.client.get("/v1/run/tools").await.expect("offers").json();
                let offer = offers[0]["offer"].clone();
                let is_granted = match (base == INSTALL, change) {
                    (_, 0) => { owner.connect(base, "brave", "BSA-formation-rotated").await.expect("rotated"); true }
                    (_, 1) => {
                        owner.disconnect(base, "brave").await.expect("removed");
                        owner.connect(base, "brave", KEY).await.expect("made again");
                        true
                    }
                    (_, 2) => { owner.disconnect(base, "brave").await.expect("removed"); false }
                    (_, 3) => { owner.set(base, "search", mode("disabled", "")).await.expect("off"); false }
                    (true, 4) => { owner.set(base, "search", mode("own", "brave")).await.expect("pinned"); true }
                    (false, 4) => { owner.set(&own, "search", json!({"mode": "inherit", "provider": "", "config": {}})).await.expect("inherits"); true }
                    (true, 5) => { owner.set(&own, "search", json!({"mode": "inherit", "provider": "", "config": {}, "limits": {"requests_per_run": 100}})).await.expect("lowered"); true }
                    (false, 5) => { owner.set(&own, "search", mode("own", "brave")).await.expect("written again"); true }
                    (true, 6) => { owner.set(&own, "search", json!({"mode": "disabled", "provider": "", "config": {}})).await.expect("off for the agent"); false }
                    (false, 6) => {
                        owner.disconnect(&own, "brave").await.expect("removed");
                        owner.disconnect(INSTALL, "brave").await.expect("the install's too");
                        false
                    }
                    _ => {
                        // Away and back: the terms read alike, and are others.
                        owner.set(base, "search", mode("disabled", "")).await.expect("off");
                        owner.set(base, "search", if base == INSTALL { mode("auto", "") } else { mode("own", "brave") }).await.expect("and on");
                        true
                    }
                };
                let before = searching.brave.sends().len();
                let calls = (0..STALE).map(|index| {
                    let (run, offer) = (run.clone(), offer.clone());
                    async move {
                        let body = json!({"tool": "web_search", "arguments": {"query": format!("stale {index}")}, "offer": offer});
                        let reply = run.client.post("/v1/run/tool-calls", &body).await.expect("an answer");
                        reply.json()["observation"].take()
                    }
                });
                let expected = if is_granted { "grant_revoked" } else { "not_offered" };
                for seen in join_all(calls).await {
                    assert_eq!(seen["refusal"]["reason"], expected, "{base} {change}: {seen}");
                }
                assert_eq!(searching.brave.sends().len(), before, "{base} {change}");
                if is_granted {
                    let next = observed(&run, None, &query("fresh")).await;
                    assert_eq!(next["is_error"], false, "{base} {change}: the refusal offered it anew: {next}");
                }
                if base == INSTALL && (change == 5 || change == 6) {
                    owner.set(&own, "search", json!({"mode": "inherit", "provider": "", "config": {}})).await.expect("inherits");
                }
            }
        }
        // Nothing was spent but on the fresh calls.
        assert_eq!(db.number("SELECT count(*) FROM reservations").await, i64::try_from(searching.brave.sends().len()).expect("a count"));
    }

    /// W19: a call that is told of the change says what to do; W24: removal says what it can't do.
    async fn w19_a_stale_call_is_told_what_to_do(db) {
        let searching = Searching::start(&db).await;
        let run = searching.run().await;
        run.does("web_search", &query("before")).await.expect("results");
        Change::Rotate.make(&searching.owner.client).await;
        let stale = observed(&run, None, &query("after")).await;
        assert!(stale["refusal"]["explanation"].as_str().is_some_and(|text| text.contains("call again")), "{stale}");
        assert_eq!(observed(&run, None, &query("again")).await["is_error"], false);
        assert_eq!(searching.brave.sends().last().expect("a send").key, "BSA-formation-another-key");
        Change::Remove.make(&searching.owner.client).await;
        let gone = observed(&run, None, &query("gone")).await;
        assert_eq!(gone["refusal"]["reason"], "not_offered", "{gone}");
        let tools = run.client.get("/v1/run/tools").await.expect("offers").json();
        assert_eq!(tools, json!([]), "W9: no tool");
    }
}
