//! `formation init`: the data folder, the database, a master key. Doing it again changes nothing.

use serde_json::json;

use crate::{
    config::Place,
    data::{DataFolder, MASTER_KEY},
    opening,
    output::{Failure, Output},
    wiring::Wiring,
};

pub(crate) async fn init(place: &Place, wiring: &Wiring, output: Output) -> Result<(), Failure> {
    let folder = DataFolder::make(&place.data)?;
    let opened = opening::initialise(&folder, place, wiring).await?;
    opened.db.close().await;
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
    });
    output.answer(&answer, || {
        let verb = |made| if made { "made" } else { "kept" };
        [
            format!("{} the data folder `{}`", verb(folder.is_new), folder.path().display()),
            format!("{} the database `{}`", verb(opened.made.database), answer["database"].as_str().unwrap_or_default()),
            format!("{} the master key {} ({key})", verb(opened.made.master_key), opened.keys.current()),
        ]
        .join("\n")
    })?;
    if opened.made.master_key && !output.is_json {
        output.remark("\nhint: keep a copy of the master key somewhere else; without it what is sealed stays sealed");
    }
    Ok(())
}
