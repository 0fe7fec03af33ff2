//! Opening a URL: what the browser's answer means (vendors/cdp.md 3).

use std::time::Duration;

use formation_core::{
    failure::Reason,
    view::{Navigation, Note},
};
use tokio::time::Instant;
use url::Url;

use crate::{
    DispatchError, Rules,
    cdp::{self, CdpError, Navigated},
    live::{Live, Shown},
    look::URL_BYTES,
    pump::clipped,
    tabs::Tabs,
};

/// How long a stopped navigation may take to say so; 40 ms were measured.
const STOPPED: Duration = Duration::from_secs(3);

/// How long the error page of a failed one may take.
const ERROR_PAGE: Duration = Duration::from_millis(300);

/// Sends the navigation and waits until its document committed, or until it is known that none will.
pub(crate) async fn go(live: &Live, shown: &Shown, url: &Url, deadline: Instant) -> Result<(), DispatchError> {
    let cdp = &live.pump.cdp;
    let on = Some(&shown.session);
    let until = deadline.min(Instant::now() + live.rules.timing.navigation_load);
    let command = cdp::Navigate { url: url.as_str() };
    let mut sent = cdp.send(on, &command, until).await.map_err(|error| DispatchError::NothingSent(error.reason()))?;
    match sent.answer(until).await {
        Ok(navigated) => judge(live, shown, url, &navigated).await,
        Err(error @ CdpError::Rejected { .. }) => Err(DispatchError::NothingSent(error.reason())),
        Err(CdpError::Late) => {
            // Stopped, it answers `net::ERR_ABORTED`: then it is known that the page did not load.
            cdp.tell(on, &cdp::StopLoading {});
            match sent.answer((Instant::now() + STOPPED).min(deadline.max(until + STOPPED))).await {
                Ok(Navigated { error_text: None, .. }) => Ok(()),
                Ok(_) => Err(DispatchError::Known(Reason::Timeout)),
                Err(_) => Err(DispatchError::Unknown(Reason::Timeout)),
            }
        }
        Err(error) => Err(DispatchError::Unknown(error.reason())),
    }
}

async fn judge(live: &Live, shown: &Shown, url: &Url, navigated: &Navigated) -> Result<(), DispatchError> {
    let Some(error) = navigated.error_text.as_deref().filter(|text| !text.is_empty()) else {
        // A page that had crashed lives again.
        if let Some(tab) = live.pump.tabs().tab_mut(&shown.target) {
            tab.crashed = false;
        }
        return Ok(());
    };
    if navigated.is_download {
        live.pump.tabs().remarks.note(Note::DownloadBlocked);
        return Ok(());
    }
    if error == "net::ERR_ABORTED" {
        let mut tabs = live.pump.tabs();
        let status = navigated.loader_id.as_deref().and_then(|loader| tabs.status(loader));
        if matches!(status, Some(204 | 205)) {
            tabs.remarks.note(Note::NoContent204);
            return Ok(());
        }
        // The page took over: a newer navigation of its own replaced ours.
        if tabs.tab(&shown.target).and_then(|tab| tab.main()).is_some_and(|main| main.loading || main.loader != shown.main.loader) {
            return Ok(());
        }
    }
    let unreachable = error_page(live, shown, navigated).await;
    let reason = refusal(&live.rules, url, unreachable.as_deref()).unwrap_or_else(|| reason_of(error));
    Err(DispatchError::Known(reason))
}

/// What could not be loaded, by the error page that takes its place: after a redirect it is another URL than the one asked for.
async fn error_page(live: &Live, shown: &Shown, navigated: &Navigated) -> Option<String> {
    let arrived = |tabs: &mut Tabs| {
        let main = tabs.tab(&shown.target)?.main()?;
        (Some(&main.loader) == navigated.loader_id.as_ref()).then(|| main.unreachable.clone())
    };
    live.pump.when(Instant::now() + ERROR_PAGE, arrived).await.flatten()
}

/// What the proxy in front of the browser knows about it: the browser itself only sees a connection that came to nothing.
fn refusal(rules: &Rules, url: &Url, unreachable: Option<&str>) -> Option<Reason> {
    let refusals = rules.refusals.as_ref()?;
    let ask = |url: &Url| refusals.take(url.host_str()?, url.port_or_known_default()?);
    // After a redirect it is another host that failed.
    let last = unreachable.and_then(|url| Url::parse(url).ok());
    last.as_ref().and_then(ask).or_else(|| ask(url))
}

/// Chromium's net error in the contract's words.
fn reason_of(error: &str) -> Reason {
    let name = error.strip_prefix("net::ERR_").unwrap_or(error);
    if name.starts_with("NAME_") || name.starts_with("DNS_") || name.starts_with("ICANN_NAME") {
        Reason::DnsFailed
    } else if name.starts_with("CERT_") || name.starts_with("SSL_") || name.starts_with("BAD_SSL") || name.contains("TLS") {
        Reason::TlsFailed
    } else if name.contains("AUTH") {
        Reason::HttpAuthRequired
    } else if name.contains("TIMED_OUT") {
        Reason::Timeout
    } else {
        Reason::ConnectionFailed
    }
}

/// What the view says about it.
pub(crate) fn told(requested: &Url, final_url: &str) -> Navigation {
    Navigation {
        requested_url: clipped(requested.as_str(), URL_BYTES),
        final_url: final_url.to_owned(),
        redirected: clipped(requested.as_str(), URL_BYTES) != final_url,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn net_errors_have_words() {
        for (error, reason) in [
            ("net::ERR_NAME_NOT_RESOLVED", Reason::DnsFailed),
            ("net::ERR_CONNECTION_REFUSED", Reason::ConnectionFailed),
            ("net::ERR_CERT_AUTHORITY_INVALID", Reason::TlsFailed),
            ("net::ERR_SSL_PROTOCOL_ERROR", Reason::TlsFailed),
            ("net::ERR_INVALID_AUTH_CREDENTIALS", Reason::HttpAuthRequired),
            ("net::ERR_CONNECTION_TIMED_OUT", Reason::Timeout),
            ("net::ERR_EMPTY_RESPONSE", Reason::ConnectionFailed),
            ("anything else", Reason::ConnectionFailed),
        ] {
            assert_eq!(reason_of(error), reason, "{error}");
        }
    }
}
