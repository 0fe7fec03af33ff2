//! The one error of the store.
//!
//! It says what a caller can do about it and nothing else: no SQL, no values, no text of the database. A combiner answers many
//! callers with one error, so it is `Clone`.

use std::borrow::Cow;

/// What a failed statement means for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The database does not answer, is closed, full or read-only: 503, and nothing was sent.
    Unavailable,
    /// It lost against another transaction (40P01, 40001); doing it again is right.
    Conflict,
    /// Anything else: a rule of the schema broken, a row nobody can read. A bug, or somebody else's hand in the database.
    Internal,
}

/// A failed statement or transaction.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.sentence())]
pub struct StoreError {
    kind: Kind,
    what: &'static str,
    /// SQLSTATE, or SQLite's extended result code.
    code: Option<Cow<'static, str>>,
    constraint: Option<String>,
}

impl StoreError {
    /// A bug or a row that cannot be read; `what` is a constant of ours, so that no value can get in.
    pub const fn internal(what: &'static str) -> Self {
        Self { kind: Kind::Internal, what, code: None, constraint: None }
    }

    /// The database does not answer.
    pub const fn unavailable(what: &'static str) -> Self {
        Self { kind: Kind::Unavailable, what, code: None, constraint: None }
    }

    /// What it means for the caller.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether the answer is 503.
    pub fn is_unavailable(&self) -> bool {
        self.kind == Kind::Unavailable
    }

    /// Whether SQLite said that another process has the file to itself for the moment.
    pub(crate) fn is_busy(&self) -> bool {
        self.code.as_deref().and_then(|code| code.parse::<u32>().ok()).is_some_and(|code| code & 0xff == 5)
    }

    /// Whether the same transaction may simply be tried again.
    pub fn is_conflict(&self) -> bool {
        self.kind == Kind::Conflict
    }

    fn sentence(&self) -> String {
        let mut text = match self.kind {
            Kind::Unavailable => format!("the database does not answer: {}", self.what),
            Kind::Conflict => "the transaction lost against another one".to_owned(),
            Kind::Internal => format!("the store failed: {}", self.what),
        };
        if let Some(code) = &self.code {
            text.push_str(" (code ");
            text.push_str(code);
            if let Some(constraint) = &self.constraint {
                text.push_str(", ");
                text.push_str(constraint);
            }
            text.push(')');
        }
        text
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error::{ColumnDecode, Database, Io, PoolClosed, PoolTimedOut, Protocol, Tls, WorkerCrashed};
        match error {
            Database(error) => {
                let code = error.code().map(|code| Cow::Owned(code.into_owned()));
                let kind = code.as_deref().map_or(Kind::Internal, kind_of_code);
                let what = if kind == Kind::Unavailable { "it refused the statement" } else { "a statement was refused" };
                Self { kind, what, code, constraint: error.constraint().map(str::to_owned) }
            }
            Io(_) => Self::unavailable("the connection broke"),
            Tls(_) => Self::unavailable("TLS failed"),
            PoolTimedOut => Self::unavailable("no connection became free in time"),
            PoolClosed => Self::unavailable("it is closed"),
            WorkerCrashed => Self::unavailable("its thread is gone"),
            Protocol(_) => Self::unavailable("it broke the protocol"),
            ColumnDecode { .. } => Self::internal("a column is of another type"),
            _ => Self::internal("the driver failed"),
        }
    }
}

/// SQLSTATEs have five characters; SQLite's codes are decimal numbers below 10,000, whose low byte is the primary code.
fn kind_of_code(code: &str) -> Kind {
    if code.len() == 5 {
        return kind_of_sqlstate(code);
    }
    // BUSY, LOCKED, READONLY, IOERR, CORRUPT, FULL, CANTOPEN, NOTADB
    match code.parse::<u32>().map(|code| code & 0xff) {
        Ok(5 | 6 | 8 | 10 | 11 | 13 | 14 | 26) => Kind::Unavailable,
        _ => Kind::Internal,
    }
}

fn kind_of_sqlstate(code: &str) -> Kind {
    match code {
        "40P01" | "40001" => Kind::Conflict,
        // Connection lost, out of resources, shut down by a person or a crash, read-only after a switch-over, disk trouble.
        _ if ["08", "53", "57P", "58"].iter().any(|class| code.starts_with(class)) || code == "25006" => Kind::Unavailable,
        _ => Kind::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_say_what_a_caller_can_do() {
        for (code, kind) in [
            ("40P01", Kind::Conflict),
            ("40001", Kind::Conflict),
            ("57P01", Kind::Unavailable),
            ("08006", Kind::Unavailable),
            ("53300", Kind::Unavailable),
            ("23505", Kind::Internal),
            ("5", Kind::Unavailable),
            ("261", Kind::Unavailable),
            ("13", Kind::Unavailable),
            ("2067", Kind::Internal),
            ("1555", Kind::Internal),
        ] {
            assert_eq!(kind_of_code(code), kind, "{code}");
        }
    }
}
