//! What the tests of this crate share: a real Chromium on a pipe, a loopback site, and a driver of both.

pub(crate) mod chromium;
pub(crate) mod drive;
pub(crate) mod fake;
pub(crate) mod site;
