//! Capability connections: a full replacement at a version (O5). Nothing half-configured is stored.

use formation_core::{
    Capability, Scope, VendorId,
    people::Actor,
    settings::{Mode, Proposal, check, check_against_install, limits},
};
use formation_store::{
    Tx, accounts,
    connections::{self, NewSettings},
    settings::Stored,
};
use serde_json::{Map, Value, json};

use super::{Code, Invalid, Listing, SettingsError, compare, done, lock};
use crate::{Runtime, settings::Provider};

/// A connection as it should be.
#[derive(Debug, Clone, PartialEq)]
pub struct PutConnection {
    /// The version that was seen; 0 where there was no row.
    pub version: i64,
    /// All its settings.
    pub settings: Proposal,
}

impl Runtime {
    /// Replaces the settings of one connection.
    pub async fn put_connection(
        &self,
        actor: &Actor,
        owner: Scope,
        capability: Capability,
        put: PutConnection,
    ) -> Result<Listing, SettingsError> {
        let PutConnection { version, settings } = put;
        check(owner, capability, &settings)?;
        let vendor = settings.provider.as_ref().map(|vendor| known(vendor, capability)).transpose()?;
        let config = vendor
            .as_ref()
            .map_or_else(|| Ok(Value::Object(Map::new())), |(_, provider)| own_config(capability, provider, &settings.config))?;
        let vendor = vendor.map(|(vendor, _)| vendor);
        let asked = settings.limits.unwrap_or_default();
        let new = NewSettings {
            mode: settings.mode,
            vendor: vendor.clone(),
            config,
            requests_per_minute: asked.requests_per_minute,
            requests_per_run: asked.requests_per_run,
        };
        let has_environment_account = owner == Scope::Install
            && vendor.is_some_and(|vendor| self.0.catalog.environment_accounts().iter().any(|found| found.vendor == vendor));
        let actor = actor.clone();
        self.0
            .db
            .write(move |tx| {
                Box::pin(async move {
                    lock(tx, owner).await?;
                    compare(version, connections::changed(tx, owner, capability).await?)?;
                    if settings.mode == Mode::Inherit {
                        let stored = Stored::locked(tx, owner).await?;
                        let install = stored.state(Scope::Install, capability).settings;
                        check_against_install(&settings, limits(install.as_ref()))?;
                    }
                    if let Some(vendor) = new.vendor.as_ref().filter(|_| !has_environment_account) {
                        require_account(tx, owner, vendor).await?;
                    }
                    let version = connections::write(tx, owner, capability, &new, &actor.name).await?;
                    let detail = detail(&new, version);
                    done(tx, &actor, owner, "web.connection.save", capability.as_str(), detail).await
                })
            })
            .await?;
        self.changed_listing(owner).await
    }
}

async fn require_account(tx: &mut Tx, owner: Scope, vendor: &VendorId) -> Result<(), SettingsError> {
    match accounts::find(tx, owner, vendor).await? {
        Some(_) => Ok(()),
        None => Err(SettingsError::AccountRequired),
    }
}

/// The catalog's own copy of a vendor that implements the capability.
fn known(vendor: &VendorId, capability: Capability) -> Result<(VendorId, &'static Provider), Invalid> {
    formation_vendors::entry(vendor)
        .and_then(|entry| entry.provider(capability).map(|provider| (entry.vendor.clone(), provider)))
        .ok_or_else(|| Invalid::value("provider", format!("No such provider of `{capability}`.")))
}

/// The settings of a pinned provider. A browser's hostname list is never left to a default: who replaces the settings says which
/// hosts are allowed, and an empty list says that all are.
fn own_config(capability: Capability, provider: &Provider, given: &Map<String, Value>) -> Result<Value, Invalid> {
    const HOSTS: &str = formation_vendors::ALLOWED_HOSTS.name;
    let takes_hosts = provider.fields.iter().any(|field| field.name == HOSTS);
    let field = || format!("config.{HOSTS}");
    if capability == Capability::Browser && takes_hosts && !given.contains_key(HOSTS) {
        let says = "Say which hosts the browser may visit; an empty list allows any.";
        return Err(Invalid::of(Code::AllowedHostsRequired, field(), says));
    }
    if capability == Capability::Read && !takes_hosts && given.contains_key(HOSTS) {
        let says = "This provider fetches pages itself, so a hostname list can't be enforced on what it reaches.";
        return Err(Invalid::of(Code::PolicyNotEnforceable, field(), says));
    }
    formation_vendors::config::read(provider.fields, given)
}

/// What the audit trail keeps: no text of the config, only which settings it has.
fn detail(new: &NewSettings, version: i64) -> Value {
    let fields: Vec<&String> = new.config.as_object().into_iter().flat_map(Map::keys).collect();
    json!({
        "version": version,
        "mode": new.mode,
        "provider": new.vendor,
        "config": fields,
        "requests_per_minute": new.requests_per_minute,
        "requests_per_run": new.requests_per_run,
    })
}

#[cfg(test)]
mod tests {
    use formation_vendors::ALLOWED_HOSTS;

    use super::*;

    fn provider(capability: Capability, takes_hosts: bool) -> Provider {
        let fields: &'static [_] = if takes_hosts { &[ALLOWED_HOSTS] } else { &[] };
        Provider { capability, permissions: &[], fields, boundary: "" }
    }

    #[test]
    fn a_hostname_list_is_said_where_it_counts_and_refused_where_it_would_not() {
        let code = |capability, takes_hosts, config: Value| {
            let given = config.as_object().expect("an object").clone();
            own_config(capability, &provider(capability, takes_hosts), &given).err().map(|invalid| invalid.code)
        };
        assert_eq!(code(Capability::Browser, true, json!({})), Some(Code::AllowedHostsRequired));
        assert_eq!(code(Capability::Browser, true, json!({"allowed_hosts": []})), None);
        assert_eq!(code(Capability::Read, false, json!({"allowed_hosts": []})), Some(Code::PolicyNotEnforceable));
        assert_eq!(code(Capability::Read, true, json!({"allowed_hosts": ["example.org"]})), None);
        assert_eq!(code(Capability::Read, false, json!({})), None);
        assert_eq!(code(Capability::Search, false, json!({"allowed_hosts": []})), Some(Code::UnknownField));
    }
}
