//! Lists: `{"items":[…],"next"}`, 100 a page, newest first; `after=` takes the last `next` (contract.md, Conventions).

use axum::extract::{FromRequestParts, Query as AxumQuery};
use formation_core::{ids::MalformedId, refusal::Code};
use formation_runtime::Page;
use http::request::Parts;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use utoipa::{IntoParams, ToSchema};

use crate::problem::Problem;

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct List<T> {
    /// At most 100.
    items: Vec<T>,
    /// What `after=` takes for the next page; null on the last one.
    #[schema(required)]
    next: Option<String>,
}

impl<T> List<T> {
    /// A page of rows; `mark` is what the next page comes after.
    pub(crate) fn of<R: Into<T>>(page: Page<R>, mark: impl Fn(&R) -> String) -> Self {
        let next = page.items.last().filter(|_| page.has_more).map(mark);
        Self { items: page.items.into_iter().map(Into::into).collect(), next }
    }
}

/// Where a page begins.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct After {
    /// The last page's `next`.
    after: Option<String>,
}

impl After {
    /// As an id, or 400.
    pub(crate) fn id<T>(&self, parse: fn(&str) -> Result<T, MalformedId>) -> Result<Option<T>, Problem> {
        optional_id(self.after.as_deref(), parse)
    }
}

/// An id in the query: canonical, or 400.
pub(crate) fn optional_id<T>(text: Option<&str>, parse: fn(&str) -> Result<T, MalformedId>) -> Result<Option<T>, Problem> {
    text.map(parse).transpose().map_err(|_| Problem::new(Code::MalformedId))
}

/// A query string as a type that denies unknown names.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let read = AxumQuery::try_from_uri(&parts.uri);
        let AxumQuery(query) = read.map_err(|_| {
            Problem::new(Code::InvalidValue)
                .detail("The query names what this route doesn't know, or gives it a value it doesn't take.")
        })?;
        Ok(Self(query))
    }
}
