//! Why Brave gave no results. The status alone doesn't say: 422 is a bad key and a bad query alike, so the code in the body comes
//! first. Of the body only codes we know and two numbers are looked at; nothing of it is kept (S-17).

use formation_core::failure::{CallFailure, CallReason, CallStage};
use formation_wire::Reply;
use serde_json::Value;

use super::KEY_HEADER;

/// Brave's codes that mean something here. Another one is as good as none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Code {
    TokenInvalid,
    NotInPlan,
    Validation,
    RateLimited,
    QuotaLimited,
}

impl Code {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "SUBSCRIPTION_TOKEN_INVALID" => Self::TokenInvalid,
            "OPTION_NOT_IN_PLAN" | "SUBSCRIPTION_NOT_FOUND" => Self::NotInPlan,
            "VALIDATION" => Self::Validation,
            "RATE_LIMITED" => Self::RateLimited,
            "QUOTA_LIMITED" => Self::QuotaLimited,
            _ => return None,
        })
    }
}

/// The failure a reply without results stands for.
pub(super) fn of(reply: &Reply) -> CallFailure {
    // The live form is an object, the reference's examples show a list.
    let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let error = body.get("error").filter(|error| error.is_object()).or_else(|| body.get("errors")?.get(0)).unwrap_or(&Value::Null);
    let code = error.get("code").and_then(Value::as_str).and_then(Code::parse);
    let (stage, reason) = classify(reply.status, code, &error["meta"]);
    let mut failure = CallFailure::new(stage, reason).with_status(reply.status);
    if reason == CallReason::RateLimited {
        failure.after_seconds = wait(reply);
    }
    failure
}

fn classify(status: u16, code: Option<Code>, meta: &Value) -> (CallStage, CallReason) {
    let reason = match (status, code) {
        // Where it leads is nobody's business here; the key doesn't go there.
        (300..=399, _) => return (CallStage::Reply, CallReason::ProviderUnavailable),
        (_, Some(Code::TokenInvalid)) => CallReason::CredentialRejected,
        (_, Some(Code::NotInPlan)) => CallReason::PermissionDenied,
        (_, Some(Code::Validation)) if names_key(meta) => CallReason::CredentialRejected,
        (402, _) | (200 | 429, Some(Code::QuotaLimited)) => CallReason::PaymentRequired,
        (429, _) if is_used_up(meta) => CallReason::PaymentRequired,
        (429, _) | (200, Some(Code::RateLimited)) => CallReason::RateLimited,
        (400 | 422, _) | (200, Some(Code::Validation)) => CallReason::QueryNotAccepted,
        (401 | 403, _) => CallReason::CredentialRejected,
        (408, _) => CallReason::Timeout,
        (200..=299, _) => return (CallStage::Reply, CallReason::InvalidReply),
        _ => CallReason::ProviderUnavailable,
    };
    (CallStage::Request, reason)
}

/// Whether what was wrong is the header with the key.
fn names_key(meta: &Value) -> bool {
    let names = |part: &Value| part.as_str().is_some_and(|part| part.eq_ignore_ascii_case(KEY_HEADER));
    let errors = meta["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    errors.iter().any(|error| error["loc"].as_array().is_some_and(|path| path.iter().any(names)))
}

/// Whether the month's requests are used up. A limit of 0 means that there is none.
fn is_used_up(meta: &Value) -> bool {
    let number = |name: &str| meta[name].as_f64().filter(|number| number.is_finite());
    matches!((number("quota_limit"), number("quota_current")), (Some(limit), Some(current)) if limit > 0.0 && current >= limit)
}

/// The longest window Brave counts in: a month of 31 days.
const LONGEST_SECONDS: u64 = 2_678_400;

/// When to try again, where Brave said so: until the last of the windows that are used up begins anew. A window whose limit is 0
/// is none. Brave sends no `Retry-After` today; what stands before Brave may.
fn wait(reply: &Reply) -> Option<u64> {
    let numbers =
        |name: &str| -> Option<Vec<u64>> { reply.header(name)?.split(',').map(|part| part.trim().parse().ok()).collect() };
    let windows = || {
        let (limits, left, resets) =
            (numbers("x-ratelimit-limit")?, numbers("x-ratelimit-remaining")?, numbers("x-ratelimit-reset")?);
        let is_used_up = |index: &usize| limits[*index] > 0 && left.get(*index) == Some(&0);
        (0..limits.len()).filter(is_used_up).filter_map(|index| resets.get(index).copied()).max()
    };
    reply.header("retry-after").and_then(|seconds| seconds.parse().ok()).or_else(windows).filter(|wait| *wait <= LONGEST_SECONDS)
}
