//! Limits at a glance (contract.md 6). Bytes unless the name says otherwise.

use std::time::Duration;

/// A JSON request body.
pub const BODY_BYTES: usize = 64 * 1024;
/// A browser observation, taken on the one MCP text block as it is sent, its escaping included.
pub const BROWSER_OBSERVATION_BYTES: usize = 30 * 1024;
/// Visible text of one read.
pub const PAGE_TEXT_BYTES: usize = 12_000;
/// Controls of one read.
pub const CONTROLS: usize = 200;
/// Frames of one read, and how deep they nest.
pub const FRAMES: usize = 20;
/// See [`FRAMES`].
pub const FRAME_DEPTH: usize = 5;
/// A URL an agent names.
pub const URL_BYTES: usize = 4_096;
/// The query of a search.
pub const QUERY_BYTES: usize = 2_000;
/// Results of a search, and what a call without `limit` asks for.
pub const SEARCH_RESULTS: u8 = 10;
/// See [`SEARCH_RESULTS`].
pub const SEARCH_RESULTS_DEFAULT: u8 = 5;
/// A search observation, taken like [`BROWSER_OBSERVATION_BYTES`].
pub const SEARCH_OBSERVATION_BYTES: usize = 32 * 1024;
/// A vendor's reply, decompressed.
pub const WIRE_BYTES: usize = 2 * 1024 * 1024;
/// What is looked at of a vendor's error body, decompressed.
pub const WIRE_ERROR_BYTES: usize = 16 * 1024;
/// Text of one `type`.
pub const TYPE_BYTES: usize = 2_000;
/// `find` of a read.
pub const FIND_BYTES: usize = 200;
/// Text for a prompt dialog.
pub const DIALOG_TEXT_BYTES: usize = 200;
/// A caller's idempotency key, and its word for a conversation: `A-Za-z0-9._:-`.
pub const CALLER_WORD_BYTES: usize = 128;
/// The header `Formation-Run`: `A-Za-z0-9._-`.
pub const RUN_WORD_BYTES: usize = 64;
/// A screenshot at rest.
pub const SCREENSHOT_BYTES: usize = 2 * 1024 * 1024;
/// The viewport, in CSS pixels.
pub const VIEWPORT: (u32, u32) = (1280, 720);

/// One request to a vendor, its whole reply included.
pub const VENDOR_CALL: Duration = Duration::from_secs(45);
/// One browser operation, from its turn.
pub const OPERATION: Duration = Duration::from_secs(45);
/// What a navigation's load may take of it.
pub const NAVIGATION_LOAD: Duration = Duration::from_secs(36);
/// How long a call waits for its turn at the run's browser.
pub const TURN: Duration = Duration::from_secs(45);
/// A call's own bound in the ledger, from admission; before admission the turn comes on top.
pub const CALL_BOUND: Duration = Duration::from_secs(50);
/// How long a screenshot is kept.
pub const ARTIFACT_LIFE: Duration = Duration::from_hours(24);
/// How long an observation id is good.
pub const VIEW_LIFE: Duration = Duration::from_mins(1);
/// The longest run.
pub const RUN_DEADLINE: Duration = Duration::from_hours(6);
/// Deadline of a run opened without one.
pub const RUN_DEADLINE_DEFAULT: Duration = Duration::from_hours(1);
/// An implicit run ends after this long without a call.
pub const IMPLICIT_IDLE: Duration = Duration::from_mins(15);
/// Largest `max_tool_calls`.
pub const MAX_TOOL_CALLS: i64 = 1_000_000;
/// `max_tool_calls` of a run opened without one.
pub const MAX_TOOL_CALLS_DEFAULT: i64 = 200;
/// `max_tool_calls` of an implicit run.
pub const MAX_TOOL_CALLS_IMPLICIT: i64 = 5_000;
