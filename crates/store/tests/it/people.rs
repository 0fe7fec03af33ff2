//! Operators, their sessions, tokens, access, set-up links and failed sign-ins.

use std::time::Duration;

use formation_core::{
    OperatorId,
    people::{Reach, Role},
};
use formation_store::{
    News, StoreError,
    agents::{self, Slug},
    login_attempts, operator_sessions,
    operators::{self, Changed, Created, Operator},
    setup_links, tokens,
};
use formation_testkit::{databases::TestDb, on_both_databases};

async fn made(test: &TestDb, name: &'static str, role: Role) -> Operator {
    let created = test.db.write(move |tx| Box::pin(async move { operators::create(tx, name, role, "hash").await })).await;
    match created.expect("an operator can be made") {
        Created::Made(operator) => operator,
        Created::NameTaken => panic!("the name is taken"),
    }
}

async fn disabled(test: &TestDb, id: OperatorId, off: bool) -> Changed {
    let write = test.db.write(move |tx| Box::pin(async move { operators::set_disabled(tx, id, off).await }));
    write.await.expect("an operator can be changed")
}

async fn deleted(test: &TestDb, id: OperatorId) -> Changed {
    test.db.write(move |tx| Box::pin(async move { operators::delete(tx, id).await })).await.expect("an operator can be deleted")
}

async fn session(test: &TestDb, id: OperatorId) -> String {
    let opened = test.db.write(move |tx| Box::pin(async move { operator_sessions::open(tx, id).await })).await.expect("a session");
    String::from_utf8(opened.expose().to_vec()).expect("text")
}

async fn token(test: &TestDb, id: OperatorId) -> (formation_core::TokenId, String) {
    let minted = test.db.write(move |tx| Box::pin(async move { tokens::mint_operator(tx, id, "laptop", "host").await }));
    let minted = minted.await.expect("minted");
    (minted.id, String::from_utf8(minted.text.expose().to_vec()).expect("text"))
}

async fn is_good(test: &TestDb, presented: &str) -> bool {
    tokens::lookup(&test.db, presented).await.expect("read").is_some()
}

async fn lives(test: &TestDb, session: &str) -> bool {
    operator_sessions::lookup(&test.db, session).await.expect("read").is_some()
}

on_both_databases! {
    async fn a_name_is_one_person_s_whatever_its_capitals(test) {
        let owner = made(&test, "Owner", Role::Owner).await;
        let again = test.db.write(|tx| Box::pin(async move { operators::create(tx, "oWNER", Role::Member, "x").await })).await;
        assert_eq!(again, Ok(Created::NameTaken));
        let (found, hash) = operators::by_name(&test.db, "OWNER").await.expect("read").expect("found");
        assert_eq!((found.id, found.name.as_str(), hash.as_str()), (owner.id, "Owner", "hash"));
        assert_eq!(operators::by_name(&test.db, "nobody").await, Ok(None));
        test.hands.forward(Duration::from_millis(1));
        let second = made(&test, "Second", Role::Member).await;
        let listed = operators::list(&test.db, None).await.expect("read");
        assert_eq!(listed.items.iter().map(|one| one.id).collect::<Vec<_>>(), [second.id, owner.id]);
        assert_eq!(operators::list(&test.db, Some(second.id)).await.expect("read").items.len(), 1);
    }

    async fn the_last_enabled_owner_stays(test) {
        assert_eq!(operators::has_owner(&test.db).await, Ok(false));
        let one = made(&test, "One", Role::Owner).await.id;
        let member = made(&test, "Member", Role::Member).await.id;
        assert_eq!(disabled(&test, one, true).await, Changed::LastOwner);
        assert_eq!(deleted(&test, one).await, Changed::LastOwner);
        let two = made(&test, "Two", Role::Owner).await.id;
        assert!(matches!(disabled(&test, two, true).await, Changed::Done(_)));
        assert_eq!(deleted(&test, one).await, Changed::LastOwner, "a disabled one doesn't count");
        assert!(matches!(disabled(&test, two, false).await, Changed::Done(_)));
        assert!(matches!(deleted(&test, one).await, Changed::Done(_)));
        assert!(matches!(deleted(&test, member).await, Changed::Done(_)));
        assert_eq!(deleted(&test, member).await, Changed::Missing);
        assert_eq!(disabled(&test, OperatorId::fixed(7), true).await, Changed::Missing);
        assert_eq!(operators::has_owner(&test.db).await, Ok(true));
    }

    /// Two owners who remove each other at once: one of them stays.
    async fn two_owners_do_not_remove_each_other(test) {
        for round in 0..5 {
            let ids = test.db.write(move |tx| Box::pin(async move {
                let mut ids = Vec::new();
                for name in [format!("a{round}"), format!("b{round}")] {
                    if let Created::Made(one) = operators::create(tx, &name, Role::Owner, "x").await? {
                        ids.push(one.id);
                    }
                }
                Ok::<_, StoreError>(ids)
            })).await.expect("made");
            // Whoever was left from the round before goes first.
            for old in operators::list(&test.db, None).await.expect("read").items {
                if !ids.contains(&old.id) {
                    deleted(&test, old.id).await;
                }
            }
            let (other, first, second) = (test.replica().await, ids[0], ids[1]);
            let (one, two) = tokio::join!(deleted(&test, first), disabled(&other, second, true));
            let done = [one, two].iter().filter(|changed| matches!(changed, Changed::Done(_))).count();
            assert_eq!(done, 1, "round {round}");
        }
    }

    /// Disabling ends sessions for good and tokens for as long as it lasts; deleting ends both.
    async fn nothing_of_a_disabled_operator_opens_anything(test) {
        made(&test, "Owner", Role::Owner).await;
        let member = made(&test, "Member", Role::Member).await.id;
        let agent = test.agent("demo").await;
        test.give(agent, member).await;
        let cookie = session(&test, member).await;
        let (id, text) = token(&test, member).await;
        let found = operator_sessions::lookup(&test.db, &cookie).await.expect("read").expect("a session");
        assert_eq!((found.operator, found.role, found.token, found.name.as_str()), (member, Role::Member, None, "Member"));
        let tokens::Presented::Operator(found) = tokens::lookup(&test.db, &text).await.expect("read").expect("a token") else { panic!("an operator's") };
        assert_eq!((found.operator, found.role, found.token), (member, Role::Member, Some(id)));

        let mut heard = test.db.listen();
        disabled(&test, member, true).await;
        assert_eq!(tokio::time::timeout(Duration::from_secs(5), heard.next()).await, Ok(News::People));
        assert!(!lives(&test, &cookie).await && !is_good(&test, &text).await);
        disabled(&test, member, false).await;
        assert!(!lives(&test, &cookie).await, "an ended session stays ended");
        assert!(is_good(&test, &text).await);

        let (other, second) = token(&test, member).await;
        let stranger = made(&test, "Stranger", Role::Member).await.id;
        let revoke = |whose| test.db.write(move |tx| Box::pin(async move { tokens::revoke_of_operator(tx, whose, other).await }));
        assert_eq!(revoke(stranger).await, Ok(false), "another operator's token isn't found");
        assert_eq!(revoke(member).await, Ok(true));
        assert!(!is_good(&test, &second).await && is_good(&test, &text).await);
        assert_eq!(tokens::list_of_operator(&test.db, member, None).await.expect("read").items.len(), 2);

        deleted(&test, member).await;
        assert!(!is_good(&test, &text).await);
        assert_eq!(test.number("SELECT count(*) FROM tokens WHERE kind = 'operator'").await, 0);
        assert_eq!(operators::given(&test.db, agent).await, Ok(vec![]));
    }

    /// S-11: over after 12 hours without use, after seven days whatever happens; only the hash is stored.
    async fn bar_s11_a_session_ends_by_itself(test) {
        let owner = made(&test, "Owner", Role::Owner).await.id;
        let (idle, used) = (session(&test, owner).await, session(&test, owner).await);
        let dump = if test.file().is_some() { "SELECT hex(token_hash) FROM operator_sessions" } else { "SELECT encode(token_hash, 'hex') FROM operator_sessions" };
        assert!(test.texts(dump).await.iter().all(|hash| hash.len() == 64 && hash.to_lowercase() != idle));
        for wrong in ["", &idle[..63], &format!("{idle}0"), &idle.to_uppercase(), &"0".repeat(64)] {
            assert!(!lives(&test, wrong).await, "{wrong}");
        }
        for _ in 0..13 {
            assert!(lives(&test, &used).await);
            test.hands.forward(Duration::from_hours(11));
        }
        assert!(!lives(&test, &idle).await);
        test.hands.forward(Duration::from_hours(12));
        assert!(lives(&test, &session(&test, owner).await).await);
        for _ in 0..2 {
            assert!(!lives(&test, &used).await, "12 hours without use");
        }
        let cut = session(&test, owner).await;
        for _ in 0..17 {
            assert!(lives(&test, &cut).await);
            test.hands.forward(Duration::from_hours(10));
        }
        assert!(!lives(&test, &cut).await, "seven days");
        let ended = test.db.write(move |tx| Box::pin(async move { operator_sessions::end(tx, &used).await })).await;
        assert_eq!(ended, Ok(true));
        formation_store::sweep::round(&test.db).await.expect("a sweep");
        assert_eq!(test.number("SELECT count(*) FROM operator_sessions").await, 0);
    }

    async fn a_set_up_link_works_once_and_ends_the_others(test) {
        let make = || test.db.write(|tx| Box::pin(async move { setup_links::make(tx).await }));
        let text = |secret: &formation_core::Secret| String::from_utf8(secret.expose().to_vec()).expect("text");
        let (old, new) = (text(&make().await.expect("made")), text(&make().await.expect("made")));
        let use_up = |link: &str| {
            let link = link.to_owned();
            test.db.write(move |tx| Box::pin(async move { setup_links::use_up(tx, &link).await }))
        };
        assert_eq!(setup_links::is_good(&test.db, &old).await, Ok(true));
        assert_eq!(setup_links::is_good(&test.db, &new).await, Ok(true));
        assert_eq!(use_up(&new).await, Ok(true));
        assert_eq!(use_up(&new).await, Ok(false), "once");
        assert_eq!(setup_links::is_good(&test.db, &old).await, Ok(false));
        assert_eq!(use_up(&old).await, Ok(false));
        let late = text(&make().await.expect("made"));
        test.hands.forward(setup_links::LIFE);
        assert_eq!(use_up(&late).await, Ok(false), "24 hours");
    }

    async fn access_is_replaced_whole_and_bounds_what_is_found(test) {
        let agent = test.agent("demo").await;
        let other = test.agent("other").await;
        let (one, two) = (made(&test, "One", Role::Member).await.id, made(&test, "Two", Role::Member).await.id);
        let give = |agent, to: Vec<OperatorId>| test.db.write(move |tx| Box::pin(async move { operators::give(tx, agent, &to, "host").await }));
        let found = async |who: OperatorId, slug: &str| {
            let slug = Slug::parse(slug).expect("a slug");
            agents::within_reach(&test.db, Reach::Given(who), &slug).await.expect("read").map(|agent| agent.id)
        };
        assert_eq!(give(agent, vec![one, two]).await, Ok(Ok(())));
        assert_eq!(give(agent, vec![two, two]).await, Ok(Ok(())));
        assert_eq!(found(one, "demo").await, None);
        assert_eq!(found(two, "demo").await, Some(agent));
        assert_eq!(found(two, "other").await, None);
        assert_eq!(give(agent, vec![one, OperatorId::fixed(9)]).await, Ok(Err(OperatorId::fixed(9))));
        assert_eq!(operators::given(&test.db, agent).await.expect("read").len(), 1, "nothing was changed");
        assert_eq!(give(other, vec![]).await, Ok(Ok(())));
        let slug = Slug::parse("other").expect("a slug");
        assert_eq!(agents::within_reach(&test.db, Reach::Everything, &slug).await.expect("read").map(|agent| agent.id), Some(other));
    }

    /// Counted in a row, forgotten after a day, each subject by itself.
    async fn failures_are_counted_per_subject(test) {
        let fail = |subject: &'static str| {
            test.db.write(move |tx| Box::pin(async move {
                login_attempts::failed(tx, subject, |nth| Duration::from_secs(u64::try_from(nth).unwrap_or(0))).await
            }))
        };
        let until = async |subject: &str| login_attempts::blocked_until(&test.db, subject).await.expect("read");
        let start = test.db.now().await.expect("time");
        for nth in 1..=3 {
            fail("one").await.expect("counted");
            assert_eq!(until("one").await, Some(start.after(Duration::from_secs(nth))));
        }
        assert_eq!(until("two").await, None);
        test.hands.forward(Duration::from_secs(3));
        assert_eq!(until("one").await, None);
        test.hands.forward(login_attempts::FORGOTTEN_AFTER);
        fail("one").await.expect("counted");
        let now = test.db.now().await.expect("time");
        assert_eq!(until("one").await, Some(now.after(Duration::from_secs(1))), "the first again");
        test.db.write(|tx| Box::pin(async move { login_attempts::forgive(tx, "one").await })).await.expect("forgiven");
        assert_eq!(until("one").await, None);
        test.db.write(|tx| Box::pin(async move { login_attempts::remember(tx, "pair").await })).await.expect("remembered");
        fail("two").await.expect("counted");
        assert_eq!(login_attempts::is_known(&test.db, "pair").await, Ok(true));
        assert_eq!(login_attempts::is_known(&test.db, "two").await, Ok(false));
        test.hands.forward(login_attempts::FORGOTTEN_AFTER);
        formation_store::sweep::round(&test.db).await.expect("a sweep");
        assert_eq!(test.texts("SELECT subject FROM login_attempts").await, ["pair"]);
    }
}
