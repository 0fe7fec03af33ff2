//! Frames of this process and of others, and shadow roots (cases F).

use formation_core::{
    arguments::Action,
    failure::Reason,
    view::{FrameState, Note},
};

use crate::support::{
    drive::Session,
    site::{Reply, Site, on_release},
};

const INNER: &str = "<body style='margin:0'><div style='height:60px'></div>
    <button onmousedown=\"say('down')\" onclick=\"say('inner '+event.isTrusted)\">Inner action</button>
    <label>Card <input oninput=\"say('card '+this.value)\"></label>";

#[tokio::test]
async fn f9_f10_input_reaches_frames_of_other_processes_and_only_them() {
    let site = Site::start([
        (
            "/",
            Reply::html(
                "<input autofocus aria-label=Outer oninput=\"say('outer '+this.value)\">
                 <button onclick=\"window.open('/pop','_blank','width=300,height=300')\">Open popup</button>
                 <div style='height:100px'></div>
                 <div style='padding-left:60px'><iframe src='http://b.localhost:PORT/in' style='border:7px solid;padding:5px;width:400px;height:150px'></iframe></div>
                 <iframe srcdoc=\"<button onclick='parent.say(1)'>Near action</button>\"></iframe>",
            ),
        ),
        ("/in", Reply::html(INNER)),
        ("/pop", Reply::html("<script>setTimeout(close,2500)</script>popup")),
    ])
    .await;
    let mut session = Session::at(&site.url("/")).await;
    let card = session.control("Card");
    assert_eq!(card.frame.as_deref(), Some("f1"));
    assert_eq!(session.click("Inner action").await.ok().notes, []);
    assert!(site.hears("inner true").await);
    assert_eq!(session.type_into("Card", "4000123").await.ok().notes, []);
    assert!(site.hears("card 4000123").await);
    assert!(!site.said().iter().any(|said| said.starts_with("outer")));
    session.press("Card", "5").await.ok();

    // A popup that comes and goes leaves the page in the background for a while.
    session.click("Open popup").await.ok();
    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
    let back = session.read().await.expect("the opener can be read");
    assert!(back.closed_page.is_some() || back.page.url == site.url("/"), "{back:?}");
    let before = site.said().iter().filter(|said| *said == "inner true").count();
    session.click("Inner action").await.ok();
    assert_eq!(site.said().iter().filter(|said| *said == "inner true").count(), before + 1);
    session.click("Near action").await.ok();
    assert!(site.hears("1").await);
}

#[tokio::test]
async fn f3_f5_refs_carry_their_frame_through_four_levels() {
    let level = |button: &str, next: &str| {
        Reply::html(&format!(
            "<button onclick=\"say('{button}')\">Level {button}</button><iframe width=700 height=400 src='{next}'></iframe>"
        ))
    };
    let site = Site::start([
        ("/", level("top", "http://b.localhost:PORT/1")),
        ("/1", level("one", "http://a.localhost:PORT/2")),
        ("/2", level("two", "http://c.localhost:PORT/3")),
        (
            "/3",
            Reply::html(
                "<button onclick=\"say('leaf')\">Leaf button</button><iframe srcdoc='<button>Innermost</button>'></iframe>",
            ),
        ),
    ])
    .await;
    let mut session = Session::at(&site.url("/")).await;
    for _ in 0..20 {
        if session.view.controls.iter().any(|control| control.name == "Innermost") {
            break;
        }
        session.read().await.expect("a view");
    }
    for name in ["Level top", "Level one", "Level two", "Leaf button", "Innermost"] {
        session.control(name);
    }
    assert_eq!(session.click("Leaf button").await.ok().notes, []);
    assert!(site.hears("leaf").await);
    session.click("Level two").await.ok();
    assert!(site.hears("two").await);
    assert_eq!(site.said(), ["leaf", "two"]);
}

#[tokio::test]
async fn f10_a_target_below_the_fold_of_a_foreign_frame_is_scrolled_to() {
    let site = Site::start([
        ("/", Reply::html("<div style='height:1500px'></div><iframe src='http://b.localhost:PORT/in' style='width:500px;height:200px'></iframe>")),
        ("/in", Reply::html("<div style='height:900px'></div><button onclick=\"say('deep')\">Deep</button>")),
    ])
    .await;
    let mut session = Session::at(&site.url("/")).await;
    session.click("Deep").await.ok();
    assert!(site.hears("deep").await);
}

#[tokio::test]
async fn a4_f18_a_frame_with_another_document_has_none_of_the_old_refs() {
    let site = Site::start([
        (
            "/",
            Reply::html(
                &("<iframe id=f src='http://b.localhost:PORT/one' width=400 height=100></iframe>".to_owned()
                    + &on_release("f.src='http://c.localhost:PORT/two'")),
            ),
        ),
        ("/one", Reply::html("<button onclick=\"say('one')\">Pay shop one</button>")),
        ("/two", Reply::html("<button onclick=\"say('two')\">Pay shop two</button>")),
    ])
    .await;
    let mut session = Session::at(&site.url("/")).await;
    session.control("Pay shop one");
    site.release().await;
    let reason = session.click("Pay shop one").await.not_dispatched();
    assert!(matches!(reason, Reason::DocumentChanged | Reason::FramesChanged), "{reason}");
    session.read().await.expect("a view");
    session.click("Pay shop two").await.ok();
    assert!(site.hears("two").await);
    assert_eq!(site.said(), ["two"]);
}

#[tokio::test]
async fn b4_c9_frames_that_are_covered_or_turned_are_refused() {
    let site = Site::start([
        (
            "/",
            Reply::html(
                "<div style='position:relative'><iframe src='http://b.localhost:PORT/in' width=400 height=150></iframe>
                 <div onclick=\"say('cover')\" style='position:absolute;inset:0;width:420px'></div></div>
                 <iframe src='http://b.localhost:PORT/turned' width=300 height=200 style='transform:rotate(20deg)'></iframe>",
            ),
        ),
        ("/in", Reply::html(INNER)),
        ("/turned", Reply::html("<button onclick=\"say('turned')\">Turned</button>")),
    ])
    .await;
    let mut session = Session::at(&site.url("/")).await;
    assert_eq!(session.click("Inner action").await.not_dispatched(), Reason::TargetObscured);
    assert_eq!(session.click("Turned").await.not_dispatched(), Reason::FrameUnverifiable);
    assert_eq!(site.said(), Vec::<String>::new());
}

#[tokio::test]
async fn f12_f13_open_shadow_roots_are_pages_like_others_and_closed_ones_stay_closed() {
    let site = Site::page(
        "<div id=h><button onclick=\"say('slotted')\">Slotted button</button></div><div id=c></div><script>
         const r=h.attachShadow({mode:'open'});r.innerHTML='<div id=i></div><slot></slot>';
         const d=r.getElementById('i').attachShadow({mode:'open'});d.innerHTML='<button>Deep button</button><input aria-label=Deep>';
         d.querySelector('button').onclick=()=>say('deep');
         c.attachShadow({mode:'closed'}).innerHTML='<button>Sealed button</button>'</script>",
    )
    .await;
    let mut session = Session::at(&site.url("/")).await;
    assert_eq!(session.view.controls.iter().filter(|control| control.name == "Slotted button").count(), 1);
    assert!(!session.view.controls.iter().any(|control| control.name == "Sealed button"));
    assert_eq!(session.click("Deep button").await.ok().notes, Vec::<Note>::new());
    assert!(site.hears("deep").await);
    session.click("Slotted button").await.ok();
    assert!(site.hears("slotted").await);
    assert_eq!(session.type_into("Deep", "words").await.ok().notes, []);
    assert_eq!(session.control("Deep").value.as_deref(), Some("words"));
}

#[tokio::test]
async fn a11_frames_of_a_document_that_came_back_are_read_again() {
    let site = Site::start([
        (
            "/",
            Reply::html(
                "<a href=/two>Go on</a><iframe src=/in width=200 height=60></iframe>
                 <iframe src='http://b.localhost:PORT/far' width=200 height=60></iframe>",
            ),
        ),
        ("/in", Reply::html("<button onclick=\"say('near')\">Near</button>")),
        ("/far", Reply::html("<button onclick=\"say('far')\">Far</button>")),
        ("/two", Reply::html("<button onclick=\"history.back()\">Back</button>")),
    ])
    .await;
    let mut session = Session::at(&site.url("/")).await;
    session.click("Go on").await.ok();
    let back = session.click("Back").await.ok();
    assert_eq!(back.frames.len(), 2, "{back:?}");
    session.click("Near").await.ok();
    session.click("Far").await.ok();
    assert_eq!(site.said(), ["near", "far"]);
}

#[tokio::test]
async fn h10_of_sixty_frames_twenty_are_named() {
    let frames: Vec<_> = (0..60).map(|n| format!("<iframe src='/f?{n}' width=150 height=40></iframe>")).collect();
    let frames = frames.concat();
    let site = Site::start([
        ("/", Reply::html(&format!("<button>Top action</button>{frames}"))),
        ("/f", Reply::html("<button onclick=\"say('pressed '+location.search)\">Frame button</button>")),
    ])
    .await;
    let mut session = Session::at(&site.url("/")).await;
    assert_eq!(session.view.frames.len(), 20);
    assert!(session.view.truncated.frames);
    assert!(session.view.frames.iter().all(|frame| frame.state == FrameState::Ok), "{:?}", session.view.frames);
    let third = session.view.controls.iter().find(|control| control.frame.as_deref() == Some("f3")).expect("it has a button");
    let reference = third.reference.clone();
    session.act(Action::Click { reference }).await.ok();
    assert!(site.hears("pressed ?2").await, "{:?}", site.said());
}
