//! `--remote-debugging-pipe`: JSON messages that end with a NUL byte, one pipe a direction.

use bytes::{Buf, Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
};

/// Longest message that is passed on. A longer one is dropped whole: the call that waits for it fails, the rest goes on.
const MESSAGE_BYTES: usize = 64 * 1024 * 1024;
/// How much is asked for at once.
const READ_BYTES: usize = 64 * 1024;

/// Cuts a stream into messages.
#[derive(Debug, Default)]
struct Frames {
    buffer: BytesMut,
    /// How much of the buffer was searched before.
    searched: usize,
    /// Inside a message that is too long.
    skipping: bool,
}

impl Frames {
    /// The next whole message of the buffer.
    fn next(&mut self, limit: usize) -> Option<Bytes> {
        loop {
            let Some(found) = self.buffer[self.searched..].iter().position(|byte| *byte == 0) else {
                self.searched = self.buffer.len();
                if self.searched > limit {
                    self.skipping = true;
                    // Takes the memory back, too.
                    self.buffer = BytesMut::new();
                    self.searched = 0;
                }
                return None;
            };
            let message = self.buffer.split_to(self.searched + found).freeze();
            self.buffer.advance(1);
            self.searched = 0;
            if std::mem::take(&mut self.skipping) || message.len() > limit {
                tracing::warn!(limit, "dropped a message of the browser that was too long");
            } else {
                return Some(message);
            }
        }
    }
}

/// Passes messages from the browser on until its end closes, or nobody listens any more.
pub(super) async fn read(mut pipe: impl AsyncRead + Unpin, messages: mpsc::Sender<Bytes>) {
    let mut frames = Frames::default();
    loop {
        while let Some(message) = frames.next(MESSAGE_BYTES) {
            if messages.send(message).await.is_err() {
                return;
            }
        }
        frames.buffer.reserve(READ_BYTES);
        match pipe.read_buf(&mut frames.buffer).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

/// Passes messages to the browser on until nobody sends any more. Closing the pipe, at the end, is what ends the browser.
pub(super) async fn write(mut pipe: impl AsyncWrite + Unpin, mut messages: mpsc::Receiver<Bytes>) {
    while let Some(message) = messages.recv().await {
        // A NUL inside would make two messages out of one; valid JSON has none.
        if message.contains(&0) {
            tracing::error!("dropped a message to the browser with a NUL byte in it");
            continue;
        }
        let mut terminated = message.chain(&b"\0"[..]);
        if pipe.write_all_buf(&mut terminated).await.is_err() || pipe.flush().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(frames: &mut Frames, pieces: &[&[u8]], limit: usize) -> Vec<Bytes> {
        let mut messages = Vec::new();
        for piece in pieces {
            frames.buffer.extend_from_slice(piece);
            messages.extend(std::iter::from_fn(|| frames.next(limit)));
        }
        messages
    }

    #[test]
    fn messages_are_cut_wherever_the_pieces_end() {
        let whole = b"{\"a\":1}\0{}\0\0{\"b\"";
        for size in 1..=whole.len() {
            let pieces: Vec<&[u8]> = whole.chunks(size).collect();
            assert_eq!(feed(&mut Frames::default(), &pieces, 100), [&b"{\"a\":1}"[..], b"{}", b""], "{size}");
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_dropped_and_the_next_one_is_not() {
        let whole = b"0123456789abcdef\0ok\0";
        for size in 1..=whole.len() {
            let pieces: Vec<&[u8]> = whole.chunks(size).collect();
            let mut frames = Frames::default();
            assert_eq!(feed(&mut frames, &pieces, 10), [&b"ok"[..]], "{size}");
            assert!(!frames.skipping);
        }
    }

    #[tokio::test]
    async fn both_directions_carry_messages_without_their_terminators() {
        let (ours, theirs) = tokio::io::duplex(64);
        let (their_read, their_write) = tokio::io::split(theirs);
        let (send, queue) = mpsc::channel(4);
        let writing = tokio::spawn(write(ours, queue));
        let (out, mut received) = mpsc::channel(4);
        let reading = tokio::spawn(read(their_read, out));
        for message in ["{\"id\":1}", "bad\0message", "{\"id\":2}"] {
            send.send(Bytes::from_static(message.as_bytes())).await.expect("the writer lives");
        }
        assert_eq!(received.recv().await.as_deref(), Some(&b"{\"id\":1}"[..]));
        assert_eq!(received.recv().await.as_deref(), Some(&b"{\"id\":2}"[..]));
        drop(send);
        writing.await.expect("ends");
        drop(their_write);
        assert_eq!(received.recv().await, None);
        reading.await.expect("ends");
    }
}
