//! The data folder: nobody else's to read (S-21), held by one server at a time.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io::{self, Read, Write},
    net::SocketAddr,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use crate::output::Failure;

/// The SQLite file.
pub(crate) const DATABASE: &str = "formation.db";
/// The master key, unless the environment brings one.
pub(crate) const MASTER_KEY: &str = "master.key";
const LOCK: &str = "serve.lock";

/// A data folder that is there and closed to others.
#[derive(Debug)]
pub(crate) struct DataFolder {
    path: PathBuf,
    pub(crate) is_new: bool,
}

/// Held by `serve` for its life; gone with the process, whatever ends it.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Lock {
    /// Notes where the server listens, for `doctor` and for people who look.
    pub(crate) fn note(&mut self, address: SocketAddr) -> io::Result<()> {
        writeln!(self.0, "{address}")
    }
}

impl DataFolder {
    /// Opens the folder, making it when it's absent.
    ///
    /// An existing one is taken when it is empty or holds our files, and is closed to group and others. Anything else is somebody's
    /// folder, whose mode we don't change.
    pub(crate) fn make(path: &Path) -> Result<Self, Failure> {
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| unusable(path, &error))?;
                Ok(Self { path: absolute(path)?, is_new: true })
            }
            Err(error) => Err(unusable(path, &error)),
            Ok(_) => {
                let folder = Self::existing(path)?;
                if !folder.is_empty()? && !folder.is_ours() {
                    return Err(Failure::failed(format!("`{}` holds files that aren't Formation's", path.display()))
                        .hint("name an empty or a new folder with `--data`"));
                }
                let mode = fs::metadata(path).map_err(|error| unusable(path, &error))?.mode();
                if mode & 0o077 != 0 {
                    fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(|error| unusable(path, &error))?;
                }
                Ok(folder)
            }
        }
    }

    /// Opens a folder that must be there; nothing about it is changed.
    pub(crate) fn existing(path: &Path) -> Result<Self, Failure> {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => Ok(Self { path: absolute(path)?, is_new: false }),
            Ok(_) => Err(Failure::failed(format!("`{}` is not a folder", path.display()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(Failure::failed(format!("there is no data folder `{}`", path.display()))
                    .hint("`formation init` makes one; `--data` names another"))
            }
            Err(error) => Err(unusable(path, &error)),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn is_ours(&self) -> bool {
        [DATABASE, MASTER_KEY, LOCK].iter().any(|name| self.file(name).exists())
    }

    fn is_empty(&self) -> Result<bool, Failure> {
        let mut entries = fs::read_dir(&self.path).map_err(|error| unusable(&self.path, &error))?;
        Ok(entries.next().is_none())
    }

    /// Takes the folder for one server.
    pub(crate) fn lock(&self) -> Result<Lock, Failure> {
        let path = self.file(LOCK);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&path).map_err(|error| unusable(&path, &error))?;
        match file.try_lock() {
            Ok(()) => {
                // For people who look: the lock is the file's, not its content's.
                let write = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
                write.map_err(|error| unusable(&path, &error))?;
                Ok(Lock(file))
            }
            Err(TryLockError::WouldBlock) => Err(self.held(&mut file)),
            Err(TryLockError::Error(error)) => Err(unusable(&path, &error)),
        }
    }

    /// Whether a server holds the folder now.
    pub(crate) fn is_held(&self) -> bool {
        let Ok(file) = File::open(self.file(LOCK)) else { return false };
        matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
    }

    /// Where the server that holds the folder listens.
    pub(crate) fn held_at(&self) -> Option<SocketAddr> {
        let noted = if self.is_held() { fs::read_to_string(self.file(LOCK)).ok()? } else { return None };
        noted.lines().nth(1)?.parse().ok()
    }

    fn held(&self, file: &mut File) -> Failure {
        let mut holder = String::new();
        let holder = match file.take(80).read_to_string(&mut holder).ok().and_then(|_| holder.lines().next()) {
            Some(pid) => format!(" (process {pid})"),
            None => String::new(),
        };
        Failure::failed(format!("another server{holder} uses the data folder `{}`", self.path.display()))
            .hint("stop it first, or name another folder with `--data`")
    }
}

/// Creates a file that nobody else can read; it must not be there yet.
pub(crate) fn create_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    fs::canonicalize(path).map_err(|error| unusable(path, &error))
}

fn unusable(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("`{}` can't be used: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").mode() & 0o777
    }

    #[test]
    fn a_loose_folder_of_ours_is_closed_and_a_strangers_is_left_alone() {
        let temp = tempfile::tempdir().expect("a folder");
        let ours = temp.path().join("ours");
        fs::create_dir(&ours).expect("made");
        fs::set_permissions(&ours, Permissions::from_mode(0o755)).expect("loosened");
        DataFolder::make(&ours).expect("an empty folder may be taken");
        assert_eq!(mode(&ours), 0o700);

        let theirs = temp.path().join("theirs");
        fs::create_dir(&theirs).expect("made");
        fs::set_permissions(&theirs, Permissions::from_mode(0o755)).expect("loosened");
        fs::write(theirs.join("notes.txt"), "x").expect("written");
        assert!(DataFolder::make(&theirs).is_err());
        assert_eq!(mode(&theirs), 0o755);
    }

    #[test]
    fn one_server_holds_the_folder() {
        let temp = tempfile::tempdir().expect("a folder");
        let folder = DataFolder::make(&temp.path().join("data")).expect("made");
        assert!(folder.is_new && !folder.is_held());
        let mut lock = folder.lock().expect("free");
        assert!(folder.is_held() && folder.held_at().is_none());
        let address = "127.0.0.1:8420".parse().expect("an address");
        lock.note(address).expect("noted");
        assert_eq!(folder.held_at(), Some(address));
        let said = folder.lock().expect_err("held").to_string();
        assert!(said.contains(&format!("process {}", std::process::id())), "{said}");
        drop(lock);
        assert!(!folder.is_held() && folder.held_at().is_none());
        folder.lock().expect("free again");
    }
}
