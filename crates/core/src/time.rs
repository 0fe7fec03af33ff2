//! Moments and the clock. Times are microseconds since 1970 in storage and RFC 3339 UTC where people or programs read them.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A moment: microseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From the stored number.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// The stored number.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// This moment and `span` more.
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)))
    }

    /// This moment less `span`.
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)))
    }

    /// How long from `earlier` to here; zero when it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC, to the millisecond.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(moment) => write!(f, "{moment:.3}"),
            Err(_) => f.write_str("out of range"),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        let moment: jiff::Timestamp = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Self(moment.as_microsecond()))
    }
}

/// Where the current moment comes from. The binary passes in the system's clock; tests pass one they move by hand.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// Wraps a source.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// A clock that stands still until its hands are moved.
    pub fn frozen(at: Timestamp) -> (Self, Hands) {
        let hands = Hands(Arc::new(AtomicI64::new(at.0)));
        let shown = hands.clone();
        (Self::new(move || Timestamp(shown.0.load(Ordering::SeqCst))), hands)
    }

    /// The current moment.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// Moves a frozen clock.
#[derive(Debug, Clone)]
pub struct Hands(Arc<AtomicI64>);

impl Hands {
    /// Moves the clock forward by `span`.
    pub fn forward(&self, span: Duration) {
        self.0.fetch_add(i64::try_from(span.as_micros()).unwrap_or(i64::MAX), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_to_the_millisecond_and_read_back() {
        let moment = Timestamp::from_micros(1_796_000_000_123_456);
        assert_eq!(moment.to_string(), "2026-11-30T00:53:20.123Z");
        let back: Timestamp = serde_json::from_str(&format!("\"{moment}\"")).expect("its own form");
        assert_eq!(back.micros(), 1_796_000_000_123_000);
    }

    #[test]
    fn spans_never_go_negative() {
        let (clock, hands) = Clock::frozen(Timestamp::from_micros(5));
        let before = clock.now();
        hands.forward(Duration::from_secs(1));
        assert_eq!(clock.now().since(before), Duration::from_secs(1));
        assert_eq!(before.since(clock.now()), Duration::ZERO);
    }
}
