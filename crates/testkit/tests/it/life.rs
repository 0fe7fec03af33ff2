//! How servers and browsers live and end: no orphans, no hangs, no lies.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    time::{Duration, Instant},
};

use formation_testkit::{
    cutter::Cutter,
    databases::{Backend, TestDb, run},
    http::{Client, Reply, Run},
    mcp::Mcp,
    on_both_databases,
    processes::{self, comes_true},
    server::{Place, Server, Setup},
    site::{Hold, Page, Site},
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{BINARY, HOST, within};

struct Stage {
    place: Place,
    setup: Setup,
    site: Site,
}

impl Stage {
    async fn on(place: Place) -> Self {
        let site = Site::start().await.expect("a site").with("/open", Page::html("<h1>Open</h1><button>Go</button>"));
        let setup = Setup::new(BINARY).with_browser().with_short_leases().name(&format!("{HOST}:80"), site.address());
        Self { place, setup, site }
    }

    async fn of(db: &TestDb) -> Self {
        Self::on(Place::of(db).expect("a place")).await
    }

    fn start(&self) -> Server {
        self.setup.start(&self.place).expect("the server starts")
    }

    fn token(&self) -> String {
        self.setup.agent(&self.place, "liver").expect("an agent")
    }

    async fn browsers_go(&self) {
        let gone = comes_true(within(2), || self.place.browser_processes().is_empty()).await;
        assert!(gone, "browsers that outlive: {:?}", self.place.browser_processes());
    }
}

fn open(key: &str) -> Value {
    json!({"url": format!("http://{HOST}/open?key={key}")})
}

async fn opened(client: &Client, key: &str) -> Run {
    let run = client.open_run(&json!({})).await.expect("a run");
    run.does("browser_navigate", &open(key)).await.expect("the page opens");
    run
}

#[test]
fn bar_r16_a_killed_server_leaves_no_browser_and_its_next_life_no_folder() {
    run(Backend::Sqlite, |db| async move {
        let stage = Stage::of(&db).await;
        let token = stage.token();
        let server = stage.start();
        let client = server.client.with_token(&token);
        opened(&client, "a").await;
        opened(&client, "b").await;
        assert_eq!(stage.place.browsers().len(), 2);
        assert_eq!(stage.place.session_folders().len(), 2);
        server.kill();
        stage.browsers_go().await;
        let server = stage.start();
        assert_eq!(stage.place.session_folders(), Vec::<std::path::PathBuf>::new());
        server.kill();
    });
}

#[test]
fn bar_r16_ten_sessions_leave_no_process_and_no_folder() {
    run(Backend::Sqlite, |db| async move {
        let stage = Stage::of(&db).await;
        let token = stage.token();
        let server = stage.start();
        let client = server.client.with_token(&token);
        for number in 0..10 {
            let run = opened(&client, &number.to_string()).await;
            assert!(!stage.place.browsers().is_empty());
            run.finish().await.expect("the run ends");
        }
        let nothing = || stage.place.browser_processes().is_empty() && stage.place.session_folders().is_empty();
        let gone = comes_true(within(10), nothing).await;
        assert!(gone, "{:?} {:?}", stage.place.browser_processes(), stage.place.session_folders());
        assert_eq!(db.number("SELECT count(*) FROM browser_sessions WHERE state <> 'closed'").await, 0);
        server.kill();
    });
}

on_both_databases! {
    /// what is under way is answered or ends truthfully, and nothing stays.
    async fn bar_r17_sigterm_ends_within_fifteen_seconds(db) {
        let stage = Stage::of(&db).await;
        let token = stage.token();
        let server = stage.start();
        let run = opened(&server.client.with_token(&token), "first").await;
        stage.site.hold(Hold::Answers("/open?key=held"));
        let held = tokio::spawn({
            let run = run.clone();
            async move { run.call(Some("held"), "browser_navigate", &open("held")).await }
        });
        assert!(stage.site.sees("/open?key=held", within(20)).await);
        let code = server.terminate(within(15)).expect("it ends in time");
        assert_eq!(code, Some(0), "{}", stage.place.logs());
        stage.browsers_go().await;
        assert_eq!(stage.place.session_folders(), Vec::<std::path::PathBuf>::new());
        let answered = held.await.expect("no panic");

        let server = stage.start();
        let run = Run { client: server.client.with_token(run.client.token().expect("a token")), ..run };
        let until = Instant::now() + within(10);
        let again = loop {
            let reply = run.call(Some("held"), "browser_navigate", &open("held")).await.expect("an answer");
            if reply.status == 200 {
                break reply.json();
            }
            assert!(reply.status == 202 && Instant::now() < until, "{reply:?}");
        };
        assert_eq!(stage.site.count("/open?key=held"), 1);
        // The site had the request and never answered: nobody may say that nothing was sent.
        assert!(!["not_dispatched", "ok"].contains(&again["outcome"].as_str().unwrap_or_default()), "{again}");
        if let Ok(reply) = answered && reply.status == 200 {
            assert_eq!(reply.json(), again, "two answers to one key");
        }
        server.kill();
    }

    /// B19: the loss is told by the call that met it, and the one after opens a new run that says so.
    async fn bar_b19_a_lost_browser_is_told_and_never_replaced_within_a_run(db) {
        let stage = Stage::of(&db).await;
        let token = stage.token();
        let server = stage.start();
        let client = server.client.with_token(&token);
        let mcp = Mcp::legacy(&client).await.expect("a session");
        let first = mcp.call("browser_navigate", &open("one")).await.expect("an answer");
        assert_eq!((&first["is_error"], first.get("run")), (&json!(false), None), "{first}");
        let browsers = stage.place.browsers();
        assert_eq!(browsers.len(), 1);
        processes::send(browsers[0], Signal::KILL);
        assert!(comes_true(within(5), || !processes::lives(browsers[0])).await);

        let lost = mcp.call("browser_read", &json!({})).await.expect("an answer");
        assert_eq!(lost["browser_failure"]["reason"], "session_lost", "{lost}");
        assert_eq!(lost["browser_failure"]["recovery"], "new_run");
        let next = mcp.call("browser_navigate", &open("two")).await.expect("an answer");
        assert_eq!((&next["is_error"], &next["run"]["started"]), (&json!(false), &json!(true)), "{next}");
        let after = mcp.call("browser_read", &json!({})).await.expect("an answer");
        assert_eq!((&after["is_error"], after.get("run")), (&json!(false), None), "{after}");
        let runs = stage.setup.json(&stage.place, &["runs"]).expect("runs");
        assert_eq!(runs.as_array().map(Vec::len), Some(2), "{runs}");
        assert_eq!((&runs[0]["state"], &runs[1]["ended_by"]), (&json!("open"), &json!("session_lost")), "{runs}");

        // A run of the run API ends for good.
        let run = opened(&client, "three").await;
        let mine: Vec<u32> = stage.place.browsers();
        assert_eq!(mine.len(), 2);
        for browser in &mine {
            processes::send(*browser, Signal::KILL);
        }
        assert!(comes_true(within(5), || !mine.iter().any(|browser| processes::lives(*browser))).await);
        let lost = run.call(None, "browser_navigate", &open("four")).await.expect("an answer").json();
        assert_eq!(lost["observation"]["browser_failure"]["reason"], "session_lost", "{lost}");
        // Uncertain where the effect was on record before the loss was noticed.
        assert!(["not_dispatched", "uncertain"].contains(&lost["outcome"].as_str().unwrap_or_default()), "{lost}");
        let over = run.call(None, "browser_navigate", &open("five")).await.expect("an answer").json();
        assert_eq!((&over["execution"], &over["observation"]["refusal"]["reason"]), (&json!("refused"), &json!("run_over")), "{over}");
        assert_eq!(stage.site.count("key=four") + stage.site.count("key=five"), 0);
        server.kill();
    }
}

/// Loss in the middle of an effect: what was sent stays in doubt.
#[test]
fn a_browser_that_dies_under_a_navigation_leaves_it_uncertain() {
    run(Backend::Sqlite, |db| async move {
        let stage = Stage::of(&db).await;
        let token = stage.token();
        let server = stage.start();
        let run = opened(&server.client.with_token(&token), "one").await;
        stage.site.hold(Hold::Answers("/open?key=two"));
        let held = tokio::spawn({
            let run = run.clone();
            async move { run.call(Some("two"), "browser_navigate", &open("two")).await }
        });
        assert!(stage.site.sees("/open?key=two", within(20)).await);
        let killed = Instant::now();
        for browser in stage.place.browsers() {
            processes::send(browser, Signal::KILL);
        }
        let answer = held.await.expect("no panic").expect("an answer").json();
        assert!(killed.elapsed() < within(5), "{:?}", killed.elapsed());
        assert_eq!((&answer["execution"], &answer["outcome"]), (&json!("succeeded"), &json!("uncertain")), "{answer}");
        assert_eq!(answer["observation"]["browser_failure"]["recovery"], "new_run", "{answer}");
        stage.browsers_go().await;
        server.kill();
    });
}

/// A browser that answers nothing any more costs the operation's time and no more.
#[test]
fn a_wedged_browser_is_a_classified_failure_in_time() {
    run(Backend::Sqlite, |db| async move {
        let mut stage = Stage::of(&db).await;
        stage.setup = stage.setup.timing("operation_ms=9000,command_ms=4000,navigation_load_ms=6000");
        let token = stage.token();
        let server = stage.start();
        // A browser's first page on a busy machine takes seconds of the shrunk operation, so it isn't shrunk further.
        let run = opened(&server.client.with_token(&token), "one").await;
        let browsers = stage.place.browsers();
        assert_eq!(browsers.len(), 1);
        processes::send(browsers[0], Signal::STOP);
        for (tool, arguments, expected) in
            [("browser_read", json!({}), &["failed"][..]), ("browser_navigate", open("two"), &["not_dispatched", "uncertain"][..])]
        {
            let asked = Instant::now();
            let answer = run.call(None, tool, &arguments).await.expect("an answer").json();
            assert!(asked.elapsed() < within(15), "{tool} took {:?}", asked.elapsed());
            assert!(expected.contains(&answer["outcome"].as_str().unwrap_or_default()), "{answer}");
            assert!(answer["observation"]["browser_failure"]["reason"].is_string(), "{answer}");
        }
        assert_eq!(stage.site.count("key=two"), 0);
        run.finish().await.expect("the run ends");
        let gone = comes_true(within(10), || stage.place.browser_processes().is_empty()).await;
        assert!(gone, "a stopped browser stays: {:?}", stage.place.browser_processes());
        server.kill();
    });
}

on_both_databases! {
    /// A server that was killed takes its browsers along: the runs say so, once, and go on in new ones.
    async fn a_restart_tells_each_run_that_its_browser_is_gone(db) {
        let stage = Stage::of(&db).await;
        let token = stage.token();
        let server = stage.start();
        let client = server.client.with_token(&token);
        let mcp = Mcp::legacy(&client).await.expect("a session");
        let first = mcp.call("browser_navigate", &open("one")).await.expect("an answer");
        assert_eq!(first["is_error"], false, "{first}");
        server.kill();
        let server = stage.start();
        let mcp = mcp.through(&server.client.with_token(&token));
        // The session is a row: it outlives the process.
        let told = mcp.call("browser_read", &json!({})).await.expect("an answer");
        let lost = told["browser_failure"]["reason"] == "session_lost" || told["refusal"]["reason"] == "run_over";
        let elsewhere = told["browser_failure"]["reason"] == "connection_failed";
        assert!(lost || (elsewhere && stage.place.database().is_some()), "{told}");
        let mut next = mcp.call("browser_navigate", &open("two")).await.expect("an answer");
        let until = Instant::now() + within(10);
        // On PostgreSQL the dead process holds its browser until its lease has run out.
        while elsewhere && next["is_error"] == true && Instant::now() < until {
            next = mcp.call("browser_navigate", &open("two")).await.expect("an answer");
        }
        assert_eq!((&next["is_error"], &next["run"]["started"]), (&json!(false), &json!(true)), "{next}\n{}", stage.place.logs());
        server.kill();
    }

    /// S-16: with another master key, or without the one there was, nothing starts, and it is said plainly.
    async fn bar_s16_a_wrong_or_missing_master_key_refuses_to_start(db) {
        let place = Place::of(&db).expect("a place");
        let setup = Setup::new(BINARY);
        setup.start(&place).expect("the first start makes a key").kill();
        let file = place.data().join("master.key");
        let key = fs::read(&file).expect("a key");
        assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);

        fs::remove_file(&file).expect("it was there");
        let missing = setup.refused(&place).expect("no start");
        assert!(!file.exists(), "a key that fits nothing stays behind");
        fs::write(&file, "0".repeat(64)).expect("a key");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("ours");
        let wrong = setup.refused(&place).expect("no start");
        for refused in [&missing, &wrong] {
            assert_eq!(refused.code, Some(1), "{refused:?}");
            let sentence = refused.error.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
            assert!(sentence.contains("master key"), "{refused:?}");
            assert!(!refused.error.contains("panicked"), "{refused:?}");
            assert!(refused.after < within(2), "{refused:?}");
        }
        fs::write(&file, key).expect("the right key");
        setup.start(&place).expect("the right key starts").kill();
    }
}

/// Two servers on one PostgreSQL, and a navigation of the first that its site holds back.
struct Pair {
    stage: Stage,
    first: Server,
    second: Server,
    run: Run,
    held: JoinHandle<anyhow::Result<Reply>>,
}

impl Pair {
    async fn of(db: &TestDb) -> Self {
        let stage = Stage::of(db).await;
        let token = stage.token();
        let first = stage.start();
        let other = stage.place.replica(stage.place.database().expect("an address")).expect("a second place");
        let second = stage.setup.start(&other).expect("a second server");
        let run = opened(&first.client.with_token(&token), "one").await;
        stage.site.hold(Hold::Answers("/open?key=held"));
        let asking = run.clone();
        let held = tokio::spawn(async move { asking.call(Some("held"), "browser_navigate", &open("held")).await });
        assert!(stage.site.sees("/open?key=held", within(20)).await);
        Self { stage, first, second, run, held }
    }

    /// What the second server answers to the same key, once it has an end.
    async fn ended(&self) -> Value {
        let client = self.second.client.with_token(self.run.client.token().expect("a token"));
        let run = Run { client, ..self.run.clone() };
        let asked = Instant::now();
        loop {
            let reply = run.call(Some("held"), "browser_navigate", &open("held")).await.expect("an answer");
            match reply.status {
                200 => return reply.json(),
                202 if asked.elapsed() < within(20) => tokio::time::sleep(Duration::from_millis(50)).await,
                _ => panic!("no end: {reply:?}"),
            }
        }
    }
}

/// R-01 with a survivor: the other replica ends what a killed one left, without a restart.
#[test]
fn bar_r01_another_replica_ends_what_a_killed_one_left_postgres() {
    run(Backend::Postgres, |db| async move {
        let mut pair = Pair::of(&db).await;
        processes::send(pair.first.pid(), Signal::KILL);
        assert!((&mut pair.held).await.expect("no panic").is_err(), "a killed server answers nothing");
        let end = pair.ended().await;
        assert_eq!((&end["execution"], &end["outcome"]), (&json!("failed"), &json!("uncertain")), "{end}");
        assert_eq!(pair.ended().await, end);
        assert_eq!(pair.stage.site.count("/open?key=held"), 1);
        pair.second.kill();
    });
}

/// A process that slept over its lease finds its call ended by another, and says what that one said.
#[test]
fn bar_r01_a_replica_that_slept_over_its_lease_changes_nothing_postgres() {
    run(Backend::Postgres, |db| async move {
        let pair = Pair::of(&db).await;
        processes::send(pair.first.pid(), Signal::STOP);
        let end = pair.ended().await;
        assert_eq!((&end["execution"], &end["outcome"]), (&json!("failed"), &json!("uncertain")), "{end}");
        processes::send(pair.first.pid(), Signal::CONT);
        pair.stage.site.release();
        let late = pair.held.await.expect("no panic").expect("an answer");
        assert_eq!((late.status, late.json()), (200, end), "the sleeper tells another story");
        assert_eq!(pair.stage.site.count("/open?key=held"), 1);
        pair.second.kill();
        pair.first.kill();
    });
}

/// A database that is gone answers 503 and nothing is sent; when it is back, so are we.
#[test]
fn a_database_that_is_gone_is_told_and_comes_back_without_a_restart_postgres() {
    run(Backend::Postgres, |db| async move {
        let direct = Place::of(&db).expect("a place");
        let cutter = Cutter::before(direct.database().expect("an address")).await.expect("a line");
        let stage = Stage::on(Place::on_postgres(cutter.url()).expect("a place")).await;
        let token = stage.token();
        let server = stage.start();
        let client = server.client.with_token(&token);
        let run = opened(&client, "one").await;
        let mcp = Mcp::modern(&client, None);
        mcp.tools().await.expect("tools");

        cutter.cut();
        let asked = Instant::now();
        let reply = run.call(Some("gone"), "browser_navigate", &open("gone")).await.expect("an answer");
        assert_eq!((reply.status, reply.code().as_str()), (503, "store_unavailable"), "{reply:?}");
        assert!(asked.elapsed() < within(15), "{:?}", asked.elapsed());
        assert!(!reply.header("retry-after").is_empty());
        let ready = server.client.get("/readyz").await.expect("an answer");
        assert_eq!(ready.status, 503, "{ready:?}");
        assert_eq!(server.client.get("/healthz").await.expect("an answer").status, 200);
        let opening = client.post("/v1/runs", &json!({})).await.expect("an answer");
        assert_eq!((opening.status, opening.code().as_str()), (503, "store_unavailable"), "{opening:?}");
        assert_eq!(stage.site.count("key=gone"), 0);

        cutter.mend();
        let back = Instant::now();
        while server.client.get("/readyz").await.expect("an answer").status != 200 {
            assert!(back.elapsed() < within(5), "not ready {:?} after the database", back.elapsed());
        }
        // The lease ran out meanwhile, and with it the browser's home: the agent is told, or goes on; either way a run works.
        let run = opened(&client, "two").await;
        assert_eq!(stage.site.count("key=two"), 1);
        run.finish().await.expect("the run ends");
        assert_eq!(mcp.call("browser_navigate", &open("three")).await.expect("an answer")["is_error"], false);
        server.kill();
    });
}

/// What a call under way sees of a database that goes away, for `outage` or until the call was answered.
async fn cut_under_a_call(db: TestDb, outage: Option<Duration>) {
    let direct = Place::of(&db).expect("a place");
    let cutter = Cutter::before(direct.database().expect("an address")).await.expect("a line");
    let stage = Stage::on(Place::on_postgres(cutter.url()).expect("a place")).await;
    // The lease that the product has: short outages don't end it.
    let stage = Stage { setup: stage.setup.timing("lease_ms=20000,heartbeat_ms=5000"), ..stage };
    let token = stage.token();
    let server = stage.start();
    let run = opened(&server.client.with_token(&token), "one").await;
    stage.site.hold(Hold::Answers("/open?key=held"));
    let call = |run: Run| async move { run.call(Some("held"), "browser_navigate", &open("held")).await.expect("an answer") };
    let held = tokio::spawn(call(run.clone()));
    assert!(stage.site.sees("/open?key=held", within(20)).await);
    cutter.cut();
    stage.site.release();
    if let Some(outage) = outage {
        tokio::time::sleep(outage).await;
        cutter.mend();
    }
    let first = held.await.expect("no panic");
    cutter.mend();
    let asked = Instant::now();
    let settled = loop {
        let reply = call(run.clone()).await;
        match reply.status {
            200 => break reply.json(),
            202 | 503 if asked.elapsed() < within(30) => tokio::time::sleep(Duration::from_millis(200)).await,
            _ => panic!("no end: {reply:?}\n{}", stage.place.logs()),
        }
    };
    assert_eq!(stage.site.count("/open?key=held"), 1);
    if outage.is_some() {
        assert_eq!((first.status, &settled["outcome"]), (200, &json!("ok")), "{first:?} {settled}");
    } else {
        assert_ne!(first.status, 200, "nobody could have written it: {first:?}");
        assert!(["uncertain", "ok"].contains(&settled["outcome"].as_str().unwrap_or_default()), "{settled}");
    }
    server.kill();
}

/// The end of a call is written as soon as somebody can, and it is the truth.
#[test]
fn a_short_outage_under_a_call_costs_time_only_postgres() {
    run(Backend::Postgres, |db| cut_under_a_call(db, Some(Duration::from_millis(1_500))));
}

#[test]
fn a_long_outage_under_a_call_ends_it_truthfully_postgres() {
    run(Backend::Postgres, |db| cut_under_a_call(db, None));
}
