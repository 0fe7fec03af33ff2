//! Starts `formation-under-test`, reads what it prints, kills it. Everything has a limit.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};

/// Longest wait for a server to answer, a browser probe included, on a machine that is busy with others.
const START: Duration = Duration::from_mins(1);

/// A server of `formation-under-test` on a free port. Killed when dropped.
#[derive(Debug)]
pub struct UnderTest {
    child: Child,
    lines: Receiver<String>,
    url: String,
    setup_url: Option<String>,
}

impl UnderTest {
    /// Starts a command line of `serve --json` and returns when it answers.
    pub fn spawn(mut command: Command) -> anyhow::Result<Self> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("it does not start")?;
        let out = child.stdout.take().context("a piped child has a standard output")?;
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let mut server = Self { child, lines, url: String::new(), setup_url: None };
        let ready: serde_json::Value = serde_json::from_str(&server.line(START).context("no ready line")?)?;
        server.url = ready["url"].as_str().map(str::to_owned).context("a ready line names the address")?;
        server.setup_url = ready["setup_url"].as_str().map(str::to_owned);
        Ok(server)
    }

    /// Where it answers, without a slash at the end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where its first owner is made, if it has none.
    pub fn setup_url(&self) -> Option<&str> {
        self.setup_url.as_deref()
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it stands at the fault point `name`.
    pub fn stands_at(&self, name: &str, within: Duration) -> anyhow::Result<()> {
        let line = self.line(within).with_context(|| format!("it did not reach `{name}`"))?;
        ensure!(line == format!("fault {name}"), "it said `{line}` instead of reaching `{name}`");
        Ok(())
    }

    fn line(&self, within: Duration) -> anyhow::Result<String> {
        match self.lines.recv_timeout(within) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => bail!("nothing was said in {within:?}"),
            Err(RecvTimeoutError::Disconnected) => bail!("it has ended"),
        }
    }

    /// SIGKILL, and gone when this returns.
    pub fn kill(mut self) {
        self.end();
    }

    /// SIGTERM; its exit code, unless it takes longer than `within`.
    pub fn terminate(mut self, within: Duration) -> anyhow::Result<Option<i32>> {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), rustix::process::Signal::TERM)?;
        let until = Instant::now() + within;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.code());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("it did not end in {within:?}")
    }

    fn end(&mut self) {
        // Either fails only when the process is gone, which is what is wanted.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for UnderTest {
    fn drop(&mut self) {
        self.end();
    }
}
