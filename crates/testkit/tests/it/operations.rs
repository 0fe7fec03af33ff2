//! What whoever runs a server sees of it: metrics, health, and a log of lines.

use std::{fs, os::unix::fs::PermissionsExt as _};

use formation_testkit::{
    http::{Client, send},
    on_both_databases,
    processes::comes_true,
    server::Place,
};
use http::Method;
use serde_json::{Value, json};

use crate::{
    search::{Searching, query},
    stage::{Stage, plain},
    within,
};

/// The log's lines, each of which must be one JSON object; `what` words them.
fn lines(place: &Place) -> Vec<Value> {
    let logs = place.logs();
    let all: Vec<&str> = logs.split_terminator('\n').collect();
    for line in &all {
        assert!(!line.chars().any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')), "a raw control character: {line:?}");
    }
    all.iter().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not one JSON object: {line:?}"))).collect()
}

/// Those with this message.
fn said(place: &Place, message: &str) -> Vec<Value> {
    lines(place).into_iter().filter(|line| line["message"] == message).collect()
}

async fn get(client: &Client, path: &str) -> String {
    let reply = client.get(path).await.expect("an answer");
    assert_eq!(reply.status, 200, "{path}: {reply:?}");
    String::from_utf8(reply.body).expect("text")
}

/// The value of the one sample of this name with all these labels.
fn sample(metrics: &str, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let has = |line: &&str| labels.iter().all(|(label, word)| line.contains(&format!("{label}=\"{word}\"")));
    let mut found = metrics.lines().filter(|line| line.split(['{', ' ']).next() == Some(name)).filter(has);
    let line = found.next()?;
    assert_eq!(found.next(), None, "{name} {labels:?} is one sample");
    line.rsplit_once(' ')?.1.parse().ok()
}

on_both_databases! {
    /// Calls, refusals, waits and requests, in words of closed sets: nothing of whoever called is a label.
    async fn metrics_count_in_closed_words(db) {
        let searching = Searching::with(&db, |setup| setup.flag("--metrics-listen").flag("127.0.0.1:0")).await;
        let run = searching.run().await;
        run.does("web_search", &query("tide tables")).await.expect("results");
        for _ in 0..2 {
            run.call(None, "web_search", &json!({"question": "tide tables"})).await.expect("a refusal");
        }
        searching.stage.client.get("/no/such/route").await.expect("an answer");
        let told = said(&searching.stage.place, "telling metrics").remove(0);
        let open = Client::new(&format!("http://{}", told["metrics.address"].as_str().expect("an address")));
        let metrics = get(&open, "/metrics").await;
        let ended = [("tool", "web_search"), ("vendor", "brave"), ("execution", "succeeded"), ("outcome", "ok")];
        assert_eq!(sample(&metrics, "formation_calls_total", &ended), Some(1.0), "{metrics}");
        assert_eq!(sample(&metrics, "formation_refusals_total", &[("tool", "web_search"), ("reason", "invalid_arguments")]), Some(2.0));
        for (name, labels) in [
            ("formation_provider_duration_seconds_count", [("tool", "web_search"), ("vendor", "brave")].as_slice()),
            ("formation_admission_duration_seconds_count", &[("capability", "search")]),
            ("formation_provider_duration_seconds_bucket", &[("vendor", "brave"), ("le", "+Inf")]),
        ] {
            assert_eq!(sample(&metrics, name, labels), Some(1.0), "{name}: {metrics}");
        }
        assert_eq!(sample(&metrics, "formation_http_requests_total", &[("route", "/v1/run/tool-calls"), ("status", "200")]), Some(3.0));
        assert_eq!(sample(&metrics, "formation_http_requests_total", &[("route", "none"), ("status", "404")]), Some(1.0));
        assert_eq!(sample(&metrics, "formation_running_calls", &[]), Some(0.0));
        assert_eq!(sample(&metrics, "formation_browser_sessions", &[]), Some(0.0));
        assert!(sample(&metrics, "formation_database_connections", &[("state", "idle")]).is_some(), "{metrics}");
        for theirs in ["alpha", "tide", "fma_", run.id.as_str(), "/no/such"] {
            assert!(!metrics.contains(theirs), "`{theirs}` is in {metrics}");
        }
        let owners = get(&searching.owner.client, "/metrics").await;
        assert_eq!(sample(&owners, "formation_calls_total", &ended), Some(1.0), "{owners}");
        for path in ["/", "/api/openapi.json", "/v1/runs", "/readyz"] {
            assert_eq!(open.get(path).await.expect("an answer").status, 404, "{path}: metrics and nothing else");
        }
    }

    /// One line a call, with tool, vendor, outcome and times, under its request's id; never its arguments or results.
    async fn a_call_leaves_one_line_without_its_arguments(db) {
        let searching = Searching::start(&db).await;
        let run = searching.run().await;
        let reply = run.call(None, "web_search", &query("secret tide tables")).await.expect("an answer");
        let call = reply.json();
        let [line] = said(&searching.stage.place, "call ended").try_into().expect("one line");
        assert_eq!((&line["call.id"], &line["call.tool"], &line["vendor.name"]), (&call["id"], &json!("web_search"), &json!("brave")), "{line}");
        assert_eq!((&line["call.execution"], &line["call.outcome"]), (&json!("succeeded"), &json!("ok")), "{line}");
        assert!(line["duration_ms"].is_u64(), "{line}");
        assert_eq!(line["span"]["request.id"], json!(reply.header("x-request-id")), "{line}");
        assert!(!searching.stage.place.logs().contains("tide"), "no argument, no result");
    }

    /// Whoever gets a 5xx finds what happened in the log by the id in their hands.
    async fn a_fault_of_ours_is_found_by_its_request_s_id(db) {
        let stage = Stage::of(&db, plain());
        let owner = db.owner(&stage.client, "Owner").await.client;
        db.meddle("UPDATE agents SET run_defaults = 'unreadable' WHERE slug = 'alpha'").await;
        let reply = owner.get("/api/agents/alpha").await.expect("an answer");
        assert_eq!((reply.status, reply.code().as_str()), (500, "internal"), "{reply:?}");
        let id = reply.header("x-request-id").to_owned();
        assert_eq!(reply.json()["instance"], format!("urn:formation:request:{id}"));
        let of_it: Vec<_> = lines(&stage.place).into_iter().filter(|line| line["span"]["request.id"] == json!(id)).collect();
        assert!(of_it.iter().any(|line| line["level"] == "ERROR" && line["error"].as_str().is_some_and(|said| said.contains("run defaults"))), "{of_it:?}");
        assert!(of_it.iter().any(|line| line["message"] == "answered" && line["http.status"] == 500), "{of_it:?}");
    }

    /// S-19: CR, LF, ANSI, NUL and U+2028 in over fifty fields, our crates at trace: each line is one JSON object without a raw one.
    async fn bar_s19_hostile_fields_make_no_lines(db) {
        let searching = Searching::with(&db, |setup| setup.variable("FORMATION_LOG", "trace")).await;
        let (stage, owner) = (&searching.stage, &searching.owner.client);
        let run = searching.run().await;
        let hostile = "h\r\nostile\u{1b}[31m\u{2028}\u{2029}\u{85}\u{7f}\t\u{0}{\"level\":\"INFO\"}";
        let in_path = "h%0D%0Aostile%1B%5B31m%E2%80%A8%00";
        let mut sent = 0_usize;
        let id = format!("/api/runs/{}", run.id);
        let reconcile = format!("{id}/tool-calls/{}/reconcile", run.id);
        for (client, method, path, body, fields) in [
            (&stage.alpha, Method::POST, "/v1/runs", json!({}), ["conversation_id", "max_tool_calls", "deadline_seconds", hostile]),
            (&run.client, Method::POST, "/v1/run/tool-calls", json!({"tool": "web_search", "arguments": {}}), ["id", "tool", "offer", "arguments"]),
            (&run.client, Method::POST, "/v1/run/tool-calls", json!({"tool": "web_search"}), ["query", "q", hostile, "limit"]),
            (&stage.client, Method::POST, "/api/session", json!({"name": "x", "password": "y"}), ["name", "password", "csrf", hostile]),
            (&stage.client, Method::POST, "/api/setup", json!({"token": "x", "name": "x", "password": "y"}), ["token", "name", "password", hostile]),
            (owner, Method::POST, "/api/operators", json!({"name": "x", "role": "member", "password": "long enough words"}), ["name", "role", "password", hostile]),
            (owner, Method::POST, "/api/agents", json!({"slug": "x"}), ["slug", "name", "run_defaults", hostile]),
            (owner, Method::POST, "/api/tokens", json!({}), ["name", "token", "id", hostile]),
            (owner, Method::POST, reconcile.as_str(), json!({"finding": "took_effect", "note": "x"}), ["finding", "note", "call", hostile]),
            (owner, Method::PUT, "/api/settings/web/search", json!({"version": 0}), ["mode", "provider", "config", hostile]),
        ] {
            for field in fields {
                let mut body = body.clone();
                // Text with NUL is no body at all; without it the same text is a value of the field.
                for text in [hostile.to_owned(), hostile.replace('\0', "")] {
                    if field == "query" {
                        body["arguments"] = json!({ field: text });
                    } else {
                        body[field] = json!(text);
                    }
                    send(client.request(method.clone(), path).header("origin", stage.client.url()).json(&body)).await.expect("an answer");
                    sent += 1;
                }
            }
        }
        for path in ["/api/agents/X", "/api/runs/X", "/api/runs/X/trace", "/api/operators/X", "/setup/X", "/X", "/api/runs?agent=X", "/api/runs?state=X", "/api/runs?after=X", "/api/audit?actor=X", "/api/audit?action=X", "/api/agents/alpha/web/usage?bucket=X", "/api/settings/web/X"] {
            send(owner.request(Method::GET, &path.replace('X', in_path))).await.expect("an answer");
            sent += 1;
        }
        for header in ["mcp-session-id", "formation-run", "formation-conversation", "mcp-protocol-version", "user-agent", "x-forwarded-for", "x-request-id", "referer", "x-formation-csrf", "cookie"] {
            let value = http::HeaderValue::from_bytes("h\tostile\u{2028}\u{85}".as_bytes()).expect("what HTTP allows");
            let body = json!({"jsonrpc": "2.0", "id": hostile.replace('\0', ""), "method": hostile.replace('\0', "")});
            let request = stage.alpha.request(Method::POST, "/mcp").header("accept", "application/json, text/event-stream");
            send(request.header(header, value).json(&body)).await.expect("an answer");
            sent += 1;
        }
        assert!(sent > 50);
        let answered = || said(&stage.place, "answered").len() >= sent;
        assert!(comes_true(within(10), answered).await, "each request left its line");
        assert!(lines(&stage.place).iter().all(|line| line["level"].is_string() && line["target"].is_string()), "every line is the log's own");
    }

    /// What `doctor` tries, an owner reads over HTTP: the same checks with the same words.
    async fn health_says_what_doctor_says_chromium(db) {
        let stage = Stage::of(&db, plain());
        let owner = db.owner(&stage.client, "Owner").await.client;
        let health: Value = serde_json::from_str(&get(&owner, "/api/health").await).expect("JSON");
        let listen = stage.url.trim_start_matches("http://").to_owned();
        let doctor = stage.setup.json(&stage.place, &["doctor", "--listen", &listen]).expect("all is well");
        assert_eq!(health, doctor);
        assert_eq!(health["ok"], true, "{health}");
        let names: Vec<&str> = health["checks"].as_array().expect("checks").iter().map(|check| check["name"].as_str().expect("a name")).collect();
        assert!(["data folder", "database", "master key", "port"].iter().all(|name| names.contains(name)), "{names:?}");

        fs::set_permissions(stage.place.data(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        let health: Value = serde_json::from_str(&get(&owner, "/api/health").await).expect("JSON");
        let folder = &health["checks"][0];
        assert_eq!((&health["ok"], &folder["state"]), (&json!(false), &json!("broken")), "{health}");
        assert!(folder["next"].as_str().is_some_and(|next| next.contains("chmod 700")), "{folder}");
    }
}
