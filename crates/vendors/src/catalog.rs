//! Which vendors there are, in the order automatic selection tries them (W6), and what a settings page says about each.

use std::{collections::HashMap, sync::Arc};

use formation_core::{Capability, VendorId, settings::EnvironmentAccount};

use crate::{
    Browsers, Search, brave,
    local::{self, LocalBrowser},
};

/// What is known of a vendor before anybody has an account: one entry makes a vendor (T2).
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its word in routes, settings and storage.
    pub vendor: VendorId,
    /// Its name for people.
    pub label: &'static str,
    /// What its credential is and where to get one; `None` where the environment alone brings the account.
    pub credential: Option<Credential>,
    /// Vendor-level settings, which lie on the account (W3).
    pub fields: &'static [Field],
    /// What it implements, each with what that needs.
    pub providers: &'static [Provider],
}

/// A vendor's implementation of one capability.
#[derive(Debug, Clone)]
pub struct Provider {
    /// Which.
    pub capability: Capability,
    /// What the credential must be allowed to do, in the vendor's own words.
    pub permissions: &'static [&'static str],
    /// Capability-level settings, which lie on the connection (W3).
    pub fields: &'static [Field],
    /// Where the data goes and who guards what, in a sentence or two for the settings page (T9).
    pub boundary: &'static str,
}

/// What an owner has to bring.
#[derive(Debug, Clone)]
pub struct Credential {
    /// What the vendor calls it.
    pub label: &'static str,
    /// How to get one (O13).
    pub setup: &'static str,
    /// Where.
    pub links: &'static [Link],
}

/// An address for a person to open.
#[derive(Debug, Clone)]
pub struct Link {
    /// What is there.
    pub label: &'static str,
    /// An https URL.
    pub url: &'static str,
}

/// One setting; a form is drawn from it.
#[derive(Debug, Clone)]
pub struct Field {
    /// Its name in `config`.
    pub name: &'static str,
    /// Its name for people.
    pub label: &'static str,
    /// What it takes.
    pub kind: FieldKind,
    /// Whether it must be there.
    pub required: bool,
    /// What counts without it.
    pub default: &'static str,
    /// The choices of a select.
    pub options: &'static [&'static str],
    /// What it does, in a sentence.
    pub help: &'static str,
    /// Whether a text is one of its values; options and hostname lists are checked for themselves.
    pub check: fn(&str) -> bool,
}

formation_core::words! {
    /// What a field takes.
    pub enum FieldKind {
        /// One line.
        Text = "text",
        /// One of its options.
        Select = "select",
        /// A hostname list.
        Hostnames = "hostnames",
    }
}

/// The hostname list of a browser connection.
pub const ALLOWED_HOSTS: Field = Field {
    name: "allowed_hosts",
    label: "Allowed hostnames",
    kind: FieldKind::Hostnames,
    required: false,
    default: "",
    options: &[],
    help: "Exact hostnames, one a line or comma-separated: login, redirect, API and asset hosts too. Blank allows any website.",
    check: |_| true,
};

/// Every vendor, in catalog order; `local` stays last.
pub const ENTRIES: &[Entry] = &[brave::ENTRY, local::ENTRY];

/// The entry of a vendor.
pub fn entry(vendor: &VendorId) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.vendor == *vendor)
}

impl Entry {
    /// Its implementation of `capability`.
    pub fn provider(&self, capability: Capability) -> Option<&'static Provider> {
        self.providers.iter().find(|provider| provider.capability == capability)
    }
}

/// The adapters of this process.
#[derive(Debug, Default)]
pub struct Catalog {
    searches: HashMap<VendorId, Arc<dyn Search>>,
    browsers: HashMap<VendorId, Arc<dyn Browsers>>,
    environment: Vec<EnvironmentAccount>,
}

impl Catalog {
    /// Without an adapter that needs something of this machine.
    pub fn new() -> Self {
        Self::default()
    }

    /// With the browser of this machine, whose account is the environment's: its switches are what an offer hangs on, so a start
    /// with others makes other offers. `keyed_hash` is keyed with something only this installation has.
    pub fn with_local(mut self, local: Arc<LocalBrowser>, keyed_hash: impl Fn(&[u8]) -> [u8; 8]) -> Self {
        let fingerprint = format!("{:016x}", u64::from_be_bytes(keyed_hash(local.switches().as_bytes())));
        self.environment.push(EnvironmentAccount { vendor: local::VENDOR, fingerprint });
        self.browsers.insert(local::VENDOR, local);
        self
    }

    /// With a search provider.
    pub fn with_search(mut self, vendor: VendorId, search: Arc<dyn Search>) -> Self {
        self.searches.insert(vendor, search);
        self
    }

    /// The vendors that implement `capability`, in catalog order.
    pub fn order(&self, capability: Capability) -> Vec<VendorId> {
        ENTRIES.iter().filter(|entry| entry.provider(capability).is_some()).map(|entry| entry.vendor.clone()).collect()
    }

    /// The accounts this process brings; they belong to the install.
    pub fn environment_accounts(&self) -> Vec<EnvironmentAccount> {
        self.environment.clone()
    }

    /// Who searches for `vendor`.
    pub fn search(&self, vendor: &VendorId) -> Option<Arc<dyn Search>> {
        self.searches.get(vendor).cloned()
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
        assert_eq!(ENTRIES.last().map(|entry| &entry.vendor), Some(&local::VENDOR));
        assert!(catalog.environment_accounts().is_empty());
        assert!(catalog.browsers(&local::VENDOR).is_none());
    }

    /// O13, T9: whoever has to bring a credential is told what it is called, how to get one, and where the data goes.
    #[test]
    fn every_entry_says_what_its_page_needs() {
        for entry in ENTRIES {
            let sentences = entry.providers.iter().map(|provider| provider.boundary);
            assert!(!entry.providers.is_empty() && sentences.clone().all(|text| text.ends_with('.')), "{}", entry.vendor);
            let Some(credential) = &entry.credential else { continue };
            assert!(!credential.label.is_empty() && credential.setup.ends_with('.') && !credential.links.is_empty());
            assert!(credential.links.iter().all(|link| link.url.starts_with("https://") && !link.label.is_empty()));
            assert!(entry.providers.iter().all(|provider| !provider.permissions.is_empty()), "{}", entry.vendor);
        }
        let order = Catalog::new().order(Capability::Search);
        assert_eq!(order, [brave::VENDOR]);
    }
}
