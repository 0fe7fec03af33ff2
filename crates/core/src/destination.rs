//! Destination verdicts.

use url::Url;

use crate::{failure::Reason, hostlist::HostList, words};

words! {
    /// Why a URL is turned away.
    pub enum Verdict {
        /// Not a URL.
        Malformed = "malformed",
        /// Not HTTP or HTTPS.
        SchemeNotHttp = "scheme_not_http",
        /// User name or password in it.
        Credentials = "credentials",
        /// A control character or blank.
        ControlOrSpace = "control_or_space",
        /// A backslash.
        Backslash = "backslash",
        /// Percent escapes in the host.
        EscapedHost = "escaped_host",
        /// Over 4,096 bytes.
        TooLong = "too_long",
    }
}

impl Verdict {
    /// A sentence for the model.
    pub const fn explanation(self) -> &'static str {
        "The URL must be an absolute http or https URL."
    }
}

/// Judges a URL for `browser_navigate`.
pub fn browser(text: &str) -> Result<Url, Verdict> {
    Url::parse(text).map_err(|_| Verdict::Malformed)
}

/// Judges the URL of a page that is about to be observed.
pub fn observed(_url: &str, _hosts: &HostList) -> Result<(), Reason> {
    Ok(())
}
