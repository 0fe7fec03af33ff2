//! `formation runs`: the newest runs, one run's trace, or a finding about an uncertain call.

use formation_core::{
    CallId, RunId, Timestamp,
    call::{self, Finding},
    people::{Actor, Reach},
};
use formation_store::{
    Db,
    ledger::{self, Reconciled, TraceEntry},
    summaries::{self, Filter, RunSummary},
};
use serde_json::{Value, json};

use crate::{
    cli::RunsFlags,
    config::Place,
    opening::{self, unreadable},
    output::{Failure, Output, shown, table},
    wiring::Wiring,
};

/// Calls of one answer; observations are up to 30 KiB each.
const CALLS: u32 = 500;

pub(crate) async fn runs(flags: &RunsFlags, place: &Place, wiring: &Wiring, output: Output) -> Result<(), Failure> {
    let finding = flags.finding().map_err(Failure::usage)?;
    let db = opening::existing(place, wiring).await?;
    let done = match (flags.run, finding) {
        (None, _) => list(&db, flags.limit, output).await,
        (Some(run), None) => trace(&db, run, flags.skip, output).await,
        (Some(run), Some((call, finding))) => {
            settle(&db, run, call, finding, flags.note.as_deref().unwrap_or_default(), output).await
        }
    };
    db.close().await;
    done
}

async fn list(db: &Db, limit: u32, output: Output) -> Result<(), Failure> {
    let mut all: Vec<RunSummary> = Vec::new();
    loop {
        let wanted = limit - u32::try_from(all.len()).unwrap_or(limit);
        if wanted == 0 {
            break;
        }
        let filter = Filter { after: all.last().map(|summary| summary.run.id), ..Filter::default() };
        let page = summaries::list(db, Reach::Everything, filter, wanted).await.map_err(|error| unreadable(&error))?;
        all.extend(page.items);
        if !page.has_more {
            break;
        }
    }
    let answer: Vec<Value> = all.iter().map(summary).collect();
    output.answer(&answer, || {
        let row = |summary: &RunSummary| {
            let run = &summary.run;
            let state = run.end_reason.map_or_else(|| run.state.to_string(), |reason| reason.to_string());
            let open = if summary.uncertain > 0 { format!("{} to settle", summary.uncertain) } else { String::new() };
            vec![run.id.to_string(), summary.agent_slug.clone(), run.created_at.to_string(), state, summary.calls.to_string(), open]
        };
        table(&["RUN", "AGENT", "OPENED", "STATE", "CALLS", "UNCERTAIN"], &all.iter().map(row).collect::<Vec<_>>())
    })
}

async fn trace(db: &Db, run: RunId, skip: u64, output: Output) -> Result<(), Failure> {
    let about = summaries::one(db, Reach::Everything, run).await.map_err(|error| unreadable(&error))?.ok_or_else(|| no_run(run))?;
    let calls = ledger::trace(db, run, skip, CALLS).await.map_err(|error| unreadable(&error))?;
    let is_cut = calls.len() == CALLS as usize;
    let next = is_cut.then(|| skip + u64::from(CALLS));
    let answer = json!({"run": summary(&about), "calls": calls.iter().map(entry).collect::<Vec<_>>(), "next": next});
    output.answer(&answer, || {
        let mut text = heading(&about);
        text.push('\n');
        text.push_str(&table(
            &["NO", "CALL", "TOOL", "EXECUTION", "OUTCOME", "FINDING", "CAME", "ADMITTED", "SENT", "ENDED", "ARGUMENTS"],
            &calls.iter().map(row).collect::<Vec<_>>(),
        ));
        text
    })?;
    if let Some(next) = next.filter(|_| !output.is_json) {
        output.remark(&format!("\nhint: `--skip {next}` shows the calls after these"));
    }
    Ok(())
}

fn heading(about: &RunSummary) -> String {
    let run = &about.run;
    let ended = match (run.end_reason, run.ended_at) {
        (Some(reason), Some(at)) => format!("over since {at} ({reason})"),
        _ => format!("{}, ends by {}", run.state, run.deadline_at),
    };
    let browser = about.browser.map(|state| format!(", browser {state}")).unwrap_or_default();
    format!(
        "run {} of agent `{}`, opened {}, {ended}\n{} of {} calls{browser}\n",
        run.id, about.agent_slug, run.created_at, run.calls_used, run.max_calls
    )
}

fn row(entry: &TraceEntry) -> Vec<String> {
    let later = |at: Option<Timestamp>| at.map(|at| format!("+{} ms", at.since(entry.created_at).as_millis())).unwrap_or_default();
    let outcome = entry.call.outcome.map(|outcome| outcome.to_string());
    vec![
        entry.number.to_string(),
        entry.call.id.to_string(),
        entry.call.tool.to_string(),
        entry.call.execution.to_string(),
        outcome.or_else(|| entry.call.problem.map(|problem| problem.to_string())).unwrap_or_default(),
        entry.finding.map(|finding| finding.to_string()).unwrap_or_default(),
        entry.created_at.to_string(),
        later(entry.admitted_at),
        later(entry.dispatched_at),
        later(entry.settled_at),
        shown(&entry.arguments.to_string(), 120),
    ]
}

async fn settle(db: &Db, run: RunId, call: CallId, finding: Finding, note: &str, output: Output) -> Result<(), Failure> {
    if !call::is_note(note) {
        return Err(Failure::usage(format!("a note is 1 to {} bytes of text", call::NOTE_BYTES)));
    }
    let note = note.to_owned();
    let reconciled = db
        .write(move |tx| Box::pin(async move { ledger::reconcile(tx, &Actor::host(), run, call, finding, &note).await }))
        .await
        .map_err(|error| unreadable(&error))?;
    match reconciled {
        Reconciled::Done(_) => {
            output.answer(&json!({"call": call, "finding": finding}), || format!("settled call {call}: {finding}"))
        }
        Reconciled::AlreadySettled => {
            Err(Failure::failed(format!("call `{call}` is settled already"))
                .hint(format!("`formation runs {run}` shows the finding")))
        }
        Reconciled::NotUncertain => Err(Failure::failed(format!("call `{call}` isn't uncertain: what became of it is known"))),
        Reconciled::NotFound => Err(Failure::failed(format!("run `{run}` has no call `{call}`"))),
    }
}

fn no_run(run: RunId) -> Failure {
    Failure::failed(format!("there is no run `{run}`")).hint("`formation runs` lists them")
}

fn summary(summary: &RunSummary) -> Value {
    let run = &summary.run;
    json!({
        "id": run.id, "agent": summary.agent_slug, "conversation": run.conversation, "origin": run.origin,
        "state": run.state, "ended_by": run.end_reason, "created_at": run.created_at,
        "deadline_at": run.deadline_at, "ended_at": run.ended_at, "calls": summary.calls, "calls_used": run.calls_used,
        "max_calls": run.max_calls, "refused": summary.refused, "uncertain": summary.uncertain,
        "browser": summary.browser,
    })
}

fn entry(entry: &TraceEntry) -> Value {
    let artifact = entry.artifact.map(|(id, expires_at)| json!({"id": id, "expires_at": expires_at}));
    json!({
        "number": entry.number, "id": entry.call.id, "key": entry.key, "tool": entry.call.tool, "class": entry.class, "offer": entry.offer,
        "arguments": entry.arguments, "execution": entry.call.execution, "outcome": entry.call.outcome, "problem": entry.call.problem,
        "observation": entry.call.observation, "created_at": entry.created_at, "admitted_at": entry.admitted_at,
        "dispatched_at": entry.dispatched_at, "settled_at": entry.settled_at, "finding": entry.finding, "found_at": entry.found_at, "found_by": entry.found_by,
        "note": entry.note, "artifact": artifact, "caused_by": entry.caused_by,
    })
}
