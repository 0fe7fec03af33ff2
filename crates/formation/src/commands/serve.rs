//! `formation serve`: the server until a signal ends it.

use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{
    config::Config,
    output::{Failure, Output},
    serve::{Ready, serve},
    wiring::Wiring,
};

pub(crate) async fn run(config: Config, wiring: Wiring, output: Output) -> Result<(), Failure> {
    let stop = CancellationToken::new();
    let mut signals = Signals::listen()?;
    let announce = |ready: Ready| {
        let answer = json!({"url": ready.origin(), "address": ready.address, "setup_url": ready.setup_url});
        // Whoever started us may have gone without waiting for the line.
        let _ = output.answer(&answer, || {
            let line = format!("Formation is ready at {}", ready.origin());
            match &ready.setup_url {
                Some(setup_url) => format!("{line}\nNobody owns it yet: open {setup_url} within 24 hours"),
                None => line,
            }
        });
    };
    let mut server = Box::pin(serve(config, wiring, stop.clone(), announce));
    tokio::select! {
        ended = &mut server => return ended,
        () = signals.next() => stop.cancel(),
    }
    tracing::info!("stopping; a second signal ends it at once");
    tokio::select! {
        ended = server => ended,
        () = signals.next() => Err(Failure::failed("stopped before calls under way had ended")),
    }
}

/// What asks a server to stop.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let on = |kind| signal(kind).map_err(|error| Failure::failed(format!("signals can't be received: {error}")));
        Ok(Self { terminate: on(SignalKind::terminate())?, interrupt: on(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
