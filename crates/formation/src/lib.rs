//! The server and its command line (contract.md 7).
//!
//! [`run`] is the whole program: it reads the command line, hardens the process and does what was asked. [`serve`] is the server
//! alone. Both take a [`Wiring`]; the binary passes [`Wiring::production`], and the testkit's `formation-under-test` its own.
//!
//! To add a command: a variant in `cli::Command`, a module in `commands`, a line in `commands::dispatch`, and its row in the README.

mod cli;
mod commands;
mod config;
mod data;
mod logging;
mod opening;
mod output;
mod process;
mod serve;
mod wiring;

use std::{ffi::OsString, process::ExitCode};

use clap::Parser;

pub use config::{Config, DatabaseUrl, Place};
pub use output::Failure;
pub use serve::{Ready, serve};
pub use wiring::{Timing, Wiring};

/// Does what the command line says and gives the exit code: 0 done, 1 failed, 2 wrong usage.
pub fn run(arguments: impl IntoIterator<Item = OsString>, wiring: Wiring) -> ExitCode {
    let cli = match cli::Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers; a closed pipe is no error.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    if let Err(error) = process::harden() {
        return Failure::failed(format!("the process can't be hardened: {error}")).report();
    }
    formation_wire::install_tls_provider();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::failed(format!("no threads: {error}")).report(),
    };
    match runtime.block_on(commands::dispatch(cli, wiring)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
