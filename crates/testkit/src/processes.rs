//! Processes of this machine, as `/proc` shows them: who lives, and how to stop one.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// The processes whose command line has `word` in it, zombies aside.
pub fn with_word(word: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| has_word(*pid, word)).collect()
}

/// A zombie's command line is empty.
fn has_word(pid: u32, word: &str) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.windows(word.len()).any(|window| window == word.as_bytes()))
}

/// The Chromium processes whose profile lies in a folder below `folder`: the first of each browser.
pub fn browsers_below(folder: &Path) -> Vec<u32> {
    let mut found = with_word(&format!("--user-data-dir={}/", folder.display()));
    // Helpers carry the switch too, and `--type` with it.
    found.retain(|pid| !has_word(*pid, "--type="));
    found
}

/// Every process of the browsers with a folder below `folder`, the helpers that name no folder included: those that were started by
/// one that does.
pub fn all_below(folder: &Path) -> Vec<u32> {
    let mut found = with_word(&format!("={}/", folder.display()));
    let mut next = 0;
    while next < found.len() {
        for child in children(found[next]) {
            if !found.contains(&child) {
                found.push(child);
            }
        }
        next += 1;
    }
    found.retain(|pid| !is_zombie(*pid));
    found
}

/// The processes that `pid` started and that live.
pub fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Whether `pid` lives; a zombie doesn't.
pub fn lives(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists() && !is_zombie(pid)
}

fn is_zombie(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z') || rest.starts_with('X'))
}

/// Sends `signal` to a process that this test started; one that is gone already is no error.
pub fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It fails when the process is gone.
        let _ = kill_process(pid, signal);
    }
}

/// Asks `is_so` each 20 ms until it says yes, at most `within`; whether it did.
pub async fn comes_true(within: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + within;
    loop {
        if is_so() {
            return true;
        }
        if Instant::now() > until {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
