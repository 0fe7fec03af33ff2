//! Tokens of operators, agents and runs: 256 random bits, shown once, stored as SHA-256 (contract.md 1).

use std::time::Duration;

use formation_core::{AgentId, Entropy, OperatorId, RunId, Secret, Timestamp, TokenId, people::Role};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::{
    Page,
    db::{Db, News, Row, Tx, Val, stored_words},
    error::StoreError,
    runs::{self, EndReason},
    seal::to_hex,
};

formation_core::words! {
    /// What a token opens.
    pub enum TokenKind {
        /// Everything one operator may do.
        Operator = "operator",
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
            Self::Operator => "fmo_",
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presented {
    /// An agent's harness, or a run.
    Caller(TokenCaller),
    /// A person.
    Operator(TokenOperator),
}

/// The operator behind a token or a session, as they stand at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenOperator {
    /// The token's row; a session has none.
    pub token: Option<TokenId>,
    /// Who.
    pub operator: OperatorId,
    /// Their name.
    pub name: String,
    /// What they may do.
    pub role: Role,
}

/// The agent or run behind a token.
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

/// Makes a token for an operator: it can do what they can.
pub async fn mint_operator(tx: &mut Tx, operator: OperatorId, name: &str, by: &str) -> Result<Minted, StoreError> {
    mint(tx, TokenKind::Operator, [operator.into(), None::<AgentId>.into(), None::<RunId>.into()], name, by).await
}

/// Makes a token for an agent. `by` names the actor, for the record.
pub async fn mint_agent(tx: &mut Tx, agent: AgentId, name: &str, by: &str) -> Result<Minted, StoreError> {
    mint(tx, TokenKind::Agent, [None::<OperatorId>.into(), agent.into(), None::<RunId>.into()], name, by).await
}

/// Makes the token of a run.
pub(crate) async fn mint_run(tx: &mut Tx, agent: AgentId, run: RunId) -> Result<Minted, StoreError> {
    mint(tx, TokenKind::Run, [None::<OperatorId>.into(), agent.into(), run.into()], "run", "run").await
}

async fn mint(tx: &mut Tx, kind: TokenKind, whose: [Val<'_>; 3], name: &str, by: &str) -> Result<Minted, StoreError> {
    let now = tx.now().await?;
    let id = TokenId::mint(now, tx.entropy());
    let text = fresh_text(kind, tx.entropy());
    let hash = hash_of(text.expose());
    let [operator, agent, run] = whose;
    let vals = [id.into(), (&hash).into(), kind.into(), name.into(), operator, agent, run, now.into(), by.into()];
    tx.exec(sql::MINT, &vals).await?;
    Ok(Minted { id, text })
}

/// Whose token this is. `None`: nobody's, revoked, of a deleted agent or of an operator who is disabled. The token of a run that is
/// over still names it.
pub async fn lookup(db: &Db, presented: &str) -> Result<Option<Presented>, StoreError> {
    let Some(kind) = kind_of(presented) else { return Ok(None) };
    let hash = hash_of(presented.as_bytes());
    let sql = if kind == TokenKind::Operator { sql::LOOKUP_OPERATOR } else { sql::LOOKUP };
    let Some(row) = db.row(sql, &[(&hash).into(), kind.into()]).await? else { return Ok(None) };
    let stored: Vec<u8> = row.at(0)?;
    if !is_same(&stored, &hash) {
        return Ok(None);
    }
    let token: TokenId = row.at(1)?;
    let found = match kind {
        TokenKind::Operator => {
            Presented::Operator(TokenOperator { token: Some(token), operator: row.at(3)?, name: row.at(4)?, role: row.at(5)? })
        }
        TokenKind::Agent | TokenKind::Run => Presented::Caller(TokenCaller { token, agent: row.at(3)?, run: row.at(4)? }),
    };
    note_use(db, token, row.at(2)?).await?;
    Ok(Some(found))
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

/// Holds a good token until this transaction ends: who takes it back waits, and then finds what was opened meanwhile. `false`: it isn't
/// good any more.
pub(crate) async fn hold(tx: &mut Tx, token: TokenId) -> Result<bool, StoreError> {
    Ok(tx.row(sql::HOLD, &[token.into()]).await?.is_some())
}

/// Ends one token of this agent and what it opened: its MCP sessions are over, and its open runs, whose own tokens get `run_over` from
/// now on. How many runs those were; `None`: the agent has no such living token.
pub async fn revoke(tx: &mut Tx, agent: AgentId, token: TokenId) -> Result<Option<usize>, StoreError> {
    let now = tx.now().await?;
    // First: nothing is opened behind the token from here on (`hold`).
    if tx.exec(sql::REVOKE, &[token.into(), agent.into(), now.into()]).await? == 0 {
        return Ok(None);
    }
    tx.exec(sql::END_MCP_SESSIONS, &[token.into(), now.into()]).await?;
    let open = tx.rows(sql::OPEN_RUNS, &[token.into()]).await?;
    for row in &open {
        runs::end(tx, row.at(0)?, EndReason::Cancelled).await?;
    }
    tx.tell(News::People);
    Ok(Some(open.len()))
}

/// Ends one token of this operator. `false`: they have no such living token.
pub async fn revoke_of_operator(tx: &mut Tx, operator: OperatorId, token: TokenId) -> Result<bool, StoreError> {
    let now = tx.now().await?;
    tx.tell(News::People);
    Ok(tx.exec(sql::REVOKE_OF_OPERATOR, &[token.into(), operator.into(), now.into()]).await? == 1)
}

/// The agent's long-lived tokens, newest first, those before `after` if given; 100 a page.
pub async fn list(db: &Db, agent: AgentId, after: Option<TokenId>) -> Result<Page<TokenRow>, StoreError> {
    page(&db.rows(sql::LIST, &[agent.into(), after.into()]).await?)
}

/// An operator's own tokens, likewise.
pub async fn list_of_operator(db: &Db, operator: OperatorId, after: Option<TokenId>) -> Result<Page<TokenRow>, StoreError> {
    page(&db.rows(sql::LIST_OF_OPERATOR, &[operator.into(), after.into()]).await?)
}

fn page(rows: &[Row]) -> Result<Page<TokenRow>, StoreError> {
    let items: Result<Vec<_>, StoreError> = rows
        .iter()
        .take(100)
        .map(|row| {
            Ok(TokenRow {
                id: row.at(0)?,
                name: row.at(1)?,
                created_at: row.at(2)?,
                last_used_at: row.at(3)?,
                revoked_at: row.at(4)?,
            })
        })
        .collect();
    Ok(Page { items: items?, has_more: rows.len() > 100 })
}

fn fresh_text(kind: TokenKind, entropy: &Entropy) -> Secret {
    Secret::new(format!("{}{}", kind.prefix(), digits(entropy)).into_bytes())
}

/// 256 random bits as text: what stands in tokens, cookies and set-up links.
pub(crate) fn digits(entropy: &Entropy) -> String {
    to_hex(&entropy.bytes::<32>())
}

/// Whether the text has that form.
pub(crate) fn is_digits(text: &str) -> bool {
    text.len() == HEX_DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The form is checked before anything is hashed, so that a long header costs nothing.
fn kind_of(presented: &str) -> Option<TokenKind> {
    TokenKind::ALL.iter().copied().find(|kind| presented.strip_prefix(kind.prefix()).is_some_and(is_digits))
}

/// Whether two secrets, or what stands for them, are equal, in a time that doesn't say where they differ: the one comparison of such
/// values (S-11).
pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    bool::from(one.ct_eq(other))
}

pub(crate) fn hash_of(text: &[u8]) -> [u8; 32] {
    Sha256::digest(text).into()
}

pub(crate) mod sql {
    crate::db::statements! {
        MINT = "INSERT INTO tokens (id, token_hash, kind, name, operator_id, agent_id, run_id, created_at, created_by) \
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        LOOKUP = "SELECT t.token_hash, t.id, t.last_used_at, t.agent_id, t.run_id FROM tokens t JOIN agents a ON a.id = t.agent_id \
            WHERE t.token_hash = $1 AND t.kind = $2 AND t.revoked_at IS NULL AND a.deleted_at IS NULL";
        LOOKUP_OPERATOR = "SELECT t.token_hash, t.id, t.last_used_at, o.id, o.name, o.role FROM tokens t \
            JOIN operators o ON o.id = t.operator_id \
            WHERE t.token_hash = $1 AND t.kind = $2 AND t.revoked_at IS NULL AND o.disabled_at IS NULL";
        IS_GOOD = "SELECT t.id FROM tokens t JOIN agents a ON a.id = t.agent_id \
            WHERE t.id = $1 AND t.revoked_at IS NULL AND a.deleted_at IS NULL";
        HOLD = "SELECT t.id FROM tokens t JOIN agents a ON a.id = t.agent_id \
            WHERE t.id = $1 AND t.revoked_at IS NULL AND a.deleted_at IS NULL"
            => "SELECT t.id FROM tokens t JOIN agents a ON a.id = t.agent_id \
            WHERE t.id = $1 AND t.revoked_at IS NULL AND a.deleted_at IS NULL FOR SHARE";
        USED = "UPDATE tokens SET last_used_at = $2 WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $2)";
        REVOKE = "UPDATE tokens SET revoked_at = $3 WHERE id = $1 AND agent_id = $2 AND revoked_at IS NULL";
        END_MCP_SESSIONS = "UPDATE mcp_sessions SET ended_at = $2 WHERE token_id = $1 AND ended_at IS NULL";
        OPEN_RUNS = "SELECT id FROM runs WHERE opened_by = $1 AND state = 'open' ORDER BY id";
        REVOKE_OF_OPERATOR = "UPDATE tokens SET revoked_at = $3 WHERE id = $1 AND operator_id = $2 AND revoked_at IS NULL";
        LIST = "SELECT id, name, created_at, last_used_at, revoked_at FROM tokens WHERE agent_id = $1 AND kind = 'agent' \
            AND (CAST($2 AS TEXT) IS NULL OR id < $2) ORDER BY id DESC LIMIT 101";
        LIST_OF_OPERATOR = "SELECT id, name, created_at, last_used_at, revoked_at FROM tokens WHERE operator_id = $1 \
            AND (CAST($2 AS TEXT) IS NULL OR id < $2) ORDER BY id DESC LIMIT 101";
    }
}

#[cfg(test)]
mod tests {
    use std::{hint::black_box, time::Instant};

    use super::*;

    /// Mean, variance and count of what a busy machine did not disturb: the slowest twentieth is left out.
    fn measured(mut nanoseconds: Vec<f64>) -> (f64, f64, f64) {
        nanoseconds.sort_by(f64::total_cmp);
        nanoseconds.truncate(nanoseconds.len() * 19 / 20);
        let count = f64::from(u32::try_from(nanoseconds.len()).expect("a million at most"));
        let mean = nanoseconds.iter().sum::<f64>() / count;
        let variance = nanoseconds.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (count - 1.0);
        (mean, variance, count)
    }

    /// S-11: a million comparisons; one that differs in its last byte takes as long as one that differs in its first.
    #[test]
    fn bar_s11_a_comparison_does_not_say_how_much_was_right() {
        let entropy = Entropy::counting(11);
        let stored = hash_of(b"a token");
        let (mut near, mut far) = (stored, stored);
        near[31] ^= 1;
        far[0] ^= 1;
        let mut times = [Vec::with_capacity(500_000), Vec::with_capacity(500_000)];
        for _ in 0..15_625 {
            // Which of them comes next is chance, so that nothing of the machine's own rhythm falls on one of them.
            let order: [u8; 8] = entropy.bytes();
            for bit in 0..64 {
                let class = usize::from(order[bit / 8] >> (bit % 8) & 1);
                let presented = black_box(if class == 0 { near } else { far });
                let began = Instant::now();
                let same = is_same(black_box(&stored), black_box(&presented));
                let took = began.elapsed();
                assert!(!black_box(same));
                times[class].push(f64::from(took.subsec_nanos()));
            }
        }
        let [(mean, variance, count), (other_mean, other_variance, other_count)] = times.map(measured);
        let t = (mean - other_mean) / (variance / count + other_variance / other_count).sqrt();
        assert!(t.abs() < 4.5, "t = {t}: {mean} ns and {other_mean} ns");
        assert!(is_same(&stored, &stored.clone()));
    }

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
