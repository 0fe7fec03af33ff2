//! The page behind the set-up link: one form, no file beside it, until there is a dashboard.
//!
//! Its policy lets nothing run or load but the two pieces written here, by their hashes. The token stays in the address, which no log
//! holds and no other page is told (`Referrer-Policy`), and is taken out of it when it has been used.

use std::sync::LazyLock;

use axum::{
    extract::{Path, State, rejection::PathRejection},
    response::{IntoResponse, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderValue, header};
use sha2::{Digest as _, Sha256};

use crate::{
    problem::{Document, Problem},
    routes::Doors,
};

const STYLE: &str = include_str!("page/setup.css");
const SCRIPT: &str = include_str!("page/setup.js");
const FORM: &str = include_str!("page/form.html");
const DEAD: &str =
    "<p>This link is used, too old, or never was.</p>\n<p>While nobody owns this server, starting it again prints a new one.</p>";

static POLICY: LazyLock<HeaderValue> = LazyLock::new(policy);

/// The page on which the first owner is made.
#[utoipa::path(get, path = "/setup/{token}", tag = "server", params(("token" = String, Path, description = "The end of the set-up link")), responses(
    (status = 200, description = "A form, or that the link is not good", content_type = "text/html"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn set_up(State(doors): State<Doors>, token: Result<Path<String>, PathRejection>) -> Result<Response, Problem> {
    let is_good = match token {
        Ok(Path(token)) => doors.runtime.is_setup_link(&token).await?,
        Err(_) => false,
    };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, POLICY.clone()),
    ];
    Ok((headers, page(is_good)).into_response())
}

fn page(is_good: bool) -> String {
    let (body, script) = if is_good { (FORM, format!("<script>{SCRIPT}</script>\n")) } else { (DEAD, String::new()) };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>Set up Formation</title>\n<style>{STYLE}</style>\n<main>\n<h1>Set up Formation</h1>\n{body}\n</main>\n{script}</html>\n"
    )
}

fn policy() -> HeaderValue {
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
    let text = format!(
        "default-src 'none'; style-src {}; script-src {}; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
        hash(STYLE),
        hash(SCRIPT)
    );
    HeaderValue::from_str(&text).expect("a policy is made of plain characters")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_link_has_no_form_and_no_script() {
        assert!(page(true).contains("<form") && page(true).contains("<script>"));
        assert!(!page(false).contains("<form") && !page(false).contains("<script>"));
        // A piece that could end its own element would not be the one that was hashed.
        assert!(!STYLE.contains("</") && !SCRIPT.contains("</"));
    }
}
