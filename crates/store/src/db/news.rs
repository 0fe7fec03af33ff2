//! What changed and whom it concerns, told to whoever waits: within this process after the commit, to other replicas through
//! PostgreSQL's `NOTIFY`, which is part of the transaction. A listener that may have missed something hears [`News::Anything`].
//!
//! News only wake; what they mean is read from the database. Who hears none still polls (W20).

use std::{fmt, time::Duration};

use formation_core::{RunId, Scope};
use sqlx::postgres::PgListener;
use tokio::sync::broadcast;

use super::{Db, Tx, Val};
use crate::error::StoreError;

const CHANNEL: &str = "formation_news";
/// A listener that is further behind hears [`News::Anything`] instead.
const BACKLOG: usize = 256;
/// Between two attempts to listen again.
const AGAIN: Duration = Duration::from_secs(1);

/// One piece of news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// Settings or accounts of this owner changed.
    Settings(Scope),
    /// A run was opened, ended, or one of its calls changed.
    Run(RunId),
    /// Operators, their access or tokens changed.
    People,
    /// Something was missed: look at everything.
    Anything,
}

impl News {
    fn parse(text: &str) -> Self {
        match text.split_once(' ') {
            Some(("settings", scope)) => Scope::parse(scope).map_or(Self::Anything, Self::Settings),
            Some(("run", run)) => RunId::parse(run).map_or(Self::Anything, Self::Run),
            None if text == "people" => Self::People,
            _ => Self::Anything,
        }
    }
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settings(scope) => write!(f, "settings {scope}"),
            Self::Run(run) => write!(f, "run {run}"),
            Self::People => f.write_str("people"),
            Self::Anything => f.write_str("anything"),
        }
    }
}

/// Hears the news of this process and, on PostgreSQL while [`Db::hear_replicas`] runs, of the others.
#[derive(Debug)]
pub struct Listener(broadcast::Receiver<News>);

impl Listener {
    /// The next piece; never ends while the database is open.
    pub async fn next(&mut self) -> News {
        match self.0.recv().await {
            Ok(news) => news,
            Err(broadcast::error::RecvError::Lagged(_)) => News::Anything,
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Where the news of one process come together.
#[derive(Debug)]
pub(super) struct Board(broadcast::Sender<News>);

impl Board {
    pub(super) fn new() -> Self {
        Self(broadcast::Sender::new(BACKLOG))
    }

    pub(super) fn tell_all(&self, news: Vec<News>) {
        for news in news {
            self.tell(news);
        }
    }

    pub(super) fn tell(&self, news: News) {
        // Nobody listening is no fault.
        let _ = self.0.send(news);
    }
}

/// What a transaction has to tell, inside it: PostgreSQL sends it with the commit.
pub(super) async fn tell_replicas(tx: &mut Tx, news: &[News]) -> Result<(), StoreError> {
    for news in news {
        tx.exec(sql::TELL, &[Val::Owned(news.to_string())]).await?;
    }
    Ok(())
}

impl Db {
    /// Hears everything that is committed from now on.
    pub fn listen(&self) -> Listener {
        Listener(self.0.board.0.subscribe())
    }

    /// Listens to the other replicas until the future is dropped; ends at once on SQLite, which has none.
    pub async fn hear_replicas(&self) {
        let Some(pool) = self.postgres_pool() else { return };
        loop {
            if let Err(error) = self.hear(pool).await {
                tracing::warn!(%error, "the news of other replicas can't be heard; polling goes on");
            }
            self.0.board.tell(News::Anything);
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn hear(&self, pool: &sqlx::PgPool) -> Result<(), StoreError> {
        let mut listener = PgListener::connect_with(pool).await?;
        listener.listen(CHANNEL).await?;
        self.0.board.tell(News::Anything);
        // `try_recv` answers nothing when the connection was lost and made again: what came between is unknown.
        while let Some(heard) = listener.try_recv().await? {
            self.0.board.tell(News::parse(heard.payload()));
        }
        Ok(())
    }
}

pub(crate) mod sql {
    crate::db::statements! {
        // `CHANNEL` again: a statement is a constant.
        TELL = "SELECT 1" => "SELECT 1 FROM pg_notify('formation_news', $1)";
    }
}

#[cfg(test)]
mod tests {
    use formation_core::AgentId;

    use super::*;

    #[test]
    fn news_survive_the_wire() {
        for news in [
            News::Settings(Scope::Install),
            News::Settings(Scope::Agent(AgentId::fixed(3))),
            News::Run(RunId::fixed(4)),
            News::People,
            News::Anything,
        ] {
            assert_eq!(News::parse(&news.to_string()), news);
        }
        assert_eq!(News::parse("run nonsense"), News::Anything);
    }
}
