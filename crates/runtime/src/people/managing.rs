//! Operators, agents, their tokens and who may manage whom: each change with its line in the audit trail, in one transaction.

use formation_core::Secret;
use formation_core::{
    AgentId, OperatorId, TokenId,
    people::{Actor, Role},
};
use formation_store::{
    Page, StoreError,
    agents::{self, Agent, RunDefaults, Slug},
    audit, operators,
    tokens::{self, Minted, TokenRow},
};
use serde_json::json;

use super::{Operator, OperatorRow};
use crate::{Runtime, RuntimeError};

/// Why nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// Absent, or not theirs.
    #[error("there is no such thing")]
    NotFound,
    /// Another operator has the name.
    #[error("the name is taken")]
    NameTaken,
    /// Another agent has the slug.
    #[error("the slug is taken")]
    SlugTaken,
    /// The install would be left without an owner.
    #[error("the last owner stays")]
    LastOwner,
    /// Not a slug.
    #[error("not a slug")]
    NoSlug,
    /// A list names an operator nobody is.
    #[error("no such operator")]
    NoSuchOperator,
    /// The database didn't do it.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

impl From<StoreError> for ChangeError {
    fn from(error: StoreError) -> Self {
        Self::Runtime(error.into())
    }
}

/// A new agent. Bounds are the caller's to check, the slug's aside.
#[derive(Debug, Clone)]
pub struct NewAgent {
    /// Its word in addresses.
    pub slug: String,
    /// Its name, for people.
    pub name: String,
    /// Bounds of its implicit runs; the install's without them.
    pub run_defaults: Option<RunDefaults>,
}

/// What to change of an agent; what is `None` stays.
#[derive(Debug, Clone, Default)]
pub struct AgentChange {
    /// Its name.
    pub name: Option<String>,
    /// Bounds of its implicit runs.
    pub run_defaults: Option<RunDefaults>,
}

/// Operators.
impl Runtime {
    /// Operators, newest first, those before `after`; 100 a page.
    pub async fn operators(&self, after: Option<OperatorId>) -> Result<Page<OperatorRow>, RuntimeError> {
        Ok(operators::list(&self.0.db, after).await?)
    }

    /// Makes an operator. Bounds of name and password are the caller's to check.
    pub async fn make_operator(
        &self,
        actor: &Actor,
        name: String,
        role: Role,
        password: Secret,
    ) -> Result<OperatorRow, ChangeError> {
        let hash = self.0.passwords.hash(password).await?;
        let actor = actor.clone();
        let write = self.0.db.write(move |tx| {
            Box::pin(async move {
                let operators::Created::Made(made) = operators::create(tx, &name, role, &hash).await? else {
                    return Err(ChangeError::NameTaken);
                };
                audit::done(tx, &actor, None, "operator.create", &made.id.to_string(), json!({"name": made.name, "role": role}))
                    .await?;
                Ok(made)
            })
        });
        write.await
    }

    /// Disables an operator, which ends their sessions and kills their tokens at once, or enables them.
    pub async fn disable_operator(&self, actor: &Actor, id: OperatorId, disabled: bool) -> Result<OperatorRow, ChangeError> {
        let actor = actor.clone();
        let write = self.0.db.write(move |tx| {
            Box::pin(async move {
                let changed = changed(operators::set_disabled(tx, id, disabled).await?)?;
                audit::done(
                    tx,
                    &actor,
                    None,
                    "operator.change",
                    &id.to_string(),
                    json!({"name": changed.name, "disabled": disabled}),
                )
                .await?;
                Ok(changed)
            })
        });
        write.await
    }

    /// Deletes an operator with everything that speaks for them.
    pub async fn delete_operator(&self, actor: &Actor, id: OperatorId) -> Result<(), ChangeError> {
        let actor = actor.clone();
        let write = self.0.db.write(move |tx| {
            Box::pin(async move {
                let deleted = changed(operators::delete(tx, id).await?)?;
                audit::done(tx, &actor, None, "operator.delete", &id.to_string(), json!({"name": deleted.name})).await?;
                Ok(())
            })
        });
        write.await
    }

    /// An operator's own tokens, newest first, those before `after`; 100 a page.
    pub async fn operator_tokens(&self, operator: OperatorId, after: Option<TokenId>) -> Result<Page<TokenRow>, RuntimeError> {
        Ok(tokens::list_of_operator(&self.0.db, operator, after).await?)
    }

    /// Makes a token that can do what its operator can.
    pub async fn make_operator_token(&self, actor: &Actor, operator: &Operator, name: String) -> Result<Minted, ChangeError> {
        let (actor, operator) = (actor.clone(), operator.id);
        let write = self.0.db.write(move |tx| {
            Box::pin(async move {
                let minted = tokens::mint_operator(tx, operator, &name, &operator.to_string()).await?;
                audit::done(tx, &actor, None, "token.create", &minted.id.to_string(), json!({ "name": name })).await?;
                Ok(minted)
            })
        });
        write.await
    }

    /// Ends one of an operator's own tokens.
    pub async fn revoke_operator_token(&self, actor: &Actor, operator: OperatorId, token: TokenId) -> Result<(), ChangeError> {
        let actor = actor.clone();
        let write = self.0.db.write(move |tx| {
            Box::pin(async move {
                if !tokens::revoke_of_operator(tx, operator, token).await? {
                    return Err(ChangeError::NotFound);
                }
                audit::done(tx, &actor, None, "token.revoke", &token.to_string(), json!({})).await?;
                Ok(())
            })
        });
        write.await
    }
}

/// Agents.
impl Runtime {
    /// The agents an operator manages, newest first, those before `after`; 100 a page.
    pub async fn agents(&self, operator: &Operator, after: Option<AgentId>) -> Result<Page<Agent>, RuntimeError> {
        Ok(agents::page(&self.0.db, operator.reach(), after).await?)
    }

    /// Makes an agent.
    pub async fn make_agent(&self, actor: &Actor, new: NewAgent) -> Result<Agent, ChangeError> {
        let slug = Slug::parse(&new.slug).ok_or(ChangeError::NoSlug)?;
        let actor = actor.clone();
        let write = self.0.db.write(move |tx| {
            Box::pin(async move {
                let by = actor.id.as_deref().unwrap_or(&actor.name);
                let agents::Created::Made(made) = agents::create(tx, &slug, &new.name, by).await? else {
                    return Err(ChangeError::SlugTaken);
                };
                let made = agents::update(tx, made.id, &new.name, new.run_defaults.as_ref()).await?.unwrap_or(made);
                audit::done(tx, &actor, Some(made.id), "agent.create", slug.as_str(), json!({ "name": new.name })).await?;
                Ok(made)
            })
        });
        write.await
    }

    /// Changes an agent; answers it as it is now.
    pub async fn change_agent(&self, actor: &Actor, agent: &Agent, change: AgentChange) -> Result<Agent, ChangeError> {
        let (actor, agent) = (actor.clone(), agent.clone());
        let write = self.0.db.write(move |tx| {
            Box::pin(async move {
                let (name, defaults) = (change.name.unwrap_or(agent.name), change.run_defaults);
                let changed = agents::update(tx, agent.id, &name, defaults.as_ref()).await?.ok_or(ChangeError::NotFound)?;
                let detail = json!({"name": name, "run_defaults": defaults});
                audit::done(tx, &actor, Some(agent.id), "agent.change", &agent.slug, detail).await?;
                Ok(changed)
            })
        });
        write.await
    }

    /// Deletes an agent: its tokens are dead and its open runs over at once. Its ledger stays.
    pub async fn delete_agent(&self, actor: &Actor, agent: &Agent) -> Result<(), ChangeError> {
        let (actor, agent) = (actor.clone(), agent.clone());
        let write = self.0.db.write(move |tx| {
            Box::pin(async move {
                if !agents::delete(tx, agent.id).await? {
                    return Err(ChangeError::NotFound);
                }
                audit::done(tx, &actor, Some(agent.id), "agent.delete", &agent.slug, json!({ "name": agent.name })).await?;
                Ok(())
            })
        });
        write.await?;
        self.0.wake_sweeper();
        Ok(())
    }

    /// The members who manage the agent, by name. Owners manage every agent and aren't listed.
    pub async fn access(&self, agent: &Agent) -> Result<Vec<OperatorRow>, RuntimeError> {
        Ok(operators::given(&self.0.db, agent.id).await?)
    }

    /// Lets exactly these operators manage the agent, owners aside; answers who does now.
    pub async fn set_access(&self, actor: &Actor, agent: &Agent, to: Vec<OperatorId>) -> Result<Vec<OperatorRow>, ChangeError> {
        let (who, id, slug) = (actor.clone(), agent.id, agent.slug.clone());
        let write = self.0.db.write(move |tx| {
            Box::pin(async move {
                let by = who.id.as_deref().unwrap_or(&who.name);
                operators::give(tx, id, &to, by).await?.map_err(|_| ChangeError::NoSuchOperator)?;
                audit::done(tx, &who, Some(id), "agent.access", &slug, json!({ "operators": to })).await?;
                Ok::<_, ChangeError>(())
            })
        });
        write.await?;
        Ok(self.access(agent).await?)
    }

    /// An agent's tokens, newest first, those before `after`; 100 a page.
    pub async fn agent_tokens(&self, agent: &Agent, after: Option<TokenId>) -> Result<Page<TokenRow>, RuntimeError> {
        Ok(tokens::list(&self.0.db, agent.id, after).await?)
    }

    /// Makes a token for an agent.
    pub async fn make_agent_token(&self, actor: &Actor, agent: &Agent, name: String) -> Result<Minted, ChangeError> {
        let (actor, agent) = (actor.clone(), agent.id);
        let write = self.0.db.write(move |tx| {
            Box::pin(async move {
                let by = actor.id.as_deref().unwrap_or(&actor.name);
                let minted = tokens::mint_agent(tx, agent, &name, by).await?;
                let detail = json!({ "name": name });
                audit::done(tx, &actor, Some(agent), "agent_token.create", &minted.id.to_string(), detail).await?;
                Ok(minted)
            })
        });
        write.await
    }

    /// Ends a token of an agent with all that it opened: its runs are over, its MCP sessions and streams end.
    pub async fn revoke_agent_token(&self, actor: &Actor, agent: &Agent, token: TokenId) -> Result<(), ChangeError> {
        let (actor, agent) = (actor.clone(), agent.id);
        let write = self.0.db.write(move |tx| {
            Box::pin(async move {
                let runs_ended = tokens::revoke(tx, agent, token).await?.ok_or(ChangeError::NotFound)?;
                let detail = json!({ "runs_ended": runs_ended });
                audit::done(tx, &actor, Some(agent), "agent_token.revoke", &token.to_string(), detail).await?;
                Ok::<_, ChangeError>(())
            })
        });
        write.await?;
        self.0.wake_sweeper();
        Ok(())
    }
}

fn changed(changed: operators::Changed) -> Result<OperatorRow, ChangeError> {
    match changed {
        operators::Changed::Done(operator) => Ok(operator),
        operators::Changed::Missing => Err(ChangeError::NotFound),
        operators::Changed::LastOwner => Err(ChangeError::LastOwner),
    }
}
