//! Which of the two protocols a message speaks (vendors/mcp.md 0). The same rule as rmcp's, since both must agree on it.

use http::HeaderMap;
use serde_json::Value;

/// A family of protocol revisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Era {
    /// 2024-11-05 to 2025-11-25: `initialize`, sessions, GET and DELETE; a disconnect is not a cancel.
    Legacy,
    /// 2026-07-28 and later: each request carries all there is; closing the answer is the cancel.
    Modern,
}

/// The first revision without sessions.
const MODERN: &str = "2026-07-28";
/// Names the revision in a request's `_meta`.
const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// By the header alone, for requests without a body.
pub(super) fn of_headers(headers: &HeaderMap) -> Era {
    let version = headers.get("mcp-protocol-version").and_then(|value| value.to_str().ok());
    // Revisions are ISO dates: they sort as text.
    if version.is_some_and(|version| version >= MODERN) { Era::Modern } else { Era::Legacy }
}

/// By the message, else by the header.
pub(super) fn of_message(headers: &HeaderMap, message: &Value) -> Era {
    match message["method"].as_str() {
        Some("initialize") => return Era::Legacy,
        Some("server/discover") => return Era::Modern,
        _ => {}
    }
    if message["params"]["_meta"].get(META_VERSION).is_some() {
        return Era::Modern;
    }
    of_headers(headers)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::json;

    use super::*;

    fn era(header: Option<&'static str>, message: &Value) -> Era {
        let mut headers = HeaderMap::new();
        if let Some(version) = header {
            headers.insert("mcp-protocol-version", HeaderValue::from_static(version));
        }
        of_message(&headers, message)
    }

    #[test]
    fn the_message_decides_before_the_header() {
        let list = json!({"method": "tools/list"});
        let modern = json!({"method": "tools/list", "params": {"_meta": {META_VERSION: "2026-07-28"}}});
        assert_eq!(era(None, &list), Era::Legacy);
        assert_eq!(era(Some("2025-11-25"), &list), Era::Legacy);
        assert_eq!(era(Some("2026-07-28"), &list), Era::Modern);
        assert_eq!(era(None, &modern), Era::Modern);
        assert_eq!(era(None, &json!({"method": "server/discover"})), Era::Modern);
        assert_eq!(era(Some("2026-07-28"), &json!({"method": "initialize"})), Era::Legacy);
    }
}
