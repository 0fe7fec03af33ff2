//! What holds for every file: no lies in the documents, nothing of one machine, no way around the lints.

use std::{collections::BTreeSet, path::Path};

use crate::support::{root, said, texts};

fn documents() -> Vec<(String, String)> {
    let all: Vec<_> = texts().into_iter().filter(|(path, _)| path.extension().is_some_and(|extension| extension == "md")).collect();
    all.into_iter().map(|(path, text)| (path.display().to_string(), text)).collect()
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

#[test]
fn documents_name_files_that_are_there() {
    let mut checked = 0;
    for (document, text) in documents() {
        for word in quoted(&text) {
            let path = word.split(' ').next().unwrap_or(word);
            let is_path =
                ["scripts/", "crates/", "docs/", "testdata/", ".ci/", ".config/"].iter().any(|folder| path.starts_with(folder));
            // `crates/*/…` and `{a,b}` stand for many; capitals for the reader's own.
            if !is_path || path.contains(['*', '{', '…']) || path.contains("CRATE") {
                continue;
            }
            assert!(root().join(path).exists(), "{document} names `{path}`");
            checked += 1;
        }
    }
    assert!(checked > 10, "only {checked} paths were found");
}

#[test]
fn documents_name_commands_that_are_there() {
    let mut commands = BTreeSet::new();
    for (document, text) in documents() {
        for word in quoted(&text) {
            let mut words = word.split(' ');
            if words.next() != Some("formation") {
                continue;
            }
            let is_word = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase());
            let Some(command) = words.next().filter(is_word) else { continue };
            let second = if command == "agent" { words.next().filter(is_word) } else { None };
            commands.insert((document.clone(), command.to_owned(), second.map(str::to_owned)));
        }
    }
    assert!(commands.len() > 5, "only {commands:?} were found");
    for (document, command, second) in commands {
        let line: Vec<&str> = std::iter::once(command.as_str()).chain(second.as_deref()).chain(["--help"]).collect();
        assert_eq!(said(&root(), &line).code, 0, "{document} names `formation {command} {}`", second.unwrap_or_default());
    }
}

#[test]
fn nothing_belongs_to_one_machine() {
    // Written apart, so that this file passes too.
    let folders = ["home", "root", "work", "Users"].map(|name| format!("/{name}/"));
    for (path, text) in texts() {
        if path == Path::new("Cargo.lock") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            for folder in &folders {
                let starts = line
                    .match_indices(folder.as_str())
                    .any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "-_.~}*/".contains(c)));
                assert!(!starts, "{}:{} has a path of one machine", path.display(), number + 1);
            }
        }
    }
}

#[test]
fn sources_are_short_and_make_no_silent_exceptions() {
    let allow = ["#[", "#!["].map(|open| format!("{open}allow("));
    let mut sources = 0;
    for (path, text) in texts() {
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        sources += 1;
        let lines = text.lines().count();
        assert!(lines <= 700, "{} has {lines} lines: look for the second subject in it", path.display());
        for (number, line) in text.lines().enumerate() {
            let line = line.trim_start();
            assert!(
                !allow.iter().any(|open| line.starts_with(open)),
                "{}:{}: an exception is `expect` with a reason",
                path.display(),
                number + 1
            );
        }
    }
    assert!(sources > 30, "only {sources} sources were found");
}

/// S-20's own half: `unsafe` is forbidden, and no crate leaves the lints that say so.
#[test]
fn bar_s20_every_crate_takes_the_workspace_lints() {
    let workspace: toml::Table = std::fs::read_to_string(root().join("Cargo.toml")).expect("a manifest").parse().expect("TOML");
    assert_eq!(workspace["workspace"]["lints"]["rust"]["unsafe_code"].as_str(), Some("forbid"));
    for entry in std::fs::read_dir(root().join("crates")).expect("the crates") {
        let path = entry.expect("a folder").path().join("Cargo.toml");
        let manifest: toml::Table = std::fs::read_to_string(&path).expect("a manifest").parse().expect("TOML");
        assert_eq!(manifest["lints"]["workspace"].as_bool(), Some(true), "{}", path.display());
        assert_eq!(manifest["package"]["license"]["workspace"].as_bool(), Some(true), "{}", path.display());
    }
}
