//! The combiner: waiting admissions of this process go into one transaction, which is what lifts one fsync, or one hot row, over
//! many callers.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::{
    admission::{self, Admission, Ask},
    db::Db,
    error::StoreError,
    settings::Rules,
};

/// At most so many admissions in one transaction.
const BATCH: usize = 64;
/// So many callers may wait before another has to wait for a place.
const WAITING: usize = 1024;
/// How often one ask is tried that keeps losing against other transactions.
const TRIES: usize = 5;

type Waiting = (Ask, oneshot::Sender<Result<Admission, StoreError>>);

/// Admits calls for all of this process. Cheap to clone; its task ends with the last clone.
#[derive(Clone, Debug)]
pub struct Combiner(mpsc::Sender<Waiting>);

impl Combiner {
    /// Starts its task. Needs a Tokio runtime.
    pub fn start(db: Db, rules: Rules) -> Self {
        let (sender, waiting) = mpsc::channel(WAITING);
        tokio::spawn(serve(db, rules, waiting));
        Self(sender)
    }

    /// Admits one call, together with whoever else is waiting.
    pub async fn admit(&self, ask: Ask) -> Result<Admission, StoreError> {
        const STOPPED: StoreError = StoreError::unavailable("the process is stopping");
        let (answer, answered) = oneshot::channel();
        self.0.send((ask, answer)).await.map_err(|_| STOPPED)?;
        answered.await.map_err(|_| STOPPED)?
    }
}

async fn serve(db: Db, rules: Rules, mut waiting: mpsc::Receiver<Waiting>) {
    let mut batch = Vec::with_capacity(BATCH);
    while waiting.recv_many(&mut batch, BATCH).await > 0 {
        let (asks, callers): (Vec<Ask>, Vec<_>) = batch.drain(..).unzip();
        for (answer, caller) in admit_all(&db, &rules, asks).await.into_iter().zip(callers) {
            // A caller that went away has its admission on record; recovery ends it.
            let _ = caller.send(answer);
        }
    }
}

async fn admit_all(db: &Db, rules: &Rules, asks: Vec<Ask>) -> Vec<Result<Admission, StoreError>> {
    let asks: Arc<[Ask]> = asks.into();
    match together(db, rules, Arc::clone(&asks)).await {
        Ok(answers) => answers.into_iter().map(Ok).collect(),
        Err(error) if error.is_unavailable() => vec![Err(error); asks.len()],
        // One bad row, or another replica in the way: each for itself, so that it stops nobody else.
        Err(error) => {
            tracing::debug!(%error, asks = asks.len(), "admitting one by one");
            let mut answers = Vec::with_capacity(asks.len());
            for ask in asks.iter() {
                answers.push(alone(db, rules, ask).await);
            }
            answers
        }
    }
}

async fn alone(db: &Db, rules: &Rules, ask: &Ask) -> Result<Admission, StoreError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match together(db, rules, Arc::from([ask.clone()])).await {
            Ok(mut answers) => return answers.pop().ok_or(StoreError::internal("an ask got no answer")),
            Err(error) if error.is_conflict() && tries < TRIES => {}
            Err(error) => return Err(error),
        }
    }
}

async fn together(db: &Db, rules: &Rules, asks: Arc<[Ask]>) -> Result<Vec<Admission>, StoreError> {
    let faults = db.faults().clone();
    faults.at("admission.before");
    let rules = rules.clone();
    db.write(move |tx| {
        Box::pin(async move {
            let answers = admission::admit(tx, &rules, &asks).await?;
            faults.at("admission.inside");
            Ok(answers)
        })
    })
    .await
}
