//! Operators of a server under test, and clients that speak for them.

use std::sync::OnceLock;

use anyhow::{Context as _, ensure};
use formation_core::{AgentId, Entropy, OperatorId, Secret, people::Role};
use formation_runtime::people::hash_password;
use formation_store::{agents, operators, tokens};
use http::Method;
use serde_json::json;

use crate::{
    databases::TestDb,
    http::{Client, Reply, send},
};

/// What every operator of these signs in with.
pub const PASSWORD: &str = "a long enough word";

/// A person and a client with an operator token of theirs.
#[derive(Debug, Clone)]
pub struct Person {
    /// Who.
    pub id: OperatorId,
    /// What they send: a token of theirs as Bearer.
    pub client: Client,
}

impl TestDb {
    /// Makes an owner whose client talks to the server of `client`.
    pub async fn owner(&self, client: &Client, name: &str) -> Person {
        self.person(client, name, Role::Owner).await
    }

    /// Makes a member who manages the agents of these slugs.
    pub async fn member(&self, client: &Client, name: &str, slugs: &[&str]) -> Person {
        let person = self.person(client, name, Role::Member).await;
        for slug in slugs {
            let agent = agents::by_slug(&self.db, slug).await.expect("agents can be read").expect("the agent is there");
            self.give(agent.id, person.id).await;
        }
        person
    }

    /// Lets a member manage one more agent.
    pub async fn give(&self, agent: AgentId, member: OperatorId) {
        let mut given: Vec<_> =
            operators::given(&self.db, agent).await.expect("access can be read").into_iter().map(|one| one.id).collect();
        given.push(member);
        let write = self.db.write(move |tx| Box::pin(async move { operators::give(tx, agent, &given, "test").await }));
        write.await.expect("access can be written").expect("the member is there");
    }

    async fn person(&self, client: &Client, name: &str, role: Role) -> Person {
        let name = name.to_owned();
        let write = self.db.write(move |tx| {
            Box::pin(async move {
                let operators::Created::Made(operator) = operators::create(tx, &name, role, password_hash()).await? else {
                    panic!("the test makes one operator twice")
                };
                let minted = tokens::mint_operator(tx, operator.id, "test", "test").await?;
                Ok::<_, formation_store::StoreError>((operator.id, minted.text))
            })
        });
        let (id, token) = write.await.expect("an operator can be made");
        Person { id, client: client.with_token(&shown(&token)) }
    }
}

fn shown(token: &Secret) -> String {
    String::from_utf8_lossy(token.expose()).into_owned()
}

/// Made once a process: it takes its time.
fn password_hash() -> &'static str {
    static HASH: OnceLock<String> = OnceLock::new();
    HASH.get_or_init(|| hash_password(&Secret::new(PASSWORD.as_bytes().to_vec()), &Entropy::counting(7)))
}

/// A page of ours in somebody's browser: it sends the cookie, an Origin and the session's word.
#[derive(Debug, Clone)]
pub struct Page {
    client: Client,
    /// The whole cookie: name, equals sign, value.
    pub cookie: String,
    /// What changes send in `X-Formation-Csrf`.
    pub csrf: String,
}

impl Page {
    /// Signs in with name and password.
    pub async fn sign_in(client: &Client, name: &str, password: &str) -> anyhow::Result<Self> {
        let reply = try_sign_in(client, name, password, None).await?;
        ensure!(reply.status == 200, "not signed in: {reply:?}");
        Self::of(client, &reply)
    }

    /// The page that got this answer to a sign-in or set-up.
    pub fn of(client: &Client, reply: &Reply) -> anyhow::Result<Self> {
        let cookie = reply.header("set-cookie").split(';').next().context("a cookie is set")?.to_owned();
        let csrf = reply.json()["csrf"].as_str().context("a session has its word")?.to_owned();
        Ok(Self { client: client.clone(), cookie, csrf })
    }

    /// A request of this page, with all it needs.
    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.client.request(method, path).header("cookie", &self.cookie);
        request.header("origin", self.client.url()).header("x-formation-csrf", &self.csrf)
    }
}

/// One attempt to sign in, from the address `source` if it is named.
pub async fn try_sign_in(client: &Client, name: &str, password: &str, source: Option<&str>) -> anyhow::Result<Reply> {
    let mut request = client.request(Method::POST, "/api/session").header("origin", client.url());
    if let Some(source) = source {
        request = request.header("x-forwarded-for", source);
    }
    send(request.json(&json!({"name": name, "password": password}))).await
}
