//! S-22, the provenance of money: who pays in every combination of the install's state, the agent's own and the environment.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;

/// Two vendors in catalog order.
const FIRST: VendorId = VendorId::known("first");
const LAST: VendorId = VendorId::known("last");

/// Install × own × environment → who pays, with whose account at which vendor, or why nobody does.
///
/// The install: `bare` (automatic, no account), `auto` (automatic, an account at `last`), `pinned` (to `last`, with its account),
/// `adrift` (pinned to `last`, its only account is at `first`), `off` (turned off, an account at `last`).
/// The agent: `inherits` (no row), `own` (pinned to `last`, with its account), `lost` (pinned to `last`, its only account is at
/// `first`), `off`. The environment brings nothing, or an account at one of the two.
const TABLE: &str = "
    bare   inherits none  → no_account
    bare   inherits first → environment first
    bare   inherits last  → environment last
    bare   own      none  → agent last
    bare   own      first → agent last
    bare   own      last  → agent last
    bare   lost     none  → account_missing
    bare   lost     first → account_missing
    bare   lost     last  → account_missing
    bare   off      none  → disabled
    bare   off      first → disabled
    bare   off      last  → disabled
    auto   inherits none  → install last
    auto   inherits first → environment first
    auto   inherits last  → install last
    auto   own      none  → agent last
    auto   own      first → agent last
    auto   own      last  → agent last
    auto   lost     none  → account_missing
    auto   lost     first → account_missing
    auto   lost     last  → account_missing
    auto   off      none  → disabled
    auto   off      first → disabled
    auto   off      last  → disabled
    pinned inherits none  → install last
    pinned inherits first → install last
    pinned inherits last  → install last
    pinned own      none  → agent last
    pinned own      first → agent last
    pinned own      last  → agent last
    pinned lost     none  → account_missing
    pinned lost     first → account_missing
    pinned lost     last  → account_missing
    pinned off      none  → disabled
    pinned off      first → disabled
    pinned off      last  → disabled
    adrift inherits none  → account_missing
    adrift inherits first → account_missing
    adrift inherits last  → environment last
    adrift own      none  → agent last
    adrift own      first → agent last
    adrift own      last  → agent last
    adrift lost     none  → account_missing
    adrift lost     first → account_missing
    adrift lost     last  → account_missing
    adrift off      none  → disabled
    adrift off      first → disabled
    adrift off      last  → disabled
    off    inherits none  → disabled
    off    inherits first → disabled
    off    inherits last  → disabled
    off    own      none  → agent last
    off    own      first → agent last
    off    own      last  → agent last
    off    lost     none  → account_missing
    off    lost     first → account_missing
    off    lost     last  → account_missing
    off    off      none  → disabled
    off    off      first → disabled
    off    off      last  → disabled
";

fn state(mode: Option<Mode>, account: Option<(u64, VendorId)>) -> ScopeState {
    let settings = mode.map(|mode| Settings {
        mode,
        vendor: (mode == Mode::Own).then_some(LAST),
        config: json!({}),
        requests_per_minute: None,
        requests_per_run: None,
        version: 1,
    });
    let accounts = account.map(|(number, vendor)| StoredAccount {
        id: AccountId::fixed(number),
        vendor,
        config: json!({}),
        secret: SecretId::fixed(number),
        version: 1,
    });
    ScopeState { settings, accounts: accounts.into_iter().collect() }
}

fn install(word: &str) -> ScopeState {
    match word {
        "bare" => state(None, None),
        "auto" => state(None, Some((1, LAST))),
        "pinned" => state(Some(Mode::Own), Some((1, LAST))),
        "adrift" => state(Some(Mode::Own), Some((1, FIRST))),
        "off" => state(Some(Mode::Disabled), Some((1, LAST))),
        other => panic!("no such install: {other}"),
    }
}

fn own(word: &str) -> ScopeState {
    match word {
        "inherits" => state(None, None),
        "own" => state(Some(Mode::Own), Some((2, LAST))),
        "lost" => state(Some(Mode::Own), Some((2, FIRST))),
        "off" => state(Some(Mode::Disabled), Some((2, LAST))),
        other => panic!("no such agent: {other}"),
    }
}

fn environment(word: &str) -> Vec<EnvironmentAccount> {
    let account = |vendor| vec![EnvironmentAccount { vendor, fingerprint: "0011223344556677".to_owned() }];
    match word {
        "none" => Vec::new(),
        "first" => account(FIRST),
        "last" => account(LAST),
        other => panic!("no such environment: {other}"),
    }
}

fn payer(resolved: Result<Effective, Unavailable>) -> String {
    match resolved {
        Err(reason) => reason.to_string(),
        Ok(effective) => {
            let whose = match effective.binding.account {
                AccountRef::Environment { .. } => "environment",
                AccountRef::Stored { id, .. } if id == AccountId::fixed(1) => "install",
                AccountRef::Stored { .. } => "agent",
            };
            // The minute is the payer's own, and its credential lies where the account does.
            let owner = if whose == "agent" { Scope::Agent(AgentId::fixed(9)) } else { Scope::Install };
            assert_eq!((effective.meter_scope, effective.binding.owner), (owner, owner));
            assert_eq!(effective.secret.is_none(), whose == "environment");
            format!("{whose} {}", effective.binding.vendor)
        }
    }
}

#[test]
fn bar_s22_every_combination_has_the_payer_the_table_names() {
    let mut seen = BTreeSet::new();
    for line in TABLE.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (given, expected) = line.split_once(" → ").expect("an arrow");
        let [install_word, own_word, environment_word]: [&str; 3] =
            given.split_whitespace().collect::<Vec<_>>().try_into().expect("three states");
        assert!(seen.insert((install_word, own_word, environment_word)), "{line} is there twice");
        let resolved = resolve(
            Capability::Search,
            AgentId::fixed(9),
            &[FIRST, LAST],
            &install(install_word),
            &own(own_word),
            &environment(environment_word),
        );
        assert_eq!(payer(resolved), expected, "{line}");
    }
    assert_eq!(seen.len(), 5 * 4 * 3);
}
