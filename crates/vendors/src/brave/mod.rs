//! Brave's web search: one GET per call, the key in a header (vendors/search.md 3).

mod failure;
mod reply;

use std::time::Duration;

use async_trait::async_trait;
use formation_core::{
    Capability, Clock, VendorId,
    arguments::InvalidArguments,
    failure::{CallFailure, CallReason, CallStage},
    limits,
    search::Hit,
};
use formation_wire::{Client, ClientError, Credential, Outside, Request};
use serde_json::Value;

use crate::{Account, Credential as Bring, Entry, Link, Provider, Search, transport};

/// Its word.
pub const VENDOR: VendorId = VendorId::known("brave");

/// What the catalog says of it.
pub(crate) const ENTRY: Entry = Entry {
    vendor: VENDOR,
    label: "Brave Search",
    credential: Some(Bring {
        label: "Subscription token",
        setup: "Sign up for the Brave Search API, subscribe to a plan that includes web search, and make a key under API keys. Formation \
                keeps what agents found in its ledger for the retention time. Brave's terms limit the storing of results to plans \
                with storage rights: compare the two before agents use this key.",
        links: &[
            Link { label: "API keys", url: "https://api-dashboard.search.brave.com/app/keys" },
            Link { label: "Plans", url: "https://api-dashboard.search.brave.com/app/subscriptions/subscribe" },
            Link { label: "Terms of service", url: "https://api-dashboard.search.brave.com/terms-of-service" },
        ],
    }),
    fields: &[],
    providers: &[Provider {
        capability: Capability::Search,
        permissions: &["A subscription that includes web search"],
        fields: &[],
        boundary: "Queries go to Brave under this key, and Brave bills whoever owns it. Results are Brave's selection of other people's \
                   pages: Formation opens none of them, marks them as evidence and keeps them in its ledger for the retention time.",
    }],
};

/// What Brave takes since autumn 2026. A longer query is refused before anything is spent.
const QUERY_CHARACTERS: usize = 600;
/// See [`QUERY_CHARACTERS`].
const QUERY_WORDS: usize = 75;
/// What older plans take too.
const SAFE: (usize, usize) = (400, 50);

const ORIGIN: &str = "https://api.search.brave.com";
const PATH: &str = "/res/v1/web/search";
const KEY_HEADER: &str = "x-subscription-token";

/// The adapter.
#[derive(Debug)]
pub struct Brave {
    client: Client,
    /// For one request, its whole reply included.
    wait: Duration,
    clock: Clock,
}

impl Brave {
    /// Reaches Brave as `outside` says. `clock` says which dates of results are still to come.
    pub fn new(outside: &Outside, clock: Clock) -> Result<Self, ClientError> {
        Ok(Self { client: Client::vendor(ORIGIN, outside)?, wait: outside.call, clock })
    }
}

#[async_trait]
impl Search for Brave {
    fn check(&self, query: &str) -> Result<(), InvalidArguments> {
        let (characters, words) = (query.chars().count(), query.split_whitespace().count());
        if characters <= QUERY_CHARACTERS && words <= QUERY_WORDS {
            return Ok(());
        }
        Err(InvalidArguments(format!(
            "This search provider takes at most {QUERY_CHARACTERS} characters and {QUERY_WORDS} words; the query has {characters} \
             characters and {words} words. Send keywords instead of sentences: {} characters and {} words always fit.",
            SAFE.0, SAFE.1,
        )))
    }

    async fn search(&self, account: Account<'_>, _config: &Value, query: &str, limit: u8) -> Result<Vec<Hit>, CallFailure> {
        let key = account.key.ok_or(CallFailure::new(CallStage::Request, CallReason::CredentialRejected))?;
        let count = limit.to_string();
        let request = Request {
            // Every parameter that matters is sent: defaults are Brave's to change. `Api-Version` and `Cache-Control` are not:
            // most of their values are refused.
            query: &[("q", query), ("count", &count), ("result_filter", "web"), ("text_decorations", "false")],
            credential: Some(Credential::Header(KEY_HEADER, key)),
            accept: Some("application/json"),
            ..Request::get(PATH)
        };
        let reply = self.client.send(request, limits::WIRE_BYTES, self.wait).await.map_err(transport::failure)?;
        if reply.status != 200 {
            return Err(failure::of(&reply));
        }
        // A 200 can carry an error instead of results; without a known code it is no reply at all.
        reply::hits(&reply.body, limit, self.clock.now()).ok_or_else(|| failure::of(&reply))
    }
}
