//! The local browser, on a real Chromium.

mod browser;
mod pages;
mod processes;
mod sharing;
mod walls;
