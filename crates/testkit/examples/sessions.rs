//! many browser sessions opened and closed leave no process and no folder.
//!
//! `cargo run -p formation-testkit --example sessions -- [N]`, 200 without a number, four at a time. Prints JSON and ends with 1 when
//! something stayed.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use formation_testkit::{
    http::Client,
    kill::HOST,
    processes::comes_true,
    server::{Place, Setup},
    site::{Page, Site},
};
use serde_json::{Value, json};

/// Sessions that are open together.
const TOGETHER: u32 = 4;
/// How long the last browsers may take to end.
const ENDS: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> ExitCode {
    let count = std::env::args().nth(1).map_or(Ok(200), |word| word.parse());
    let ended = match count {
        Ok(count) => opened_and_closed(count).await,
        Err(error) => Err(error.into()),
    };
    let (answer, code) = match ended {
        Ok(answer) => {
            let is_clean = answer["processes_left"] == 0 && answer["folders_left"] == 0;
            (answer, u8::from(!is_clean))
        }
        Err(error) => (json!({"error": format!("{error:#}")}), 2),
    };
    // A reader that went away is no error.
    let _ = std::io::Write::write_all(&mut std::io::stdout(), format!("{answer}\n").as_bytes());
    ExitCode::from(code)
}

async fn opened_and_closed(count: u32) -> anyhow::Result<Value> {
    let site = Site::start().await?.with("/open", Page::html("<h1>Open</h1>"));
    let place = Place::fresh()?;
    let setup = Setup::beside_this_example()?.with_browser().name(&format!("{HOST}:80"), site.address());
    setup.run(&place, &["init"])?;
    let server = setup.start(&place)?;
    let client = server.agent(&place, "opener")?;
    let started = Instant::now();
    let workers: Vec<_> =
        (0..TOGETHER).map(|worker| tokio::spawn(sessions(client.clone(), (count + TOGETHER - 1 - worker) / TOGETHER))).collect();
    for worker in workers {
        worker.await??;
    }
    let milliseconds = started.elapsed().as_millis() / u128::from(count.max(1));
    comes_true(ENDS, || place.browser_processes().is_empty() && place.session_folders().is_empty()).await;
    let (processes, folders) = (place.browser_processes().len(), place.session_folders().len());
    let seen = site.count("/open");
    ensure!(seen == count as usize, "the site saw {seen} of {count} navigations");
    server.kill();
    Ok(json!({
        "bar": "R-16", "sessions": count, "processes_left": processes, "folders_left": folders,
        "session_ms": u64::try_from(milliseconds).context("no session takes so long")?,
    }))
}

async fn sessions(client: Client, count: u32) -> anyhow::Result<()> {
    for _ in 0..count {
        let run = client.open_run(&json!({})).await?;
        run.does("browser_navigate", &json!({"url": format!("http://{HOST}/open")})).await?;
        run.finish().await?;
    }
    Ok(())
}
