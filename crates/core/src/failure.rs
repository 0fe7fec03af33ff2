//! Failures in the only words that may leave an adapter or a driver. No field here can hold a vendor's text.

use serde::{Deserialize, Serialize};

use crate::{call::Outcome, words};

words! {
    /// Where in a browser call it failed (browser.md 1.6).
    pub enum BrowserStage {
        /// Getting a browser.
        SessionCreation = "session_creation",
        /// Speaking to it.
        BrowserConnection = "browser_connection",
        /// Opening a page.
        Navigation = "navigation",
        /// Reading a page.
        Observation = "observation",
        /// Clicking, typing, pressing.
        Input = "input",
        /// Taking a picture.
        Screenshot = "screenshot",
        /// Keeping the picture.
        Artifact = "artifact",
        /// Loading or saving a profile.
        Profile = "profile",
        /// Closing.
        Cleanup = "cleanup",
    }
}

words! {
    /// At which step of the stage.
    pub enum Phase {
        /// Arguments.
        Validate = "validate",
        /// Grant, turn, lease.
        Admit = "admit",
        /// Opening a session.
        Acquire = "acquire",
        /// The connection.
        Connect = "connect",
        /// Finding the page.
        Attach = "attach",
        /// Finding the target.
        Resolve = "resolve",
        /// Checking it.
        Check = "check",
        /// Sending.
        Dispatch = "dispatch",
        /// Waiting for the page to come to rest.
        Settle = "settle",
        /// Looking.
        Observe = "observe",
        /// Photographing.
        Capture = "capture",
        /// Storing.
        Save = "save",
    }
}

words! {
    /// Why, in one closed set (browser.md 1.6).
    pub enum Reason {
        /// The ref is not of the newest observation.
        StaleRef = "stale_ref",
        /// Same node, other meaning.
        TargetChanged = "target_changed",
        /// The node left the page.
        TargetDetached = "target_detached",
        /// Something else would get the input.
        TargetObscured = "target_obscured",
        /// No visible box.
        TargetNotVisible = "target_not_visible",
        /// Disabled.
        TargetDisabled = "target_disabled",
        /// Not editable now.
        ReadOnly = "read_only",
        /// The action does not fit the target.
        WrongTargetType = "wrong_target_type",
        /// No such observation id.
        ObservationUnknown = "observation_unknown",
        /// Older than 60 s.
        ObservationExpired = "observation_expired",
        /// Spent.
        ObservationUsed = "observation_used",
        /// Size, scroll or zoom differ.
        ViewportChanged = "viewport_changed",
        /// Another document.
        DocumentChanged = "document_changed",
        /// Another set of frames.
        FramesChanged = "frames_changed",
        /// Coordinates outside.
        OutsideViewport = "outside_viewport",
        /// Not on the hostname list.
        HostnameNotAllowed = "hostname_not_allowed",
        /// Not HTTP or HTTPS.
        SchemeNotAllowed = "scheme_not_allowed",
        /// `local`'s proxy refuses the address.
        AddressNotAllowed = "address_not_allowed",
        /// Where the frame lies can't be checked.
        FrameUnverifiable = "frame_unverifiable",
        /// A dialog that can't be answered holds the page.
        DialogWedged = "dialog_wedged",
        /// The browser is gone.
        SessionLost = "session_lost",
        /// Another replica holds the session.
        SessionBusy = "session_busy",
        /// Another session holds the profile.
        ProfileBusy = "profile_busy",
        /// No such vault entry.
        SecretMissing = "secret_missing",
        /// A filled value shows.
        SecretVisible = "secret_visible",
        /// The target takes no such value.
        InvalidValue = "invalid_value",
        /// 401 of the provider.
        ProviderUnauthorized = "provider_unauthorized",
        /// 403 of the provider.
        ProviderForbidden = "provider_forbidden",
        /// 429 of the provider.
        ProviderLimited = "provider_limited",
        /// Anything else of the provider.
        ProviderError = "provider_error",
        /// The name does not resolve.
        DnsFailed = "dns_failed",
        /// No connection.
        ConnectionFailed = "connection_failed",
        /// TLS refused.
        TlsFailed = "tls_failed",
        /// The site asks for HTTP authentication.
        HttpAuthRequired = "http_auth_required",
        /// The page's process died.
        PageCrashed = "page_crashed",
        /// Out of time.
        Timeout = "timeout",
        /// The browser answered nonsense.
        ProtocolError = "protocol_error",
        /// Focus went elsewhere.
        FocusMoved = "focus_moved",
        /// The value did not stay.
        ValueNotAccepted = "value_not_accepted",
        /// The page can't be read.
        PageUnreadable = "page_unreadable",
        /// Over 2 MiB at every quality.
        ScreenshotTooLarge = "screenshot_too_large",
        /// The picture could not be kept.
        ArtifactFailed = "artifact_failed",
    }
}

words! {
    /// What the model should do next.
    pub enum Recovery {
        /// Other arguments.
        FixArguments = "fix_arguments",
        /// Look, then choose a fresh action.
        ObserveAgain = "observe_again",
        /// Look whether it happened, then decide.
        InspectThenDecide = "inspect_then_decide",
        /// Look; an operator has to settle it before anything else is sent.
        InspectThenReconcile = "inspect_then_reconcile",
        /// The read can be repeated.
        RetryRead = "retry_read",
        /// This run's browser is gone.
        NewRun = "new_run",
        /// A person has to act.
        Operator = "operator",
    }
}

/// A browser call that failed, before or after anything was sent: where and why, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{stage} failed at {phase}: {reason}")]
pub struct Refused {
    /// Where.
    pub stage: BrowserStage,
    /// At which step.
    pub phase: Phase,
    /// Why.
    pub reason: Reason,
}

impl Refused {
    /// In the order it is read: stage, phase, reason.
    pub const fn new(stage: BrowserStage, phase: Phase, reason: Reason) -> Self {
        Self { stage, phase, reason }
    }
}

/// Whether and when trying again can help; never done for the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// Always false: nothing is repeated automatically.
    pub automatic: bool,
    /// Whether the same call can help.
    pub may_retry: bool,
    /// Not before.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub after_seconds: Option<u64>,
}

/// The `browser_failure` of an observation (B8).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrowserFailure {
    /// Where.
    pub stage: BrowserStage,
    /// At which step.
    pub phase: Phase,
    /// Why.
    pub reason: Reason,
    /// `not_dispatched`, `input_dispatched` or `uncertain`.
    pub outcome: Outcome,
    /// What next.
    pub recovery: Recovery,
    /// Never automatic.
    pub retry: Retry,
    /// The provider's status.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub http_status: Option<u16>,
    /// The provider's numeric codes.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub provider_codes: Vec<u32>,
    /// A format-checked request id.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub request_id: Option<String>,
}

impl BrowserFailure {
    /// The failure of one operation with the recovery that follows from it (browser.md 1.6).
    pub fn of(refused: &Refused, outcome: Outcome) -> Self {
        let recovery = recovery(refused.stage, refused.reason, outcome);
        let may_retry = matches!(recovery, Recovery::RetryRead | Recovery::ObserveAgain)
            || (outcome == Outcome::NotDispatched && matches!(refused.reason, Reason::SessionBusy | Reason::ProfileBusy));
        Self {
            stage: refused.stage,
            phase: refused.phase,
            reason: refused.reason,
            outcome,
            recovery,
            retry: Retry { automatic: false, may_retry, after_seconds: None },
            http_status: None,
            provider_codes: Vec::new(),
            request_id: None,
        }
    }
}

fn recovery(stage: BrowserStage, reason: Reason, outcome: Outcome) -> Recovery {
    match (outcome, reason) {
        (_, Reason::SessionLost) => Recovery::NewRun,
        (Outcome::Uncertain, _) => Recovery::InspectThenReconcile,
        // A page that did not load is known not to have loaded: the address or the site is the thing to change.
        (
            Outcome::InputDispatched,
            Reason::DnsFailed | Reason::TlsFailed | Reason::AddressNotAllowed | Reason::HostnameNotAllowed,
        ) => Recovery::FixArguments,
        (Outcome::InputDispatched, _) => Recovery::InspectThenDecide,
        (
            _,
            Reason::InvalidValue
            | Reason::WrongTargetType
            | Reason::OutsideViewport
            | Reason::HostnameNotAllowed
            | Reason::SchemeNotAllowed
            | Reason::AddressNotAllowed
            | Reason::SecretMissing,
        ) => Recovery::FixArguments,
        (_, Reason::ProviderUnauthorized | Reason::ProviderForbidden | Reason::ConnectionFailed)
            if matches!(stage, BrowserStage::SessionCreation | BrowserStage::BrowserConnection) =>
        {
            Recovery::Operator
        }
        _ if matches!(stage, BrowserStage::Input | BrowserStage::Navigation) => Recovery::ObserveAgain,
        _ => Recovery::RetryRead,
    }
}

/// A vendor that could not give a browser.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{stage} failed: {reason}")]
pub struct VendorFailure {
    /// Where.
    pub stage: BrowserStage,
    /// Why.
    pub reason: Reason,
    /// The provider's status, when one came.
    pub http_status: Option<u16>,
}

impl VendorFailure {
    /// Without a status.
    pub const fn new(stage: BrowserStage, reason: Reason) -> Self {
        Self { stage, reason, http_status: None }
    }
}

words! {
    /// Where a search, read, MCP or REST call failed.
    pub enum CallStage {
        /// No connection to the provider.
        Connect = "connect",
        /// The provider refused the request, or could not be given it.
        Request = "request",
        /// Its reply can't be used.
        Reply = "reply",
        /// The website behind it failed.
        Target = "target",
    }
}

words! {
    /// Why a search, read, MCP or REST call failed: one closed set for every provider (T7).
    pub enum CallReason {
        /// The provider does not take this query.
        QueryNotAccepted = "query_not_accepted",
        /// The page could not be had.
        TargetFailed = "target_failed",
        /// The page answered with an error.
        TargetHttpError = "target_http_error",
        /// The page's address is refused.
        TargetRefused = "target_refused",
        /// The provider answered with nothing.
        EmptyResult = "empty_result",
        /// The key is wrong or revoked.
        CredentialRejected = "credential_rejected",
        /// The key, plan or account lacks what this needs.
        PermissionDenied = "permission_denied",
        /// Credits, balance, quota or spend limit are used up.
        PaymentRequired = "payment_required",
        /// Too fast.
        RateLimited = "rate_limited",
        /// No reply within the time.
        Timeout = "timeout",
        /// 5xx, transport, or a redirect, which is refused.
        ProviderUnavailable = "provider_unavailable",
        /// Not JSON, another shape, or too large.
        InvalidReply = "invalid_reply",
    }
}

words! {
    /// What an operator should look at first; fixed words of ours.
    pub enum Hint {
        /// The engine's key on the gateway, or the gateway's authentication.
        EngineKeyOrGateway = "engine_key_or_gateway",
        /// The name of the gateway, or the feature behind it.
        GatewayName = "gateway_name",
        /// Used-up credit, or the key.
        CreditOrKey = "credit_or_key",
        /// The site, or the key.
        SiteOrKey = "site_or_key",
    }
}

impl CallReason {
    /// Whether the same call can help later.
    pub const fn may_retry(self) -> bool {
        matches!(self, Self::RateLimited | Self::Timeout | Self::ProviderUnavailable | Self::TargetFailed)
    }
}

/// A search, read, MCP or REST call that the provider did not answer well: numbers and words of ours, never a text of the other
/// side (T7, S-17).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{stage} failed: {reason}")]
pub struct CallFailure {
    /// Where.
    pub stage: CallStage,
    /// Why.
    pub reason: CallReason,
    /// The provider's status.
    pub http_status: Option<u16>,
    /// The provider's numeric codes: at most 8, each 1 to 999,999.
    pub provider_codes: Vec<u32>,
    /// A format-checked request id.
    pub request_id: Option<String>,
    /// The website's status, kept apart from the provider's.
    pub target_status: Option<u16>,
    /// What to look at first.
    pub hint: Option<Hint>,
    /// Not before, when the provider said so.
    pub after_seconds: Option<u64>,
}

impl CallFailure {
    /// Without a status or codes.
    pub const fn new(stage: CallStage, reason: CallReason) -> Self {
        Self {
            stage,
            reason,
            http_status: None,
            provider_codes: Vec::new(),
            request_id: None,
            target_status: None,
            hint: None,
            after_seconds: None,
        }
    }

    /// With the provider's status.
    pub const fn with_status(mut self, status: u16) -> Self {
        self.http_status = Some(status);
        self
    }
}
