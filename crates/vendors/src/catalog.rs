//! Which vendors there are, in the order automatic selection tries them (W6).

use std::{collections::HashMap, sync::Arc};

use formation_core::{Capability, VendorId, settings::EnvironmentAccount};

use crate::{
    Browsers,
    local::{self, LocalBrowser},
};

/// What is known of a vendor before anybody has an account.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its word in routes, settings and storage.
    pub vendor: VendorId,
    /// Its name for people.
    pub label: &'static str,
    /// What it implements.
    pub capabilities: &'static [Capability],
    /// Where the data goes and who guards what, in a sentence or two for the settings page.
    pub boundary: &'static str,
}

/// Every vendor, in catalog order; `local` stays last.
pub const ENTRIES: &[Entry] = &[Entry {
    vendor: local::VENDOR,
    label: "This machine's Chromium",
    capabilities: &[Capability::Browser],
    boundary: "Pages open in a Chromium on the machine Formation runs on, one process and one empty profile a session. Its only way \
               out is Formation's proxy, which enforces the hostname list for every request and refuses link-local addresses, and \
               private ones unless the server was started with --local-browser-allow-private.",
}];

/// The adapters of this process.
#[derive(Debug)]
pub struct Catalog {
    order: Vec<(VendorId, Vec<Capability>)>,
    browsers: HashMap<VendorId, Arc<dyn Browsers>>,
    environment: Vec<EnvironmentAccount>,
}

impl Default for Catalog {
    fn default() -> Self {
        Self::new()
    }
}

impl Catalog {
    /// All entries, without an adapter that needs something of this machine.
    pub fn new() -> Self {
        let order = ENTRIES.iter().map(|entry| (entry.vendor.clone(), entry.capabilities.to_vec())).collect();
        Self { order, browsers: HashMap::new(), environment: Vec::new() }
    }

    /// With the browser of this machine, whose account is the environment's: its switches are what an offer hangs on, so a start
    /// with others makes other offers. `keyed_hash` is keyed with something only this installation has.
    pub fn with_local(mut self, local: Arc<LocalBrowser>, keyed_hash: impl Fn(&[u8]) -> [u8; 8]) -> Self {
        let fingerprint = format!("{:016x}", u64::from_be_bytes(keyed_hash(local.switches().as_bytes())));
        self.environment.push(EnvironmentAccount { vendor: local::VENDOR, fingerprint });
        self.browsers.insert(local::VENDOR, local);
        self
    }

    /// The vendors that implement `capability`, in catalog order.
    pub fn order(&self, capability: Capability) -> Vec<VendorId> {
        self.order.iter().filter(|(_, capabilities)| capabilities.contains(&capability)).map(|(vendor, _)| vendor.clone()).collect()
    }

    /// The accounts this process brings; they belong to the install.
    pub fn environment_accounts(&self) -> Vec<EnvironmentAccount> {
        self.environment.clone()
    }

    /// Who opens browsers of `vendor`; `None` where this process can't.
    pub fn browsers(&self, vendor: &VendorId) -> Option<Arc<dyn Browsers>> {
        self.browsers.get(vendor).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_is_last_and_has_no_account_before_it_is_enabled() {
        let catalog = Catalog::new();
        assert_eq!(catalog.order(Capability::Browser).last(), Some(&local::VENDOR));
        assert!(catalog.order(Capability::Search).is_empty());
        assert!(catalog.environment_accounts().is_empty());
        assert!(catalog.browsers(&local::VENDOR).is_none());
    }
}
