//! What Brave found. Nothing found and a broken reply are kept apart: the first has no `web`, or an empty list in it.

use formation_core::{Timestamp, search::Hit};
use serde_json::{Map, Value};

use crate::clean::{self, Raw};

/// The results of a 200, or `None` where it isn't a search reply.
///
/// `age` is a text for display and often relative; the date is `page_age`.
pub(super) fn hits(body: &[u8], limit: u8, now: Timestamp) -> Option<Vec<Hit>> {
    let reply: Map<String, Value> = serde_json::from_str(&String::from_utf8_lossy(body)).ok()?;
    if ["error", "errors"].into_iter().any(|name| reply.get(name).is_some_and(says_something)) {
        return None;
    }
    let results = match reply.get("web") {
        None | Some(Value::Null) => &Vec::new(),
        Some(web) => web.get("results")?.as_array()?,
    };
    // An item that is no object is somebody else's mistake and takes no other with it.
    let raw = results.iter().filter_map(Value::as_object).map(|result| {
        let text = |name: &str| result.get(name).and_then(Value::as_str).unwrap_or_default();
        Raw { url: text("url"), title: text("title"), excerpt: text("description"), date: text("page_age") }
    });
    Some(clean::hits(raw, limit, now))
}

fn says_something(error: &Value) -> bool {
    !error.is_null() && error.as_array().is_none_or(|list| !list.is_empty())
}
