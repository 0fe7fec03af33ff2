//! Opening the durable state: folder, database, master keys, each with a plain sentence when it can't be used.

use std::{
    fs,
    io::{self, ErrorKind},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use formation_core::Secret;
use formation_store::{Db, Location, MigrationStatus, OpenError, StoreError, TimeSource, seal::MasterKeys};

use crate::{
    config::Place,
    data::{DATABASE, DataFolder, MASTER_KEY, create_private},
    output::Failure,
    wiring::Wiring,
};

/// State that is initialised, migrated and open.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) db: Db,
    pub(crate) keys: MasterKeys,
    pub(crate) made: Made,
}

/// What was not there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) database: bool,
    pub(crate) master_key: bool,
}

/// Opens what is there and makes what isn't: database, schema, master key. Doing it again changes nothing.
pub(crate) async fn initialise(folder: &DataFolder, place: &Place, wiring: &Wiring) -> Result<Opened, Failure> {
    let db = open(folder, place, wiring).await?;
    let before = db.migration_status().await.map_err(|error| unreadable(&error))?;
    db.migrate().await.map_err(|error| Failure::failed(error.to_string()))?;
    let (keys, fresh) = keys(folder, wiring)?;
    if let Err(error) = keys.fit(&db).await {
        if let Some(path) = fresh {
            // Made a moment ago and of no use: the database is sealed with another one.
            let _ = fs::remove_file(path);
        }
        return Err(Failure::failed(error.to_string()));
    }
    Ok(Opened { db, keys, made: Made { database: before.applied == 0, master_key: fresh.is_some() } })
}

/// Opens a database that somebody initialised, for a command beside the server.
pub(crate) async fn existing(place: &Place, wiring: &Wiring) -> Result<Db, Failure> {
    let db = unmigrated(place, wiring).await?;
    let status = db.migration_status().await.map_err(|error| unreadable(&error))?;
    if let Some(failure) = not_current(status) { Err(failure) } else { Ok(db) }
}

/// The same, whatever its schema.
pub(crate) async fn unmigrated(place: &Place, wiring: &Wiring) -> Result<Db, Failure> {
    if place.database.is_some() {
        return open_at(&location(Path::new(""), place), wiring).await;
    }
    let folder = DataFolder::existing(&place.data)?;
    if !folder.file(DATABASE).is_file() {
        return Err(
            Failure::failed(format!("there is no database in `{}`", place.data.display())).hint("`formation init` makes one")
        );
    }
    open(&folder, place, wiring).await
}

/// Why this version can't work on it as it is.
pub(crate) fn not_current(status: MigrationStatus) -> Option<Failure> {
    if status.is_current() {
        None
    } else if status.applied > status.known {
        Some(
            Failure::failed("the database was made by a newer version of Formation")
                .hint("start that version, or restore a backup"),
        )
    } else {
        Some(
            Failure::failed("the database is not at this version's schema")
                .hint("`formation migrate` brings it there; so does `formation serve`"),
        )
    }
}

pub(crate) fn unreadable(error: &StoreError) -> Failure {
    Failure::failed(error.to_string())
}

async fn open(folder: &DataFolder, place: &Place, wiring: &Wiring) -> Result<Db, Failure> {
    open_at(&location(folder.path(), place), wiring).await
}

async fn open_at(location: &Location, wiring: &Wiring) -> Result<Db, Failure> {
    let time = match location {
        Location::Postgres(_) if wiring.database_time => TimeSource::Database,
        _ => TimeSource::Process(wiring.clock.clone()),
    };
    let db = Db::open(location, time, wiring.entropy.clone()).await.map_err(|error| cannot_open(&error))?;
    Ok(db.with_faults(wiring.faults.clone()))
}

fn location(folder: &Path, place: &Place) -> Location {
    match &place.database {
        Some(url) => Location::Postgres(url.expose().to_owned()),
        None => Location::Sqlite(folder.join(DATABASE)),
    }
}

fn cannot_open(error: &OpenError) -> Failure {
    let failure = Failure::failed(error.to_string());
    match error {
        OpenError::Store(_) => failure.hint("is the database running, and are its address, user and password right?"),
        _ => failure,
    }
}

/// The keys of the environment, else of the key file, which is made when it isn't there; its path then.
fn keys(folder: &DataFolder, wiring: &Wiring) -> Result<(MasterKeys, Option<PathBuf>), Failure> {
    if let Some((variable, text)) = from_environment(wiring)? {
        let keys = MasterKeys::parse(&text).map_err(|error| Failure::failed(format!("`{variable}`: {error}")))?;
        return Ok((keys, None));
    }
    let path = folder.file(MASTER_KEY);
    let fresh = MasterKeys::generate(&wiring.entropy);
    // The file's content is the one use of the key's text.
    let is_fresh = match create_private(&path, fresh.expose()) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
        Err(error) => return Err(unusable(&path, &error)),
    };
    Ok((key_file(&path)?, is_fresh.then_some(path)))
}

/// `FORMATION_MASTER_KEYS`, a list whose first one seals, or `FORMATION_MASTER_KEY`, one key.
pub(crate) fn from_environment(wiring: &Wiring) -> Result<Option<(&'static str, String)>, Failure> {
    let [one, several] =
        ["FORMATION_MASTER_KEY", "FORMATION_MASTER_KEYS"].map(|name| wiring.environment.variable(name).map(|text| (name, text)));
    match (one, several) {
        (Some(_), Some(_)) => Err(Failure::failed(
            "`FORMATION_MASTER_KEY` and `FORMATION_MASTER_KEYS` are both set, and nobody knows which one counts",
        )
        .hint("put all keys into `FORMATION_MASTER_KEYS`, the one to seal with first")),
        (one, several) => Ok(one.or(several)),
    }
}

/// Reads the key file, which nobody else may be able to read.
pub(crate) fn key_file(path: &Path) -> Result<MasterKeys, Failure> {
    let metadata = fs::metadata(path).map_err(|error| unusable(path, &error))?;
    if metadata.mode() & 0o077 != 0 {
        return Err(Failure::failed(format!("others can read the master key `{}`", path.display()))
            .hint(format!("`chmod 600 {}`, and think about who did", path.display())));
    }
    let text = Secret::new(fs::read(path).map_err(|error| unusable(path, &error))?);
    let keys = std::str::from_utf8(text.expose()).ok().map(MasterKeys::parse);
    match keys {
        Some(Ok(keys)) => Ok(keys),
        Some(Err(error)) => Err(Failure::failed(format!("`{}`: {error}", path.display()))),
        None => Err(Failure::failed(format!("`{}` is not a key file", path.display()))),
    }
}

fn unusable(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("`{}` can't be used: {error}", path.display()))
}
