//! Migrations: one number is two files side by side, one per dialect; a test compares the schemas they make.
//!
//! To add one: put `000N_word.sql` into both folders and a line into `NUMBERED`. Expand first, contract in a later release.

use std::borrow::Cow;

use sqlx::{
    SqlSafeStr as _,
    migrate::{Migrate as _, MigrateError, Migration, MigrationType, Migrator},
};

use crate::{
    db::{Db, Engine},
    error::StoreError,
};

struct Numbered {
    version: i64,
    name: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

const NUMBERED: &[Numbered] = &[
    Numbered {
        version: 1,
        name: "ledger",
        sqlite: include_str!("../migrations/sqlite/0001_ledger.sql"),
        postgres: include_str!("../migrations/postgres/0001_ledger.sql"),
    },
    Numbered {
        version: 2,
        name: "people",
        sqlite: include_str!("../migrations/sqlite/0002_people.sql"),
        postgres: include_str!("../migrations/postgres/0002_people.sql"),
    },
];

/// Every migration as number, name, and its text for SQLite and PostgreSQL.
pub fn migrations() -> impl Iterator<Item = (i64, &'static str, &'static str, &'static str)> {
    NUMBERED.iter().map(|numbered| (numbered.version, numbered.name, numbered.sqlite, numbered.postgres))
}

/// Where a database stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigrationStatus {
    /// The newest migration it has; 0 for an empty one.
    pub applied: i64,
    /// The newest one this program knows.
    pub known: i64,
}

impl MigrationStatus {
    /// Whether this program can work on it as it is.
    pub const fn is_current(self) -> bool {
        self.applied == self.known
    }
}

/// Why a database was not migrated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MigrationError {
    /// A newer program was here.
    #[error("the database has migration {0}, which this version does not know; start the newer version of Formation")]
    Newer(i64),
    /// A file that was applied has changed since.
    #[error("migration {0} is not the one that was applied to this database")]
    Changed(i64),
    /// It does not answer, or a statement failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Db {
    /// Brings the schema up to date. Processes that start together wait for each other.
    pub async fn migrate(&self) -> Result<(), MigrationError> {
        match self.migrate_once().await {
            // SQLite has no lock around the list of what is applied: the one that came second finds the work done.
            Err(MigrationError::Store(_)) if self.engine() == Engine::Sqlite => self.migrate_once().await,
            result => result,
        }
    }

    async fn migrate_once(&self) -> Result<(), MigrationError> {
        let migrator = migrator(self.engine());
        let done = if let Some(writer) = self.sqlite_writer() {
            migrator.run(writer).await
        } else if let Some(pool) = self.postgres_pool() {
            migrator.run(pool).await
        } else {
            Ok(())
        };
        done.map_err(explain)
    }

    /// Where the schema stands, without changing anything.
    pub async fn migration_status(&self) -> Result<MigrationStatus, StoreError> {
        let known = NUMBERED.last().map_or(0, |migration| migration.version);
        let table = self.row(sql::HAS_TABLE, &[]).await?.ok_or(StoreError::internal("no catalog"))?.at::<i64>(0)?;
        if table == 0 {
            return Ok(MigrationStatus { applied: 0, known });
        }
        // Not a listed statement: the table exists only after the first migration, and it is the driver's.
        let list = |error| match explain(error) {
            MigrationError::Store(error) => error,
            _ => StoreError::internal("the list of migrations cannot be read"),
        };
        let applied = if let Some(writer) = self.sqlite_writer() {
            writer.acquire().await?.list_applied_migrations(TABLE).await.map_err(list)?
        } else if let Some(pool) = self.postgres_pool() {
            pool.acquire().await?.list_applied_migrations(TABLE).await.map_err(list)?
        } else {
            Vec::new()
        };
        Ok(MigrationStatus { applied: applied.iter().map(|migration| migration.version).max().unwrap_or(0), known })
    }
}

/// The driver's own table.
const TABLE: &str = "_sqlx_migrations";

fn migrator(engine: Engine) -> Migrator {
    let migrations = NUMBERED.iter().map(|numbered| {
        let text = match engine {
            Engine::Sqlite => numbered.sqlite,
            Engine::Postgres => numbered.postgres,
        };
        let name = Cow::Borrowed(numbered.name);
        Migration::new(numbered.version, name, MigrationType::Simple, text.into_sql_str(), false)
    });
    Migrator::with_migrations(migrations.collect())
}

fn explain(error: MigrateError) -> MigrationError {
    match error {
        MigrateError::VersionMissing(version) => MigrationError::Newer(version),
        MigrateError::VersionMismatch(version) => MigrationError::Changed(version),
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => MigrationError::Store(error.into()),
        _ => MigrationError::Store(StoreError::internal("a migration failed")),
    }
}

pub(crate) mod sql {
    crate::db::statements! {
        HAS_TABLE = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = '_sqlx_migrations'"
            => "SELECT count(*) FROM information_schema.tables WHERE table_schema = current_schema() AND table_name = '_sqlx_migrations'";
    }
}
