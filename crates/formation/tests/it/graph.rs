//! The arrows between our crates are those of ARCHITECTURE.md's table.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use crate::support::root;

/// What each crate may import, by the table.
fn table() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the map");
    let rows = text.lines().skip_while(|line| !line.starts_with("| crate |")).skip(2).take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, _, imports] = cells[..] else { panic!("three cells in a row: {line}") };
        let imports = imports.split(',').map(|import| import.trim().to_owned()).filter(|import| import != "–").collect();
        (name.trim_matches('`').to_owned(), imports)
    };
    rows.map(row).collect()
}

/// What each crate imports of ours, by its manifest. `formation` itself is the one whose name has no prefix.
fn manifests() -> BTreeMap<String, BTreeSet<String>> {
    let ours = |name: &str| name.strip_prefix("formation-").or((name == "formation").then_some(name)).map(str::to_owned);
    let folders = fs::read_dir(root().join("crates")).expect("the crates");
    let manifest = |folder: fs::DirEntry| {
        let text = fs::read_to_string(folder.path().join("Cargo.toml")).expect("a manifest");
        let manifest: toml::Table = text.parse().expect("TOML");
        // Dependencies of one platform or of the build count as much as the others.
        let mut imports = BTreeSet::new();
        gather(&manifest, &mut |name| imports.extend(ours(name)));
        (folder.file_name().into_string().expect("a name"), imports)
    };
    folders.map(|folder| manifest(folder.expect("a folder"))).collect()
}

fn gather(table: &toml::Table, found: &mut impl FnMut(&str)) {
    for (key, value) in table {
        let Some(inner) = value.as_table() else { continue };
        match key.as_str() {
            "dependencies" | "build-dependencies" => inner.keys().for_each(|name| found(name)),
            "target" => inner.values().filter_map(toml::Value::as_table).for_each(|platform| gather(platform, found)),
            _ => {}
        }
    }
}

#[test]
fn every_arrow_is_in_the_table() {
    let (table, manifests) = (table(), manifests());
    assert_eq!(table.keys().collect::<Vec<_>>(), manifests.keys().collect::<Vec<_>>(), "the table names every crate and no other");
    for (name, imports) in &manifests {
        let extra: Vec<_> = imports.difference(&table[name]).collect();
        assert!(extra.is_empty(), "`{name}` imports {extra:?}, which ARCHITECTURE.md doesn't allow");
    }
    let imports: usize = manifests.values().map(BTreeSet::len).sum();
    assert!(imports > 20, "the manifests were read: {manifests:?}");
}

#[test]
fn the_table_has_no_way_round() {
    let table = table();
    let mut left: BTreeMap<_, _> = table.clone();
    // Take away what imports nothing that is left, until nothing is left.
    while !left.is_empty() {
        let free: Vec<String> = left
            .iter()
            .filter(|(_, imports)| imports.iter().all(|name| !left.contains_key(name)))
            .map(|(name, _)| name.clone())
            .collect();
        assert!(!free.is_empty(), "a circle among {:?}", left.keys());
        left.retain(|name, _| !free.contains(name));
    }
    for (name, imports) in &table {
        assert!(!imports.contains("testkit"), "`{name}` ships the test parts");
    }
    assert!(!table["api"].contains("store") && !table["api"].contains("vendors"), "no route can skip admission or open a secret");
}
