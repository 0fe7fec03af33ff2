//! What a request must be, to the letter (vendors/search.md 3.1).

use url::form_urlencoded;

/// A request, with everything that is wrong with it.
#[derive(Debug, Default)]
pub(super) struct Request {
    pub(super) query: String,
    pub(super) count: String,
    pub(super) key: String,
    pub(super) takes_gzip: bool,
    pub(super) violations: Vec<String>,
}

impl Request {
    /// Reads a head whose lines are parted by `\n`; `more` bytes came behind it.
    pub(super) fn read(head: &str, more: usize) -> Self {
        let mut request = Self::default();
        let mut lines = head.lines();
        request.line(lines.next().unwrap_or_default());
        let mut names = Vec::new();
        for line in lines {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let name = name.to_ascii_lowercase();
            request.field(&name, value.trim());
            names.push(name);
        }
        for name in ["host", "accept", "x-subscription-token"] {
            if names.iter().filter(|other| *other == name).count() != 1 {
                request.wrong(format!("the header `{name}` must be there once"));
            }
        }
        if more > 0 {
            request.wrong("a body, or a second request before the first one's answer");
        }
        if !request.key.is_empty() && head.lines().next().is_some_and(|line| line.contains(&request.key)) {
            request.wrong("the key is in the URL");
        }
        request
    }

    fn line(&mut self, line: &str) {
        let mut words = line.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if method != "GET" {
            self.wrong(format!("the method is `{method}`"));
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if path != "/res/v1/web/search" {
            self.wrong(format!("the path is `{path}`"));
        }
        let mut names = Vec::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match (&*name, &*value) {
                ("q", value) => value.clone_into(&mut self.query),
                ("count", value) => {
                    value.clone_into(&mut self.count);
                    if !value.parse::<u8>().is_ok_and(|count| (1..=20).contains(&count)) {
                        self.wrong(format!("`count` is `{value}`"));
                    }
                }
                ("result_filter", "web") | ("text_decorations", "false") => {}
                (name, value) => self.wrong(format!("the parameter `{name}` is `{value}`")),
            }
            names.push(name.into_owned());
        }
        names.sort();
        if names != ["count", "q", "result_filter", "text_decorations"] {
            self.wrong(format!("the parameters are {names:?}"));
        }
    }

    fn field(&mut self, name: &str, value: &str) {
        match name {
            "x-subscription-token" => value.clone_into(&mut self.key),
            "host" if value == "api.search.brave.com" => {}
            "accept" if value == "application/json" => {}
            "accept-encoding" => self.takes_gzip = value.contains("gzip"),
            "user-agent" if value.starts_with("formation/") => {}
            // The value isn't repeated: it may be the key.
            _ => self.wrong(format!("the header `{name}` is not wanted so")),
        }
    }

    fn wrong(&mut self, what: impl Into<String>) {
        self.violations.push(what.into());
    }
}
