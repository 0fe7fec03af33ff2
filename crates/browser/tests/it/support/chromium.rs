//! A Chromium of this machine, one process and one empty user-data folder, spoken to over `--remote-debugging-pipe`.

use std::process::Stdio;

use bytes::Bytes;
use formation_browser::CdpWire;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::mpsc,
};

const BINARY: &str = "/usr/lib/chromium/chromium";
/// Chromium reads file descriptor 3 and writes 4: the shell moves ours there.
const ON_PIPES: &str = r#"exec 3<&0 4>&1 0</dev/null 1>/dev/null; exec "$0" "$@""#;
const FLAGS: &[&str] = &[
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-extensions",
    "--site-per-process",
    "--window-size=1280,720",
    "--remote-debugging-pipe",
];

/// A running browser; it is killed by its process id when this is dropped.
#[derive(Debug)]
pub(crate) struct Chromium {
    child: Child,
    _folder: TempDir,
}

impl Chromium {
    /// Starts one, with its end of the wire.
    pub(crate) fn start() -> (Self, CdpWire) {
        let folder = TempDir::new().expect("a temporary folder");
        let mut child = Command::new("sh")
            .args(["-c", ON_PIPES, BINARY])
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", folder.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("chromium starts");
        let to = child.stdin.take().expect("stdin is piped");
        let from = child.stdout.take().expect("stdout is piped");
        (Self { child, _folder: folder }, wire(to, from))
    }

    /// Ends it as kill -9 does.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.expect("it was running");
    }
}

fn wire(mut to: ChildStdin, mut from: ChildStdout) -> CdpWire {
    let (send, mut outgoing) = mpsc::channel::<Bytes>(64);
    let (incoming, receive) = mpsc::channel::<Bytes>(1024);
    tokio::spawn(async move {
        while let Some(message) = outgoing.recv().await {
            if to.write_all(&message).await.is_err() || to.write_all(&[0]).await.is_err() || to.flush().await.is_err() {
                return;
            }
        }
    });
    tokio::spawn(async move {
        let mut buffer = Vec::new();
        let mut chunk = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut chunk).await {
            buffer.extend_from_slice(&chunk[..count]);
            while let Some(end) = buffer.iter().position(|byte| *byte == 0) {
                let message: Vec<u8> = buffer.drain(..=end).take(end).collect();
                if incoming.send(message.into()).await.is_err() {
                    return;
                }
            }
        }
    });
    CdpWire { send, receive }
}
