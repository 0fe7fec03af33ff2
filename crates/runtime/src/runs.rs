//! Runs and MCP sessions, as the doors need them.

use formation_core::{AgentId, McpSessionId, TokenId, limits};
use formation_store::{mcp_sessions, runs};

use crate::{Caller, OpenRun, OpenedRun, Purpose, RunRef, Runtime, RuntimeError, Which};

impl Runtime {
    /// Opens a run for an agent, with a token of its own.
    pub async fn open_run(&self, agent: AgentId, token: TokenId, open: OpenRun) -> Result<OpenedRun, RuntimeError> {
        let new =
            runs::NewRun { agent, token, conversation: open.conversation, deadline: open.deadline, max_calls: open.max_tool_calls };
        let opened = self.0.db.write(move |tx| Box::pin(async move { runs::open(tx, &new).await })).await?;
        let opened = opened.ok_or(RuntimeError::TokenRevoked)?;
        Ok(OpenedRun { run: opened.run.id, token: opened.token.text, deadline: opened.run.deadline_at })
    }

    /// Ends a run on its own wish: its calls are refused from now on and its browser is closed. Ending it again changes nothing.
    pub async fn finish_run(&self, run: &RunRef) -> Result<(), RuntimeError> {
        let (agent, id) = (run.agent, run.run);
        self.0
            .db
            .write(move |tx| Box::pin(async move { runs::end_of_agent(tx, agent, id, runs::EndReason::Finished).await }))
            .await?;
        self.0.wake_sweeper();
        Ok(())
    }

    /// The run a call belongs to; opens an implicit one where the contract says so. `conversation` is the header
    /// `Formation-Conversation`, used only when a run is opened.
    pub async fn run_of(
        &self,
        caller: &Caller,
        which: &Which,
        conversation: Option<&str>,
        purpose: Purpose,
    ) -> Result<RunRef, RuntimeError> {
        let (agent, token) = match caller {
            Caller::Run { run, agent, .. } => return Ok(RunRef { run: *run, agent: *agent, is_successor: false }),
            Caller::Agent { agent, token } => (*agent, *token),
        };
        let knock = runs::Knock {
            agent,
            token,
            door: match which {
                Which::Session(id) => runs::Door::Session(*id),
                Which::Named(word) => runs::Door::Named(word.clone()),
                Which::Current => runs::Door::Current,
            },
            conversation: conversation.map(str::to_owned),
            purpose: match purpose {
                Purpose::List => runs::Purpose::List,
                Purpose::Call => runs::Purpose::Call,
            },
            idle_after: limits::IMPLICIT_IDLE,
        };
        let behind = match runs::open_already(&self.0.db, &knock).await? {
            Some(open) => open,
            None => self.0.db.write(move |tx| Box::pin(async move { runs::behind(tx, &knock).await })).await?,
        };
        match behind {
            runs::Behind::Open { run, announce } => Ok(RunRef { run: run.id, agent, is_successor: announce }),
            runs::Behind::Over { run, .. } => Ok(RunRef { run: run.id, agent, is_successor: false }),
            runs::Behind::Revoked => Err(RuntimeError::TokenRevoked),
        }
    }

    /// Opens a session for a legacy MCP client.
    pub async fn open_mcp_session(&self, caller: &Caller) -> Result<McpSessionId, RuntimeError> {
        let token = caller.token();
        let opened = self.0.db.write(move |tx| Box::pin(async move { mcp_sessions::open(tx, token).await })).await?;
        opened.ok_or(RuntimeError::TokenRevoked)
    }

    /// Whether the session is open and this token's own.
    pub async fn has_mcp_session(&self, caller: &Caller, id: McpSessionId) -> Result<bool, RuntimeError> {
        Ok(mcp_sessions::is_open(&self.0.db, caller.token(), id).await?)
    }

    /// Ends the session and its run.
    pub async fn end_mcp_session(&self, caller: &Caller, id: McpSessionId) -> Result<(), RuntimeError> {
        let token = caller.token();
        self.0.db.write(move |tx| Box::pin(async move { mcp_sessions::end(tx, token, id).await })).await?;
        self.0.wake_sweeper();
        Ok(())
    }
}
