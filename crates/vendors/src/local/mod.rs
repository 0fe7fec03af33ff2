//! `local`: a Chromium of this machine, for whoever has no account anywhere.
//!
//! One process and one empty folder a session, spoken to over a pipe, so that no port is open that somebody else could take. The
//! pipe closes with this process, and the browser ends with the pipe: a server that is killed leaves folders, which the next start
//! deletes, and nothing else. The browser's only way out is a filtering proxy of ours.

mod chromium;
mod folders;
mod pipe;
mod probe;
mod proxy;
mod refusals;
mod user;

use std::{
    collections::HashMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use formation_browser::CdpWire;
use formation_core::{
    Capability, Environment, VendorId,
    failure::{BrowserStage, Reason, VendorFailure},
    hostlist::HostList,
};
use formation_wire::Dialler;
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{ALLOWED_HOSTS, Account, Browsers, Closed, Entry, OpenedBrowser, Provider, RemoteSession, Wanted};
use chromium::{Launch, NoAnswer};
use folders::Folders;
use proxy::Proxy;

pub use probe::{Report, StartError, probe};
pub use user::User;

/// Its word.
pub const VENDOR: VendorId = VendorId::known("local");

/// What the catalog says of it.
pub(crate) const ENTRY: Entry = Entry {
    vendor: VENDOR,
    label: "This machine's Chromium",
    credential: None,
    fields: &[],
    providers: &[Provider {
        capability: Capability::Browser,
        permissions: &[],
        fields: &[ALLOWED_HOSTS],
        boundary: "Pages open in a Chromium on the machine Formation runs on, one process and one empty profile a session. Its only \
                   way out is Formation's proxy, which enforces the hostname list for every request and refuses link-local \
                   addresses, and private ones unless the server was started with --local-browser-allow-private.",
    }],
};

/// Longest wait for a session that was asked to end: the browser's own way out, then the kill, then its folder.
const CLOSE: Duration = Duration::from_secs(8);

/// What the hosting operator decides.
#[derive(Debug)]
pub struct LocalConfig {
    /// Formation's data folder, locked by this process.
    pub data: PathBuf,
    /// The system's temporary folder.
    pub temporary: PathBuf,
    /// A Chromium instead of the first one found.
    pub program: Option<PathBuf>,
    /// How pages reach the outside: names, address policy, our own sockets.
    pub dialler: Dialler,
}

/// Opens and closes browsers of this machine.
#[derive(Debug)]
pub struct LocalBrowser {
    report: Report,
    folders: Folders,
    dialler: Dialler,
    sessions: Sessions,
}

/// What lives, by session. Shared with the tasks that look after each.
type Sessions = Arc<Mutex<HashMap<String, Handle>>>;

#[derive(Debug, Clone)]
struct Handle {
    /// Asks for the end.
    stop: CancellationToken,
    /// Tells that nothing is left.
    gone: CancellationToken,
    proxy: Arc<proxy::Shared>,
}

impl LocalBrowser {
    /// Finds a Chromium, tries it once, and deletes the folders that a previous life left.
    pub async fn start(config: LocalConfig, environment: &Environment) -> Result<Self, StartError> {
        let report = probe(config.program.as_deref(), &config.temporary, environment).await?;
        let folders = Folders::prepare(&config.data, &config.temporary, report.user).map_err(StartError::Folder)?;
        if !report.sandbox {
            tracing::warn!("the local browser runs without its sandbox: user namespaces are not available");
        }
        tracing::info!(chromium.version = report.version, chromium.sandbox = report.sandbox, "local browser ready");
        Ok(Self { report, folders, dialler: config.dialler, sessions: Sessions::default() })
    }

    /// What was found at start.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Where the sessions' folders lie.
    pub fn folders(&self) -> &Path {
        self.folders.root()
    }

    /// What an authorization hangs on: a start with other switches is another account.
    pub fn switches(&self) -> String {
        let Report { program, version, user, sandbox } = &self.report;
        let allow_private = self.dialler.policy().allow_private;
        format!("allow_private={allow_private}\nsandbox={sandbox}\nuser={user:?}\nversion={version}\nprogram={}", program.display())
    }

    /// How many requests a session's proxy was asked for, refused ones included.
    pub fn requests(&self, remote: &RemoteSession) -> Option<u64> {
        self.handle(remote).map(|handle| handle.proxy.requests())
    }

    /// Where a session's proxy listens.
    pub fn proxy(&self, remote: &RemoteSession) -> Option<SocketAddr> {
        self.handle(remote).map(|handle| handle.proxy.address())
    }

    /// Ends every session; for the server's own end.
    pub async fn shut_down(&self) {
        let all: Vec<Handle> = self.sessions.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        for handle in &all {
            handle.stop.cancel();
        }
        let ended = async {
            for handle in &all {
                handle.gone.cancelled().await;
            }
        };
        if timeout(CLOSE, ended).await.is_err() {
            tracing::warn!("browser sessions were left to end by themselves");
        }
    }

    fn handle(&self, remote: &RemoteSession) -> Option<Handle> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).get(remote.as_str()).cloned()
    }
}

#[async_trait]
impl Browsers for LocalBrowser {
    async fn open(&self, _account: Account<'_>, want: Wanted) -> Result<OpenedBrowser, VendorFailure> {
        let session = Session {
            name: want.session.to_string(),
            hosts: want.hosts,
            remaining: want.remaining,
            report: self.report.clone(),
            folders: self.folders.clone(),
            dialler: self.dialler.clone(),
            sessions: self.sessions.clone(),
        };
        let (answer, opened) = oneshot::channel();
        // In a task of its own: a caller that goes away in the middle leaves no half-opened browser.
        tokio::spawn(session.live(answer));
        opened.await.unwrap_or(Err(failure(Reason::SessionLost)))
    }

    async fn attach(&self, _account: Account<'_>, _remote: &RemoteSession) -> Result<Option<CdpWire>, VendorFailure> {
        // There is one pipe, and whoever opened the session has it; a browser whose pipe is let go of ends.
        Ok(None)
    }

    async fn close(&self, _account: Account<'_>, remote: &RemoteSession) -> Result<Closed, VendorFailure> {
        // Unknown here is gone: a browser doesn't outlive its process, and a session has one home.
        let Some(handle) = self.handle(remote) else { return Ok(Closed::Certain) };
        handle.stop.cancel();
        match timeout(CLOSE, handle.gone.cancelled()).await {
            Ok(()) => Ok(Closed::Certain),
            Err(_) => Ok(Closed::Asked),
        }
    }
}

fn failure(reason: Reason) -> VendorFailure {
    VendorFailure::new(BrowserStage::SessionCreation, reason)
}

/// One session from its folder's making to its folder's removal.
struct Session {
    name: String,
    hosts: HostList,
    remaining: Duration,
    report: Report,
    folders: Folders,
    dialler: Dialler,
    sessions: Sessions,
}

impl Session {
    async fn live(self, answer: oneshot::Sender<Result<OpenedBrowser, VendorFailure>>) {
        let proxy = match Proxy::start(self.hosts.clone(), self.dialler.clone()).await {
            Ok(proxy) => proxy,
            Err(error) => return self.give_up("its proxy can't listen", &error, answer),
        };
        let folder = match self.folders.make(&self.name) {
            Ok(folder) => folder,
            Err(error) => return self.give_up("its folder can't be made", &error, answer),
        };
        let handle = Handle { stop: CancellationToken::new(), gone: CancellationToken::new(), proxy: Arc::clone(proxy.shared()) };
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).insert(self.name.clone(), handle.clone());
        self.browse(&folder, &proxy, &handle, answer).await;
        let requests = proxy.shared().requests();
        let refused = proxy.shared().refused();
        drop(proxy);
        if let Err(error) = folders::remove(&folder).await {
            tracing::error!(%error, "a browser session's folder could not be removed");
        }
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
        tracing::debug!(session.id = self.name, proxy.requests = requests, proxy.refused = refused, "browser session ended");
        handle.gone.cancel();
    }

    /// Starts the browser, hands its connection out and waits for the end.
    async fn browse(
        &self,
        folder: &Path,
        proxy: &Proxy,
        handle: &Handle,
        answer: oneshot::Sender<Result<OpenedBrowser, VendorFailure>>,
    ) {
        let Report { program, user, sandbox, .. } = &self.report;
        let launch = Launch { program, user: *user, sandbox: *sandbox, folder, proxy: Some(proxy.shared().address()) };
        let mut running = match launch.start() {
            Ok(running) => running,
            Err(error) => return self.give_up("its browser can't be started", &error, answer),
        };
        let deadline = sleep(self.remaining);
        let version = tokio::select! {
            version = running.version(probe::START) => version,
            () = handle.stop.cancelled() => Err(NoAnswer::Ended),
        };
        let mut process = running.process;
        let opened = match version {
            Ok(_) => Ok(OpenedBrowser {
                remote: RemoteSession::new(self.name.clone()),
                wire: running.wire,
                refusals: Some(proxy.shared().refusals()),
            }),
            Err(NoAnswer::Ended) => Err(failure(Reason::ConnectionFailed)),
            Err(NoAnswer::Silent) => Err(failure(Reason::Timeout)),
        };
        let answers = opened.is_ok();
        // An answer that nobody waits for any more is a browser that nobody will use: its connection is dropped with it.
        if answer.send(opened).is_ok() && answers {
            tokio::select! {
                () = process.over() => {}
                () = handle.stop.cancelled() => {}
                () = deadline => tracing::debug!(session.id = self.name, "browser session reached its deadline"),
            }
        }
        process.end().await;
    }

    fn give_up(&self, what: &'static str, error: &std::io::Error, answer: oneshot::Sender<Result<OpenedBrowser, VendorFailure>>) {
        tracing::error!(session.id = self.name, %error, "no local browser: {what}");
        // Whoever asked may have gone.
        drop(answer.send(Err(failure(Reason::ConnectionFailed))));
    }
}
