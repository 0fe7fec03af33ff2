//! S-21: what is at rest is the owner's alone, whatever umask the process was started with.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::MetadataExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::support::{Said, formation, said};

/// A server on a free port; killed when the test ends early.
pub(crate) struct Server {
    child: Child,
    ready: String,
}

impl Server {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary starts");
        let mut ready = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut ready).expect("a line or the end");
        Self { child, ready }
    }

    /// The address of its ready line.
    pub(crate) fn url(&self) -> &str {
        self.ready.trim_end().rsplit(' ').next().unwrap_or_default()
    }

    fn terminate(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    }

    fn ended(&mut self, within: Duration) -> Option<i32> {
        let until = Instant::now() + within;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The same command line under another umask.
fn under_umask(umask: &str, folder: &Path, words: &[&str]) -> Command {
    let plain = formation(folder);
    let mut command = Command::new("/bin/sh");
    command.args(["-c", r#"umask "$1"; shift; exec "$@""#, "sh", umask]).arg(plain.get_program()).args(words);
    command.current_dir(folder).env_clear().env("HOME", folder).env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    command
}

fn closed(folder: &Path) -> usize {
    let mode = |path: &Path| fs::symlink_metadata(path).expect("it is there").mode() & 0o777;
    assert_eq!(mode(folder), 0o700, "{}", folder.display());
    let mut files = 0;
    for entry in fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files += closed(&path);
        } else {
            assert_eq!(mode(&path), 0o600, "{}", path.display());
            files += 1;
        }
    }
    files
}

#[test]
fn bar_s21_files_are_the_owners_alone() {
    for umask in ["000", "022", "077"] {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data");
        let made = Said::of(under_umask(umask, folder.path(), &["init"]).output().expect("the binary starts"));
        assert_eq!(made.code, 0, "{made:?}");
        assert!(closed(&data) >= 2, "a database and a key");
        let mut server = Server::start(under_umask(umask, folder.path(), &["serve", "--listen", "127.0.0.1:0"]));
        assert!(server.ready.contains("http://127.0.0.1:"), "{}", server.ready);
        assert!(closed(&data) >= 5, "a write-ahead log and a lock too");
        server.terminate();
        assert_eq!(server.ended(Duration::from_secs(15)), Some(0), "SIGTERM ends it in order");
        closed(&data);
    }
}

#[test]
fn a_server_initialises_an_empty_folder_itself_and_says_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = formation(folder.path());
    command.args(["serve", "--listen", "127.0.0.1:0", "--json"]);
    let mut server = Server::start(command);
    let ready: serde_json::Value = serde_json::from_str(&server.ready).expect("one line of JSON");
    let url = ready["url"].as_str().expect("an address");
    assert!(url.starts_with("http://127.0.0.1:") && !url.ends_with(":0"), "{ready}");
    // Commands beside the running server.
    assert_eq!(said(folder.path(), &["agent", "create", "demo"]).code, 0);
    assert_eq!(said(folder.path(), &["runs"]).code, 0);
    let doctor = said(folder.path(), &["doctor", "--listen", url.trim_start_matches("http://"), "--chromium", "no-such-file"]);
    assert!(doctor.code == 0 && doctor.out.contains("the server of this data folder listens on"), "{doctor:?}");
    let second = said(folder.path(), &["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(second.code, 1);
    assert!(second.err.contains(&format!("another server (process {}) uses the data folder", server.child.id())), "{second:?}");
    server.terminate();
    assert_eq!(server.ended(Duration::from_secs(15)), Some(0));
}

/// Stops in fifteen seconds whatever its clients do: here one sends half a request and waits.
#[test]
#[expect(clippy::disallowed_methods, reason = "a client that behaves as badly as this one is nobody's library")]
fn a_client_that_hangs_does_not_hold_the_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = formation(folder.path());
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    let mut server = Server::start(command);
    let address = server.url().trim_start_matches("http://").to_owned();
    let mut client = std::net::TcpStream::connect(&address).expect("it listens");
    let half = format!("POST /v1/runs HTTP/1.1\r\nHost: {address}\r\nContent-Length: 100\r\n\r\n{{");
    client.write_all(half.as_bytes()).expect("it reads");
    std::thread::sleep(Duration::from_millis(200));
    server.terminate();
    assert_eq!(server.ended(Duration::from_secs(15)), Some(0));
}

#[test]
fn a_server_with_a_wrong_key_or_a_taken_port_says_so_and_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(said(folder.path(), &["init"]).code, 0);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let listen = taken.local_addr().expect("bound").to_string();
    let refused = said(folder.path(), &["serve", "--listen", &listen]);
    assert!(refused.code == 1 && refused.err.contains(&format!("`{listen}` can't be listened on")), "{refused:?}");

    let started = Instant::now();
    let mut command = formation(folder.path());
    command.args(["serve", "--listen", "127.0.0.1:0"]).env("FORMATION_MASTER_KEY", "ab".repeat(32));
    let wrong = Said::of(command.output().expect("the binary starts"));
    assert!(wrong.code == 1 && wrong.out.is_empty(), "{wrong:?}");
    assert!(wrong.err.contains("error: this data is sealed with master key"), "{wrong:?}");
    assert!(started.elapsed() < Duration::from_secs(2), "S-16: a wrong master key refuses to start within two seconds");
}
