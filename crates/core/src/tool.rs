//! The tools and what they need. Names are stable and name no vendor (T1).

use crate::words;

words! {
    /// What an agent can be granted; each is on, off or misconfigured by itself (W1).
    pub enum Capability {
        /// Searching the web.
        Search = "search",
        /// Reading a public page.
        Read = "read",
        /// Driving a browser.
        Browser = "browser",
    }
}

impl Capability {
    /// Whether its calls are provider requests counted per minute and per run (L1, L8). A browser uses the run's own allowance
    /// (B16).
    pub const fn is_metered(self) -> bool {
        match self {
            Self::Search | Self::Read => true,
            Self::Browser => false,
        }
    }
}

words! {
    /// Whether a call can change something outside (contract.md 3, Ledger).
    pub enum Class {
        /// Can be repeated freely: an interrupted one needs no reconciliation (L6).
        Read = "read",
        /// Crosses the durable effect boundary: on record before its first byte, never sent twice (T8).
        ExternalEffect = "external_effect",
    }
}

words! {
    /// The tools an agent can call (contract.md 4).
    pub enum Tool {
        /// Searches the web.
        WebSearch = "web_search",
        /// Opens a URL in the run's browser.
        BrowserNavigate = "browser_navigate",
        /// Reads the current page.
        BrowserRead = "browser_read",
        /// Clicks, types or presses a key.
        BrowserAct = "browser_act",
        /// Takes a picture of the viewport.
        BrowserScreenshot = "browser_screenshot",
    }
}

impl Tool {
    /// The capability whose grant this tool hangs on.
    pub const fn capability(self) -> Capability {
        match self {
            Self::WebSearch => Capability::Search,
            Self::BrowserNavigate | Self::BrowserRead | Self::BrowserAct | Self::BrowserScreenshot => Capability::Browser,
        }
    }

    /// Whether it crosses the effect boundary (B18).
    pub const fn class(self) -> Class {
        match self {
            Self::BrowserNavigate | Self::BrowserAct => Class::ExternalEffect,
            Self::WebSearch | Self::BrowserRead | Self::BrowserScreenshot => Class::Read,
        }
    }
}
