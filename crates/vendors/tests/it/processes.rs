//! What a session leaves: nothing.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use formation_core::{BrowserSessionId, hostlist::HostList};
use formation_vendors::{Account, Browsers, Wanted};
use serde_json::{Value, json};

use crate::browser::{Page, Rules, Vendor, WAIT};

/// Living processes whose command line names `text`. A dead one that nobody has waited for has no command line.
pub(crate) fn processes(text: &str) -> usize {
    let table = std::fs::read_dir("/proc").expect("a process table");
    table
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()))
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .filter(|line| String::from_utf8_lossy(line).contains(text))
        .count()
}

async fn gone_within(limit: Duration, folders: &Path) -> bool {
    let text = folders.to_str().expect("UTF-8");
    let until = Instant::now() + limit;
    while processes(text) > 0 {
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
    assert!(gone_within(Duration::from_secs(2), &root).await);
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
    assert!(gone_within(Duration::from_secs(2), &root).await);
    assert_eq!(vendor.folders(), 0);
}

#[tokio::test]
async fn a_browser_whose_connection_is_let_go_of_ends() {
    let vendor = Vendor::start(Rules::default()).await;
    let root = vendor.local.folders().to_owned();
    let remote = Page::of(vendor.open(1).await).await.drop_wire();
    assert!(gone_within(Duration::from_secs(3), &root).await);
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
    let opened = vendor.local.open(account, want(1, Duration::from_secs(2))).await.expect("a browser");
    let given_up = vendor.local.open(account, want(2, WAIT));
    assert!(tokio::time::timeout(Duration::from_millis(30), given_up).await.is_err(), "no browser starts this fast");
    assert!(gone_within(Duration::from_secs(6), &root).await);
    vendor.close(&opened.remote).await;
    assert_eq!(vendor.folders(), 0);
}

#[tokio::test]
async fn a_wedged_browser_is_killed() {
    let vendor = Vendor::start(Rules::default()).await;
    let root = vendor.local.folders().to_owned();
    let opened = vendor.open(1).await;
    let text = format!("--user-data-dir={}", root.join(opened.remote.as_str()).display());
    let stopped = std::process::Command::new("pkill").args(["-STOP", "-f", "--", &text]).status().expect("pkill runs");
    assert!(stopped.success());
    vendor.close(&opened.remote).await;
    assert!(gone_within(Duration::from_secs(2), &root).await);
    assert_eq!(vendor.folders(), 0);
}

#[tokio::test]
async fn the_end_of_the_server_ends_every_session() {
    let vendor = Vendor::start(Rules::default()).await;
    let root = vendor.local.folders().to_owned();
    let (_first, _second) = tokio::join!(vendor.open(1), vendor.open(2));
    vendor.local.shut_down().await;
    assert!(gone_within(Duration::from_secs(2), &root).await);
    assert_eq!(vendor.folders(), 0);
}
