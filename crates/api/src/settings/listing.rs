//! The listing: what every read and every write of web settings answers with (O1, O2).

use formation_core::{AccountRef, Capability, Scope, Timestamp, settings::Mode};
use formation_runtime::settings::{self as runtime, CapabilityState, Entry, Field, Provider, VendorState};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// Web settings of one owner.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebListing)]
pub(crate) struct Listing {
    /// `install` or `agent`.
    scope: &'static str,
    /// Search, reading and the browser, each by itself.
    capabilities: Vec<CapabilityRow>,
    /// Every vendor, in the order automatic selection tries them.
    vendors: Vec<VendorRow>,
}

/// One capability.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebCapability)]
pub(crate) struct CapabilityRow {
    /// `search`, `read` or `browser`.
    #[schema(value_type = String)]
    capability: Capability,
    /// Who implements it.
    providers: Vec<ProviderRow>,
    /// What the owner has set; without a row the default at version 0.
    settings: SettingsRow,
    /// Who serves it now; empty where nobody does.
    effective_provider: String,
    /// Whose account pays: `install`, `agent` or empty.
    credential_source: &'static str,
    /// `owner` for a stored account, `environment` for one that the server was started with, or empty.
    account_source: &'static str,
    /// The stored account's version; 0 for the environment's and for none.
    account_version: i64,
    /// Whether there is a credential for it.
    credential_present: bool,
    /// Whether its tools are offered and can run.
    available: bool,
    /// `disabled`, `no_account`, `account_missing`, `credential_unreadable` or empty.
    unavailable_reason: &'static str,
    /// The running minute of the connection that meters; null where nothing is counted.
    #[schema(required)]
    meter: Option<Meter>,
}

/// A vendor's implementation of a capability.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebProvider)]
pub(crate) struct ProviderRow {
    /// What settings name it by.
    name: &'static str,
    /// Its name for people.
    label: &'static str,
    /// Whose account it uses.
    vendor: &'static str,
    /// What the credential must be allowed to do.
    permissions: &'static [&'static str],
    /// Its settings on the connection.
    fields: Vec<FieldRow>,
    /// Where the data goes and who guards what.
    boundary: &'static str,
}

/// One setting; a form is drawn from it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SettingField)]
pub(crate) struct FieldRow {
    /// Its name in `config`.
    name: &'static str,
    /// Its name for people.
    label: &'static str,
    /// `text`, `select` or `hostnames`.
    kind: &'static str,
    /// Whether it must be there.
    required: bool,
    /// What counts without it.
    default: &'static str,
    /// The choices of a select.
    options: &'static [&'static str],
    /// What it does.
    help: &'static str,
}

/// What an owner has set for a capability.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebSettings)]
pub(crate) struct SettingsRow {
    /// `auto`, `inherit`, `own` or `disabled`.
    #[schema(value_type = String)]
    mode: Mode,
    /// The pinned provider, or empty.
    provider: String,
    /// Capability-level settings.
    #[schema(value_type = Object)]
    config: Value,
    /// Null for the browser, which isn't counted per request. Where an agent inherits, only what lowers the install's is here.
    #[schema(required)]
    limits: Option<LimitsRow>,
    /// What a write names; 0 without a row.
    version: i64,
}

/// How many provider requests a connection may make: admitted attempts, not amounts on an invoice.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebLimits)]
pub(crate) struct LimitsRow {
    /// Over all agents of the connection.
    #[schema(required)]
    requests_per_minute: Option<i64>,
    /// Of one run.
    #[schema(required)]
    requests_per_run: Option<i64>,
}

/// A connection's minute.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebMeter)]
pub(crate) struct Meter {
    /// Units taken from it.
    minute_used: i64,
    /// Units it has.
    minute_limit: i64,
    /// When the next one begins.
    #[schema(value_type = String, format = DateTime)]
    window_ends: Timestamp,
}

/// One vendor.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebVendor)]
pub(crate) struct VendorRow {
    /// Its word in addresses.
    vendor: &'static str,
    /// Its name for people.
    label: &'static str,
    /// What it calls its credential; empty where no account can be stored.
    credential_label: &'static str,
    /// How to get one.
    setup_instructions: &'static str,
    /// Where.
    setup_links: Vec<LinkRow>,
    /// Its settings on the account.
    fields: Vec<FieldRow>,
    /// The stored account's settings.
    #[schema(value_type = Object)]
    config: Value,
    /// The stored account's version; 0 without one.
    version: i64,
    /// `owner` for a stored account, `environment` for one that the server was started with, or empty.
    credential_source: &'static str,
    /// Whether the owner has an account there.
    configured: bool,
    /// Whether the server was started with an account for the install, in use or not. An agent's own provider never uses it.
    environment_available: bool,
    /// What the vendor implements.
    capabilities: Vec<VendorCapability>,
}

/// An address for a person to open.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SetupLink)]
pub(crate) struct LinkRow {
    /// What is there.
    label: &'static str,
    /// An https URL.
    url: &'static str,
}

/// A capability of a vendor.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebVendorCapability)]
pub(crate) struct VendorCapability {
    /// Which.
    #[schema(value_type = String)]
    capability: Capability,
    /// What the credential must be allowed to do.
    permissions: &'static [&'static str],
}

impl From<runtime::Listing> for Listing {
    fn from(listing: runtime::Listing) -> Self {
        Self {
            scope: listing.owner.owner_word(),
            capabilities: listing.capabilities.into_iter().map(Into::into).collect(),
            vendors: listing.vendors.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<CapabilityState> for CapabilityRow {
    fn from(state: CapabilityState) -> Self {
        let stored = state.settings;
        let limits = LimitsRow { requests_per_minute: stored.requests_per_minute, requests_per_run: stored.requests_per_run };
        let settings = SettingsRow {
            mode: stored.mode,
            provider: stored.vendor.map(|vendor| vendor.to_string()).unwrap_or_default(),
            config: stored.config,
            limits: state.capability.is_metered().then_some(limits),
            version: stored.version,
        };
        let (account_source, account_version) = match state.effective.as_ref().map(|effective| &effective.account) {
            Some(AccountRef::Stored { version, .. }) => ("owner", *version),
            Some(AccountRef::Environment { .. }) => ("environment", 0),
            None => ("", 0),
        };
        Self {
            capability: state.capability,
            providers: state.providers.into_iter().map(provider).collect(),
            settings,
            credential_source: state.effective.as_ref().map_or("", |effective| Scope::owner_word(effective.owner)),
            account_source,
            account_version,
            credential_present: state.effective.is_some(),
            available: state.reason.is_none(),
            unavailable_reason: state.reason.map_or("", |reason| reason.as_str()),
            effective_provider: state.effective.map(|effective| effective.vendor.to_string()).unwrap_or_default(),
            meter: state.meter.map(|(minute, limits)| Meter {
                minute_used: minute.used,
                minute_limit: limits.requests_per_minute,
                window_ends: minute.ends,
            }),
        }
    }
}

impl From<VendorState> for VendorRow {
    fn from(state: VendorState) -> Self {
        let entry = state.entry;
        let credential = entry.credential.as_ref();
        let credential_source = match &state.account {
            Some(_) => "owner",
            None if state.is_environment_account_usable => "environment",
            None => "",
        };
        let links = credential.map_or(&[][..], |credential| credential.links);
        let capabilities = entry.providers.iter();
        Self {
            vendor: word(entry),
            label: entry.label,
            credential_label: credential.map_or("", |credential| credential.label),
            setup_instructions: credential.map_or("", |credential| credential.setup),
            setup_links: links.iter().map(|link| LinkRow { label: link.label, url: link.url }).collect(),
            fields: entry.fields.iter().map(field).collect(),
            version: state.account.as_ref().map_or(0, |account| account.version),
            config: state.account.map_or_else(|| Value::Object(Map::new()), |account| account.config),
            credential_source,
            configured: !credential_source.is_empty(),
            environment_available: state.has_environment_account,
            capabilities: capabilities
                .map(|provider| VendorCapability { capability: provider.capability, permissions: provider.permissions })
                .collect(),
        }
    }
}

fn word(entry: &'static Entry) -> &'static str {
    entry.vendor.as_str()
}

fn provider((entry, provider): (&'static Entry, &'static Provider)) -> ProviderRow {
    ProviderRow {
        name: word(entry),
        label: entry.label,
        vendor: word(entry),
        permissions: provider.permissions,
        fields: provider.fields.iter().map(field).collect(),
        boundary: provider.boundary,
    }
}

fn field(field: &'static Field) -> FieldRow {
    FieldRow {
        name: field.name,
        label: field.label,
        kind: field.kind.as_str(),
        required: field.required,
        default: field.default,
        options: field.options,
        help: field.help,
    }
}
