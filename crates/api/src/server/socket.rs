//! A TCP stream that gives up on a peer that does not read, and closes politely.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep},
};

/// A connection's socket.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    write: Duration,
    linger: Duration,
    /// Runs while a write waits for the peer.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Runs once our half is closed.
    lingering: Option<Pin<Box<Sleep>>>,
}

impl Socket {
    /// `write` bounds each wait for the peer to read, `linger` the swallowing of what it still sends after our last byte.
    pub(super) fn new(stream: TcpStream, write: Duration, linger: Duration) -> Self {
        Self { stream, write, linger, stalled: None, lingering: None }
    }

    /// Passes on what a write came to; an error once the peer has read nothing for the whole wait.
    fn watch<T>(&mut self, cx: &mut Context<'_>, came: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if came.is_ready() {
            self.stalled = None;
            return came;
        }
        let until = Instant::now() + self.write;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        let came = Pin::new(&mut self.stream).poll_write(cx, buffer);
        self.watch(cx, came)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffers: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let came = Pin::new(&mut self.stream).poll_write_vectored(cx, buffers);
        self.watch(cx, came)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let came = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(cx, came)
    }

    /// Closes our half, then swallows what the peer still sends: closing on unread bytes resets the connection, and the peer
    /// would lose the answer that says why.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            let until = Instant::now() + self.linger;
            self.lingering = Some(Box::pin(tokio::time::sleep_until(until)));
        }
        let mut scratch = [0; 8192];
        // Yields now and then: a peer that sends without end must not hold the thread.
        for _ in 0..32 {
            if self.lingering.as_mut().is_some_and(|lingering| lingering.as_mut().poll(cx).is_ready()) {
                return Poll::Ready(Ok(()));
            }
            let mut buffer = ReadBuf::new(&mut scratch);
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {}
                // The end, or a peer that is gone: closed either way.
                Ok(()) | Err(_) => return Poll::Ready(Ok(())),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
