//! The binary: arguments and the production wiring, nothing else.

use std::process::ExitCode;

use formation::Wiring;

fn main() -> ExitCode {
    formation::run(std::env::args_os(), Wiring::production())
}
