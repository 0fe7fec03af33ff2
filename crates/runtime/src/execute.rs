//! The one execution path (contract.md 3): on record, arguments, turn, admission, effect, end.
//!
//! A call runs in a task of its own, so a caller that hangs up changes nothing. Every arm below ends with exactly one row settled
//! once; what this process cannot write, recovery ends truthfully.

use std::{sync::Arc, time::Duration};

use formation_core::{
    ArtifactId, BrowserSessionId, CallId, Class, Observation, Outcome, Tool,
    arguments::Arguments,
    failure::{BrowserStage, Phase, Reason, Refused},
    limits,
    refusal::{Code, Refusal, RefusalReason},
};
use formation_store::{
    StoreError,
    admission::{Admission, Ask, SessionAsk},
    artifacts, browser_sessions,
    ledger::{self, NewCall, Queued, Settle, Settled},
    offers::StoredOffer,
};
use serde_json::json;
use tokio::time::{Instant, sleep};
use tracing::Instrument as _;

use crate::{
    Answer, CallRequest, Door, ExecuteError, Image, Inner, RunRef, Runtime, StoredCall,
    browse::{Admitted, Ended, Ending},
    measure,
    offers::Standing,
    pages::Turn,
    search::{self, Wanted},
    watch::Cut,
};

/// When the end of a call is tried to be written again, while its caller waits.
const SETTLE_TRIES: [Duration; 4] =
    [Duration::from_millis(50), Duration::from_millis(250), Duration::from_secs(1), Duration::from_secs(3)];
/// How often it is tried after that, until the call's own bound has passed and recovery may have it.
const SETTLE_AGAIN: Duration = Duration::from_secs(1);
/// How often a call that another replica runs is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

impl Runtime {
    /// Runs one call to its end, in a task of its own: a caller that hangs up changes nothing.
    pub async fn execute(&self, run: RunRef, request: CallRequest) -> Result<Answer, ExecuteError> {
        let inner = Arc::clone(&self.0);
        // A panic in a handler is the only way the task can end without an answer; recovery ends its call.
        self.0
            .tasks
            .spawn(async move { inner.execute(run, request).await }.in_current_span())
            .await
            .unwrap_or(Err(ExecuteError::Internal))
    }
}

impl Inner {
    async fn execute(self: &Arc<Self>, run: RunRef, request: CallRequest) -> Result<Answer, ExecuteError> {
        match self.queue(&run, &request, request.key.clone()).await? {
            Queued::Fresh(id) => {
                let _running = self.waiting.start(id);
                let (tool, began) = (request.tool, Instant::now());
                let handled = self.handle(id, &run, request).await;
                measure::ended(id, tool, handled.as_ref().ok().map(|(call, _)| call), began.elapsed());
                let (call, jpeg) = handled?;
                self.answer(call, jpeg).await
            }
            Queued::Known(call) if call.execution.is_settled() => self.answer(call, None).await,
            Queued::Known(call) => match request.door {
                Door::Run => Ok(Answer::Running { id: call.id }),
                Door::Mcp => self.wait_for(&run, call.id).await,
            },
            Queued::Refused(call) => {
                measure::ended(call.id, request.tool, Some(&call), Duration::ZERO);
                self.answer(call, None).await
            }
            Queued::OtherArguments => match request.door {
                Door::Run => Err(ExecuteError::IdReused),
                Door::Mcp => self.refuse_reused_key(&run, &request).await,
            },
        }
    }

    async fn queue(&self, run: &RunRef, request: &CallRequest, key: Option<String>) -> Result<Queued, ExecuteError> {
        let new = NewCall {
            agent: run.agent,
            run: run.run,
            key,
            tool: request.tool,
            arguments: request.arguments.clone(),
            holder: self.instance,
            bound: self.timing.turn + limits::CALL_BOUND,
        };
        // Nothing was sent yet, whatever the database says.
        Ok(self.db.write(move |tx| Box::pin(async move { ledger::queue(tx, &new).await })).await?)
    }

    /// Over MCP a key used for another call is a refusal, recorded without its key.
    async fn refuse_reused_key(&self, run: &RunRef, request: &CallRequest) -> Result<Answer, ExecuteError> {
        let queued = self.queue(run, request, None).await?;
        let call = match queued {
            Queued::Fresh(id) => {
                let explanation = "This id stands for an earlier call with other arguments. Nothing was sent; use a new id.";
                self.refuse(run, id, request.tool, Refusal::new(RefusalReason::IdReused, explanation)).await?
            }
            Queued::Known(call) | Queued::Refused(call) => call,
            Queued::OtherArguments => return Err(ExecuteError::Internal),
        };
        self.answer(call, None).await
    }

    /// A repeat of a call that runs: here, or in another replica.
    async fn wait_for(&self, run: &RunRef, id: CallId) -> Result<Answer, ExecuteError> {
        let until = Instant::now() + self.timing.turn + limits::CALL_BOUND + self.timing.lease;
        loop {
            self.waiting.settled(id).await;
            match ledger::call(&self.db, run.agent, id).await? {
                Some(call) if call.execution.is_settled() => return self.answer(call, None).await,
                Some(_) if Instant::now() < until => sleep(LOOK_AGAIN).await,
                Some(_) => return Ok(Answer::Running { id }),
                None => return Err(ExecuteError::Internal),
            }
        }
    }

    /// A queued call, to its end. Refusals consume nothing.
    async fn handle(
        self: &Arc<Self>,
        id: CallId,
        run: &RunRef,
        request: CallRequest,
    ) -> Result<(ledger::StoredCall, Option<Vec<u8>>), ExecuteError> {
        let tool = request.tool;
        let arguments = match Arguments::parse(tool, &request.arguments) {
            Ok(arguments) => arguments,
            Err(invalid) => {
                let refusal = Refusal::new(RefusalReason::InvalidArguments, invalid.to_string());
                return Ok((self.refuse(run, id, tool, refusal).await?, None));
            }
        };
        let offer = match self.standing(run, tool, request.offer).await? {
            Standing::Offer(offer) => offer,
            Standing::Refused(refusal) => return Ok((self.refuse(run, id, tool, refusal).await?, None)),
        };
        let arguments = match arguments {
            Arguments::Browse(arguments) => arguments,
            Arguments::Search { query, limit } => {
                let wanted = Wanted { query: &query, limit };
                return self.search(id, run, &offer, wanted, request.cancel).await.map(|call| (call, None));
            }
        };
        let turn = tokio::select! {
            turn = self.pages.turn(run.run, self.timing.turn) => turn,
            () = request.cancel.cancelled() => {
                return Ok((self.settle(Settle::failed(id, self.instance, Outcome::NotDispatched, Code::Cancelled)).await?, None));
            }
        };
        let deadline = Instant::now() + self.timing.operation;
        let Some(mut turn) = turn else { return Ok((self.busy(run, id, tool, Reason::Timeout).await?, None)) };
        let watched = self.watch.enter(id, run.run, &offer.binding);
        let admission = self.admit(self.ask(id, run, tool, &offer)).await?;
        match admission {
            Admission::Granted(grant) => {
                let Some(session) = grant.session else {
                    return self.without_session(run, id, tool, &offer).await.map(|call| (call, None));
                };
                let admitted = Admitted {
                    call: id,
                    run: run.run,
                    tool,
                    binding: grant.effective.binding,
                    config: grant.effective.config,
                    session,
                };
                let asked = Instant::now();
                let ending = self.browse(&mut turn, &admitted, arguments, deadline, &watched).await;
                measure::provider(tool, &admitted.binding.vendor, asked);
                self.end(turn, run, admitted, ending).await
            }
            Admission::Repeat(call) => Ok((*call, None)),
            Admission::Busy => Ok((self.busy(run, id, tool, Reason::SessionBusy).await?, None)),
            Admission::Refused(refusal) => {
                let refusal = self.offer_again(run, tool, refusal).await?;
                Ok((self.refuse(run, id, tool, refusal).await?, None))
            }
        }
    }

    pub(crate) fn ask(&self, id: CallId, run: &RunRef, tool: Tool, offer: &StoredOffer) -> Ask {
        let session = match tool {
            Tool::BrowserNavigate | Tool::BrowserRead | Tool::BrowserScreenshot => {
                SessionAsk::ExistingOrNew(BrowserSessionId::mint(self.clock.now(), &self.entropy))
            }
            Tool::BrowserAct => SessionAsk::Existing,
            Tool::WebSearch => SessionAsk::None,
        };
        Ask {
            call: id,
            run: run.run,
            agent: run.agent,
            holder: self.instance,
            offer: offer.id,
            offered: offer.binding.clone(),
            class: tool.class(),
            session,
            bound: limits::CALL_BOUND,
        }
    }

    /// An action where no page was opened: no ref can be good (browser.md 1.2).
    async fn without_session(
        self: &Arc<Self>,
        run: &RunRef,
        id: CallId,
        tool: Tool,
        offer: &StoredOffer,
    ) -> Result<ledger::StoredCall, ExecuteError> {
        let refused = Refused::new(BrowserStage::Input, Phase::Resolve, Reason::StaleRef);
        let observation = Observation::browser_failure(tool, Some((&offer.binding, id)), &refused, Outcome::NotDispatched);
        let observation = run.introduce(observation);
        self.settle(Settle::finished(id, self.instance, offer.binding.clone(), Outcome::NotDispatched, observation)).await
    }

    /// Writes the end of an admitted call, gives the turn back, and closes what is lost.
    async fn end(
        self: &Arc<Self>,
        mut turn: Turn,
        run: &RunRef,
        admitted: Admitted,
        ended: Result<Ended, StoreError>,
    ) -> Result<(ledger::StoredCall, Option<Vec<u8>>), ExecuteError> {
        let session = admitted.session.id;
        let (settle, jpeg, is_lost) = match ended {
            Ok(Ended::Finished(ending)) => self.as_settle(run, admitted, ending),
            Ok(Ended::Cut(Cut::Cancelled, Outcome::InputDispatched)) => {
                // All input was acknowledged; that its run ended meanwhile makes no doubt of it.
                let refused = Refused::new(BrowserStage::Observation, Phase::Observe, Reason::SessionLost);
                let ending = admitted.failed(&refused, Outcome::InputDispatched);
                self.as_settle(run, admitted, ending)
            }
            Ok(Ended::Cut(Cut::Cancelled, outcome)) => {
                (Settle::failed(admitted.call, self.instance, outcome, Code::Cancelled), None, false)
            }
            Ok(Ended::Cut(Cut::Revoked, outcome)) => {
                let observation = run.introduce(search::revoked(admitted.tool, outcome));
                (Settle::finished(admitted.call, self.instance, admitted.binding, outcome, observation), None, false)
            }
            Err(error) => {
                // The database failed between admission and dispatch: nothing was sent. If it still fails, recovery says the same.
                tracing::warn!(%error, call.id = %admitted.call, "a call could not go on");
                let outcome = match admitted.tool.class() {
                    Class::Read => Outcome::Interrupted,
                    Class::ExternalEffect => Outcome::NotDispatched,
                };
                (Settle::failed(admitted.call, self.instance, outcome, Code::StoreUnavailable), None, false)
            }
        };
        let call = self.settle(settle).await?;
        if is_lost {
            turn.live = None;
            browser_sessions::lost(&self.db, session, true).await?;
        }
        drop(turn);
        if is_lost {
            self.wake_sweeper();
        }
        Ok((call, jpeg))
    }

    fn as_settle(&self, run: &RunRef, admitted: Admitted, ending: Ending) -> (Settle, Option<Vec<u8>>, bool) {
        let Ending { outcome, mut observation, refs, capture, is_lost } = ending;
        let mut artifact = None;
        if let Some(capture) = &capture {
            let id = ArtifactId::mint(self.clock.now(), &self.entropy);
            let picture = artifacts::Picture { jpeg: &capture.jpeg, width: capture.width, height: capture.height };
            artifact = Some(artifacts::seal(&self.keys, &self.entropy, id, run.agent, picture));
            observation.set("artifact", json!(id));
        }
        let observation = run.introduce(observation);
        let mut settle = Settle::finished(admitted.call, self.instance, admitted.binding, outcome, observation);
        settle.refs = refs;
        settle.artifact = artifact;
        (settle, capture.map(|capture| capture.jpeg), is_lost)
    }

    /// Writes the end of a call, trying again for a few seconds: what was sent must not be forgotten over a short outage.
    pub(crate) async fn settle(self: &Arc<Self>, settle: Settle) -> Result<ledger::StoredCall, ExecuteError> {
        let call = settle.call;
        let mut waits = SETTLE_TRIES.iter();
        loop {
            match ledger::settle(&self.db, &self.rules, settle.clone()).await {
                Ok(settled) => {
                    if matches!(settled, Settled::Withheld(_)) {
                        self.wake_sweeper();
                    }
                    return Ok(settled.call().clone());
                }
                Err(error) => {
                    let Some(wait) = waits.next() else {
                        tracing::error!(%error, call.id = %call, "the end of a call could not be written yet");
                        self.tasks.spawn(Arc::clone(self).settle_later(settle));
                        return Err(ExecuteError::Unsettled { id: call });
                    };
                    sleep(*wait).await;
                }
            }
        }
    }

    /// Goes on trying in the background, so that an outage longer than a caller's patience ends with what really happened.
    async fn settle_later(self: Arc<Self>, settle: Settle) {
        let until = Instant::now() + limits::CALL_BOUND;
        while Instant::now() < until {
            sleep(SETTLE_AGAIN).await;
            if ledger::settle(&self.db, &self.rules, settle.clone()).await.is_ok() {
                return;
            }
        }
        tracing::error!(call.id = %settle.call, "the end of a call could not be written; recovery will end it");
    }

    pub(crate) async fn refuse(
        &self,
        run: &RunRef,
        id: CallId,
        tool: Tool,
        refusal: Refusal,
    ) -> Result<ledger::StoredCall, ExecuteError> {
        self.turn_away(run, id, Observation::refusal(tool, &refusal)).await
    }

    /// The session is held elsewhere, or the turn didn't come: a browser failure, and no unit consumed.
    async fn busy(&self, run: &RunRef, id: CallId, tool: Tool, reason: Reason) -> Result<ledger::StoredCall, ExecuteError> {
        let refused = Refused::new(BrowserStage::BrowserConnection, Phase::Admit, reason);
        self.turn_away(run, id, Observation::browser_failure(tool, None, &refused, Outcome::NotDispatched)).await
    }

    async fn turn_away(&self, run: &RunRef, id: CallId, observation: Observation) -> Result<ledger::StoredCall, ExecuteError> {
        Ok(ledger::refuse(&self.db, id, self.instance, run.introduce(observation)).await?.call().clone())
    }

    /// What the door hands out. A repeat of a call that took a screenshot reads the picture again while it lives.
    async fn answer(&self, call: ledger::StoredCall, jpeg: Option<Vec<u8>>) -> Result<Answer, ExecuteError> {
        let image = self.image_of(&call, jpeg).await;
        Ok(Answer::Settled { call: Box::new(StoredCall::from(call)), image })
    }

    pub(crate) async fn image_of(&self, call: &ledger::StoredCall, jpeg: Option<Vec<u8>>) -> Option<Image> {
        let artifact = call.observation.as_ref()?.field("artifact")?.as_str()?;
        let artifact = ArtifactId::parse(artifact).ok()?;
        let jpeg = match jpeg {
            Some(jpeg) => jpeg,
            None => match artifacts::read(&self.db, &self.keys, call.run, artifact).await {
                Ok(Some(artifacts::Artifact::Jpeg(jpeg))) => jpeg,
                Ok(_) => return None,
                Err(error) => {
                    tracing::warn!(%error, "a screenshot could not be read again");
                    return None;
                }
            },
        };
        Some(Image { artifact, jpeg })
    }
}
