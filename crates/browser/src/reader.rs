//! One view of a page out of its frames' parts, and small enough to send.

use formation_core::view::PageView;

use crate::script::{Part, Window};

/// A frame of a look, in document order, the main frame first.
#[derive(Debug, Clone)]
pub(crate) struct FramePart {
    /// `n` of its refs (`FRAME_STRIDE`), and `f<n>` in the view; 0 is the main frame.
    pub number: u32,
    /// What it answered.
    pub part: Part,
}

/// A window of text that has to be fetched by `Op::Text` before merging: the offset asked for lies in this frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lacking {
    /// Position in the parts.
    pub position: usize,
    /// Bytes into that frame's text.
    pub text_offset: usize,
}

/// What is missing for a look at `text_offset`; put the answer into `parts[position].part.window`.
pub(crate) fn lacking(parts: &[FramePart], text_offset: usize) -> Option<Lacking> { let _ = (parts, text_offset); None }

/// Text, controls, page and their truncation of a look. Frames, dialogs and notes are the caller's to add.
pub(crate) fn merge(parts: Vec<FramePart>, nonce: &str, text_offset: usize) -> PageView { let _ = (parts, nonce, text_offset, Window::default()); PageView::default() }
