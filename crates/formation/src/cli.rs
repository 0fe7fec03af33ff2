//! The grammar of the command line (contract.md 7). What flags mean together with the environment and the file is `config`.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand};
use formation_core::{CallId, RunId, TokenId, call::Finding};

/// One self-hosted server between your agents and the outside: a browser, on record.
#[derive(Debug, Parser)]
#[command(name = "formation", version, about, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) place: PlaceFlags,
    /// Answer in JSON, for machines
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where the durable state is.
#[derive(Debug, Default, Args)]
pub(crate) struct PlaceFlags {
    /// Data folder [default: ./data] [env: `FORMATION_DATA`]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// PostgreSQL to use instead of the SQLite file, without a password [env: `FORMATION_DATABASE`]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) database: Option<String>,
    /// Settings file [default: ./formation.toml, if there] [env: `FORMATION_CONFIG`]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make the data folder, the database, a master key, and the first owner or a link to become it
    Init(InitFlags),
    /// Run the server
    Serve(ServeFlags),
    /// Agents and their tokens
    #[command(subcommand)]
    Agent(AgentCommand),
    /// Call one tool on a running server and print what it answers
    Call(CallFlags),
    /// List runs, print one run's trace, or settle an uncertain effect
    Runs(RunsFlags),
    /// Say what works and what to do about what doesn't
    Doctor(ServeFlags),
    /// Bring the database to this version's schema
    Migrate {
        /// Only say whether it is there; exit code 1 when it isn't
        #[arg(long)]
        check: bool,
    },
}

#[derive(Debug, Default, Args)]
pub(crate) struct InitFlags {
    /// Make the first owner, whose password is one line on standard input, and print a token of theirs, once
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
}

/// What `serve` is started with; `doctor` takes the same, so that it can judge it.
#[derive(Debug, Default, Args)]
pub(crate) struct ServeFlags {
    /// Address to listen on [default: 127.0.0.1:8420] [env: `FORMATION_LISTEN`]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// Address clients use; https unless it is loopback [default: http:// and the listen address] [env: `FORMATION_PUBLIC_URL`]
    #[arg(long, value_name = "URL")]
    pub(crate) public_url: Option<String>,
    /// Address that tells Prometheus' metrics to whoever reaches it [env: `FORMATION_METRICS_LISTEN`]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics_listen: Option<SocketAddr>,
    /// Offer a browser of this machine [env: `FORMATION_LOCAL_BROWSER`]
    #[arg(long)]
    pub(crate) local_browser: bool,
    /// Let that browser open private and loopback addresses [env: `FORMATION_LOCAL_BROWSER_ALLOW_PRIVATE`]
    #[arg(long)]
    pub(crate) local_browser_allow_private: bool,
    /// The Chromium to use [default: the first one found] [env: `FORMATION_CHROMIUM`]
    #[arg(long, value_name = "FILE")]
    pub(crate) chromium: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Make an agent
    Create {
        /// Its name in addresses: lower-case letters, digits and hyphens, at most 63
        slug: String,
        /// Its name for people [default: the slug]
        #[arg(long)]
        name: Option<String>,
    },
    /// List the agents
    List,
    /// Make a token for an agent and print it, once
    Token {
        /// The agent
        slug: String,
        /// What the token is for
        #[arg(long, default_value = "command line")]
        name: String,
    },
    /// List an agent's tokens, by id: the tokens themselves are not kept
    Tokens {
        /// The agent
        slug: String,
    },
    /// Take a token back
    Revoke {
        /// The agent
        slug: String,
        /// The token's id, from `formation agent tokens`
        #[arg(value_parser = |text: &str| TokenId::parse(text))]
        token: TokenId,
    },
}

/// The agent's token comes from `FORMATION_TOKEN`; a run's own from `FORMATION_RUN_TOKEN`.
#[derive(Debug, Args)]
pub(crate) struct CallFlags {
    /// The tool, such as `browser_navigate`
    pub(crate) tool: String,
    /// Its arguments as a JSON object, or `-` to read them from standard input
    #[arg(default_value = "{}")]
    pub(crate) arguments: String,
    /// Server to call [default: <http://127.0.0.1:8420>] [env: `FORMATION_SERVER`]
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Continue this run instead of opening one
    #[arg(long, value_name = "RUN", value_parser = |text: &str| RunId::parse(text))]
    pub(crate) run: Option<RunId>,
    /// Key of the call: a call with the same key and arguments is answered from the record and not made again [default: a new one]
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// File for a screenshot [default: one in the folder of temporary files]
    #[arg(long, value_name = "FILE")]
    pub(crate) image: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RunsFlags {
    /// The run to print
    #[arg(value_parser = |text: &str| RunId::parse(text))]
    pub(crate) run: Option<RunId>,
    /// An uncertain call of that run, and what you found out about it
    #[arg(long, num_args = 2, value_names = ["CALL", "FINDING"], requires = "run", requires = "note")]
    pub(crate) settle: Option<Vec<String>>,
    /// How you found out
    #[arg(long, value_name = "TEXT", requires = "settle")]
    pub(crate) note: Option<String>,
    /// Show this many of the newest runs
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
    /// Leave out this many of the run's first calls; an answer holds 500
    #[arg(long, default_value_t = 0, requires = "run")]
    pub(crate) skip: u64,
}

impl RunsFlags {
    /// The two words of `--settle`, if it was given.
    pub(crate) fn finding(&self) -> Result<Option<(CallId, Finding)>, &'static str> {
        let Some([call, finding]) = self.settle.as_deref() else { return Ok(None) };
        let call = CallId::parse(call).map_err(|_| "the first value of `--settle` is the id of a call")?;
        let finding = Finding::parse(finding).ok_or("the second value of `--settle` is `took_effect` or `had_no_effect`")?;
        Ok(Some((call, finding)))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_grammar_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn settling_wants_a_call_a_finding_and_a_note() {
        let run = RunId::fixed(1).to_string();
        let call = CallId::fixed(2).to_string();
        let parse = |words: &[&str]| Cli::try_parse_from([&["formation", "runs"], words].concat());
        assert!(parse(&["--settle", &call, "took_effect", "--note", "seen"]).is_err(), "no run");
        assert!(parse(&[&run, "--settle", &call, "took_effect"]).is_err(), "no note");
        assert!(parse(&[&run, "--note", "seen"]).is_err(), "a note for nothing");
        let Command::Runs(flags) = parse(&[&run, "--settle", &call, "took_effect", "--note", "seen"]).expect("complete").command
        else {
            unreachable!("it is the command `runs`")
        };
        assert_eq!(flags.finding(), Ok(Some((CallId::fixed(2), Finding::TookEffect))));
    }
}
