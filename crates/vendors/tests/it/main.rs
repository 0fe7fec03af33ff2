//! The local browser on a real Chromium, and search providers against fakes over real TLS.

mod browser;
mod pages;
mod processes;
mod search;
mod sharing;
mod walls;
