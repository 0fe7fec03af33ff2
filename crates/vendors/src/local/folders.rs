//! Where the sessions' user-data folders lie, and who may enter them.

use std::{
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    time::Duration,
};

use sha2::{Digest, Sha256};

use super::user::User;

/// Name of the folder below the data folder.
const BELOW_DATA: &str = "browser-sessions";

/// The folder that holds one folder a session.
#[derive(Debug, Clone)]
pub(super) struct Folders {
    root: PathBuf,
    user: User,
}

impl Folders {
    /// Below `data`, or, where `user` couldn't enter that, in one folder of `temporary` named after it. What a previous life left
    /// there is deleted: the caller holds the data folder's lock, and a browser doesn't outlive its server.
    pub(super) fn prepare(data: &Path, temporary: &Path, user: User) -> io::Result<Self> {
        let data = data.canonicalize()?;
        let root = match user {
            User::Other { .. } if !others_can_enter(&data) => temporary.canonicalize()?.join(name_after(&data)),
            User::Other { .. } | User::Own => data.join(BELOW_DATA),
        };
        let mode = match user {
            // The other user passes through to its own folders and can't list anybody's.
            User::Other { .. } => 0o711,
            User::Own => 0o700,
        };
        match DirBuilder::new().mode(mode).create(&root) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        claim(&root, mode)?;
        for left in fs::read_dir(&root)? {
            let path = left?.path();
            tracing::info!("removing the folder of a browser session that a previous start left");
            if fs::symlink_metadata(&path)?.is_dir() {
                fs::remove_dir_all(&path)?;
            } else {
                fs::remove_file(&path)?;
            }
        }
        Ok(Self { root, user })
    }

    /// An empty folder for one session, its user's alone.
    pub(super) fn make(&self, name: &str) -> io::Result<PathBuf> {
        let folder = self.root.join(name);
        DirBuilder::new().mode(0o700).create(&folder)?;
        if let User::Other { uid, gid } = self.user {
            chown(&folder, Some(uid), Some(gid))?;
        }
        Ok(folder)
    }

    /// The folder above them.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }
}

/// The temporary directory belongs to everybody: a folder there counts only if it is ours alone and no link to somewhere else.
fn claim(root: &Path, mode: u32) -> io::Result<()> {
    let found = fs::symlink_metadata(root)?;
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the folder for browser sessions belongs to somebody else"));
    }
    // Whatever the umask took or an earlier start left.
    fs::set_permissions(root, Permissions::from_mode(mode))
}

fn others_can_enter(path: &Path) -> bool {
    path.ancestors().all(|folder| fs::metadata(folder).is_ok_and(|found| found.mode() & 0o001 != 0))
}

fn name_after(data: &Path) -> String {
    let hash = Sha256::digest(data.as_os_str().as_encoded_bytes());
    let short = hash.iter().take(8).fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
    format!("formation-browser-{short:016x}")
}

/// Deletes a session's folder, also while the last of its processes still write into it.
pub(super) async fn remove(folder: &Path) -> io::Result<()> {
    let mut tries = 0;
    loop {
        match tokio::fs::remove_dir_all(folder).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if tries == 40 => return Err(error),
            Err(_) => tries += 1,
            Ok(()) => return Ok(()),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(parent: &Path, name: &str, mode: u32) -> PathBuf {
        let path = parent.join(name);
        fs::create_dir(&path).expect("a folder");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("a mode");
        path
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("exists").mode() & 0o777
    }

    #[test]
    fn our_own_user_keeps_them_below_the_data_folder_and_leftovers_go() {
        let home = tempfile::tempdir().expect("a folder");
        let data = folder(home.path(), "data", 0o700);
        let left = folder(&folder(&data, BELOW_DATA, 0o755), "left", 0o700);
        fs::write(left.join("Cookies"), "x").expect("a file");
        let folders = Folders::prepare(&data, home.path(), User::Own).expect("prepared");
        assert_eq!(folders.root(), data.canonicalize().expect("exists").join(BELOW_DATA));
        assert_eq!(mode(folders.root()), 0o700);
        assert!(!left.exists());
        let session = folders.make("a").expect("made");
        assert_eq!(mode(&session), 0o700);
        assert!(folders.make("a").is_err(), "a session's folder starts empty");
    }

    #[test]
    fn another_user_gets_a_folder_it_can_reach() {
        // Not root's to give away when the tests run as somebody else.
        let me = User::Other { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
        let temporary = tempfile::tempdir().expect("a folder");
        let closed = folder(temporary.path(), "data", 0o700);
        let folders = Folders::prepare(&closed, temporary.path(), me).expect("prepared");
        assert_eq!(folders.root().parent(), Some(temporary.path().canonicalize().expect("exists").as_path()));
        assert_eq!(mode(folders.root()), 0o711);
        assert_eq!(mode(&folders.make("a").expect("made")), 0o700);
        let again = Folders::prepare(&closed, temporary.path(), me).expect("prepared");
        assert_eq!(again.root(), folders.root());
        assert_eq!(fs::read_dir(again.root()).expect("listed").count(), 0);
    }

    #[test]
    fn a_link_planted_in_the_temporary_folder_is_not_followed() {
        let temporary = tempfile::tempdir().expect("a folder");
        let data = folder(temporary.path(), "data", 0o700).canonicalize().expect("exists");
        let victim = folder(temporary.path(), "victim", 0o755);
        fs::write(victim.join("precious"), "x").expect("a file");
        std::os::unix::fs::symlink(&victim, temporary.path().join(name_after(&data))).expect("a link");
        let me = User::Other { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
        assert!(Folders::prepare(&data, temporary.path(), me).is_err());
        assert!(victim.join("precious").exists());
    }
}
