//! Durable state on SQLite and PostgreSQL: the transaction object, the aggregates, migrations and sealed secrets.
//!
//! Aggregates are plain functions on [`Tx`], or on [`Db`] for reads and for whole transactions of their own. There is no finder
//! without its owner: another agent's id is answered like one that does not exist. Every list has a bound.
//!
//! Locks are always taken in the order of spine.md 5: install scope, agent scopes, browser session by run, tool call by id, run
//! row, evidence. Nobody goes back up.
//!
//! To add an aggregate: a module with its functions and a `mod sql` made with `statements!`, a line in `modules!` below, and its
//! tests in `tests/it`, which run on both engines.

mod error;

pub mod combine;
pub mod db;
pub mod ledger;
pub mod seal;

/// Declares the modules that hold statements, and lists the statements.
macro_rules! modules {
    ($($vis:vis mod $name:ident;)+) => {
        $($vis mod $name;)+

        /// Every statement of this crate, by module and name.
        pub fn statements() -> Vec<(&'static str, &'static str, db::Sql)> {
            let mut all = Vec::new();
            for (module, listed) in [
                ("db", db::statement::LISTED),
                ("db::tx", db::tx_sql::LISTED),
                ("db::group", db::group_sql::LISTED),
                ("db::news", db::news_sql::LISTED),
                ("admission::meters", admission::meters_sql::LISTED),
                ("admission::sessions", admission::sessions_sql::LISTED),
                ("ledger", ledger::own::LISTED),
                ("ledger::queue", ledger::queue_sql::LISTED),
                ("ledger::read", ledger::read_sql::LISTED),
                ("ledger::reconcile", ledger::reconcile_sql::LISTED),
                ("ledger::settle", ledger::settle_sql::LISTED),
                $((stringify!($name), $name::sql::LISTED),)+
            ] {
                all.extend(listed.iter().map(|(name, sql)| (module, *name, *sql)));
            }
            all
        }
    };
}

modules! {
    pub mod accounts;
    pub mod admission;
    pub mod agents;
    pub mod artifacts;
    pub mod audit;
    pub mod browser_sessions;
    pub mod connections;
    pub mod conversations;
    pub mod evidence;
    pub mod install;
    pub mod instances;
    pub mod keys;
    pub mod login_attempts;
    mod migrate;
    pub mod mcp_sessions;
    pub mod offers;
    pub mod operator_sessions;
    pub mod operators;
    pub mod recovery;
    pub mod runs;
    pub mod secrets;
    pub mod settings;
    pub mod setup_links;
    pub mod summaries;
    pub mod sweep;
    pub mod tokens;
    pub mod usage;
}

use formation_core::Timestamp;

pub use db::{Db, Engine, Hold, Listener, Location, News, OpenError, TimeSource, Tx};
pub use error::{Kind, StoreError};
pub use migrate::{MigrationError, MigrationStatus, migrations};

/// Which version of a row is stored, and who stored it: what somebody with an older one is told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changed {
    /// 0: there is no row.
    pub version: i64,
    /// The name of whoever wrote it.
    pub by: Option<String>,
    /// When.
    pub at: Option<Timestamp>,
}

/// A page of a list, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    /// At most as many as asked for.
    pub items: Vec<T>,
    /// Whether there are more after the last one.
    pub has_more: bool,
}
