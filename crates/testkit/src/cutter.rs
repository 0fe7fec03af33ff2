//! Stands between a server and its PostgreSQL, and cuts the line when it is told to.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::Context;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream, UnixStream},
    sync::watch,
};
use url::Url;

/// A line that can be cut. It ends with the runtime it was started on.
#[derive(Debug)]
pub struct Cutter {
    url: String,
    cut: watch::Sender<bool>,
}

#[derive(Debug, Clone)]
enum Target {
    Socket(PathBuf),
    Address(SocketAddr),
}

impl Cutter {
    /// Starts one before the database at `url`, a Unix socket or a loopback address.
    pub async fn before(url: &str) -> anyhow::Result<Self> {
        let mut through = Url::parse(url)?;
        let port = through.port().unwrap_or(5432);
        let folder = through.query_pairs().find(|(name, _)| name == "host").map(|(_, folder)| folder.into_owned());
        let target = match folder {
            Some(folder) => Target::Socket(Path::new(&folder).join(format!(".s.PGSQL.{port}"))),
            None => Target::Address(SocketAddr::new(through.host_str().unwrap_or("127.0.0.1").parse()?, port)),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        through.set_query(None);
        through.set_host(Some("127.0.0.1"))?;
        through.set_port(Some(address.port())).ok().context("a PostgreSQL address takes a port")?;
        let cut = watch::Sender::new(false);
        let state = cut.subscribe();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(carry(stream, target.clone(), state.clone()));
            }
        });
        Ok(Self { url: through.into(), cut })
    }

    /// The same database, through the line.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Every connection ends, and new ones end as soon as they are made.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// New connections go through again.
    pub fn mend(&self) {
        self.cut.send_replace(false);
    }
}

async fn carry(mut from: TcpStream, target: Target, mut state: watch::Receiver<bool>) {
    let carried = async {
        match target {
            Target::Socket(path) => {
                let mut to = UnixStream::connect(path).await?;
                copy_bidirectional(&mut from, &mut to).await
            }
            Target::Address(address) => {
                #[expect(clippy::disallowed_methods, reason = "the test's own line to its own database")]
                let mut to = TcpStream::connect(address).await?;
                copy_bidirectional(&mut from, &mut to).await
            }
        }
    };
    tokio::select! {
        // Cut already, or cut from now on: both ends are dropped.
        _ = state.wait_for(|cut| *cut) => {}
        // How it ended is the ends' business.
        _ = carried => {}
    }
}
