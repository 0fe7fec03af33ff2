//! The write transaction.

use formation_core::{Entropy, Scope, Timestamp};
use futures::future::BoxFuture;
use sqlx::{Postgres, Sqlite, Transaction};

use super::{News, Reads, Row, Sql, TimeSource, Val};
use crate::error::StoreError;

/// How long-lived settings and the work that depends on them meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Admissions and settles: many at once, no settings write between.
    Shared,
    /// A settings write: alone.
    Exclusive,
}

/// One write transaction. Only `Db::write` makes one, and commits or rolls it back.
pub struct Tx {
    pub(super) inner: Inner,
    pub(super) time: TimeSource,
    pub(super) entropy: Entropy,
    pub(super) now: Option<Timestamp>,
    pub(super) news: Vec<News>,
}

pub(super) enum Inner {
    Sqlite(Transaction<'static, Sqlite>),
    Postgres(Transaction<'static, Postgres>),
}

impl Tx {
    /// Runs a statement; how many rows it touched.
    pub async fn exec(&mut self, sql: Sql, vals: &[Val<'_>]) -> Result<u64, StoreError> {
        Ok(match &mut self.inner {
            Inner::Sqlite(tx) => super::bind_sqlite(sql, vals).execute(&mut **tx).await?.rows_affected(),
            Inner::Postgres(tx) => super::bind_postgres(sql, vals).execute(&mut **tx).await?.rows_affected(),
        })
    }

    /// Runs a statement; the rows it answers.
    pub async fn rows(&mut self, sql: Sql, vals: &[Val<'_>]) -> Result<Vec<Row>, StoreError> {
        Ok(match &mut self.inner {
            Inner::Sqlite(tx) => super::bind_sqlite(sql, vals).fetch_all(&mut **tx).await?.into_iter().map(Row::Sqlite).collect(),
            Inner::Postgres(tx) => {
                super::bind_postgres(sql, vals).fetch_all(&mut **tx).await?.into_iter().map(Row::Postgres).collect()
            }
        })
    }

    /// Runs a statement that answers at most one row.
    pub async fn row(&mut self, sql: Sql, vals: &[Val<'_>]) -> Result<Option<Row>, StoreError> {
        Ok(match &mut self.inner {
            Inner::Sqlite(tx) => super::bind_sqlite(sql, vals).fetch_optional(&mut **tx).await?.map(Row::Sqlite),
            Inner::Postgres(tx) => super::bind_postgres(sql, vals).fetch_optional(&mut **tx).await?.map(Row::Postgres),
        })
    }

    /// Takes the lock of one owner's settings, to the end of the transaction: advisory on PostgreSQL; on SQLite the transaction
    /// holds the only write lock already. Always the install's first, then the agent's (spine 5).
    pub async fn lock_scope(&mut self, scope: Scope, hold: Hold) -> Result<(), StoreError> {
        if matches!(self.inner, Inner::Postgres(_)) {
            let sql = match hold {
                Hold::Shared => sql::LOCK_SHARED,
                Hold::Exclusive => sql::LOCK_EXCLUSIVE,
            };
            self.exec(sql, &[scope.into()]).await?;
        }
        Ok(())
    }

    /// The one moment of this transaction: the database's clock on PostgreSQL, the process's on SQLite, a test's frozen one on both.
    pub async fn now(&mut self) -> Result<Timestamp, StoreError> {
        if let Some(now) = self.now {
            return Ok(now);
        }
        let now = match &self.time {
            TimeSource::Process(clock) => clock.now(),
            TimeSource::Database => {
                self.row(super::statement::NOW, &[]).await?.ok_or(StoreError::internal("the database tells no time"))?.at(0)?
            }
        };
        self.now = Some(now);
        Ok(now)
    }

    /// Tells it to every listener of every replica, once this transaction is committed.
    pub fn tell(&mut self, news: News) {
        if !self.news.contains(&news) {
            self.news.push(news);
        }
    }

    /// Randomness for new ids and tokens.
    pub const fn entropy(&self) -> &Entropy {
        &self.entropy
    }
}

impl Reads for Tx {
    fn fetch<'a>(&'a mut self, sql: Sql, vals: &'a [Val<'a>]) -> BoxFuture<'a, Result<Vec<Row>, StoreError>> {
        Box::pin(self.rows(sql, vals))
    }
}

impl std::fmt::Debug for Tx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tx")
    }
}

pub(crate) mod sql {
    crate::db::statements! {
        // One key per owner scope; the number keeps these keys apart from other uses of advisory locks.
        LOCK_SHARED = "SELECT 1" => "SELECT pg_advisory_xact_lock_shared(hashtextextended($1, 73001))";
        LOCK_EXCLUSIVE = "SELECT 1" => "SELECT pg_advisory_xact_lock(hashtextextended($1, 73001))";
    }
}
