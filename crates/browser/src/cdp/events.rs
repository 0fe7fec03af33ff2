//! The events we act on, as far as we read them.

use std::sync::Arc;

use serde::Deserialize;

use super::{SessionId, TargetInfo, commands::FrameInfo, decode};

/// One event.
#[derive(Debug)]
pub(crate) enum Event {
    /// A target of ours has a session now.
    Attached(Attached),
    /// A session ended.
    Detached(Detached),
    /// A target's process died, told by the browser.
    TargetCrashed(OfTarget),
    /// The process of this session's target died.
    Crashed,
    /// It has a new process.
    Revived,
    FrameAttached(FrameAttached),
    FrameDetached(FrameDetached),
    FrameNavigated(FrameNavigated),
    /// `pushState`, a hash.
    WithinDocument(WithinDocument),
    StartedLoading(OfFrame),
    StoppedLoading(OfFrame),
    /// A meta refresh, a script's `location`.
    NavigationScheduled(Scheduled),
    NavigationUnscheduled(OfFrame),
    ContextCreated(ContextCreated),
    ContextDestroyed(ContextDestroyed),
    ContextsCleared,
    Response(Response),
    DialogOpening(DialogOpening),
    DialogClosed,
    FileChooser,
    DownloadStarted,
}

impl Event {
    /// `None`: not one of ours, or unreadable.
    pub(crate) fn read(method: &str, params: &[u8]) -> Option<Self> {
        Some(match method {
            "Target.attachedToTarget" => Self::Attached(decode(params)?),
            "Target.detachedFromTarget" => Self::Detached(decode(params)?),
            "Target.targetCrashed" => Self::TargetCrashed(decode(params)?),
            "Inspector.targetCrashed" => Self::Crashed,
            "Inspector.targetReloadedAfterCrash" => Self::Revived,
            "Page.frameAttached" => Self::FrameAttached(decode(params)?),
            "Page.frameDetached" => Self::FrameDetached(decode(params)?),
            "Page.frameNavigated" => Self::FrameNavigated(decode(params)?),
            "Page.navigatedWithinDocument" => Self::WithinDocument(decode(params)?),
            "Page.frameStartedLoading" => Self::StartedLoading(decode(params)?),
            "Page.frameStoppedLoading" => Self::StoppedLoading(decode(params)?),
            "Page.frameScheduledNavigation" => Self::NavigationScheduled(decode(params)?),
            "Page.frameClearedScheduledNavigation" => Self::NavigationUnscheduled(decode(params)?),
            "Runtime.executionContextCreated" => Self::ContextCreated(decode(params)?),
            "Runtime.executionContextDestroyed" => Self::ContextDestroyed(decode(params)?),
            "Runtime.executionContextsCleared" => Self::ContextsCleared,
            "Network.responseReceived" => Self::Response(decode(params)?),
            "Page.javascriptDialogOpening" => Self::DialogOpening(decode(params)?),
            "Page.javascriptDialogClosed" => Self::DialogClosed,
            "Page.fileChooserOpened" => Self::FileChooser,
            "Browser.downloadWillBegin" => Self::DownloadStarted,
            _ => return None,
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Attached {
    pub(crate) session_id: SessionId,
    pub(crate) target_info: TargetInfo,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Detached {
    pub(crate) session_id: SessionId,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OfTarget {
    pub(crate) target_id: Arc<str>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OfFrame {
    pub(crate) frame_id: Arc<str>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FrameAttached {
    pub(crate) frame_id: Arc<str>,
    pub(crate) parent_frame_id: Arc<str>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FrameDetached {
    pub(crate) frame_id: Arc<str>,
    /// `swap`: it goes on in another process.
    #[serde(default)]
    pub(crate) reason: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct FrameNavigated {
    pub(crate) frame: FrameInfo,
    /// `BackForwardCacheRestore`: the old document with its children is back.
    #[serde(default, rename = "type")]
    pub(crate) kind: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WithinDocument {
    pub(crate) frame_id: Arc<str>,
    pub(crate) url: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Scheduled {
    pub(crate) frame_id: Arc<str>,
    /// Seconds.
    #[serde(default)]
    pub(crate) delay: f64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ContextCreated {
    pub(crate) context: Context,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Context {
    pub(crate) id: i64,
    #[serde(default)]
    pub(crate) unique_id: Arc<str>,
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) aux_data: Aux,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Aux {
    #[serde(default)]
    pub(crate) frame_id: Option<Arc<str>>,
    #[serde(default)]
    pub(crate) is_default: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContextDestroyed {
    #[serde(default)]
    pub(crate) execution_context_unique_id: Arc<str>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Response {
    #[serde(default)]
    pub(crate) loader_id: Arc<str>,
    #[serde(default, rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) frame_id: Option<Arc<str>>,
    #[serde(rename = "response")]
    pub(crate) head: ResponseHead,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ResponseHead {
    #[serde(default)]
    pub(crate) status: u16,
}

#[derive(Debug, Deserialize)]
pub(crate) struct DialogOpening {
    #[serde(default)]
    pub(crate) message: String,
    #[serde(default, rename = "type")]
    pub(crate) kind: String,
}
