//! What a session leaves: nothing.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use formation_core::{BrowserSessionId, hostlist::HostList};
use formation_vendors::{
    Account, Browsers, Wanted,
    local::{StartError, User, probe},
};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::browser::{Page, Rules, Vendor, WAIT, environment, script, temporary};

/// Living processes whose command line names `text`. A dead one that nobody has waited for has no command line.
fn living(text: &str) -> Vec<Pid> {
    let table = fs::read_dir("/proc").expect("a process table");
    table
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, fs::read(entry.path().join("cmdline")).ok()?)))
        .filter(|(_, line)| String::from_utf8_lossy(line).contains(text))
        .filter_map(|(id, _)| Pid::from_raw(id))
        .collect()
}

fn processes(text: &str) -> usize {
    living(text).len()
}

/// How long ends may take here. The bar is 2 s; on an idle machine it is a third of one, and tests run beside each other.
const ENDS: Duration = Duration::from_secs(6);

/// Waits until no process names the folder.
async fn gone_within(limit: Duration, folders: &Path) -> bool {
    let text = folders.to_str().expect("UTF-8").to_owned();
    happens_within(limit, || processes(&text) == 0).await
}

async fn happens_within(limit: Duration, condition: impl Fn() -> bool) -> bool {
    let until = Instant::now() + limit;
    while !condition() {
        if Instant::now() > until {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    true
}

#[tokio::test]
async fn a_browser_answers_and_leaves_no_process_and_no_folder() {
    let vendor = Vendor::start(Rules::default()).await;
    let root = vendor.local.folders().to_owned();
    let mut page = Page::of(vendor.open(1).await).await;
    let version = page.call("Browser.getVersion", json!({})).await;
    assert_eq!(version["product"], json!(vendor.local.report().version));
    assert!(processes(root.to_str().expect("UTF-8")) > 0);
    assert_eq!(vendor.folders(), 1);
    vendor.close(&page.remote).await;
    assert!(gone_within(ENDS, &root).await);
    assert_eq!(vendor.folders(), 0);
    vendor.close(&page.remote).await;
}

#[tokio::test]
async fn twenty_sessions_leave_nothing() {
    let vendor = Vendor::start(Rules::default()).await;
    let root = vendor.local.folders().to_owned();
    for pair in 0..10 {
        let (first, second) = tokio::join!(vendor.open(2 * pair), vendor.open(2 * pair + 1));
        tokio::join!(vendor.close(&first.remote), vendor.close(&second.remote));
    }
    assert!(gone_within(ENDS, &root).await);
    assert_eq!(vendor.folders(), 0);
}

#[tokio::test]
async fn a_browser_whose_connection_is_let_go_of_ends() {
    let vendor = Vendor::start(Rules::default()).await;
    let root = vendor.local.folders().to_owned();
    let remote = Page::of(vendor.open(1).await).await.drop_wire();
    assert!(gone_within(ENDS, &root).await);
    let account = Account { key: None, config: &Value::Null };
    assert!(vendor.local.attach(account, &remote).await.expect("no failure").is_none());
    vendor.close(&remote).await;
    assert_eq!(vendor.folders(), 0);
}

/// Its deadline, and a caller that gave up while it was being opened.
#[tokio::test]
async fn a_browser_ends_at_its_deadline_and_when_nobody_waits_for_it() {
    let vendor = Vendor::start(Rules::default()).await;
    let root = vendor.local.folders().to_owned();
    let account = Account { key: None, config: &Value::Null };
    let want = |number, remaining| Wanted { session: BrowserSessionId::fixed(number), hosts: HostList::any(), remaining };
    let opened = vendor.local.open(account, want(1, Duration::from_secs(5))).await.expect("a browser");
    let given_up = vendor.local.open(account, want(2, WAIT));
    assert!(tokio::time::timeout(Duration::from_millis(30), given_up).await.is_err(), "no browser starts this fast");
    let late = Duration::from_secs(5) + ENDS;
    assert!(happens_within(late, || vendor.folders() == 0).await);
    assert!(gone_within(ENDS, &root).await);
    vendor.close(&opened.remote).await;
}

#[tokio::test]
async fn a_wedged_browser_is_killed() {
    let vendor = Vendor::start(Rules::default()).await;
    let root = vendor.local.folders().to_owned();
    let opened = vendor.open(1).await;
    let text = format!("--user-data-dir={}", root.join(opened.remote.as_str()).display());
    let browser = living(&text);
    assert!(!browser.is_empty());
    for process in browser {
        rustix::process::kill_process(process, Signal::STOP).expect("it lives");
    }
    vendor.close(&opened.remote).await;
    assert!(gone_within(ENDS, &root).await);
    assert_eq!(vendor.folders(), 0);
}

#[tokio::test]
async fn the_end_of_the_server_ends_every_session() {
    let vendor = Vendor::start(Rules::default()).await;
    let root = vendor.local.folders().to_owned();
    let (_first, _second) = tokio::join!(vendor.open(1), vendor.open(2));
    vendor.local.shut_down().await;
    assert!(gone_within(ENDS, &root).await);
    assert_eq!(vendor.folders(), 0);
}

/// Set for the process that the test below starts and kills: this same test, which then holds a session until it dies.
const HOLD: &str = "FORMATION_TEST_HOLDS_A_SESSION_IN";

/// A killed server leaves no Chromium two seconds later, and its folders go at the next start.
#[tokio::test]
async fn kill_9_of_the_server_ends_its_browsers_and_the_next_start_removes_their_folders() {
    #[expect(clippy::disallowed_methods, reason = "how the test tells its second self what it is")]
    if let Ok(home) = std::env::var(HOLD) {
        let vendor = Vendor::start_in(Path::new(&home), Rules::default()).await;
        let _opened = (vendor.open(1).await, vendor.open(2).await);
        println_unbuffered(&format!("holding {}", vendor.local.folders().display()));
        std::future::pending::<()>().await;
    }
    let home = temporary();
    let this = std::thread::current().name().expect("a test has a name").to_owned();
    let mut server = Command::new(std::env::current_exe().expect("a test binary"))
        .args(["--exact", &this, "--nocapture"])
        .env(HOLD, home.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let output = BufReader::new(server.stdout.take().expect("piped"));
    let root =
        output.lines().map_while(Result::ok).find_map(|line| line.split_once("holding ").map(|(_, path)| PathBuf::from(path)));
    let root = root.expect("two sessions");
    assert!(processes(root.to_str().expect("UTF-8")) > 2);
    // SIGKILL, which nobody can prepare for.
    server.kill().expect("killed");
    server.wait().expect("dead");
    assert!(gone_within(ENDS, &root).await);
    assert_eq!(fs::read_dir(&root).expect("the folder").count(), 2);

    let vendor = Vendor::start_in(home.path(), Rules::default()).await;
    assert_eq!(vendor.local.folders(), root);
    assert_eq!(vendor.folders(), 0);
}

fn println_unbuffered(line: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).expect("the parent reads");
}

#[tokio::test]
async fn the_probe_says_whether_the_sandbox_works_and_leaves_nothing() {
    let home = temporary();
    let report = probe(None, home.path(), &environment()).await.expect("a Chromium");
    assert!(report.version.starts_with("Chrome/") || report.version.starts_with("HeadlessChrome/"), "{}", report.version);
    let root = rustix::process::geteuid().is_root();
    assert_eq!(matches!(report.user, User::Other { .. }), root, "root hands its browser to nobody");

    let needs =
        script(home.path(), &format!("case \"$*\" in *--no-sandbox*) exec {} \"$@\";; esac; exit 1", report.program.display()));
    let without = probe(Some(&needs), home.path(), &environment()).await.expect("starts without");
    assert!(!without.sandbox);

    let broken = script(home.path(), "exit 1");
    assert!(
        matches!(probe(Some(&broken), home.path(), &environment()).await, Err(StartError::DoesNotStart(path)) if path == broken)
    );
    let missing = probe(Some(Path::new("/nowhere/chromium")), home.path(), &environment()).await;
    assert!(matches!(missing, Err(StartError::NotFound)));
    assert_eq!(fs::read_dir(home.path()).expect("the folder").count(), 1, "only the script is left");
}

/// A message over 64 MiB is dropped; the connection goes on.
#[tokio::test]
async fn an_enormous_message_ends_one_call_and_not_the_session() {
    let vendor = Vendor::start(Rules::default()).await;
    let mut page = Page::of(vendor.open(1).await).await;
    page.send("Runtime.evaluate", json!({"expression": "'x'.repeat(65 << 20)", "returnByValue": true})).await;
    assert_eq!(page.evaluate("'y'.repeat(2 << 20).length").await, json!(2 << 20));
    assert_eq!(page.evaluate("'\\ud800'").await, json!(null), "a lone surrogate is for the client to bear");
    assert_eq!(page.evaluate("1 + 1").await, json!(2));
    vendor.close(&page.remote).await;
}
