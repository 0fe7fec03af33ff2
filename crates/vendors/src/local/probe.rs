//! What this machine can do: which Chromium, as whom, with a sandbox or without. Tried, not guessed.

use std::{
    fs::DirBuilder,
    io,
    os::unix::fs::{DirBuilderExt, chown},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use formation_core::Environment;

use super::{chromium, folders, user::User};

/// Longest wait for a browser's first answer, on a machine that is busy with others.
pub(super) const START: Duration = Duration::from_secs(20);

/// Why there can be no local browser.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// None is installed where it was looked for.
    #[error("no Chromium was found: install the package `chromium`, or say where one is")]
    NotFound,
    /// One is, and doesn't answer.
    #[error("`{0}` does not start")]
    DoesNotStart(PathBuf),
    /// The folder for its sessions can't be had.
    #[error("the folder for browser sessions can't be used")]
    Folder(#[source] io::Error),
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The binary.
    pub program: PathBuf,
    /// As it names itself, like `Chrome/156.0.8078.114`.
    pub version: String,
    /// Who runs it.
    pub user: User,
    /// Whether its sandbox works. It doesn't where user namespaces are switched off and no helper is installed; then it is
    /// started without, and a page that breaks out of its renderer is that user.
    pub sandbox: bool,
}

/// Starts the browser once with its sandbox and, only if that fails, once without. Leaves nothing behind.
///
/// `program` names a binary; without it the usual places and `PATH` are searched. `temporary` is the system's temporary folder.
pub async fn probe(program: Option<&Path>, temporary: &Path, environment: &Environment) -> Result<Report, StartError> {
    let program = chromium::find(program, environment).ok_or(StartError::NotFound)?;
    let user = User::of_browser();
    for sandbox in [true, false] {
        if let Some(version) = attempt(&program, user, sandbox, temporary).await.map_err(StartError::Folder)? {
            return Ok(Report { program, version, user, sandbox });
        }
    }
    Err(StartError::DoesNotStart(program))
}

async fn attempt(program: &Path, user: User, sandbox: bool, temporary: &Path) -> io::Result<Option<String>> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("formation-probe-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let folder = temporary.join(name);
    DirBuilder::new().mode(0o700).create(&folder)?;
    if let User::Other { uid, gid } = user {
        chown(&folder, Some(uid), Some(gid))?;
    }
    let launch = chromium::Launch { program, user, sandbox, folder: &folder, proxy: None };
    let version = match launch.start() {
        Ok(mut running) => {
            let version = running.version(START).await.ok();
            running.process.end().await;
            version
        }
        Err(_) => None,
    };
    folders::remove(&folder).await?;
    Ok(version)
}
