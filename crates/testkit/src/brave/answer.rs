//! What goes back, byte for byte.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use serde_json::Value;

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    status: u16,
    reason: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    is_plain: bool,
    pub(super) end: End,
}

/// How an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// As it should; the connection stays.
    Whole,
    /// As it should, and then the connection is closed without a word before.
    Close,
    /// The connection is closed instead of an answer.
    HangUp,
    /// Nothing is sent, and the connection stays.
    Silence,
    /// After the head and half the body nothing more comes.
    Stall,
    /// After the head and half the body the connection is closed.
    Cut,
    /// The body comes again and again.
    Endless,
}

impl Answer {
    /// Any answer. Its body is compressed when the client takes that.
    pub fn new(status: u16, media: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            reason: "X".to_owned(),
            headers: vec![("content-type".to_owned(), media.to_owned())],
            body: body.into(),
            is_plain: false,
            end: End::Whole,
        }
    }

    /// A JSON answer.
    pub fn json(status: u16, body: &Value) -> Self {
        Self::new(status, "application/json", body.to_string())
    }

    /// With another reason phrase.
    pub fn reason(mut self, phrase: &str) -> Self {
        phrase.clone_into(&mut self.reason);
        self
    }

    /// With one more header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Never compressed.
    pub fn plain(mut self) -> Self {
        self.is_plain = true;
        self
    }

    /// Ends otherwise.
    pub fn ends(mut self, end: End) -> Self {
        self.end = end;
        self
    }

    /// Head and body.
    pub(super) fn into_bytes(self, takes_gzip: bool) -> (Vec<u8>, Vec<u8>) {
        let mut lines = vec![format!("HTTP/1.1 {} {}", self.status, self.reason)];
        lines.extend(self.headers.iter().map(|(name, value)| format!("{name}: {value}")));
        let mut body = self.body;
        if self.end == End::Endless {
            lines.push("transfer-encoding: chunked".to_owned());
        } else {
            if takes_gzip && !self.is_plain {
                lines.push("content-encoding: gzip".to_owned());
                body = gzip(&body);
            }
            lines.push(format!("content-length: {}", body.len()));
        }
        (format!("{}\r\n\r\n", lines.join("\r\n")).into_bytes(), body)
    }
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body).and_then(|()| encoder.finish()).expect("memory takes it")
}
