//! Searches, from a standing offer to the settled row: the provider's limits, admission with its meters, one request, the end.

use std::sync::Arc;

use formation_core::{
    Binding, CallId, Observation, Outcome, Tool,
    failure::{CallFailure, CallReason, CallStage},
    limits,
    observation::escaped_len,
    refusal::{Code, Refusal, RefusalReason},
    search::{self, Hit},
};
use formation_store::{
    admission::{Admission, Grant},
    ledger::{self, Settle},
    offers::StoredOffer,
};
use formation_vendors::{Account, Search};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    ExecuteError, Inner, RunRef, measure,
    watch::{Cut, Watched},
};

/// What is searched for.
pub(crate) struct Wanted<'a> {
    pub(crate) query: &'a str,
    pub(crate) limit: u8,
}

impl Inner {
    /// A search, to its end. Cancelling counts until admission.
    pub(crate) async fn search(
        self: &Arc<Self>,
        id: CallId,
        run: &RunRef,
        offer: &StoredOffer,
        wanted: Wanted<'_>,
        cancel: CancellationToken,
    ) -> Result<ledger::StoredCall, ExecuteError> {
        let tool = Tool::WebSearch;
        let Some(search) = self.catalog.search(&offer.binding.vendor) else {
            let explanation =
                "This provider is not part of this server any more. Nothing was sent; an operator can choose another.";
            return self.refuse(run, id, tool, Refusal::new(RefusalReason::NotOffered, explanation)).await;
        };
        if let Err(invalid) = search.check(wanted.query) {
            return self.refuse(run, id, tool, Refusal::new(RefusalReason::InvalidArguments, invalid.to_string())).await;
        }
        if cancel.is_cancelled() {
            return self.settle(Settle::failed(id, self.instance, Outcome::NotDispatched, Code::Cancelled)).await;
        }
        let watched = self.watch.enter(id, run.run, &offer.binding);
        let grant = match self.admit(self.ask(id, run, tool, offer)).await? {
            Admission::Granted(grant) => grant,
            Admission::Repeat(call) => return Ok(*call),
            Admission::Busy => return Err(ExecuteError::Internal),
            Admission::Refused(refusal) => {
                let refusal = self.offer_again(run, tool, refusal).await?;
                return self.refuse(run, id, tool, refusal).await;
            }
        };
        self.searched(run, *grant, search.as_ref(), wanted, &watched).await
    }
}

impl Inner {
    /// One request, whose end is written whatever it is.
    async fn searched(
        self: &Arc<Self>,
        run: &RunRef,
        grant: Grant,
        search: &dyn Search,
        wanted: Wanted<'_>,
        watched: &Watched<'_>,
    ) -> Result<ledger::StoredCall, ExecuteError> {
        let Grant { effective, key, .. } = grant;
        let id = watched.call();
        let binding = effective.binding;
        let key = match key.map(|key| key.open(&self.keys)).transpose() {
            Ok(key) => key,
            Err(error) => {
                tracing::error!(%error, account = %binding.account, "a credential could not be opened");
                let failure = CallFailure::new(CallStage::Request, CallReason::CredentialRejected);
                let observation = run.introduce(Observation::failure(Tool::WebSearch, &binding, id, &failure));
                return self.settle(Settle::finished(id, self.instance, binding, Outcome::Failed, observation)).await;
            }
        };
        self.faults.at("send.before");
        let account = Account { key: key.as_ref(), config: &effective.account_config };
        let asked = Instant::now();
        let answer = tokio::select! {
            // Dropping the request closes its connection.
            biased;
            cut = watched.cut() => Err(cut),
            answer = search.search(account, &effective.config, wanted.query, wanted.limit) => Ok(answer),
        };
        drop(key);
        measure::provider(Tool::WebSearch, &binding.vendor, asked);
        let answer = match answer {
            Ok(answer) => answer,
            Err(Cut::Cancelled) => {
                return self.settle(Settle::failed(id, self.instance, Outcome::Interrupted, Code::Cancelled)).await;
            }
            Err(Cut::Revoked) => {
                let observation = run.introduce(revoked(Tool::WebSearch, Outcome::Interrupted));
                return self.settle(Settle::finished(id, self.instance, binding, Outcome::Interrupted, observation)).await;
            }
        };
        let (outcome, observation) = match answer {
            Ok(hits) => (Outcome::Ok, found(id, run, &binding, wanted.query, hits)),
            Err(failure) => (Outcome::Failed, Observation::failure(Tool::WebSearch, &binding, id, &failure)),
        };
        self.settle(Settle::finished(id, self.instance, binding, outcome, run.introduce(observation))).await
    }
}

/// The answer to a call whose grant went after admission: what became of it, and no content.
pub(crate) fn revoked(tool: Tool, outcome: Outcome) -> Observation {
    let explanation = "The grant this call was admitted on was taken back while it ran. What was sent may still count at the provider; \
                       its result is not shown. List the tools again.";
    let mut refusal = Refusal::new(RefusalReason::GrantRevoked, explanation);
    refusal.outcome = Some(outcome);
    Observation::refusal(tool, &refusal)
}

fn found(id: CallId, run: &RunRef, binding: &Binding, query: &str, mut hits: Vec<Hit>) -> Observation {
    let own = |results: &[Hit], truncated: bool| json!({"query": query, "results": results, "truncated": truncated});
    // Room for `run` of a successor's first call is part of the envelope.
    let envelope = Observation::of(Tool::WebSearch, binding, id, own(&[], false)).in_new_run(run.run);
    let is_cut = search::bound(&mut hits, limits::SEARCH_OBSERVATION_BYTES.saturating_sub(escaped_len(&envelope.text())));
    let truncated = is_cut || hits.iter().any(|hit| hit.truncated);
    Observation::of(Tool::WebSearch, binding, id, own(&hits, truncated))
}
