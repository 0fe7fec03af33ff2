//! What is bound to a statement and read from a row: text, whole numbers and bytes, and our words, ids and moments in those forms.

use formation_core::{
    AccountId, AgentId, ArtifactId, AuditId, BrowserSessionId, CallId, Capability, Class, ConversationId, Execution, InstanceId,
    McpSessionId, OfferId, OperatorId, Outcome, RunId, Scope, SecretId, Timestamp, TokenId, Tool, VendorId,
    call::Finding,
    people::{ActorKind, Role},
    refusal::Code,
    settings::Mode,
    view::RefNonce,
};
use sqlx::{Row as _, ValueRef as _, postgres::PgRow, sqlite::SqliteRow};

use crate::error::StoreError;

/// One bound value. Nulls are typed: PostgreSQL refuses a text null for a number.
#[derive(Debug, Clone)]
pub enum Val<'a> {
    /// Text borrowed from the caller.
    Text(Option<&'a str>),
    /// Text made for the statement: ids, scopes.
    Owned(String),
    /// A whole number: counts, versions, moments, 0 or 1.
    Int(Option<i64>),
    /// Bytes.
    Bytes(Option<&'a [u8]>),
}

impl<'a> From<&'a str> for Val<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Some(text))
    }
}

impl<'a> From<&'a String> for Val<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(Some(text))
    }
}

impl<'a> From<Option<&'a str>> for Val<'a> {
    fn from(text: Option<&'a str>) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a [u8]> for Val<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(Some(bytes))
    }
}

impl<'a> From<&'a Vec<u8>> for Val<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Self::Bytes(Some(bytes))
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Val<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Self::Bytes(Some(bytes))
    }
}

impl From<i64> for Val<'_> {
    fn from(number: i64) -> Self {
        Self::Int(Some(number))
    }
}

impl From<Option<i64>> for Val<'_> {
    fn from(number: Option<i64>) -> Self {
        Self::Int(number)
    }
}

impl From<Timestamp> for Val<'_> {
    fn from(at: Timestamp) -> Self {
        Self::Int(Some(at.micros()))
    }
}

impl From<Option<Timestamp>> for Val<'_> {
    fn from(at: Option<Timestamp>) -> Self {
        Self::Int(at.map(Timestamp::micros))
    }
}

impl From<Scope> for Val<'_> {
    fn from(scope: Scope) -> Self {
        Self::Owned(scope.to_string())
    }
}

impl<'a> From<&'a VendorId> for Val<'a> {
    fn from(vendor: &'a VendorId) -> Self {
        Self::Text(Some(vendor.as_str()))
    }
}

impl<'a> From<Option<&'a RefNonce>> for Val<'a> {
    fn from(nonce: Option<&'a RefNonce>) -> Self {
        Self::Text(nonce.map(RefNonce::as_str))
    }
}

/// A row of either engine.
pub enum Row {
    /// Of SQLite.
    Sqlite(SqliteRow),
    /// Of PostgreSQL.
    Postgres(PgRow),
}

impl Row {
    /// The value in column `index`, counted from 0.
    pub fn at<T: Column>(&self, index: usize) -> Result<T, StoreError> {
        T::read(self, index)
    }

    fn is_null(&self, index: usize) -> Result<bool, StoreError> {
        Ok(match self {
            Self::Sqlite(row) => row.try_get_raw(index)?.is_null(),
            Self::Postgres(row) => row.try_get_raw(index)?.is_null(),
        })
    }
}

impl std::fmt::Debug for Row {
    /// Never its values.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Row")
    }
}

/// A type that one column holds.
pub trait Column: Sized {
    /// Reads it, or says that the row is not one of ours.
    fn read(row: &Row, index: usize) -> Result<Self, StoreError>;
}

macro_rules! plain {
    ($($type:ty),+) => {$(
        impl Column for $type {
            fn read(row: &Row, index: usize) -> Result<Self, StoreError> {
                Ok(match row {
                    Row::Sqlite(row) => row.try_get(index)?,
                    Row::Postgres(row) => row.try_get(index)?,
                })
            }
        }
    )+};
}
plain!(i64, String, Vec<u8>);

impl<T: Column> Column for Option<T> {
    fn read(row: &Row, index: usize) -> Result<Self, StoreError> {
        if row.is_null(index)? { Ok(None) } else { T::read(row, index).map(Some) }
    }
}

impl Column for bool {
    fn read(row: &Row, index: usize) -> Result<Self, StoreError> {
        Ok(i64::read(row, index)? != 0)
    }
}

impl Column for Timestamp {
    fn read(row: &Row, index: usize) -> Result<Self, StoreError> {
        i64::read(row, index).map(Self::from_micros)
    }
}

impl Column for VendorId {
    fn read(row: &Row, index: usize) -> Result<Self, StoreError> {
        String::read(row, index).map(Self::named)
    }
}

impl Column for RefNonce {
    fn read(row: &Row, index: usize) -> Result<Self, StoreError> {
        String::read(row, index).map(Self::stored)
    }
}

impl Column for Scope {
    fn read(row: &Row, index: usize) -> Result<Self, StoreError> {
        Self::parse(&String::read(row, index)?).ok_or(StoreError::internal("a stored scope is not one"))
    }
}

macro_rules! ids {
    ($($type:ty),+ $(,)?) => {$(
        impl From<$type> for Val<'_> {
            fn from(id: $type) -> Self {
                Self::Owned(id.to_string())
            }
        }

        impl From<Option<$type>> for Val<'_> {
            fn from(id: Option<$type>) -> Self {
                id.map_or(Self::Text(None), |id| Self::Owned(id.to_string()))
            }
        }

        impl Column for $type {
            fn read(row: &Row, index: usize) -> Result<Self, StoreError> {
                Self::parse(&String::read(row, index)?).map_err(|_| StoreError::internal("a stored id is not one"))
            }
        }
    )+};
}
ids!(
    AccountId,
    AgentId,
    ArtifactId,
    AuditId,
    BrowserSessionId,
    CallId,
    ConversationId,
    InstanceId,
    McpSessionId,
    OfferId,
    OperatorId,
    RunId,
    SecretId,
    TokenId,
);

macro_rules! stored_words {
    ($($type:ty),+ $(,)?) => {$(
        impl From<$type> for $crate::db::Val<'_> {
            fn from(word: $type) -> Self {
                Self::Text(Some(word.as_str()))
            }
        }

        impl From<Option<$type>> for $crate::db::Val<'_> {
            fn from(word: Option<$type>) -> Self {
                Self::Text(word.map(<$type>::as_str))
            }
        }

        impl $crate::db::Column for $type {
            fn read(row: &$crate::db::Row, index: usize) -> Result<Self, $crate::error::StoreError> {
                Self::parse(&<String as $crate::db::Column>::read(row, index)?)
                    .ok_or($crate::error::StoreError::internal("a stored word is not one of ours"))
            }
        }
    )+};
}
pub(crate) use stored_words;
stored_words!(ActorKind, Capability, Class, Code, Execution, Finding, Mode, Outcome, Role, Tool);
