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
    let authority = address[url.scheme().len()..].strip_prefix("://")?.split(['/', '?', '#']).next()?;
    // A backslash ends the host for some and belongs to user-info for others.
    (!authority.is_empty() && !authority.contains(['@', '\\'])).then_some(url)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 2026-11-30T12:00:00Z.
    const NOON: Timestamp = Timestamp::from_micros(1_796_040_000_000_000);

    fn found(urls: &[&str]) -> Vec<String> {
        let raw = urls.iter().map(|url| Raw { url, ..Raw::default() });
        hits(raw, 10, NOON).into_iter().map(|hit| hit.url).collect()
    }

    #[test]
    fn text_is_what_a_reader_would_see() {
        for (raw, clean) in [
            ("Tide tables &amp; <strong>moon</strong> phases", "Tide tables & moon phases"),
            ("one<br>two</p><P class=x>three", "one two three"),
            ("un<b>break</b>able", "unbreakable"),
            ("&lt;script&gt;alert(1)&lt;/script&gt;", "<script>alert(1)</script>"),
            ("&amp;lt;b&amp;gt; &amp;amp;", "&lt;b&gt; &amp;"),
            ("&#x27;quoted&#39; &eacute;&hellip; AT&T &nosuch; 3 &", "'quoted' é… AT&T &nosuch; 3 &"),
            ("1 < 2 and a<b, x <3 > y", "1 < 2 and a<b, x <3 > y"),
            ("<!-- hidden --><?php x ?>shown</", "shown</"),
            ("  white\u{a0}\t space\r\n\u{2003}here\u{85}", "white space here"),
            ("a\u{0}b\u{7}c\u{9b}d", "abcd"),
            ("\u{202e}evil\u{2066} \u{200b}\u{feff}zero\u{2060}width\u{ad} \u{e0041}\u{e0042}", "evil zerowidth"),
            ("&#x202e;&#8203;by entity&#x2066;", "by entity"),
            ("<scr\u{200b}ipt>alert(1)</scr\u{0}ipt>", "alert(1)"),
            ("می\u{200c}خواهم 👩\u{200d}🌾 \u{200d}alone\u{200c} ", "می\u{200c}خواهم 👩\u{200d}🌾 alone"),
        ] {
            assert_eq!(text(raw), clean, "{raw:?}");
        }
    }

    /// S-17's neighbour: nothing here takes longer than its length.
    #[test]
    fn a_reply_full_of_beginnings_is_read_once() {
        for beginning in ["<a", "&", "&#", "&#x1", "<a<b>", "\u{200d}", "&lt;"] {
            let raw = beginning.repeat(1024 * 1024 / beginning.len());
            assert!(text(&raw).len() <= raw.len());
        }
    }

    /// SC-64: only an address that a person could open, as the provider wrote it.
    #[test]
    fn only_http_addresses_are_cited() {
        let long = format!("https://a.example/{}", "x".repeat(URL_BYTES - 18));
        let longer = format!("{long}x");
        for good in [
            "https://a.example/",
            "HTTP://A.example:8080/ä?q=ü#f",
            "https://a.example/@name?mail=a@b",
            "https://[2001:db8::1]/",
            &long,
        ] {
            assert_eq!(found(&[good]), [good]);
        }
        assert_eq!(found(&[" \n https://a.example/ "]), ["https://a.example/"]);
        for bad in [
            "javascript:alert(1)",
            "data:text/html,x",
            "ftp://a.example/",
            "//a.example/",
            "/path",
            "a.example",
            "",
            "https://",
            "https:///path",
            "https:a.example",
            "https:/a.example",
            "https://u:p@a.example/",
            "https://u@a.example",
            "https://@a.example/",
            "https://a.example\\@b.example:x/",
            "https://a.example/\u{0}",
            "https://a.example/\n/x",
            "https://a.example/\u{202e}x",
            "https://a\u{200b}.example/",
            "file:///etc/passwd",
            "view-source:https://a.example/",
            &longer,
        ] {
            assert_eq!(found(&[bad]), Vec::<String>::new(), "{bad:?}");
        }
    }

    /// SC-46: trackers are ignored for comparison alone; `ref`, `id`, `v`, fragments and the order of parameters carry meaning.
    #[test]
    fn one_page_is_cited_once() {
        for twice in [
            ["https://a.example/x", "http://a.example/x"],
            ["https://www.a.example/x/", "https://A.EXAMPLE:443/x"],
            ["https://a.example/x?v=7&utm_source=m", "https://a.example/x?gclid=1&v=7&fbclid=2"],
            ["https://a.example", "https://a.example/?mc_cid=1"],
        ] {
            assert_eq!(found(&twice), twice[..1]);
        }
        let other = [
            "https://a.example/x",
            "https://b.example/x",
            "https://a.example/X",
            "https://a.example/x?ref=1",
            "https://a.example/x?id=1&v=2",
            "https://a.example/x?v=2&id=1",
            "https://a.example/x#part",
            "https://a.example:8443/x",
            "https://a.example/x?utmost=1",
        ];
        assert_eq!(found(&other), other);
    }

    /// SC-42, SC-44: a date is one or isn't there; what isn't one never drops a result.
    #[test]
    fn dates_are_kept_as_they_were_given_or_left_out() {
        for good in [
            "2026-11-30",
            "1990-01-01",
            "2024-02-29",
            "2026-12-02",
            "2026-11-26T09:30:00",
            "2026-11-26 09:30",
            "2026-11-26T09:30:00Z",
            "2026-11-26T09:30:00.123456+02:00",
            "2026-11-26T23:59:60-0830",
        ] {
            assert_eq!(date(good, NOON), Some(good));
        }
        for bad in [
            "",
            "2 hours ago",
            "yesterday",
            "2026-12-03",
            "1989-12-31",
            "2026-02-29",
            "2026-13-01",
            "2026-1-1",
            "26-11-2026",
            "2026-11-26T",
            "2026-11-26T25:00",
            "2026-11-26T09",
            "2026-11-26T09:30:00+2",
            "2026-11-26T09:30Zulu",
            "2026-11-26x09:30",
            "+026-11-26",
            "2026-11-26T09:30:00.",
            "2026-11-26T09:30.5",
            "２０２６-11-26",
            "2026-11-2é",
            "November 26, 2026",
        ] {
            assert_eq!(date(bad, NOON), None, "{bad}");
            let raw = Raw { url: "https://a.example/", date: bad, ..Raw::default() };
            assert_eq!(hits([raw], 1, NOON).len(), 1);
        }
    }

    #[test]
    fn a_result_without_a_title_is_called_by_its_host() {
        let raw = Raw { url: "https://www.a.example:8443/x", title: "<b></b>\u{200b}", ..Raw::default() };
        assert_eq!(hits([raw], 1, NOON)[0].title, "www.a.example");
    }

    proptest! {
        /// Whatever comes, text has nothing that steers or hides in it.
        #[test]
        fn text_is_clean(raw in "(\\PC|\\pC|<[a-z/ ]{0,4}>?|&[a-z#0-9]{0,6};?|[\\u200b-\\u200f\\u2066]){0,60}") {
            let clean = text(&raw);
            prop_assert!(!clean.contains(|c: char| c.is_control() || (is_invisible(c) && !matches!(c, '\u{200c}' | '\u{200d}'))), "{:?}", clean);
            prop_assert_eq!(clean.split_whitespace().collect::<Vec<_>>().join(" "), clean.clone());
        }

        /// What was escaped once comes back as it was, so entities are decoded once and markup that was quoted stays.
        #[test]
        fn escaped_text_comes_back(plain in "[a-zA-Zé€🌊<>&;#\"' ]{0,80}") {
            let collapsed = plain.split_whitespace().collect::<Vec<_>>().join(" ");
            prop_assert_eq!(text(&html_escape::encode_quoted_attribute(&plain)), collapsed);
        }

        /// S1, S5: limits, ranks and marks hold for any results.
        #[test]
        fn hits_keep_their_limits(
            raw in proptest::collection::vec(
                ("(https?://|ftp://|)[a-c@.]{0,4}/[a-z?=&#]{0,6}", "[a-z é🌊<>]{0,200}", "(long words |é🌊|<b>|&amp;){0,300}", "[0-9T:-]{0,20}"),
                0..12,
            ),
            limit in 1u8..=10,
        ) {
            let raw: Vec<Raw<'_>> = raw.iter().map(|(url, title, excerpt, date)| Raw { url, title, excerpt, date }).collect();
            let hits = hits(raw.iter().copied(), limit, NOON);
            prop_assert!(hits.len() <= usize::from(limit));
            for (index, hit) in hits.iter().enumerate() {
                prop_assert_eq!(hit.rank, index + 1);
                prop_assert!(citable(&hit.url).is_some());
                prop_assert!(!hit.title.is_empty() && hit.title.len() <= TITLE_BYTES && hit.excerpt.len() <= EXCERPT_BYTES);
                let whole = raw.iter().find(|raw| raw.url.trim() == hit.url).expect("it came from one");
                prop_assert_eq!(hit.truncated, hit.excerpt != text(whole.excerpt));
            }
        }
    }
}
