//! R-01 in full: kills at each point of each operation, many times, then kills at random moments under load.
//!
//! `cargo run -p formation-testkit --example kills -- [ROUNDS] [--random N] [--database sqlite|postgres]
//! [--operation search|navigate|click] [--json]`
//!
//! ROUNDS (20) kills at each point and twice as many at random moments, on both databases, unless the options say otherwise. Prints
//! a table (or JSON) and ends with 1 when a single kill doubled, lost or lied. The server under test must have been built into the
//! folder above the examples: `cargo build -p formation-testkit --bin formation-under-test`.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use formation_testkit::{
    databases::{self, Backend, TestDb},
    kill::{BROWSER_ENDS, Operation, Point, Scene},
    load,
    server::Setup,
};
use serde_json::json;

#[derive(Debug, Clone)]
struct Options {
    rounds: u32,
    random: Option<u32>,
    backends: Vec<Backend>,
    operations: Vec<Operation>,
    is_json: bool,
}

impl Options {
    fn parse(words: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let backends = vec![Backend::Sqlite, Backend::Postgres];
        let mut options = Self { rounds: 20, random: None, backends, operations: Operation::ALL.to_vec(), is_json: false };
        let mut words = words.skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("`{word}` wants a value"));
            match word.as_str() {
                "--json" => options.is_json = true,
                "--random" => options.random = Some(value()?.parse()?),
                "--operation" => {
                    let word = value()?;
                    options.operations.retain(|operation| operation.name() == word);
                    ensure!(!options.operations.is_empty(), "`{word}` is no operation");
                }
                "--database" => {
                    options.backends = match value()?.as_str() {
                        "sqlite" => vec![Backend::Sqlite],
                        "postgres" => vec![Backend::Postgres],
                        other => bail!("`{other}` is no database"),
                    }
                }
                _ => {
                    options.rounds =
                        word.parse().with_context(|| format!("`{word}` is neither an option of kills nor a number"))?;
                }
            }
        }
        Ok(options)
    }
}

/// One line of the table.
struct Line {
    backend: &'static str,
    operation: &'static str,
    point: &'static str,
    kills: u32,
    wrong: Vec<String>,
    /// One kill with what comes before and after.
    cycle: Duration,
    /// No browser outlived its server longer.
    browsers: Duration,
}

fn main() -> ExitCode {
    match Options::parse(std::env::args()).and_then(|options| Ok((options, Setup::beside_this_example()?))) {
        Ok((options, setup)) => {
            let lines: Vec<Line> = options.backends.iter().flat_map(|backend| on(*backend, &options, setup.binary())).collect();
            print(&lines, options.is_json);
            ExitCode::from(u8::from(lines.iter().any(|line| !line.wrong.is_empty())))
        }
        Err(error) => {
            write_out(&mut std::io::stderr(), &format!("error: {error:#}"));
            ExitCode::from(2)
        }
    }
}

fn on(backend: Backend, options: &Options, binary: &std::path::Path) -> Vec<Line> {
    let (sender, lines) = std::sync::mpsc::channel();
    let (options, binary) = (options.clone(), binary.to_owned());
    databases::run(backend, move |db| async move {
        let found = all(db, &options, &binary, if backend == Backend::Sqlite { "sqlite" } else { "postgres" }).await;
        // The receiver lives until this has ended.
        let _ = sender.send(found.expect("the scene can be set"));
    });
    lines.recv().expect("a run that ended has sent its lines")
}

async fn all(db: TestDb, options: &Options, binary: &std::path::Path, backend: &'static str) -> anyhow::Result<Vec<Line>> {
    let scene = Scene::set(db, binary).await?;
    let mut lines = Vec::new();
    for operation in options.operations.iter().copied() {
        for point in Point::ALL.into_iter().filter(|_| options.rounds > 0) {
            let started = Instant::now();
            let mut wrong = Vec::new();
            for round in 0..options.rounds {
                let key = format!("{}-{}-{round}", operation.name(), point as u8);
                if let Err(error) = scene.kill(operation, point, &key).await {
                    let reason = format!("{key}: {error:#}");
                    write_out(&mut std::io::stderr(), &reason);
                    wrong.push(reason);
                }
            }
            let (kills, cycle) = (options.rounds, started.elapsed() / options.rounds);
            let (operation, point) = (operation.name(), point.name());
            let line = Line { backend, operation, point, kills, wrong, cycle, browsers: BROWSER_ENDS };
            write_out(&mut std::io::stderr(), &row(&line));
            lines.push(line);
        }
    }
    let random = options.random.unwrap_or(2 * options.rounds);
    if random > 0 {
        let started = Instant::now();
        let (wrong, browsers) = match load::kills(&scene, random).await {
            Ok(slowest) => (Vec::new(), slowest),
            Err(error) => (vec![format!("{error:#}")], Duration::ZERO),
        };
        let cycle = started.elapsed() / random;
        lines.push(Line { backend, operation: "navigate", point: "random, under load", kills: random, wrong, cycle, browsers });
    }
    Ok(lines)
}

fn row(line: &Line) -> String {
    let Line { backend, operation, point, kills, wrong, cycle, browsers } = line;
    let (wrong, cycle, browsers) = (wrong.len(), cycle.as_millis(), browsers.as_millis());
    format!("{backend:<9} {operation:<9} {point:<19} {kills:>5} {wrong:>6} {cycle:>9} {browsers:>16}")
}

fn print(lines: &[Line], is_json: bool) {
    let mut out = std::io::stdout();
    if is_json {
        let all: Vec<_> = lines
            .iter()
            .map(|line| {
                json!({
                    "database": line.backend, "operation": line.operation, "point": line.point, "kills": line.kills,
                    "wrong": line.wrong, "cycle_ms": milliseconds(line.cycle), "browsers_gone_ms": milliseconds(line.browsers),
                })
            })
            .collect();
        write_out(&mut out, &json!({"bar": "R-01", "lines": all}).to_string());
        return;
    }
    write_out(&mut out, "database  operation point               kills  wrong  cycle/ms browsers gone/ms");
    for line in lines {
        write_out(&mut out, &row(line));
        for wrong in &line.wrong {
            write_out(&mut out, &format!("  {wrong}"));
        }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A reader that went away is no error.
fn write_out(out: &mut impl std::io::Write, text: &str) {
    let _ = writeln!(out, "{text}");
}
