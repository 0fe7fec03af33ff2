//! A browser that exists only as its answers: one page with one control, and a script that says where it misbehaves.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use formation_browser::{CdpWire, Live, Look, Rules, Timing, look};
use formation_core::view::RefNonce;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::drive::{deadline, rules};

/// What happens to one command instead of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The browser says no.
    Reject,
    /// It never answers.
    Silence,
    /// The connection ends before the answer.
    CutBefore,
    /// The connection ends right after it.
    CutAfter,
    /// The page's process dies.
    Crash,
    /// 17 MiB instead of an answer.
    Oversize,
    /// Nothing but noise, twice the answer, and answers nobody asked for.
    Noise,
}

/// The `count`th command of this method (from 1; `Input.*` counts them all together) meets the fault.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At(pub(crate) &'static str, pub(crate) usize, pub(crate) Fault);

/// The fake's memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    /// Methods it was sent whose name starts so.
    pub(crate) fn count(&self, prefix: &str) -> usize {
        self.0.lock().expect("nobody panicked").iter().filter(|method| method.starts_with(prefix)).count()
    }
}

/// Waits short enough for a test, long enough for a busy machine.
pub(crate) fn quick() -> Rules {
    let ms = std::time::Duration::from_millis;
    let timing = Timing {
        action_floor: ms(20),
        action_stable: ms(10),
        navigation_stable: ms(10),
        settle_bound: ms(500),
        navigation_load: ms(300),
        command: ms(2_000),
    };
    Rules { timing, ..rules() }
}

/// A session with a fake that was looked at once; the nonce of that look.
pub(crate) async fn session(faults: Vec<At>) -> (Live, RefNonce, Heard) {
    let (wire, heard) = start(faults);
    let mut live = Live::attach(wire, quick()).await.expect("a fake can be attached");
    let nonce = RefNonce::stored("n1");
    look(&mut live, Look::default(), nonce.clone(), deadline()).await.expect("it can be looked at");
    (live, nonce, heard)
}

/// Starts a fake.
pub(crate) fn start(faults: Vec<At>) -> (CdpWire, Heard) {
    let (send, mut commands) = mpsc::channel::<Bytes>(64);
    let (answers, receive) = mpsc::channel::<Bytes>(64);
    let heard = Heard::default();
    let mut fake = Fake { answers, heard: heard.clone(), faults };
    tokio::spawn(async move {
        while let Some(command) = commands.recv().await {
            let command: Value = serde_json::from_slice(&command).expect("commands are JSON");
            if !fake.take(&command).await {
                return;
            }
        }
    });
    (CdpWire { send, receive }, heard)
}

struct Fake {
    answers: mpsc::Sender<Bytes>,
    heard: Heard,
    faults: Vec<At>,
}

impl Fake {
    /// `false`: the connection ends.
    async fn take(&mut self, command: &Value) -> bool {
        let method = command["method"].as_str().expect("a method").to_owned();
        self.heard.0.lock().expect("nobody panicked").push(method.clone());
        let fault =
            self.faults.iter().find(|At(prefix, count, _)| method.starts_with(prefix) && self.heard.count(prefix) == *count);
        let mut answer = json!({"id": command["id"], "result": result(&method, &command["params"])});
        if let Some(session) = command.get("sessionId") {
            answer["sessionId"] = session.clone();
        }
        match fault.map(|At(_, _, fault)| *fault) {
            None => self.say(&answer).await,
            Some(Fault::Reject) => self.say(&json!({"id": command["id"], "error": {"code": -32602, "message": "no"}})).await,
            Some(Fault::Silence) => {}
            Some(Fault::CutBefore) => return false,
            Some(Fault::CutAfter) => {
                self.say(&answer).await;
                return false;
            }
            Some(Fault::Crash) => self.say(&event("Inspector.targetCrashed", &json!({}))).await,
            Some(Fault::Oversize) => {
                let mut long = format!("{{\"id\":{},\"result\":{{\"x\":\"", command["id"]).into_bytes();
                long.resize(17 * 1024 * 1024, b'a');
                self.raw(long).await;
            }
            Some(Fault::Noise) => {
                self.noise(&answer).await;
                self.say(&answer).await;
                self.say(&answer).await;
            }
        }
        for event in events(&method, command.get("sessionId").is_some()) {
            self.say(&event).await;
        }
        true
    }

    async fn noise(&self, answer: &Value) {
        let texts: [&[u8]; 16] = [
            b"",
            b"{",
            b"null",
            b"[1,2]",
            b"{\"id\":-1,\"result\":{}}",
            b"{\"id\":99999999,\"result\":{}}",
            b"{\"id\":1e9,\"result\":{}}",
            b"{\"id\":\"7\",\"result\":{}}",
            b"{\"method\":7}",
            b"{\"method\":\"Page.frameNavigated\",\"params\":7,\"sessionId\":\"S\"}",
            b"{\"method\":\"Page.javascriptDialogOpening\",\"params\":{\"message\":\"\\ud800\",\"type\":\"alert\"},\"sessionId\":\"S\"}",
            b"{\"method\":\"Target.attachedToTarget\",\"params\":{\"sessionId\":\"../S\",\"targetInfo\":{\"targetId\":\"X\",\"type\":\"worker\"}}}",
            b"{\"method\":\"Page.frameAttached\",\"params\":{\"frameId\":\"Q\",\"parentFrameId\":\"Q\"},\"sessionId\":\"S\"}",
            b"{\"method\":\"Target.detachedFromTarget\",\"params\":{\"sessionId\":\"nobody's\"}}",
            b"\xff\xfe{\"id\":1}",
            b"{\"id\":1,\"id\":2,\"result\":{}}",
        ];
        for text in texts {
            self.raw(text.to_vec()).await;
        }
        // The right id from another session.
        let mut foreign = answer.clone();
        foreign["sessionId"] = json!("elsewhere");
        foreign["result"] = json!({"result": {"value": "nonsense"}});
        self.say(&foreign).await;
        for n in 0..5_000 {
            self.say(&event("Network.dataReceived", &json!({ "n": n }))).await;
        }
    }

    async fn say(&self, message: &Value) {
        self.raw(message.to_string().into_bytes()).await;
    }

    async fn raw(&self, message: Vec<u8>) {
        // A driver that hung up is none to tell.
        let _ = self.answers.send(message.into()).await;
    }
}

fn event(method: &str, params: &Value) -> Value {
    json!({"method": method, "params": params, "sessionId": "S"})
}

fn events(method: &str, on_page: bool) -> Vec<Value> {
    match method {
        "Target.setAutoAttach" if !on_page => {
            let target = json!({"targetId": "T", "type": "page", "url": "http://fake.test/"});
            let params = json!({"sessionId": "S", "targetInfo": target, "waitingForDebugger": false});
            vec![json!({"method": "Target.attachedToTarget", "params": params})]
        }
        "Runtime.enable" => {
            let aux = json!({"isDefault": false, "type": "isolated", "frameId": "T"});
            let context = json!({"id": 2, "origin": "x", "name": "formation", "uniqueId": "U", "auxData": aux});
            vec![event("Runtime.executionContextCreated", &json!({ "context": context }))]
        }
        _ => Vec::new(),
    }
}

fn result(method: &str, params: &Value) -> Value {
    match method {
        "Target.getTargets" => json!({"targetInfos": [{"targetId": "T", "type": "page", "url": "http://fake.test/"}]}),
        "Page.getFrameTree" => json!({"frameTree": {"frame": {"id": "T", "loaderId": "L", "url": "http://fake.test/"}}}),
        "Page.createIsolatedWorld" => json!({"executionContextId": 2}),
        "Page.navigate" => json!({"frameId": "T", "loaderId": "L"}),
        "Runtime.evaluate" => json!({"result": {"value": evaluated(params["expression"].as_str().expect("an expression"))}}),
        _ => json!({}),
    }
}

/// What the page's side would answer; how it is asked is `script.rs`'s business, so only the operation's name is looked for.
fn evaluated(expression: &str) -> Value {
    let op = expression.rsplit_once("\"op\":\"").map_or("", |(_, after)| after.split('"').next().unwrap_or(""));
    let ok = match op {
        "read" => json!({
            "document": "d", "url": "http://fake.test/", "title": "Fake", "window": {"from": 0, "text": "Hello", "total": 5},
            "controls": [{"index": 0, "role": "textbox", "name": "Field"}],
        }),
        "digest" => json!({"hash": "h", "complete": true, "visible": true}),
        "locate" => json!({"standing": "found", "visible": true, "kind": "line"}),
        "aim" => json!({"standing": "found", "visible": true, "points": [{"x": 10.0, "y": 10.0}]}),
        "hit" => json!({"standing": "found", "hit": true}),
        "delivered" => json!({"seen": "target"}),
        "assign" => json!({"standing": "found", "outcome": "held"}),
        "" => json!(true),
        _ => json!({"standing": "found", "done": true}),
    };
    json!({ "ok": ok })
}
