//! Refusals: calls turned away before anything was consumed (contract.md 3), and the stable codes of problems.

use serde::{Deserialize, Serialize};

use crate::{call::Outcome, words};

words! {
    /// Why a call was turned away.
    pub enum RefusalReason {
        /// The arguments do not fit the tool.
        InvalidArguments = "invalid_arguments",
        /// The tool is not granted.
        NotOffered = "not_offered",
        /// The grant this offer stands on changed.
        GrantRevoked = "grant_revoked",
        /// The connection's minute is full.
        RateLimited = "rate_limited",
        /// The connection's allowance for this run is used.
        RunLimit = "run_limit",
        /// The run's `max_tool_calls` is used.
        CallLimit = "call_limit",
        /// An uncertain effect waits for an operator.
        NeedsReconciliation = "needs_reconciliation",
        /// The run has ended.
        RunOver = "run_over",
        /// The key stands for another call.
        IdReused = "id_reused",
    }
}

/// The `refusal` of an observation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Why.
    pub reason: RefusalReason,
    /// One sentence that says what to do next; ours throughout.
    pub explanation: String,
    /// Not before.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retry_after_seconds: Option<u64>,
    /// Only when the grant went after admission.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub outcome: Option<Outcome>,
}

impl Refusal {
    /// Without a time or an outcome.
    pub fn new(reason: RefusalReason, explanation: impl Into<String>) -> Self {
        Self { reason, explanation: explanation.into(), retry_after_seconds: None, outcome: None }
    }
}

words! {
    /// The stable `code` of a problem (contract.md, Conventions).
    pub enum Code {
        /// Not JSON.
        InvalidJson = "invalid_json",
        /// Not an id.
        MalformedId = "malformed_id",
        /// No or a bad credential.
        Unauthenticated = "unauthenticated",
        /// Not with this credential.
        Forbidden = "forbidden",
        /// Absent, or not yours.
        NotFound = "not_found",
        /// Not with this method.
        MethodNotAllowed = "method_not_allowed",
        /// Somebody else changed it meanwhile.
        StaleVersion = "stale_version",
        /// A browser uses the profile.
        ProfileInUse = "profile_in_use",
        /// The process's environment decides it.
        ManagedByEnvironment = "managed_by_environment",
        /// The install would be left without an owner.
        LastOwner = "last_owner",
        /// No account of that vendor.
        AccountRequired = "account_required",
        /// A new account needs its credential.
        CredentialRequired = "credential_required",
        /// A credential of nothing.
        BlankCredential = "blank_credential",
        /// More than the install allows.
        LimitAboveInstall = "limit_above_install",
        /// The hostname list must be said.
        AllowedHostsRequired = "allowed_hosts_required",
        /// The provider can't enforce it.
        PolicyNotEnforceable = "policy_not_enforceable",
        /// An error is no evidence.
        ErrorEvidence = "error_evidence",
        /// The slug names another agent.
        SlugTaken = "slug_taken",
        /// The name is another operator's.
        NameTaken = "name_taken",
        /// The key stands for another call.
        IdReused = "id_reused",
        /// The call is settled.
        AlreadySettled = "already_settled",
        /// The picture is gone.
        ArtifactExpired = "artifact_expired",
        /// Over its limit.
        TooLarge = "too_large",
        /// The request line is over its limit.
        UriTooLong = "uri_too_long",
        /// Not a body this route takes.
        UnsupportedMediaType = "unsupported_media_type",
        /// The headers are over their limit.
        HeadersTooLarge = "headers_too_large",
        /// A field nobody knows.
        UnknownField = "unknown_field",
        /// A value out of bounds.
        InvalidValue = "invalid_value",
        /// JSON of another shape.
        InvalidBody = "invalid_body",
        /// The run has ended.
        RunOver = "run_over",
        /// Too many for now.
        RateLimited = "rate_limited",
        /// Our fault.
        Internal = "internal",
        /// The database does not answer.
        StoreUnavailable = "store_unavailable",
        /// Too much at once.
        Overloaded = "overloaded",
        /// The caller gave up before admission.
        Cancelled = "cancelled",
        /// The process that held the call is gone.
        HolderGone = "holder_gone",
    }
}
