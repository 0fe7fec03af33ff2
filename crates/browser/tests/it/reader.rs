//! The 30 KiB of an observation, whatever a page consists of.

use formation_browser::bound;
use formation_core::{
    limits::BROWSER_OBSERVATION_BYTES,
    observation::escaped_len,
    view::{Control, Frame, FrameState, Page, PageView, Truncated},
};
use proptest::{collection::vec, prelude::*};

/// Mostly plain, with what grows most when it is escaped twice: a few pieces over and over, since a piece each would take minutes.
fn text(bytes: usize) -> impl Strategy<Value = String> {
    let piece = prop_oneof![Just("word "), Just("\n"), Just("\t"), Just("\""), Just("\\"), Just("é"), Just("😀"), Just("\u{1}")];
    (vec(piece, 1..6), 0..bytes).prop_map(|(pieces, bytes)| {
        let mut text = pieces.concat().repeat(bytes / pieces.len() + 1);
        text.truncate(text.floor_char_boundary(bytes));
        text
    })
}

prop_compose! {
    fn control()(index in 0_u32..21_000, name in text(160), value in proptest::option::of(text(2_000)), options in vec(text(40), 0..12)) -> Control {
        Control { reference: format!("abcdefghijkl.{index}"), role: "combobox".into(), name, value, options, ..Control::default() }
    }
}

prop_compose! {
    fn frame()(number in 1..21, url in text(512)) -> Frame {
        Frame { id: format!("f{number}"), url, state: FrameState::Ok, reason: None }
    }
}

prop_compose! {
    fn view()(title in text(300), url in text(2_048), body in text(12_000), controls in vec(control(), 0..60), frames in vec(frame(), 0..20),
              start in 0_usize..50_000, more in any::<bool>()) -> (PageView, usize) {
        let next_text_offset = more.then_some(start + body.len());
        let truncated = Truncated { text: more, next_text_offset, ..Truncated::default() };
        let page = Page { url, title, http_status: Some(200) };
        (PageView { page, text: body, controls, frames, truncated, ..PageView::default() }, start)
    }
}

fn sent(view: &PageView) -> usize {
    escaped_len(&serde_json::to_string(view).expect("a view can be written"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn every_observation_fits((view, start) in view(), envelope in 300_usize..4_000) {
        let mut bounded = view.clone();
        bound(&mut bounded, envelope, start);

        prop_assert!(envelope + sent(&bounded) <= BROWSER_OBSERVATION_BYTES);
        prop_assert!(view.text.starts_with(&bounded.text));
        if bounded.text.len() < view.text.len() {
            prop_assert!(bounded.truncated.text);
            prop_assert_eq!(bounded.truncated.next_text_offset, Some(start + bounded.text.len()));
        } else {
            prop_assert_eq!(bounded.truncated.next_text_offset, view.truncated.next_text_offset);
        }
        let (references, all): (Vec<_>, Vec<_>) = (bounded.controls.iter().map(|c| &c.reference).collect(), view.controls.iter().map(|c| &c.reference).collect());
        prop_assert!(all.starts_with(&references), "the last controls go first");
        prop_assert_eq!(bounded.truncated.controls, bounded.controls != view.controls);
        prop_assert_eq!(bounded.truncated.frames, bounded.frames.len() < view.frames.len());
        if envelope + sent(&view) <= BROWSER_OBSERVATION_BYTES {
            prop_assert_eq!(bounded, view, "what fits stays as it is");
        }
    }
}

/// Neither a long text nor many controls push the other out.
#[test]
fn text_and_controls_share() {
    let controls = (0..200).map(|i| Control {
        reference: format!("abcdefghijkl.{i}"),
        role: "link".into(),
        name: "\"name\" ".repeat(20),
        ..Control::default()
    });
    let mut view = PageView { text: "\"quoted\" words\n".repeat(800), controls: controls.collect(), ..PageView::default() };
    bound(&mut view, 500, 0);

    let room = BROWSER_OBSERVATION_BYTES - 500;
    let text = escaped_len(&serde_json::to_string(&view.text).expect("a string"));
    assert!(text > room * 2 / 5, "{text} of {room} for text");
    assert!(view.controls.len() > 20, "{} controls", view.controls.len());
    assert!(view.text.ends_with('\n'), "cut behind a line");
}
