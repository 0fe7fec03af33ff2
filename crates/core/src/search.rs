//! Results of a search, whatever provider they come from (S1).

use serde::{Deserialize, Serialize};

use crate::observation::nested_len;

/// One result, in the provider's order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hit {
    /// Counted from 1, without gaps.
    pub rank: usize,
    /// Absolute http or https, as the provider wrote it; nobody here opens it (S6).
    pub url: String,
    /// Clean text, at most 300 bytes.
    pub title: String,
    /// Clean text, at most 2,000 bytes; shortened further to fit the observation.
    pub excerpt: String,
    /// Whether the excerpt was shortened (S5).
    pub truncated: bool,
    /// A calendar date, with the time as it was given; never made from relative words.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub date: Option<String>,
}

/// What a shortened excerpt is never cut below while a longer one is left.
const STEP: usize = 16;

/// Shortens excerpts, the longest first and evenly, until the observation is within `room` bytes of an MCP text block; `room` is
/// what is left beside the hits. All results stay (S4, S5). Says whether anything was cut.
pub fn bound(hits: &mut [Hit], room: usize) -> bool {
    let fixed: usize = hits.iter().map(|hit| nested_json_len(hit) - nested_len(&hit.excerpt) + 1).sum();
    let room = room.saturating_sub(fixed);
    let whole: usize = hits.iter().map(|hit| nested_len(&hit.excerpt)).sum();
    if whole <= room {
        return false;
    }
    // The highest level that fits: excerpts below it keep all they have.
    let longest = hits.iter().map(|hit| hit.excerpt.len()).max().unwrap_or(0);
    let cost = |level: usize| hits.iter().map(|hit| nested_len(&hit.excerpt[..cut(&hit.excerpt, level)])).sum::<usize>();
    let (mut fits, mut exceeds) = (0, longest + 1);
    while exceeds - fits > STEP {
        let level = fits.midpoint(exceeds);
        if cost(level) <= room {
            fits = level;
        } else {
            exceeds = level;
        }
    }
    for hit in hits.iter_mut() {
        let end = cut(&hit.excerpt, fits);
        if end < hit.excerpt.len() {
            hit.excerpt.truncate(end);
            hit.truncated = true;
        }
    }
    true
}

/// Where a text of at most `most` bytes may end: on a character, and at the end of a word if one ends in its last quarter.
pub fn cut(text: &str, most: usize) -> usize {
    if text.len() <= most {
        return text.len();
    }
    let end = text.floor_char_boundary(most);
    let head = text[..end].trim_end();
    match head.rfind(char::is_whitespace) {
        Some(space) if space >= end - end / 4 && text[end..].starts_with(|c: char| !c.is_whitespace()) => {
            head[..space].trim_end().len()
        }
        _ => head.len(),
    }
}

fn nested_json_len(hit: &Hit) -> usize {
    nested_len(&serde_json::to_string(hit).expect("plain strings, numbers and booleans"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hit(rank: usize, excerpt: &str) -> Hit {
        Hit {
            rank,
            url: format!("https://example.org/{rank}"),
            title: format!("Title \"{rank}\""),
            excerpt: excerpt.to_owned(),
            truncated: false,
            date: None,
        }
    }

    fn cost(hits: &[Hit]) -> usize {
        hits.iter().map(|hit| nested_json_len(hit) + 1).sum()
    }

    #[test]
    fn long_excerpts_are_cut_first_and_evenly() {
        let mut hits = vec![hit(1, &"long words ".repeat(400)), hit(2, "short"), hit(3, &"other words ".repeat(200))];
        assert!(bound(&mut hits, 3_000));
        assert!(cost(&hits) <= 3_000 + 40, "{}", cost(&hits));
        assert_eq!((hits[1].excerpt.as_str(), hits[1].truncated), ("short", false));
        assert!(hits[0].truncated && hits[2].truncated);
        assert!(hits[0].excerpt.len().abs_diff(hits[2].excerpt.len()) < 40);
        assert!(hits[0].excerpt.ends_with("words") || hits[0].excerpt.ends_with("long"));
    }

    proptest! {
        /// S4: whatever comes, the hits fit their room as long as the bare results do, and none is lost.
        #[test]
        fn hits_fit(excerpts in proptest::collection::vec("[\\x00-\\x7fé€😀\"\\\\]{0,900}", 0..10), room in 2_500usize..30_000) {
            let mut hits: Vec<Hit> = excerpts.iter().enumerate().map(|(index, text)| hit(index + 1, text)).collect();
            let before = hits.clone();
            let is_cut = bound(&mut hits, room);
            prop_assert_eq!(hits.len(), before.len());
            // `"truncated":true` is one byte shorter than `false`.
            prop_assert!(cost(&hits) <= room);
            prop_assert_eq!(is_cut, cost(&before) > room);
            for (cut, whole) in hits.iter().zip(&before) {
                prop_assert!(whole.excerpt.starts_with(&cut.excerpt));
                prop_assert_eq!(cut.truncated, cut.excerpt.len() < whole.excerpt.len());
            }
        }
    }
}
