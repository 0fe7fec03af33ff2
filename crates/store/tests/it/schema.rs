//! Both folders make one schema, and every statement is one on both engines.

use std::collections::{BTreeMap, BTreeSet};

use formation_store::{Db, MigrationStatus, TimeSource};
use formation_testkit::{
    databases::{self, Backend, TestDb},
    on_both_databases,
};

on_both_databases! {
    /// A statement that one engine refuses is found here and not by a user.
    async fn every_statement_is_one(test) {
        let mut refused = Vec::new();
        let statements = formation_store::statements();
        assert!(statements.len() > 80, "only {} statements are listed", statements.len());
        for (module, name, sql) in statements {
            let text = if test.file().is_some() { sql.sqlite() } else { sql.postgres() };
            if let Err(error) = test.prepare(text).await {
                refused.push(format!("{module}::{name}: {error:#}"));
            }
        }
        assert!(refused.is_empty(), "{refused:#?}");
    }

    async fn migrating_again_changes_nothing(test) {
        let known = formation_store::migrations().map(|migration| migration.0).max().expect("there are migrations");
        let status = MigrationStatus { applied: known, known };
        assert_eq!(test.db.migration_status().await.expect("status"), status);
        let tables = tables(&test).await;
        let (one, two) = tokio::join!(test.db.migrate(), test.db.migrate());
        one.expect("again");
        two.expect("and beside it");
        assert_eq!(tables, self::tables(&test).await);
        assert!(test.db.migration_status().await.expect("status").is_current());
    }

    async fn a_newer_database_is_left_alone(test) {
        test.meddle("UPDATE _sqlx_migrations SET version = 999 WHERE version = (SELECT max(version) FROM _sqlx_migrations)").await;
        let refused = test.db.migrate().await.expect_err("somebody newer was here");
        assert_eq!(refused.to_string(), "the database has migration 999, which this version does not know; start the newer version of Formation");
        assert!(!test.db.migration_status().await.expect("status").is_current());
    }

    async fn a_changed_migration_is_noticed(test) {
        let sql = if test.file().is_some() { "UPDATE _sqlx_migrations SET checksum = x'00'" } else { "UPDATE _sqlx_migrations SET checksum = '\\x00'" };
        test.meddle(sql).await;
        let refused = test.db.migrate().await.expect_err("not the file that was applied");
        assert_eq!(refused.to_string(), "migration 1 is not the one that was applied to this database");
    }
}

/// Two processes that start on one empty database both find it migrated.
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_file_is_migrated_by_two_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let location = formation_store::Location::Sqlite(folder.path().join("formation.db"));
    let clock = formation_core::Clock::frozen(databases::START).0;
    let open = || Db::open(&location, TimeSource::Process(clock.clone()), formation_core::Entropy::counting(1));
    let (one, two) = tokio::join!(open(), open());
    let (one, two) = (one.expect("opens"), two.expect("opens"));
    assert_eq!(one.migration_status().await.expect("status").applied, 0);
    let (first, second) = tokio::join!(one.migrate(), two.migrate());
    first.expect("migrated");
    second.expect("migrated");
    assert!(two.migration_status().await.expect("status").is_current());
}

/// Tables, columns, kinds, nullability, keys and indexes of both, compared as text.
#[test]
fn both_folders_make_one_schema() {
    let (sender, schemas) = std::sync::mpsc::channel();
    for backend in [Backend::Sqlite, Backend::Postgres] {
        let sender = sender.clone();
        databases::run(backend, move |test| async move {
            sender.send((tables(&test).await, indexes(&test).await)).expect("the test waits");
        });
    }
    let (sqlite, postgres) = (schemas.recv().expect("SQLite's"), schemas.recv().expect("PostgreSQL's"));
    assert!(sqlite.0.len() >= 14, "{:?}", sqlite.0.keys());
    assert_eq!(sqlite.0, postgres.0);
    assert_eq!(sqlite.1, postgres.1);
}

type Tables = BTreeMap<String, BTreeSet<String>>;

/// `table → {column kind nullability}`. In `STRICT` tables key columns are not null whatever `table_info` says.
async fn tables(test: &TestDb) -> Tables {
    let sql = if test.file().is_some() {
        "SELECT m.name || ' ' || c.name || ' ' || c.type || ' ' || (CASE WHEN c.\"notnull\" = 1 OR c.pk > 0 THEN 'required' ELSE 'optional' END) \
         FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' AND m.name NOT LIKE '\\_sqlx%' ESCAPE '\\'"
    } else {
        "SELECT table_name || ' ' || column_name || ' ' || (CASE data_type WHEN 'bigint' THEN 'INTEGER' WHEN 'bytea' THEN 'BLOB' \
         WHEN 'text' THEN 'TEXT' ELSE data_type END) || ' ' || (CASE is_nullable WHEN 'NO' THEN 'required' ELSE 'optional' END) \
         FROM information_schema.columns WHERE table_schema = 'public' AND table_name NOT LIKE '\\_sqlx%'"
    };
    let mut tables = Tables::new();
    for line in test.texts(sql).await {
        let (table, column) = line.split_once(' ').expect("a table and a column");
        tables.entry(table.to_owned()).or_default().insert(column.to_owned());
    }
    tables
}

/// `table unique? columns where?` of every index but those of primary keys; names differ for the ones the engine named itself.
async fn indexes(test: &TestDb) -> BTreeSet<String> {
    let sql = if test.file().is_some() {
        "SELECT m.name || ' ' || (CASE WHEN i.\"unique\" = 1 THEN 'unique' ELSE 'plain' END) || ' ' || \
         (SELECT group_concat(name, ',') FROM (SELECT x.name FROM pragma_index_info(i.name) x ORDER BY x.seqno)) || ' ' || \
         (CASE WHEN i.partial = 1 THEN 'some' ELSE 'all' END) \
         FROM sqlite_master m JOIN pragma_index_list(m.name) i WHERE m.type = 'table' AND m.name NOT LIKE '\\_sqlx%' ESCAPE '\\' AND i.origin <> 'pk'"
    } else {
        "SELECT t.relname || ' ' || (CASE WHEN x.indisunique THEN 'unique' ELSE 'plain' END) || ' ' || \
         (SELECT string_agg(a.attname, ',' ORDER BY k.place) FROM unnest(x.indkey::int2[]) WITH ORDINALITY AS k (number, place) \
         JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = k.number) || ' ' || (CASE WHEN x.indpred IS NULL THEN 'all' ELSE 'some' END) \
         FROM pg_index x JOIN pg_class t ON t.oid = x.indrelid JOIN pg_namespace n ON n.oid = t.relnamespace \
         WHERE n.nspname = 'public' AND NOT x.indisprimary AND t.relname NOT LIKE '\\_sqlx%'"
    };
    test.texts(sql).await.into_iter().collect()
}
