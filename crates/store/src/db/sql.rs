//! SQL texts. A text can only be made by `statements!`, which also lists it, so the test that prepares every statement on both
//! engines cannot miss one.

/// One statement, in one text or in one per dialect.
#[derive(Debug, Clone, Copy)]
pub struct Sql {
    sqlite: &'static str,
    postgres: &'static str,
}

impl Sql {
    /// For `statements!` only.
    #[doc(hidden)]
    pub(crate) const fn listed(sqlite: &'static str, postgres: &'static str) -> Self {
        Self { sqlite, postgres }
    }

    /// The text for SQLite.
    pub const fn sqlite(self) -> &'static str {
        self.sqlite
    }

    /// The text for PostgreSQL.
    pub const fn postgres(self) -> &'static str {
        self.postgres
    }
}

/// Declares the statements of one module: `NAME = "text";` where the dialects agree, `NAME = "sqlite" => "postgres";` where they part.
///
/// `LISTED` holds them all; `modules!` in `lib.rs` collects it, and a module that is not collected is a dead-code warning.
macro_rules! statements {
    ($($name:ident = $sqlite:expr $(=> $postgres:expr)?;)+) => {
        $(pub(super) const $name: $crate::db::Sql = $crate::db::statements!(@one $sqlite $(, $postgres)?);)+
        pub(crate) const LISTED: &[(&str, $crate::db::Sql)] = &[$((stringify!($name), $name)),+];
    };
    (@one $both:expr) => { $crate::db::Sql::listed($both, $both) };
    (@one $sqlite:expr, $postgres:expr) => { $crate::db::Sql::listed($sqlite, $postgres) };
}
pub(crate) use statements;
