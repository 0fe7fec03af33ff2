//! Opens and closes browser sessions, 200 unless told otherwise, and says what each cost and what is left of them.
//!
//! `cargo run -p formation-vendors --example sessions -- [COUNT [AT_ONCE]]`

use std::{
    fs::{self, Permissions},
    io::Write,
    os::unix::fs::PermissionsExt,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use formation_core::{BrowserSessionId, Environment, hostlist::HostList};
use formation_vendors::{
    Account, Browsers, Wanted,
    local::{LocalBrowser, LocalConfig},
};
use formation_wire::{AddressPolicy, Dialler, Names, SystemResolver};
use serde_json::Value;
use tokio::task::JoinSet;

const PRIVATE: u32 = 0o700;
const PASSABLE: u32 = 0o711;

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let count = numbers.next().transpose()?.unwrap_or(200);
    let at_once = numbers.next().transpose()?.unwrap_or(2).max(1);

    let home = tempfile::Builder::new().permissions(Permissions::from_mode(PASSABLE)).tempdir()?;
    let data = home.path().join("data");
    fs::create_dir(&data)?;
    fs::set_permissions(&data, Permissions::from_mode(PRIVATE))?;
    let dialler = Dialler::new(Arc::new(SystemResolver), Arc::new(Names::none()), AddressPolicy::default());
    let config = LocalConfig { data, temporary: home.path().to_owned(), program: None, dialler };
    let local = Arc::new(LocalBrowser::start(config, &Environment::new(|_| None)).await?);

    let (mut opening, mut closing) = (Vec::new(), Vec::new());
    for first in (0..count).step_by(usize::try_from(at_once)?) {
        let mut round = JoinSet::new();
        for number in first..count.min(first + at_once) {
            round.spawn(session(Arc::clone(&local), number));
        }
        while let Some(times) = round.join_next().await {
            let (open, close) = times??;
            opening.push(open);
            closing.push(close);
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let folders = fs::read_dir(local.folders())?.count();
    let processes = processes(&local.folders().to_string_lossy())?;
    let mut output = std::io::stdout().lock();
    writeln!(
        output,
        "{count} sessions, {at_once} at once: opened in {:?}, closed in {:?} (median)",
        median(opening),
        median(closing)
    )?;
    writeln!(output, "left: {processes} processes, {folders} folders")?;
    Ok(if processes + folders == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn session(local: Arc<LocalBrowser>, number: u64) -> Result<(Duration, Duration), formation_core::failure::VendorFailure> {
    let account = Account { key: None, config: &Value::Null };
    let want = Wanted { session: BrowserSessionId::fixed(number), hosts: HostList::any(), remaining: Duration::from_mins(5) };
    let opening = Instant::now();
    let opened = local.open(account, want).await?;
    let (open, closing) = (opening.elapsed(), Instant::now());
    local.close(account, &opened.remote).await?;
    Ok((open, closing.elapsed()))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Living processes whose command line names the folder.
fn processes(folder: &str) -> std::io::Result<usize> {
    let lines = fs::read_dir("/proc")?.flatten().filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    Ok(lines.filter(|line| String::from_utf8_lossy(line).contains(folder)).count())
}
