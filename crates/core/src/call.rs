//! The life of a call in the ledger: two columns, `execution` and `outcome` (contract.md 3).
//!
//! `execution` says how far the handler came, `outcome` what became of the thing wanted (B9). The arrows are here, the rows are
//! the store's.

use std::time::Instant;

use crate::{ids::CallId, tool::Class, words};

words! {
    /// How far the handler of a call came.
    pub enum Execution {
        /// On record, nothing decided.
        Queued = "queued",
        /// Its grant, limits and session are its own; for an effect, nothing is sent yet.
        Admitted = "admitted",
        /// An effect that may be on its way.
        Dispatched = "dispatched",
        /// The handler finished and explained.
        Succeeded = "succeeded",
        /// Nobody finished it.
        Failed = "failed",
        /// Turned away before anything was consumed.
        Refused = "refused",
    }
}

words! {
    /// What became of the thing wanted, once the handler ended.
    pub enum Outcome {
        /// It was done and seen.
        Ok = "ok",
        /// A known failure.
        Failed = "failed",
        /// No input left us.
        NotDispatched = "not_dispatched",
        /// All input was acknowledged, then looking failed.
        InputDispatched = "input_dispatched",
        /// It may have happened; only a person can settle it.
        Uncertain = "uncertain",
        /// Cut while in flight.
        Interrupted = "interrupted",
        /// The result came and was held back.
        Withheld = "withheld",
    }
}

words! {
    /// What an operator found out about an uncertain effect.
    pub enum Finding {
        /// It happened.
        TookEffect = "took_effect",
        /// It did not.
        HadNoEffect = "had_no_effect",
    }
}

/// What an operator writes beside a finding: 1 to 2,000 bytes, no control characters but line breaks and tabs.
pub fn is_note(text: &str) -> bool {
    (1..=NOTE_BYTES).contains(&text.len()) && !text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t'))
}

/// The longest note.
pub const NOTE_BYTES: usize = 2_000;

/// A step the ledger does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a call cannot go from {from} to {to}")]
pub struct IllegalStep {
    /// Where it stood.
    pub from: Execution,
    /// Where it was to go.
    pub to: Execution,
}

impl Execution {
    /// Whether the call has ended; an ended row never changes again.
    pub const fn is_settled(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Refused)
    }

    /// Takes one step of the diagram, or says that there is none.
    pub fn step(self, to: Self) -> Result<Self, IllegalStep> {
        use Execution::{Admitted, Dispatched, Failed, Queued, Refused, Succeeded};
        match (self, to) {
            (Queued, Admitted | Refused | Failed)
            | (Admitted, Dispatched | Succeeded | Failed)
            | (Dispatched, Succeeded | Failed) => Ok(to),
            (from, to) => Err(IllegalStep { from, to }),
        }
    }

    /// What a sweep makes of a call whose holder is gone, always as execution `Failed`; `None` for settled ones. Never a second
    /// attempt.
    pub const fn after_crash(self, class: Class) -> Option<Outcome> {
        match (self, class) {
            (Self::Queued, _) | (Self::Admitted, Class::ExternalEffect) => Some(Outcome::NotDispatched),
            (Self::Admitted, Class::Read) => Some(Outcome::Interrupted),
            (Self::Dispatched, _) => Some(Outcome::Uncertain),
            (Self::Succeeded | Self::Failed | Self::Refused, _) => None,
        }
    }
}

/// Proof that `dispatched` is committed for one call. The ledger makes it, the driver uses it up; it cannot be copied.
#[must_use = "an effect on record and not sent becomes uncertain"]
#[derive(Debug)]
pub struct Permit {
    call: CallId,
    send_before: Instant,
}

impl Permit {
    /// Made right after the commit that put the effect on record, and nowhere else. `send_before` is monotonic: a process that was
    /// stopped and woken may not act on an old permission.
    pub fn recorded(call: CallId, send_before: Instant) -> Self {
        Self { call, send_before }
    }

    /// Whose effect this is.
    pub const fn call(&self) -> CallId {
        self.call
    }

    /// Uses the permit. `false`: it went stale, and nothing may be sent.
    pub fn use_at(self, now: Instant) -> bool {
        now < self.send_before
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn execution() -> impl Strategy<Value = Execution> {
        proptest::sample::select(Execution::ALL)
    }

    proptest! {
        #[test]
        fn nothing_leaves_a_settled_call(from in execution(), to in execution()) {
            if from.is_settled() {
                prop_assert!(from.step(to).is_err());
                prop_assert_eq!(from.after_crash(Class::ExternalEffect), None);
                prop_assert_eq!(from.after_crash(Class::Read), None);
            }
        }

        #[test]
        fn every_unsettled_call_has_a_true_end(from in execution()) {
            if !from.is_settled() {
                prop_assert!(from.step(Execution::Failed).is_ok());
                for class in [Class::Read, Class::ExternalEffect] {
                    prop_assert!(from.after_crash(class).is_some());
                }
            }
        }
    }

    #[test]
    fn only_a_dispatched_effect_is_uncertain_after_a_crash() {
        for execution in [Execution::Queued, Execution::Admitted] {
            assert_ne!(execution.after_crash(Class::ExternalEffect), Some(Outcome::Uncertain));
        }
        assert_eq!(Execution::Dispatched.after_crash(Class::ExternalEffect), Some(Outcome::Uncertain));
    }

    #[test]
    fn a_stale_permit_sends_nothing() {
        let now = Instant::now();
        assert!(!Permit::recorded(CallId::fixed(1), now).use_at(now));
        assert!(Permit::recorded(CallId::fixed(1), now + std::time::Duration::from_secs(5)).use_at(now));
    }
}
