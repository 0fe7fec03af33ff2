//! The repository, and the built binary with nothing of this process's environment.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the crate lies two folders below the root")
}

/// Every text file of the repository, by its path below the root.
pub(crate) fn texts() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    collect(&root(), Path::new(""), &mut found);
    assert!(found.len() > 50, "the walk found {} files only", found.len());
    found
}

fn collect(root: &Path, below: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(root.join(below)).expect("a folder of the repository") {
        let entry = entry.expect("an entry");
        let path = below.join(entry.file_name());
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().expect("a type").is_dir() {
            if !matches!(name.as_str(), ".git" | "target" | "data" | "node_modules" | "testdata") {
                collect(root, &path, found);
            }
        } else if let Ok(text) = fs::read_to_string(root.join(&path)) {
            found.push((path, text));
        }
    }
}

/// The binary, in a folder of its own, without this process's variables.
pub(crate) fn formation(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_formation"));
    command.current_dir(folder).env_clear().env("HOME", folder).env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    command
}

/// What one command line says.
pub(crate) fn said(folder: &Path, words: &[&str]) -> Said {
    Said::of(formation(folder).args(words).output().expect("the binary starts"))
}

#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("text");
        Self { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Standard output as JSON, of a command that did what it was asked.
    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!(self.code, 0, "{self:?}");
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}
