//! What is counted of calls, and the one line the log has of each. Labels are words of closed sets: tools, outcomes, reasons, and
//! vendors of the catalog; no ids, no slugs, nothing anybody outside chose.

use std::time::Duration;

use formation_core::{CallId, Execution, Tool, VendorId, failure::Reason, refusal::RefusalReason};
use formation_store::{
    StoreError,
    admission::{Admission, Ask},
    browser_sessions, ledger,
};
use metrics::{counter, gauge, histogram};
use tokio::time::Instant;

use crate::{Inner, Runtime};

impl Runtime {
    /// Sets the gauges of this process; a database that doesn't answer leaves its ones as they were.
    pub async fn gauge(&self) {
        let inner = &self.0;
        gauge!("formation_running_calls").set(number(inner.waiting.count()));
        let (used, idle) = inner.db.connections();
        gauge!("formation_database_connections", "state" => "used").set(number(used));
        gauge!("formation_database_connections", "state" => "idle").set(number(idle));
        if let Ok(open) = browser_sessions::open_at(&inner.db, inner.instance).await {
            gauge!("formation_browser_sessions").set(number(usize::try_from(open).unwrap_or(0)));
        }
    }
}

/// Counts here are far below where an `f64` has gaps.
fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}

impl Inner {
    /// Admission, timed.
    pub(crate) async fn admit(&self, ask: Ask) -> Result<Admission, StoreError> {
        let began = Instant::now();
        let capability = ask.offered.capability.as_str();
        let answer = self.combiner.admit(ask).await;
        histogram!("formation_admission_duration_seconds", "capability" => capability).record(began.elapsed());
        answer
    }
}

/// What a vendor took, from the first byte that could leave to the end of its answer.
pub(crate) fn provider(tool: Tool, vendor: &VendorId, asked: Instant) {
    let vendor = vendor.as_str().to_owned();
    histogram!("formation_provider_duration_seconds", "tool" => tool.as_str(), "vendor" => vendor).record(asked.elapsed());
}

/// The end of a call that this process handled; `None`: it could not be written yet. Never its arguments or its answer.
pub(crate) fn ended(id: CallId, tool: Tool, call: Option<&ledger::StoredCall>, lasted: Duration) {
    let provider = call.and_then(|call| call.observation.as_ref()?.field("provider")?.as_str());
    let vendor = provider.unwrap_or("");
    let execution = call.map_or("unsettled", |call| call.execution.as_str());
    let outcome = call.and_then(|call| call.outcome).map_or("", |outcome| outcome.as_str());
    let reason = call.and_then(reason).unwrap_or("");
    let problem = call.and_then(|call| call.problem).map_or("", |problem| problem.as_str());
    let duration_ms = u64::try_from(lasted.as_millis()).unwrap_or(u64::MAX);
    tracing::info!(
        call.id = %id, call.tool = tool.as_str(), vendor.name = vendor, call.execution = execution, call.outcome = outcome,
        call.reason = reason, call.problem = problem, duration_ms, "call ended"
    );
    counter!("formation_calls_total", "tool" => tool.as_str(), "vendor" => vendor.to_owned(), "execution" => execution, "outcome" => outcome)
        .increment(1);
    histogram!("formation_call_duration_seconds", "tool" => tool.as_str()).record(lasted);
    if !reason.is_empty() {
        counter!("formation_refusals_total", "tool" => tool.as_str(), "reason" => reason).increment(1);
    }
}

/// Why it was refused: a word of ours.
fn reason(call: &ledger::StoredCall) -> Option<&'static str> {
    let said = |part: &str| call.observation.as_ref()?.field(part)?["reason"].as_str();
    if let Some(reason) = said("refusal").and_then(RefusalReason::parse) {
        return Some(reason.as_str());
    }
    let is_refused = call.execution == Execution::Refused;
    let busy = said("browser_failure").filter(|_| is_refused)?;
    Reason::parse(busy).map(Reason::as_str)
}
