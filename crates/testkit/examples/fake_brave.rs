//! A stand-in for Brave, for trying things by hand and for benches.
//!
//! `cargo run -p formation-testkit --example fake_brave -- [--listen ADDRESS] [--ca-out FILE] [--delay-ms N]
//! [--scenarios]`. Prints where it listens and what `formation-under-test` wants to be told; violations go to standard error as they happen. Ends with Ctrl-C.

use std::{io::Write as _, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use formation_testkit::brave::{FakeBrave, KEY, NAME, SCENARIOS};

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell when standard error is closed.
            drop(writeln!(std::io::stderr(), "error: {error:#}"));
            ExitCode::from(2)
        }
    }
}

async fn run() -> anyhow::Result<()> {
    let mut listen = "127.0.0.1:0".to_owned();
    let mut ca_out: Option<PathBuf> = None;
    let mut delay = Duration::ZERO;
    let mut out = std::io::stdout();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--listen" => listen = words.next().context("`--listen` wants an address")?,
            "--ca-out" => ca_out = Some(words.next().context("`--ca-out` wants a file")?.into()),
            "--delay-ms" => delay = Duration::from_millis(words.next().context("`--delay-ms` wants a number")?.parse()?),
            "--scenarios" => {
                for (word, what) in SCENARIOS {
                    writeln!(out, "scenario:{word:<16} {what}")?;
                }
                return Ok(());
            }
            _ => bail!("`{word}` is not an option"),
        }
    }
    let fake = FakeBrave::listen(listen.parse().context("an address with a port")?).await?;
    fake.delay(delay);
    let root = match &ca_out {
        Some(file) => {
            std::fs::copy(fake.ca_file(), file).with_context(|| format!("`{}` can't be written", file.display()))?;
            file
        }
        None => fake.ca_file(),
    };
    writeln!(out, "listening on {}; a good key is {KEY}", fake.address())?;
    writeln!(out, "formation-under-test --name {NAME}={} --root-ca {} -- …", fake.address(), root.display())?;
    out.flush()?;
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        for violation in fake.violations() {
            writeln!(std::io::stderr(), "violation: {violation}")?;
        }
        if let Ok(ended) = tokio::time::timeout(Duration::from_secs(1), &mut interrupted).await {
            return Ok(ended?);
        }
    }
}
