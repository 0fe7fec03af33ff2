//! `formation-under-test`: its options, and a driver that starts it and stops it the hard way.

mod driver;

use std::{
    collections::HashMap,
    io::Write as _,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use formation::{Timing, Wiring};
use formation_core::{Clock, Environment, Faults, Timestamp};
use formation_wire::Names;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};

pub use driver::UnderTest;

/// What stands before `--`.
#[derive(Debug, Default)]
pub struct Options {
    names: Names,
    roots: Vec<Vec<u8>>,
    faults: Vec<(String, u32)>,
    clock: Option<Hand>,
    timing: Timing,
    variables: HashMap<String, String>,
    command: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
enum Hand {
    Offset(i64),
    Frozen(Timestamp),
}

impl Options {
    /// Reads the arguments, the program's name left out.
    pub fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let mut options = Self::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            if word == "--" {
                options.command = std::iter::once("formation".to_owned()).chain(words.cloned()).collect();
                return Ok(options);
            }
            let value = words.next().with_context(|| format!("`{word}` wants a value"))?;
            options.take(word, value).with_context(|| format!("`{word} {value}`"))?;
        }
        bail!("a command line of `formation` follows `--`")
    }

    fn take(&mut self, word: &str, value: &str) -> anyhow::Result<()> {
        match word {
            "--name" => {
                let (name, target) = value.split_once('=').context("HOST:PORT=ADDRESS")?;
                let (host, port) = name.rsplit_once(':').context("HOST:PORT=ADDRESS")?;
                self.names = std::mem::take(&mut self.names).with(host, port.parse()?, target.parse::<SocketAddr>()?)?;
            }
            "--root-ca" => {
                let pem = std::fs::read(value)?;
                let known = self.roots.len();
                for root in CertificateDer::pem_slice_iter(&pem) {
                    self.roots.push(root?.to_vec());
                }
                // Without one the built-in roots would count, and a test would knock at the real door.
                ensure!(self.roots.len() > known, "no certificate is in it");
            }
            "--fault" => {
                let (name, pass) = value.split_once(':').unwrap_or((value, "1"));
                self.faults.push((name.to_owned(), pass.parse()?));
            }
            "--clock-offset-ms" => self.clock = Some(Hand::Offset(value.parse()?)),
            "--clock-frozen" => self.clock = Some(Hand::Frozen(serde_json::from_value(value.into())?)),
            "--timing" => {
                for wait in value.split(',') {
                    let (name, millis) = wait.split_once('=').context("NAME_ms=N")?;
                    *timing(&mut self.timing, name)? = Duration::from_millis(millis.parse()?);
                }
            }
            "--env" => {
                let (name, value) = value.split_once('=').context("NAME=VALUE")?;
                self.variables.insert(name.to_owned(), value.to_owned());
            }
            _ => bail!("not an option of `formation-under-test`"),
        }
        Ok(())
    }

    /// The wiring, and the command line it is for.
    pub fn wiring(self) -> (Wiring, Vec<String>) {
        let system = Wiring::production();
        let (clock, database_time) = match self.clock {
            None => (system.clock, true),
            Some(hand) => (clock(system.clock, hand), false),
        };
        let wiring = Wiring {
            clock,
            database_time,
            entropy: system.entropy,
            environment: environment(system.environment, self.variables),
            names: self.names,
            resolver: system.resolver,
            only_roots: (!self.roots.is_empty()).then_some(self.roots),
            timing: self.timing,
            faults: faults(self.faults),
        };
        (wiring, self.command)
    }
}

/// The wait called `name`.
pub fn timing<'t>(timing: &'t mut Timing, name: &str) -> anyhow::Result<&'t mut Duration> {
    let Timing { runtime, server, vendor_call } = timing;
    Ok(match name {
        "vendor_call_ms" => vendor_call,
        "lease_ms" => &mut runtime.lease,
        "heartbeat_ms" => &mut runtime.heartbeat,
        "sweep_ms" => &mut runtime.sweep,
        "poll_ms" => &mut runtime.poll,
        "turn_ms" => &mut runtime.turn,
        "operation_ms" => &mut runtime.operation,
        "action_floor_ms" => &mut runtime.browser.action_floor,
        "action_stable_ms" => &mut runtime.browser.action_stable,
        "navigation_stable_ms" => &mut runtime.browser.navigation_stable,
        "settle_bound_ms" => &mut runtime.browser.settle_bound,
        "navigation_load_ms" => &mut runtime.browser.navigation_load,
        "command_ms" => &mut runtime.browser.command,
        "head_ms" => &mut server.head,
        "body_ms" => &mut server.body,
        "write_ms" => &mut server.write,
        "keep_alive_ms" => &mut server.keep_alive,
        "shutdown_ms" => &mut server.shutdown,
        _ => bail!("no wait is called `{name}`"),
    })
}

fn clock(system: Clock, hand: Hand) -> Clock {
    match hand {
        Hand::Frozen(at) => Clock::new(move || at),
        Hand::Offset(millis) => {
            Clock::new(move || Timestamp::from_micros(system.now().micros().saturating_add(millis.saturating_mul(1000))))
        }
    }
}

fn environment(system: Environment, variables: HashMap<String, String>) -> Environment {
    Environment::new(move |name| variables.get(name).cloned().or_else(|| system.variable(name)))
}

/// The pass that was asked for prints the place's name and never returns: the parent reads it and kills us there.
fn faults(armed: Vec<(String, u32)>) -> Faults {
    if armed.is_empty() {
        return Faults::none();
    }
    let armed: Arc<[(String, AtomicU32)]> = armed.into_iter().map(|(name, pass)| (name, AtomicU32::new(pass))).collect();
    Faults::new(move |name| {
        for (place, left) in armed.iter() {
            if place == name && left.fetch_sub(1, Ordering::SeqCst) == 1 {
                let mut out = std::io::stdout().lock();
                // A parent that is gone reads nothing and kills nobody.
                drop(writeln!(out, "fault {name}").and_then(|()| out.flush()));
                drop(out);
                loop {
                    std::thread::park();
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> anyhow::Result<Options> {
        Options::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_make_a_wiring_and_the_rest_is_the_command() {
        let line = "--name a.test:80=127.0.0.1:9 --timing lease_ms=300,action_floor_ms=5 --env A=b=c --clock-frozen 2026-11-30T00:00:00Z \
                    -- serve --listen 127.0.0.1:0";
        let (wiring, command) = parse(line).expect("good options").wiring();
        assert_eq!(command, ["formation", "serve", "--listen", "127.0.0.1:0"]);
        assert_eq!(wiring.names.target("a.test", 80), "127.0.0.1:9".parse().ok());
        assert_eq!(wiring.timing.runtime.lease, Duration::from_millis(300));
        assert_eq!(wiring.timing.runtime.browser.action_floor, Duration::from_millis(5));
        assert_eq!(wiring.environment.variable("A").as_deref(), Some("b=c"));
        assert_eq!(wiring.clock.now().to_string(), "2026-11-30T00:00:00.000Z");
        assert!(!wiring.database_time);
    }

    #[tokio::test]
    async fn a_root_counts_instead_of_the_built_in_ones() {
        let fake = crate::brave::FakeBrave::start().await.expect("a fake");
        let (wiring, _) = parse(&format!("--root-ca {} -- x", fake.ca_file().display())).expect("good options").wiring();
        assert_eq!(wiring.only_roots, Some(vec![fake.ca()]));
        assert_eq!(parse("-- x").expect("good options").wiring().0.only_roots, None);
    }

    #[test]
    fn what_it_does_not_know_it_refuses() {
        for line in [
            "",
            "serve",
            "--name a.test=127.0.0.1:9 -- x",
            "--name a.test:80=10.0.0.1:9 -- x",
            "--timing nap_ms=1 -- x",
            "--root-ca Cargo.toml -- x",
            "--root-ca no-such-file -- x",
            "--what x -- y",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
