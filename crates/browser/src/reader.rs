//! One view of a page out of its frames' parts, and small enough to send.
//!
//! A page's text is the main frame's, then each child frame's in document order, headed by a line with the frame's id in square
//! brackets (`[f2]`). Offsets count bytes of that whole, headings included, so `text_offset` and `next_text_offset` run through
//! all frames. Frames stand behind, not in place: an offset into the main text must not move because an advertisement loaded.
//!
//! Not here: which frames may be read at all, dialogs, notes and navigation. The driver adds them to the view.

use std::borrow::Cow;

use formation_core::{
    limits::{BROWSER_OBSERVATION_BYTES, CONTROLS, PAGE_TEXT_BYTES},
    observation::{escaped_len, nested_char_len, nested_len},
    view::{Control, Page, PageView, Truncated},
};
use serde::Serialize;

use crate::script::{Found, Part};

/// A text is rather cut behind a line than within one, if a line ends this close to the cut.
const LINE_SLACK: usize = 200;
/// What a shortened value keeps, when there isn't room for all.
const SHORT_VALUE_BYTES: usize = 200;
/// What a shortened list of options keeps.
const SHORT_OPTIONS: usize = 10;

/// A frame of a look, in document order, the main frame first.
#[derive(Debug, Clone)]
pub(crate) struct FramePart {
    /// `n` of its refs (`FRAME_STRIDE`), and `f<n>` in the view; 0 is the main frame.
    pub number: u32,
    /// What it answered.
    pub part: Part,
}

impl FramePart {
    /// As in `frames[].id`; the main frame has none.
    fn id(&self) -> Option<String> {
        (self.number > 0).then(|| format!("f{}", self.number))
    }
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
///
/// Frames are read at once, before anyone knows how long the texts in front of theirs are. So child frames answer from their start,
/// and at most one of them is asked again.
pub(crate) fn lacking(parts: &[FramePart], text_offset: usize) -> Option<Lacking> {
    let mut at = 0;
    for (position, frame) in parts.iter().enumerate() {
        let window = &frame.part.window;
        at += heading(frame, at).len();
        if (at..at + window.total).contains(&text_offset) {
            let wanted = text_offset - at;
            let held = window.from..window.from + window.text.len();
            return (!held.contains(&wanted)).then_some(Lacking { position, text_offset: wanted });
        }
        at += window.total;
    }
    None
}

/// Page, text, controls and their truncation of a look.
pub(crate) fn merge(parts: Vec<FramePart>, nonce: &str, text_offset: usize) -> PageView {
    let page = parts.first().map(|main| Page { url: main.part.url.clone(), title: main.part.title.clone(), http_status: None });
    let (text, next_text_offset) = text(&parts, text_offset);
    let (controls, more) = controls(parts, nonce);
    PageView {
        page: page.unwrap_or_default(),
        text,
        controls,
        truncated: Truncated { text: next_text_offset.is_some(), controls: more, frames: false, next_text_offset },
        ..PageView::default()
    }
}

/// The line before a frame's text, with the end of the line in front of it. A frame without text has none.
fn heading(frame: &FramePart, at: usize) -> String {
    match frame.id() {
        Some(id) if frame.part.window.total > 0 => format!("{}[{id}]\n", if at > 0 { "\n" } else { "" }),
        _ => String::new(),
    }
}

/// Text from `offset`, at most the limit, and where it goes on.
fn text(parts: &[FramePart], offset: usize) -> (String, Option<usize>) {
    let mut pieces: Vec<(usize, Cow<'_, str>)> = Vec::new();
    let mut total = 0;
    for frame in parts {
        let window = &frame.part.window;
        let heading = heading(frame, total);
        let own = total + heading.len();
        pieces.push((total, heading.into()));
        pieces.push((own + window.from, window.text.as_str().into()));
        total = own + window.total;
    }
    let mut text = String::new();
    let mut start = None;
    for (at, piece) in pieces.iter().filter(|(_, piece)| !piece.is_empty()) {
        match start {
            None if at + piece.len() <= offset => {}
            None => {
                let skip = floor_boundary(piece, offset.saturating_sub(*at));
                text.push_str(&piece[skip..]);
                start = Some(at + skip);
            }
            // What is not held of a frame in between ends the text.
            Some(start) if start + text.len() == *at && text.len() < PAGE_TEXT_BYTES => text.push_str(piece),
            Some(_) => break,
        }
    }
    let Some(start) = start else { return (text, None) };
    if text.len() > PAGE_TEXT_BYTES {
        text.truncate(cut(&text, PAGE_TEXT_BYTES));
    }
    let end = start + text.len();
    (text, (end < total).then_some(end))
}

/// Those in view first: the main frame's, then the child frames'; then the rest in the same order.
fn controls(parts: Vec<FramePart>, nonce: &str) -> (Vec<Control>, bool) {
    let mut more = false;
    let (mut controls, mut rest) = (Vec::new(), Vec::new());
    for frame in parts {
        more |= frame.part.more_controls;
        let id = frame.id();
        for found in frame.part.controls {
            let list = if found.in_view { &mut controls } else { &mut rest };
            list.push(control(found, nonce, id.clone()));
        }
    }
    controls.append(&mut rest);
    more |= controls.len() > CONTROLS;
    controls.truncate(CONTROLS);
    (controls, more)
}

fn control(found: Found, nonce: &str, frame: Option<String>) -> Control {
    Control {
        reference: format!("{nonce}.{}", found.index),
        role: found.role,
        name: found.name,
        value: found.value,
        checked: found.checked,
        selected: found.selected,
        expanded: found.expanded,
        disabled: found.disabled,
        readonly: found.readonly,
        required: found.required,
        invalid: found.invalid,
        focused: found.focused,
        options: found.options,
        frame,
    }
}

/// Shortens `view` until the whole observation fits [`BROWSER_OBSERVATION_BYTES`], as one MCP text block carries it: JSON inside
/// JSON, each quote twice. `envelope` is the [`escaped_len`] of the observation's JSON text without the view's fields.
///
/// Text and controls get half of the room each, or what the other leaves. The last controls go first, after long values and lists of
/// options. What was cut is flagged, and `next_text_offset` is where the shortened text goes on; for that, `text_offset` has to be
/// the look's (0 for an action or a navigation).
pub fn bound(view: &mut PageView, envelope: usize, text_offset: usize) {
    let room = BROWSER_OBSERVATION_BYTES.saturating_sub(envelope);
    // The flags this sets, counted before they are.
    let flags = nested_json_len(&Truncated { text: true, controls: true, frames: true, next_text_offset: Some(usize::MAX) });
    let total = nested_json_len(view);
    if total <= room {
        return;
    }
    let text = nested_len(&view.text);
    let controls: usize = view.controls.iter().map(nested_json_len).sum::<usize>() + view.controls.len();
    let mut rest = total.saturating_sub(text + controls) + flags;
    while rest > room && !view.frames.is_empty() {
        rest -= view.frames.pop().map_or(0, |frame| nested_json_len(&frame) + 1);
        view.truncated.frames = true;
    }
    while rest > room && !view.dialogs.is_empty() {
        rest -= nested_json_len(&view.dialogs.remove(0)) + 1;
    }
    let room = room.saturating_sub(rest);
    let half = room / 2;
    let for_controls = if text <= half { room - text } else { half };
    let taken = if controls > for_controls { bound_controls(view, for_controls) } else { controls };
    bound_text(view, room.saturating_sub(taken), text_offset);
}

/// What `value` takes as JSON inside a JSON string, without that string's quotes.
fn nested_json_len(value: &impl Serialize) -> usize {
    escaped_len(&serde_json::to_string(value).expect("plain strings, numbers and booleans")) - 2
}

/// Answers what the controls that stay take.
fn bound_controls(view: &mut PageView, room: usize) -> usize {
    view.truncated.controls = true;
    for control in &mut view.controls {
        if let Some(value) = &mut control.value {
            value.truncate(floor_boundary(value, SHORT_VALUE_BYTES));
        }
        control.options.truncate(SHORT_OPTIONS);
    }
    let mut taken = 0;
    let keep = view.controls.iter().take_while(|control| {
        taken += nested_json_len(control) + 1;
        taken <= room
    });
    let keep = keep.count();
    view.controls.truncate(keep);
    view.controls.iter().map(nested_json_len).sum::<usize>() + keep
}

fn bound_text(view: &mut PageView, room: usize, text_offset: usize) {
    let mut taken = 0;
    let fit = view.text.char_indices().find(|(_, c)| {
        taken += nested_char_len(*c);
        taken > room
    });
    let Some((fit, _)) = fit else { return };
    // Without a next offset the text ran to its end, and it began where the look asked.
    let start = view.truncated.next_text_offset.map_or(text_offset, |next| next - view.text.len());
    view.text.truncate(cut(&view.text, fit));
    view.truncated.text = true;
    view.truncated.next_text_offset = Some(start + view.text.len());
}

/// Where to cut `text` to at most `limit` bytes: behind a line, if one ends near.
fn cut(text: &str, limit: usize) -> usize {
    let limit = floor_boundary(text, limit);
    match text[..limit].rfind('\n') {
        Some(line) if limit - line <= LINE_SLACK => line + 1,
        _ => limit,
    }
}

fn floor_boundary(text: &str, index: usize) -> usize {
    text.floor_char_boundary(index.min(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Window;

    fn frame(number: u32, text: &str) -> FramePart {
        window(number, text, 0, text.len())
    }

    /// A frame that answered `from` on, at most the limit, of a longer text.
    fn window(number: u32, whole: &str, from: usize, to: usize) -> FramePart {
        let window = Window { from, text: whole[from..to].into(), total: whole.len() };
        FramePart { number, part: Part { url: format!("http://a.test/{number}"), window, ..Part::default() } }
    }

    fn found(index: u32, in_view: bool) -> Found {
        Found { index, role: "button".into(), name: format!("Button {index}"), in_view, ..Found::default() }
    }

    #[test]
    fn frames_stand_behind_the_main_text() {
        let view = merge(vec![frame(0, "Main\ntext"), frame(1, ""), frame(2, "Child")], "n", 0);
        assert_eq!(view.text, "Main\ntext\n[f2]\nChild");
        assert_eq!(view.truncated, Truncated::default());
        assert_eq!(view.page.url, "http://a.test/0");
    }

    #[test]
    fn a_frame_alone_starts_without_an_empty_line() {
        assert_eq!(merge(vec![frame(0, ""), frame(1, "Child")], "n", 0).text, "[f1]\nChild");
    }

    /// What a model does with `next_text_offset` gives the whole text back, whatever it consists of.
    #[test]
    fn windows_add_up_to_the_whole() {
        let main = "Zeile – größer\n".repeat(900);
        let child = "x€😀".repeat(4_000);
        let whole = format!("{main}\n[f1]\n{child}\n[f3]\nlast");
        // As the page answers: at most the limit from an offset, back at a boundary.
        let answer = |number, text: &str, offset: usize| {
            let from = floor_boundary(text, offset);
            window(number, text, from, floor_boundary(text, from + PAGE_TEXT_BYTES))
        };
        let (mut read, mut offset, mut asked_again) = (String::new(), 0, 0);
        loop {
            let mut parts = vec![answer(0, &main, offset), answer(1, &child, 0), answer(3, "last", 0)];
            if let Some(lacking) = super::lacking(&parts, offset) {
                let text = [main.as_str(), child.as_str(), "last"][lacking.position];
                parts[lacking.position] = answer(parts[lacking.position].number, text, lacking.text_offset);
                asked_again += 1;
            }
            let view = merge(parts, "n", offset);
            assert!(view.text.len() <= PAGE_TEXT_BYTES);
            assert_eq!(view.truncated.text, view.truncated.next_text_offset.is_some());
            read.push_str(&view.text);
            match view.truncated.next_text_offset {
                Some(next) => {
                    assert_eq!(next, read.len());
                    offset = next;
                }
                None => break,
            }
        }
        assert_eq!(read, whole);
        assert!(asked_again > 0, "a child's text was long enough to ask again");
    }

    #[test]
    fn an_offset_behind_the_end_is_empty() {
        let view = merge(vec![frame(0, "short")], "n", 900);
        assert_eq!((view.text.as_str(), view.truncated.next_text_offset), ("", None));
    }

    #[test]
    fn controls_in_view_come_first_and_are_counted_over_all_frames() {
        let mut parts = vec![frame(0, ""), frame(1, "")];
        parts[0].part.controls = (0..150).map(|i| found(i, i < 2)).collect();
        parts[1].part.controls = (0..150).map(|i| found(1_000 + i, i == 0)).collect();
        let view = merge(parts, "nonce", 0);
        assert_eq!(view.controls.len(), CONTROLS);
        assert!(view.truncated.controls);
        let first: Vec<_> = view.controls.iter().take(4).map(|c| (c.reference.as_str(), c.frame.as_deref())).collect();
        assert_eq!(first, [("nonce.0", None), ("nonce.1", None), ("nonce.1000", Some("f1")), ("nonce.2", None)]);
    }
}
