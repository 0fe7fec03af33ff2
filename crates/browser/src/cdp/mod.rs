//! The CDP client: one connection, flat sessions, every command with its own deadline.
//!
//! A command that waits never stops events from being handled: a dialog withholds the acknowledgement of the click that opened
//! it, and answering it is an event's business. So one task reads the connection, completes the waiting calls and hands events
//! to an [`Events`] in the order they came.

mod commands;
mod envelope;
mod events;

use std::{
    collections::HashMap,
    marker::PhantomData,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use formation_core::failure::Reason;
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

pub(crate) use self::{
    commands::*,
    envelope::{Envelope, decode},
    events::*,
};

/// How long answers are waited for once nothing can be sent.
const LAST_WORDS: Duration = Duration::from_millis(50);

/// The id of a flat session.
pub(crate) type SessionId = Arc<str>;

/// Why a command has no usable answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CdpError {
    /// It never entered the writer's queue: nothing can have happened.
    #[error("the command was not sent")]
    NotSent,
    /// The connection ended first.
    #[error("the connection ended")]
    Lost,
    /// The target's session ended or its process died first.
    #[error("the target is gone")]
    Gone,
    /// Its deadline passed first.
    #[error("no answer in time")]
    Late,
    /// The browser said no.
    #[error("the browser refused with {code}")]
    Rejected {
        /// JSON-RPC code; texts differ between versions.
        code: i64,
    },
    /// An answer came that is none.
    #[error("the answer has another shape")]
    Shape,
}

impl CdpError {
    /// The contract's word for it, where nothing more specific is known.
    pub(crate) const fn reason(self) -> Reason {
        match self {
            Self::NotSent | Self::Lost => Reason::SessionLost,
            Self::Gone => Reason::PageCrashed,
            Self::Late => Reason::Timeout,
            Self::Rejected { .. } | Self::Shape => Reason::ProtocolError,
        }
    }
}

/// What the connection tells besides answers. Called from the reading task, in order; must not wait.
pub(crate) trait Events: Send + Sync + 'static {
    /// An event came.
    fn event(&self, session: Option<&str>, method: &str, params: &[u8]);
    /// An answer came, before its caller sees it: state that events change is also changed by some answers, in order.
    fn answered(&self, session: Option<&str>, method: &'static str, result: &[u8]);
}

/// A connection; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Cdp(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    send: mpsc::Sender<Bytes>,
    next: AtomicU64,
    waiting: Mutex<Waiting>,
    lost: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Waiting {
    over: bool,
    calls: HashMap<u64, Call>,
}

#[derive(Debug)]
struct Call {
    session: Option<SessionId>,
    method: &'static str,
    answer: oneshot::Sender<Result<Bytes, CdpError>>,
}

/// A command on its way; dropping it forgets the answer.
#[derive(Debug)]
pub(crate) struct Sent<R> {
    inner: Arc<Inner>,
    id: u64,
    answer: oneshot::Receiver<Result<Bytes, CdpError>>,
    reply: PhantomData<fn() -> R>,
}

impl Cdp {
    /// Speaks over `send`; [`Cdp::read`] has to run for anything to be answered.
    pub(crate) fn new(send: mpsc::Sender<Bytes>) -> Self {
        Self(Arc::new(Inner { send, next: AtomicU64::new(1), waiting: Mutex::default(), lost: watch::Sender::new(false) }))
    }

    /// Becomes true when the connection is over.
    pub(crate) fn lost(&self) -> watch::Receiver<bool> {
        self.0.lost.subscribe()
    }

    /// Whether the connection is over.
    pub(crate) fn is_lost(&self) -> bool {
        *self.0.lost.borrow() || self.0.send.is_closed()
    }

    /// Reads until the connection is over, then fails everything that waits.
    pub(crate) async fn read(self, mut receive: mpsc::Receiver<Bytes>, events: Arc<dyn Events>) {
        loop {
            let message = tokio::select! {
                biased;
                message = receive.recv() => message,
                () = self.0.send.closed() => break,
            };
            let Some(message) = message else { return self.0.end() };
            self.0.take(&message, events.as_ref());
        }
        // Nothing can be sent any more; an answer that is on its way still decides what is known.
        while let Ok(Some(message)) = tokio::time::timeout(LAST_WORDS, receive.recv()).await {
            self.0.take(&message, events.as_ref());
        }
        self.0.end();
    }

    /// Queues a command and returns with its answer still to come. The wait for a place in the queue ends at `until`.
    pub(crate) async fn send<C: Command>(
        &self,
        session: Option<&SessionId>,
        command: &C,
        until: Instant,
    ) -> Result<Sent<C::Reply>, CdpError> {
        let place = tokio::time::timeout_at(until, self.0.send.reserve()).await.map_err(|_| CdpError::NotSent)?;
        let place = place.map_err(|_| CdpError::NotSent)?;
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let (answer, wait) = oneshot::channel();
        {
            let mut waiting = self.0.waiting();
            if waiting.over {
                return Err(CdpError::NotSent);
            }
            waiting.calls.insert(id, Call { session: session.cloned(), method: C::METHOD, answer });
        }
        place.send(message(id, session, command));
        Ok(Sent { inner: self.0.clone(), id, answer: wait, reply: PhantomData })
    }

    /// Sends a command and waits for its answer until `until`.
    pub(crate) async fn call<C: Command>(
        &self,
        session: Option<&SessionId>,
        command: &C,
        until: Instant,
    ) -> Result<C::Reply, CdpError> {
        self.send(session, command, until).await?.answer(until).await
    }

    /// Sends a command whose answer nobody waits for. Best effort: used where the way out must not wait.
    pub(crate) fn tell<C: Command>(&self, session: Option<&SessionId>, command: &C) -> bool {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        self.0.send.try_send(message(id, session, command)).is_ok()
    }

    /// Fails what waits for a session that is no more.
    pub(crate) fn end_session(&self, session: &str) {
        let gone: Vec<Call> =
            self.0.waiting().calls.extract_if(|_, call| call.session.as_deref() == Some(session)).map(|(_, call)| call).collect();
        for call in gone {
            // A caller that no longer waits is none to tell.
            let _ = call.answer.send(Err(CdpError::Gone));
        }
    }
}

impl<R: DeserializeOwned> Sent<R> {
    /// Waits for the answer until `until`.
    pub(crate) async fn answer(&mut self, until: Instant) -> Result<R, CdpError> {
        match tokio::time::timeout_at(until, &mut self.answer).await {
            Err(_) => Err(CdpError::Late),
            Ok(Err(_)) => Err(CdpError::Lost),
            Ok(Ok(Err(error))) => Err(error),
            Ok(Ok(Ok(result))) => decode(&result).ok_or(CdpError::Shape),
        }
    }
}

impl<R> Drop for Sent<R> {
    fn drop(&mut self) {
        self.inner.waiting().calls.remove(&self.id);
    }
}

impl Inner {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, message: &Bytes, events: &dyn Events) {
        let (id, session, answer) = match Envelope::read(message) {
            Envelope::Reply { id, session, answer } => (id, Some(session), answer.map_err(|code| CdpError::Rejected { code })),
            Envelope::Broken { id } => (id, None, Err(CdpError::Shape)),
            Envelope::Event { session, method, params } => return events.event(session.as_deref(), &method, &params),
            Envelope::Noise => return tracing::debug!(bytes = message.len(), "the browser sent something unreadable"),
        };
        let mut waiting = self.waiting();
        let Some(call) = waiting.calls.get(&id) else { return };
        // An answer from another session is not the answer; errors about a session that is gone come without one.
        let foreign = session.as_ref().is_some_and(|session| session.as_deref() != call.session.as_deref());
        if foreign && answer.is_ok() {
            return;
        }
        let Some(call) = waiting.calls.remove(&id) else { return };
        drop(waiting);
        if let Ok(result) = &answer {
            events.answered(call.session.as_deref(), call.method, result);
        }
        let _ = call.answer.send(answer);
    }

    fn end(&self) {
        let calls = {
            let mut waiting = self.waiting();
            waiting.over = true;
            std::mem::take(&mut waiting.calls)
        };
        for (_, call) in calls {
            let _ = call.answer.send(Err(CdpError::Lost));
        }
        self.lost.send_replace(true);
    }
}

fn message<C: Command>(id: u64, session: Option<&SessionId>, command: &C) -> Bytes {
    #[derive(Serialize)]
    struct Outgoing<'a, C> {
        id: u64,
        method: &'static str,
        params: &'a C,
        #[serde(rename = "sessionId", skip_serializing_if = "Option::is_none")]
        session: Option<&'a str>,
    }
    let outgoing = Outgoing { id, method: C::METHOD, params: command, session: session.map(|session| &**session) };
    serde_json::to_vec(&outgoing).expect("commands are structs of strings, numbers and booleans").into()
}
