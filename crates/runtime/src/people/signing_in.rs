//! Setting up the first owner, signing in and out.
//!
//! Failed sign-ins delay the next ones: an account by at most 30 seconds, a source address by up to 15 minutes. Neither can be used to
//! shut somebody else out for long: where somebody has signed in before, the delays of their account don't count, only those of the
//! address itself. What is delayed is not looked at, not counted and leaves no row.

use std::{
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use formation_core::{
    Secret, Timestamp,
    people::{Actor, ActorKind, Role},
};
use formation_store::{
    StoreError,
    audit::{self, AuditOutcome, NewEntry},
    login_attempts, operator_sessions,
    operators::{self, Created},
    setup_links, tokens,
};
use serde_json::json;

use super::{Operator, passwords::Checked};
use crate::{Runtime, RuntimeError};

/// What a sign-in brings.
#[derive(Debug)]
pub struct SignIn {
    /// As they typed it.
    pub name: String,
    /// Likewise.
    pub password: Secret,
    /// Where it came from.
    pub source: IpAddr,
    /// The request's id.
    pub request: Option<String>,
}

/// Somebody who has just signed in.
#[derive(Debug)]
pub struct SignedIn {
    /// Who.
    pub operator: Operator,
    /// Their session's text, for the cookie.
    pub session: Secret,
}

/// Why nobody signed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignInError {
    /// Name or password is wrong, the person disabled, or the link not good.
    #[error("not signed in")]
    Wrong,
    /// The name of the first owner is somebody's.
    #[error("the name is taken")]
    NameTaken,
    /// Not before so long.
    #[error("too many attempts")]
    Wait(Duration),
    /// The database didn't do it.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

impl From<StoreError> for SignInError {
    fn from(error: StoreError) -> Self {
        Self::Runtime(error.into())
    }
}

/// An account waits 1, 2, 4, … at most 30 seconds from its fifth failure on.
fn account_delay(failures: i64) -> Duration {
    doubling(failures - 5, Duration::from_secs(30))
}

/// A source waits 1, 2, 4, … at most 900 seconds from its tenth failure on.
fn source_delay(failures: i64) -> Duration {
    doubling(failures - 10, Duration::from_mins(15))
}

fn doubling(step: i64, most: Duration) -> Duration {
    match u64::try_from(step) {
        Ok(step) => Duration::from_secs(1 << step.min(20)).min(most),
        Err(_) => Duration::ZERO,
    }
}

/// Under what attempts are counted: keyed hashes, since what was typed as a name may be a password.
struct Subjects {
    account: String,
    source: String,
    pair: String,
}

impl Runtime {
    /// Makes a set-up link, if nobody owns the install yet.
    pub async fn setup_link(&self) -> Result<Option<Secret>, RuntimeError> {
        if operators::has_owner(&self.0.db).await? {
            return Ok(None);
        }
        Ok(Some(self.0.db.write(|tx| Box::pin(async move { setup_links::make(tx).await })).await?))
    }

    /// Whether this link would make an owner now.
    pub async fn is_setup_link(&self, link: &str) -> Result<bool, RuntimeError> {
        Ok(setup_links::is_good(&self.0.db, link).await? && !operators::has_owner(&self.0.db).await?)
    }

    /// Makes the first owner and signs them in. Bounds of name and password are the caller's to check.
    pub async fn set_up(&self, link: &str, sign_in: SignIn) -> Result<SignedIn, SignInError> {
        let SignIn { name, password, source, request } = sign_in;
        let subjects = self.subjects("", source);
        self.wait_for(&subjects, true).await?;
        // Looked at before anything is computed: a hash costs more than a guess.
        if !self.is_setup_link(link).await? {
            self.count_failure(subjects, None, "install.setup", request).await?;
            return Err(SignInError::Wrong);
        }
        let hash = self.0.passwords.hash(password).await?;
        let (link, asked) = (link.to_owned(), request.clone());
        let write = self.0.db.write(move |tx| {
            Box::pin(async move {
                if !operators::is_without_owner(tx).await? || !setup_links::use_up(tx, &link).await? {
                    return Err(SignInError::Wrong);
                }
                let Created::Made(owner) = operators::create(tx, &name, Role::Owner, &hash).await? else {
                    return Err(SignInError::NameTaken);
                };
                let operator = Operator { id: owner.id, name: owner.name, role: owner.role, token: None };
                let session = operator_sessions::open(tx, operator.id).await?;
                audit::done(tx, &operator.actor(request), None, "install.setup", &operator.id.to_string(), json!({})).await?;
                Ok(SignedIn { operator, session })
            })
        });
        match write.await {
            // Somebody else was faster with the same link.
            Err(SignInError::Wrong) => {
                self.count_failure(subjects, None, "install.setup", asked).await?;
                Err(SignInError::Wrong)
            }
            ended => ended,
        }
    }

    /// Signs an operator in. Whoever isn't there, is disabled, or typed a wrong password gets one answer after one time.
    pub async fn sign_in(&self, sign_in: SignIn) -> Result<SignedIn, SignInError> {
        let SignIn { name, password, source, request } = sign_in;
        let subjects = self.subjects(&name, source);
        self.wait_for(&subjects, false).await?;
        let found = operators::by_name(&self.0.db, &name).await?;
        let (operator, hash) = found.map_or((None, None), |(operator, hash)| (Some(operator), Some(hash)));
        let checked = self.0.passwords.check(password, hash).await?;
        // Others may have failed while this one waited for its turn.
        self.wait_for(&subjects, false).await?;
        let operator = match (checked, operator) {
            (Checked::Busy, _) => return Err(SignInError::Wait(Duration::from_secs(1))),
            (Checked::Right, Some(operator)) if operator.disabled_at.is_none() => {
                Operator { id: operator.id, name: operator.name, role: operator.role, token: None }
            }
            (_, found) => {
                let known = found.map(|found| Actor {
                    kind: ActorKind::Anonymous,
                    id: Some(found.id.to_string()),
                    name: found.name,
                    request: request.clone(),
                });
                self.count_failure(subjects, known, "session.open", request).await?;
                return Err(SignInError::Wrong);
            }
        };
        let write = self.0.db.write(move |tx| {
            Box::pin(async move {
                let session = operator_sessions::open(tx, operator.id).await?;
                login_attempts::forgive(tx, &subjects.account).await?;
                login_attempts::remember(tx, &subjects.pair).await?;
                audit::done(tx, &operator.actor(request), None, "session.open", &operator.id.to_string(), json!({})).await?;
                Ok(SignedIn { operator, session })
            })
        });
        write.await
    }

    /// Ends the session that `actor` came with.
    pub async fn sign_out(&self, actor: &Actor, session: &str) -> Result<(), RuntimeError> {
        let (actor, session) = (actor.clone(), session.to_owned());
        let write = self.0.db.write(move |tx| {
            Box::pin(async move {
                operator_sessions::end(tx, &session).await?;
                let subject = actor.id.clone().unwrap_or_default();
                audit::done(tx, &actor, None, "session.close", &subject, json!({})).await
            })
        });
        Ok(write.await?)
    }

    fn subjects(&self, name: &str, source: IpAddr) -> Subjects {
        let (account, source) = (operators::name_key(name), network(source).to_string());
        let named = |kind: &str, of: &str| {
            let hash = self.0.keys.fingerprint("sign-in", format!("{kind}\0{of}").as_bytes());
            let half = hash.first_chunk::<16>().map_or(0, |bytes| u128::from_be_bytes(*bytes));
            format!("{kind}:{half:032x}")
        };
        Subjects {
            account: named("account", &account),
            source: named("source", &source),
            pair: named("pair", &format!("{account}\0{source}")),
        }
    }

    async fn wait_for(&self, subjects: &Subjects, source_alone: bool) -> Result<(), SignInError> {
        let db = &self.0.db;
        let mut until: Option<Timestamp> = login_attempts::blocked_until(db, &subjects.source).await?;
        if !source_alone && !login_attempts::is_known(db, &subjects.pair).await? {
            until = until.max(login_attempts::blocked_until(db, &subjects.account).await?);
        }
        match until {
            None => Ok(()),
            Some(until) => Err(SignInError::Wait(until.since(db.now().await?).max(Duration::from_secs(1)))),
        }
    }

    async fn count_failure(
        &self,
        subjects: Subjects,
        known: Option<Actor>,
        action: &'static str,
        request: Option<String>,
    ) -> Result<(), RuntimeError> {
        let nobody = Actor { kind: ActorKind::Anonymous, id: None, name: String::new(), request };
        let actor = known.unwrap_or(nobody);
        let write = self.0.db.write(move |tx| {
            Box::pin(async move {
                if action == "session.open" {
                    login_attempts::failed(tx, &subjects.account, account_delay).await?;
                }
                login_attempts::failed(tx, &subjects.source, source_delay).await?;
                let subject = actor.id.clone().unwrap_or_default();
                let entry = NewEntry {
                    actor: &actor,
                    agent: None,
                    action,
                    subject: &subject,
                    outcome: AuditOutcome::Denied,
                    detail: json!({}),
                };
                audit::insert(tx, &entry).await
            })
        });
        write.await?;
        Ok(())
    }
}

/// A first owner made on the host's command line, and a token of theirs. `None`: there is an owner already.
pub async fn first_owner(db: &formation_store::Db, name: &str, password_hash: &str) -> Result<Option<tokens::Minted>, StoreError> {
    let (name, hash) = (name.to_owned(), password_hash.to_owned());
    let write = db.write(move |tx| {
        Box::pin(async move {
            if !operators::is_without_owner(tx).await? {
                return Ok(None);
            }
            let Created::Made(owner) = operators::create(tx, &name, Role::Owner, &hash).await? else { return Ok(None) };
            let minted = tokens::mint_operator(tx, owner.id, "formation init", "host").await?;
            audit::done(tx, &Actor::host(), None, "install.setup", &owner.id.to_string(), json!({})).await?;
            Ok(Some(minted))
        })
    });
    write.await
}

/// Whom an address belongs to: an IPv6 customer has a /64 of them.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => {
            let [a, b, c, d, ..] = six.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        four @ IpAddr::V4(_) => four,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_and_an_account_s_stay_small() {
        let seconds =
            |delay: fn(i64) -> Duration, failures: &[i64]| failures.iter().map(|nth| delay(*nth).as_secs()).collect::<Vec<_>>();
        assert_eq!(seconds(account_delay, &[1, 4, 5, 6, 9, 10, 100, i64::MAX]), [0, 0, 1, 2, 16, 30, 30, 30]);
        assert_eq!(seconds(source_delay, &[1, 9, 10, 11, 19, 20, 1_000_000]), [0, 0, 1, 2, 512, 900, 900]);
    }

    #[test]
    fn a_customer_s_addresses_are_one_source() {
        let of = |text: &str| network(text.parse().expect("an address"));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::7"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
