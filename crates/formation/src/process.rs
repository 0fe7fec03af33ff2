//! What the process does to itself before anything else: nobody else reads its files, and it leaves no image of its memory
//! (S-04, S-21).

use rustix::{
    fs::Mode,
    process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit, umask},
};

/// Files made from here on are the owner's alone, a crash writes no core file, and no other process of the same user can attach.
///
/// Called while there is one thread. Chromium gets the core limit too; being dumpable is its own affair, since `exec` resets it.
pub(crate) fn harden() -> Result<(), rustix::io::Errno> {
    umask(Mode::RWXG | Mode::RWXO);
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    raise_open_files()
}

/// A session takes about thirty descriptors (pipe, proxy, pages); the usual soft limit of 1,024 is there for programs that use
/// `select`.
fn raise_open_files() -> Result<(), rustix::io::Errno> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
}

#[cfg(test)]
mod tests {
    use rustix::process::dumpable_behavior;

    use super::*;

    /// S-04: no core file, and not dumpable, so that neither a crash nor a neighbour sees the master key.
    #[test]
    fn a_hardened_process_leaves_no_core() {
        harden().expect("a process may lower its own limits");
        assert_eq!(getrlimit(Resource::Core).current, Some(0));
        assert_eq!(getrlimit(Resource::Core).maximum, Some(0));
        assert_eq!(dumpable_behavior().expect("Linux answers"), DumpableBehavior::NotDumpable);
        assert_eq!(umask(Mode::empty()), Mode::RWXG | Mode::RWXO);
    }
}
