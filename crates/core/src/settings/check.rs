//! What can be said of new settings before anything is stored (O5, L8). The fields of `config` are the catalog's to check.

use serde_json::{Map, Value};

use super::{Limits, Mode};
use crate::{
    binding::{Scope, VendorId},
    refusal::Code,
    tool::Capability,
};

/// New settings of one connection, as they came.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    /// How the vendor is chosen.
    pub mode: Mode,
    /// The pinned vendor.
    pub provider: Option<VendorId>,
    /// Capability-level settings.
    pub config: Map<String, Value>,
    /// What it may cost.
    pub limits: Option<AskedLimits>,
}

/// Limits as somebody names them; what is absent has its default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AskedLimits {
    /// 1 to 6,000.
    pub requests_per_minute: Option<i64>,
    /// 1 to 10,000.
    pub requests_per_run: Option<i64>,
}

/// A setting that can't be stored: its code, where it stands, and what to send instead. All of it ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {says}")]
pub struct Invalid {
    /// The stable word.
    pub code: Code,
    /// The field, inner ones with dots.
    pub field: String,
    /// A sentence for people.
    pub says: String,
}

impl Invalid {
    /// A value out of its bounds.
    pub fn value(field: impl Into<String>, says: impl Into<String>) -> Self {
        Self::of(Code::InvalidValue, field, says)
    }

    /// With another code.
    pub fn of(code: Code, field: impl Into<String>, says: impl Into<String>) -> Self {
        Self { code, field: field.into(), says: says.into() }
    }
}

/// Checks what needs neither the catalog nor the database.
pub fn check(owner: Scope, capability: Capability, new: &Proposal) -> Result<(), Invalid> {
    let is_mode_of_owner = match new.mode {
        Mode::Auto => owner == Scope::Install,
        Mode::Inherit => owner != Scope::Install,
        Mode::Own | Mode::Disabled => true,
    };
    if !is_mode_of_owner {
        let modes = if owner == Scope::Install { "auto, own or disabled" } else { "inherit, own or disabled" };
        return Err(Invalid::value("mode", format!("Here a mode is {modes}.")));
    }
    match (new.mode, &new.provider) {
        (Mode::Own, None) => return Err(Invalid::value("provider", "`own` names its provider.")),
        (Mode::Own, Some(_)) => {}
        (mode, Some(_)) => return Err(Invalid::value("provider", format!("`{mode}` takes no provider."))),
        (mode, None) if !new.config.is_empty() => {
            return Err(Invalid::value("config", format!("`{mode}` takes no config.")));
        }
        (_, None) => {}
    }
    new.limits.map_or(Ok(()), |limits| check_limits(capability, new.mode, limits))
}

fn check_limits(capability: Capability, mode: Mode, asked: AskedLimits) -> Result<(), Invalid> {
    const MINUTE: &str = "limits.requests_per_minute";
    const RUN: &str = "limits.requests_per_run";
    if !capability.is_metered() {
        return Err(Invalid::value(
            "limits",
            format!("`{capability}` isn't counted per request: a run's own allowance bounds it."),
        ));
    }
    if mode == Mode::Inherit && asked.requests_per_minute.is_some() {
        return Err(Invalid::value(MINUTE, "The minute is the install's; `inherit` takes requests_per_run alone."));
    }
    let bounds = [(MINUTE, asked.requests_per_minute, Limits::MAX_PER_MINUTE), (RUN, asked.requests_per_run, Limits::MAX_PER_RUN)];
    for (field, asked, most) in bounds {
        if asked.is_some_and(|asked| !(1..=most).contains(&asked)) {
            return Err(Invalid::value(field, format!("1 to {most}.")));
        }
    }
    Ok(())
}

/// An agent that inherits can lower the install's allowance for a run, never raise it (L8).
pub fn check_against_install(new: &Proposal, install: Limits) -> Result<(), Invalid> {
    let asked = new.limits.and_then(|limits| limits.requests_per_run).filter(|_| new.mode == Mode::Inherit);
    match asked {
        Some(asked) if asked > install.requests_per_run => Err(Invalid::of(
            Code::LimitAboveInstall,
            "limits.requests_per_run",
            format!("The install allows {} requests a run.", install.requests_per_run),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ids::AgentId;

    fn proposal(mode: Mode, provider: Option<&'static str>, limits: Option<(Option<i64>, Option<i64>)>) -> Proposal {
        let limits = limits.map(|(requests_per_minute, requests_per_run)| AskedLimits { requests_per_minute, requests_per_run });
        Proposal { mode, provider: provider.map(VendorId::known), config: Map::new(), limits }
    }

    fn field(owner: Scope, capability: Capability, proposal: &Proposal) -> String {
        check(owner, capability, proposal).err().map(|invalid| invalid.field).unwrap_or_default()
    }

    /// O5: each owner has its own modes, and only `own` names a provider.
    #[test]
    fn modes_belong_to_owners() {
        let agent = Scope::Agent(AgentId::fixed(1));
        let table = [
            (Scope::Install, Mode::Auto, None, ""),
            (Scope::Install, Mode::Inherit, None, "mode"),
            (Scope::Install, Mode::Own, Some("a"), ""),
            (Scope::Install, Mode::Own, None, "provider"),
            (Scope::Install, Mode::Disabled, None, ""),
            (Scope::Install, Mode::Disabled, Some("a"), "provider"),
            (agent, Mode::Auto, None, "mode"),
            (agent, Mode::Inherit, None, ""),
            (agent, Mode::Inherit, Some("a"), "provider"),
            (agent, Mode::Own, Some("a"), ""),
            (agent, Mode::Own, None, "provider"),
            (agent, Mode::Disabled, None, ""),
        ];
        for (owner, mode, provider, wrong) in table {
            assert_eq!(field(owner, Capability::Search, &proposal(mode, provider, None)), wrong, "{owner} {mode} {provider:?}");
        }
        let mut half = proposal(Mode::Auto, None, None);
        half.config = json!({"engine": "x"}).as_object().cloned().unwrap_or_default();
        assert_eq!(field(Scope::Install, Capability::Search, &half), "config");
    }

    /// L8: bounds, and who may set which.
    #[test]
    fn limits_have_bounds() {
        let agent = Scope::Agent(AgentId::fixed(1));
        let (minute, run) = ("limits.requests_per_minute", "limits.requests_per_run");
        let table = [
            (Scope::Install, Mode::Auto, Some(1), Some(1), ""),
            (Scope::Install, Mode::Auto, Some(6_000), Some(10_000), ""),
            (Scope::Install, Mode::Auto, Some(6_001), None, minute),
            (Scope::Install, Mode::Auto, Some(0), None, minute),
            (Scope::Install, Mode::Disabled, None, Some(10_001), run),
            (Scope::Install, Mode::Disabled, None, Some(-1), run),
            (agent, Mode::Inherit, Some(5), None, minute),
            (agent, Mode::Inherit, None, Some(5), ""),
            (agent, Mode::Disabled, Some(5), Some(5), ""),
        ];
        for (owner, mode, per_minute, per_run, wrong) in table {
            let proposal = proposal(mode, None, Some((per_minute, per_run)));
            assert_eq!(field(owner, Capability::Search, &proposal), wrong, "{owner} {mode} {per_minute:?} {per_run:?}");
        }
        let empty = proposal(Mode::Auto, None, Some((None, None)));
        assert_eq!(field(Scope::Install, Capability::Browser, &empty), "limits", "a browser isn't metered");
    }

    #[test]
    fn only_an_inheriting_agent_is_held_to_the_install() {
        let install = Limits { requests_per_minute: 60, requests_per_run: 50 };
        let asks = |mode, run| check_against_install(&proposal(mode, None, Some((None, Some(run)))), install);
        assert_eq!(asks(Mode::Inherit, 50), Ok(()));
        assert_eq!(asks(Mode::Inherit, 51).map_err(|invalid| invalid.code), Err(Code::LimitAboveInstall));
        assert_eq!(asks(Mode::Own, 51), Ok(()));
        assert_eq!(check_against_install(&proposal(Mode::Inherit, None, None), install), Ok(()));
    }
}
