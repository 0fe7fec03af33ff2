//! Agents, tokens, offers.

use std::time::Duration;

use formation_core::{Binding, Tool};
use formation_store::{
    agents::{self, Created, Slug},
    offers::{self, NewOffer},
    tokens,
};
use formation_testkit::{databases::TestDb, on_both_databases};

use crate::support::Scene;

async fn text_of_token(test: &TestDb, agent: formation_core::AgentId) -> (formation_core::TokenId, String) {
    let minted = test.db.write(move |tx| Box::pin(async move { tokens::mint_agent(tx, agent, "laptop", "host").await }));
    let minted = minted.await.expect("minted");
    (minted.id, std::str::from_utf8(minted.text.expose()).expect("text").to_owned())
}

async fn caller_of(test: &TestDb, presented: &str) -> Option<tokens::TokenCaller> {
    match tokens::lookup(&test.db, presented).await.expect("read")? {
        tokens::Presented::Caller(caller) => Some(caller),
        tokens::Presented::Operator(operator) => panic!("an operator: {operator:?}"),
    }
}

on_both_databases! {
    async fn a_slug_names_one_living_agent(test) {
        let id = test.agent("demo").await;
        let slug = || Slug::parse("demo").expect("a slug");
        let again = test.db.write(move |tx| Box::pin(async move { agents::create(tx, &slug(), "Other", "host").await })).await;
        assert_eq!(again, Ok(Created::SlugTaken));
        assert_eq!(agents::by_slug(&test.db, "demo").await.expect("read").map(|agent| agent.id), Some(id));
        assert_eq!(test.db.write(move |tx| Box::pin(async move { agents::delete(tx, id).await })).await, Ok(true));
        assert_eq!(agents::by_slug(&test.db, "demo").await, Ok(None));
        assert_eq!(agents::by_id(&test.db, id).await, Ok(None));
        assert_ne!(test.agent("demo").await, id, "the word is free again");
        test.agent("aaa").await;
        let listed = agents::list(&test.db, None, 100).await.expect("read");
        assert_eq!(listed.iter().map(|agent| agent.slug.as_str()).collect::<Vec<_>>(), ["aaa", "demo"]);
        assert_eq!(agents::list(&test.db, Some("aaa"), 1).await.expect("read")[0].slug, "demo");
    }

    /// Shown once, stored as a hash, dead when revoked or when its agent is gone.
    async fn a_token_speaks_for_its_agent_until_revoked(test) {
        let agent = test.agent("demo").await;
        let (id, text) = text_of_token(&test, agent).await;
        let caller = caller_of(&test, &text).await.expect("a caller");
        assert_eq!((caller.token, caller.agent, caller.run), (id, agent, None));
        let dump = if test.file().is_some() { "SELECT hex(token_hash) FROM tokens" } else { "SELECT encode(token_hash, 'hex') FROM tokens" };
        assert!(test.texts(dump).await.iter().all(|hash| !text.contains(&hash.to_lowercase())));
        for wrong in ["", "fma_", &text[..67], &format!("{text}0"), &text.replace("fma_", "fmr_"), &format!("fma_{}", "0".repeat(64))] {
            assert_eq!(tokens::lookup(&test.db, wrong).await, Ok(None), "{wrong}");
        }
        let stranger = test.agent("stranger").await;
        let revoke = |agent| test.db.write(move |tx| Box::pin(async move { tokens::revoke(tx, agent, id).await }));
        assert_eq!(revoke(stranger).await, Ok(None), "another agent's token isn't found");
        assert_eq!(revoke(agent).await, Ok(Some(0)));
        assert_eq!(revoke(agent).await, Ok(None), "once");
        assert_eq!(tokens::lookup(&test.db, &text).await, Ok(None));
        assert!(tokens::list(&test.db, agent, None).await.expect("read").items[0].revoked_at.is_some());

        let (_, text) = text_of_token(&test, stranger).await;
        test.db.write(move |tx| Box::pin(async move { agents::delete(tx, stranger).await })).await.expect("deleted");
        assert_eq!(tokens::lookup(&test.db, &text).await, Ok(None), "a deleted agent's token is dead");
    }

    async fn last_use_is_noted_once_a_minute(test) {
        let agent = test.agent("demo").await;
        let (_, text) = text_of_token(&test, agent).await;
        let used = || async { tokens::list(&test.db, agent, None).await.expect("read").items[0].last_used_at };
        assert_eq!(used().await, None);
        tokens::lookup(&test.db, &text).await.expect("read");
        let first = used().await;
        assert!(first.is_some());
        test.hands.forward(Duration::from_secs(59));
        tokens::lookup(&test.db, &text).await.expect("read");
        assert_eq!(used().await, first);
        test.hands.forward(Duration::from_secs(1));
        tokens::lookup(&test.db, &text).await.expect("read");
        assert_ne!(used().await, first);
    }

    /// W17: listing twice records once; new terms record anew; old terms that are in force again become the newest.
    async fn offers_are_recorded_once_per_terms(test) {
        let scene = Scene::new(&test).await;
        let run = scene.run;
        let other = Binding { agent_version: 5, ..scene.binding.clone() };
        let record = |binding: &Binding| {
            let offers: Vec<_> = [Tool::BrowserNavigate, Tool::BrowserRead]
                .map(|tool| NewOffer { tool, schema_version: 1, binding: binding.clone() }).into();
            test.hands.forward(Duration::from_millis(1));
            let db = test.db.clone();
            async move { db.write(move |tx| Box::pin(async move { offers::record(tx, run, &offers).await })).await.expect("recorded") }
        };
        let first = record(&scene.binding).await;
        assert_eq!(record(&scene.binding).await, first);
        assert_eq!(first[0].id, scene.offer);
        let second = record(&other).await;
        assert_ne!(second[0].id, first[0].id);
        let latest = || async { offers::latest(&test.db, run, Tool::BrowserRead).await.expect("read").expect("offered") };
        assert_eq!(latest().await, second[1]);
        assert_eq!(record(&scene.binding).await, first);
        assert_eq!(latest().await, first[1]);
        assert_eq!(offers::newest(&test.db, run).await.expect("read"), first);
        assert_eq!(test.number("SELECT count(*) FROM offers").await, 4);
        assert_eq!(offers::find(&test.db, run, first[0].id).await.expect("read"), Some(first[0].clone()));
        let sibling = scene.sibling().await;
        assert_eq!(offers::find(&test.db, sibling.run, first[0].id).await, Ok(None), "another run's offer isn't found");
        assert_eq!(offers::latest(&test.db, sibling.run, Tool::BrowserRead).await, Ok(None));
    }
}
