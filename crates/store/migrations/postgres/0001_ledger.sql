-- The ledger, what it hangs on, and the browsers of runs. Ids are UUID text, times microseconds since 1970, JSON text; `scope` is
-- `install` or `agent:<id>`. The file of the same number in the other folder makes the same schema; a test compares them.

CREATE TABLE master_keys (id TEXT PRIMARY KEY, check_value BYTEA NOT NULL, created_at BIGINT NOT NULL, retired_at BIGINT);
-- A sealed value is bound to owner, kind, id and revision: a row moved elsewhere does not open (S-16).
CREATE TABLE secrets (id TEXT PRIMARY KEY, owner TEXT NOT NULL, kind TEXT NOT NULL, revision BIGINT NOT NULL,
  key_id TEXT NOT NULL REFERENCES master_keys (id), wrapped_key BYTEA NOT NULL, sealed BYTEA NOT NULL,
  created_at BIGINT NOT NULL);
-- Rotation walks it in batches.
CREATE INDEX secrets_by_key ON secrets (key_id, id);
-- One heartbeat row a process: its calls lapse when it does.
CREATE TABLE instances (id TEXT PRIMARY KEY, started_at BIGINT NOT NULL, lease_until BIGINT NOT NULL);
-- Nobody signs in yet; tokens refer to it.
CREATE TABLE operators (id TEXT PRIMARY KEY, name TEXT NOT NULL, name_key TEXT NOT NULL UNIQUE,
  role TEXT NOT NULL CHECK (role IN ('owner', 'member')), password_hash TEXT NOT NULL, created_at BIGINT NOT NULL,
  disabled_at BIGINT);
-- Kept when deleted: runs and evidence name it.
CREATE TABLE agents (id TEXT PRIMARY KEY, slug TEXT NOT NULL, name TEXT NOT NULL, version BIGINT NOT NULL,
  run_defaults TEXT, created_at BIGINT NOT NULL, created_by TEXT, deleted_at BIGINT);
CREATE UNIQUE INDEX agents_slug ON agents (slug) WHERE deleted_at IS NULL;
-- Never deleted, so that versions only rise.
CREATE TABLE capability_settings (scope TEXT NOT NULL, agent_id TEXT REFERENCES agents (id) ON DELETE CASCADE,
  capability TEXT NOT NULL,
  mode TEXT NOT NULL CHECK (mode IN ('auto', 'inherit', 'own', 'disabled')), vendor TEXT, config TEXT NOT NULL,
  requests_per_minute BIGINT, requests_per_run BIGINT, version BIGINT NOT NULL, updated_at BIGINT NOT NULL,
  updated_by TEXT NOT NULL,
  PRIMARY KEY (scope, capability), CHECK ((scope = 'install') = (agent_id IS NULL)),
  CHECK ((mode = 'own') = (vendor IS NOT NULL)));
CREATE TABLE conversations (id TEXT PRIMARY KEY, agent_id TEXT NOT NULL REFERENCES agents (id), name TEXT,
  created_at BIGINT NOT NULL);
CREATE INDEX conversations_by_agent ON conversations (agent_id, id);
-- The caller's own word.
CREATE UNIQUE INDEX conversations_named ON conversations (agent_id, name) WHERE name IS NOT NULL;
CREATE TABLE tokens (id TEXT PRIMARY KEY, token_hash BYTEA NOT NULL UNIQUE,
  kind TEXT NOT NULL CHECK (kind IN ('operator', 'agent', 'run')), name TEXT NOT NULL,
  operator_id TEXT REFERENCES operators (id) ON DELETE CASCADE, agent_id TEXT REFERENCES agents (id) ON DELETE CASCADE,
  run_id TEXT,
  created_at BIGINT NOT NULL, created_by TEXT, last_used_at BIGINT, revoked_at BIGINT,
  CHECK ((kind = 'operator') = (operator_id IS NOT NULL)),
  CHECK ((kind = 'operator') = (agent_id IS NULL)), CHECK ((kind = 'run') = (run_id IS NOT NULL)));
CREATE INDEX tokens_by_operator ON tokens (operator_id) WHERE operator_id IS NOT NULL;
CREATE INDEX tokens_by_agent ON tokens (agent_id) WHERE agent_id IS NOT NULL;
CREATE INDEX tokens_by_run ON tokens (run_id) WHERE run_id IS NOT NULL;
-- `initialize` makes it, DELETE ends it.
CREATE TABLE mcp_sessions (id TEXT PRIMARY KEY, token_id TEXT NOT NULL REFERENCES tokens (id) ON DELETE CASCADE,
  created_at BIGINT NOT NULL,
  ended_at BIGINT);
CREATE TABLE runs (id TEXT PRIMARY KEY, agent_id TEXT NOT NULL REFERENCES agents (id),
  conversation_id TEXT NOT NULL REFERENCES conversations (id),
  opened_by TEXT NOT NULL REFERENCES tokens (id),
  origin TEXT NOT NULL CHECK (origin IN ('api', 'session', 'named', 'current')), client_key TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('open', 'over')), end_reason TEXT, max_calls BIGINT NOT NULL, calls_used BIGINT NOT NULL,
  created_at BIGINT NOT NULL, deadline_at BIGINT NOT NULL, idle_after BIGINT, last_call_at BIGINT NOT NULL,
  ended_at BIGINT, told_at BIGINT,
  CHECK ((client_key = '') = (origin IN ('api', 'current'))), CHECK ((state = 'over') = (ended_at IS NOT NULL)),
  CHECK (told_at IS NULL OR state = 'over'), CHECK (calls_used <= max_calls));
-- Two first calls open one run.
CREATE UNIQUE INDEX runs_door ON runs (opened_by, origin, client_key) WHERE state = 'open' AND origin <> 'api';
-- The open run behind a door, then the newest that is over.
CREATE INDEX runs_by_door ON runs (opened_by, origin, client_key, state, created_at DESC, id DESC);
CREATE INDEX runs_by_agent ON runs (agent_id, id);
CREATE INDEX runs_open ON runs (deadline_at) WHERE state = 'open';
-- Listing twice records once.
CREATE TABLE offers (id TEXT PRIMARY KEY, run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE, tool TEXT NOT NULL,
  binding TEXT NOT NULL,
  fingerprint BYTEA NOT NULL, created_at BIGINT NOT NULL, UNIQUE (run_id, tool, fingerprint));
CREATE INDEX offers_latest ON offers (run_id, tool, created_at, id);
-- `operation` is the fence: it rises with each acquisition, and every write of a holder names it.
CREATE TABLE browser_sessions (id TEXT PRIMARY KEY, run_id TEXT NOT NULL REFERENCES runs (id),
  agent_id TEXT NOT NULL REFERENCES agents (id),
  vendor TEXT NOT NULL, binding TEXT NOT NULL, state TEXT NOT NULL CHECK (state IN ('opening', 'open', 'closing', 'closed')),
  end_reason TEXT,
  remote TEXT, home TEXT, page TEXT, operation BIGINT NOT NULL, busy_call TEXT, refs TEXT, uncertain_call TEXT, view TEXT,
  view_expires_at BIGINT,
  deadline_at BIGINT NOT NULL, created_at BIGINT NOT NULL, close_attempts BIGINT NOT NULL, next_close_at BIGINT,
  closed_at BIGINT,
  CHECK ((view IS NULL) = (view_expires_at IS NULL)), CHECK ((state = 'closed') = (closed_at IS NOT NULL)));
-- One a run, over all replicas.
CREATE UNIQUE INDEX browser_sessions_live ON browser_sessions (run_id) WHERE state IN ('opening', 'open');
CREATE INDEX browser_sessions_by_run ON browser_sessions (run_id, id);
CREATE INDEX browser_sessions_to_close ON browser_sessions (next_close_at) WHERE state = 'closing';
-- The ledger. A row that contradicts itself is refused at the write.
CREATE TABLE tool_calls (id TEXT PRIMARY KEY, agent_id TEXT NOT NULL REFERENCES agents (id),
  run_id TEXT NOT NULL REFERENCES runs (id), key TEXT,
  tool TEXT NOT NULL, class TEXT NOT NULL CHECK (class IN ('read', 'external_effect')),
  execution TEXT NOT NULL CHECK (execution IN ('queued', 'admitted', 'dispatched', 'succeeded', 'failed', 'refused')),
  outcome TEXT CHECK (outcome IN ('ok', 'failed', 'not_dispatched', 'input_dispatched', 'uncertain', 'interrupted', 'withheld')),
  offer_id TEXT, arguments TEXT NOT NULL, arguments_hash BYTEA NOT NULL, observation TEXT, problem TEXT, session_id TEXT,
  session_operation BIGINT,
  holder TEXT NOT NULL, must_end_by BIGINT NOT NULL, created_at BIGINT NOT NULL, admitted_at BIGINT, dispatched_at BIGINT,
  settled_at BIGINT,
  finding TEXT CHECK (finding IN ('took_effect', 'had_no_effect')), found_at BIGINT, found_by TEXT, note TEXT,
  CHECK ((settled_at IS NULL) = (execution IN ('queued', 'admitted', 'dispatched'))),
  CHECK ((outcome IS NOT NULL) = (execution IN ('succeeded', 'failed'))), CHECK ((problem IS NOT NULL) = (execution = 'failed')),
  CHECK (class = 'external_effect' OR (execution <> 'dispatched' AND dispatched_at IS NULL)),
  CHECK (class = 'external_effect' OR outcome IS NULL OR outcome NOT IN ('uncertain', 'input_dispatched')),
  CHECK (class = 'read' OR outcome IS NULL OR outcome NOT IN ('interrupted', 'withheld')),
  CHECK (outcome IS NULL OR outcome <> 'uncertain' OR dispatched_at IS NOT NULL),
  CHECK (finding IS NULL OR coalesce(outcome, '') = 'uncertain'), CHECK ((finding IS NULL) = (found_at IS NULL)));
-- The caller's idempotency key.
CREATE UNIQUE INDEX tool_calls_key ON tool_calls (agent_id, key) WHERE key IS NOT NULL;
-- The trace.
CREATE INDEX tool_calls_by_run ON tool_calls (run_id, created_at, id);
-- Recovery.
CREATE INDEX tool_calls_unsettled ON tool_calls (holder, must_end_by) WHERE execution IN ('queued', 'admitted', 'dispatched');
CREATE INDEX tool_calls_uncertain ON tool_calls (run_id) WHERE outcome = 'uncertain' AND finding IS NULL;
CREATE TABLE evidence (call_id TEXT PRIMARY KEY REFERENCES tool_calls (id), run_id TEXT NOT NULL, agent_id TEXT NOT NULL,
  conversation_id TEXT NOT NULL,
  capability TEXT NOT NULL, vendor TEXT NOT NULL, credential_owner TEXT NOT NULL, account TEXT NOT NULL,
  admitted_at BIGINT NOT NULL);
CREATE INDEX evidence_by_run ON evidence (run_id);
CREATE INDEX evidence_by_agent ON evidence (agent_id, admitted_at);
CREATE TABLE artifacts (id TEXT PRIMARY KEY, agent_id TEXT NOT NULL REFERENCES agents (id),
  run_id TEXT NOT NULL REFERENCES runs (id),
  call_id TEXT NOT NULL REFERENCES tool_calls (id), width BIGINT NOT NULL, height BIGINT NOT NULL,
  byte_count BIGINT NOT NULL, key_id TEXT NOT NULL,
  wrapped_key BYTEA NOT NULL, sealed BYTEA, created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, erased_at BIGINT,
  CHECK ((sealed IS NULL) = (erased_at IS NOT NULL)));
CREATE INDEX artifacts_to_erase ON artifacts (expires_at) WHERE erased_at IS NULL;
CREATE INDEX artifacts_by_run ON artifacts (run_id);
