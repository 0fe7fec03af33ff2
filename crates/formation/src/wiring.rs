//! What a server gets from outside itself: the clock, randomness, the environment, names, waits.
//!
//! `main` knows [`Wiring::production`] alone. Only the testkit's `formation-under-test` makes another one, and nothing of the release
//! binary, no flag, variable or cargo feature, can.

use std::{path::PathBuf, sync::Arc, time::Duration};

use formation_core::{Clock, Entropy, Environment, Faults, Timestamp, limits};
use formation_wire::{Names, Outside, Resolver, SystemResolver};
use rand::TryRng;

/// The seams.
#[derive(Debug, Clone)]
pub struct Wiring {
    /// The current moment.
    pub clock: Clock,
    /// Whether PostgreSQL's own clock decides there, so that replicas agree; a test that stands the clock still says no.
    pub database_time: bool,
    /// Keys, tokens and ids.
    pub entropy: Entropy,
    /// Variables, read at each use.
    pub environment: Environment,
    /// Names that lead to a loopback address.
    pub names: Names,
    /// Where all other names lead.
    pub resolver: Arc<dyn Resolver>,
    /// Roots, as DER, that sign vendors' certificates instead of the built-in ones.
    pub only_roots: Option<Vec<Vec<u8>>>,
    /// How long to wait for what.
    pub timing: Timing,
    /// Places to stop at.
    pub faults: Faults,
}

/// The waits of the parts, each with its own defaults.
#[derive(Debug, Clone)]
pub struct Timing {
    /// Leases, sweeps, turns, operations, and the browser's own waits.
    pub runtime: formation_runtime::Timing,
    /// Heads, bodies, keep-alives, the time to stop in.
    pub server: formation_api::Timers,
    /// One request to a vendor, its whole reply included.
    pub vendor_call: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            runtime: formation_runtime::Timing::default(),
            server: formation_api::Timers::default(),
            vendor_call: limits::VENDOR_CALL,
        }
    }
}

impl Wiring {
    /// The system's clock, randomness, environment and resolver; no mapped names, no faults.
    pub fn production() -> Self {
        Self {
            clock: system_clock(),
            database_time: true,
            entropy: system_entropy(),
            environment: system_environment(),
            names: Names::none(),
            resolver: Arc::new(SystemResolver),
            only_roots: None,
            timing: Timing::default(),
            faults: Faults::none(),
        }
    }

    /// The way to vendors.
    pub(crate) fn outside(&self) -> Outside {
        Outside {
            resolver: self.resolver.clone(),
            names: Arc::new(self.names.clone()),
            only_roots: self.only_roots.clone(),
            call: self.timing.vendor_call,
        }
    }

    /// The system's folder for temporary files.
    pub(crate) fn temporary_folder(&self) -> PathBuf {
        self.environment.variable("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from)
    }
}

#[expect(clippy::disallowed_methods, reason = "this is where the ban sends everybody")]
fn system_clock() -> Clock {
    Clock::new(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    })
}

fn system_entropy() -> Entropy {
    #[expect(clippy::disallowed_types, reason = "this is where the ban sends everybody")]
    use rand::rngs::SysRng;
    Entropy::new(|buffer| SysRng.try_fill_bytes(buffer).expect("the operating system has randomness, else nothing here is safe"))
}

#[expect(clippy::disallowed_methods, reason = "this is where the ban sends everybody")]
fn system_environment() -> Environment {
    Environment::new(|name| std::env::var(name).ok())
}
