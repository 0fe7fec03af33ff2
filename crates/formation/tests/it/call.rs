//! `formation call` and `formation runs` against a real server with a real Chromium, as the README shows them.

use std::{fs, os::unix::fs::MetadataExt};

use serde_json::Value;

use crate::{
    files::Server,
    support::{Said, formation, said},
};

#[test]
fn a_person_calls_a_chromium_and_reads_the_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let mut command = formation(at);
    command.args(["serve", "--listen", "127.0.0.1:0", "--local-browser"]);
    let server = Server::start(command);
    let url = server.url().to_owned();
    assert_eq!(said(at, &["agent", "create", "demo"]).code, 0);
    let token = said(at, &["agent", "token", "demo"]).out.trim_end().to_owned();
    let call = |words: &[&str]| {
        let mut command = formation(at);
        command.args(["call", "--server", &url]).args(words).env("FORMATION_TOKEN", &token).env("TMPDIR", at);
        Said::of(command.output().expect("the binary starts"))
    };

    let opened = call(&["browser_navigate", r#"{"url": "http://hello.formation.test/"}"#]);
    assert_eq!(opened.code, 0, "{opened:?}");
    assert!(opened.out.contains("\nHello from Formation\nhttp://hello.formation.test/\n"), "{opened:?}");
    let run = opened.err.trim_end().strip_prefix("run ").expect("the run's id on standard error").to_owned();
    let kept = at.join(".local/state/formation/runs").join(&run);
    assert_eq!(fs::metadata(&kept).expect("a kept token").mode() & 0o777, 0o600);

    let read = call(&["browser_read", "--run", &run, "--json"]).json();
    let button = read["observation"]["controls"][0]["ref"].as_str().expect("a reference");
    let click = format!(r#"{{"action": "click", "ref": "{button}"}}"#);
    let clicked = call(&["browser_act", &click, "--run", &run, "--key", "click-1"]);
    assert!(clicked.code == 0 && clicked.out.contains("pressed once"), "{clicked:?}");
    let repeated = call(&["browser_act", &click, "--run", &run, "--key", "click-1"]);
    assert_eq!(repeated.out, clicked.out, "the same key is answered from the record");

    let pictured = call(&["browser_screenshot", "--run", &run, "--json"]).json();
    let file = pictured["images"][0]["file"].as_str().expect("a file");
    assert!(fs::read(file).expect("it is there").starts_with(&[0xff, 0xd8, 0xff]), "a JPEG");
    assert_eq!(fs::metadata(file).expect("it is there").mode() & 0o777, 0o600);

    let refused = call(&["browser_act", r#"{"action": "click", "ref": "no-such.0"}"#, "--run", &run]);
    assert!(refused.code == 1 && refused.out.contains("`stale_ref`"), "{refused:?}");

    let trace = said(at, &["runs", &run, "--json"]).json();
    let calls: Vec<(&str, &str)> =
        trace["calls"].as_array().expect("calls").iter().map(|call| (word(&call["tool"]), word(&call["outcome"]))).collect();
    let expected = [
        ("browser_navigate", "ok"),
        ("browser_read", "ok"),
        ("browser_act", "ok"),
        ("browser_screenshot", "ok"),
        ("browser_act", "not_dispatched"),
    ];
    assert_eq!(calls, expected);
    let people = said(at, &["runs", &run]);
    assert!(people.out.contains("5 of 200 calls") && people.out.contains("no-such.0"), "{people:?}");

    let known = trace["calls"][0]["id"].as_str().expect("an id");
    let settled = said(at, &["runs", &run, "--settle", known, "took_effect", "--note", "seen"]);
    assert!(settled.code == 1 && settled.err.contains("isn't uncertain"), "{settled:?}");
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
