//! Files at rest: 0600 in folders of 0700 (S-21). The process sets its umask too; this does not rely on it.

use std::{
    fs::{DirBuilder, OpenOptions, Permissions},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

/// Makes `path` a folder that only this user can enter, or takes the rights of others away from an existing one.
pub fn private_folder(path: &Path) -> io::Result<()> {
    match DirBuilder::new().recursive(true).mode(0o700).create(path) {
        Ok(()) => std::fs::set_permissions(path, Permissions::from_mode(0o700)),
        Err(error) => Err(error),
    }
}

/// Makes the database file before SQLite does, so that it never exists with wider rights; SQLite gives `-wal` and `-shm` the
/// file's own mode.
pub(super) fn private_file(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => std::fs::set_permissions(path, Permissions::from_mode(0o600)),
        Err(error) => Err(error),
    }
}
