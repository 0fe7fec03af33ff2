//! Problems: the one shape of every error answer (RFC 9457), with a stable `code` beside it.
//!
//! A problem holds a sentence of ours and nothing else: no cause chain, no vendor's words, no SQL, no part of a request that could
//! be a secret. What went wrong inside goes to the log, and the two meet in the request's id.

use std::borrow::Cow;

use axum::response::{IntoResponse, Response};
use formation_core::{Timestamp, refusal::Code};
use formation_runtime::{ExecuteError, RuntimeError};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use utoipa::ToSchema;

/// `application/problem+json`.
pub(crate) const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/problem+json");

/// An error answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    status: StatusCode,
    code: Code,
    detail: Option<Cow<'static, str>>,
    fields: Option<Box<Fields>>,
    retry_after_seconds: Option<u64>,
    allow: Option<&'static str>,
    closes: bool,
}

/// The JSON of a problem.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct Document {
    /// `urn:formation:problem:` and the code.
    #[serde(rename = "type")]
    kind: String,
    /// What the code means, in a few words.
    title: &'static str,
    /// The HTTP status.
    #[schema(example = 404)]
    status: u16,
    /// What to do about this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    detail: Option<Cow<'static, str>>,
    /// The stable word for programs.
    #[schema(value_type = String, example = "not_found")]
    code: Code,
    /// Which field, with a 422; what is stored, with `stale_version`.
    #[serde(skip_serializing_if = "Option::is_none")]
    fields: Option<Box<Fields>>,
    /// `urn:formation:request:` and the request's id as it stands in the log, when the fault is ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
}

/// Where a body is wrong, or what stands in its way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Fields {
    /// The field's name, inner ones with dots.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    /// The stored version.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<i64>,
    /// Who stored it; absent where it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed_by: Option<String>,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    changed_at: Option<Timestamp>,
}

impl Problem {
    /// A problem with the status its code has (contract.md, Conventions).
    pub fn new(code: Code) -> Self {
        Self { status: status(code), code, detail: None, fields: None, retry_after_seconds: None, allow: None, closes: false }
    }

    /// Says what to do about it: a sentence of ours.
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Names the field that is wrong, if its name could be one of ours: who put a key where a name belongs doesn't read it here (S-04).
    pub fn field(mut self, name: &str) -> Self {
        let is_word = name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_alphabetic() || b"_.-".contains(&byte));
        let name = if is_word { name } else { "…" };
        self.fields = Some(Box::new(Fields { field: Some(name.to_owned()), ..Fields::default() }));
        self
    }

    /// The version that was sent isn't the stored one.
    pub(crate) fn stale(version: i64, changed_by: Option<String>, changed_at: Option<Timestamp>) -> Self {
        let detail = if version == 0 { "It is gone; read it again." } else { "Read it again and decide anew." };
        let mut problem = Self::new(Code::StaleVersion).detail(detail);
        problem.fields = Some(Box::new(Fields { field: None, version: Some(version), changed_by, changed_at }));
        problem
    }

    /// Says when to come back.
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }

    /// What was refused could not be written down, so nobody is told how it was judged.
    pub(crate) fn unrecorded() -> Self {
        Self::new(Code::StoreUnavailable).detail("The audit trail can't be written; nothing was changed.").retry_after(5)
    }

    /// Answers with another status than the code's own.
    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Names the methods that are allowed, where the router can't know.
    pub(crate) fn allowing(mut self, methods: &'static str) -> Self {
        self.allow = Some(methods);
        self
    }

    /// Ends the connection with the answer: the rest of the request is not read.
    pub(crate) fn closing(mut self) -> Self {
        self.closes = true;
        self
    }

    /// Its code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Its status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The document, with the request's id where the fault is ours: elsewhere two equal refusals have one body (S-08).
    pub(crate) fn document(&self, request: Option<&str>) -> Vec<u8> {
        let document = Document {
            kind: format!("urn:formation:problem:{}", self.code),
            title: title(self.code),
            status: self.status.as_u16(),
            detail: self.detail.clone(),
            code: self.code,
            fields: self.fields.clone(),
            instance: request.filter(|_| self.status.is_server_error()).map(|id| format!("urn:formation:request:{id}")),
        };
        serde_json::to_vec(&document).expect("a struct of strings and numbers can be written")
    }
}

impl IntoResponse for Problem {
    /// The problem also goes along as an extension, so that the door can add the request's id.
    fn into_response(self) -> Response {
        let mut response = (self.status, self.document(None)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, MEDIA_TYPE);
        if self.code == Code::Unauthenticated {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"formation\""));
        }
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(methods) = self.allow {
            headers.insert(header::ALLOW, HeaderValue::from_static(methods));
        }
        if self.closes {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

impl From<RuntimeError> for Problem {
    fn from(error: RuntimeError) -> Self {
        match error {
            RuntimeError::Unavailable => {
                Self::new(Code::StoreUnavailable).detail("The database does not answer; nothing was changed.").retry_after(5)
            }
            RuntimeError::TokenRevoked => Self::new(Code::Unauthenticated).detail("The token was taken back."),
            RuntimeError::Internal => Self::new(Code::Internal),
        }
    }
}

impl From<ExecuteError> for Problem {
    fn from(error: ExecuteError) -> Self {
        match error {
            ExecuteError::IdReused => Self::new(Code::IdReused).detail("This id was used for another tool or other arguments."),
            ExecuteError::Unavailable => {
                Self::new(Code::StoreUnavailable).detail("The call could not be recorded; nothing was sent.").retry_after(5)
            }
            ExecuteError::Unsettled { .. } => Self::new(Code::StoreUnavailable)
                .detail("The call is on record and may have been sent, but its end could not be written yet: ask again.")
                .retry_after(5),
            ExecuteError::Internal => Self::new(Code::Internal),
        }
    }
}

/// The status each code has.
pub const fn status(code: Code) -> StatusCode {
    match code {
        Code::InvalidJson | Code::MalformedId => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::Forbidden => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        // The last three stand in the `problem` of a call, under 200; as an answer of their own they'd be conflicts.
        Code::StaleVersion
        | Code::ProfileInUse
        | Code::ManagedByEnvironment
        | Code::LastOwner
        | Code::SlugTaken
        | Code::NameTaken
        | Code::IdReused
        | Code::AlreadySettled
        | Code::RunOver
        | Code::Cancelled
        | Code::HolderGone => StatusCode::CONFLICT,
        Code::AccountRequired | Code::CredentialRequired => StatusCode::PRECONDITION_FAILED,
        Code::ArtifactExpired => StatusCode::GONE,
        Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::UriTooLong => StatusCode::URI_TOO_LONG,
        Code::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Code::HeadersTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        Code::UnknownField
        | Code::InvalidValue
        | Code::InvalidBody
        | Code::BlankCredential
        | Code::LimitAboveInstall
        | Code::AllowedHostsRequired
        | Code::PolicyNotEnforceable
        | Code::ErrorEvidence => StatusCode::UNPROCESSABLE_ENTITY,
        Code::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        Code::StoreUnavailable | Code::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// What each code means.
pub(crate) const fn title(code: Code) -> &'static str {
    match code {
        Code::InvalidJson => "The body is not acceptable JSON",
        Code::MalformedId => "This is not an id",
        Code::Unauthenticated => "A good token is needed",
        Code::Forbidden => "Not with this credential",
        Code::NotFound => "There is nothing here for you",
        Code::MethodNotAllowed => "Not with this method",
        Code::StaleVersion => "Somebody else changed it meanwhile",
        Code::ProfileInUse => "A browser uses the profile",
        Code::ManagedByEnvironment => "The server's environment decides this",
        Code::LastOwner => "The last owner has to stay",
        Code::AccountRequired => "An account of this vendor is needed first",
        Code::CredentialRequired => "A new account needs its credential",
        Code::BlankCredential => "The credential is blank",
        Code::LimitAboveInstall => "More than the install allows",
        Code::AllowedHostsRequired => "The hostname list has to be said",
        Code::PolicyNotEnforceable => "The provider can't enforce this",
        Code::ErrorEvidence => "An error is no evidence",
        Code::SlugTaken => "The slug names another agent",
        Code::NameTaken => "The name is another operator's",
        Code::IdReused => "The id stands for another call",
        Code::AlreadySettled => "The call is settled",
        Code::ArtifactExpired => "The picture's 24 hours are over",
        Code::TooLarge => "The body is over its limit",
        Code::UriTooLong => "The address is over its limit",
        Code::UnsupportedMediaType => "Not a body this route takes",
        Code::HeadersTooLarge => "The headers are over their limit",
        Code::UnknownField => "A field nobody knows",
        Code::InvalidValue => "A value out of bounds",
        Code::InvalidBody => "JSON of another shape",
        Code::RunOver => "The run has ended",
        Code::RateLimited => "Too many for now",
        Code::Internal => "Something went wrong here",
        Code::StoreUnavailable => "The database does not answer",
        Code::Overloaded => "Too much at once",
        Code::Cancelled => "The caller gave up before anything was sent",
        Code::HolderGone => "The process that held the call is gone",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of contract.md, Conventions.
    #[test]
    fn every_code_has_the_status_the_contract_gives_it() {
        let table: [(u16, &[&str]); 14] = [
            (400, &["invalid_json", "malformed_id"]),
            (401, &["unauthenticated"]),
            (403, &["forbidden"]),
            (404, &["not_found"]),
            (405, &["method_not_allowed"]),
            (
                409,
                &[
                    "stale_version",
                    "slug_taken",
                    "name_taken",
                    "id_reused",
                    "profile_in_use",
                    "already_settled",
                    "managed_by_environment",
                    "last_owner",
                ],
            ),
            (410, &["artifact_expired"]),
            (412, &["account_required", "credential_required"]),
            (413, &["too_large"]),
            (414, &["uri_too_long"]),
            (415, &["unsupported_media_type"]),
            (431, &["headers_too_large"]),
            (
                422,
                &[
                    "unknown_field",
                    "invalid_value",
                    "invalid_body",
                    "blank_credential",
                    "limit_above_install",
                    "allowed_hosts_required",
                    "policy_not_enforceable",
                    "error_evidence",
                ],
            ),
            (503, &["store_unavailable", "overloaded"]),
        ];
        for (number, words) in table {
            for word in words {
                let code = Code::parse(word).expect("a code of the contract");
                assert_eq!(status(code).as_u16(), number, "{word}");
            }
        }
        assert_eq!(status(Code::RateLimited), 429);
        assert_eq!(status(Code::Internal), 500);
    }

    #[test]
    fn only_our_own_faults_name_the_request() {
        let theirs = String::from_utf8(Problem::new(Code::NotFound).document(Some("r1"))).expect("JSON");
        let ours = String::from_utf8(Problem::new(Code::Internal).document(Some("r1"))).expect("JSON");
        assert!(!theirs.contains("r1") && ours.contains("urn:formation:request:r1"), "{theirs} {ours}");
    }

    #[test]
    fn what_is_no_field_s_name_is_not_repeated() {
        let said = |name: &str| String::from_utf8(Problem::new(Code::UnknownField).field(name).document(None)).expect("JSON");
        for ours in ["limits.requests_per_run", "formation-run", "isAdmin", "__proto__"] {
            assert!(said(ours).contains(ours), "{ours}");
        }
        for odd in ["é".repeat(5000), "a".repeat(65), "fmo_0123".into(), "BSAq7Xz92k".into(), "two words".into()] {
            assert!(!said(&odd).contains(&odd) && said(&odd).contains('…'), "{odd}");
        }
    }
}
