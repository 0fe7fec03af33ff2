//! The commands: one module each, all but `call` on the data folder or the database itself.

mod agent;
mod call;
pub(crate) mod doctor;
mod init;
mod migrate;
mod runs;
mod serve;

use crate::{
    cli::{Cli, Command},
    config::Sources,
    logging,
    output::{Failure, Output},
    wiring::Wiring,
};

/// Does what was asked.
pub(crate) async fn dispatch(cli: Cli, wiring: Wiring) -> Result<(), Failure> {
    let output = Output { is_json: cli.json };
    let sources = Sources::read(&cli.place, &wiring.environment)?;
    let place = sources.place(&cli.place)?;
    // Commands speak for themselves; what happens below them is worth a line only when it's a warning.
    let directives = if matches!(cli.command, Command::Serve(_)) { sources.log() } else { "warn".to_owned() };
    logging::start(&directives).map_err(Failure::usage)?;
    match cli.command {
        Command::Init(flags) => {
            let config = sources.config(&cli.place, &crate::cli::ServeFlags::default());
            init::init(flags.owner.as_deref(), config, &place, &wiring, output).await
        }
        Command::Serve(flags) => serve::run(sources.config(&cli.place, &flags)?, wiring, output).await,
        Command::Agent(command) => agent::agent(&command, &place, &wiring, output).await,
        Command::Call(flags) => call::call(&flags, sources.server(flags.server.as_deref())?, &wiring, output).await,
        Command::Runs(flags) => runs::runs(&flags, &place, &wiring, output).await,
        Command::Doctor(flags) => doctor::doctor(&sources.config(&cli.place, &flags)?, &wiring, output).await,
        Command::Migrate { check } => migrate::migrate(check, &place, &wiring, output).await,
    }
}
