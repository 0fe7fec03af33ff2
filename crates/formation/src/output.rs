//! What a command says and how it ends: data to standard output, the rest to standard error, exit codes that mean something.

use std::{
    fmt,
    io::{self, Write},
    process::ExitCode,
};

use serde::Serialize;

/// Why a command didn't do what it was asked.
#[derive(Debug)]
pub enum Failure {
    /// It was asked in a way it doesn't understand: exit code 2.
    Usage(Said),
    /// It tried and failed: exit code 1.
    Failed(Said),
    /// It answered, and the answer is bad news that was already printed: exit code 1.
    Answered,
    /// Whoever read our output went away, which is no error.
    PipeClosed,
}

/// One sentence, and what to do next.
#[derive(Debug)]
pub struct Said {
    message: String,
    hint: Option<String>,
}

impl Failure {
    /// Exit code 1 with a sentence.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed(Said { message: message.into(), hint: None })
    }

    /// Exit code 2 with a sentence.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage(Said { message: message.into(), hint: None })
    }

    /// Adds what to do next.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        if let Self::Usage(said) | Self::Failed(said) = &mut self {
            said.hint = Some(hint.into());
        }
        self
    }

    /// What to do next, if that is known.
    pub(crate) fn next_step(&self) -> Option<&str> {
        match self {
            Self::Usage(said) | Self::Failed(said) => said.hint.as_deref(),
            Self::Answered | Self::PipeClosed => None,
        }
    }

    /// Says it on standard error, once, and gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        let (said, code) = match self {
            Self::Usage(said) => (said, 2),
            Self::Failed(said) => (said, 1),
            Self::Answered => return ExitCode::from(1),
            Self::PipeClosed => return ExitCode::SUCCESS,
        };
        // Nobody is left to tell when standard error is closed too.
        let _ = write!(io::stderr(), "{said}");
        ExitCode::from(code)
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", self.message)?;
        match &self.hint {
            Some(hint) => writeln!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(said) | Self::Failed(said) => f.write_str(&said.message),
            Self::Answered => f.write_str("the answer was bad news"),
            Self::PipeClosed => f.write_str("the reader went away"),
        }
    }
}

/// Where a command's answer goes: for people or, with `--json`, for machines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub(crate) is_json: bool,
}

impl Output {
    /// The answer: `json` as one line, or `text` as it is.
    pub(crate) fn answer(self, json: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.is_json {
            let line =
                serde_json::to_string(json).map_err(|error| Failure::failed(format!("the answer can't be written: {error}")))?;
            self.line(&line)
        } else {
            self.line(text().trim_end_matches('\n'))
        }
    }

    /// One line or several to standard output.
    #[expect(clippy::unused_self, reason = "the only way a command writes to standard output")]
    pub(crate) fn line(self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::PipeClosed,
            _ => Failure::failed(format!("standard output can't be written: {error}")),
        })
    }

    /// A remark beside the answer, to standard error.
    #[expect(clippy::unused_self, reason = "the only way a command writes to standard error")]
    pub(crate) fn remark(self, text: &str) {
        let _ = writeln!(io::stderr(), "{text}");
    }
}

/// Columns under their headings, two spaces apart, the last one ragged.
pub(crate) fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([headings[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let mut text = String::new();
    let mut push = |cells: &mut dyn Iterator<Item = &str>| {
        let line: Vec<String> = cells.zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    };
    push(&mut headings.iter().copied());
    for row in rows {
        push(&mut row.iter().map(String::as_str));
    }
    text
}

/// Text from outside on one line of a terminal: control characters become spaces, and it ends at `limit` characters.
pub(crate) fn shown(text: &str, limit: usize) -> String {
    let clean = |c: char| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { ' ' } else { c };
    let mut line: String = text.chars().map(clean).take(limit).collect();
    if text.chars().nth(limit).is_some() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_the_last_is_ragged() {
        let rows = vec![vec!["demo".into(), "Demo agent".into()], vec!["a-long-slug".into(), String::new()]];
        assert_eq!(table(&["SLUG", "NAME"], &rows), "SLUG         NAME\ndemo         Demo agent\na-long-slug\n");
    }

    #[test]
    fn a_page_cannot_write_to_the_terminal() {
        assert_eq!(shown("a\u{1b}[2Jb\nc", 10), "a [2Jb c");
        assert_eq!(shown("abcdef", 3), "abc…");
    }

    #[test]
    fn a_failure_is_a_sentence_and_a_hint() {
        let Failure::Failed(said) = Failure::failed("no agent `demo`").hint("`formation agent list` names them") else {
            unreachable!()
        };
        assert_eq!(said.to_string(), "error: no agent `demo`\n\nhint: `formation agent list` names them\n");
    }
}
