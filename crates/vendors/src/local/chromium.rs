//! Finding a Chromium, starting one with nothing but a pipe and a proxy, and ending it with all its children.

use std::{
    ffi::OsString,
    io,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use bytes::Bytes;
use formation_browser::CdpWire;
use formation_core::{Environment, limits};
use rustix::process::{Pid, Signal};
use serde::Deserialize;
use tokio::{
    process::{Child, Command},
    sync::mpsc,
    task::JoinHandle,
    time::timeout,
};

use super::{pipe, user::User};

/// Binaries themselves before wrappers: a wrapper adds flags of its distribution and a shell between us and the browser.
const PLACES: &[&str] =
    &["/usr/lib/chromium/chromium", "/usr/lib64/chromium-browser/chromium-browser", "/opt/google/chrome/chrome"];
const NAMES: &[&str] = &["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];

/// Moves the pipes to where `--remote-debugging-pipe` looks for them, which `unsafe` code would do otherwise.
const SCRIPT: &str = r#"exec 3<&0 4>&1 0</dev/null 1>/dev/null; exec "$0" "$@""#;

/// How long a browser may take to exit by itself once its pipe is closed. It takes 0.15 s when it is well.
const GRACE: Duration = Duration::from_millis(1500);
/// How many messages wait in each direction.
const TO_BROWSER: usize = 64;
const FROM_BROWSER: usize = 256;
/// Below this much shared memory, which is a container's default, large pages crash their renderer.
const SHARED_MEMORY_BYTES: u64 = 256 * 1024 * 1024;

/// What never changes: quiet (no calls home), closed (no way out but the proxy) and the same for everybody.
const FLAGS: &[&str] = &[
    "--headless=new",
    "--remote-debugging-pipe",
    "--site-per-process",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-sync",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-client-side-phishing-detection",
    "--disable-domain-reliability",
    "--disable-breakpad",
    "--disable-crash-reporter",
    "--metrics-recording-only",
    "--no-pings",
    "--no-service-autorun",
    "--password-store=basic",
    "--use-mock-keychain",
    // HttpsUpgrades and its kin would open another URL than the one that was judged and recorded.
    "--disable-features=Translate,MediaRouter,OptimizationHints,NetworkTimeServiceQuerying,DnsOverHttps,AutofillServerCommunication,\
     CertificateTransparencyComponentUpdater,HttpsUpgrades,HttpsFirstBalancedMode,HttpsFirstBalancedModeAutoEnable",
    "--gaia-url=http://0.0.0.0:9/",
    "--component-updater=url-source=http://0.0.0.0:9/",
    "--disable-quic",
    "--force-webrtc-ip-handling-policy",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    // The browser resolves nothing: names go to the proxy as they are, and whatever would go round it finds no address.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    // Loopback isn't exempt from the proxy, as it is by default.
    "--proxy-bypass-list=<-loopback>",
    "--deny-permission-prompts",
    "--disable-gpu",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--force-device-scale-factor=1",
    "--mute-audio",
    "--lang=en-US",
];

/// The browser to use: the one asked for, or the first that this machine has.
pub(super) fn find(wanted: Option<&Path>, environment: &Environment) -> Option<PathBuf> {
    if let Some(path) = wanted {
        return is_program(path).then(|| path.to_owned());
    }
    let places = PLACES.iter().map(PathBuf::from);
    let path = environment.variable("PATH").unwrap_or_default();
    let named: Vec<PathBuf> =
        NAMES.iter().flat_map(|name| std::env::split_paths(&path).map(move |folder| folder.join(name))).collect();
    places.chain(named).find(|path| path.is_absolute() && is_program(path))
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// What one start depends on.
#[derive(Debug)]
pub(super) struct Launch<'a> {
    pub(super) program: &'a Path,
    pub(super) user: User,
    pub(super) sandbox: bool,
    /// Empty, the user's own; the browser writes nowhere else.
    pub(super) folder: &'a Path,
    /// Its only way out. None where it opens no page at all.
    pub(super) proxy: Option<SocketAddr>,
}

impl Launch<'_> {
    fn arguments(&self) -> Vec<OsString> {
        let (width, height) = limits::VIEWPORT;
        let mut folder = OsString::from("--user-data-dir=");
        folder.push(self.folder);
        // Nothing listens on port 9, the discard port, so a browser without a proxy has no way out at all.
        let proxy = self.proxy.map_or_else(|| "127.0.0.1:9".to_owned(), |proxy| proxy.to_string());
        let mut arguments: Vec<OsString> = FLAGS.iter().map(OsString::from).collect();
        arguments.extend([
            folder,
            format!("--proxy-server=http://{proxy}").into(),
            format!("--window-size={width},{height}").into(),
        ]);
        if !self.sandbox {
            arguments.push("--no-sandbox".into());
        }
        if rustix::fs::statvfs("/dev/shm").is_ok_and(|space| space.f_blocks * space.f_frsize < SHARED_MEMORY_BYTES) {
            arguments.push("--disable-dev-shm-usage".into());
        }
        arguments.push("about:blank".into());
        arguments
    }

    /// Starts it. Its environment is empty but for its own folder: the server's may hold credentials.
    pub(super) fn start(&self) -> io::Result<Running> {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", SCRIPT])
            .arg(self.program)
            .args(self.arguments())
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .env("HOME", self.folder)
            // Relative, since a socket in it may have a path of 108 bytes at most, and where the folder lies is not ours to say.
            .env("TMPDIR", ".")
            .env("XDG_CONFIG_HOME", self.folder)
            .env("XDG_CACHE_HOME", self.folder)
            .current_dir(self.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true);
        if let User::Other { uid, gid } = self.user {
            // The standard library drops the supplementary groups with it.
            command.uid(uid).gid(gid);
        }
        let mut child = command.spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("a piped child has no pipes"));
        };
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let (send, queue) = mpsc::channel(TO_BROWSER);
        let (messages, receive) = mpsc::channel(FROM_BROWSER);
        let writer = tokio::spawn(pipe::write(input, queue));
        let reader = tokio::spawn(pipe::read(output, messages));
        Ok(Running { process: Process { child, group, writer, reader }, wire: CdpWire { send, receive } })
    }
}

/// A started browser and the connection to it.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) process: Process,
    pub(super) wire: CdpWire,
}

/// Why a browser isn't there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// It ended instead of answering.
    Ended,
    /// It said nothing.
    Silent,
}

impl Running {
    /// Waits for the answer to `Browser.getVersion` and returns the product, like `Chrome/156.0.8078.114`.
    pub(super) async fn version(&mut self, wait: Duration) -> Result<String, NoAnswer> {
        #[derive(Deserialize)]
        struct Answer {
            id: Option<i64>,
            result: Option<Version>,
        }
        #[derive(Deserialize)]
        struct Version {
            product: String,
        }
        let asking = async {
            // Zero is an id like any other, and whoever gets the connection counts from one.
            let question = Bytes::from_static(br#"{"id":0,"method":"Browser.getVersion"}"#);
            self.wire.send.send(question).await.map_err(|_| NoAnswer::Ended)?;
            while let Some(message) = self.wire.receive.recv().await {
                // Anything else is an event, which nobody listens for yet.
                if let Ok(Answer { id: Some(0), result: Some(version) }) = serde_json::from_slice(&message) {
                    return Ok(version.product);
                }
            }
            Err(NoAnswer::Ended)
        };
        timeout(wait, asking).await.unwrap_or(Err(NoAnswer::Silent))
    }
}

/// The processes of one browser.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    group: Option<Pid>,
    writer: JoinHandle<()>,
    reader: JoinHandle<()>,
}

impl Process {
    /// Comes back, once, when the browser has ended, or when nobody holds the other end of its connection any more.
    pub(super) async fn over(&mut self) {
        tokio::select! {
            // An error says that there is nothing to wait for.
            _ = self.child.wait() => {}
            _ = &mut self.writer => {}
            _ = &mut self.reader => {}
        }
    }

    /// Ends it: closes the pipe, waits for it to exit, kills what is left of its process group.
    pub(super) async fn end(mut self) {
        self.writer.abort();
        self.reader.abort();
        if timeout(GRACE, self.child.wait()).await.is_err() {
            tracing::warn!("a browser did not exit by itself and is killed");
            self.kill_group();
            drop(self.child.wait().await);
        }
        // Children that hung on to a page. The id can't be anybody else's while one of them lives.
        self.kill_group();
    }

    fn kill_group(&self) {
        if let Some(group) = self.group {
            // Nobody left to kill is what is wanted.
            _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn program(folder: &Path, name: &str, mode: u32) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, "#!/bin/sh\n").expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
        path
    }

    #[test]
    fn the_one_asked_for_is_taken_or_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let nothing = Environment::new(|_| None);
        let good = program(folder.path(), "my-chromium", 0o755);
        assert_eq!(find(Some(&good), &nothing), Some(good));
        let plain = program(folder.path(), "notes.txt", 0o644);
        assert_eq!(find(Some(&plain), &nothing), None);
        assert_eq!(find(Some(folder.path()), &nothing), None);
    }

    #[test]
    fn a_browser_is_told_where_to_write_and_where_to_go_out() {
        let proxy = "127.0.0.1:4321".parse().expect("a socket");
        let launch = |sandbox, proxy| {
            let launch = Launch { program: Path::new("/x"), user: User::Own, sandbox, folder: Path::new("/sessions/a b"), proxy };
            launch.arguments().into_iter().map(|flag| flag.into_string().expect("ASCII")).collect::<Vec<_>>()
        };
        let closed = launch(true, Some(proxy));
        for flag in ["--user-data-dir=/sessions/a b", "--proxy-server=http://127.0.0.1:4321", "--window-size=1280,720"] {
            assert!(closed.iter().any(|given| given == flag), "{flag}");
        }
        assert!(!closed.iter().any(|flag| flag == "--no-sandbox"));
        assert!(!closed.iter().any(|flag| flag.contains("remote-debugging-port") || flag.contains("disable-web-security")));
        assert_eq!(closed.iter().filter(|flag| flag.starts_with("--disable-features")).count(), 1, "a second one hides the first");
        let open = launch(false, None);
        assert!(open.iter().any(|flag| flag == "--no-sandbox"));
        assert!(open.iter().any(|flag| flag == "--proxy-server=http://127.0.0.1:9"));
    }
}
