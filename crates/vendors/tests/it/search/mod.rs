//! Search adapters against fakes over real TLS: what goes out, what comes back, and what stays out.

mod failures;
mod hostile;
mod replies;
mod requests;
mod transport;

use std::{sync::Arc, time::Duration};

use formation_core::{Clock, Secret, Timestamp, failure::CallFailure, search::Hit};
use formation_testkit::brave::{self, FakeBrave};
use formation_vendors::{Account, Search as _, brave::Brave};
use formation_wire::{Names, Outside, SystemResolver};
use serde_json::{Value, json};

/// Longer than any answer of a fake that is meant to answer.
const PATIENT: Duration = Duration::from_secs(30);

/// An adapter and the fake it leads to.
struct Bench {
    fake: FakeBrave,
    brave: Brave,
}

impl Bench {
    async fn start() -> Self {
        Self::waiting(PATIENT).await
    }

    /// A call of it takes no longer than `call`.
    async fn waiting(call: Duration) -> Self {
        let fake = FakeBrave::start().await.expect("a fake");
        let brave = adapter(&outside(&fake, call));
        Self { fake, brave }
    }

    async fn search(&self, query: &str, limit: u8) -> Result<Vec<Hit>, CallFailure> {
        search(&self.brave, brave::KEY, query, limit).await
    }

    /// What a query that must fail says.
    async fn failure(&self, query: &str) -> CallFailure {
        match self.search(query, 5).await {
            Ok(hits) => panic!("{query}: {hits:?}"),
            Err(failure) => failure,
        }
    }
}

fn outside(fake: &FakeBrave, call: Duration) -> Outside {
    let names = Names::none().with("api.search.brave.com", 443, fake.address()).expect("loopback");
    Outside { resolver: Arc::new(SystemResolver), names: Arc::new(names), only_roots: Some(vec![fake.ca()]), call }
}

fn adapter(outside: &Outside) -> Brave {
    formation_wire::install_tls_provider();
    let noon: Timestamp = serde_json::from_value(json!("2026-11-30T12:00:00Z")).expect("a moment");
    Brave::new(outside, Clock::frozen(noon).0).expect("an adapter")
}

async fn search(brave: &Brave, key: &str, query: &str, limit: u8) -> Result<Vec<Hit>, CallFailure> {
    let key = Secret::new(key.as_bytes());
    let config = Value::Object(serde_json::Map::new());
    brave.search(Account { key: Some(&key), config: &config }, &config, query, limit).await
}
