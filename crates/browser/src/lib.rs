//! CDP client and page driver over one connection to one browser.
//!
//! It knows no vendor and no database: a vendor brings both ends of a connection ([`CdpWire`]), the runtime says what to do and
//! puts effects on record between [`prepare`] and [`Prepared::dispatch`].

mod aim;
mod cdp;
mod effect;
mod evaluate;
mod input;
mod jpeg;
mod keys;
mod live;
mod look;
mod navigate;
mod pump;
mod reader;
mod screenshot;
mod script;
mod settle;
mod tabs;

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use formation_core::{
    Faults,
    arguments::{Action, Consent},
    failure::Reason,
    hostlist::HostList,
};
use tokio::sync::mpsc;
use url::Url;

pub use self::{
    effect::{Dispatched, Prepared, prepare},
    live::{Live, LostWatch},
    look::look,
    screenshot::{Shot, screenshot},
};

pub use reader::bound;

/// Both directions of one CDP connection, whatever carries it: a pipe for `local`, a WebSocket for hosted ones. One item is one
/// JSON message without a terminator. The connection is over when either channel closes.
#[derive(Debug)]
pub struct CdpWire {
    /// To the browser.
    pub send: mpsc::Sender<Bytes>,
    /// From the browser.
    pub receive: mpsc::Receiver<Bytes>,
}

/// What `local`'s proxy knows about requests it refused; a navigation asks for the reason behind Chromium's error text.
pub trait ProxyRefusals: Send + Sync + fmt::Debug {
    /// The newest refusal of `host:port` since it was last asked for: `address_not_allowed`, `hostname_not_allowed`, `dns_failed`, ….
    fn take(&self, host: &str, port: u16) -> Option<Reason>;
}

/// How long to wait for what; tests shrink it. Defaults are browser.md 1.1 and A15.
#[derive(Debug, Clone)]
pub struct Timing {
    /// Least wait after an action.
    pub action_floor: Duration,
    /// Visible content unchanged for this long, after an action.
    pub action_stable: Duration,
    /// The same, after a navigation's load.
    pub navigation_stable: Duration,
    /// Longest wait for content to come to rest.
    pub settle_bound: Duration,
    /// Longest wait for a navigation to commit and load.
    pub navigation_load: Duration,
    /// Longest wait for one CDP command that is not input or navigation.
    pub command: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            action_floor: Duration::from_millis(750),
            action_stable: Duration::from_millis(500),
            navigation_stable: Duration::from_millis(100),
            settle_bound: Duration::from_secs(8),
            navigation_load: formation_core::limits::NAVIGATION_LOAD,
            command: Duration::from_secs(10),
        }
    }
}

/// The rules one session is driven by.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Hosts that may be observed.
    pub hosts: HostList,
    /// `local`'s proxy, if there is one.
    pub refusals: Option<Arc<dyn ProxyRefusals>>,
    /// Waits.
    pub timing: Timing,
    /// Places where the binary under test stops.
    pub faults: Faults,
}

/// An operation that crosses the effect boundary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Opens a URL that [`formation_core::destination::browser`] accepted.
    Navigate {
        /// Canonical.
        url: Url,
    },
    /// An action on a ref.
    Act {
        /// What.
        action: Action,
        /// The model's consent to the first confirm or prompt.
        dialog: Option<Consent>,
    },
}

/// How to look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Look {
    /// Byte offset into the document's text.
    pub text_offset: usize,
    /// Only what contains this, ignoring case.
    pub find: Option<String>,
}

/// How an effect ended when it did not end well. Every variant has a reason and no text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DispatchError {
    /// Nothing left us, or the browser refused the first command.
    NothingSent(Reason),
    /// All is known: a navigation was answered, and the page did not load.
    Known(Reason),
    /// An acknowledgement is missing.
    Unknown(Reason),
}
