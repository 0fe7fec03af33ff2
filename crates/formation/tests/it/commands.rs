//! What the commands say, and with which exit code.

use std::{fs, io::Write as _, os::unix::fs::PermissionsExt, path::Path, process::Stdio};

use crate::support::{Said, formation, said};

fn initialised() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(said(folder.path(), &["init"]).code, 0);
    folder
}

#[test]
fn init_says_what_it_made_and_does_it_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = said(folder.path(), &["init", "--json"]).json();
    assert_eq!(first["made"], serde_json::json!({"data": true, "database": true, "master_key": true}));
    let key = fs::read(folder.path().join("data/master.key")).expect("a key file");
    let second = said(folder.path(), &["init", "--json"]).json();
    assert_eq!(second["made"], serde_json::json!({"data": false, "database": false, "master_key": false}));
    assert_eq!(second["master_key_id"], first["master_key_id"]);
    assert_eq!(fs::read(folder.path().join("data/master.key")).expect("a key file"), key);

    let people = said(folder.path(), &["init"]);
    let lines: Vec<&str> = people.out.lines().collect();
    assert!(lines.len() == 4 && lines[..3].iter().all(|line| line.starts_with("kept the ")), "{people:?}");
    assert!(lines[3].contains("http://127.0.0.1:8420/setup/"), "{people:?}");
    assert!(!people.out.contains(std::str::from_utf8(&key).expect("text").trim()), "the key is not shown");
}

/// The password comes on standard input, the token is shown once, and there is one first owner.
#[test]
fn init_makes_the_first_owner() {
    let folder = tempfile::tempdir().expect("a folder");
    let with = |words: &[&str], input: &str| {
        let mut command = formation(folder.path());
        let mut child =
            command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        // It may have said no before it read anything.
        let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
        Said::of(child.wait_with_output().expect("it ends"))
    };
    let short = with(&["init", "--owner", "Owner"], "too short\n");
    assert_eq!((short.code, folder.path().join("data").exists()), (2, false), "nothing was made: {short:?}");
    assert_eq!(with(&["init", "--owner", " "], "a good long password\n").code, 2);
    let made = with(&["init", "--owner", "Owner", "--json"], "a good long password\nand more\n").json();
    let token = made["token"].as_str().expect("a token");
    assert!(token.starts_with("fmo_") && made["setup_url"].is_null(), "{made}");
    let again = with(&["init", "--owner", "Other"], "a good long password\n");
    assert!(again.code == 1 && again.err.starts_with("error: somebody owns this install already\n\nhint: "), "{again:?}");
    let kept = said(folder.path(), &["init", "--json"]).json();
    assert!(kept["token"].is_null() && kept["setup_url"].is_null(), "{kept}");
}

#[test]
fn agents_and_tokens_come_and_go() {
    let folder = initialised();
    let at = folder.path();
    assert_eq!(said(at, &["agent", "create", "demo", "--name", "Demo agent"]).out, "made the agent `demo`\n");
    let again = said(at, &["agent", "create", "demo"]);
    assert_eq!((again.code, again.err.as_str()), (1, "error: there is an agent `demo` already\n"));
    assert_eq!(said(at, &["agent", "list", "--json"]).json()[0]["slug"], "demo");
    let listed = said(at, &["agent", "list"]);
    assert!(listed.out.lines().nth(1).is_some_and(|line| line.starts_with("demo ") && line.ends_with("Demo agent")), "{listed:?}");

    let token = said(at, &["agent", "token", "demo"]);
    let text = token.out.trim_end();
    assert!(text.starts_with("fma_") && text.len() == 68, "the token alone, so that a script can take it: {token:?}");
    assert!(token.err.contains("shown this once"), "{token:?}");
    let tokens = said(at, &["agent", "tokens", "demo", "--json"]).json();
    assert!(!tokens.to_string().contains(text), "only its hash is stored");
    let id = tokens[0]["id"].as_str().expect("an id").to_owned();

    assert_eq!(said(at, &["agent", "revoke", "demo", &id]).code, 0);
    let twice = said(at, &["agent", "revoke", "demo", &id]);
    assert_eq!(twice.code, 1);
    assert!(twice.err.contains("\n\nhint: `formation agent tokens demo` lists them\n"), "{twice:?}");
    assert!(said(at, &["agent", "tokens", "demo"]).out.contains("revoked "));
}

#[test]
fn wrong_usage_is_two_and_failure_is_one() {
    let folder = tempfile::tempdir().expect("a folder");
    for (words, code) in [
        (&["serve", "--no-such-flag"][..], 2),
        // Only `formation-under-test` knows these.
        (&["serve", "--fault", "send.before"], 2),
        (&["serve", "--name", "a.test:80=127.0.0.1:9"], 2),
        (&["serve", "--clock-offset-ms", "1"], 2),
        (&["serve", "--timing", "lease_ms=1"], 2),
        (&["agent", "revoke", "demo", "not-an-id"], 2),
        (&["serve", "--listen", "0.0.0.0:8420"], 2),
        (&["serve", "--public-url", "http://formation.example"], 2),
        (&["--database", "postgres://user:hunter2@localhost/db", "runs"], 2),
        (&["--database", "mysql://localhost/db", "runs"], 2),
        (&["call", "browser_read", "[]"], 2),
        (&["call", "browser_read"], 2),
        (&["runs"], 1),
        (&["agent", "list"], 1),
        (&["migrate", "--check"], 1),
        (&["--config", "none.toml", "runs"], 1),
        (&["--help"], 0),
        (&["--version"], 0),
    ] {
        let said = said(folder.path(), words);
        assert_eq!(said.code, code, "{words:?}: {said:?}");
        assert_eq!(said.out.is_empty(), code != 0, "answers go to standard output, failures don't: {words:?}: {said:?}");
        assert!(!said.err.contains("hunter2"), "{said:?}");
    }
    assert!(fs::read_dir(folder.path()).expect("the folder").next().is_none(), "no command made anything");
}

#[test]
fn a_failure_is_one_sentence_and_a_hint() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = said(folder.path(), &["agent", "list"]);
    assert_eq!(said.err, "error: there is no data folder `data`\n\nhint: `formation init` makes one; `--data` names another\n");
}

#[test]
fn a_closed_pipe_is_no_error() {
    let folder = initialised();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let said = Said::of(formation(folder.path()).args(["agent", "list"]).stdout(writer).output().expect("the binary starts"));
    assert_eq!((said.code, said.err.as_str()), (0, ""));
}

#[test]
fn an_unknown_key_in_the_file_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("formation.toml"), "data = 'elsewhere'\nlisten_on = '127.0.0.1:1'\n").expect("written");
    let said = said(folder.path(), &["init"]);
    assert_eq!(said.code, 2);
    assert!(said.err.starts_with("error: `formation.toml`, line 2: unknown field `listen_on`"), "{said:?}");
}

#[test]
fn the_folder_comes_from_flag_variable_or_file() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("formation.toml"), "data = 'from-file'\n").expect("written");
    let run = |words: &[&str], variable: Option<&str>| {
        let mut command = formation(folder.path());
        command.args(words).envs(variable.map(|value| ("FORMATION_DATA", value)));
        let said = Said::of(command.output().expect("the binary starts")).json();
        Path::new(said["data"].as_str().expect("a path")).file_name().expect("a name").to_string_lossy().into_owned()
    };
    assert_eq!(run(&["init", "--json"], None), "from-file");
    assert_eq!(run(&["init", "--json"], Some("from-variable")), "from-variable");
    assert_eq!(run(&["init", "--json", "--data", "from-flag"], Some("from-variable")), "from-flag");
}

#[test]
fn a_missing_or_foreign_master_key_is_refused() {
    let folder = initialised();
    let key = folder.path().join("data/master.key");
    let kept = fs::read(&key).expect("a key file");

    fs::remove_file(&key).expect("removed");
    let missing = said(folder.path(), &["init"]);
    assert_eq!(missing.code, 1);
    assert!(missing.err.contains("this data is sealed with master key"), "{missing:?}");
    assert!(!key.exists(), "no new key is left in its place");

    let mut command = formation(folder.path());
    let foreign = Said::of(command.arg("init").env("FORMATION_MASTER_KEY", "ab".repeat(32)).output().expect("the binary starts"));
    assert_eq!(foreign.code, 1);
    assert!(!foreign.err.contains(&"ab".repeat(8)), "{foreign:?}");

    fs::write(&key, &kept).expect("written");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).expect("loosened");
    let loose = said(folder.path(), &["init"]);
    assert_eq!(loose.code, 1);
    assert!(loose.err.contains("others can read the master key"), "{loose:?}");

    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("tightened");
    assert_eq!(said(folder.path(), &["init"]).code, 0);
}

#[test]
fn migrate_says_where_the_database_stands() {
    let folder = initialised();
    let check = said(folder.path(), &["migrate", "--check", "--json"]).json();
    assert_eq!((check["current"].as_bool(), &check["now"]), (Some(true), &check["known"]));
    fs::write(folder.path().join("data/formation.db"), "").expect("emptied");
    for name in ["formation.db-wal", "formation.db-shm"] {
        let _ = fs::remove_file(folder.path().join("data").join(name));
    }
    let behind = said(folder.path(), &["migrate", "--check"]);
    assert_eq!(behind.code, 1);
    assert!(behind.out.starts_with("the database is at migration 0"), "{behind:?}");
    let refused = said(folder.path(), &["agent", "list"]);
    assert!(refused.code == 1 && refused.err.contains("`formation migrate` brings it there"), "{refused:?}");
    assert_eq!(said(folder.path(), &["migrate"]).code, 0);
    assert_eq!(said(folder.path(), &["migrate", "--check"]).code, 0);
    assert_eq!(said(folder.path(), &["agent", "list"]).code, 0);
}

#[test]
fn a_call_to_nobody_says_how_to_start_somebody() {
    let folder = tempfile::tempdir().expect("a folder");
    // Bound and dropped: nobody listens there.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    let mut command = formation(folder.path());
    command.args(["call", "browser_read", "--server", &format!("http://127.0.0.1:{port}")]).env("FORMATION_TOKEN", "fma_x");
    let said = Said::of(command.output().expect("the binary starts"));
    assert_eq!(said.code, 1);
    assert!(said.err.contains("hint: is a server running there?") && !said.err.contains("fma_x"), "{said:?}");
}

#[test]
fn doctor_says_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let listen = port.local_addr().expect("bound").to_string();
    let before = said(folder.path(), &["doctor", "--json", "--listen", &listen, "--chromium", "no-such-file"]);
    assert_eq!(before.code, 1);
    let before: serde_json::Value = serde_json::from_str(&before.out).expect("JSON");
    let check = |of: &serde_json::Value, name: &str| {
        of["checks"].as_array().and_then(|all| all.iter().find(|check| check["name"] == name).cloned()).unwrap_or_default()
    };
    assert_eq!(check(&before, "data folder")["next"], "`formation init` makes one; `--data` names another");
    assert_eq!(check(&before, "port")["state"], "broken");
    assert_eq!(check(&before, "Chromium")["state"], "note", "nobody asked for it");

    drop(port);
    assert_eq!(said(folder.path(), &["init"]).code, 0);
    let after = said(folder.path(), &["doctor", "--json", "--listen", &listen, "--chromium", "no-such-file"]).json();
    for name in ["data folder", "database", "master key", "port"] {
        assert_eq!(check(&after, name)["state"], "ok", "{after}");
    }
    let wanted = said(folder.path(), &["doctor", "--local-browser", "--listen", &listen, "--chromium", "no-such-file"]);
    assert_eq!(wanted.code, 1);
    assert!(wanted.out.contains("→ `apt-get install chromium`"), "{wanted:?}");
}
