//! Tokens of agents and runs: 256 random bits, shown once, stored as SHA-256 (contract.md 1).

use std::time::Duration;

use formation_core::{AgentId, Entropy, RunId, Secret, Timestamp, TokenId};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::{
    db::{Db, Tx, stored_words},
    error::StoreError,
    seal::to_hex,
};

formation_core::words! {
    /// What a token opens.
    pub enum TokenKind {
        /// Everything of one agent.
        Agent = "agent",
        /// One run.
        Run = "run",
    }
}
stored_words!(TokenKind);

impl TokenKind {
    const fn prefix(self) -> &'static str {
        match self {
            Self::Agent => "fma_",
            Self::Run => "fmr_",
        }
    }
}

/// `last_used_at` is for people; it is written at most this often.
const USE_NOTED_EVERY: Duration = Duration::from_mins(1);
const HEX_DIGITS: usize = 64;

/// A new token.
#[derive(Debug)]
pub struct Minted {
    /// Its row.
    pub id: TokenId,
    /// Its text, which is nowhere else.
    pub text: Secret,
}

/// Who presented a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenCaller {
    /// The token's row: implicit runs and MCP sessions hang on it.
    pub token: TokenId,
    /// The agent it speaks for.
    pub agent: AgentId,
    /// The run it is confined to, with a run token.
    pub run: Option<RunId>,
}

/// A token as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRow {
    /// Its row.
    pub id: TokenId,
    /// What it was called.
    pub name: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last presented, to the minute.
    pub last_used_at: Option<Timestamp>,
    /// Since when it is dead.
    pub revoked_at: Option<Timestamp>,
}

/// Makes a token for an agent. `by` names the actor, for the record.
pub async fn mint_agent(tx: &mut Tx, agent: AgentId, name: &str, by: &str) -> Result<Minted, StoreError> {
    mint(tx, TokenKind::Agent, agent, None, name, by).await
}

/// Makes the token of a run.
pub(crate) async fn mint_run(tx: &mut Tx, agent: AgentId, run: RunId) -> Result<Minted, StoreError> {
    mint(tx, TokenKind::Run, agent, Some(run), "run", "run").await
}

async fn mint(
    tx: &mut Tx,
    kind: TokenKind,
    agent: AgentId,
    run: Option<RunId>,
    name: &str,
    by: &str,
) -> Result<Minted, StoreError> {
    let now = tx.now().await?;
    let id = TokenId::mint(now, tx.entropy());
    let text = fresh_text(kind, tx.entropy());
    let hash = hash_of(text.expose());
    let vals =
        [id.into(), (&hash).into(), kind.into(), name.into(), agent.into(), run.into(), now.into(), by.into()];
    tx.exec(sql::MINT, &vals).await?;
    Ok(Minted { id, text })
}

/// Whose token this is. `None`: nobody's, revoked, or of a deleted agent. The token of a run that is over still names it.
pub async fn lookup(db: &Db, presented: &str) -> Result<Option<TokenCaller>, StoreError> {
    let Some(kind) = kind_of(presented) else { return Ok(None) };
    let hash = hash_of(presented.as_bytes());
    let Some(row) = db.row(sql::LOOKUP, &[(&hash).into(), kind.into()]).await? else { return Ok(None) };
    let stored: Vec<u8> = row.at(0)?;
    if !bool::from(stored.as_slice().ct_eq(&hash)) {
        return Ok(None);
    }
    let caller = TokenCaller { token: row.at(1)?, agent: row.at(2)?, run: row.at(3)? };
    note_use(db, caller.token, row.at(4)?).await?;
    Ok(Some(caller))
}

/// Whether a token that was good still is: not revoked, its agent not deleted. Open streams ask again and again.
pub async fn is_good(db: &Db, token: TokenId) -> Result<bool, StoreError> {
    Ok(db.row(sql::IS_GOOD, &[token.into()]).await?.is_some())
}

/// A token's last use is news once a minute, so that a busy agent costs no write a request.
async fn note_use(db: &Db, token: TokenId, last: Option<Timestamp>) -> Result<(), StoreError> {
    let now = db.now().await?;
    if last.is_some_and(|last| now.since(last) < USE_NOTED_EVERY) {
        return Ok(());
    }
    db.write(move |tx| Box::pin(async move { tx.exec(sql::USED, &[token.into(), now.into()]).await.map(|_| ()) })).await
}

/// Ends one token of this agent. `false`: it has no such living token.
pub async fn revoke(tx: &mut Tx, agent: AgentId, token: TokenId) -> Result<bool, StoreError> {
    let now = tx.now().await?;
    Ok(tx.exec(sql::REVOKE, &[token.into(), agent.into(), now.into()]).await? == 1)
}

/// The agent's long-lived tokens, newest first, at most 100.
pub async fn list(db: &Db, agent: AgentId) -> Result<Vec<TokenRow>, StoreError> {
    let rows = db.rows(sql::LIST, &[agent.into()]).await?;
    rows.iter()
        .map(|row| {
            Ok(TokenRow {
                id: row.at(0)?,
                name: row.at(1)?,
                created_at: row.at(2)?,
                last_used_at: row.at(3)?,
                revoked_at: row.at(4)?,
            })
        })
        .collect()
}

fn fresh_text(kind: TokenKind, entropy: &Entropy) -> Secret {
    let bits: [u8; 32] = entropy.bytes();
    Secret::new(format!("{}{}", kind.prefix(), to_hex(&bits)).into_bytes())
}

/// The form is checked before anything is hashed, so that a long header costs nothing.
fn kind_of(presented: &str) -> Option<TokenKind> {
    let is_digits = |text: &str| text.len() == HEX_DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    TokenKind::ALL.iter().copied().find(|kind| presented.strip_prefix(kind.prefix()).is_some_and(is_digits))
}

fn hash_of(text: &[u8]) -> [u8; 32] {
    Sha256::digest(text).into()
}

pub(crate) mod sql {
    crate::db::statements! {
        MINT = "INSERT INTO tokens (id, token_hash, kind, name, agent_id, run_id, created_at, created_by) \
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
        LOOKUP = "SELECT t.token_hash, t.id, t.agent_id, t.run_id, t.last_used_at FROM tokens t JOIN agents a ON a.id = t.agent_id \
            WHERE t.token_hash = $1 AND t.kind = $2 AND t.revoked_at IS NULL AND a.deleted_at IS NULL";
        IS_GOOD = "SELECT t.id FROM tokens t JOIN agents a ON a.id = t.agent_id \
            WHERE t.id = $1 AND t.revoked_at IS NULL AND a.deleted_at IS NULL";
        USED = "UPDATE tokens SET last_used_at = $2 WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $2)";
        REVOKE = "UPDATE tokens SET revoked_at = $3 WHERE id = $1 AND agent_id = $2 AND revoked_at IS NULL";
        LIST = "SELECT id, name, created_at, last_used_at, revoked_at FROM tokens WHERE agent_id = $1 AND kind = 'agent' \
            ORDER BY id DESC LIMIT 100";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_256_bits_and_one_form() {
        let entropy = Entropy::counting(1);
        for kind in TokenKind::ALL {
            let text = fresh_text(*kind, &entropy);
            let text = std::str::from_utf8(text.expose()).expect("text");
            assert_eq!(text.len(), 4 + 64);
            assert_eq!(kind_of(text), Some(*kind));
            assert_eq!(kind_of(&text[1..]), None);
            assert_eq!(kind_of(&format!("{text}0")), None);
            assert_eq!(kind_of(&text.to_uppercase()), None);
        }
    }
}
