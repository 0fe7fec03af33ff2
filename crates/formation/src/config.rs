//! What to run with: flags win over `FORMATION_*` variables, those over `formation.toml`, those over the defaults.
//!
//! Adding a setting: a field in [`File`], its variable's name in `config`'s two functions, a row in the README's table, and a row in
//! the precedence test below.

use std::{
    fmt, fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    str::FromStr,
};

use formation_core::Environment;
use serde::Deserialize;
use url::Url;

use crate::{
    cli::{PlaceFlags, ServeFlags},
    output::Failure,
};

/// Where `serve` listens unless told otherwise.
pub(crate) const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8420);

/// Where the durable state is.
#[derive(Debug, Clone)]
pub struct Place {
    /// The data folder: database, master key, lock.
    pub data: PathBuf,
    /// PostgreSQL, or else the SQLite file in the data folder.
    pub database: Option<DatabaseUrl>,
}

/// What a server runs with.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the durable state is.
    pub place: Place,
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// What clients call us; `http://` and the address in use without it.
    pub public_url: Option<Url>,
    /// Where `/metrics` answers without a credential; nowhere without it.
    pub metrics_listen: Option<SocketAddr>,
    /// Whether a browser of this machine is offered.
    pub local_browser: bool,
    /// Whether that browser may open private and loopback addresses.
    pub local_browser_allow_private: bool,
    /// The Chromium to use instead of the first one found.
    pub chromium: Option<PathBuf>,
}

/// A PostgreSQL address. It may hold a password, so it prints without one.
#[derive(Clone)]
pub struct DatabaseUrl(Url);

impl DatabaseUrl {
    /// The whole of it, for the driver.
    pub fn expose(&self) -> &str {
        self.0.as_str()
    }

    /// Where it answers; none for a Unix socket.
    pub(crate) fn host_and_port(&self) -> Option<(String, u16)> {
        let host = self.0.host_str().filter(|host| !host.is_empty() && !host.contains('%'))?;
        Some((host.trim_matches(['[', ']']).to_owned(), self.0.port().unwrap_or(5432)))
    }

    fn holds_a_password(&self) -> bool {
        self.0.password().is_some() || self.0.query_pairs().any(|(name, _)| name == "password")
    }
}

impl fmt::Display for DatabaseUrl {
    /// Host, port and database; neither user nor password nor options.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.0.scheme(), self.0.host_str().unwrap_or(""))?;
        if let Some(port) = self.0.port() {
            write!(f, ":{port}")?;
        }
        f.write_str(self.0.path())
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseUrl({self})")
    }
}

impl FromStr for DatabaseUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match Url::parse(text) {
            Ok(url) if matches!(url.scheme(), "postgres" | "postgresql") => Ok(Self(url)),
            _ => {
                Err("the database is a URL that starts with `postgres://`; without one, the SQLite file in the data folder is used")
            }
        }
    }
}

/// `formation.toml`. Paths are taken from the folder the command runs in, as they are on the command line.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    data: Option<PathBuf>,
    database: Option<String>,
    listen: Option<SocketAddr>,
    public_url: Option<String>,
    metrics_listen: Option<SocketAddr>,
    local_browser: Option<bool>,
    local_browser_allow_private: Option<bool>,
    chromium: Option<PathBuf>,
    log: Option<String>,
    server: Option<String>,
}

/// Every source but the flags of one command, read once.
#[derive(Debug)]
pub(crate) struct Sources {
    environment: Environment,
    file: File,
}

impl Sources {
    /// Reads the settings file: the one that was named must be there, `formation.toml` may.
    pub(crate) fn read(flags: &PlaceFlags, environment: &Environment) -> Result<Self, Failure> {
        let named = flags.config.clone().or_else(|| environment.variable("FORMATION_CONFIG").map(PathBuf::from));
        let path = named.clone().unwrap_or_else(|| PathBuf::from("formation.toml"));
        let file = match fs::read_to_string(&path) {
            Ok(text) => parse_file(&path, &text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => File::default(),
            Err(error) => return Err(Failure::failed(format!("`{}` can't be read: {error}", path.display()))),
        };
        Ok(Self { environment: environment.clone(), file })
    }

    /// Log directives.
    pub(crate) fn log(&self) -> String {
        let asked = self.environment.variable("FORMATION_LOG").or_else(|| self.file.log.clone());
        asked.unwrap_or_else(|| crate::logging::DEFAULT.to_owned())
    }

    /// Where `call` finds a server.
    pub(crate) fn server(&self, flag: Option<&str>) -> Result<Url, Failure> {
        let text =
            flag.map(str::to_owned).or_else(|| self.environment.variable("FORMATION_SERVER")).or_else(|| self.file.server.clone());
        origin("server", &text.unwrap_or_else(|| format!("http://{LISTEN}")))
    }

    /// Where the durable state is.
    pub(crate) fn place(&self, flags: &PlaceFlags) -> Result<Place, Failure> {
        let data = flags.data.clone().or_else(|| self.environment.variable("FORMATION_DATA").map(PathBuf::from));
        let data = data.or_else(|| self.file.data.clone()).unwrap_or_else(|| PathBuf::from("data"));
        let flag = flags.database.as_deref().map(database).transpose()?;
        if flag.as_ref().is_some_and(DatabaseUrl::holds_a_password) {
            return Err(Failure::usage("`--database` holds a password, which every process of this machine could read")
                .hint("put the URL in `FORMATION_DATABASE`, or the password in `PGPASSWORD`"));
        }
        let elsewhere = self.environment.variable("FORMATION_DATABASE").or_else(|| self.file.database.clone());
        let database = match flag {
            Some(url) => Some(url),
            None => elsewhere.as_deref().map(database).transpose()?,
        };
        Ok(Place { data, database })
    }

    /// All of it.
    pub(crate) fn config(&self, place: &PlaceFlags, flags: &ServeFlags) -> Result<Config, Failure> {
        let listen = match flags.listen {
            Some(address) => address,
            None => self.parsed("FORMATION_LISTEN", "an address and a port")?.or(self.file.listen).unwrap_or(LISTEN),
        };
        let public_url = flags.public_url.clone().or_else(|| self.environment.variable("FORMATION_PUBLIC_URL"));
        let public_url = public_url.or_else(|| self.file.public_url.clone()).map(|text| public_url_of(&text)).transpose()?;
        if public_url.is_none() && !listen.ip().is_loopback() {
            return Err(Failure::usage(format!("`{listen}` isn't a loopback address, so clients need an https address"))
                .hint("name it with `--public-url https://…` and let a TLS proxy forward it here"));
        }
        let chromium = flags.chromium.clone().or_else(|| self.environment.variable("FORMATION_CHROMIUM").map(PathBuf::from));
        Ok(Config {
            chromium: chromium.or_else(|| self.file.chromium.clone()),
            place: self.place(place)?,
            listen,
            public_url,
            metrics_listen: match flags.metrics_listen {
                Some(address) => Some(address),
                None => self.parsed("FORMATION_METRICS_LISTEN", "an address and a port")?.or(self.file.metrics_listen),
            },
            local_browser: self.switch(flags.local_browser, "FORMATION_LOCAL_BROWSER", self.file.local_browser)?,
            local_browser_allow_private: self.switch(
                flags.local_browser_allow_private,
                "FORMATION_LOCAL_BROWSER_ALLOW_PRIVATE",
                self.file.local_browser_allow_private,
            )?,
        })
    }

    fn switch(&self, flag: bool, variable: &str, file: Option<bool>) -> Result<bool, Failure> {
        if flag {
            return Ok(true);
        }
        match self.environment.variable(variable).as_deref() {
            None => Ok(file.unwrap_or(false)),
            Some("1" | "true") => Ok(true),
            Some("0" | "false") => Ok(false),
            Some(_) => Err(Failure::usage(format!("`{variable}` is `true` or `false`"))),
        }
    }

    fn parsed<T: FromStr>(&self, variable: &str, shape: &str) -> Result<Option<T>, Failure> {
        let Some(text) = self.environment.variable(variable) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| Failure::usage(format!("`{variable}` is {shape}")))
    }
}

fn parse_file(path: &Path, text: &str) -> Result<File, Failure> {
    // The message alone: the rendered error quotes the line, which may hold a password.
    toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        Failure::usage(format!("`{}`, line {line}: {}", path.display(), error.message()))
    })
}

fn database(text: &str) -> Result<DatabaseUrl, Failure> {
    text.parse().map_err(|said: &str| Failure::usage(said))
}

/// An http or https origin; plain http for loopback only, since tokens go over it.
fn public_url_of(text: &str) -> Result<Url, Failure> {
    let url = origin("public URL", text)?;
    if url.scheme() == "http" && !is_loopback(&url) {
        return Err(Failure::usage("the public URL must be https: tokens would cross the network in the clear")
            .hint("plain http is accepted for loopback addresses only"));
    }
    Ok(url)
}

fn origin(what: &str, text: &str) -> Result<Url, Failure> {
    let refuse = || Failure::usage(format!("the {what} is `http://` or `https://`, a host and perhaps a port, nothing else"));
    let url = Url::parse(text).map_err(|_| refuse())?;
    let is_bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    let has_user = !url.username().is_empty() || url.password().is_some();
    if matches!(url.scheme(), "http" | "https") && url.has_host() && is_bare && !has_user { Ok(url) } else { Err(refuse()) }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(variables: &'static [(&str, &str)], file: &str) -> Sources {
        let environment =
            Environment::new(move |name| variables.iter().find(|(known, _)| *known == name).map(|(_, v)| (*v).to_owned()));
        Sources { environment, file: parse_file(Path::new("formation.toml"), file).expect("a good file") }
    }

    fn serve(sources: &Sources, place: &PlaceFlags, flags: &ServeFlags) -> Result<Config, String> {
        sources.config(place, flags).map_err(|failure| failure.to_string())
    }

    const FILE: &str = "data = 'from-file'\nlisten = '127.0.0.1:3'\ndatabase = 'postgres://file/f'\nlocal_browser = true\n\
                        local_browser_allow_private = true\npublic_url = 'https://file.example'\nmetrics_listen = '127.0.0.1:13'\nchromium = '/file/chromium'\n";
    const VARIABLES: &[(&str, &str)] = &[
        ("FORMATION_DATA", "from-variable"),
        ("FORMATION_LISTEN", "127.0.0.1:2"),
        ("FORMATION_DATABASE", "postgres://user:secret@variable/v"),
        ("FORMATION_LOCAL_BROWSER", "false"),
        ("FORMATION_LOCAL_BROWSER_ALLOW_PRIVATE", "0"),
        ("FORMATION_PUBLIC_URL", "https://variable.example"),
        ("FORMATION_METRICS_LISTEN", "127.0.0.1:12"),
        ("FORMATION_CHROMIUM", "/variable/chromium"),
    ];

    #[test]
    fn flags_win_over_variables_and_those_over_the_file() {
        let place = PlaceFlags { data: Some("from-flag".into()), database: Some("postgres://flag/g".into()), config: None };
        let flags = ServeFlags {
            listen: Some("127.0.0.1:1".parse().expect("an address")),
            public_url: Some("https://flag.example".into()),
            metrics_listen: Some("127.0.0.1:11".parse().expect("an address")),
            local_browser: true,
            local_browser_allow_private: true,
            chromium: Some("/flag/chromium".into()),
        };
        let shape = |config: Config| {
            let database = config.place.database.map(|url| url.to_string());
            let data = config.place.data.display().to_string();
            let chromium = config.chromium.map(|path| path.display().to_string());
            let public_url = config.public_url.map(String::from);
            let metrics = config.metrics_listen.map_or(0, |address| address.port());
            let switches = (config.local_browser, config.local_browser_allow_private, metrics);
            [Some(data), database, Some(config.listen.port().to_string()), public_url, chromium, Some(format!("{switches:?}"))]
        };
        let none = (&PlaceFlags::default(), &ServeFlags::default());
        let of = |variables, file, (place, flags)| shape(serve(&sources(variables, file), place, flags).expect("good settings"));

        let words = |words: [&str; 6]| words.map(|word| (!word.is_empty()).then(|| word.to_owned()));
        assert_eq!(of(&[], "", none), words(["data", "", "8420", "", "", "(false, false, 0)"]));
        let file = ["from-file", "postgres://file/f", "3", "https://file.example/", "/file/chromium", "(true, true, 13)"];
        assert_eq!(of(&[], FILE, none), words(file));
        let variable = [
            "from-variable",
            "postgres://variable/v",
            "2",
            "https://variable.example/",
            "/variable/chromium",
            "(false, false, 12)",
        ];
        assert_eq!(of(VARIABLES, FILE, none), words(variable));
        let flag = ["from-flag", "postgres://flag/g", "1", "https://flag.example/", "/flag/chromium", "(true, true, 11)"];
        assert_eq!(of(VARIABLES, FILE, (&place, &flags)), words(flag));
    }

    #[test]
    fn unknown_keys_and_wrong_types_name_the_line_and_quote_nothing() {
        for (text, line) in [
            ("listn = '127.0.0.1:1'", 1),
            ("data = 'x'\ndatabase = ['hunter2']", 2),
            ("data = 'x'\n\nlocal_browser = 'hunter2'", 3),
        ] {
            let said = parse_file(Path::new("formation.toml"), text).expect_err("refused").to_string();
            assert!(said.starts_with(&format!("`formation.toml`, line {line}: ")), "{said}");
            assert!(!said.contains("127.0.0.1"), "{said}");
        }
    }

    /// S-21: no secret in argv.
    #[test]
    fn a_password_in_the_flag_is_refused() {
        for url in ["postgres://user:hunter2@host/db", "postgres://host/db?user=u&password=hunter2"] {
            let place = PlaceFlags { database: Some(url.into()), ..PlaceFlags::default() };
            let failure = sources(&[], "").place(&place).expect_err("refused");
            assert!(matches!(failure, Failure::Usage(_)) && !format!("{failure:?}").contains("hunter2"));
        }
        let kept = sources(VARIABLES, "").place(&PlaceFlags::default()).expect("the environment may hold one");
        assert!(!format!("{kept:?}").contains("secret"));
        assert!(kept.database.expect("the variable's").expose().contains("secret"));
    }

    #[test]
    fn plain_http_is_for_loopback_only() {
        for (url, good) in [
            ("https://formation.example", true),
            ("http://127.0.0.1:9", true),
            ("http://[::1]:9", true),
            ("http://localhost:9", true),
            ("http://formation.example", false),
            ("https://user@formation.example", false),
            ("https://formation.example/path", false),
            ("ftp://formation.example", false),
            ("formation.example", false),
        ] {
            assert_eq!(public_url_of(url).is_ok(), good, "{url}");
        }
        let wide = ServeFlags { listen: Some("0.0.0.0:8420".parse().expect("an address")), ..ServeFlags::default() };
        assert!(serve(&sources(&[], ""), &PlaceFlags::default(), &wide).is_err());
        assert!(
            serve(&sources(&[("FORMATION_PUBLIC_URL", "https://formation.example")], ""), &PlaceFlags::default(), &wide).is_ok()
        );
    }

    #[test]
    fn a_switch_is_true_or_false() {
        let said = serve(&sources(&[("FORMATION_LOCAL_BROWSER", "yes")], ""), &PlaceFlags::default(), &ServeFlags::default());
        assert_eq!(said.expect_err("refused"), "`FORMATION_LOCAL_BROWSER` is `true` or `false`");
    }
}
