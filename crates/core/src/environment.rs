//! The process environment, passed in and read at each use (W16), never kept.

use std::{fmt, sync::Arc};

type Variable = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Looks an environment variable up by its name.
#[derive(Clone)]
pub struct Environment(Arc<Variable>);

impl Environment {
    /// Wraps a lookup.
    pub fn new(variable: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(variable))
    }

    /// The variable's value now; unset, empty and not-Unicode are the same.
    pub fn variable(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")
    }
}
