//! What a run is offered.

use formation_core::{OfferId, Tool};
use serde_json::Value;

/// One tool on offer. `offer` is absent when the run is over: nothing is recorded then.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// The tool.
    pub tool: Tool,
    /// The recorded offer.
    pub offer: Option<OfferId>,
}

impl Offer {
    /// What the model reads: what it does, its limits, what it does not prove (A16, A17).
    pub const fn description(&self) -> &'static str {
        ""
    }

    /// JSON schema of the arguments.
    pub fn input_schema(&self) -> Value {
        formation_core::arguments::Arguments::schema(self.tool)
    }
}
