//! The server: opens the state, puts the parts together, listens, and takes them apart again.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use formation_api::{Checks, ServerConfig};
use formation_core::Entropy;
use formation_runtime::{Parts, Runtime};
use formation_store::Db;
use formation_vendors::{
    Catalog,
    brave::{self, Brave},
    local::{LocalBrowser, LocalConfig},
};
use formation_wire::{AddressPolicy, Dialler, Forbidden};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::{
    commands::doctor,
    config::{Config, DatabaseUrl},
    data::{DataFolder, Lock},
    opening::{self, Opened},
    output::Failure,
    wiring::Wiring,
};

/// What ends in order after `stop`, one after the other, fifteen seconds in all: answers under way, …
const LAST_ANSWERS: Duration = Duration::from_secs(9);
/// … calls whose client has gone, …
const LAST_CALLS: Duration = Duration::from_secs(2);
/// … browsers, …
const LAST_BROWSERS: Duration = Duration::from_secs(3);
/// … and the database.
const LAST_WRITES: Duration = Duration::from_secs(1);

/// A server that answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// Where it listens, with the port it really got.
    pub address: SocketAddr,
    /// What clients call it.
    pub public_url: Url,
    /// Where its first owner is made, once and within 24 hours; none when it has one.
    pub setup_url: Option<String>,
}

impl Ready {
    /// The public URL as people write it, without a slash at its end.
    pub fn origin(&self) -> &str {
        self.public_url.as_str().trim_end_matches('/')
    }
}

/// Runs a server until `stop` is cancelled, then ends it in at most fifteen seconds.
///
/// Makes what isn't there yet (folder, database, master key), migrates, and settles what an earlier process left, all before it
/// listens. `ready` is called once, when it answers. Errors are sentences for the operator: a folder that another server holds, a
/// database that doesn't answer or wouldn't keep what it was told, a wrong or missing master key, an address that is taken.
pub async fn serve(config: Config, wiring: Wiring, stop: CancellationToken, ready: impl FnOnce(Ready)) -> Result<(), Failure> {
    let folder = DataFolder::make(&config.place.data)?;
    let mut lock = folder.lock()?;
    let opened = opening::initialise(&folder, &config.place, &wiring).await?;
    durable(&opened.db).await?;
    let listener = listen(config.listen).await?;
    let address = listener.local_addr().map_err(|error| cannot_listen(config.listen, &error))?;
    let metrics_listener = match config.metrics_listen {
        Some(wanted) => Some(listen(wanted).await?),
        None => None,
    };
    lock.note(address).map_err(|error| Failure::failed(format!("the data folder can't be written: {error}")))?;
    let public_url = config.public_url.clone().map_or_else(|| loopback_url(address), Ok)?;

    let local = local_browser(&config, &wiring, &folder, address).await?;
    let catalog = catalog(local.as_ref(), &opened, &wiring)?;
    let Opened { db, keys, .. } = opened;
    let parts = Parts {
        db: db.clone(),
        keys: Arc::new(keys),
        catalog: Arc::new(catalog),
        clock: wiring.clock.clone(),
        entropy: wiring.entropy.clone(),
        timing: wiring.timing.runtime.clone(),
        faults: wiring.faults.clone(),
    };
    let runtime = Runtime::start(parts).await.map_err(|error| opening::unreadable(&error))?;
    let link = runtime.setup_link().await.map_err(|error| Failure::failed(error.to_string()))?;
    let setup_url = link.map(|link| {
        // The one place where it is shown: to who starts the server.
        format!("{}/setup/{}", public_url.as_str().trim_end_matches('/'), String::from_utf8_lossy(link.expose()))
    });
    let metrics_stop = stop.child_token();
    let measuring = metrics_listener.map(|listener| tokio::spawn(measure(listener, runtime.clone(), wiring.clone(), metrics_stop)));
    let checks = checks(&config, &wiring, &db, address);
    let (entropy, timers) = (wiring.entropy.clone(), wiring.timing.server);
    let answering = Answering { listener, address, public_url, entropy, timers, setup_url, checks };
    answering.until(stop, &runtime, ready).await;

    if let Some(measuring) = measuring {
        // It holds the runtime; what it answers takes no time.
        measuring.abort();
    }
    runtime.stop(LAST_CALLS).await;
    if let Some(local) = local {
        // Browsers that take longer end with their pipes, when this process does.
        let _ = tokio::time::timeout(LAST_BROWSERS, local.shut_down()).await;
    }
    let _ = tokio::time::timeout(LAST_WRITES, db.close()).await;
    release(lock);
    Ok(())
}

/// The front doors, ready to open.
struct Answering {
    listener: TcpListener,
    address: SocketAddr,
    public_url: Url,
    entropy: Entropy,
    timers: formation_api::Timers,
    setup_url: Option<String>,
    checks: Checks,
}

impl Answering {
    async fn until(self, stop: CancellationToken, runtime: &Runtime, ready: impl FnOnce(Ready)) {
        let mut config = ServerConfig::new(self.public_url.clone(), self.address, self.entropy);
        config.timers = self.timers;
        config.checks = self.checks;
        config.timers.shutdown = config.timers.shutdown.min(LAST_ANSWERS);
        let app = formation_api::app(runtime.clone(), &config);
        tracing::info!(server.address = %self.address, "listening");
        ready(Ready { address: self.address, public_url: self.public_url, setup_url: self.setup_url });
        formation_api::serve(self.listener, app, config, stop).await;
    }
}

/// Tells metrics to whoever reaches `listener`.
async fn measure(listener: TcpListener, runtime: Runtime, wiring: Wiring, stop: CancellationToken) {
    let Ok(address) = listener.local_addr() else { return };
    let Ok(url) = loopback_url(address) else { return };
    let mut config = ServerConfig::new(url, address, wiring.entropy);
    config.timers = wiring.timing.server;
    config.connections = 64;
    tracing::info!(metrics.address = %address, "telling metrics");
    formation_api::serve(listener, formation_api::metrics_app(runtime, &config), config, stop).await;
}

/// What `formation doctor` tries, from within: on the open database, with the address that was really bound.
fn checks(config: &Config, wiring: &Wiring, db: &Db, address: SocketAddr) -> Checks {
    let config = Config { listen: address, ..config.clone() };
    let (wiring, db) = (wiring.clone(), db.clone());
    Checks::new(move || {
        let (config, wiring, db) = (config.clone(), wiring.clone(), db.clone());
        Box::pin(async move { doctor::report(&config, &wiring, Ok(&db)).await })
    })
}

/// What a deployment promises about committed rows, refused when it promises nothing.
async fn durable(db: &Db) -> Result<(), Failure> {
    match db.durability().await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(sentence)) => Err(Failure::failed(sentence)),
        Err(error) => Err(opening::unreadable(&error)),
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| cannot_listen(address, &error))
}

fn cannot_listen(address: SocketAddr, error: &std::io::Error) -> Failure {
    Failure::failed(format!("`{address}` can't be listened on: {error}"))
        .hint("`--listen` names another address; port 0 takes a free one")
}

fn loopback_url(address: SocketAddr) -> Result<Url, Failure> {
    Url::parse(&format!("http://{address}")).map_err(|_| Failure::failed(format!("`{address}` makes no URL")))
}

/// A Chromium of this machine whose pages reach neither us nor the database, whatever the switches say.
async fn local_browser(
    config: &Config,
    wiring: &Wiring,
    folder: &DataFolder,
    address: SocketAddr,
) -> Result<Option<Arc<LocalBrowser>>, Failure> {
    if !config.local_browser {
        return Ok(None);
    }
    let forbidden = Forbidden::new([address]);
    if let Some(url) = &config.place.database {
        for socket in database_sockets(url, wiring).await {
            forbidden.add(socket);
        }
    }
    let policy = AddressPolicy { allow_private: config.local_browser_allow_private, forbidden };
    let local = LocalConfig {
        data: folder.path().to_owned(),
        temporary: wiring.temporary_folder(),
        program: config.chromium.clone(),
        dialler: Dialler::new(wiring.resolver.clone(), Arc::new(wiring.names.clone()), policy),
    };
    match LocalBrowser::start(local, &wiring.environment).await {
        Ok(local) => Ok(Some(Arc::new(local))),
        Err(error) => {
            Err(Failure::failed(error.to_string()).hint("`formation doctor --local-browser` says what this machine lacks"))
        }
    }
}

/// Where the database answers. One that doesn't resolve has no address to protect.
async fn database_sockets(url: &DatabaseUrl, wiring: &Wiring) -> Vec<SocketAddr> {
    let Some((host, port)) = url.host_and_port() else { return Vec::new() };
    let addresses = match host.parse() {
        Ok(literal) => vec![literal],
        Err(_) => wiring.resolver.resolve(&host).await.unwrap_or_default(),
    };
    addresses.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()
}

fn catalog(local: Option<&Arc<LocalBrowser>>, opened: &Opened, wiring: &Wiring) -> Result<Catalog, Failure> {
    let brave = Brave::new(&wiring.outside(), wiring.clock.clone())
        .map_err(|error| Failure::failed(format!("vendors can't be called: {error}")))?;
    let catalog = Catalog::new().with_search(brave::VENDOR, Arc::new(brave));
    Ok(match local {
        None => catalog,
        Some(local) => catalog.with_local(local.clone(), |switches| {
            let hash = opened.keys.fingerprint("environment account", switches);
            std::array::from_fn(|index| hash[index])
        }),
    })
}

/// Last of all: only now may another server take the folder.
fn release(lock: Lock) {
    drop(lock);
}
