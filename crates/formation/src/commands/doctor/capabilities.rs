//! What agents of the install are offered, and on whose account; and the variables that could bring one.

use formation_api::Check;
use formation_core::{
    AccountRef, Capability, Scope,
    settings::{EnvironmentAccount, Installed, Unavailable, installed},
};
use formation_store::{
    Db,
    seal::MasterKeys,
    secrets::{self, VENDOR_KEY},
    settings::Stored,
};
use formation_vendors::{Catalog, entry, local};

use super::{broken, failed, note, ok};
use crate::{config::Config, opening, wiring::Wiring};

/// The hosting operator's account at Cloudflare; one of the two alone counts as none.
const TOKEN: &str = "MESH_CLOUDFLARE_API_TOKEN";
const ACCOUNT: &str = "MESH_CLOUDFLARE_ACCOUNT_ID";

/// One line a capability that some vendor of this version implements. `keys` are the master keys, where they could be had.
pub(super) async fn capabilities(db: &Db, config: &Config, keys: Option<&MasterKeys>) -> Vec<Check> {
    let stored = match Stored::now(db, Scope::Install).await {
        Ok(stored) => stored,
        Err(error) => return vec![failed("settings", &opening::unreadable(&error))],
    };
    let catalog = Catalog::new();
    let environment: Vec<_> = config
        .local_browser
        .then(|| EnvironmentAccount { vendor: local::VENDOR, fingerprint: String::new() })
        .into_iter()
        .collect();
    let mut checks = Vec::new();
    for capability in Capability::ALL {
        let order = catalog.order(*capability);
        if order.is_empty() {
            continue;
        }
        let name = capability.as_str();
        checks.push(match installed(&order, &stored.state(Scope::Install, *capability), &environment) {
            Ok(installed) => granted(db, keys, name, &installed).await,
            Err(Unavailable::Disabled) => ok(name, "switched off for agents that inherit"),
            Err(Unavailable::NoAccount) => note(name, "no account, so no tool", how_to_get(*capability)),
            Err(Unavailable::AccountMissing) => broken(
                name,
                "pinned to a vendor the install has no account of, so no tool",
                "save an account of that vendor, or put the capability back to automatic",
            ),
        });
    }
    checks
}

async fn granted(db: &Db, keys: Option<&MasterKeys>, name: &'static str, installed: &Installed) -> Check {
    let label = entry(&installed.vendor).map_or_else(|| installed.vendor.as_str(), |entry| entry.label);
    let secret = match (&installed.account.name, installed.account.secret, keys) {
        (AccountRef::Environment { .. }, ..) => return ok(name, format!("{label}, brought by this server")),
        (AccountRef::Stored { .. }, Some(secret), Some(keys)) => secrets::open(db, keys, Scope::Install, VENDOR_KEY, secret).await,
        // The line about the master key says what is missing.
        (AccountRef::Stored { .. }, ..) => return ok(name, format!("{label}, on the install's account")),
    };
    match secret {
        Ok(_) => ok(name, format!("{label}, on the install's account")),
        Err(_) => broken(name, format!("the credential of {label} does not open"), "save the account again with its key"),
    }
}

fn how_to_get(capability: Capability) -> &'static str {
    match capability {
        Capability::Search | Capability::Read => "an owner saves one: `PUT /api/settings/web/vendors/…`",
        Capability::Browser => "`formation serve --local-browser` offers this machine's",
    }
}

/// Whether the two variables make an account.
pub(super) fn variables(wiring: &Wiring) -> Option<Check> {
    const NAME: &str = "environment";
    let is_set = |name| wiring.environment.variable(name).is_some();
    match (is_set(TOKEN), is_set(ACCOUNT)) {
        (false, false) => None,
        (true, true) => Some(note(
            NAME,
            format!("`{TOKEN}` and `{ACCOUNT}` are set, and no vendor of this version takes them"),
            "unset them, or wait for Cloudflare in the catalog",
        )),
        (true, false) => {
            Some(note(NAME, format!("`{TOKEN}` alone counts as no account"), format!("set `{ACCOUNT}` too, or neither")))
        }
        (false, true) => {
            Some(note(NAME, format!("`{ACCOUNT}` alone counts as no account"), format!("set `{TOKEN}` too, or neither")))
        }
    }
}
