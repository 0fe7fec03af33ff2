//! Tests of the driver against a real Chromium and of the client against a browser that lies.

mod basics;
mod dialogs;
mod frames;
mod navigation;
mod outcomes;
mod reader;
mod script;
mod support;
mod targets;
mod typing;
mod weight;
