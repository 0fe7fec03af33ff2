//! `formation agent`: agents and their tokens, on the database itself.

use formation_core::{AgentId, TokenId, people::Actor};
use formation_store::{
    Db, StoreError,
    agents::{self, Agent, Created, Slug},
    audit, tokens,
};
use serde_json::{Value, json};

use crate::{
    cli::AgentCommand,
    config::Place,
    opening,
    output::{Failure, Output, shown, table},
    wiring::Wiring,
};

/// Who made it, where a person used the host's command line.
const BY: &str = "host";
/// An agent's name for people, and what a token is for.
const NAME_BYTES: usize = 128;

pub(crate) async fn agent(command: &AgentCommand, place: &Place, wiring: &Wiring, output: Output) -> Result<(), Failure> {
    let db = opening::existing(place, wiring).await?;
    let done = match command {
        AgentCommand::Create { slug, name } => create(&db, slug, name.as_deref().unwrap_or(slug), output).await,
        AgentCommand::List => list(&db, output).await,
        AgentCommand::Token { slug, name } => token(&db, slug, name, output).await,
        AgentCommand::Tokens { slug } => tokens(&db, slug, output).await,
        AgentCommand::Revoke { slug, token } => revoke(&db, slug, *token, output).await,
    };
    db.close().await;
    done
}

async fn create(db: &Db, slug: &str, name: &str, output: Output) -> Result<(), Failure> {
    let parsed = Slug::parse(slug).ok_or_else(|| {
        Failure::usage("an agent's slug is 1 to 63 lower-case letters, digits and hyphens, a letter or digit first")
    })?;
    let name = good_name(name)?.to_owned();
    let created = db
        .write(move |tx| {
            Box::pin(async move {
                let created = agents::create(tx, &parsed, &name, BY).await?;
                if let Created::Made(agent) = &created {
                    let detail = json!({ "name": name });
                    audit::done(tx, &Actor::host(), Some(agent.id), "agent.create", &agent.slug, detail).await?;
                }
                Ok::<_, StoreError>(created)
            })
        })
        .await
        .map_err(|error| opening::unreadable(&error))?;
    match created {
        Created::Made(agent) => output.answer(&of(&agent), || format!("made the agent `{}`", agent.slug)),
        Created::SlugTaken => Err(Failure::failed(format!("there is an agent `{slug}` already"))),
    }
}

async fn list(db: &Db, output: Output) -> Result<(), Failure> {
    let mut all: Vec<Agent> = Vec::new();
    loop {
        let after = all.last().map(|agent| agent.slug.clone());
        let page = agents::list(db, after.as_deref(), 100).await.map_err(|error| opening::unreadable(&error))?;
        let is_last = page.len() < 100;
        all.extend(page);
        if is_last {
            break;
        }
    }
    let answer: Vec<Value> = all.iter().map(of).collect();
    output.answer(&answer, || {
        let rows: Vec<_> = all
            .iter()
            .map(|agent| vec![agent.slug.clone(), agent.created_at.to_string(), shown(&agent.name, NAME_BYTES)])
            .collect();
        table(&["SLUG", "CREATED", "NAME"], &rows)
    })
}

async fn token(db: &Db, slug: &str, name: &str, output: Output) -> Result<(), Failure> {
    let agent = find(db, slug).await?;
    let name = good_name(name)?.to_owned();
    let minted = db
        .write(move |tx| {
            Box::pin(async move {
                let minted = tokens::mint_agent(tx, agent, &name, BY).await?;
                let (subject, detail) = (minted.id.to_string(), json!({ "name": name }));
                audit::done(tx, &Actor::host(), Some(agent), "agent_token.create", &subject, detail).await?;
                Ok::<_, StoreError>(minted)
            })
        })
        .await
        .map_err(|error| opening::unreadable(&error))?;
    // Shown this once: only its hash is stored.
    let text = String::from_utf8_lossy(minted.text.expose()).into_owned();
    output.answer(&json!({"id": minted.id, "token": text}), || text.clone())?;
    if !output.is_json {
        output.remark(&format!("token {} of agent `{slug}`, shown this once", minted.id));
    }
    Ok(())
}

async fn tokens(db: &Db, slug: &str, output: Output) -> Result<(), Failure> {
    let agent = find(db, slug).await?;
    let mut all = Vec::new();
    loop {
        let after = all.last().map(|token: &tokens::TokenRow| token.id);
        let page = tokens::list(db, agent, after).await.map_err(|error| opening::unreadable(&error))?;
        all.extend(page.items);
        if !page.has_more {
            break;
        }
    }
    let answer: Vec<Value> = all
        .iter()
        .map(|token| {
            json!({"id": token.id, "name": token.name, "created_at": token.created_at, "last_used_at": token.last_used_at,
                "revoked_at": token.revoked_at})
        })
        .collect();
    output.answer(&answer, || {
        let rows: Vec<_> = all
            .iter()
            .map(|token| {
                let used = token.last_used_at.map_or_else(|| "never".to_owned(), |at| at.to_string());
                let state = token.revoked_at.map_or_else(|| "good".to_owned(), |at| format!("revoked {at}"));
                vec![token.id.to_string(), token.created_at.to_string(), used, state, shown(&token.name, NAME_BYTES)]
            })
            .collect();
        table(&["ID", "CREATED", "LAST USED", "STATE", "NAME"], &rows)
    })
}

async fn revoke(db: &Db, slug: &str, token: TokenId, output: Output) -> Result<(), Failure> {
    let agent = find(db, slug).await?;
    let revoked = db
        .write(move |tx| {
            Box::pin(async move {
                let runs_ended = tokens::revoke(tx, agent, token).await?;
                if let Some(runs_ended) = runs_ended {
                    let detail = json!({ "runs_ended": runs_ended });
                    audit::done(tx, &Actor::host(), Some(agent), "agent_token.revoke", &token.to_string(), detail).await?;
                }
                Ok::<_, StoreError>(runs_ended)
            })
        })
        .await
        .map_err(|error| opening::unreadable(&error))?;
    let Some(runs_ended) = revoked else {
        return Err(Failure::failed(format!("agent `{slug}` has no good token `{token}`"))
            .hint(format!("`formation agent tokens {slug}` lists them")));
    };
    output.answer(&json!({"id": token, "revoked": true, "runs_ended": runs_ended}), || {
        let ended = match runs_ended {
            0 => String::new(),
            1 => "; its open run is over".to_owned(),
            many => format!("; its {many} open runs are over"),
        };
        format!("revoked token {token} of agent `{slug}`{ended}")
    })
}

async fn find(db: &Db, slug: &str) -> Result<AgentId, Failure> {
    let agent = agents::by_slug(db, slug).await.map_err(|error| opening::unreadable(&error))?;
    agent.map(|agent| agent.id).ok_or_else(|| {
        Failure::failed(format!("there is no agent `{}`", shown(slug, 63))).hint("`formation agent list` lists them")
    })
}

fn good_name(name: &str) -> Result<&str, Failure> {
    let is_good = (1..=NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control);
    if is_good { Ok(name) } else { Err(Failure::usage("a name is 1 to 128 bytes without control characters")) }
}

fn of(agent: &Agent) -> Value {
    json!({"id": agent.id, "slug": agent.slug, "name": agent.name, "created_at": agent.created_at})
}
