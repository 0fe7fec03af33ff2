//! Operators of a server under test, and clients that speak for them.

use formation_core::{AgentId, OperatorId, Secret, people::Role};
use formation_store::{agents, operators, tokens};

use crate::{databases::TestDb, http::Client};

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
                // Not a hash: nobody signs in with it.
                let operators::Created::Made(operator) = operators::create(tx, &name, role, "none").await? else {
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
