//! A stream that gives up when nothing has moved for a while, in either direction.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

/// Wraps a stream.
#[derive(Debug)]
pub(super) struct Idle<S> {
    stream: S,
    limit: Duration,
    timer: Pin<Box<Sleep>>,
}

impl<S> Idle<S> {
    pub(super) fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, timer: Box::pin(sleep(limit)) }
    }

    fn moved(&mut self) {
        let limit = self.limit;
        self.timer.as_mut().reset(Instant::now() + limit);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Idle<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(result) = Pin::new(&mut self.stream).poll_read(context, buffer) {
            self.moved();
            return Poll::Ready(result);
        }
        ready!(self.timer.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Idle<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes));
        self.moved();
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn silence_ends_it_and_either_direction_is_no_silence() {
        let (near, mut far) = duplex(64);
        let limit = Duration::from_millis(400);
        let mut idle = Idle::new(near, limit);
        let started = Instant::now();
        for _ in 0..3 {
            sleep(limit / 2).await;
            idle.write_all(b"x").await.expect("open");
        }
        sleep(limit / 2).await;
        far.write_all(b"y").await.expect("open");
        assert_eq!(idle.read_u8().await.expect("open"), b'y');
        assert!(started.elapsed() >= limit * 2);
        let error = idle.read_u8().await.expect_err("nothing more comes");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() >= limit * 3);
    }
}
