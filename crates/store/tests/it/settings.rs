//! Accounts, connections, the install's settings, and what was used.

use std::{sync::Arc, time::Duration};

use formation_core::{
    AccountRef, AgentId, Capability, Observation, Outcome, Scope, Secret, Timestamp, Tool, VendorId,
    refusal::{Refusal, RefusalReason},
    settings::{EnvironmentAccount, Mode, StoredAccount, Unavailable},
};
use formation_store::{
    Changed, Db, StoreError,
    accounts::{self, lock_owner},
    agents::RunDefaults,
    connections::{self, NewSettings},
    install::{self, InstallConfig},
    ledger,
    runs::{self, Behind},
    seal::MasterKeys,
    secrets::{self, SecretError, VENDOR_KEY},
    settings::{Rules, Stored},
    usage::{self, Bucket, Counts, Span},
};
use formation_testkit::{databases::TestDb, on_both_databases};
use serde_json::{Value, json};

use crate::support::Scene;

const VENDOR: VendorId = VendorId::known("acme");

async fn keys(test: &TestDb) -> Arc<MasterKeys> {
    let generated = MasterKeys::generate(&formation_core::Entropy::counting(7));
    let keys = MasterKeys::parse(std::str::from_utf8(generated.expose()).expect("text")).expect("its own form");
    keys.fit(&test.db).await.expect("the first key is entered");
    Arc::new(keys)
}

async fn create(test: &TestDb, keys: &Arc<MasterKeys>, owner: Scope, key: &'static str) -> StoredAccount {
    let keys = Arc::clone(keys);
    let made = test.db.write(move |tx| {
        Box::pin(async move {
            assert!(lock_owner(tx, owner).await?);
            let key = Secret::new(key.as_bytes());
            accounts::create(tx, &keys, owner, &VENDOR, &json!({"account_id": "0a"}), &key, "Nora").await?;
            accounts::find(tx, owner, &VENDOR).await
        })
    });
    made.await.expect("an account can be made").expect("it is there").0
}

async fn update(test: &TestDb, keys: &Arc<MasterKeys>, owner: Scope, config: Value, key: Option<&'static str>) -> i64 {
    let keys = Arc::clone(keys);
    let updated = test.db.write(move |tx| {
        Box::pin(async move {
            assert!(lock_owner(tx, owner).await?);
            let (account, _) = accounts::find(tx, owner, &VENDOR).await?.expect("it is there");
            let key = key.map(|key| Secret::new(key.as_bytes()));
            accounts::update(tx, &keys, owner, &account, &config, key.as_ref(), "Odd").await
        })
    });
    updated.await.expect("an account can be changed")
}

async fn found(test: &TestDb, owner: Scope) -> Option<(StoredAccount, Changed)> {
    test.db.write(move |tx| Box::pin(async move { accounts::find(tx, owner, &VENDOR).await })).await.expect("readable")
}

async fn remove(test: &TestDb, account: StoredAccount) {
    let removed = test.db.write(move |tx| Box::pin(async move { accounts::remove(tx, &account).await })).await;
    removed.expect("an account can be removed");
}

async fn opened(db: &Db, keys: &MasterKeys, owner: Scope, account: &StoredAccount) -> Result<Vec<u8>, SecretError> {
    secrets::open(db, keys, owner, VENDOR_KEY, account.secret).await.map(|key| key.expose().to_vec())
}

fn settings(mode: Mode) -> NewSettings {
    NewSettings {
        mode,
        vendor: (mode == Mode::Own).then_some(VENDOR),
        config: json!({}),
        requests_per_minute: None,
        requests_per_run: None,
    }
}

async fn set(test: &TestDb, owner: Scope, new: NewSettings) -> i64 {
    let written = test.db.write(move |tx| {
        Box::pin(async move {
            assert!(lock_owner(tx, owner).await?);
            connections::write(tx, owner, Capability::Search, &new, "Nora").await
        })
    });
    written.await.expect("settings can be written")
}

fn rules() -> Rules {
    let environment = || vec![EnvironmentAccount { vendor: VENDOR, fingerprint: "0011223344556677".to_owned() }];
    Rules::new(|_| vec![VENDOR], environment)
}

/// Who pays for the agent's searches now.
async fn payer(test: &TestDb, agent: AgentId) -> Result<(Scope, AccountRef), Unavailable> {
    let effective = rules().resolve_now(&test.db, agent, Capability::Search).await.expect("settings can be read")?;
    Ok((effective.binding.owner, effective.binding.account))
}

on_both_databases! {
    /// W2, O3: one credential a vendor and owner; a change raises the version, a key that isn't sent stays.
    async fn o3_an_account_is_made_rotated_and_found_by_its_owner_alone(test) {
        let keys = keys(&test).await;
        let agent = Scope::Agent(test.agent("demo").await);
        assert_eq!(found(&test, Scope::Install).await, None);
        let made = create(&test, &keys, Scope::Install, "key one").await;
        assert_eq!((made.version, &made.config), (1, &json!({"account_id": "0a"})));
        assert_eq!(found(&test, agent).await, None, "the install's account is no agent's");
        let own = create(&test, &keys, agent, "key of the agent").await;
        assert_ne!((own.id, own.secret), (made.id, made.secret));

        assert_eq!(update(&test, &keys, Scope::Install, json!({"account_id": "0b"}), None).await, 2);
        let (kept, changed) = found(&test, Scope::Install).await.expect("it is there");
        assert_eq!((kept.id, kept.version, &kept.config), (made.id, 2, &json!({"account_id": "0b"})));
        assert_eq!((changed.version, changed.by.as_deref(), changed.at), (2, Some("Odd"), Some(test.db.now().await.expect("now"))));
        assert_eq!(opened(&test.db, &keys, Scope::Install, &kept).await, Ok(b"key one".to_vec()));
        assert_eq!(update(&test, &keys, Scope::Install, json!({}), Some("key two")).await, 3);
        assert_eq!(opened(&test.db, &keys, Scope::Install, &kept).await, Ok(b"key two".to_vec()));
        assert_eq!(opened(&test.db, &keys, agent, &own).await, Ok(b"key of the agent".to_vec()), "rotating one leaves the other");
        assert_eq!(opened(&test.db, &keys, agent, &kept).await, Err(SecretError::Absent), "another owner's key isn't found");
    }

    /// O4: account, key and settings go together, and one made again is another: no old offer fits it.
    async fn o4_a_removed_account_takes_its_key_along(test) {
        let keys = keys(&test).await;
        let made = create(&test, &keys, Scope::Install, "key one").await;
        remove(&test, made.clone()).await;
        assert_eq!(found(&test, Scope::Install).await, None);
        assert_eq!(test.number("SELECT count(*) FROM secrets").await, 0);
        let again = create(&test, &keys, Scope::Install, "key two").await;
        assert_eq!(again.version, 1);
        assert_ne!(again.id, made.id);
    }

    /// Half of it is nothing: a transaction that fails leaves neither account nor key.
    async fn an_account_that_was_not_committed_left_nothing(test) {
        let keys = keys(&test).await;
        let failed: Result<(), StoreError> = test.db.write(move |tx| Box::pin(async move {
            accounts::create(tx, &keys, Scope::Install, &VENDOR, &json!({}), &Secret::new(*b"key"), "Nora").await?;
            Err(StoreError::internal("what comes after fails"))
        })).await;
        assert!(failed.is_err());
        assert_eq!(test.number("SELECT count(*) FROM vendor_accounts").await + test.number("SELECT count(*) FROM secrets").await, 0);
    }

    /// W7, W8, O5: a row is made at version 1 and rises; each owner has its own.
    async fn o5_versions_of_a_connection_only_rise(test) {
        let agent = Scope::Agent(test.agent("demo").await);
        let changed = |owner| test.db.write(move |tx| Box::pin(async move { connections::changed(tx, owner, Capability::Search).await }));
        assert_eq!(changed(Scope::Install).await, Ok(Changed::default()));
        for (mode, version) in [(Mode::Disabled, 1), (Mode::Own, 2), (Mode::Auto, 3), (Mode::Auto, 4)] {
            assert_eq!(set(&test, Scope::Install, settings(mode)).await, version);
        }
        assert_eq!(set(&test, agent, NewSettings { requests_per_run: Some(7), ..settings(Mode::Inherit) }).await, 1);
        let told = changed(Scope::Install).await.expect("readable");
        assert_eq!((told.version, told.by.as_deref()), (4, Some("Nora")));
        let stored = Stored::now(&test.db, agent).await.expect("readable");
        let own = stored.state(agent, Capability::Search).settings.expect("a row");
        assert_eq!((own.mode, own.version, own.requests_per_run), (Mode::Inherit, 1, Some(7)));
        let install = stored.state(Scope::Install, Capability::Search).settings.expect("a row");
        assert_eq!((install.mode, install.vendor, install.version), (Mode::Auto, None, 4));
        assert_eq!(stored.state(Scope::Install, Capability::Read).settings, None, "each capability by itself (W1)");
    }

    /// W10, W14, W15, S-22: a stored account before the environment's, back to it after its removal, and never for an agent's own.
    async fn bar_s22_who_pays_follows_what_is_stored(test) {
        let keys = keys(&test).await;
        let agent = test.agent("demo").await;
        let own = Scope::Agent(agent);
        let managed = AccountRef::Environment { fingerprint: "0011223344556677".to_owned() };
        assert_eq!(payer(&test, agent).await, Ok((Scope::Install, managed.clone())));
        let install = create(&test, &keys, Scope::Install, "key").await;
        assert_eq!(payer(&test, agent).await, Ok((Scope::Install, AccountRef::Stored { id: install.id, version: 1 })));
        set(&test, own, settings(Mode::Own)).await;
        assert_eq!(payer(&test, agent).await, Err(Unavailable::AccountMissing), "neither the install's nor the environment's");
        let account = create(&test, &keys, own, "key of the agent").await;
        assert_eq!(payer(&test, agent).await, Ok((own, AccountRef::Stored { id: account.id, version: 1 })));
        remove(&test, account).await;
        assert_eq!(payer(&test, agent).await, Err(Unavailable::AccountMissing));
        set(&test, own, settings(Mode::Inherit)).await;
        remove(&test, install).await;
        assert_eq!(payer(&test, agent).await, Ok((Scope::Install, managed)));
        set(&test, Scope::Install, settings(Mode::Disabled)).await;
        assert_eq!(payer(&test, agent).await, Err(Unavailable::Disabled));
    }

    /// An agent that was deleted meanwhile has no settings to write.
    async fn a_deleted_agent_takes_no_settings(test) {
        let agent = test.agent("demo").await;
        let lives = || test.db.write(move |tx| Box::pin(async move { lock_owner(tx, Scope::Agent(agent)).await }));
        assert_eq!(lives().await, Ok(true));
        let keys = keys(&test).await;
        create(&test, &keys, Scope::Agent(agent), "key of the agent").await;
        let install = create(&test, &keys, Scope::Install, "key").await;
        test.db.write(move |tx| Box::pin(async move { formation_store::agents::delete(tx, agent).await })).await.expect("deleted");
        assert_eq!(lives().await, Ok(false));
        assert_eq!(found(&test, Scope::Agent(agent)).await, None, "its account is gone");
        assert_eq!(found(&test, Scope::Install).await.map(|(account, _)| account.id), Some(install.id));
        assert_eq!(test.number("SELECT count(*) FROM secrets").await, 1, "and its key");
    }

    /// The install's run defaults bound the implicit runs of agents that have none of their own.
    async fn install_settings_are_kept_and_bound_implicit_runs(test) {
        let (config, changed) = install::read(&test.db).await.expect("readable");
        assert_eq!((config, changed), (InstallConfig::default(), Changed::default()));
        let agent = test.agent("demo").await;
        assert_eq!(implicit_calls(&test, agent).await, RunDefaults::default().max_tool_calls);

        let run_defaults = RunDefaults { deadline_seconds: 60, max_tool_calls: 7, ..RunDefaults::default() };
        let config = InstallConfig { result_retention_days: 9, private_networks: vec!["10.0.0.0/8".to_owned()], run_defaults };
        for version in 1..=2 {
            let config = config.clone();
            let written = test.db.write(move |tx| Box::pin(async move { install::write(tx, &config, "Nora").await })).await;
            assert_eq!(written, Ok(version));
        }
        let (stored, changed) = install::read(&test.db).await.expect("readable");
        assert_eq!((stored, changed.version, changed.by.as_deref()), (config, 2, Some("Nora")));
        assert_eq!(implicit_calls(&test, agent).await, 7);
        test.meddle("UPDATE agents SET run_defaults = '{\"max_tool_calls\": 11}'").await;
        assert_eq!(implicit_calls(&test, agent).await, 11, "an agent's own bounds win");
    }

    /// L5: admitted attempts count where they were admitted, whatever came of them; refused ones beside them.
    async fn usage_counts_what_became_of_calls(test) {
        let scene = Scene::new(&test).await;
        let start = test.db.now().await.expect("now");
        let (fine, _) = scene.admitted(Tool::BrowserNavigate).await;
        scene.settle(scene.finished(fine, Tool::BrowserNavigate, Outcome::Ok)).await;
        let (failed, _) = scene.admitted(Tool::BrowserNavigate).await;
        scene.settle(scene.finished(failed, Tool::BrowserNavigate, Outcome::Failed)).await;
        test.hands.forward(Duration::from_mins(1));
        // The first process's lease is over by now.
        let scene = Scene { holder: test.instance().await, ..scene.sibling().await };
        let (unsure, grant) = scene.admitted(Tool::BrowserNavigate).await;
        let permit = scene.dispatching(unsure, &crate::support::session(&grant)).await;
        assert_eq!(permit.map(|permit| permit.call()), Some(unsure));
        scene.settle(scene.finished(unsure, Tool::BrowserNavigate, Outcome::Uncertain)).await;
        let turned_away = scene.queued(Tool::BrowserNavigate).await;
        let refusal = Refusal::new(RefusalReason::RateLimited, "Later.");
        let observation = Observation::refusal(Tool::BrowserNavigate, &refusal);
        ledger::refuse(&test.db, turned_away, scene.holder, observation).await.expect("refused");

        let span = |bucket| Span { from: start, to: start.after(Duration::from_hours(1)), bucket };
        let rows = usage::of(&test.db, None, span(Bucket::Minute)).await.expect("readable").expect("few");
        let counts = |admitted, refused, failed, uncertain| Counts { admitted, refused, failed, uncertain };
        let minute = |at: Timestamp| at.micros() / 60_000_000;
        let seen: Vec<_> = rows.iter().map(|(key, counts)| (minute(key.starts) - minute(start), *counts)).collect();
        assert_eq!(seen, [(1, counts(1, 1, 0, 1)), (0, counts(2, 0, 1, 0))]);
        assert!(rows.iter().all(|(key, _)| key.starts.micros() % 60_000_000 == 0), "buckets start at whole minutes");
        let (key, _) = &rows[0];
        assert_eq!((key.capability, key.provider.as_ref().map(VendorId::as_str), key.agent.as_str()), (Capability::Browser, Some("local"), "demo"));
        let day = usage::of(&test.db, Some(scene.agent), span(Bucket::Day)).await.expect("readable").expect("few");
        assert_eq!(day.iter().map(|(_, counts)| *counts).collect::<Vec<_>>(), [counts(3, 1, 1, 1)]);
        let other = test.agent("other").await;
        assert_eq!(usage::of(&test.db, Some(other), span(Bucket::Day)).await, Ok(Some(Vec::new())));
        let before = Span { from: start, to: start, bucket: Bucket::Day };
        assert_eq!(usage::of(&test.db, None, before).await, Ok(Some(Vec::new())), "`to` is not part of it");
    }

    /// L8: the minute is one window of 60 seconds a connection.
    async fn l8_a_meter_shows_its_running_minute(test) {
        let db = &test.db;
        let minute = |scope| async move { usage::minute(db, scope, Capability::Search).await.expect("readable") };
        let now = test.db.now().await.expect("now");
        let shown = minute(Scope::Install).await;
        assert_eq!(shown.used, 0);
        assert!(shown.ends > now && shown.ends.since(now) <= Duration::from_mins(1) && shown.ends.micros() % 60_000_000 == 0);
        let window = now.micros() / 60_000_000;
        test.meddle(&format!("INSERT INTO rate_windows (meter_scope, capability, minute, used) VALUES ('install', 'search', {window}, 9)")).await;
        assert_eq!(minute(Scope::Install).await.used, 9);
        assert_eq!(minute(Scope::Agent(AgentId::fixed(1))).await.used, 0);
        test.hands.forward(shown.ends.since(now));
        assert_eq!(minute(Scope::Install).await.used, 0, "the next minute is a new one");
    }
}

/// `max_calls` of a run that the agent's token opens by calling.
async fn implicit_calls(test: &TestDb, agent: AgentId) -> i64 {
    let knock = runs::Knock {
        agent,
        token: test.token(agent).await,
        door: runs::Door::Current,
        conversation: None,
        purpose: runs::Purpose::Call,
        idle_after: Duration::from_mins(15),
    };
    match test.db.write(move |tx| Box::pin(async move { runs::behind(tx, &knock).await })).await.expect("a run opens") {
        Behind::Open { run, .. } => run.max_calls,
        Behind::Over { reason, .. } => panic!("over: {reason:?}"),
        Behind::Revoked => panic!("the token is good"),
    }
}
