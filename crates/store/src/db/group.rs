//! SQLite's one writer: whoever waits for it shares one transaction, each in a savepoint of its own, so that one sync to the disk
//! carries many writes. A write that fails undoes itself alone; a commit that fails fails all it carried.

use std::{any::Any, panic::AssertUnwindSafe, sync::Arc};

use formation_core::Entropy;
use futures::{FutureExt as _, future::BoxFuture};
use sqlx::{Sqlite, SqlitePool, Transaction};
use tokio::sync::{mpsc, oneshot};

use super::{News, TimeSource, Tx, news::Board, tx::Inner};
use crate::error::StoreError;

/// At most so many writes in one transaction.
const BATCH: usize = 64;
/// So many may wait before another has to wait for a place.
const WAITING: usize = 1024;
const STOPPED: StoreError = StoreError::unavailable("the process is stopping");

/// A write that waits: given its transaction, or the reason why there is none.
type Job = Box<dyn for<'t> FnOnce(Result<&'t mut Tx, StoreError>) -> BoxFuture<'t, Done> + Send>;

/// What a write wants of its savepoint; each tells its caller when it is called.
enum Done {
    /// It is to stay; called with what became of the commit.
    Keep(Box<dyn FnOnce(Result<(), StoreError>) + Send>),
    /// It undoes itself.
    Undo(Box<dyn FnOnce() + Send>),
}

enum Answer<T, E> {
    Ended(Result<T, E>),
    Panicked(Box<dyn Any + Send>),
}

/// The way to the writer. Its task ends with the last clone.
#[derive(Clone)]
pub(super) struct Writer(mpsc::Sender<Job>);

impl Writer {
    /// Starts the task. Needs a Tokio runtime.
    pub(super) fn start(pool: SqlitePool, time: TimeSource, entropy: Entropy, board: Arc<Board>) -> Self {
        let (sender, jobs) = mpsc::channel(WAITING);
        tokio::spawn(serve(Group { pool, time, entropy, board }, jobs));
        Self(sender)
    }

    /// Runs `work` in the next transaction. It goes on if its caller goes away.
    pub(super) async fn write<T, E>(
        &self,
        work: impl for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, Result<T, E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job = job(move |tx| {
            Box::pin(async move {
                let tx = match tx {
                    Ok(tx) => tx,
                    Err(error) => return undo(answer, Answer::Ended(Err(E::from(error)))),
                };
                let worked = AssertUnwindSafe(work(tx)).catch_unwind().await;
                match worked {
                    Ok(Ok(value)) => Done::Keep(Box::new(move |committed: Result<(), StoreError>| {
                        let _ = answer.send(Answer::Ended(committed.map(|()| value).map_err(E::from)));
                    })),
                    Ok(Err(error)) => undo(answer, Answer::Ended(Err(error))),
                    Err(panic) => undo(answer, Answer::Panicked(panic)),
                }
            })
        });
        if self.0.send(job).await.is_err() {
            return Err(E::from(STOPPED));
        }
        match answered.await {
            Ok(Answer::Ended(result)) => result,
            Ok(Answer::Panicked(panic)) => std::panic::resume_unwind(panic),
            Err(_) => Err(E::from(STOPPED)),
        }
    }
}

/// Gives the closure the type that every lifetime needs.
fn job(job: impl for<'t> FnOnce(Result<&'t mut Tx, StoreError>) -> BoxFuture<'t, Done> + Send + 'static) -> Job {
    Box::new(job)
}

fn undo<T: Send + 'static, E: Send + 'static>(answer: oneshot::Sender<Answer<T, E>>, told: Answer<T, E>) -> Done {
    // A caller that went away hears nothing.
    Done::Undo(Box::new(move || drop(answer.send(told))))
}

struct Group {
    pool: SqlitePool,
    time: TimeSource,
    entropy: Entropy,
    board: Arc<Board>,
}

async fn serve(group: Group, mut jobs: mpsc::Receiver<Job>) {
    let mut batch = Vec::with_capacity(BATCH);
    while jobs.recv_many(&mut batch, BATCH).await > 0 {
        group.run(std::mem::take(&mut batch)).await;
    }
}

/// Called with what became of the commit.
type Kept = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

impl Group {
    #[expect(clippy::disallowed_methods, reason = "this task is where SQLite's transactions begin")]
    async fn run(&self, jobs: Vec<Job>) {
        let begun = self.pool.begin_with("BEGIN IMMEDIATE").await.map_err(StoreError::from);
        let transaction = match begun {
            Ok(transaction) => transaction,
            Err(error) => return refuse(jobs, &error).await,
        };
        let mut round = Round { group: self, transaction: Some(transaction), kept: Vec::new(), news: Vec::new() };
        let is_shared = jobs.len() > 1;
        let mut jobs = jobs.into_iter();
        while let Some(job) = jobs.next() {
            if let Err(error) = round.one(job, is_shared).await {
                round.fail(&error);
                return refuse(jobs.collect(), &error).await;
            }
        }
        round.commit().await;
    }
}

/// One transaction and what is decided in it.
struct Round<'g> {
    group: &'g Group,
    transaction: Option<Transaction<'static, Sqlite>>,
    kept: Vec<Kept>,
    news: Vec<News>,
}

impl Round<'_> {
    /// Runs one write. An error is the transaction's: it is gone, and everything in it.
    async fn one(&mut self, job: Job, is_shared: bool) -> Result<(), StoreError> {
        let transaction = self.transaction.take().ok_or(StoreError::internal("a transaction is gone"))?;
        let (time, entropy) = (self.group.time.clone(), self.group.entropy.clone());
        let mut tx = Tx { inner: Inner::Sqlite(transaction), time, entropy, now: None, news: Vec::new() };
        if is_shared && let Err(error) = tx.exec(sql::SAVE, &[]).await {
            // The job has a caller who has to hear it.
            told(job(Err(error.clone())).await, &error);
            return Err(error);
        }
        let done = job(Ok(&mut tx)).await;
        let ended = match (&done, is_shared) {
            (Done::Keep(_), true) => tx.exec(sql::RELEASE, &[]).await.map(drop),
            (Done::Undo(_), true) => match tx.exec(sql::UNDO, &[]).await {
                Ok(_) => tx.exec(sql::RELEASE, &[]).await.map(drop),
                Err(error) => Err(error),
            },
            (Done::Keep(_) | Done::Undo(_), false) => Ok(()),
        };
        let Tx { inner, news, .. } = tx;
        if let Err(error) = ended {
            told(done, &error);
            return Err(error);
        }
        match done {
            Done::Keep(keep) => {
                self.kept.push(keep);
                self.news.extend(news);
                if let Inner::Sqlite(transaction) = inner {
                    self.transaction = Some(transaction);
                }
            }
            Done::Undo(tell) => {
                if is_shared && let Inner::Sqlite(transaction) = inner {
                    self.transaction = Some(transaction);
                } else if let Inner::Sqlite(transaction) = inner
                    && let Err(error) = transaction.rollback().await
                {
                    tracing::debug!(error = %StoreError::from(error), "rollback failed");
                }
                tell();
            }
        }
        Ok(())
    }

    async fn commit(self) {
        let committed = match self.transaction {
            Some(transaction) => transaction.commit().await.map_err(StoreError::from),
            // The only write of this round undid itself.
            None => return,
        };
        if committed.is_ok() {
            self.group.board.tell_all(self.news);
        }
        for keep in self.kept {
            keep(committed.clone());
        }
    }

    fn fail(self, error: &StoreError) {
        for keep in self.kept {
            keep(Err(error.clone()));
        }
    }
}

fn told(done: Done, error: &StoreError) {
    match done {
        Done::Keep(keep) => keep(Err(error.clone())),
        Done::Undo(tell) => tell(),
    }
}

/// Tells everybody why there is no transaction for them.
async fn refuse(jobs: Vec<Job>, error: &StoreError) {
    for job in jobs {
        told(job(Err(error.clone())).await, error);
    }
}

pub(crate) mod sql {
    crate::db::statements! {
        SAVE = "SAVEPOINT one" => "SELECT 1";
        RELEASE = "RELEASE one" => "SELECT 1";
        UNDO = "ROLLBACK TO one" => "SELECT 1";
    }
}
