//! The Bearer token, taken out of the request before anything else sees it. What can't be a token of ours is refused before the
//! database is asked; what could be one and isn't gets the same 401 after it.

use http::{HeaderMap, header};

/// Tokens of ours are shorter.
const TOKEN_BYTES: usize = 128;

/// What stood in `Authorization`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Taken {
    /// No such header.
    Nothing,
    /// One that holds no token of ours.
    Nonsense,
    /// One that may.
    Token(String),
}

/// The token of the one `Authorization` header, if it could be ours. The header is gone afterwards, so that nothing behind can log it.
pub(super) fn take(headers: &mut HeaderMap) -> Taken {
    let header::Entry::Occupied(entry) = headers.entry(header::AUTHORIZATION) else { return Taken::Nothing };
    let (_, mut values) = entry.remove_entry_mult();
    let (Some(value), None) = (values.next(), values.next()) else { return Taken::Nonsense };
    value.to_str().ok().and_then(token).map_or(Taken::Nonsense, Taken::Token)
}

fn token(value: &str) -> Option<String> {
    let (scheme, token) = value.split_once(' ')?;
    let could_be_ours = !token.is_empty()
        && token.len() <= TOKEN_BYTES
        && token.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    (scheme.eq_ignore_ascii_case("bearer") && could_be_ours).then(|| token.to_owned())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn taken(values: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, HeaderValue::from_str(value).expect("a header value"));
        }
        let taken = take(&mut headers);
        assert!(headers.is_empty(), "the header stays nowhere");
        assert_eq!(taken == Taken::Nothing, values.is_empty());
        if let Taken::Token(token) = taken { Some(token) } else { None }
    }

    /// S-11: what can't be a token of ours never reaches the database.
    #[test]
    fn only_one_well_formed_bearer_token_is_looked_up() {
        assert_eq!(taken(&["Bearer fma_abc-DEF_123"]).as_deref(), Some("fma_abc-DEF_123"));
        assert_eq!(taken(&["bearer fma_x"]).as_deref(), Some("fma_x"));
        let long = format!("Bearer {}", "a".repeat(TOKEN_BYTES + 1));
        for values in [
            &[][..],
            &["Bearer"],
            &["Bearer "],
            &["Bearer  fma_x"],
            &["Basic fma_x"],
            &["fma_x"],
            &["Bearer fma_x fma_y"],
            &["Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJvd25lciJ9."],
            &["Bearer fma_x,fma_y"],
            &["Bearer fma_x", "Bearer fma_x"],
            &[long.as_str()],
        ] {
            assert_eq!(taken(values), None, "{values:?}");
        }
    }
}
