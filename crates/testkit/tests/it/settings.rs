//! Web settings over HTTP: who may set what, what is refused, and what agents are offered then (W1–W11, W24, O1–O5, O10, O11, O14).

use formation_testkit::{
    brave::KEY,
    databases::TestDb,
    http::{Client, Reply, send},
    on_both_databases,
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::stage::{Stage, contents, plain};

const INSTALL: &str = "/api/settings/web";
const ALPHA: &str = "/api/agents/alpha/web";

async fn change(client: &Client, method: Method, path: &str, body: &Value) -> Reply {
    send(client.request(method, path).json(body)).await.expect("an answer")
}

async fn put(client: &Client, path: &str, body: Value) -> Reply {
    change(client, Method::PUT, path, &body).await
}

async fn saved(client: &Client, path: &str, body: Value) -> Value {
    let reply = put(client, path, body).await;
    assert_eq!(reply.status, 200, "{path}: {reply:?}");
    reply.json()
}

async fn connect(client: &Client, base: &str, version: i64, key: &str) -> Value {
    saved(client, &format!("{base}/vendors/brave"), json!({"version": version, "api_key": key})).await
}

async fn listing(client: &Client, base: &str) -> Value {
    let reply = client.get(base).await.expect("an answer");
    assert_eq!((reply.status, reply.header("cache-control")), (200, "no-store"));
    reply.json()
}

/// One capability of a listing.
fn capability<'l>(listing: &'l Value, word: &str) -> &'l Value {
    let found = listing["capabilities"].as_array().expect("a list").iter().find(|one| one["capability"] == word);
    found.expect("the capability is listed")
}

fn vendor<'l>(listing: &'l Value, word: &str) -> &'l Value {
    listing["vendors"].as_array().expect("a list").iter().find(|one| one["vendor"] == word).expect("the vendor is listed")
}

/// Who pays for a capability: provider, whose credential, which kind of account, its version; and why nobody does.
fn payer(listing: &Value, word: &str) -> Value {
    let one = capability(listing, word);
    json!([
        one["effective_provider"],
        one["credential_source"],
        one["account_source"],
        one["account_version"],
        one["unavailable_reason"]
    ])
}

fn nobody(reason: &str) -> Value {
    json!(["", "", "", 0, reason])
}

async fn tools(agent: &Client) -> Vec<String> {
    let run = agent.open_run(&json!({})).await.expect("a run");
    let offers = run.client.get("/v1/run/tools").await.expect("offers").json();
    offers.as_array().expect("a list").iter().map(|offer| offer["name"].as_str().expect("a name").to_owned()).collect()
}

/// What is refused, with which code and field; nothing but the audit trail knows of it.
async fn refused(db: &TestDb, client: &Client, table: &[(&str, Value, u16, &str, &str)]) {
    let mut before = contents(db).await;
    before.remove("audit");
    for (path, body, status, code, field) in table {
        let reply = put(client, path, body.clone()).await;
        let said = reply.json();
        let told = said["fields"]["field"].as_str().unwrap_or_default();
        assert_eq!((reply.status, reply.code().as_str(), told), (*status, *code, *field), "{path} {body}: {said}");
        let mut after = contents(db).await;
        after.remove("audit");
        assert_eq!(after, before, "{path} {body}");
    }
}

on_both_databases! {
    /// O1, W1, W6, W8: everything there is to set, before anything is set.
    async fn o1_a_listing_says_what_is_set_and_what_could_be(db) {
        let stage = Stage::of(&db, plain());
        let owner = db.owner(&stage.client, "Owner").await.client;
        let install = listing(&owner, INSTALL).await;
        assert_eq!(install["scope"], "install");
        let words: Vec<&Value> = install["capabilities"].as_array().expect("a list").iter().map(|one| &one["capability"]).collect();
        assert_eq!(words, ["search", "read", "browser"]);
        let search = capability(&install, "search");
        assert_eq!(search["settings"], json!({"mode": "auto", "provider": "", "config": {}, "version": 0,
            "limits": {"requests_per_minute": 60, "requests_per_run": 50}}));
        assert_eq!((&search["available"], &search["credential_present"], &search["meter"]), (&json!(false), &json!(false), &Value::Null));
        assert_eq!(payer(&install, "search"), nobody("no_account"));
        assert_eq!(search["providers"][0]["name"], "brave");
        for word in ["label", "vendor", "permissions", "fields", "boundary"] {
            assert!(search["providers"][0].get(word).is_some_and(|value| *value != ""), "{word}");
        }
        let browser = capability(&install, "browser");
        assert_eq!((&browser["settings"]["limits"], &browser["meter"]), (&Value::Null, &Value::Null), "a browser isn't metered");
        assert_eq!(browser["providers"][0]["fields"][0]["kind"], "hostnames");
        let brave = vendor(&install, "brave");
        let expected = json!({"config": {}, "version": 0, "credential_source": "", "configured": false, "environment_available": false});
        for (word, value) in expected.as_object().expect("an object") {
            assert_eq!(&brave[word], value, "{word}");
        }
        assert!(brave["setup_links"][0]["url"].as_str().is_some_and(|url| url.starts_with("https://")));
        assert_eq!(brave["capabilities"][0]["capability"], "search");
        assert_eq!(install["vendors"].as_array().and_then(|all| all.last()).map(|last| &last["vendor"]), Some(&json!("local")));

        let agent = listing(&owner, ALPHA).await;
        assert_eq!(agent["scope"], "agent");
        let own = &capability(&agent, "search")["settings"];
        assert_eq!(own, &json!({"mode": "inherit", "provider": "", "config": {}, "version": 0,
            "limits": {"requests_per_minute": null, "requests_per_run": null}}));
        assert_eq!(payer(&agent, "search"), nobody("no_account"));
    }

    /// O2, O3, O14, W2, W8: one key stored for the install serves every agent at once; no answer shows it.
    async fn o3_an_account_is_stored_rotated_and_never_shown(db) {
        let stage = Stage::of(&db, plain());
        let owner = db.owner(&stage.client, "Owner").await.client;
        assert_eq!(tools(&stage.alpha).await, Vec::<String>::new());
        let made = connect(&owner, INSTALL, 0, KEY).await;
        assert_eq!(payer(&made, "search"), json!(["brave", "install", "owner", 1, ""]));
        let brave = vendor(&made, "brave");
        assert_eq!((&brave["version"], &brave["credential_source"], &brave["configured"]), (&json!(1), &json!("owner"), &json!(true)));
        let meter = &capability(&made, "search")["meter"];
        assert_eq!((&meter["minute_used"], &meter["minute_limit"]), (&json!(0), &json!(60)));
        assert!(meter["window_ends"].as_str().is_some_and(|ends| ends.ends_with("00.000Z")), "{meter}");
        assert_eq!(tools(&stage.alpha).await, ["web_search"], "no restart, no variable");
        assert_eq!(payer(&listing(&owner, ALPHA).await, "search"), json!(["brave", "install", "owner", 1, ""]));

        let kept = saved(&owner, &format!("{INSTALL}/vendors/brave"), json!({"version": 1})).await;
        assert_eq!(payer(&kept, "search"), json!(["brave", "install", "owner", 2, ""]));
        assert_eq!(connect(&owner, INSTALL, 2, "BSA-another-key").await["vendors"][0]["version"], 3);
        assert_eq!(db.number("SELECT count(*) FROM secrets").await, 1);
        let own = connect(&owner, ALPHA, 0, "BSA-of-the-agent").await;
        assert_eq!(payer(&own, "search"), json!(["brave", "install", "owner", 3, ""]), "an account alone changes no mode");

        let shown = [made, kept, own, listing(&owner, INSTALL).await, listing(&owner, ALPHA).await];
        let dump = contents(&db).await;
        for key in [KEY, "BSA-another-key", "BSA-of-the-agent"] {
            assert!(shown.iter().all(|one| !one.to_string().contains(key)), "an answer shows a key");
            assert!(dump.values().flatten().all(|row| !row.contains(key)), "the database holds a key in the open");
            assert!(!stage.place.logs().contains(key), "the log holds a key");
        }
    }

    /// O3, W3: each bad account has a code of its own, a setting that is not the vendor's included, and nothing is stored.
    async fn o3_a_bad_account_is_refused_with_its_own_code(db) {
        let stage = Stage::of(&db, plain());
        let owner = db.owner(&stage.client, "Owner").await.client;
        for base in [INSTALL, ALPHA] {
            let brave = format!("{base}/vendors/brave");
            let brave = brave.as_str();
            let (local, unknown) = (format!("{base}/vendors/local"), format!("{base}/vendors/acme"));
            refused(&db, &owner, &[
                (brave, json!({"version": 0}), 412, "credential_required", "api_key"),
                (brave, json!({"version": 0, "api_key": null}), 412, "credential_required", "api_key"),
                (brave, json!({"version": 0, "api_key": ""}), 422, "blank_credential", "api_key"),
                (brave, json!({"version": 0, "api_key": " \t"}), 422, "blank_credential", "api_key"),
                (brave, json!({"version": 0, "api_key": "k\n"}), 422, "invalid_value", "api_key"),
                (brave, json!({"version": 0, "api_key": "k".repeat(4097)}), 422, "invalid_value", "api_key"),
                (brave, json!({"version": 0, "api_key": 7}), 422, "invalid_value", "api_key"),
                (brave, json!({"api_key": "k"}), 422, "invalid_value", "version"),
                (brave, json!({"version": "0", "api_key": "k"}), 422, "invalid_value", "version"),
                (brave, json!({"version": 0, "api_key": "k", "config": {"account_id": "a"}}), 422, "unknown_field", "config.account_id"),
                (brave, json!({"version": 0, "api_key": "k", "config": []}), 422, "invalid_value", "config"),
                (brave, json!({"version": 0, "api_key": "k", "key": "k"}), 422, "unknown_field", "key"),
                (brave, json!({"version": 3, "api_key": "k"}), 409, "stale_version", ""),
                (&local, json!({"version": 0, "api_key": "k"}), 409, "managed_by_environment", ""),
                (&unknown, json!({"version": 0, "api_key": "k"}), 404, "not_found", ""),
            ]).await;
        }
        let reply = change(&owner, Method::DELETE, &format!("{INSTALL}/vendors/local"), &json!({"version": 0})).await;
        assert_eq!((reply.status, reply.code().as_str()), (409, "managed_by_environment"));
        let reply = change(&owner, Method::DELETE, &format!("{INSTALL}/vendors/brave"), &json!({"version": 0})).await;
        assert_eq!((reply.status, reply.code().as_str()), (404, "not_found"));
    }

    /// O4, W5, W9: a removed account takes key and settings along; what pointed at it is unavailable and borrows nothing.
    async fn o4_removing_an_account_leaves_its_connections_unavailable(db) {
        let stage = Stage::of(&db, plain());
        let owner = db.owner(&stage.client, "Owner").await.client;
        connect(&owner, INSTALL, 0, KEY).await;
        connect(&owner, ALPHA, 0, KEY).await;
        saved(&owner, &format!("{ALPHA}/search"), json!({"version": 0, "mode": "own", "provider": "brave"})).await;
        assert_eq!(payer(&listing(&owner, ALPHA).await, "search"), json!(["brave", "agent", "owner", 1, ""]));
        let stale = change(&owner, Method::DELETE, &format!("{ALPHA}/vendors/brave"), &json!({"version": 2})).await;
        assert_eq!((stale.status, stale.code().as_str()), (409, "stale_version"));
        assert_eq!((&stale.json()["fields"]["version"], &stale.json()["fields"]["changed_by"]), (&json!(1), &json!("Owner")));
        let removed = change(&owner, Method::DELETE, &format!("{ALPHA}/vendors/brave"), &json!({"version": 1})).await;
        assert_eq!(removed.status, 200, "{removed:?}");
        assert_eq!(payer(&removed.json(), "search"), nobody("account_missing"), "the install's account isn't borrowed (W10)");
        assert_eq!(tools(&stage.alpha).await, Vec::<String>::new());
        assert_eq!(tools(&stage.beta).await, ["web_search"]);
        assert_eq!(db.number("SELECT count(*) FROM secrets").await, 1);
        let again = connect(&owner, ALPHA, 0, KEY).await;
        assert_eq!(payer(&again, "search"), json!(["brave", "agent", "owner", 1, ""]));
    }

    /// O5, W7, W8, L8: each mode with what it takes, and every half of one refused.
    async fn o5_a_connection_is_replaced_as_a_whole_or_not_at_all(db) {
        let stage = Stage::of(&db, plain());
        let owner = db.owner(&stage.client, "Owner").await.client;
        let (install, agent) = (format!("{INSTALL}/search"), format!("{ALPHA}/search"));
        let (install_browser, install_read) = (format!("{INSTALL}/browser"), format!("{INSTALL}/read"));
        let unknown = format!("{INSTALL}/telepathy");
        let limits = |minute: Value, run: Value| json!({"version": 0, "mode": "auto", "limits": {"requests_per_minute": minute, "requests_per_run": run}});
        refused(&db, &owner, &[
            (&install, json!({"version": 0, "mode": "own", "provider": "brave"}), 412, "account_required", "provider"),
            (&agent, json!({"version": 0, "mode": "own", "provider": "brave"}), 412, "account_required", "provider"),
            (&install, json!({"version": 0, "mode": "own"}), 422, "invalid_value", "provider"),
            (&install, json!({"version": 0, "mode": "own", "provider": "acme"}), 422, "invalid_value", "provider"),
            (&install, json!({"version": 0, "mode": "own", "provider": "local"}), 422, "invalid_value", "provider"),
            (&install, json!({"version": 0, "mode": "inherit"}), 422, "invalid_value", "mode"),
            (&agent, json!({"version": 0, "mode": "auto"}), 422, "invalid_value", "mode"),
            (&install, json!({"version": 0, "mode": "sometimes"}), 422, "invalid_value", "mode"),
            (&install, json!({"version": 0}), 422, "invalid_value", "mode"),
            (&install, json!({"version": 0, "mode": "auto", "provider": "brave"}), 422, "invalid_value", "provider"),
            (&install, json!({"version": 0, "mode": "auto", "config": {"a": 1}}), 422, "invalid_value", "config"),
            (&agent, json!({"version": 0, "mode": "inherit", "provider": "brave"}), 422, "invalid_value", "provider"),
            (&install, limits(json!(0), json!(1)), 422, "invalid_value", "limits.requests_per_minute"),
            (&install, limits(json!(6001), json!(1)), 422, "invalid_value", "limits.requests_per_minute"),
            (&install, limits(json!(1), json!(10001)), 422, "invalid_value", "limits.requests_per_run"),
            (&install, limits(json!(1.5), json!(1)), 422, "invalid_value", "limits"),
            (&agent, json!({"version": 0, "mode": "inherit", "limits": {"requests_per_minute": 5}}), 422, "invalid_value", "limits.requests_per_minute"),
            (&agent, json!({"version": 0, "mode": "inherit", "limits": {"requests_per_run": 51}}), 422, "limit_above_install", "limits.requests_per_run"),
            (&install_browser, json!({"version": 0, "mode": "auto", "limits": {"requests_per_run": 5}}), 422, "invalid_value", "limits"),
            (&install_browser, json!({"version": 0, "mode": "own", "provider": "local"}), 422, "allowed_hosts_required", "config.allowed_hosts"),
            (&install_browser, json!({"version": 0, "mode": "own", "provider": "local", "config": {"allowed_hosts": ["https://a.example"]}}), 422, "invalid_value", "config.allowed_hosts"),
            (&install_browser, json!({"version": 0, "mode": "own", "provider": "local", "config": {"allowed_hosts": []}}), 412, "account_required", "provider"),
            (&install_read, json!({"version": 0, "mode": "own", "provider": "brave"}), 422, "invalid_value", "provider"),
            (&install, json!({"version": 1, "mode": "disabled"}), 409, "stale_version", ""),
            (&unknown, json!({"version": 0, "mode": "disabled"}), 404, "not_found", ""),
        ]).await;

        connect(&owner, INSTALL, 0, KEY).await;
        let lowered = saved(&owner, &agent, json!({"version": 0, "mode": "inherit", "limits": {"requests_per_run": 50}})).await;
        assert_eq!(capability(&lowered, "search")["settings"]["limits"], json!({"requests_per_minute": null, "requests_per_run": 50}));
        let pinned = json!({"version": 0, "mode": "own", "provider": "brave", "limits": {"requests_per_minute": 7}});
        let pinned = saved(&owner, &install, pinned).await;
        let row = &capability(&pinned, "search")["settings"];
        assert_eq!((&row["mode"], &row["provider"], &row["version"]), (&json!("own"), &json!("brave"), &json!(1)));
        assert_eq!(row["limits"], json!({"requests_per_minute": 7, "requests_per_run": 50}));
        assert_eq!(capability(&listing(&owner, ALPHA).await, "search")["meter"]["minute_limit"], 7, "the minute is the install's (L8)");
        let off = saved(&owner, &install, json!({"version": 1, "mode": "disabled"})).await;
        assert_eq!(payer(&off, "search"), nobody("disabled"));
        assert_eq!(tools(&stage.beta).await, Vec::<String>::new(), "W9");
        let auto = saved(&owner, &install, json!({"version": 2, "mode": "auto", "provider": "", "config": {}})).await;
        assert_eq!(payer(&auto, "search"), json!(["brave", "install", "owner", 1, ""]), "switching never touched the key (W4)");
        let off = saved(&owner, &agent, json!({"version": 1, "mode": "disabled"})).await;
        assert_eq!(payer(&off, "search"), nobody("disabled"));
        assert_eq!((tools(&stage.alpha).await, tools(&stage.beta).await), (Vec::new(), vec!["web_search".to_owned()]));
    }

    /// O11: an agent's settings need access to that agent; the install's are the owner's alone, and out of an agent's reach.
    async fn o11_a_member_sets_its_own_agent_and_nothing_else(db) {
        let stage = Stage::of(&db, plain());
        let owner = db.owner(&stage.client, "Owner").await.client;
        let member = db.member(&stage.client, "Member", &["alpha"]).await.client;
        let own = connect(&member, ALPHA, 0, KEY).await;
        assert_eq!(vendor(&own, "brave")["version"], 1);
        let own = saved(&member, &format!("{ALPHA}/search"), json!({"version": 0, "mode": "own", "provider": "brave"})).await;
        assert_eq!(payer(&own, "search"), json!(["brave", "agent", "owner", 1, ""]));
        assert_eq!(listing(&member, ALPHA).await, own);
        assert_eq!(payer(&listing(&owner, INSTALL).await, "search"), nobody("no_account"), "the install has none of it");

        let mut before = contents(&db).await;
        before.remove("audit");
        for (base, status) in [(INSTALL, 403), ("/api/agents/beta/web", 404), ("/api/agents/nobody/web", 404)] {
            for (method, path, body) in [
                (Method::GET, String::new(), json!({})),
                (Method::GET, "/usage".to_owned(), json!({})),
                (Method::PUT, "/vendors/brave".to_owned(), json!({"version": 0, "api_key": KEY})),
                (Method::DELETE, "/vendors/brave".to_owned(), json!({"version": 1})),
                (Method::PUT, "/search".to_owned(), json!({"version": 0, "mode": "disabled"})),
            ] {
                let reply = change(&member, method.clone(), &format!("{base}{path}"), &body).await;
                assert_eq!(reply.status, status, "{method} {base}{path}");
            }
        }
        assert_eq!(member.get("/api/settings/install").await.expect("an answer").status, 403);
        assert_eq!(put(&member, "/api/settings/install", json!({"version": 0})).await.status, 403);
        let mut after = contents(&db).await;
        after.remove("audit");
        assert_eq!(after, before);
    }

    /// O10, R-20: one row for each change, done, stale, refused or denied, and never a key in it.
    async fn o10_every_write_leaves_one_row_in_the_audit_trail(db) {
        let stage = Stage::of(&db, plain());
        let owner = db.owner(&stage.client, "Owner").await.client;
        let member = db.member(&stage.client, "Member", &["beta"]).await.client;
        let trail = || async {
            db.texts("SELECT actor_name || ' ' || action || ' ' || outcome || CASE WHEN agent_id IS NULL THEN '' ELSE ' agent' END FROM audit WHERE actor_kind <> 'host' ORDER BY id").await
        };
        let account = format!("{INSTALL}/vendors/brave");
        connect(&owner, INSTALL, 0, KEY).await;
        put(&owner, &account, json!({"version": 0, "api_key": KEY})).await;
        put(&owner, &account, json!({"version": 1, "api_key": ""})).await;
        put(&member, &account, json!({"version": 1, "api_key": KEY})).await;
        put(&owner, &format!("{ALPHA}/search"), json!({"version": 0, "mode": "disabled"})).await;
        put(&member, &format!("{ALPHA}/search"), json!({"version": 1, "mode": "inherit"})).await;
        change(&owner, Method::DELETE, &account, &json!({"version": 1})).await;
        put(&owner, "/api/settings/install", json!({"version": 0, "result_retention_days": 7})).await;
        assert_eq!(trail().await, [
            "Owner install.web.account.save done",
            "Owner install.web.account.save stale",
            "Owner install.web.account.save refused",
            "Member install.web.account.save denied",
            "Owner agent.web.connection.save done agent",
            "Member agent.web.connection.save denied",
            "Owner install.web.account.remove done",
            "Owner install.settings.save done",
        ]);
        assert!(db.texts("SELECT detail FROM audit").await.iter().all(|detail| !detail.contains(KEY)));
    }

    /// S-09: no privileged name gets through, whatever it is put into.
    async fn bar_s09_settings_take_no_extra_properties(db) {
        const NAMES: [&str; 30] = [
            "owner", "agent_id", "agent", "role", "is_admin", "admin", "managed", "credential_source", "account_source", "secret_id",
            "secret", "enabled", "scope", "id", "account_id", "updated_by", "changed_by", "created_at", "updated_at", "environment",
            "environment_available", "effective_provider", "available", "meter", "vendor", "revision", "key_id", "permissions", "actor",
            "token",
        ];
        let stage = Stage::of(&db, plain());
        let owner = db.owner(&stage.client, "Owner").await.client;
        let mut writes = vec![(Method::PUT, "/api/settings/install".to_owned(), json!({"version": 0}))];
        for base in [INSTALL, ALPHA] {
            writes.push((Method::PUT, format!("{base}/vendors/brave"), json!({"version": 0, "api_key": "k"})));
            writes.push((Method::DELETE, format!("{base}/vendors/brave"), json!({"version": 0})));
            writes.push((Method::PUT, format!("{base}/search"), json!({"version": 0, "mode": "disabled"})));
        }
        let mut before = contents(&db).await;
        before.remove("audit");
        for (method, path, body) in writes {
            for name in NAMES {
                let mut body = body.clone();
                body[name] = json!(true);
                let reply = change(&owner, method.clone(), &path, &body).await;
                assert_eq!((reply.status, reply.code().as_str()), (422, "unknown_field"), "{method} {path} {name}");
            }
        }
        let mut after = contents(&db).await;
        after.remove("audit");
        assert_eq!(after, before);
    }

    /// O3, O5: of writes made on one version exactly one wins, and the others hear who it was.
    async fn o5_of_simultaneous_writes_one_wins(db) {
        let stage = Stage::of(&db, plain());
        let owner = db.owner(&stage.client, "Owner").await.client;
        for (path, body) in [
            (format!("{INSTALL}/vendors/brave"), json!({"version": 0, "api_key": KEY})),
            (format!("{INSTALL}/search"), json!({"version": 0, "mode": "disabled"})),
            (format!("{ALPHA}/search"), json!({"version": 0, "mode": "disabled"})),
            ("/api/settings/install".to_owned(), json!({"version": 0})),
        ] {
            let replies = futures::future::join_all((0..8).map(|_| put(&owner, &path, body.clone()))).await;
            let mut statuses: Vec<u16> = replies.iter().map(|reply| reply.status).collect();
            statuses.sort_unstable();
            assert_eq!(statuses, [200, 409, 409, 409, 409, 409, 409, 409], "{path}");
            for stale in replies.iter().filter(|reply| reply.status == 409) {
                assert_eq!((stale.code().as_str(), &stale.json()["fields"]["version"]), ("stale_version", &json!(1)), "{path}");
            }
        }
    }

    /// contract.md 2: the install's own settings.
    async fn install_settings_are_read_replaced_and_checked(db) {
        let stage = Stage::of(&db, plain());
        let owner = db.owner(&stage.client, "Owner").await.client;
        let path = "/api/settings/install";
        let bounds = json!({"deadline_seconds": 21600, "max_tool_calls": 5000, "browser_profile": true});
        let fresh = owner.get(path).await.expect("an answer").json();
        assert_eq!(fresh, json!({"version": 0, "result_retention_days": 30, "private_networks": [], "run_defaults": bounds, "changed_by": null, "changed_at": null}));
        refused(&db, &owner, &[
            (path, json!({"version": 0, "result_retention_days": 0}), 422, "invalid_value", "result_retention_days"),
            (path, json!({"version": 0, "result_retention_days": 3651}), 422, "invalid_value", "result_retention_days"),
            (path, json!({"version": 0, "private_networks": ["10.0.0.0"]}), 422, "invalid_value", "private_networks"),
            (path, json!({"version": 0, "private_networks": ["169.254.0.0/16"]}), 422, "invalid_value", "private_networks"),
            (path, json!({"version": 0, "private_networks": "10.0.0.0/8"}), 422, "invalid_value", "private_networks"),
            (path, json!({"version": 0, "run_defaults": {"deadline_seconds": 21601}}), 422, "invalid_value", "run_defaults.deadline_seconds"),
            (path, json!({"version": 0, "run_defaults": {"max_tool_calls": 0}}), 422, "invalid_value", "run_defaults.max_tool_calls"),
            (path, json!({"version": 1}), 409, "stale_version", ""),
            (path, json!({}), 422, "invalid_value", "version"),
        ]).await;
        let set = json!({"version": 0, "result_retention_days": 7, "private_networks": ["10.0.0.0/8", "FD00::/8", "10.0.0.0/8"], "run_defaults": {"max_tool_calls": 9}});
        let stored = saved(&owner, path, set).await;
        assert_eq!((&stored["version"], &stored["changed_by"]), (&json!(1), &json!("Owner")));
        assert_eq!((&stored["result_retention_days"], &stored["private_networks"]), (&json!(7), &json!(["10.0.0.0/8", "fd00::/8"])));
        assert_eq!(stored["run_defaults"], json!({"deadline_seconds": 21600, "max_tool_calls": 9, "browser_profile": true}));
        assert_eq!(owner.get(path).await.expect("an answer").json(), stored);
    }

    /// L5: usage by buckets; a span that makes no sense is refused.
    async fn usage_is_read_by_buckets(db) {
        let stage = Stage::of(&db, plain());
        let owner = db.owner(&stage.client, "Owner").await.client;
        let run = stage.alpha.open_run(&json!({})).await.expect("a run");
        run.call(None, "web_search", &json!({"query": "tide tables"})).await.expect("a refusal");
        let usage = owner.get(&format!("{INSTALL}/usage?bucket=hour")).await.expect("an answer").json();
        assert_eq!(usage["bucket"], "hour");
        let row = &usage["items"][0];
        let counted = json!([row["capability"], row["provider"], row["agent"], row["admitted"], row["refused"], row["failed"], row["uncertain"]]);
        assert_eq!(counted, json!(["search", "", "alpha", 0, 1, 0, 0]), "nobody offered it: {usage}");
        let other = owner.get("/api/agents/beta/web/usage").await.expect("an answer").json();
        assert_eq!((&other["bucket"], &other["items"]), (&json!("day"), &json!([])));
        for bad in [
            "bucket=week",
            "from=yesterday",
            "since=2026-01-01T00:00:00Z",
            "from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z",
            "from=1969-01-02T00:00:00Z&to=1970-01-01T00:00:00Z",
            "bucket=minute&from=2026-01-01T00:00:00Z&to=2026-02-01T00:00:00Z",
        ] {
            let reply = owner.get(&format!("{INSTALL}/usage?{bad}")).await.expect("an answer");
            assert_eq!((reply.status, reply.code().as_str()), (422, "invalid_value"), "{bad}");
        }
    }

    /// A credential that doesn't open is said, and nothing else is used in its place (W10).
    async fn w10_an_unreadable_credential_is_told_and_not_replaced(db) {
        let stage = Stage::of(&db, plain());
        let owner = db.owner(&stage.client, "Owner").await.client;
        connect(&owner, INSTALL, 0, KEY).await;
        connect(&owner, ALPHA, 0, "BSA-of-the-agent").await;
        saved(&owner, &format!("{ALPHA}/search"), json!({"version": 0, "mode": "own", "provider": "brave"})).await;
        db.meddle("UPDATE secrets SET revision = 9 WHERE owner <> 'install'").await;
        let own = listing(&owner, ALPHA).await;
        assert_eq!(payer(&own, "search"), json!(["brave", "agent", "owner", 1, "credential_unreadable"]));
        assert_eq!(capability(&own, "search")["available"], false);
        assert_eq!(payer(&listing(&owner, INSTALL).await, "search"), json!(["brave", "install", "owner", 1, ""]));
    }

    /// Hostname lists over HTTP: both forms in, normal forms out (B3); they lie on the connection (W3), with the environment's browser as the account (W14).
    async fn w14_a_pinned_browser_keeps_its_hostname_list_chromium(db) {
        let stage = Stage::of(&db, plain().with_browser());
        let owner = db.owner(&stage.client, "Owner").await.client;
        assert_eq!(payer(&listing(&owner, INSTALL).await, "browser"), json!(["local", "install", "environment", 0, ""]));
        let local = vendor(&listing(&owner, INSTALL).await, "local").clone();
        assert_eq!((&local["credential_source"], &local["configured"], &local["environment_available"]), (&json!("environment"), &json!(true), &json!(true)));
        let pin = |version: i64, hosts: Value| json!({"version": version, "mode": "own", "provider": "local", "config": {"allowed_hosts": hosts}});
        let path = format!("{INSTALL}/browser");
        let named = saved(&owner, &path, pin(0, json!("B\u{fc}cher.de, ::1"))).await;
        assert_eq!(capability(&named, "browser")["settings"]["config"], json!({"allowed_hosts": ["xn--bcher-kva.de", "[::1]"]}));
        let cleared = saved(&owner, &path, pin(1, json!([]))).await;
        assert_eq!(capability(&cleared, "browser")["settings"]["config"], json!({"allowed_hosts": []}));
        let agent = listing(&owner, ALPHA).await;
        let local = vendor(&agent, "local");
        assert_eq!((&local["configured"], &local["environment_available"]), (&json!(false), &json!(true)));
        let borrowed = put(&owner, &format!("{ALPHA}/browser"), pin(0, json!([]))).await;
        assert_eq!((borrowed.status, borrowed.code().as_str()), (412, "account_required"), "the environment's account is no agent's own (W15)");
    }
}
