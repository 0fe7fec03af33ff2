//! The transaction object: what is committed, what is not, and what errors say.

use std::{os::unix::fs::PermissionsExt as _, time::Duration};

use formation_core::{Clock, Entropy, Scope, Timestamp};
use formation_store::{
    Db, Hold, Kind, Location, OpenError, StoreError, TimeSource,
    agents::{self, Created, Slug},
    db::private_folder,
};
use formation_testkit::{databases::START, on_both_databases};

fn slug(text: &str) -> Slug {
    Slug::parse(text).expect("a slug")
}

on_both_databases! {
    async fn an_error_takes_everything_back(test) {
        let result: Result<(), StoreError> = test.db.write(|tx| Box::pin(async move {
            agents::create(tx, &slug("gone"), "Gone", "test").await?;
            Err(StoreError::internal("changed my mind"))
        })).await;
        assert_eq!(result.expect_err("it failed").kind(), Kind::Internal);
        assert_eq!(agents::by_slug(&test.db, "gone").await.expect("read"), None);
    }

    /// A caller that goes away doesn't cut its transaction, and leaves no half-begun one in the pool.
    async fn a_dropped_caller_cuts_nothing(test) {
        for number in 0..40_u32 {
            let db = test.db.clone();
            let write = async move {
                let slug = slug(&format!("a{number}"));
                db.write(move |tx| Box::pin(async move { agents::create(tx, &slug, "x", "test").await })).await
            };
            let spawned = tokio::spawn(write);
            tokio::task::yield_now().await;
            spawned.abort();
        }
        // Every connection of the pool answers, outside any transaction.
        for number in 0..40_u32 {
            let slug = slug(&format!("b{number}"));
            let made = test.db.write(move |tx| Box::pin(async move { agents::create(tx, &slug, "x", "test").await })).await;
            assert!(matches!(made, Ok(Created::Made(_))), "{made:?}");
        }
        assert_eq!(test.number("SELECT count(*) FROM agents WHERE slug LIKE 'b%'").await, 40);
    }

    async fn one_moment_per_transaction(test) {
        let hands = test.hands.clone();
        let (one, two): (Timestamp, Timestamp) = test.db.write(move |tx| Box::pin(async move {
            let one = tx.now().await?;
            hands.forward(Duration::from_secs(5));
            Ok::<_, StoreError>((one, tx.now().await?))
        })).await.expect("now");
        assert_eq!((one, two), (START, START));
        assert_eq!(test.db.now().await.expect("now"), START.after(Duration::from_secs(5)));
    }

    async fn real_time_moves(test) {
        let db = test.on_real_time().await;
        let one = db.now().await.expect("now");
        let two = db.write(|tx| Box::pin(async move { tx.now().await })).await.expect("now");
        assert!(two >= one && two.since(one) < Duration::from_mins(1));
        assert!(one.micros() > 1_700_000_000_000_000, "microseconds since 1970: {one:?}");
    }

    async fn a_closed_database_is_unavailable_and_says_nothing_else(test) {
        test.db.close().await;
        let read = agents::by_slug(&test.db, "secret-slug").await.expect_err("closed");
        let write = test.db.write(|tx| Box::pin(async move { agents::create(tx, &slug("secret-slug"), "x", "t").await })).await.expect_err("closed");
        assert!(test.db.answers().await.expect_err("closed").is_unavailable());
        for error in [read, write] {
            assert!(error.is_unavailable(), "{error:?}");
            for text in [error.to_string(), format!("{error:?}")] {
                assert!(!text.contains("secret") && !text.contains("SELECT") && !text.contains("agents"), "{text}");
            }
        }
    }

    /// A refused statement names its constraint and code, never a value or the statement.
    async fn a_refused_statement_shows_no_value(test) {
        let scene = crate::support::Scene::new(&test).await;
        test.meddle("DELETE FROM offers").await;
        let agent = formation_core::AgentId::fixed(99);
        let error = test.db.write(move |tx| Box::pin(async move { formation_store::tokens::mint_agent(tx, agent, "canary-name", "t").await }))
            .await.expect_err("no such agent");
        assert_eq!(error.kind(), Kind::Internal);
        let text = format!("{error} {error:?}");
        assert!(!text.contains("canary") && !text.contains(&agent.to_string()) && !text.contains("INSERT"), "{text}");
        assert!(scene.test.db.answers().await.is_ok());
    }

    /// W17: a settings write waits for the admissions under way and lets none begin before it commits.
    async fn scope_locks_keep_writers_and_readers_apart(test) {
        let (entered, mut inside) = tokio::sync::mpsc::channel(4);
        let db = test.db.clone();
        let (release, released) = tokio::sync::oneshot::channel::<()>();
        let holder = tokio::spawn(async move {
            db.write(move |tx| Box::pin(async move {
                tx.lock_scope(Scope::Install, Hold::Shared).await?;
                entered.send("reader").await.expect("the test listens");
                released.await.expect("the test releases");
                Ok::<_, StoreError>(entered)
            })).await
        });
        assert_eq!(inside.recv().await, Some("reader"));
        let db = test.db.clone();
        let (wrote, mut written) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let done = db.write(|tx| Box::pin(async move { tx.lock_scope(Scope::Install, Hold::Exclusive).await })).await;
            let _ = wrote.send(done);
        });
        assert!(tokio::time::timeout(Duration::from_millis(150), &mut written).await.is_err(), "the writer waits");
        release.send(()).expect("the reader holds");
        holder.await.expect("no panic").expect("committed");
        written.await.expect("the writer ends").expect("and gets its lock");
    }

    async fn a_durable_server_is_accepted(test) {
        assert_eq!(test.db.durability().await.expect("asked"), Ok(()));
    }
}

/// PostgreSQL that may forget what was sent is refused, with the setting's name.
#[test]
fn postgres_that_may_forget_is_refused() {
    formation_testkit::databases::run(formation_testkit::databases::Backend::Postgres, |test| async move {
        let name = test.texts("SELECT current_database()").await.remove(0);
        test.meddle(&format!("ALTER DATABASE {name} SET synchronous_commit = off")).await;
        let refused = test.replica().await.db.durability().await.expect("asked").expect_err("it may forget");
        assert!(refused.contains("`synchronous_commit`"), "{refused}");
        test.meddle(&format!("ALTER DATABASE {name} SET synchronous_commit = on")).await;
        let slot = format!("standby_{}", std::process::id());
        test.meddle(&format!("SELECT pg_create_physical_replication_slot('{slot}')")).await;
        let refused = test.replica().await.db.durability().await.expect("asked");
        test.meddle(&format!("SELECT pg_drop_replication_slot('{slot}')")).await;
        assert!(refused.expect_err("a standby may miss it").contains("`synchronous_standby_names`"));
    });
}

/// S-21: database, WAL and shared memory file are this user's alone, whatever the umask; the folder too.
#[tokio::test]
async fn bar_s21_files_are_private() {
    let outer = tempfile::tempdir().expect("a folder");
    let folder = outer.path().join("data");
    private_folder(&folder).expect("made");
    let path = folder.join("formation.db");
    let db = Db::open(&Location::Sqlite(path.clone()), TimeSource::Process(Clock::frozen(START).0), Entropy::counting(1))
        .await
        .expect("opens");
    db.migrate().await.expect("migrates");
    db.write(|tx| Box::pin(async move { agents::create(tx, &slug("a"), "x", "t").await })).await.expect("writes");
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("is there").permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    for suffix in ["", "-wal", "-shm"] {
        assert_eq!(mode(&path.with_file_name(format!("formation.db{suffix}"))), 0o600, "{suffix}");
    }
    // A file that was made with wider rights loses them.
    db.close().await;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("changed");
    let again = Db::open(&Location::Sqlite(path.clone()), TimeSource::Process(Clock::frozen(START).0), Entropy::counting(2)).await;
    again.expect("opens again").close().await;
    assert_eq!(mode(&path), 0o600);
}

#[tokio::test]
async fn what_cannot_be_opened_says_what_to_do() {
    let time = || TimeSource::Process(Clock::frozen(START).0);
    let nowhere = Location::Sqlite("/nonexistent/formation.db".into());
    let refused = Db::open(&nowhere, time(), Entropy::counting(1)).await.expect_err("no such folder");
    assert!(matches!(refused, OpenError::File { .. }));
    assert!(refused.to_string().contains("check that its folder exists"), "{refused}");
    let refused =
        Db::open(&Location::parse("postgres://localhost:port/db"), time(), Entropy::counting(1)).await.expect_err("no address");
    assert_eq!(refused, OpenError::Address);
    let nobody = Location::parse("postgres://me:hunter2@127.0.0.1:1/none");
    let refused = Db::open(&nobody, time(), Entropy::counting(1)).await.expect_err("nobody listens");
    assert!(matches!(&refused, OpenError::Store(error) if error.is_unavailable()), "{refused:?}");
    assert!(!format!("{refused} {refused:?}").contains("hunter2"));
}

/// The settings the ledger relies on, read back from the engine.
#[test]
fn sqlite_is_set_for_a_ledger() {
    formation_testkit::databases::run(formation_testkit::databases::Backend::Sqlite, |test| async move {
        let settings = test.db.sqlite_settings().await.expect("asked").expect("it is SQLite");
        assert_eq!(
            settings,
            ["wal".to_owned(), "2".into(), "1".into(), "1".into()],
            "journal, synchronous, foreign keys, secure delete"
        );
    });
}
