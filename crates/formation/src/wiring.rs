//! What a server gets from outside itself: the clock, randomness, the environment, names, waits.
//!
//! `main` knows [`Wiring::production`] alone. Only the testkit's `formation-under-test` makes another one, and nothing of the release
//! binary, no flag, variable or cargo feature, can.

use std::{path::PathBuf, sync::Arc};

use formation_core::{Clock, Entropy, Environment, Faults, Timestamp};
use formation_wire::{Names, Resolver, SystemResolver};
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
    /// How long to wait for what.
    pub timing: Timing,
    /// Places to stop at.
    pub faults: Faults,
}

/// The waits of the parts, each with its own defaults.
#[derive(Debug, Clone, Default)]
pub struct Timing {
    /// Leases, sweeps, turns, operations, and the browser's own waits.
    pub runtime: formation_runtime::Timing,
    /// Heads, bodies, keep-alives, the time to stop in.
    pub server: formation_api::Timers,
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
            timing: Timing::default(),
            faults: Faults::none(),
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
