//! What is asked of a page, and what it answers: the typed side of `page/*.js`.
//!
//! One bundle is evaluated once per document and frame, in the isolated world `formation`, and leaves one object there; the page
//! can neither see nor change it. Each operation afterwards is one expression. Send every one of them with `returnByValue` and
//! `awaitPromise`; `aim` waits for animation frames, so its page has to be visible.
//!
//! Strings a page answers are well-formed and cut to the contract's limits *inside* the page: no page can blow up a message, and
//! no lone surrogate reaches the JSON decoder.
//!
//! Adding an operation: a variant of [`Op`], its reply here, its function in `page/run.js`.

use serde::{Deserialize, Serialize};

/// Installs the page's side. Idempotent: an object that is already there stays, with its table of refs.
const BUNDLE: &str = concat!(
    "(()=>{const slot=Symbol.for('formation');if(globalThis[slot])return;\n",
    include_str!("page/dom.js"),
    include_str!("page/name.js"),
    include_str!("page/walk.js"),
    include_str!("page/read.js"),
    include_str!("page/target.js"),
    include_str!("page/type.js"),
    include_str!("page/run.js"),
    "})()",
);

/// Indexes of refs in frame `n` of a look are `n * FRAME_STRIDE ..`: frames are read at the same time and need no counter between
/// them, and a ref tells its frame. The main frame is 0.
pub(crate) const FRAME_STRIDE: u32 = 1_000;

/// Declaration for `Runtime.callFunctionOn` with `this` an `iframe` element resolved into the isolated world of the *parent* frame
/// and the arguments `x`, `y`: a point in the child's viewport. Answers [`Answer<Passage>`]. The bundle has to be there.
pub(crate) const THROUGH: &str =
    "function(x,y){const page=globalThis[Symbol.for('formation')];return page?{ok:page.through(this,x,y)}:{}}";

/// The expression that runs `op` where the bundle is; elsewhere it answers an [`Answer`] without `ok`.
pub(crate) fn expression(op: &Op<'_>) -> String {
    format!("(()=>{{const page=globalThis[Symbol.for('formation')];return page?page.run({}):{{}}}})()", argument(op))
}

/// The same, installing first: a new document is read with one evaluation.
pub(crate) fn installing(op: &Op<'_>) -> String {
    format!("{BUNDLE};globalThis[Symbol.for('formation')].run({})", argument(op))
}

/// JSON is a JavaScript expression, U+2028 and U+2029 included since ES2019.
fn argument(op: &Op<'_>) -> String {
    serde_json::to_string(op).expect("strings, numbers and booleans can be written as JSON")
}

/// One operation in one frame.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum Op<'a> {
    /// Text and controls; replaces the frame's table of refs. Answers [`Part`].
    Read {
        /// Of the new refs.
        nonce: &'a str,
        /// `frame number * FRAME_STRIDE`.
        first_index: u32,
        /// Where to start in this frame's text, bytes: the look's `text_offset` for the main frame, 0 for the others.
        text_offset: usize,
        /// Only lines and controls with this, ignoring case.
        #[serde(skip_serializing_if = "Option::is_none")]
        find: Option<&'a str>,
    },
    /// Another window of the text the last `Read` with this nonce saw (see `reader::lacking`). Answers [`Window`].
    Text {
        /// Of that read.
        nonce: &'a str,
        /// Bytes into this frame's text.
        text_offset: usize,
    },
    /// What the settle rule compares. Answers [`Digest`].
    Digest,
    /// What a ref stands for now. Answers [`Located`].
    Locate {
        /// `<nonce>.<index>`.
        #[serde(rename = "ref")]
        reference: &'a str,
    },
    /// Scrolls the target into view if needed, waits until it stands still, and hit-tests within the frame. Answers [`Aimed`].
    Aim {
        /// `<nonce>.<index>`.
        #[serde(rename = "ref")]
        reference: &'a str,
    },
    /// Hit-tests one point again. Answers [`Hit`].
    Hit {
        /// `<nonce>.<index>`.
        #[serde(rename = "ref")]
        reference: &'a str,
        /// In the frame's viewport.
        x: f64,
        /// In the frame's viewport.
        y: f64,
    },
    /// Gives the target the focus. Answers [`Done`]: whether it has it.
    Focus {
        /// `<nonce>.<index>`.
        #[serde(rename = "ref")]
        reference: &'a str,
    },
    /// Answers [`Done`]: whether the target is the focused element of its document.
    Focused {
        /// `<nonce>.<index>`.
        #[serde(rename = "ref")]
        reference: &'a str,
    },
    /// Selects the whole value or region. Answers [`Done`]: whether all is selected now.
    Select {
        /// `<nonce>.<index>`.
        #[serde(rename = "ref")]
        reference: &'a str,
    },
    /// Sets a select, date-like, range or colour field and tells the page by `input` and `change`. Answers [`Assigned`].
    Assign {
        /// `<nonce>.<index>`.
        #[serde(rename = "ref")]
        reference: &'a str,
        /// The option's label or value, or the canonical HTML value.
        value: &'a str,
    },
    /// Answers [`Done`]: whether the field holds this text. Compared inside the page, so that no secret leaves it.
    Holds {
        /// `<nonce>.<index>`.
        #[serde(rename = "ref")]
        reference: &'a str,
        /// As typed.
        text: &'a str,
    },
    /// Watches for trusted events of these types (`mousedown`, `click`, `keydown`, `beforeinput`, …) until asked. Answers [`Done`].
    Listen {
        /// `<nonce>.<index>`.
        #[serde(rename = "ref")]
        reference: &'a str,
        /// DOM event types.
        kinds: &'a [&'a str],
    },
    /// What [`Op::Listen`] saw; stops watching. Answers [`Delivered`].
    Delivered,
}

/// What an expression evaluates to.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Answer<T> {
    /// Absent where the bundle isn't installed in the document yet.
    pub ok: Option<T>,
}

/// One frame of a look.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Part {
    /// Tells documents apart: made when the bundle was installed. It doesn't change with `pushState` or `document.write`.
    pub document: String,
    /// At most 2,048 bytes, without user-info.
    pub url: String,
    /// At most 300 bytes.
    pub title: String,
    /// An embedded PDF viewer is all there is.
    pub pdf: bool,
    /// From the offset asked for.
    pub window: Window,
    /// Those in the frame's viewport first, at most 200.
    pub controls: Vec<Found>,
    /// There were more.
    pub more_controls: bool,
}

/// A piece of a frame's text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Window {
    /// Where it starts, moved back to a character boundary.
    pub from: usize,
    /// At most 12,000 bytes.
    pub text: String,
    /// Bytes of the frame's whole text.
    pub total: usize,
}

/// One control of a frame.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_excessive_bools, reason = "the contract's shape")]
pub(crate) struct Found {
    /// Its ref's index.
    pub index: u32,
    /// See `formation_core::view::Control` for this and the following.
    pub role: String,
    /// At most 160 bytes.
    pub name: String,
    /// At most 200 bytes, 2,000 of several lines.
    pub value: Option<String>,
    /// Of what can be checked.
    pub checked: Option<bool>,
    /// …
    pub selected: bool,
    /// …
    pub expanded: bool,
    /// …
    pub disabled: bool,
    /// …
    pub readonly: bool,
    /// …
    pub required: bool,
    /// …
    pub invalid: bool,
    /// …
    pub focused: bool,
    /// Labels of a native select, at most 50.
    pub options: Vec<String>,
    /// Whether its box meets the frame's viewport.
    pub in_view: bool,
}

/// What the settle rule compares.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Digest {
    /// Of the visible text, or a word for "as at the first question": equal means unchanged, and that is all it means.
    pub hash: String,
    /// `document.readyState` is `complete`.
    pub complete: bool,
    /// `document.visibilityState` is `visible`.
    pub visible: bool,
}

/// Whether a ref still means what the model read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Standing {
    /// Attached, with the same fingerprint.
    Found,
    /// No such ref in this document: `stale_ref`.
    #[default]
    Unknown,
    /// Out of the document: `target_detached`.
    Detached,
    /// Role, name, type, tag, form or address differ: `target_changed`.
    Changed,
}

/// What a target is to someone who types.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// A one-line field: a line break becomes a space.
    Line,
    /// A textarea.
    Lines,
    /// An editing host.
    Region,
    /// A native select: `assign`. One of several choices ends with the one typed.
    Select,
    /// Date, time, month, week, datetime-local, range, color: `assign`.
    Assign,
    /// Nothing to type into.
    #[default]
    Other,
}

/// What a ref stands for. Everything but `standing` means something only when it is `Found`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_excessive_bools, reason = "facts of the page, each asked for on its own")]
pub(crate) struct Located {
    /// …
    pub standing: Standing,
    /// It, or its label, has a box and is not hidden.
    pub visible: bool,
    /// Itself, its fieldset, or an ancestor with `aria-disabled`.
    pub disabled: bool,
    /// Not to be changed.
    pub readonly: bool,
    /// How to type into it.
    pub kind: Kind,
    /// A file field: a click would open a chooser.
    pub file: bool,
}

/// A point in CSS pixels of the frame's viewport.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub(crate) struct Point {
    /// …
    pub x: f64,
    /// …
    pub y: f64,
}

/// Where to press.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Aimed {
    /// …
    pub standing: Standing,
    /// As in [`Located`]; false: `target_not_visible`.
    pub visible: bool,
    /// As in [`Located`].
    pub disabled: bool,
    /// Points where this frame's hit test gives the target, best first, at most five. Visible and empty: `target_obscured`.
    pub points: Vec<Point>,
    /// What lies on top where the hit test failed.
    pub cover: Option<Cover>,
}

/// What took a hit, for logs only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Cover {
    /// Another element.
    Element,
    /// Another element, not to be seen (opacity 0).
    Invisible,
    /// An ancestor of the target.
    Ancestor,
    /// A frame.
    Frame,
    /// Nothing: the point is outside the viewport.
    Nothing,
}

/// One point tested.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_field_names, reason = "whether the hit is one; `Passage` calls it the same")]
pub(crate) struct Hit {
    /// …
    pub standing: Standing,
    /// It is the target, a flat-tree descendant, or its own label.
    pub hit: bool,
    /// What else it is.
    pub cover: Option<Cover>,
}

/// A child's point seen from its parent frame.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Passage {
    /// False: transformed in a way that leaves no sure mapping, `frame_unverifiable`.
    pub sure: bool,
    /// In the parent's viewport.
    pub x: f64,
    /// In the parent's viewport.
    pub y: f64,
    /// The parent's hit test gives the frame's element.
    pub hit: bool,
    /// What else it gives.
    pub cover: Option<Cover>,
}

/// Yes or no about a target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Done {
    /// …
    pub standing: Standing,
    /// …
    pub done: bool,
}

/// What became of a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Assigned {
    /// …
    pub standing: Standing,
    /// …
    pub outcome: Assignment,
}

/// See [`Assigned`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Assignment {
    /// The field holds it, and the page was told.
    Held,
    /// The page put another value in its place: `value_differs`.
    Differs,
    /// No such option, two of them, or no value of this type: nothing was done, `invalid_value`.
    #[default]
    Refused,
}

/// Where the trusted events went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Delivered {
    /// …
    pub seen: Seen,
}

/// See [`Delivered`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Seen {
    /// None came: `delivery_not_seen`.
    #[default]
    Nothing,
    /// All to the target, a descendant, or its label.
    Target,
    /// At least one elsewhere: `target_differed`.
    Other,
}
