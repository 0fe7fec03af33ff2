//! Who runs the browser.

use std::fs;

/// Traditional ids of `nobody`, for systems without a user table.
const NOBODY: u32 = 65_534;

/// The user a browser runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// The one the server runs as.
    Own,
    /// `nobody`, because the server is root: a renderer that breaks out would be root as well.
    Other {
        /// Its user id.
        uid: u32,
        /// Its group id.
        gid: u32,
    },
}

impl User {
    /// For this process.
    pub(super) fn of_browser() -> Self {
        if rustix::process::geteuid().is_root() {
            let (uid, gid) = fs::read_to_string("/etc/passwd").ok().and_then(|table| nobody(&table)).unwrap_or((NOBODY, NOBODY));
            Self::Other { uid, gid }
        } else {
            Self::Own
        }
    }
}

fn nobody(table: &str) -> Option<(u32, u32)> {
    let fields: Vec<&str> = table.lines().find(|line| line.starts_with("nobody:"))?.split(':').collect();
    let ids = (fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?);
    (ids.0 != 0 && ids.1 != 0).then_some(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_read_from_the_user_table_and_is_never_root() {
        assert_eq!(nobody("root:x:0:0:root:/root:/bin/sh\nnobody:x:99:98:n:/:/sbin/nologin\n"), Some((99, 98)));
        assert_eq!(nobody("root:x:0:0:root:/root:/bin/sh\n"), None);
        assert_eq!(nobody("nobody:x:0:0:n:/:/sbin/nologin\n"), None);
        assert_eq!(nobody("nobody:x"), None);
    }
}
