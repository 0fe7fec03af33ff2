//! Named places at which the binary under test can be stopped (design.md, Tests).
//!
//! Production passes `Faults::none()`. There is no flag, variable or cargo feature that arms one.

use std::{fmt, sync::Arc};

/// Called with the name of each place as it is passed.
#[derive(Clone, Default)]
pub struct Faults(Option<Arc<dyn Fn(&'static str) + Send + Sync>>);

impl Faults {
    /// No place stops.
    pub fn none() -> Self {
        Self(None)
    }

    /// `reached` sees every place; it may park the thread for ever.
    pub fn new(reached: impl Fn(&'static str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(reached)))
    }

    /// Passes the place `name`.
    pub fn at(&self, name: &'static str) {
        if let Some(reached) = &self.0 {
            reached(name);
        }
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Faults(armed)" } else { "Faults(none)" })
    }
}
