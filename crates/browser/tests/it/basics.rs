//! The thin line: attach, open, look, click, type, press, photograph; and what it costs.

use std::time::Instant;

use formation_browser::screenshot;

use crate::support::{
    drive::{Session, deadline},
    site::{Reply, Site, TITLE},
};

#[tokio::test]
async fn a_page_is_opened_read_clicked_typed_into_and_photographed() {
    let site = Site::page(
        "<h1>Hello there</h1><button onclick=\"say('clicked '+event.isTrusted)\">Press me</button>
         <label>Name <input oninput=\"say('typed '+this.value)\"></label>
         <form onsubmit=\"say('sent');return false\"><input aria-label=Search></form>",
    )
    .await;
    let mut session = Session::start().await;
    let opened = session.navigate(&site.url("/")).await.ok();
    assert_eq!(opened.page.title, TITLE);
    assert_eq!(opened.page.http_status, Some(200));
    assert!(opened.text.contains("Hello there"), "{opened:?}");
    assert!(!opened.page_changing);
    assert_eq!(opened.navigation.as_ref().map(|to| to.redirected), Some(false));

    let clicked = session.click("Press me").await.ok();
    assert!(site.hears("clicked true").await);
    assert_eq!(clicked.notes, []);
    session.type_into("Name", "Ada 😀").await.ok();
    assert!(site.hears("typed Ada 😀").await);
    assert_eq!(session.control("Name").value.as_deref(), Some("Ada 😀"));
    session.press("Search", "Enter").await.ok();
    assert!(site.hears("sent").await);

    let shot = screenshot(&mut session.live, deadline()).await.expect("a picture");
    assert_eq!((shot.capture.width, shot.capture.height), (1280, 720));
    assert_eq!(shot.page.title, TITLE);
    assert!(shot.capture.jpeg.starts_with(&[0xFF, 0xD8]));
}

/// The runtime runs each call in a task of its own.
#[tokio::test]
async fn an_operation_can_run_in_a_task() {
    let site = Site::page("<button>One</button>").await;
    let mut session = Session::start().await;
    let url = site.url("/");
    let task = tokio::spawn(async move {
        session.navigate(&url).await.ok();
        session.click("One").await.ok();
        screenshot(&mut session.live, deadline()).await.map(|shot| shot.page.url)
    });
    assert_eq!(task.await.expect("it does not panic"), Ok(site.url("/")));
}

#[tokio::test]
async fn reading_again_costs_a_script_a_frame() {
    let site = Site::start([
        ("/", Reply::html("<h1>Top</h1><iframe src=/in width=300 height=100></iframe><button>One</button>")),
        ("/in", Reply::html("<button>Two</button>")),
    ])
    .await;
    let mut session = Session::at(&site.url("/")).await;
    let mut times: Vec<_> = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        session.read().await.expect("a view");
        times.push(start.elapsed());
    }
    times.sort();
    assert!(times[10].as_millis() < 60, "{times:?}");
    let start = Instant::now();
    session.click("One").await.ok();
    eprintln_times(&times, start.elapsed());
}

#[expect(clippy::print_stderr, reason = "a figure for whoever runs the test by hand")]
fn eprintln_times(times: &[std::time::Duration], click: std::time::Duration) {
    eprintln!("read p50 {:?}, click {click:?}", times[times.len() / 2]);
}
