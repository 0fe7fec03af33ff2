//! Fresh databases: one test body on SQLite and on PostgreSQL.
//!
//! SQLite: one migrated file a process, copied per test. PostgreSQL: the cluster that `FORMATION_TEST_PG` names, which
//! `scripts/test` starts once a run; without the variable a private cluster of this process. Migrated once into a template
//! database, cloned per test, dropped after. Without `initdb` a test on PostgreSQL *fails* and says what to do.
//!
//! The clock stands still unless a test asks otherwise, ids are counted: what a test sees it can compare whole.

use std::{
    future::Future,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    panic::resume_unwind,
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use formation_core::{
    AgentId, Clock, Entropy, InstanceId, RunId, Timestamp, TokenId, VendorId, settings::EnvironmentAccount, time::Hands,
};
use formation_store::{
    Db, Engine, Location, TimeSource, agents, instances,
    runs::{self, NewRun, OpenedRun},
    settings::Rules,
    tokens,
};
use sqlx::{Connection as _, PgConnection, Row as _};
use tempfile::TempDir;

/// Where the frozen clock stands at first.
pub const START: Timestamp = Timestamp::from_micros(1_796_000_000_000_000);

/// Makes a test of each function, once per database: `name::sqlite` and `name::postgres`.
///
/// ```ignore
/// on_both_databases! {
///     /// L3: asking twice for the same call costs one unit.
///     async fn a_repeated_admission_is_free(db) { … }
/// }
/// ```
#[macro_export]
macro_rules! on_both_databases {
    ($($(#[$meta:meta])* async fn $name:ident($db:ident) $body:block)+) => {$(
        $(#[$meta])*
        mod $name {
            use super::*;

            async fn body($db: $crate::databases::TestDb) $body

            #[test]
            fn sqlite() {
                $crate::databases::run($crate::databases::Backend::Sqlite, body);
            }

            #[test]
            fn postgres() {
                $crate::databases::run($crate::databases::Backend::Postgres, body);
            }
        }
    )+};
}

/// Which database a test runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// A file of its own.
    Sqlite,
    /// A database of its own.
    Postgres,
}

/// A fresh, migrated database. Cheap to clone.
#[derive(Debug, Clone)]
pub struct TestDb {
    /// The handle under test.
    pub db: Db,
    /// Moves its clock.
    pub hands: Hands,
    clock: Clock,
    location: Location,
}

/// Runs `body` on a fresh database and takes the database away, whatever came of it.
pub fn run<F: Future<Output = ()> + Send + 'static>(backend: Backend, body: impl FnOnce(TestDb) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let place = match Place::make(backend).await {
            Ok(place) => place,
            Err(error) => panic!("no database for this test: {error:#}"),
        };
        let test = TestDb::open(place.location()).await.expect("the fresh database opens");
        let db = test.db.clone();
        let ended = tokio::spawn(body(test)).await;
        db.close().await;
        let removed = place.remove().await;
        if let Err(failed) = ended {
            resume_unwind(failed.into_panic());
        }
        removed.expect("the test's database can be taken away");
    });
}

impl TestDb {
    async fn open(location: Location) -> Result<Self> {
        let (clock, hands) = Clock::frozen(START);
        let db = Db::open(&location, TimeSource::Process(clock.clone()), next_entropy()).await?;
        Ok(Self { db, hands, clock, location })
    }

    /// Where it is, for a second process.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// The file of a SQLite database.
    pub fn file(&self) -> Option<&Path> {
        match &self.location {
            Location::Sqlite(path) => Some(path),
            Location::Postgres(_) => None,
        }
    }

    /// The clock that stands still, for another handle.
    pub fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// Another replica: a handle with connections and ids of its own on the same database, under the same clock.
    pub async fn replica(&self) -> Self {
        let db = Db::open(&self.location, TimeSource::Process(self.clock.clone()), next_entropy()).await;
        Self { db: db.expect("the same database opens again"), ..self.clone() }
    }

    /// A handle under another clock on the same database.
    pub async fn under(&self, clock: Clock) -> Self {
        let db = Db::open(&self.location, TimeSource::Process(clock.clone()), next_entropy()).await;
        Self { db: db.expect("the same database opens again"), clock, ..self.clone() }
    }

    /// A handle that tells time as the product does: from PostgreSQL, or from a process clock that runs.
    pub async fn on_real_time(&self) -> Db {
        let time = match self.db.engine() {
            Engine::Postgres => TimeSource::Database,
            Engine::Sqlite => {
                let started = std::time::Instant::now();
                TimeSource::Process(Clock::new(move || START.after(started.elapsed())))
            }
        };
        Db::open(&self.location, time, next_entropy()).await.expect("the same database opens again")
    }

    /// An agent.
    pub async fn agent(&self, slug: &'static str) -> AgentId {
        let slug = agents::Slug::parse(slug).expect("the test's slug is one");
        let created = self
            .db
            .write(move |tx| Box::pin(async move { agents::create(tx, &slug, slug.as_str(), "test").await }))
            .await
            .expect("an agent can be made");
        match created {
            agents::Created::Made(agent) => agent.id,
            agents::Created::SlugTaken => panic!("the test makes one agent twice"),
        }
    }

    /// A token of the agent.
    pub async fn token(&self, agent: AgentId) -> TokenId {
        let minted = self.db.write(move |tx| Box::pin(async move { tokens::mint_agent(tx, agent, "test", "test").await })).await;
        minted.expect("a token can be made").id
    }

    /// An open run of the agent, with a token of its own and this many calls.
    pub async fn opened_run(&self, agent: AgentId, max_calls: i64) -> OpenedRun {
        let token = self.token(agent).await;
        let new = NewRun { agent, token, conversation: None, deadline: Duration::from_hours(1), max_calls };
        self.db
            .write(move |tx| Box::pin(async move { runs::open(tx, &new).await }))
            .await
            .expect("a run can be opened")
            .expect("the token is good")
    }

    /// The same, by its id.
    pub async fn run(&self, agent: AgentId) -> RunId {
        self.opened_run(agent, 1_000_000).await.run.id
    }

    /// A process with a lease of 20 s. On SQLite it ends the leases of the ones before it.
    pub async fn instance(&self) -> InstanceId {
        instances::start(&self.db, instances::LEASE).await.expect("a process can be entered")
    }

    /// One number, read around the store.
    pub async fn number(&self, sql: &str) -> i64 {
        let value = match &self.location {
            Location::Sqlite(path) => {
                raw::sqlite(path, sql).await.and_then(|rows| Ok(rows.first().context("a row")?.try_get(0)?))
            }
            Location::Postgres(url) => {
                raw::postgres(url, sql).await.and_then(|rows| Ok(rows.first().context("a row")?.try_get(0)?))
            }
        };
        value.unwrap_or_else(|error| panic!("`{sql}`: {error:#}"))
    }

    /// The first column of every row as text (nulls as empty), read around the store.
    pub async fn texts(&self, sql: &str) -> Vec<String> {
        let values: Result<Vec<Option<String>>> = match &self.location {
            Location::Sqlite(path) => {
                raw::sqlite(path, sql).await.and_then(|rows| rows.iter().map(|row| Ok(row.try_get(0)?)).collect())
            }
            Location::Postgres(url) => {
                raw::postgres(url, sql).await.and_then(|rows| rows.iter().map(|row| Ok(row.try_get(0)?)).collect())
            }
        };
        match values {
            Ok(values) => values.into_iter().map(Option::unwrap_or_default).collect(),
            Err(error) => panic!("`{sql}`: {error:#}"),
        }
    }

    /// Runs statements around the store: what a broken disk, a wrong hand or a later version would do.
    pub async fn meddle(&self, sql: &str) {
        if let Err(error) = self.try_meddle(sql).await {
            panic!("`{sql}`: {error:#}");
        }
    }

    /// The same, and says whether the schema let it.
    pub async fn try_meddle(&self, sql: &str) -> Result<()> {
        match &self.location {
            Location::Sqlite(path) => raw::sqlite(path, sql).await.map(|_| ()),
            Location::Postgres(url) => raw::postgres(url, sql).await.map(|_| ()),
        }
    }

    /// Prepares a statement without running it.
    pub async fn prepare(&self, sql: &'static str) -> Result<()> {
        match &self.location {
            Location::Sqlite(path) => raw::prepare_sqlite(path, sql).await,
            Location::Postgres(url) => raw::prepare_postgres(url, sql).await,
        }
    }
}

/// The vendor `local` on the environment's account, for every capability.
pub fn local_rules() -> Rules {
    Rules::new(
        |_| vec![VendorId::known("local")],
        || vec![EnvironmentAccount { vendor: VendorId::known("local"), fingerprint: "0011223344556677".to_owned() }],
    )
}

/// Each handle counts its ids from elsewhere, as two processes would.
fn next_entropy() -> Entropy {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Entropy::counting(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// SQL around the store, for tests only.
#[expect(clippy::disallowed_types, reason = "tests look past the store")]
mod raw {
    use sqlx::{
        AssertSqlSafe, Connection as _, Executor as _, PgConnection, SqlSafeStr as _, SqliteConnection, postgres::PgRow,
        sqlite::SqliteRow,
    };

    use super::{Path, Result};

    async fn open_sqlite(path: &Path) -> Result<SqliteConnection> {
        use sqlx::ConnectOptions as _;
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path).busy_timeout(std::time::Duration::from_secs(10));
        Ok(options.connect().await?)
    }

    #[expect(clippy::disallowed_methods, reason = "tests look past the store")]
    pub(super) async fn sqlite(path: &Path, sql: &str) -> Result<Vec<SqliteRow>> {
        let mut connection = open_sqlite(path).await?;
        let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut connection).await?;
        connection.close().await?;
        Ok(rows)
    }

    /// The extended protocol for single statements, so that numbers come as numbers.
    #[expect(clippy::disallowed_methods, reason = "tests look past the store")]
    pub(super) async fn postgres(url: &str, sql: &str) -> Result<Vec<PgRow>> {
        let mut connection = PgConnection::connect(url).await?;
        let rows = if sql.trim_end_matches(';').contains(';') {
            sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut connection).await?
        } else {
            sqlx::query(AssertSqlSafe(sql)).fetch_all(&mut connection).await?
        };
        connection.close().await?;
        Ok(rows)
    }

    pub(super) async fn prepare_sqlite(path: &Path, sql: &'static str) -> Result<()> {
        let mut connection = open_sqlite(path).await?;
        connection.prepare(sql.into_sql_str()).await?;
        connection.close().await?;
        Ok(())
    }

    pub(super) async fn prepare_postgres(url: &str, sql: &'static str) -> Result<()> {
        let mut connection = PgConnection::connect(url).await?;
        connection.prepare(sql.into_sql_str()).await?;
        connection.close().await?;
        Ok(())
    }
}

static NEXT_DATABASE: AtomicU64 = AtomicU64::new(0);

/// One test's database and how it goes away.
enum Place {
    Sqlite { folder: TempDir },
    Postgres { admin: String, name: String, _cluster: Option<Cluster> },
}

impl Place {
    async fn make(backend: Backend) -> Result<Self> {
        match backend {
            Backend::Sqlite => {
                let folder = tempfile::Builder::new().prefix("formation-db-").tempdir()?;
                let template = sqlite_template().await?;
                let mut file = std::fs::OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(folder.path().join("formation.db"))?;
                file.write_all(template)?;
                Ok(Self::Sqlite { folder })
            }
            Backend::Postgres => {
                let (admin, cluster) = match shared_cluster() {
                    Some(url) => (url, None),
                    None => Cluster::start().map(|cluster| (cluster.url(), Some(cluster)))?,
                };
                let template = postgres_template(&admin).await?;
                let name = format!("test_{}_{}", std::process::id(), NEXT_DATABASE.fetch_add(1, Ordering::Relaxed));
                raw::postgres(&admin, &format!("CREATE DATABASE {name} TEMPLATE {template}")).await?;
                Ok(Self::Postgres { admin, name, _cluster: cluster })
            }
        }
    }

    fn location(&self) -> Location {
        match self {
            Self::Sqlite { folder } => Location::Sqlite(folder.path().join("formation.db")),
            Self::Postgres { admin, name, .. } => Location::Postgres(database_url(admin, name)),
        }
    }

    async fn remove(self) -> Result<()> {
        match self {
            Self::Sqlite { folder } => Ok(folder.close()?),
            Self::Postgres { admin, name, _cluster } => {
                raw::postgres(&admin, &format!("DROP DATABASE {name} WITH (FORCE)")).await.map(|_| ())
            }
        }
    }
}

/// The same server, another database.
fn database_url(admin: &str, name: &str) -> String {
    let mut url = url::Url::parse(admin).expect("the address of the test cluster is a URL");
    url.set_path(name);
    url.into()
}

/// `scripts/test` says where its cluster is.
#[expect(clippy::disallowed_methods, reason = "the test harness itself reads where its database is")]
fn shared_cluster() -> Option<String> {
    std::env::var("FORMATION_TEST_PG").ok().filter(|url| !url.is_empty())
}

/// The bytes of a migrated file. In memory, since a static has no end at which a folder would be deleted.
async fn sqlite_template() -> Result<&'static [u8]> {
    static TEMPLATE: tokio::sync::OnceCell<Vec<u8>> = tokio::sync::OnceCell::const_new();
    let bytes = TEMPLATE
        .get_or_try_init(|| async {
            let folder = tempfile::Builder::new().prefix("formation-template-").tempdir()?;
            let location = Location::Sqlite(folder.path().join("template.db"));
            let db = Db::open(&location, TimeSource::Process(Clock::frozen(START).0), next_entropy()).await?;
            db.migrate().await?;
            // Writes the WAL back: the one file is all there is.
            db.close().await;
            anyhow::Ok(std::fs::read(folder.path().join("template.db"))?)
        })
        .await?;
    Ok(bytes)
}

/// A migrated database without connections. Processes that come together make it once: the advisory lock of the admin database
/// goes from one to the next. Its name holds what it was made from, so a cluster that outlives a change of a migration is no trap.
async fn postgres_template(admin: &str) -> Result<String> {
    static TEMPLATE: OnceLock<String> = OnceLock::new();
    if let Some(name) = TEMPLATE.get() {
        return Ok(name.clone());
    }
    let mut hasher = DefaultHasher::new();
    formation_store::migrations().for_each(|migration| migration.hash(&mut hasher));
    let name = format!("formation_template_{:016x}", hasher.finish());
    let mut lock = PgConnection::connect(admin).await.context("the PostgreSQL of FORMATION_TEST_PG does not answer")?;
    run_on(&mut lock, "SELECT pg_advisory_lock(73002)").await?;
    let found = raw::postgres(admin, &format!("SELECT datname FROM pg_database WHERE datname = '{name}'")).await?;
    if found.is_empty() {
        let making = format!("{name}_making");
        raw::postgres(admin, &format!("DROP DATABASE IF EXISTS {making}")).await?;
        raw::postgres(admin, &format!("CREATE DATABASE {making}")).await?;
        let location = Location::Postgres(database_url(admin, &making));
        let db = Db::open(&location, TimeSource::Database, next_entropy()).await?;
        db.migrate().await?;
        db.close().await;
        raw::postgres(admin, &format!("ALTER DATABASE {making} RENAME TO {name}")).await?;
    }
    lock.close().await?;
    Ok(TEMPLATE.get_or_init(|| name).clone())
}

#[expect(clippy::disallowed_methods, reason = "the lock of the test harness")]
async fn run_on(connection: &mut PgConnection, sql: &'static str) -> Result<()> {
    sqlx::raw_sql(sql).execute(connection).await?;
    Ok(())
}

/// A private cluster, for a test that was started by hand.
struct Cluster {
    folder: TempDir,
}

impl Cluster {
    fn start() -> Result<Self> {
        let base = if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
        let folder = tempfile::Builder::new().prefix("formation-pg-").tempdir_in(base)?;
        let path = folder.path().to_str().context("the temporary folder has a plain name")?.to_owned();
        // PostgreSQL refuses root.
        let user = rustix::process::getuid().is_root().then(|| if is_user("postgres") { "postgres" } else { "nobody" });
        if let Some(user) = user {
            ensure!(succeeds("chown", &[user, &path]), "`chown {user}` failed on a folder of ours");
        }
        let data = format!("{path}/data");
        let as_user = |program: &str, arguments: &[&str]| -> Result<()> {
            let mut command = match user {
                Some(user) => {
                    let mut command = std::process::Command::new("runuser");
                    command.args(["-u", user, "--", program]);
                    command
                }
                None => std::process::Command::new(program),
            };
            let output = command.args(arguments).current_dir(&path).stdin(std::process::Stdio::null()).output();
            match output {
                Ok(output) if output.status.success() => Ok(()),
                Ok(output) => bail!("`{program}` failed: {}\n{NO_POSTGRES}", String::from_utf8_lossy(&output.stderr)),
                Err(error) => bail!("`{program}` does not start: {error}\n{NO_POSTGRES}"),
            }
        };
        as_user("initdb", &["-D", &data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"])?;
        let settings = format!(
            "-c fsync=off -c full_page_writes=off -c max_connections=200 -c listen_addresses='' -c unix_socket_directories='{path}'"
        );
        let cluster = Self { folder };
        as_user("pg_ctl", &["-D", &data, "-l", &format!("{path}/log"), "-s", "-w", "-t", "60", "-o", &settings, "start"])?;
        Ok(cluster)
    }

    fn url(&self) -> String {
        format!("postgres://postgres@localhost/postgres?host={}", self.folder.path().display())
    }

    fn process(&self) -> Option<rustix::process::Pid> {
        let text = std::fs::read_to_string(self.folder.path().join("data/postmaster.pid")).ok()?;
        rustix::process::Pid::from_raw(text.lines().next()?.trim().parse().ok()?)
    }
}

const NO_POSTGRES: &str = "The tests on PostgreSQL are half of the tests. Run `scripts/test`, or install PostgreSQL 15 or newer and put \
    `initdb`, `pg_ctl` and `postgres` into PATH (Debian keeps them in /usr/lib/postgresql/*/bin), or set FORMATION_TEST_PG to the \
    address of a server whose databases may be created and dropped.";

impl Drop for Cluster {
    fn drop(&mut self) {
        let Some(process) = self.process() else { return };
        // Fast shutdown; the folder goes only when it is gone.
        let _ = rustix::process::kill_process(process, rustix::process::Signal::INT);
        for _ in 0..100 {
            if rustix::process::test_kill_process(process).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn is_user(name: &str) -> bool {
    succeeds("id", &[name])
}

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    std::process::Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}
