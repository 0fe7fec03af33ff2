//! The front doors, as far as they go without a database: who gets in, with how much, in what time.

mod audience;
mod client;
mod oversize;
mod slow;
mod stopping;
