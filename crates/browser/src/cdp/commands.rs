//! The commands we send, each with the part of its answer that we read. Facts behind their use: `vendors/cdp.md`.

use std::sync::Arc;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// A CDP method with its parameters.
pub(crate) trait Command: Serialize + Send + Sync {
    /// `Domain.method`.
    const METHOD: &'static str;
    /// What we read of the answer.
    type Reply: DeserializeOwned + Send;
}

/// An answer of which only the arrival counts.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Done {}

macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident $(<$life:lifetime>)? = $method:literal { $($(#[$field_meta:meta])* $field:ident: $type:ty),* $(,)? } -> $reply:ty;)+) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Serialize)]
            #[serde(rename_all = "camelCase")]
            pub(crate) struct $name $(<$life>)? { $($(#[$field_meta])* pub(crate) $field: $type),* }

            impl $(<$life>)? Command for $name $(<$life>)? {
                const METHOD: &'static str = $method;
                type Reply = $reply;
            }
        )+
    };
}

commands! {
    /// The liveness probe.
    BrowserVersion = "Browser.getVersion" {} -> Done;
    DenyDownloads<'a> = "Browser.setDownloadBehavior" { behavior: &'a str, events_enabled: bool } -> Done;

    ListTargets = "Target.getTargets" {} -> Targets;
    CreateTarget<'a> = "Target.createTarget" { url: &'a str } -> CreatedTarget;
    CloseTarget<'a> = "Target.closeTarget" { target_id: &'a str } -> Done;
    DiscoverTargets<'a> = "Target.setDiscoverTargets" { discover: bool, filter: &'a [TargetFilter<'a>] } -> Done;
    /// Attaches what is there and what comes. Not recursive.
    AutoAttach<'a> = "Target.setAutoAttach" {
        #[serde(rename = "autoAttach")]
        on: bool, wait_for_debugger_on_start: bool, flatten: bool, filter: &'a [TargetFilter<'a>],
    } -> Done;
    /// Lets a target that was attached paused go on.
    Resume = "Runtime.runIfWaitingForDebugger" {} -> Done;

    EnablePage = "Page.enable" {} -> Done;
    EnableRuntime = "Runtime.enable" {} -> Done;
    EnableInspector = "Inspector.enable" {} -> Done;
    EnableNetwork = "Network.enable" { max_total_buffer_size: u32, max_resource_buffer_size: u32 } -> Done;
    CancelFileChoosers = "Page.setInterceptFileChooserDialog" { enabled: bool, cancel: bool } -> Done;
    DeviceMetrics = "Emulation.setDeviceMetricsOverride" { width: u32, height: u32, device_scale_factor: u32, mobile: bool } -> Done;
    /// An empty script, for the isolated world it brings into every new document.
    WorldInNewDocuments<'a> = "Page.addScriptToEvaluateOnNewDocument" {
        source: &'a str, world_name: &'a str, run_immediately: bool,
    } -> Done;
    IsolatedWorld<'a> = "Page.createIsolatedWorld" { frame_id: &'a str, world_name: &'a str } -> CreatedWorld;

    FrameTreeOf = "Page.getFrameTree" {} -> FrameTreeReply;
    Navigate<'a> = "Page.navigate" { url: &'a str } -> Navigated;
    StopLoading = "Page.stopLoading" {} -> Done;
    BringToFront = "Page.bringToFront" {} -> Done;
    HandleDialog<'a> = "Page.handleJavaScriptDialog" {
        accept: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        prompt_text: Option<&'a str>,
    } -> Done;
    CaptureJpeg<'a> = "Page.captureScreenshot" {
        format: &'a str,
        quality: u8,
        #[serde(skip_serializing_if = "Option::is_none")]
        clip: Option<Clip>,
    } -> Captured;
    LayoutMetrics = "Page.getLayoutMetrics" {} -> Metrics;

    /// Our fixed scripts only; the answer is JSON by value.
    Evaluate<'a> = "Runtime.evaluate" {
        expression: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        unique_context_id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        context_id: Option<i64>,
        return_by_value: bool,
        await_promise: bool,
    } -> Evaluated;
    CallOn<'a> = "Runtime.callFunctionOn" {
        function_declaration: &'a str, object_id: &'a str, arguments: Vec<Argument>, return_by_value: bool, await_promise: bool,
    } -> Evaluated;
    ReleaseGroup<'a> = "Runtime.releaseObjectGroup" { object_group: &'a str } -> Done;
    FrameOwner<'a> = "DOM.getFrameOwner" { frame_id: &'a str } -> Owner;
    ResolveNode<'a> = "DOM.resolveNode" { backend_node_id: i64, execution_context_id: i64, object_group: &'a str } -> ResolvedNode;

    MouseEvent<'a> = "Input.dispatchMouseEvent" {
        #[serde(rename = "type")]
        kind: &'a str,
        x: f64,
        y: f64,
        button: &'a str,
        buttons: u8,
        click_count: u8,
    } -> Done;
    KeyEvent<'a> = "Input.dispatchKeyEvent" {
        #[serde(rename = "type")]
        kind: &'a str,
        key: &'a str,
        code: &'a str,
        windows_virtual_key_code: u16,
        modifiers: u8,
        location: u8,
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<&'a str>,
    } -> Done;
    InsertText<'a> = "Input.insertText" { text: &'a str } -> Done;
}

/// Which targets a command means; the first entry that fits decides.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct TargetFilter<'a> {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<&'a str>,
    pub(crate) exclude: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Targets {
    pub(crate) target_infos: Vec<TargetInfo>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TargetInfo {
    pub(crate) target_id: Arc<str>,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) url: String,
    #[serde(default)]
    pub(crate) opener_id: Option<Arc<str>>,
    #[serde(default)]
    pub(crate) parent_frame_id: Option<Arc<str>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CreatedTarget {
    pub(crate) target_id: Arc<str>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CreatedWorld {
    pub(crate) execution_context_id: i64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FrameTreeReply {
    pub(crate) frame_tree: FrameTree,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FrameTree {
    pub(crate) frame: FrameInfo,
    #[serde(default)]
    pub(crate) child_frames: Vec<FrameTree>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FrameInfo {
    pub(crate) id: Arc<str>,
    #[serde(default)]
    pub(crate) parent_id: Option<Arc<str>>,
    #[serde(default)]
    pub(crate) loader_id: Arc<str>,
    #[serde(default)]
    pub(crate) url: String,
    #[serde(default)]
    pub(crate) unreachable_url: Option<String>,
    #[serde(default)]
    pub(crate) mime_type: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Navigated {
    #[serde(default)]
    pub(crate) loader_id: Option<Arc<str>>,
    #[serde(default)]
    pub(crate) error_text: Option<String>,
    #[serde(default)]
    pub(crate) is_download: bool,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Clip {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) scale: f64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Captured {
    pub(crate) data: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metrics {
    pub(crate) css_visual_viewport: VisualViewport,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VisualViewport {
    pub(crate) page_x: f64,
    pub(crate) page_y: f64,
}

/// What a script answered: a value, or the fact that it threw. Its words stay with the page.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Evaluated {
    #[serde(default)]
    pub(crate) result: RemoteValue,
    #[serde(default)]
    pub(crate) exception_details: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct RemoteValue {
    #[serde(default)]
    pub(crate) value: Option<Box<serde_json::value::RawValue>>,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Argument {
    pub(crate) value: f64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Owner {
    pub(crate) backend_node_id: i64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ResolvedNode {
    pub(crate) object: RemoteObject,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RemoteObject {
    pub(crate) object_id: String,
}
