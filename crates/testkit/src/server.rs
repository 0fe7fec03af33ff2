//! The real server as a process of its own, on a fresh database, and what a test asks of it.
//!
//! A [`Place`] is where one server keeps its state, a [`Setup`] how it is started, a [`Server`] one that answers. What it waits for
//! blocks its thread, so tests run on more than one: [`crate::databases::run`] sees to it.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use formation_store::Location;
use tempfile::TempDir;
use tokio::task::block_in_place;

use crate::{databases::TestDb, http::Client, processes, under_test::UnderTest};

/// Where one server keeps its state, and where its log and its browsers' folders go.
#[derive(Debug)]
pub struct Place {
    data: PathBuf,
    database: Option<String>,
    folder: TempDir,
    started: AtomicU32,
}

impl Place {
    /// On the database of a test: SQLite's folder is the data folder, PostgreSQL has one beside it.
    pub fn of(db: &TestDb) -> anyhow::Result<Self> {
        match db.location() {
            Location::Sqlite(file) => {
                let data = file.parent().context("a file lies in a folder")?.to_owned();
                Self::make(|_| data, None)
            }
            Location::Postgres(url) => Self::on_postgres(url),
        }
    }

    /// On the PostgreSQL database at `url`.
    pub fn on_postgres(url: &str) -> anyhow::Result<Self> {
        Self::make(|folder| folder.join("data"), Some(url.to_owned()))
    }

    /// On SQLite, in a data folder that isn't there yet.
    pub fn fresh() -> anyhow::Result<Self> {
        Self::make(|folder| folder.join("data"), None)
    }

    fn make(data: impl FnOnce(&Path) -> PathBuf, database: Option<String>) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("formation-server-").tempdir()?;
        // Whoever runs the browser must reach its folder.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        fs::create_dir(folder.path().join("tmp"))?;
        fs::set_permissions(folder.path().join("tmp"), Permissions::from_mode(0o755))?;
        Ok(Self { data: data(folder.path()), database, folder, started: AtomicU32::new(0) })
    }

    /// Another replica's place on the same PostgreSQL, reached at `url`, with the same master key. Its first server has run.
    pub fn replica(&self, url: &str) -> anyhow::Result<Self> {
        let replica = Self::on_postgres(url)?;
        fs::create_dir(&replica.data)?;
        fs::set_permissions(&replica.data, Permissions::from_mode(0o700))?;
        fs::copy(self.data.join("master.key"), replica.data.join("master.key"))?;
        Ok(replica)
    }

    /// The data folder.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// The PostgreSQL address, or none.
    pub fn database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// A folder for temporary files that is this place's own: browsers' folders lie here or in the data folder.
    pub fn temporary(&self) -> PathBuf {
        self.folder.path().join("tmp")
    }

    /// What every server of this place has written to its standard error so far.
    pub fn logs(&self) -> String {
        let texts =
            (1..=self.started.load(Ordering::SeqCst)).map(|number| fs::read_to_string(self.log(number)).unwrap_or_default());
        texts.collect()
    }

    fn log(&self, number: u32) -> PathBuf {
        self.folder.path().join(format!("server-{number}.log"))
    }

    /// Every process of this place's browsers that lives.
    pub fn browser_processes(&self) -> Vec<u32> {
        let mut found = processes::all_below(&self.temporary());
        found.extend(processes::all_below(&self.data.join("browser-sessions")));
        found
    }

    /// The first process of each browser of this place.
    pub fn browsers(&self) -> Vec<u32> {
        let mut found = processes::browsers_below(&self.temporary());
        found.extend(processes::browsers_below(&self.data));
        found
    }

    /// The folders of this place's browser sessions.
    pub fn session_folders(&self) -> Vec<PathBuf> {
        let inside = |folder: PathBuf| {
            let entries = fs::read_dir(folder).into_iter().flatten();
            entries.filter_map(Result::ok).map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let mut found: Vec<PathBuf> = inside(self.temporary()).into_iter().flat_map(inside).collect();
        found.extend(inside(self.data.join("browser-sessions")));
        found
    }
}

/// How a server is started. Clone it to start the next life with one thing changed.
#[derive(Debug, Clone)]
pub struct Setup {
    binary: PathBuf,
    options: Vec<String>,
    flags: Vec<String>,
}

impl Setup {
    /// A server without a browser. `binary` is `env!("CARGO_BIN_EXE_formation-under-test")`.
    pub fn new(binary: impl Into<PathBuf>) -> Self {
        Self { binary: binary.into(), options: Vec::new(), flags: Vec::new() }
    }

    /// The server under test that lies beside an example's program: `cargo build --bins --examples` makes both.
    pub fn beside_this_example() -> anyhow::Result<Self> {
        let own = std::env::current_exe()?;
        let binary = own.ancestors().nth(2).context("an example lies two folders deep")?.join("formation-under-test");
        ensure!(binary.is_file(), "`{}` isn't built", binary.display());
        Ok(Self::new(binary))
    }

    /// The server it starts.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// With the local browser, which waits no longer than pages of a test need.
    pub fn with_browser(self) -> Self {
        self.flag("--local-browser").timing("action_floor_ms=50,action_stable_ms=100")
    }

    /// `host:port` leads to `address`, here and in the browser's proxy.
    pub fn name(self, host_and_port: &str, address: std::net::SocketAddr) -> Self {
        self.option("--name", &format!("{host_and_port}={address}"))
    }

    /// Searches of Brave go to the fake.
    pub fn with_brave(self, fake: &crate::brave::FakeBrave) -> Self {
        let root = fake.ca_file().display().to_string();
        self.name(crate::brave::NAME, fake.address()).option("--root-ca", &root)
    }

    /// Stops for ever at a fault point: `NAME` or `NAME:N`, the Nth pass.
    pub fn fault(self, name: &str) -> Self {
        self.option("--fault", name)
    }

    /// Other waits: `NAME_ms=N,…`.
    pub fn timing(self, waits: &str) -> Self {
        self.option("--timing", waits)
    }

    /// A lease that ends soon after its process: what a killed replica left is recovered within two seconds.
    pub fn with_short_leases(self) -> Self {
        self.timing("lease_ms=1500,heartbeat_ms=300,sweep_ms=300")
    }

    /// A variable.
    pub fn variable(self, name: &str, value: &str) -> Self {
        self.option("--env", &format!("{name}={value}"))
    }

    /// Anything that stands before `--`.
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.options.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// A flag of `serve`.
    pub fn flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.to_owned());
        self
    }

    fn command(&self, place: &Place) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(&self.options).args(["--env", &format!("TMPDIR={}", place.temporary().display())]);
        if let Some(url) = &place.database {
            command.args(["--env", &format!("FORMATION_DATABASE={url}")]);
        }
        command.args(["--", "--json", "--data"]).arg(&place.data).current_dir(place.folder.path()).stdin(Stdio::null());
        command
    }

    /// Starts a server and returns when it answers. Its standard error goes to the place's logs.
    pub fn start(&self, place: &Place) -> anyhow::Result<Server> {
        let number = place.started.fetch_add(1, Ordering::SeqCst) + 1;
        let log = place.log(number);
        let mut command = self.command(place);
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(&self.flags).stderr(File::create(&log)?);
        let started = block_in_place(|| UnderTest::spawn(command));
        let under = started.with_context(|| fs::read_to_string(&log).unwrap_or_default())?;
        let setup_url = under.setup_url().map(str::to_owned);
        Ok(Server { client: Client::new(under.url()), pid: under.pid(), setup_url, under: Mutex::new(under), setup: self.clone() })
    }

    /// Starts a server that must not start.
    pub fn refused(&self, place: &Place) -> anyhow::Result<Refused> {
        let mut command = self.command(place);
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(&self.flags);
        let started = Instant::now();
        let output = block_in_place(|| command.output())?;
        ensure!(!output.status.success(), "it started");
        Ok(Refused { code: output.status.code(), error: String::from_utf8(output.stderr)?, after: started.elapsed() })
    }

    /// Runs another command of the binary on the same state and answers its standard output.
    pub fn run(&self, place: &Place, words: &[&str]) -> anyhow::Result<String> {
        let output = block_in_place(|| self.command(place).args(words).output())?;
        ensure!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
    }

    /// The same, its answer as JSON.
    pub fn json(&self, place: &Place, words: &[&str]) -> anyhow::Result<serde_json::Value> {
        Ok(serde_json::from_str(&self.run(place, words)?)?)
    }

    /// Makes the agent `slug` and answers a token of it.
    pub fn agent(&self, place: &Place, slug: &str) -> anyhow::Result<String> {
        self.run(place, &["agent", "create", slug])?;
        self.token(place, slug)
    }

    /// Another token of the agent `slug`.
    pub fn token(&self, place: &Place, slug: &str) -> anyhow::Result<String> {
        let minted = self.json(place, &["agent", "token", slug])?;
        Ok(minted["token"].as_str().context("a token is printed once")?.to_owned())
    }

    /// One run's trace, from the ledger.
    pub fn trace(&self, place: &Place, run: &str) -> anyhow::Result<serde_json::Value> {
        self.json(place, &["runs", run])
    }
}

/// A server that would not start.
#[derive(Debug)]
pub struct Refused {
    /// Its exit code.
    pub code: Option<i32>,
    /// What it said.
    pub error: String,
    /// How long it took.
    pub after: Duration,
}

/// A server that answers. Killed when dropped.
#[derive(Debug)]
pub struct Server {
    /// A client of it without a token.
    pub client: Client,
    pid: u32,
    setup_url: Option<String>,
    // What it says comes through a channel, which one thread reads at a time.
    under: Mutex<UnderTest>,
    setup: Setup,
}

impl Server {
    /// Where it answers, without a slash at the end.
    pub fn url(&self) -> &str {
        self.client.url()
    }

    /// Where its first owner is made, if it had none when it started.
    pub fn setup_url(&self) -> Option<&str> {
        self.setup_url.as_deref()
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Makes the agent `slug` and answers a client with a token of it.
    pub fn agent(&self, place: &Place, slug: &str) -> anyhow::Result<Client> {
        Ok(self.client.with_token(&self.setup.agent(place, slug)?))
    }

    /// Waits until it stands at the fault point `name`.
    pub fn stands_at(&self, name: &str, within: Duration) -> anyhow::Result<()> {
        block_in_place(|| self.under.lock().unwrap_or_else(PoisonError::into_inner).stands_at(name, within))
    }

    /// SIGKILL, and gone when this returns.
    pub fn kill(self) {
        block_in_place(|| self.under.into_inner().unwrap_or_else(PoisonError::into_inner).kill());
    }

    /// SIGTERM; its exit code, unless it takes longer than `within`.
    pub fn terminate(self, within: Duration) -> anyhow::Result<Option<i32>> {
        block_in_place(|| self.under.into_inner().unwrap_or_else(PoisonError::into_inner).terminate(within))
    }
}
