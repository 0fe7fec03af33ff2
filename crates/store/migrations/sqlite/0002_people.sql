-- Who operates Formation, what they set, what it costs, and what they did. The file of the same number in the other folder makes
-- the same schema; a test compares them.

-- The one way in before there is an owner.
CREATE TABLE setup_links (token_hash BLOB PRIMARY KEY, created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL,
  used_at INTEGER) STRICT;
CREATE TABLE operator_sessions (token_hash BLOB PRIMARY KEY,
  operator_id TEXT NOT NULL REFERENCES operators (id) ON DELETE CASCADE,
  created_at INTEGER NOT NULL, last_seen_at INTEGER NOT NULL, expires_at INTEGER NOT NULL) STRICT;
-- Disabling a person ends them all.
CREATE INDEX operator_sessions_by_operator ON operator_sessions (operator_id);
CREATE INDEX operator_sessions_old ON operator_sessions (expires_at);
-- One row an account and one a source address: neither locks out the other's.
CREATE TABLE login_attempts (subject TEXT PRIMARY KEY, failures INTEGER NOT NULL, last_at INTEGER NOT NULL,
  blocked_until INTEGER NOT NULL) STRICT;
CREATE INDEX login_attempts_old ON login_attempts (last_at);
CREATE TABLE agent_access (agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
  operator_id TEXT NOT NULL REFERENCES operators (id) ON DELETE CASCADE, granted_at INTEGER NOT NULL, granted_by TEXT NOT NULL,
  PRIMARY KEY (agent_id, operator_id)) STRICT;
CREATE INDEX agent_access_by_operator ON agent_access (operator_id, agent_id);
CREATE TABLE install_settings (id INTEGER PRIMARY KEY CHECK (id = 1), version INTEGER NOT NULL, config TEXT NOT NULL,
  updated_at INTEGER NOT NULL, updated_by TEXT NOT NULL) STRICT;
-- One credential a vendor and owner (W2). A row made after a removal has a new id.
CREATE TABLE vendor_accounts (id TEXT PRIMARY KEY, scope TEXT NOT NULL, agent_id TEXT REFERENCES agents (id) ON DELETE CASCADE,
  vendor TEXT NOT NULL, config TEXT NOT NULL, secret_id TEXT NOT NULL REFERENCES secrets (id), version INTEGER NOT NULL,
  created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, updated_by TEXT NOT NULL,
  UNIQUE (scope, vendor), CHECK ((scope = 'install') = (agent_id IS NULL))) STRICT;
-- One unit, one row: the call's id is its identity (L2).
CREATE TABLE reservations (call_id TEXT PRIMARY KEY REFERENCES tool_calls (id), run_id TEXT NOT NULL, capability TEXT NOT NULL,
  meter_scope TEXT NOT NULL, minute INTEGER NOT NULL, admitted_at INTEGER NOT NULL) STRICT;
CREATE INDEX reservations_by_run ON reservations (run_id, capability);
CREATE TABLE run_counters (run_id TEXT NOT NULL REFERENCES runs (id), capability TEXT NOT NULL, used INTEGER NOT NULL,
  PRIMARY KEY (run_id, capability)) STRICT;
-- A minute is a window of 60 seconds of database time, counted from 1970.
CREATE TABLE rate_windows (meter_scope TEXT NOT NULL, capability TEXT NOT NULL, minute INTEGER NOT NULL, used INTEGER NOT NULL,
  PRIMARY KEY (meter_scope, capability, minute)) STRICT;
CREATE INDEX rate_windows_old ON rate_windows (minute);
-- One row a mutating request (R-20). Names are kept: a removed operator's deeds keep theirs.
CREATE TABLE audit (id TEXT PRIMARY KEY, at INTEGER NOT NULL, actor_kind TEXT NOT NULL, actor_id TEXT, actor_name TEXT NOT NULL,
  agent_id TEXT, action TEXT NOT NULL, subject TEXT NOT NULL,
  outcome TEXT NOT NULL CHECK (outcome IN ('done', 'denied', 'stale', 'refused')), detail TEXT NOT NULL, request_id TEXT) STRICT;
CREATE INDEX audit_by_agent ON audit (agent_id, id);
CREATE INDEX audit_by_actor ON audit (actor_id, id);
CREATE INDEX audit_by_action ON audit (action, id);
-- Usage over time.
CREATE INDEX evidence_by_time ON evidence (admitted_at);
CREATE INDEX tool_calls_refused ON tool_calls (settled_at) WHERE execution = 'refused';
-- A conversation's runs.
CREATE INDEX runs_by_conversation ON runs (conversation_id, id);
