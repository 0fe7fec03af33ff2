//! S-16 on real rows: what is moved, changed or opened with another key stays shut.

use std::time::Instant;

use formation_core::{AgentId, Entropy, Scope, Secret, SecretId};
use formation_store::{
    keys::KeyError,
    seal::{CannotOpen, MasterKeys},
    secrets::{self, SecretError},
};
use formation_testkit::{databases::TestDb, on_both_databases};

fn keys(seed: u64) -> MasterKeys {
    let text = MasterKeys::generate(&Entropy::counting(seed));
    MasterKeys::parse(std::str::from_utf8(text.expose()).expect("text")).expect("its own form")
}

async fn put(test: &TestDb, owner: Scope, kind: &'static str, value: &'static str) -> SecretId {
    let put = test
        .db
        .write(move |tx| Box::pin(async move { secrets::put(tx, &keys(1), owner, kind, &Secret::new(value.as_bytes())).await }));
    put.await.expect("stored")
}

async fn open(test: &TestDb, owner: Scope, kind: &'static str, id: SecretId) -> Result<Vec<u8>, SecretError> {
    secrets::open(&test.db, &keys(1), owner, kind, id).await.map(|secret| secret.expose().to_vec())
}

on_both_databases! {
    async fn bar_s16_a_row_moved_to_another_owner_kind_id_or_revision_stays_shut(test) {
        keys(1).fit(&test.db).await.expect("the first key is entered");
        let (mine, other) = (Scope::Agent(AgentId::fixed(1)), Scope::Agent(AgentId::fixed(2)));
        let id = put(&test, mine, "vendor_key", "value one").await;
        let second = put(&test, mine, "vendor_key", "value two").await;
        assert_eq!(open(&test, mine, "vendor_key", id).await, Ok(b"value one".to_vec()));
        // Not found for anybody else, as it stands.
        assert_eq!(open(&test, other, "vendor_key", id).await, Err(SecretError::Absent));
        assert_eq!(open(&test, mine, "vault", id).await, Err(SecretError::Absent));

        let shut = Err(SecretError::Sealed(CannotOpen::Damaged));
        test.meddle(&format!("UPDATE secrets SET owner = '{other}' WHERE id = '{id}'")).await;
        assert_eq!(open(&test, other, "vendor_key", id).await, shut);
        test.meddle(&format!("UPDATE secrets SET owner = '{mine}', kind = 'vault' WHERE id = '{id}'")).await;
        assert_eq!(open(&test, mine, "vault", id).await, shut);
        test.meddle(&format!("UPDATE secrets SET kind = 'vendor_key', revision = 2 WHERE id = '{id}'")).await;
        assert_eq!(open(&test, mine, "vendor_key", id).await, shut);
        test.meddle(&format!("UPDATE secrets SET revision = 1 WHERE id = '{id}'")).await;
        assert_eq!(open(&test, mine, "vendor_key", id).await, Ok(b"value one".to_vec()), "everything is back");
        // The sealed columns of one row in another.
        test.meddle(&format!("UPDATE secrets SET wrapped_key = (SELECT wrapped_key FROM secrets WHERE id = '{second}'), \
            sealed = (SELECT sealed FROM secrets WHERE id = '{second}') WHERE id = '{id}'")).await;
        assert_eq!(open(&test, mine, "vendor_key", id).await, shut);
    }

    async fn a_replaced_secret_does_not_open_from_its_old_bytes(test) {
        keys(1).fit(&test.db).await.expect("the first key is entered");
        let owner = Scope::Install;
        let id = put(&test, owner, "vendor_key", "old").await;
        test.meddle("CREATE TABLE kept AS SELECT * FROM secrets").await;
        let replaced = test.db.write(move |tx| Box::pin(async move {
            secrets::replace(tx, &keys(1), owner, "vendor_key", id, &Secret::new(*b"new")).await
        })).await;
        assert_eq!(replaced, Ok(true));
        assert_eq!(open(&test, owner, "vendor_key", id).await, Ok(b"new".to_vec()));
        test.meddle("UPDATE secrets SET wrapped_key = (SELECT wrapped_key FROM kept), sealed = (SELECT sealed FROM kept)").await;
        assert_eq!(open(&test, owner, "vendor_key", id).await, Err(SecretError::Sealed(CannotOpen::Damaged)));
    }

    /// S-16: a wrong or missing master key is noticed at the start, within two seconds, in a sentence that says what to do.
    async fn bar_s16_a_wrong_key_refuses_to_start(test) {
        keys(1).fit(&test.db).await.expect("the first key is entered");
        keys(1).fit(&test.db).await.expect("and fits again");
        let started = Instant::now();
        let refused = keys(2).fit(&test.db).await.expect_err("another key");
        assert!(started.elapsed().as_secs() < 2);
        assert_eq!(refused, KeyError::Missing(keys(1).current().to_string()));
        let text = refused.to_string();
        assert!(text.contains("FORMATION_MASTER_KEY") && text.contains("key file"), "{text}");
        assert_eq!(test.number("SELECT count(*) FROM master_keys").await, 1, "a refused key isn't entered");
        // Somebody wrote another value under this key's name.
        let zero = if test.file().is_some() { "x'00'" } else { "'\\x00'" };
        test.meddle(&format!("UPDATE master_keys SET check_value = {zero}")).await;
        let refused = keys(1).fit(&test.db).await.expect_err("not what it was");
        assert!(matches!(refused, KeyError::Wrong(_)) && refused.to_string().contains("does not fit this database"), "{refused}");
    }

    async fn an_old_key_beside_the_new_one_fits(test) {
        keys(1).fit(&test.db).await.expect("the first key");
        let text = |seed| String::from_utf8(MasterKeys::generate(&Entropy::counting(seed)).expose().to_vec()).expect("text");
        let both = MasterKeys::parse(&format!("{}\n{}", text(2), text(1))).expect("two keys");
        both.fit(&test.db).await.expect("both are at hand");
        assert_eq!(test.number("SELECT count(*) FROM master_keys").await, 2);
        assert!(keys(1).fit(&test.db).await.is_err(), "from now on both are needed");
    }
}
