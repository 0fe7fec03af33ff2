//! A local browser and the few CDP calls these tests need.

use std::{
    fs::{DirBuilder, Permissions},
    net::SocketAddr,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use formation_browser::{CdpWire, ProxyRefusals};
use formation_core::{BrowserSessionId, Environment, hostlist::HostList};
use formation_vendors::{
    Account, Browsers, Closed, OpenedBrowser, RemoteSession, Wanted,
    local::{LocalBrowser, LocalConfig},
};
use formation_wire::{AddressPolicy, Dialler, Forbidden, Names, SystemResolver};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

/// Longest wait for anything.
pub(crate) const WAIT: Duration = Duration::from_mins(1);

/// The rules of one test.
pub(crate) struct Rules {
    pub(crate) allow_private: bool,
    pub(crate) hosts: HostList,
    pub(crate) names: Names,
    pub(crate) forbidden: Forbidden,
    pub(crate) program: Option<PathBuf>,
}

impl Default for Rules {
    fn default() -> Self {
        Self { allow_private: false, hosts: HostList::any(), names: Names::none(), forbidden: Forbidden::default(), program: None }
    }
}

impl Rules {
    pub(crate) fn private() -> Self {
        Self { allow_private: true, ..Self::default() }
    }

    pub(crate) fn only(mut self, hosts: &str) -> Self {
        self.hosts = HostList::parse(hosts).expect("a list");
        self
    }

    /// Puts `host` at `target`, for plain HTTP and for TLS.
    pub(crate) fn name(mut self, host: &str, target: SocketAddr) -> Self {
        self.names = self.names.with(host, 80, target).and_then(|names| names.with(host, 443, target)).expect("loopback");
        self
    }
}

/// The vendor, with a data folder of its own.
pub(crate) struct Vendor {
    pub(crate) local: LocalBrowser,
    hosts: HostList,
    home: Option<TempDir>,
}

/// The test's `PATH` and nothing else of its environment.
pub(crate) fn environment() -> Environment {
    #[expect(clippy::disallowed_methods, reason = "a test has no wiring to take it from")]
    let path = std::env::var("PATH").ok();
    Environment::new(move |name| if name == "PATH" { path.clone() } else { None })
}

/// A temporary folder that `nobody` can pass through, as the system's can.
pub(crate) fn temporary() -> TempDir {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o711)).tempdir().expect("a folder")
}

/// A program in the place of Chromium.
pub(crate) fn script(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("chromium");
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a file");
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("a mode");
    path
}

impl Vendor {
    pub(crate) async fn start(rules: Rules) -> Self {
        let home = temporary();
        let mut vendor = Self::start_in(home.path(), rules).await;
        vendor.home = Some(home);
        vendor
    }

    /// With the data folder below `home`, which is the temporary folder too.
    pub(crate) async fn start_in(home: &Path, rules: Rules) -> Self {
        let data = home.join("data");
        DirBuilder::new().recursive(true).mode(0o700).create(&data).expect("a folder");
        let policy = AddressPolicy { allow_private: rules.allow_private, forbidden: rules.forbidden };
        let config = LocalConfig {
            data,
            temporary: home.to_owned(),
            program: rules.program,
            dialler: Dialler::new(Arc::new(SystemResolver), Arc::new(rules.names), policy),
        };
        let local = LocalBrowser::start(config, &environment()).await.expect("a Chromium");
        Self { local, hosts: rules.hosts, home: None }
    }

    /// The same, and every host may be visited in sessions opened from here on.
    pub(crate) fn without_list(mut self) -> Self {
        self.hosts = HostList::any();
        self
    }

    pub(crate) async fn open(&self, number: u64) -> OpenedBrowser {
        let want =
            Wanted { session: BrowserSessionId::fixed(number), hosts: self.hosts.clone(), remaining: Duration::from_mins(5) };
        self.local.open(Account { key: None, config: &Value::Null }, want).await.expect("a browser")
    }

    pub(crate) async fn close(&self, remote: &RemoteSession) {
        let closed = self.local.close(Account { key: None, config: &Value::Null }, remote).await;
        assert_eq!(closed, Ok(Closed::Certain));
    }

    /// How many session folders there are.
    pub(crate) fn folders(&self) -> usize {
        std::fs::read_dir(self.local.folders()).expect("the folder of sessions").count()
    }
}

/// One page of one browser.
pub(crate) struct Page {
    wire: CdpWire,
    session: Option<String>,
    next: i64,
    pub(crate) remote: RemoteSession,
    pub(crate) refusals: Arc<dyn ProxyRefusals>,
}

impl Page {
    pub(crate) async fn of(opened: OpenedBrowser) -> Self {
        let refusals = opened.refusals.expect("the proxy is ours");
        let mut page = Self { wire: opened.wire, session: None, next: 1, remote: opened.remote, refusals };
        let targets = page.call("Target.getTargets", json!({})).await;
        let id = targets["targetInfos"]
            .as_array()
            .expect("targets")
            .iter()
            .find(|target| target["type"] == "page")
            .expect("a page")["targetId"]
            .clone();
        let attached = page.call("Target.attachToTarget", json!({"targetId": id, "flatten": true})).await;
        page.session = Some(attached["sessionId"].as_str().expect("a session").to_owned());
        page
    }

    /// Sends a command and answers its id.
    pub(crate) async fn send(&mut self, method: &str, params: Value) -> i64 {
        let id = self.next;
        self.next += 1;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.wire.send.send(Bytes::from(message.to_string())).await.expect("the browser lives");
        id
    }

    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        timeout(WAIT, async {
            loop {
                let message = self.wire.receive.recv().await.expect("the browser lives");
                // A lone surrogate makes a message that isn't JSON to everybody; here it counts as an empty answer.
                let Ok(message) = serde_json::from_slice::<Value>(&message) else { return Value::Null };
                if message["id"] == json!(id) {
                    return if message["error"].is_null() { message["result"].clone() } else { message["error"].clone() };
                }
            }
        })
        .await
        .expect("an answer in time")
    }

    /// The error text of a navigation, empty when the page opened.
    pub(crate) async fn navigate(&mut self, url: &str) -> String {
        self.call("Page.navigate", json!({"url": url})).await["errorText"].as_str().unwrap_or("").to_owned()
    }

    /// The value of an expression, its promise awaited.
    pub(crate) async fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        self.call("Runtime.evaluate", params).await["result"]["value"].clone()
    }

    /// Lets go of the connection without a word.
    pub(crate) fn drop_wire(self) -> RemoteSession {
        self.remote
    }
}
