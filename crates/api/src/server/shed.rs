//! Turning newcomers away when the house is full: an answer at once instead of a wait.

use std::time::Duration;

use formation_core::refusal::Code;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::problem::Problem;

/// How many are turned away with an answer at the same time; past that they are only closed.
pub(super) const AT_ONCE: usize = 256;

/// When to come back.
const RETRY_AFTER_SECONDS: u64 = 1;
/// What a peer may take for its own part.
const PATIENCE: Duration = Duration::from_secs(1);

/// Answers 503 `overloaded` without reading a whole request.
pub(super) async fn turn_away(mut stream: TcpStream) {
    let body = Problem::new(Code::Overloaded).detail("Come back in a moment.").document(None);
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: {RETRY_AFTER_SECONDS}\r\n\
         cache-control: no-store\r\nx-content-type-options: nosniff\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let said = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&body).await?;
        stream.shutdown().await?;
        // What it still sends is swallowed: closing on unread bytes would take the answer back.
        let mut scratch = [0; 4096];
        while stream.read(&mut scratch).await? > 0 {}
        Ok::<(), std::io::Error>(())
    };
    // Gone or too slow: it was turned away all the same.
    let _ = tokio::time::timeout(PATIENCE, said).await;
}
