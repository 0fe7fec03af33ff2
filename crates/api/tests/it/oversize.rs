//! R-13: too much of anything ends in a 4xx within a second and costs no memory, never in a 5xx.
//!
//! The routes here are the test's own, behind the real loop, door and guard: what every route of ours has in front of it.

use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;

use crate::client::{Reply, Server};

const LIMIT: usize = 64 * 1024;
const JSON: &str = "content-type: application/json";

struct Case {
    name: &'static str,
    bytes: Vec<u8>,
    status: u16,
    /// Empty where hyper answers by itself.
    code: &'static str,
}

fn posted(server: &Server, body: &[u8], lines: &[&str]) -> Vec<u8> {
    let length = format!("content-length: {}", body.len());
    let mut lines = lines.to_vec();
    lines.push(&length);
    let mut bytes = server.head("POST /parcels", &lines).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

fn chunked(server: &Server, body: &[u8]) -> Vec<u8> {
    let mut bytes = server.head("POST /parcels", &[JSON, "transfer-encoding: chunked"]).into_bytes();
    for chunk in body.chunks(4096) {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

/// `{"content":"xxx…"}` of exactly `bytes` bytes.
fn of_size(bytes: usize) -> Vec<u8> {
    let frame = r#"{"content":""}"#.len();
    format!(r#"{{"content":"{}"}}"#, "x".repeat(bytes - frame)).into_bytes()
}

fn members(count: usize) -> String {
    let members: Vec<_> = (0..count).map(|n| format!("\"{n:x}\":0")).collect();
    format!(r#"{{"content":{{{}}}}}"#, members.join(","))
}

fn nested(depth: usize, open: &str, close: &str) -> String {
    format!(r#"{{"content":{}0{}}}"#, open.repeat(depth), close.repeat(depth))
}

fn bodies(server: &Server) -> Vec<Case> {
    let json = |name, body: &str, status, code| Case { name, bytes: posted(server, body.as_bytes(), &[JSON]), status, code };
    let raw = |name, body: &[u8], status, code| Case { name, bytes: posted(server, body, &[JSON]), status, code };
    vec![
        raw("a body at the limit", &of_size(LIMIT), 200, ""),
        raw("limit + 1", &of_size(LIMIT + 1), 413, "too_large"),
        raw("ten times the limit", &of_size(10 * LIMIT), 413, "too_large"),
        Case { name: "at the limit, no length", bytes: chunked(server, &of_size(LIMIT)), status: 200, code: "" },
        Case { name: "limit + 1, no length", bytes: chunked(server, &of_size(LIMIT + 1)), status: 413, code: "too_large" },
        Case { name: "ten times, no length", bytes: chunked(server, &of_size(10 * LIMIT)), status: 413, code: "too_large" },
        json("100,000 members", &members(100_000), 413, "too_large"),
        json("as many members as fit", &members(7_000), 413, "too_large"),
        json("4,000 members", &members(4_000), 200, ""),
        json("depth 10,000 of arrays", &nested(10_000, "[", "]"), 400, "invalid_json"),
        json("depth 10,000 of objects", &nested(10_000, "{\"a\":", "}"), 400, "invalid_json"),
        json("depth 20,000 of objects", &nested(20_000, "{\"a\":", "}"), 413, "too_large"),
        json("depth 65", &nested(65, "[", "]"), 400, "invalid_json"),
        json("depth 60", &nested(60, "[", "]"), 200, ""),
        json("a name twice", r#"{"content":1,"content":2}"#, 400, "invalid_json"),
        json("a name twice, spelled twice", r#"{"content":{"a":1,"\u0061":2}}"#, 400, "invalid_json"),
        json("U+0000", r#"{"content":"\u0000"}"#, 400, "invalid_json"),
        json("U+0000 in a name", r#"{"content":{"\u0000":1}}"#, 400, "invalid_json"),
        raw("a raw zero byte", b"{\"content\":\"\0\"}", 400, "invalid_json"),
        json("a lone high surrogate", r#"{"content":"\ud800"}"#, 400, "invalid_json"),
        json("a lone low surrogate", r#"{"content":"\udc00"}"#, 400, "invalid_json"),
        json("surrogates the wrong way round", r#"{"content":"\udc00\ud800"}"#, 400, "invalid_json"),
        raw("a surrogate in UTF-8", b"{\"content\":\"\xed\xa0\x80\"}", 400, "invalid_json"),
        raw("not UTF-8", b"{\"content\":\"\xff\"}", 400, "invalid_json"),
        json("a number past every type", r#"{"content":1e999}"#, 400, "invalid_json"),
        json("two values", "{} {}", 400, "invalid_json"),
        json("half a value", r#"{"content":"#, 400, "invalid_json"),
        json("another shape", "[]", 422, "invalid_body"),
        json("a field nobody knows", r#"{"is_admin":true}"#, 422, "unknown_field"),
    ]
}

fn media(server: &Server) -> Vec<Case> {
    let body = b"{}";
    let case = |name, lines: &[&str], status, code| Case { name, bytes: posted(server, body, lines), status, code };
    vec![
        case("a compressed body", &[JSON, "content-encoding: gzip"], 415, "unsupported_media_type"),
        case("compressed twice", &[JSON, "content-encoding: identity", "content-encoding: br"], 415, "unsupported_media_type"),
        case("no media type", &[], 415, "unsupported_media_type"),
        case("a form", &["content-type: application/x-www-form-urlencoded"], 415, "unsupported_media_type"),
        case("plain text", &["content-type: text/plain"], 415, "unsupported_media_type"),
        case("two media types", &[JSON, JSON], 415, "unsupported_media_type"),
        case("JSON with a charset", &["content-type: application/json; charset=utf-8"], 200, ""),
        Case { name: "nothing at all", bytes: posted(server, b"", &[]), status: 200, code: "" },
    ]
}

fn heads(server: &Server) -> Vec<Case> {
    let get = |target: &str, lines: &[&str]| server.head(&format!("GET /parcels{target}"), lines).into_bytes();
    let header = |bytes: usize| format!("x-filler: {}", "x".repeat(bytes));
    let pairs: Vec<_> = (0..10_000).map(|n| format!("a{n}=1")).collect();
    let many: Vec<_> = (0..200).map(|n| format!("x-{n}: 1")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    vec![
        Case { name: "a header of 33 KiB", bytes: get("", &[&header(33 * 1024)]), status: 431, code: "headers_too_large" },
        Case { name: "a header of 64 KiB", bytes: get("", &[&header(64 * 1024)]), status: 431, code: "headers_too_large" },
        Case { name: "a header of 1 MiB", bytes: get("", &[&header(1024 * 1024)]), status: 431, code: "" },
        Case { name: "200 headers", bytes: get("", &many), status: 431, code: "" },
        Case {
            name: "a target of 9 KiB",
            bytes: get(&format!("?{}", "x".repeat(9 * 1024)), &[]),
            status: 414,
            code: "uri_too_long",
        },
        Case { name: "a target of 64 KiB", bytes: get(&format!("?{}", "x".repeat(64 * 1024)), &[]), status: 414, code: "" },
        Case { name: "10,000 query pairs", bytes: get(&format!("?{}", pairs.join("&")), &[]), status: 414, code: "" },
        Case { name: "not HTTP", bytes: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec(), status: 400, code: "" },
    ]
}

#[tokio::test]
async fn bar_r13_too_much_is_refused_within_a_second() {
    let server = Server::start(|_| {}).await;
    let cases: Vec<Case> = [bodies(&server), media(&server), heads(&server)].into_iter().flatten().collect();
    assert!(cases.len() >= 40, "{} cases", cases.len());
    for case in cases {
        let began = Instant::now();
        let reply = server.ask(&case.bytes).await;
        let took = began.elapsed();
        assert_eq!((reply.status, reply.code().as_str()), (case.status, case.code), "{}: {}", case.name, reply.head);
        assert!(took < Duration::from_secs(1), "{} took {took:?}", case.name);
        if !case.code.is_empty() {
            assert!(reply.head.contains("content-type: application/problem+json"), "{}: {}", case.name, reply.head);
        }
    }
}

/// Resident memory of this process, in KiB: the server runs in it.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a resident size");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

/// 1 GiB, announced or not, is refused at its beginning: the answer comes while the rest is still on its way.
#[tokio::test]
async fn bar_r13_a_gibibyte_is_not_held() {
    let server = Server::start(|_| {}).await;
    let announced = server.head("POST /parcels", &[JSON, &format!("content-length: {}", 1 << 30)]);
    let unannounced = server.head("POST /parcels", &[JSON, "transfer-encoding: chunked"]);
    let chunk = format!("{:x}\r\n{}\r\n", 64 * 1024, "x".repeat(64 * 1024));
    let before = resident_kib();
    for head in [announced, unannounced] {
        let mut stream = server.connect().await;
        let (mut reading, mut writing) = stream.split();
        let began = Instant::now();
        let write = async {
            writing.write_all(head.as_bytes()).await.expect("the head is read");
            for _ in 0..(1 << 30) / chunk.len() {
                if writing.write_all(chunk.as_bytes()).await.is_err() {
                    return;
                }
            }
        };
        let reply = tokio::select! {
            reply = Reply::read(&mut reading) => reply,
            () = async { write.await; std::future::pending().await } => unreachable!("the other branch ends"),
        };
        assert_eq!((reply.status, reply.code().as_str()), (413, "too_large"));
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    }
    let added = resident_kib().saturating_sub(before);
    assert!(added <= 64 * 1024, "{added} KiB more");
}

#[tokio::test]
async fn a_foreign_host_or_origin_meets_no_route() {
    let server = Server::start(|_| {}).await;
    let get = |host: &str, more: &str| format!("GET /parcels HTTP/1.1\r\nhost: {host}\r\n{more}\r\n").into_bytes();
    let own = server.address.to_string();
    for bytes in [
        get("evil.example", ""),
        get(&own, "origin: http://evil.example\r\n"),
        get(&own, "origin: null\r\n"),
        b"GET /parcels HTTP/1.0\r\n\r\n".to_vec(),
        format!("GET http://evil.example/parcels HTTP/1.1\r\nhost: {own}\r\n\r\n").into_bytes(),
    ] {
        let reply = server.ask(&bytes).await;
        assert_eq!((reply.status, reply.code().as_str()), (403, "forbidden"), "{}", String::from_utf8_lossy(&bytes));
    }
    let local = format!("localhost:{}", server.address.port());
    let reply = server.ask(&get(&local, &format!("origin: http://{local}\r\n"))).await;
    assert_eq!(reply.status, 200);
    for line in ["x-content-type-options: nosniff", "x-frame-options: deny", "cache-control: no-store", "x-request-id: "] {
        assert!(reply.head.contains(line), "{line} in {}", reply.head);
    }
}
