//! The facade over both engines: one code path, one SQL text, one writer.
//!
//! SQLite: one writer connection whose transactions are `IMMEDIATE` and shared by whoever waits for it, a read-only pool of four,
//! WAL, `synchronous=FULL`. PostgreSQL: one pool, READ COMMITTED. Its write transactions run in a task of their own: `sqlx` may hand a connection with an open
//! transaction back to its pool when the future of `begin` is dropped (dependencies.md, One code path).
//!
//! Not here: what the rows mean.

mod files;
mod group;
mod news;
mod sql;
mod tx;
mod val;

use std::{path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use formation_core::{Clock, Entropy, Faults, Timestamp};
use futures::future::BoxFuture;
use sqlx::{
    ConnectOptions as _, Connection as _, PgPool, Postgres, Sqlite, SqlitePool,
    postgres::{PgArguments, PgConnectOptions, PgPoolOptions},
    query::Query,
    sqlite::{SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

pub use self::{
    files::private_folder,
    news::{Listener, News},
    sql::Sql,
    tx::{Hold, Tx},
    val::{Column, Row, Val},
};
pub(crate) use self::{group::sql as group_sql, news::sql as news_sql, sql::statements, tx::sql as tx_sql, val::stored_words};
use crate::error::StoreError;

/// The first SQLite without the WAL-reset corruption bug (3.7.0–3.51.2).
const SQLITE_FLOOR: (u32, u32, u32) = (3, 51, 3);
/// How long a statement waits for another process's write transaction, and a caller for a connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts to open a file that another process is just making.
const BUSY_AGAIN: Duration = Duration::from_millis(20);
/// Statements are constants and few; none is ever evicted.
const CACHED_STATEMENTS: usize = 512;
const SQLITE_READERS: u32 = 4;
const POSTGRES_CONNECTIONS: u32 = 16;

/// Where the database is.
#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    /// A file. Its folder exists.
    Sqlite(PathBuf),
    /// A `postgres://` address, which may hold a password.
    Postgres(String),
}

impl Location {
    /// `postgres://…` and `postgresql://…` are PostgreSQL, anything else is the path of a SQLite file.
    pub fn parse(text: &str) -> Self {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            Self::Postgres(text.to_owned())
        } else {
            Self::Sqlite(PathBuf::from(text.strip_prefix("sqlite:").unwrap_or(text)))
        }
    }
}

impl std::fmt::Debug for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sqlite(path) => f.debug_tuple("Sqlite").field(path).finish(),
            Self::Postgres(_) => f.write_str("Postgres(****)"),
        }
    }
}

/// Whose clock decides leases, expiry and windows.
#[derive(Debug, Clone)]
pub enum TimeSource {
    /// The database's, on PostgreSQL: replicas agree by asking the same clock.
    Database,
    /// The process's: always on SQLite, and in tests that stand the clock still.
    Process(Clock),
}

/// Why a database cannot be used. Each sentence says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// SQLite itself is too old.
    #[error("SQLite {found} can corrupt a database in WAL mode; Formation needs 3.51.3 or newer")]
    OldSqlite {
        /// What is linked in.
        found: String,
    },
    /// The file or its folder cannot be made or opened.
    #[error("cannot open the database file ({kind}); check that its folder exists and that this user may write there")]
    File {
        /// What the system said, without a path.
        kind: std::io::ErrorKind,
    },
    /// Not an address.
    #[error("the database address is not a valid `postgres://` URL")]
    Address,
    /// SQLite has no clock of its own.
    #[error("SQLite takes its time from the process; `TimeSource::Database` is for PostgreSQL")]
    NoDatabaseClock,
    /// It does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The database. Cheap to clone; all clones share its pools.
#[derive(Clone)]
pub struct Db(Arc<Shared>);

struct Shared {
    pools: Pools,
    time: TimeSource,
    entropy: Entropy,
    faults: Faults,
    board: Arc<news::Board>,
}

#[derive(Clone)]
enum Pools {
    Sqlite { writing: group::Writer, writer: SqlitePool, readers: SqlitePool },
    Postgres(PgPool),
}

/// Which engine it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// One process, one file.
    Sqlite,
    /// Shared by replicas.
    Postgres,
}

impl Db {
    /// Opens the database, making an empty SQLite file (0600) if there is none. It does not migrate.
    pub async fn open(location: &Location, time: TimeSource, entropy: Entropy) -> Result<Self, OpenError> {
        let board = Arc::new(news::Board::new());
        let pools = match location {
            Location::Sqlite(_) if matches!(time, TimeSource::Database) => return Err(OpenError::NoDatabaseClock),
            Location::Sqlite(path) => {
                let (writer, readers) = open_sqlite(path.clone()).await?;
                let writing = group::Writer::start(writer.clone(), time.clone(), entropy.clone(), Arc::clone(&board));
                Pools::Sqlite { writing, writer, readers }
            }
            Location::Postgres(url) => open_postgres(url).await?,
        };
        Ok(Self(Arc::new(Shared { pools, time, entropy, faults: Faults::none(), board })))
    }

    /// The same database with named places that may stop the process; for the binary under test.
    pub fn with_faults(&self, faults: Faults) -> Self {
        let Shared { pools, time, entropy, board, .. } = &*self.0;
        let (pools, time, entropy, board) = (pools.clone(), time.clone(), entropy.clone(), Arc::clone(board));
        Self(Arc::new(Shared { pools, time, entropy, faults, board }))
    }

    /// Which engine it is.
    pub fn engine(&self) -> Engine {
        match self.0.pools {
            Pools::Sqlite { .. } => Engine::Sqlite,
            Pools::Postgres(_) => Engine::Postgres,
        }
    }

    /// Runs `work` in a write transaction, in another task: a caller that goes away neither cuts it nor leaves a half-begun
    /// connection in the pool. What it wrote stays on `Ok` and is undone on `Err`; it is durable when this returns. `work` must not
    /// wait for another write.
    pub async fn write<T, E>(
        &self,
        work: impl for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, Result<T, E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        match &self.0.pools {
            Pools::Sqlite { writing, .. } => writing.write(work).await,
            Pools::Postgres(pool) => self.write_postgres(pool.clone(), work).await,
        }
    }

    async fn write_postgres<T, E>(
        &self,
        pool: PgPool,
        work: impl for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, Result<T, E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let db = self.clone();
        let task = tokio::spawn(async move {
            let mut tx = db.begin(&pool).await?;
            match work(&mut tx).await {
                Ok(value) => {
                    let news = tx.commit().await?;
                    db.0.board.tell_all(news);
                    Ok(value)
                }
                Err(error) => {
                    tx.roll_back().await;
                    Err(error)
                }
            }
        });
        match task.await {
            Ok(result) => result,
            Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
            Err(_) => Err(StoreError::unavailable("the process is stopping").into()),
        }
    }

    /// Reads outside a transaction.
    pub async fn rows(&self, sql: Sql, vals: &[Val<'_>]) -> Result<Vec<Row>, StoreError> {
        Ok(match &self.0.pools {
            Pools::Sqlite { readers, .. } => {
                bind_sqlite(sql, vals).fetch_all(readers).await?.into_iter().map(Row::Sqlite).collect()
            }
            Pools::Postgres(pool) => bind_postgres(sql, vals).fetch_all(pool).await?.into_iter().map(Row::Postgres).collect(),
        })
    }

    /// Reads at most one row outside a transaction.
    pub async fn row(&self, sql: Sql, vals: &[Val<'_>]) -> Result<Option<Row>, StoreError> {
        Ok(match &self.0.pools {
            Pools::Sqlite { readers, .. } => bind_sqlite(sql, vals).fetch_optional(readers).await?.map(Row::Sqlite),
            Pools::Postgres(pool) => bind_postgres(sql, vals).fetch_optional(pool).await?.map(Row::Postgres),
        })
    }

    /// The moment that decides, for reads outside a transaction.
    pub async fn now(&self) -> Result<Timestamp, StoreError> {
        match &self.0.time {
            TimeSource::Process(clock) => Ok(clock.now()),
            TimeSource::Database => {
                self.row(statement::NOW, &[]).await?.ok_or(StoreError::internal("the database tells no time"))?.at(0)
            }
        }
    }

    /// Whether it answers and takes writes: readiness.
    pub async fn answers(&self) -> Result<(), StoreError> {
        self.row(statement::NOTHING, &[]).await?;
        self.write(|tx| Box::pin(async move { tx.row(statement::NOTHING, &[]).await.map(|_| ()) })).await
    }

    /// Whether a committed row survives what the deployment promises: refuses `synchronous_commit` off, and a standby
    /// without `synchronous_standby_names`. The answer is a sentence for the operator.
    pub async fn durability(&self) -> Result<Result<(), &'static str>, StoreError> {
        if self.engine() == Engine::Sqlite {
            return Ok(Ok(()));
        }
        let row = self.row(statement::DURABILITY, &[]).await?.ok_or(StoreError::internal("no settings"))?;
        let (commit, names, standbys): (String, String, i64) = (row.at(0)?, row.at(1)?, row.at(2)?);
        if commit == "off" {
            return Ok(Err(
                "PostgreSQL has `synchronous_commit` off: a crash would forget calls that were already sent. Set it to `on` and start again",
            ));
        }
        if standbys > 0 && names.is_empty() {
            return Ok(Err(
                "PostgreSQL has a standby but no `synchronous_standby_names`: a failover would forget calls that were already sent. Name the standby there and start again",
            ));
        }
        Ok(Ok(()))
    }

    /// What the writer of SQLite really has: journal mode, `synchronous`, foreign keys, secure delete. `None` on PostgreSQL.
    pub async fn sqlite_settings(&self) -> Result<Option<[String; 4]>, StoreError> {
        if self.engine() == Engine::Postgres {
            return Ok(None);
        }
        let row = self.write(|tx| Box::pin(async move { tx.row(statement::SETTINGS, &[]).await })).await?;
        let row = row.ok_or(StoreError::internal("no settings"))?;
        Ok(Some([row.at(0)?, row.at(1)?, row.at(2)?, row.at(3)?]))
    }

    /// How many connections are in use, and how many are open and wait.
    pub fn connections(&self) -> (usize, usize) {
        let (open, idle) = match &self.0.pools {
            Pools::Sqlite { writer, readers, .. } => (writer.size() + readers.size(), writer.num_idle() + readers.num_idle()),
            Pools::Postgres(pool) => (pool.size(), pool.num_idle()),
        };
        ((open as usize).saturating_sub(idle), idle)
    }

    /// Ends all connections; every later use answers "unavailable". On SQLite the WAL is written back.
    pub async fn close(&self) {
        match &self.0.pools {
            Pools::Sqlite { writer, readers, .. } => {
                readers.close().await;
                writer.close().await;
            }
            Pools::Postgres(pool) => pool.close().await,
        }
    }

    /// Randomness, as passed in.
    pub fn entropy(&self) -> &Entropy {
        &self.0.entropy
    }

    pub(crate) fn faults(&self) -> &Faults {
        &self.0.faults
    }

    pub(crate) fn sqlite_writer(&self) -> Option<&SqlitePool> {
        match &self.0.pools {
            Pools::Sqlite { writer, .. } => Some(writer),
            Pools::Postgres(_) => None,
        }
    }

    pub(crate) fn postgres_pool(&self) -> Option<&PgPool> {
        match &self.0.pools {
            Pools::Sqlite { .. } => None,
            Pools::Postgres(pool) => Some(pool),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "this is where PostgreSQL's transactions begin; `write` runs it in a task")]
    async fn begin(&self, pool: &PgPool) -> Result<Tx, StoreError> {
        let inner = tx::Inner::Postgres(pool.begin().await?);
        Ok(Tx { inner, time: self.0.time.clone(), entropy: self.0.entropy.clone(), now: None, news: Vec::new() })
    }
}

/// PostgreSQL's; SQLite's writer ends its transactions itself.
impl Tx {
    /// What there is to tell, now that it is true.
    async fn commit(mut self) -> Result<Vec<News>, StoreError> {
        let news = std::mem::take(&mut self.news);
        news::tell_replicas(&mut self, &news).await?;
        match self.inner {
            tx::Inner::Postgres(tx) => tx.commit().await?,
            tx::Inner::Sqlite(_) => return Err(StoreError::internal("a transaction of the other engine")),
        }
        Ok(news)
    }

    /// A rollback that fails means a broken connection, which rolls back by itself; the first error is the one to tell.
    async fn roll_back(self) {
        if let tx::Inner::Postgres(tx) = self.inner
            && let Err(error) = tx.rollback().await
        {
            tracing::debug!(error = %StoreError::from(error), "rollback failed");
        }
    }
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Db").field(&self.engine()).finish()
    }
}

/// A read that is the same inside and outside a transaction.
pub(crate) trait Reads: Send {
    fn fetch<'a>(&'a mut self, sql: Sql, vals: &'a [Val<'a>]) -> BoxFuture<'a, Result<Vec<Row>, StoreError>>;
}

impl Reads for &Db {
    fn fetch<'a>(&'a mut self, sql: Sql, vals: &'a [Val<'a>]) -> BoxFuture<'a, Result<Vec<Row>, StoreError>> {
        Box::pin(self.rows(sql, vals))
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the facade: the texts are listed constants")]
fn bind_sqlite<'q>(sql: Sql, vals: &[Val<'_>]) -> Query<'q, Sqlite, SqliteArguments> {
    vals.iter().fold(sqlx::query(sql.sqlite()), |query, val| match val {
        Val::Text(text) => query.bind(*text),
        Val::Owned(text) => query.bind(text.as_str()),
        Val::Int(number) => query.bind(*number),
        Val::Bytes(bytes) => query.bind(*bytes),
    })
}

#[expect(clippy::disallowed_methods, reason = "this is the facade: the texts are listed constants")]
fn bind_postgres<'q>(sql: Sql, vals: &[Val<'_>]) -> Query<'q, Postgres, PgArguments> {
    vals.iter().fold(sqlx::query(sql.postgres()), |query, val| match val {
        Val::Text(text) => query.bind(*text),
        Val::Owned(text) => query.bind(text.as_str()),
        Val::Int(number) => query.bind(*number),
        Val::Bytes(bytes) => query.bind(*bytes),
    })
}

/// The one writer and the readers.
async fn open_sqlite(path: PathBuf) -> Result<(SqlitePool, SqlitePool), OpenError> {
    files::private_file(&path).map_err(|error| OpenError::File { kind: error.kind() })?;
    let options = SqliteConnectOptions::new()
        .filename(&path)
        .foreign_keys(true)
        .busy_timeout(PATIENCE)
        .statement_cache_capacity(CACHED_STATEMENTS);
    // What is deleted is overwritten, so that a stolen file holds no old secrets (S-04).
    let writing =
        options.clone().journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Full).pragma("secure_delete", "on");
    let pool =
        || SqlitePoolOptions::new().acquire_timeout(PATIENCE).test_before_acquire(false).idle_timeout(None).max_lifetime(None);
    // Exactly one: with more, busy polling starves waiters for seconds.
    let writer = patiently(|| pool().max_connections(1).connect_with(writing.clone())).await?;
    let row = bind_sqlite(statement::VERSION, &[]).fetch_one(&writer).await.map_err(StoreError::from)?;
    let version: String = Row::Sqlite(row).at(0)?;
    if !new_enough(&version) {
        writer.close().await;
        return Err(OpenError::OldSqlite { found: version });
    }
    let readers = pool().max_connections(SQLITE_READERS).connect_with(options.read_only(true)).await.map_err(StoreError::from)?;
    Ok((writer, readers))
}

/// Switching a new file to WAL wants it alone, and SQLite doesn't wait for that: of two processes that start on one empty file, one
/// is told that it is busy.
async fn patiently<T, C>(connect: impl Fn() -> C) -> Result<T, StoreError>
where
    C: Future<Output = Result<T, sqlx::Error>>,
{
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        match connect().await.map_err(StoreError::from) {
            Err(error) if error.is_busy() && tokio::time::Instant::now() < until => tokio::time::sleep(BUSY_AGAIN).await,
            connected => return connected,
        }
    }
}

async fn open_postgres(url: &str) -> Result<Pools, OpenError> {
    let options = PgConnectOptions::from_str(url)
        .map_err(|_| OpenError::Address)?
        .application_name("formation")
        .statement_cache_capacity(CACHED_STATEMENTS)
        // READ COMMITTED is what the locks are made for, whatever the server's default says.
        .options([("default_transaction_isolation", "read committed")]);
    // Once without the pool: it would try again for as long as a caller may wait, and a wrong address should say so now.
    options.connect().await.map_err(StoreError::from)?.close().await.map_err(StoreError::from)?;
    let pool = PgPoolOptions::new()
        .max_connections(POSTGRES_CONNECTIONS)
        .acquire_timeout(PATIENCE)
        .connect_with(options)
        .await
        .map_err(StoreError::from)?;
    Ok(Pools::Postgres(pool))
}

fn new_enough(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    (next(), next(), next()) >= SQLITE_FLOOR
}

pub(crate) mod statement {
    crate::db::statements! {
        NOW = "SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)"
            => "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)";
        NOTHING = "SELECT 1 FROM instances WHERE id = ''";
        VERSION = "SELECT sqlite_version()" => "SELECT version()";
        SETTINGS = "SELECT (SELECT journal_mode FROM pragma_journal_mode), CAST((SELECT synchronous FROM pragma_synchronous) AS TEXT), \
            CAST((SELECT foreign_keys FROM pragma_foreign_keys) AS TEXT), CAST((SELECT secure_delete FROM pragma_secure_delete) AS TEXT)"
            => "SELECT '', '', '', ''";
        DURABILITY = "SELECT 'on', '', 0" => "\
            SELECT current_setting('synchronous_commit'), current_setting('synchronous_standby_names'), \
            (SELECT count(*) FROM pg_stat_replication) + (SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'physical')";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        for (version, good) in [("3.51.3", true), ("3.52.0", true), ("4.0", true), ("3.51.2", false), ("3.9.9", false), ("", false)]
        {
            assert_eq!(new_enough(version), good, "{version}");
        }
    }

    #[test]
    fn an_address_prints_no_password() {
        let location = Location::parse("postgres://me:hunter2@localhost/db");
        assert_eq!(format!("{location:?}"), "Postgres(****)");
        assert_eq!(Location::parse("data/formation.db"), Location::Sqlite("data/formation.db".into()));
    }
}
