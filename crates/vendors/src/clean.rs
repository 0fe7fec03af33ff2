//! Results of a search as they may go on: addresses that are addresses, text that is text, dates that are dates (vendors/search.md 6).
//!
//! An adapter says which field of its reply is which; everything that holds for every provider is here. Nothing is opened (S6).

use std::collections::HashSet;

use formation_core::{
    Timestamp,
    search::{Hit, cut},
};
use jiff::{ToSpan, civil, tz::TimeZone};
use url::Url;

/// Longest address of a result.
const URL_BYTES: usize = 2_048;
const TITLE_BYTES: usize = 300;
const EXCERPT_BYTES: usize = 2_000;

/// One result as a provider wrote it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Raw<'a> {
    pub(crate) url: &'a str,
    pub(crate) title: &'a str,
    pub(crate) excerpt: &'a str,
    pub(crate) date: &'a str,
}

/// The first `limit` good results in the provider's order, ranked without gaps. What has no address that can be cited is left out,
/// and so is a second result for the same page.
pub(crate) fn hits<'a>(raw: impl IntoIterator<Item = Raw<'a>>, limit: u8, now: Timestamp) -> Vec<Hit> {
    let mut seen = HashSet::new();
    let mut hits = Vec::new();
    for result in raw {
        if hits.len() == usize::from(limit) {
            break;
        }
        let address = result.url.trim();
        let Some(url) = citable(address).filter(|url| seen.insert(page(url))) else { continue };
        let mut title = text(result.title);
        if title.is_empty() {
            url.host_str().unwrap_or_default().clone_into(&mut title);
        }
        title.truncate(cut(&title, TITLE_BYTES));
        let mut excerpt = text(result.excerpt);
        let end = cut(&excerpt, EXCERPT_BYTES);
        let truncated = end < excerpt.len();
        excerpt.truncate(end);
        let date = date(result.date.trim(), now).map(str::to_owned);
        hits.push(Hit { rank: hits.len() + 1, url: address.to_owned(), title, excerpt, truncated, date });
    }
    hits
}

/// An absolute http or https address without user-info, or nothing.
fn citable(address: &str) -> Option<Url> {
    if address.len() > URL_BYTES || address.contains(|c: char| c.is_control() || is_invisible(c)) {
        return None;
    }
    let url = Url::parse(address).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    // `http:host` and `https://@host` are addresses to a parser; to a reader they are tricks.
    let authority = address[url.scheme().len()..].strip_prefix("://")?.split(['/', '\\', '?', '#']).next()?;
    (!authority.is_empty() && !authority.contains('@')).then_some(url)
}

/// What two addresses of one page have in common. For comparison alone: the provider's own string is what is cited.
fn page(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    let host = host.strip_prefix("www.").unwrap_or(host);
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let path = url.path().strip_suffix('/').unwrap_or(url.path());
    let query: Vec<&str> =
        url.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty() && !is_tracker(pair)).collect();
    format!("{host}{port}{path}?{}#{}", query.join("&"), url.fragment().unwrap_or_default())
}

fn is_tracker(pair: &str) -> bool {
    let name = pair.split('=').next().unwrap_or(pair);
    name.starts_with("utm_")
        || ["gclid", "dclid", "fbclid", "msclkid", "gbraid", "wbraid", "twclid", "yclid", "mc_cid", "mc_eid"].contains(&name)
}

/// Plain text: no markup, no controls, nothing invisible, entities decoded once, white space collapsed.
///
/// Tags go before entities are decoded, so that `&lt;script&gt;` stays as visible text. Whoever shows it escapes it.
pub(crate) fn text(raw: &str) -> String {
    let visible = without_invisible(raw);
    let untagged = without_tags(&visible);
    // What an entity spells may be invisible too.
    let decoded = without_invisible(&html_escape::decode_html_entities(&untagged));
    let mut clean = String::with_capacity(decoded.len());
    for word in decoded.split_whitespace() {
        if !clean.is_empty() {
            clean.push(' ');
        }
        clean.push_str(word);
    }
    clean
}

/// Without characters that steer or hide. A control that is white space becomes a space; a joiner stays between two characters
/// that can be seen, where it belongs to a word or an emoji.
fn without_invisible(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '\t' | '\n' | '\u{b}' | '\u{c}' | '\r' | '\u{85}' => kept.push(' '),
            '\u{200c}' | '\u{200d}' => {
                let is_seen = |c: char| !c.is_whitespace() && !c.is_control() && !is_invisible(c);
                if kept.chars().next_back().is_some_and(is_seen) && characters.peek().copied().is_some_and(is_seen) {
                    kept.push(c);
                }
            }
            c if c.is_control() || is_invisible(c) => {}
            c => kept.push(c),
        }
    }
    kept
}

/// Zero-width characters, bidirectional marks and overrides, tags, annotations, and what no program agrees on.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Tags that part words; the others stand inside them.
const BREAKS: [&str; 14] = ["br", "p", "div", "li", "ul", "ol", "tr", "td", "th", "h1", "h2", "h3", "hr", "blockquote"];

/// Without `<word …>`, `</word>` and `<!…>`. A `<` that opens none of them stays.
fn without_tags(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('<') {
        kept.push_str(&rest[..open]);
        let inside = &rest[open + 1..];
        let is_tag = inside.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '!' | '?'));
        // Up to the next bracket of either kind: a tag has none inside, and every character is looked at once.
        if let Some(end) = inside.find(['<', '>']).filter(|end| is_tag && inside.as_bytes()[*end] == b'>') {
            let name = inside.trim_start_matches('/').split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
            if BREAKS.iter().any(|tag| tag.eq_ignore_ascii_case(name)) {
                kept.push(' ');
            }
            rest = &inside[end + 1..];
        } else {
            kept.push('<');
            rest = inside;
        }
    }
    kept.push_str(rest);
    kept
}

/// `YYYY-MM-DD`, or that with a time and perhaps a zone, exactly as it was given; nothing where it is none, before 1990 or more
/// than two days ahead. Never made from relative words.
fn date(given: &str, now: Timestamp) -> Option<&str> {
    let (day, time) = match given.split_at_checked(10)? {
        (day, "") => (day, None),
        (day, rest) => (day, Some(rest.strip_prefix(['T', ' '])?)),
    };
    let mut parts = day.split('-');
    let (year, month, of_month) = (number(parts.next()?, 4)?, number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let day = civil::Date::new(year, i8::try_from(month).ok()?, i8::try_from(of_month).ok()?).ok()?;
    let today = TimeZone::UTC.to_datetime(jiff::Timestamp::from_microsecond(now.micros()).ok()?).date();
    let is_likely = year >= 1990 && day <= today.checked_add(2.days()).ok()?;
    (is_likely && time.is_none_or(is_time)).then_some(given)
}

/// `HH:MM`, `HH:MM:SS` or that with a fraction; then nothing, `Z` or an offset.
fn is_time(time: &str) -> bool {
    let (clock, offset) = match time.find(['Z', '+', '-']) {
        Some(at) if &time[at..] == "Z" => (&time[..at], None),
        Some(at) => (&time[..at], Some(&time[at + 1..])),
        None => (time, None),
    };
    let (clock, fraction) = clock.split_once('.').map_or((clock, None), |(clock, fraction)| (clock, Some(fraction)));
    let limits = [23, 59, 60];
    let fields: Vec<&str> = clock.split(':').collect();
    let is_clock = (2..=3).contains(&fields.len())
        && fields.iter().zip(limits).all(|(field, most)| number(field, 2).is_some_and(|value| value <= most));
    let is_fraction =
        |digits: &str| fields.len() == 3 && (1..=9).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    let is_offset = |offset: &str| match offset.len() {
        4 => number(&offset[..2], 2).is_some() && number(&offset[2..], 2).is_some(),
        5 => offset.split_once(':').is_some_and(|(hours, minutes)| number(hours, 2).is_some() && number(minutes, 2).is_some()),
        _ => false,
    };
    time.is_ascii() && is_clock && fraction.is_none_or(is_fraction) && offset.is_none_or(is_offset)
}

/// A number of exactly so many digits.
fn number(digits: &str, length: usize) -> Option<i16> {
    (digits.len() == length && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok()).flatten()
}
