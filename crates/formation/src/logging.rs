//! Logs: one line an event on standard error, for people on a terminal, else JSON.
//!
//! Two rules hold whatever the user asks for. Crates that aren't ours are capped at info: below it they print requests, frames and
//! headers. And a line is a line: control characters and the separators that some viewers break at are written as escapes (S-19).

use std::{
    fmt::Write as _,
    io::{self, IsTerminal, Write},
    panic,
    sync::Once,
};

use tracing::{Level, Metadata};
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{FilterExt, filter_fn},
    fmt::MakeWriter,
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

/// What is logged when `FORMATION_LOG` says nothing. Some libraries tell at info of every request, or of notices of the database's.
pub(crate) const DEFAULT: &str = "info,rmcp=warn,sqlx=warn";

/// Starts logging with the directives of `FORMATION_LOG` (`warn`, `trace`, `formation_runtime=debug,info`).
///
/// Errors: the directives can't be read; the message is for the person who wrote them.
pub(crate) fn start(directives: &str) -> Result<(), String> {
    let asked = filter(directives)?;
    let to_terminal = io::stderr().is_terminal();
    let layer = tracing_subscriber::fmt::layer().with_writer(Lines(io::stderr)).with_ansi(false);
    let layer = if to_terminal { layer.boxed() } else { layer.json().flatten_event(true).with_span_list(false).boxed() };
    // A second start in one process (a test) keeps the first subscriber.
    let _ = tracing_subscriber::registry().with(layer.with_filter(asked.and(filter_fn(below_ceiling)))).try_init();
    log_panics();
    Ok(())
}

fn filter(directives: &str) -> Result<EnvFilter, String> {
    EnvFilter::builder().parse(directives).map_err(|error| format!("`FORMATION_LOG` can't be read: {error}"))
}

/// Ours at any level, all others at info and above.
fn below_ceiling(metadata: &Metadata<'_>) -> bool {
    is_ours(metadata.target()) || *metadata.level() <= Level::INFO
}

fn is_ours(target: &str) -> bool {
    let krate = target.split("::").next().unwrap_or(target);
    krate == "formation" || krate.starts_with("formation_")
}

/// A panic says where, and what only when that is a literal of the source: a formatted text may hold somebody's data.
fn log_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            let what = panic.payload().downcast_ref::<&'static str>().copied().unwrap_or("withheld");
            tracing::error!(panic.place = place, panic.message = what, "a task panicked");
        }));
    });
}

/// Writes each event as one line without raw control characters.
struct Lines<W>(W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for Lines<W> {
    type Writer = Line<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Line(self.0.make_writer())
    }
}

struct Line<W>(W);

impl<W: Write> Write for Line<W> {
    /// The subscriber hands over one whole event, its newline included.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.0.write_all(one_line(&String::from_utf8_lossy(event)).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// `\u001b` and the like, a form that is right inside a JSON string and readable outside one.
fn one_line(event: &str) -> String {
    let text = event.strip_suffix('\n').unwrap_or(event);
    let mut line = String::with_capacity(event.len());
    for c in text.chars() {
        if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') {
            // Writing to a string can't fail; all of these are below U+10000.
            let _ = write!(line, "\\u{:04x}", u32::from(c));
        } else {
            line.push(c);
        }
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no test panics while it holds this").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(directives: &str, json: bool, events: impl FnOnce()) -> String {
        let kept = Kept::default();
        let sink = kept.clone();
        let layer = tracing_subscriber::fmt::layer().with_writer(Lines(move || sink.clone())).with_ansi(false);
        let layer = if json { layer.json().flatten_event(true).with_span_list(false).boxed() } else { layer.boxed() };
        let asked = filter(directives).expect("good directives");
        let subscriber = tracing_subscriber::registry().with(layer.with_filter(asked.and(filter_fn(below_ceiling))));
        tracing::subscriber::with_default(subscriber, events);
        let bytes = kept.0.lock().expect("no test panics while it holds this").clone();
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn others_are_capped_at_info_whatever_is_asked() {
        let text = logged("trace,rmcp=trace,h2=debug", false, || {
            tracing::trace!(target: "formation_runtime::call", "ours at trace");
            tracing::debug!(target: "rmcp::service", "a whole request");
            tracing::trace!(target: "h2::codec", "a header");
            tracing::debug!(target: "formationist", "not ours either");
            tracing::info!(target: "rmcp::service", "theirs at info");
        });
        assert!(text.contains("ours at trace") && text.contains("theirs at info"), "{text}");
        for hidden in ["a whole request", "a header", "not ours either"] {
            assert!(!text.contains(hidden), "{text}");
        }
    }

    #[test]
    fn bar_s19_a_line_is_a_line() {
        let hostile = "a\rb\nc\u{1b}[31md\0e\u{2028}f\u{2029}g\u{85}h\u{7f}";
        for json in [true, false] {
            let text = logged("info", json, || {
                for _ in 0..50 {
                    tracing::info!(target: "formation_api", field = hostile, shown = %hostile, "message {hostile}");
                }
            });
            assert_eq!(text.lines().count(), 50);
            for line in text.split_terminator('\n') {
                assert!(!line.chars().any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')), "{line:?}");
                if json {
                    let event: serde_json::Value = serde_json::from_str(line).expect("one JSON object a line");
                    assert_eq!(event["field"], hostile);
                }
            }
        }
    }

    #[test]
    fn directives_nobody_can_read_are_an_error() {
        assert!(filter("formation=loud").is_err());
    }
}
