//! `formation init`: the data folder, the database, a master key, and the first owner: made here, or by a link. Doing it again changes
//! nothing, but while nobody owns the install it makes another link.

use std::io::{self, Read as _};

use formation_core::{Secret, people};
use formation_runtime::people::{first_owner, hash_password};
use formation_store::{Db, operators, setup_links};
use serde_json::{Value, json};

use crate::{
    config::{Config, Place},
    data::{DataFolder, MASTER_KEY},
    opening,
    output::{Failure, Output},
    wiring::Wiring,
};

/// More than the longest password takes.
const PASSWORD_BYTES: u64 = 1_024;

/// What the first owner becomes.
enum Owner {
    /// One was there.
    Kept,
    /// Made now; a token of theirs.
    Made(String),
    /// To be made through this address.
    Link(String),
}

/// `config` is what `serve` would start with: its address stands in the link.
pub(crate) async fn init(
    owner: Option<&str>,
    config: Result<Config, Failure>,
    place: &Place,
    wiring: &Wiring,
    output: Output,
) -> Result<(), Failure> {
    // What was typed wrong is said before anything is made.
    let owner = owner.map(|name| Ok::<_, Failure>((good_name(name)?, password()?))).transpose()?;
    let folder = DataFolder::make(&place.data)?;
    let opened = opening::initialise(&folder, place, wiring).await?;
    let owner = match owner {
        Some((name, password)) => make(&opened.db, name, &password, wiring).await,
        None => link(&opened.db, config.ok().as_ref()).await,
    };
    opened.db.close().await;
    let owner = owner?;
    let from_environment = opening::from_environment(wiring)?.map(|(variable, _)| variable);
    let key = match from_environment {
        Some(variable) => format!("`{variable}`"),
        None => format!("`{}`", folder.file(MASTER_KEY).display()),
    };
    let answer = json!({
        "data": folder.path(),
        "database": place.database.as_ref().map_or_else(|| folder.file(crate::data::DATABASE).display().to_string(), ToString::to_string),
        "made": {"data": folder.is_new, "database": opened.made.database, "master_key": opened.made.master_key},
        "master_key_id": opened.keys.current().as_str(),
        "token": if let Owner::Made(token) = &owner { json!(token) } else { Value::Null },
        "setup_url": if let Owner::Link(link) = &owner { json!(link) } else { Value::Null },
    });
    output.answer(&answer, || {
        let verb = |made| if made { "made" } else { "kept" };
        let mut lines = vec![
            format!("{} the data folder `{}`", verb(folder.is_new), folder.path().display()),
            format!("{} the database `{}`", verb(opened.made.database), answer["database"].as_str().unwrap_or_default()),
            format!("{} the master key {} ({key})", verb(opened.made.master_key), opened.keys.current()),
        ];
        match &owner {
            Owner::Kept => {}
            Owner::Made(token) => lines.push(format!("made the owner, whose token is shown this once: {token}")),
            Owner::Link(link) => lines.push(format!("nobody owns it yet: start the server and open {link} within 24 hours")),
        }
        lines.join("\n")
    })?;
    if opened.made.master_key && !output.is_json {
        output.remark("\nhint: keep a copy of the master key somewhere else; without it what is sealed stays sealed");
    }
    Ok(())
}

async fn make(db: &Db, name: &str, password: &Secret, wiring: &Wiring) -> Result<Owner, Failure> {
    let hash = hash_password(password, &wiring.entropy);
    let made = first_owner(db, name, &hash).await.map_err(|error| opening::unreadable(&error))?;
    let minted = made.ok_or_else(|| {
        Failure::failed("somebody owns this install already").hint("an owner makes other operators, with `POST /api/operators`")
    })?;
    // Shown this once: only its hash is stored.
    Ok(Owner::Made(String::from_utf8_lossy(minted.text.expose()).into_owned()))
}

async fn link(db: &Db, config: Option<&Config>) -> Result<Owner, Failure> {
    if operators::has_owner(db).await.map_err(|error| opening::unreadable(&error))? {
        return Ok(Owner::Kept);
    }
    let made = db.write(|tx| Box::pin(async move { setup_links::make(tx).await })).await;
    let link = made.map_err(|error| opening::unreadable(&error))?;
    let origin = config.map_or_else(
        || "the server's address".to_owned(),
        |config| match &config.public_url {
            Some(url) => url.as_str().trim_end_matches('/').to_owned(),
            None => format!("http://{}", config.listen),
        },
    );
    Ok(Owner::Link(format!("{origin}/setup/{}", String::from_utf8_lossy(link.expose()))))
}

fn good_name(name: &str) -> Result<&str, Failure> {
    if people::is_name(name) { Ok(name) } else { Err(Failure::usage("a name is 1 to 128 bytes without control characters")) }
}

/// The first line of standard input.
fn password() -> Result<Secret, Failure> {
    let mut input = String::new();
    let read = io::stdin().lock().take(PASSWORD_BYTES).read_to_string(&mut input);
    read.map_err(|error| Failure::failed(format!("standard input can't be read: {error}")))?;
    let line = input.lines().next().unwrap_or_default();
    if people::PASSWORD_CHARACTERS.contains(&line.chars().count()) {
        return Ok(Secret::new(line.as_bytes().to_vec()));
    }
    Err(Failure::usage("a password is 12 to 200 characters, on standard input")
        .hint("`formation init --owner NAME < FILE`, where the first line of the file is the password"))
}
