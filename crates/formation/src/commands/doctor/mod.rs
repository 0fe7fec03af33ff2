//! `formation doctor`: what works, tried and not guessed, and what to do about what doesn't. `GET /api/health` is the same from within
//! a running server.

mod capabilities;

use std::{fs, io::ErrorKind, net::TcpListener, os::unix::fs::MetadataExt, path::Path};

use formation_api::{Check, Report, State};
use formation_store::{Db, seal::MasterKeys};
use formation_vendors::local;

use crate::{
    config::{Config, Place},
    data::{DATABASE, DataFolder, MASTER_KEY},
    opening,
    output::{Failure, Output},
    wiring::Wiring,
};

fn ok(name: &'static str, says: impl Into<String>) -> Check {
    Check { name, state: State::Ok, says: says.into(), next: None }
}

fn note(name: &'static str, says: impl Into<String>, next: impl Into<String>) -> Check {
    Check { name, state: State::Note, says: says.into(), next: Some(next.into()) }
}

fn broken(name: &'static str, says: impl Into<String>, next: impl Into<String>) -> Check {
    Check { name, state: State::Broken, says: says.into(), next: Some(next.into()) }
}

/// What another part already says about itself.
fn failed(name: &'static str, failure: &Failure) -> Check {
    Check { name, state: State::Broken, says: failure.to_string(), next: failure.next_step().map(str::to_owned) }
}

pub(crate) async fn doctor(config: &Config, wiring: &Wiring, output: Output) -> Result<(), Failure> {
    let report = match opening::unmigrated(&config.place, wiring).await {
        Ok(db) => {
            let report = report(config, wiring, Ok(&db)).await;
            db.close().await;
            report
        }
        Err(failure) => report(config, wiring, Err(&failure)).await,
    };
    output.answer(&report, || readable(&report.checks))?;
    if report.ok { Ok(()) } else { Err(Failure::Answered) }
}

/// Tries everything. `db` is the database, or why it could not be opened.
pub(crate) async fn report(config: &Config, wiring: &Wiring, db: Result<&Db, &Failure>) -> Report {
    let mut checks = vec![data_folder(&config.place)];
    match db {
        Ok(db) => database(db, config, wiring, &mut checks).await,
        Err(failure) => checks.push(failed(DATABASE_NAME, failure)),
    }
    checks.extend(capabilities::variables(wiring));
    checks.push(port(config));
    checks.extend(chromium(config, wiring).await);
    Report::of(checks)
}

fn readable(checks: &[Check]) -> String {
    let line = |check: &Check| format!("{:<7} {:<12} {}", check.state.as_str(), check.name, check.says);
    let next = |check: &Check| check.next.as_ref().map(|next| format!("{:20} → {next}", ""));
    let lines: Vec<String> = checks.iter().flat_map(|check| std::iter::once(line(check)).chain(next(check))).collect();
    lines.join("\n")
}

/// There, closed to others, and everything in it too (S-21).
fn data_folder(place: &Place) -> Check {
    const NAME: &str = "data folder";
    let folder = match DataFolder::existing(&place.data) {
        Ok(folder) => folder,
        Err(failure) => return failed(NAME, &failure),
    };
    let shown = folder.path().display();
    let loose = |path: &Path, rights: u32| fs::metadata(path).is_ok_and(|found| found.mode() & rights != 0);
    if loose(folder.path(), 0o077) {
        return broken(NAME, format!("others can enter `{shown}`"), format!("`chmod 700 {shown}`"));
    }
    let files = [DATABASE.to_owned(), format!("{DATABASE}-wal"), format!("{DATABASE}-shm"), MASTER_KEY.to_owned()];
    match files.iter().find(|name| loose(&folder.file(name), 0o077)) {
        Some(name) => broken(NAME, format!("`{shown}/{name}` is open to others"), format!("`chmod 600 {shown}/{name}`")),
        None if folder.is_held() => ok(NAME, format!("`{shown}`, held by a running server")),
        None => ok(NAME, format!("`{shown}`, closed to others")),
    }
}

const DATABASE_NAME: &str = "database";

async fn database(db: &Db, config: &Config, wiring: &Wiring, checks: &mut Vec<Check>) {
    let place = &config.place;
    let whose = place.database.as_ref().map_or_else(|| "SQLite".to_owned(), |url| format!("PostgreSQL at `{url}`"));
    match current(db).await {
        Err(failure) => checks.push(failed(DATABASE_NAME, &failure)),
        Ok(migration) => {
            checks.push(durable(db, &whose, migration).await);
            let (check, keys) = master_key(db, place, wiring).await;
            checks.push(check);
            checks.extend(capabilities::capabilities(db, config, keys.as_ref()).await);
        }
    }
}

async fn current(db: &Db) -> Result<i64, Failure> {
    let status = db.migration_status().await.map_err(|error| opening::unreadable(&error))?;
    opening::not_current(status).map_or(Ok(status.applied), Err)
}

async fn durable(db: &Db, whose: &str, migration: i64) -> Check {
    match db.durability().await {
        Ok(Ok(())) => ok(DATABASE_NAME, format!("{whose}, migration {migration}")),
        Ok(Err(sentence)) => broken(DATABASE_NAME, sentence, "`formation serve` refuses to start until then"),
        Err(error) => failed(DATABASE_NAME, &opening::unreadable(&error)),
    }
}

/// The keys too, when they fit.
async fn master_key(db: &Db, place: &Place, wiring: &Wiring) -> (Check, Option<MasterKeys>) {
    const NAME: &str = "master key";
    let found = match opening::from_environment(wiring) {
        Ok(Some((variable, text))) => MasterKeys::parse(&text)
            .map(|keys| (keys, format!("in `{variable}`")))
            .map_err(|error| Failure::failed(format!("`{variable}`: {error}"))),
        Ok(None) => {
            let path = place.data.join(MASTER_KEY);
            opening::key_file(&path).map(|keys| (keys, format!("in `{}`", path.display())))
        }
        Err(failure) => Err(failure),
    };
    match found {
        Err(failure) => (failed(NAME, &failure), None),
        Ok((keys, place)) => match keys.check(db).await {
            Ok(()) => (ok(NAME, format!("{} {place} fits the database", keys.current())), Some(keys)),
            Err(error) => (broken(NAME, error.to_string(), "`formation serve` refuses to start until then"), None),
        },
    }
}

fn port(config: &Config) -> Check {
    const NAME: &str = "port";
    match TcpListener::bind(config.listen) {
        Ok(_) => ok(NAME, format!("{} is free", config.listen)),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let held_at = DataFolder::existing(&config.place.data).ok().and_then(|folder| folder.held_at());
            if held_at.is_some_and(|address| address.port() == config.listen.port()) {
                ok(NAME, format!("the server of this data folder listens on {}", config.listen))
            } else {
                let says = format!("another program listens on {}", config.listen);
                broken(NAME, says, "stop it, or choose another port with `--listen`")
            }
        }
        Err(error) => {
            broken(NAME, format!("{} can't be listened on: {error}", config.listen), "choose another address with `--listen`")
        }
    }
}

/// Started once, with its sandbox and if need be without, where the server would do it.
async fn chromium(config: &Config, wiring: &Wiring) -> Vec<Check> {
    const NAME: &str = "Chromium";
    let report = match local::probe(config.chromium.as_deref(), &wiring.temporary_folder(), &wiring.environment).await {
        Ok(report) => report,
        Err(error) if config.local_browser => {
            return vec![broken(NAME, error.to_string(), "`apt-get install chromium`, or name one with `--chromium`")];
        }
        Err(error) => return vec![note(NAME, error.to_string(), "needed for `--local-browser` only")],
    };
    let version = format!("{} ({})", report.version, report.program.display());
    let mut checks = vec![if config.local_browser {
        ok(NAME, version)
    } else {
        note(NAME, format!("{version}, not offered to agents"), "`formation serve --local-browser` offers it")
    }];
    checks.push(if report.sandbox {
        ok("sandbox", "Chromium starts with its sandbox")
    } else {
        note("sandbox", "Chromium starts without its sandbox only: a page that breaks out of it is that user", user_namespaces())
    });
    checks
}

/// Which switch of the kernel keeps unprivileged user namespaces, and so the sandbox, from working.
fn user_namespaces() -> String {
    let reads = |path: &str, value: &str| fs::read_to_string(path).is_ok_and(|text| text.trim() == value);
    let command = if reads("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        "`sysctl kernel.unprivileged_userns_clone=1`"
    } else if reads("/proc/sys/user/max_user_namespaces", "0") {
        "`sysctl user.max_user_namespaces=10000`"
    } else if reads("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        "`sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or an AppArmor profile for this Chromium"
    } else {
        return "user namespaces are switched off for this process; in a container that is the runtime's seccomp profile"
            .to_owned();
    };
    format!("{command} switches user namespaces on, which it needs")
}
