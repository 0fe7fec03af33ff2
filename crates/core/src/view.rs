//! What a browser tool shows of a page (browser.md 1.4).

use serde::{Deserialize, Serialize};

use crate::words;

/// The nonce of one look: refs are `<nonce>.<index>`, and only the newest look's are good.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RefNonce(String);

impl RefNonce {
    /// Twelve base-62-like characters of 60 random bits: unguessable, and short enough for a ref of at most 24 bytes.
    pub fn mint(entropy: &crate::entropy::Entropy) -> Self {
        const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
        Self(entropy.bytes::<12>().iter().map(|byte| char::from(LETTERS[usize::from(byte & 31)])).collect())
    }

    /// From storage.
    pub fn stored(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// As in refs.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The page itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// At most 2,048 bytes, without user-info.
    pub url: String,
    /// At most 300 bytes.
    pub title: String,
    /// The website's status of the main document, when known; never the provider's.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub http_status: Option<u16>,
}

/// One visible control.
#[expect(clippy::struct_excessive_bools, reason = "the contract's shape")]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// `<nonce>.<index>`.
    #[serde(rename = "ref")]
    pub reference: String,
    /// ARIA role.
    pub role: String,
    /// Accessible name.
    pub name: String,
    /// Current value; never of a password-like field.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value: Option<String>,
    /// Present for what can be checked, always.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub checked: Option<bool>,
    /// Present when true.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub selected: bool,
    /// Present when true.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub expanded: bool,
    /// Present when true.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub disabled: bool,
    /// Present when true.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub readonly: bool,
    /// Present when true.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub required: bool,
    /// Present when true.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub invalid: bool,
    /// Present when true.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub focused: bool,
    /// Labels of a native select, at most 50.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub options: Vec<String>,
    /// The frame it lives in; absent for the main frame.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub frame: Option<String>,
}

words! {
    /// Whether a frame could be looked into.
    pub enum FrameState {
        /// Its text and controls are in this observation.
        Ok = "ok",
        /// It could not be reached.
        Unavailable = "unavailable",
        /// A rule keeps it out.
        Restricted = "restricted",
    }
}

/// One child frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Ours, within this observation: `f1`, `f2`, …
    pub id: String,
    /// At most 512 bytes.
    pub url: String,
    /// Whether it is in this observation.
    pub state: FrameState,
    /// A fixed word, when it is not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
}

/// What was cut off.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truncated {
    /// Text.
    pub text: bool,
    /// Controls.
    pub controls: bool,
    /// Frames.
    pub frames: bool,
    /// Where to read on.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next_text_offset: Option<usize>,
}

words! {
    /// How a dialog was answered.
    pub enum DialogAnswer {
        /// OK.
        Accepted = "accepted",
        /// Cancel.
        Dismissed = "dismissed",
        /// The provider answered before we could.
        ByProvider = "by_provider",
    }
}

/// A dialog since the previous observation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dialog {
    /// `alert`, `confirm`, `prompt`, `beforeunload`.
    #[serde(rename = "type")]
    pub kind: String,
    /// At most 300 bytes.
    pub message: String,
    /// Ours.
    pub answer: DialogAnswer,
}

words! {
    /// Fixed remarks on an operation.
    pub enum Note {
        /// A download was refused.
        DownloadBlocked = "download_blocked",
        /// A file chooser was cancelled.
        FileChooserCancelled = "file_chooser_cancelled",
        /// A PDF viewer: no text.
        PdfSurface = "pdf_surface",
        /// 204: the page stays.
        NoContent204 = "no_content_204",
        /// The field holds another value than the one typed.
        ValueDiffers = "value_differs",
        /// The first trusted event hit another element.
        TargetDiffered = "target_differed",
        /// No trusted event was seen.
        DeliveryNotSeen = "delivery_not_seen",
    }
}

/// Where a navigation went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Navigation {
    /// As asked, canonical.
    pub requested_url: String,
    /// Where the page is.
    pub final_url: String,
    /// Whether the two differ.
    pub redirected: bool,
}

/// What one look at a page gave.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageView {
    /// The page.
    pub page: Page,
    /// Visible text, one line a block, cells separated by a tab.
    pub text: String,
    /// Visible controls, those in the viewport first.
    pub controls: Vec<Control>,
    /// Child frames.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub frames: Vec<Frame>,
    /// What was cut.
    pub truncated: Truncated,
    /// The page had not come to rest when time was up.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub page_changing: bool,
    /// Dialogs answered since the previous observation.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub dialogs: Vec<Dialog>,
    /// URL of a page this one opened, now the one shown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub opened_page: Option<String>,
    /// URL of a page that closed; the opener is shown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub closed_page: Option<String>,
    /// Fixed remarks.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<Note>,
    /// Of a navigation.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub navigation: Option<Navigation>,
}

/// A picture of the viewport.
#[derive(Clone, PartialEq, Eq)]
pub struct Capture {
    /// JPEG, at most 2 MiB.
    pub jpeg: Vec<u8>,
    /// CSS pixels.
    pub width: u32,
    /// CSS pixels.
    pub height: u32,
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Capture({}×{}, {} bytes)", self.width, self.height, self.jpeg.len())
    }
}
