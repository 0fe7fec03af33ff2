//! All agents at a glance: what each can do now, on whose account, what is left of the minute, and what waits for a person.
//!
//! One page costs a fixed number of statements, however many agents are on it; credentials aside, which are opened once each.

use std::collections::{BTreeMap, BTreeSet};

use formation_core::{
    AgentId, Capability, Scope, SecretId, Timestamp,
    settings::{Effective, Unavailable},
};
use formation_store::{
    agents,
    secrets::{self, SecretError, VENDOR_KEY},
    summaries,
    usage::{self, Minute},
};

use crate::{
    Inner, Page, Runtime, RuntimeError,
    people::{Agent, Operator},
    settings::Reason,
};

/// An agent and what it can do.
#[derive(Debug, Clone)]
pub struct AgentState {
    /// The agent.
    pub agent: Agent,
    /// All three, in fixed order.
    pub capabilities: Vec<InUse>,
    /// Calls that nobody can be sure of and nobody has settled.
    pub uncertain_calls: i64,
}

/// One capability of an agent.
#[derive(Debug, Clone)]
pub struct InUse {
    /// Which.
    pub capability: Capability,
    /// Who pays now; `None` where nobody can.
    pub effective: Option<Effective>,
    /// Why it can't be used, if it can't.
    pub reason: Option<Reason>,
    /// The running minute of whoever meters; `None` where nothing is metered.
    pub minute: Option<Minute>,
}

impl Runtime {
    /// The agents that this operator manages, newest first, those before `after`; 100 a page.
    pub async fn overview(&self, operator: &Operator, after: Option<AgentId>) -> Result<Page<AgentState>, RuntimeError> {
        let inner = &self.0;
        let Page { items: agents, has_more } = agents::page(&inner.db, operator.reach(), after).await?;
        let ids: Vec<AgentId> = agents.iter().map(|agent| agent.id).collect();
        let pairs = ids.iter().flat_map(|id| Capability::ALL.iter().map(|capability| (*id, *capability))).collect();
        let mut resolved = inner.rules.resolve_many_now(&inner.db, &pairs).await?;
        let paid: Vec<&Effective> = resolved.values().flatten().collect();
        let (used, ends) = usage::minutes(&inner.db, &paid.iter().map(|effective| effective.meter_scope).collect()).await?;
        let unreadable = inner.unreadable(&paid).await?;
        let uncertain = summaries::unsettled(&inner.db, &ids).await?;
        let meters = Meters { used, ends, unreadable };
        let state = |agent: Agent| {
            let capabilities = Capability::ALL.iter().map(|capability| {
                let effective = resolved.remove(&(agent.id, *capability)).unwrap_or(Err(Unavailable::NoAccount));
                meters.in_use(*capability, effective)
            });
            let capabilities = capabilities.collect();
            AgentState { uncertain_calls: uncertain.get(&agent.id).copied().unwrap_or(0), agent, capabilities }
        };
        Ok(Page { items: agents.into_iter().map(state).collect(), has_more })
    }
}

/// What was read for all of them.
struct Meters {
    used: BTreeMap<(Scope, Capability), i64>,
    ends: Timestamp,
    unreadable: BTreeSet<SecretId>,
}

impl Meters {
    fn in_use(&self, capability: Capability, effective: Result<Effective, Unavailable>) -> InUse {
        let effective = match effective {
            Ok(effective) => effective,
            Err(unavailable) => return InUse { capability, effective: None, reason: Some(unavailable.into()), minute: None },
        };
        let is_unreadable = effective.secret.is_some_and(|secret| self.unreadable.contains(&secret));
        let used = self.used.get(&(effective.meter_scope, capability)).copied().unwrap_or(0);
        InUse {
            capability,
            reason: is_unreadable.then_some(Reason::CredentialUnreadable),
            minute: capability.is_metered().then_some(Minute { used, ends: self.ends }),
            effective: Some(effective),
        }
    }
}

impl Inner {
    /// Which of the stored credentials don't open.
    async fn unreadable(&self, paid: &[&Effective]) -> Result<BTreeSet<SecretId>, RuntimeError> {
        let stored: BTreeSet<(Scope, SecretId)> =
            paid.iter().filter_map(|effective| Some((effective.binding.owner, effective.secret?))).collect();
        let mut unreadable = BTreeSet::new();
        for (owner, secret) in stored {
            match secrets::open(&self.db, &self.keys, owner, VENDOR_KEY, secret).await {
                Ok(_) => {}
                Err(SecretError::Store(error)) => return Err(error.into()),
                Err(SecretError::Absent | SecretError::Sealed(_)) => drop(unreadable.insert(secret)),
            }
        }
        Ok(unreadable)
    }
}
