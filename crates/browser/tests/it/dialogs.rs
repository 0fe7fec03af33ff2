//! Dialogs are answered inside the action, windows are followed (cases G1 to G9).

use std::time::{Duration, Instant};

use formation_core::{arguments::Consent, failure::Reason, hostlist::HostList, view::DialogAnswer};

use crate::support::{
    drive::{Session, rules},
    site::{Reply, Site},
};

#[tokio::test]
async fn g1_g2_g5_dialogs_are_answered_and_told_and_consent_answers_one() {
    let site = Site::page(
        "<button onclick=\"alert('notice 4711');say('after')\">Alert</button>
         <button onclick=\"say('asked '+confirm('Delete everything?'))\">Confirm</button>
         <button onclick=\"setTimeout(()=>say('later '+confirm('Really?')),0)\">Later</button>
         <button onclick=\"say('name '+prompt('Name?','x'))\">Prompt</button>
         <button onclick=\"say('two '+confirm('1')+confirm('2'))\">Two</button>
         <button onclick=\"alert('lorem '.repeat(2000))\">Long</button>",
    )
    .await;
    let mut session = Session::at(&site.url("/")).await;
    let told = |session: &Session| -> Vec<(String, String, DialogAnswer)> {
        session.view.dialogs.iter().map(|dialog| (dialog.kind.clone(), dialog.message.clone(), dialog.answer)).collect()
    };
    let start = Instant::now();
    session.click("Alert").await.ok();
    assert!(start.elapsed() < Duration::from_secs(8));
    assert!(site.hears("after").await);
    assert_eq!(told(&session), [("alert".into(), "notice 4711".into(), DialogAnswer::Accepted)]);
    session.click("Confirm").await.ok();
    assert!(site.hears("asked false").await);
    assert_eq!(told(&session), [("confirm".into(), "Delete everything?".into(), DialogAnswer::Dismissed)]);
    session.click("Later").await.ok();
    assert!(site.hears("later false").await);
    assert_eq!(told(&session).len(), 1);
    let yes = |text: Option<&str>| Consent { accept: true, text: text.map(str::to_owned) };
    session.click_with("Confirm", yes(None)).await.ok();
    assert!(site.hears("asked true").await);
    session.click_with("Prompt", yes(Some("Ada"))).await.ok();
    assert!(site.hears("name Ada").await);
    session.click_with("Two", yes(None)).await.ok();
    assert!(site.hears("two truefalse").await);
    session.click("Prompt").await.ok();
    assert!(site.hears("name null").await);
    session.click("Long").await.ok();
    assert!(session.view.dialogs[0].message.len() <= 300);
    // Told once.
    assert_eq!(session.read().await.expect("a view").dialogs, []);
}

#[tokio::test]
async fn a_dialog_of_a_foreign_frame_is_answered_once() {
    let site = Site::start([
        ("/", Reply::html("<iframe src='http://b.localhost:PORT/in' width=400 height=100></iframe>")),
        (
            "/in",
            Reply::html("<button onclick=\"say('frame '+confirm('From inside'))\">Ask</button><script>alert('at once')</script>"),
        ),
    ])
    .await;
    let mut session = Session::at(&site.url("/")).await;
    assert_eq!(session.view.dialogs.len(), 1, "{:?}", session.view);
    session.click_with("Ask", Consent { accept: true, text: None }).await.ok();
    assert!(site.hears("frame true").await);
    assert_eq!(session.view.dialogs.len(), 1);
}

#[tokio::test]
async fn g6_only_our_own_navigation_leaves_a_page_that_asks_to_stay() {
    let site = Site::start([
        (
            "/",
            Reply::html(
                "<label>Note <input></label><a href=/next>Leave</a>
                 <script>addEventListener('beforeunload',e=>{e.preventDefault();e.returnValue='x'})</script>",
            ),
        ),
        ("/next", Reply::html("Next page reached")),
    ])
    .await;
    let mut session = Session::at(&site.url("/")).await;
    session.type_into("Note", "draft").await.ok();
    let stayed = session.click("Leave").await.ok();
    assert_eq!(stayed.page.url, site.url("/"));
    assert_eq!(
        stayed.dialogs.first().map(|dialog| (dialog.kind.as_str(), dialog.answer)),
        Some(("beforeunload", DialogAnswer::Dismissed))
    );
    let left = session.navigate(&site.url("/next")).await.ok();
    assert!(left.text.contains("Next page reached"));
    assert_eq!(left.dialogs.first().map(|dialog| dialog.answer), Some(DialogAnswer::Accepted));
}

#[tokio::test]
async fn g7_g8_g9_windows_are_followed_there_and_back() {
    let site = Site::start([
        (
            "/",
            Reply::html(
                "<a href=/inv target=_blank>Open invoice</a>
                 <button onclick=\"const w=window.open('');setTimeout(()=>{w.location='/late'},1200)\">Start report</button>
                 <button onclick=\"window.open('/sign')\">Sign in</button><script>addEventListener('message',e=>{document.body.append(e.data)})</script>",
            ),
        ),
        ("/inv", Reply::html("<h1>Invoice 88</h1><button onclick=\"say('inv')\">Download</button><script>alert('hello')</script>")),
        ("/late", Reply::html("Late popup here<button onclick=\"window.close()\">Done</button>")),
        ("/sign", Reply::html("<button onclick=\"say('in');opener.postMessage('signed in now','*');window.close()\">Finish sign-in</button>")),
    ])
    .await;
    let mut session = Session::at(&site.url("/")).await;
    let opened = session.click("Open invoice").await.ok();
    assert_eq!(opened.opened_page, Some(site.url("/inv")));
    assert!(opened.text.contains("Invoice 88"), "{opened:?}");
    assert_eq!(opened.dialogs.len(), 1, "a dialog that opens with the page");
    session.click("Download").await.ok();
    assert!(site.hears("inv").await);

    let mut session = Session::at(&site.url("/")).await;
    let late = session.click("Start report").await.ok();
    assert!(late.text.contains("Late popup here"), "{late:?}");
    assert_eq!(late.opened_page, Some(site.url("/late")));
    let back = session.click("Done").await.ok();
    assert_eq!(back.closed_page, Some(site.url("/late")));
    assert_eq!(back.page.url, site.url("/"));

    session.click("Sign in").await.ok();
    let back = session.click("Finish sign-in").await.ok();
    assert!(site.hears("in").await);
    assert_eq!(back.closed_page, Some(site.url("/sign")));
    assert!(back.text.contains("signed in now"), "{back:?}");
}

#[tokio::test]
async fn g19_a_window_on_another_host_is_not_shown() {
    let site = Site::start([
        ("/", Reply::html("<button onclick=\"window.open('http://b.localhost:PORT/other')\">Out</button><iframe src='http://b.localhost:PORT/other'></iframe>")),
        ("/other", Reply::html("<h1>Not for you</h1>")),
        ("/redirect", Reply::new(302, Vec::new()).header("location", "http://b.localhost:PORT/other")),
    ])
    .await;
    let only_a = HostList::of(["a.localhost"]).expect("a list");
    let mut session = Session::with(formation_browser::Rules { hosts: only_a, ..rules() }).await;
    let view = session.navigate(&site.url("/")).await.ok();
    assert!(!view.text.contains("Not for you"));
    assert_eq!(view.frames[0].reason.as_deref(), Some("hostname_not_allowed"));
    for outcome in [session.click("Out").await, session.navigate(&site.url("/redirect")).await] {
        match outcome {
            crate::support::drive::Ended::InputDispatched(refused) => assert_eq!(refused.reason, Reason::HostnameNotAllowed),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(session.navigate(&site.at("b.localhost", "/other")).await.not_dispatched(), Reason::HostnameNotAllowed);
    assert_eq!(session.read().await.expect_err("not its host").reason, Reason::HostnameNotAllowed);
}

#[tokio::test]
async fn pages_that_open_without_end_are_bounded() {
    let site = Site::start([
        ("/", Reply::html("<button onclick=\"for(let i=0;i<9;i++)window.open('/p?'+i,'w'+i)\">Many</button>")),
        ("/p", Reply::html("one of many")),
    ])
    .await;
    let mut session = Session::at(&site.url("/")).await;
    let view = session.click("Many").await.ok();
    assert!(view.text.contains("one of many"));
    let again = session.read().await.expect("a view");
    assert!(again.text.contains("one of many"));
}
