//! What a navigation's end means (cases G11 to G18, F8).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use formation_browser::{ProxyRefusals, Rules, Timing};
use formation_core::{failure::Reason, view::Note};

use crate::support::{
    drive::{Ended, Session, rules},
    site::{Reply, Site},
};

#[tokio::test]
async fn f8_redirects_and_refreshes_end_in_one_view_of_the_last_document() {
    let site = Site::start([
        ("/", Reply::new(302, Vec::new()).header("location", "/m1")),
        ("/m1", Reply::html("<meta http-equiv=refresh content='0;url=/m2'>one")),
        ("/m2", Reply::html("<meta http-equiv=refresh content='0;url=/end'>two")),
        ("/end", Reply::html("Arrived here<button onclick=\"say('done')\">Finish</button>")),
    ])
    .await;
    let mut session = Session::start().await;
    let view = session.navigate(&site.url("/")).await.ok();
    assert!(view.text.contains("Arrived here"), "{view:?}");
    let navigation = view.navigation.expect("it navigated");
    assert_eq!((navigation.redirected, navigation.final_url), (true, site.url("/end")));
    session.click("Finish").await.ok();
    assert!(site.hears("done").await);
}

#[tokio::test]
async fn g12_no_content_and_downloads_leave_the_page_and_say_so() {
    let site = Site::start([
        ("/", Reply::html("Still here<a href=/none onclick=\"say('clicked')\">Ping</a><a href=/file>Get file</a><input type=file aria-label=Upload>")),
        ("/none", Reply::new(204, Vec::new())),
        ("/file", Reply::new(200, b"bytes".to_vec()).header("content-disposition", "attachment; filename=a.bin")),
    ])
    .await;
    let mut session = Session::at(&site.url("/")).await;
    let none = session.navigate(&site.url("/none")).await.ok();
    assert_eq!(none.notes, [Note::NoContent204]);
    assert!(none.text.contains("Still here"));
    let file = session.navigate(&site.url("/file")).await.ok();
    assert_eq!(file.notes, [Note::DownloadBlocked]);
    assert!(file.text.contains("Still here"));
    assert_eq!(session.click("Ping").await.ok().notes, []);
    assert_eq!(session.click("Get file").await.ok().notes, [Note::DownloadBlocked]);
    if session.view.controls.iter().any(|control| control.name == "Upload") {
        assert_eq!(session.click("Upload").await.ok().notes, [Note::FileChooserCancelled]);
    }
}

#[tokio::test]
async fn g14_g15_pages_that_do_not_load_are_known_failures_in_time() {
    let site = Site::start([
        ("/secret", Reply::new(401, Vec::new()).header("www-authenticate", "Basic realm=x")),
        ("/ok", Reply::html("fine")),
    ])
    .await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback").local_addr().expect("bound").port();
    let mut session = Session::start().await;
    let failed = |ended: Ended| match ended {
        Ended::Failed(reason) => reason,
        other => panic!("{other:?}"),
    };
    let start = Instant::now();
    assert_eq!(failed(session.navigate(&format!("http://127.0.0.1:{closed}/")).await), Reason::ConnectionFailed);
    assert_eq!(failed(session.navigate("http://no-such-host.invalid/").await), Reason::DnsFailed);
    assert_eq!(failed(session.navigate(&site.url("/secret")).await), Reason::HttpAuthRequired);
    assert_eq!(failed(session.navigate(&site.url("/ok").replace("http:", "https:")).await), Reason::TlsFailed);
    assert!(start.elapsed() < Duration::from_secs(20));
    assert_eq!(session.read().await.expect_err("an error page").reason, Reason::PageUnreadable);
    assert!(session.navigate(&site.url("/ok")).await.ok().text.contains("fine"));
    // A site's own error page is a page; without a body Chromium shows one of its own.
    assert_eq!(failed(session.navigate(&site.url("/missing")).await), Reason::ConnectionFailed);
}

#[tokio::test]
async fn g16_a_slow_page_is_waited_for_and_a_dead_one_stopped() {
    let site = Site::start([
        ("/slow", Reply::html("Slow page arrived").after(Duration::from_secs(3))),
        ("/never", Reply::html("never").after(Duration::from_mins(10))),
    ])
    .await;
    let timing = Timing { navigation_load: Duration::from_secs(5), ..Timing::default() };
    let mut session = Session::with(Rules { timing, ..rules() }).await;
    assert!(session.navigate(&site.url("/slow")).await.ok().text.contains("Slow page arrived"));
    let start = Instant::now();
    match session.navigate(&site.url("/never")).await {
        Ended::Failed(Reason::Timeout) => {}
        other => panic!("{other:?}"),
    }
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    assert!(session.read().await.expect("the old page").text.contains("Slow page arrived"));
    let pages: Vec<_> = site.requests().into_iter().filter(|request| !request.contains("favicon")).collect();
    assert_eq!(pages, ["GET /slow", "GET /never"]);
}

#[tokio::test]
async fn g18_pages_that_lead_elsewhere_than_the_web_are_not_observed() {
    let site = Site::page(
        "<a href='data:text/html,hi' target=_self>Data</a><button onclick=\"location='about:blank'\">Blank</button>
         <a href='javascript:say(1)'>Script</a><a href='file:///etc/hostname'>File</a>",
    )
    .await;
    let mut session = Session::at(&site.url("/")).await;
    session.click("Script").await.ok();
    session.click("File").await.ok();
    assert_eq!(session.view.page.url, site.url("/"), "Chromium follows no such link");
    let blank = session.click("Blank").await.ok();
    assert_eq!(blank.page.url, "about:blank");
}

#[derive(Debug)]
struct Refusing;

impl ProxyRefusals for Refusing {
    fn take(&self, host: &str, _port: u16) -> Option<Reason> {
        (host == "private.localhost").then_some(Reason::AddressNotAllowed)
    }
}

#[tokio::test]
async fn the_proxy_says_why_a_connection_came_to_nothing() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback").local_addr().expect("bound").port();
    let mut session = Session::with(Rules { refusals: Some(Arc::new(Refusing)), ..rules() }).await;
    match session.navigate(&format!("http://private.localhost:{closed}/")).await {
        Ended::Failed(Reason::AddressNotAllowed) => {}
        other => panic!("{other:?}"),
    }
    match session.navigate(&format!("http://127.0.0.1:{closed}/")).await {
        Ended::Failed(Reason::ConnectionFailed) => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn i15_a_submission_that_takes_long_is_sent_once() {
    let site = Site::start([
        ("/", Reply::html("<form method=post action=/buy><button>Buy once</button></form>")),
        ("/buy", Reply::html("Thanks for the order").after(Duration::from_secs(10))),
    ])
    .await;
    let mut session = Session::at(&site.url("/")).await;
    let view = session.click("Buy once").await.ok();
    assert!(view.page_changing);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(session.read().await.expect("a view").text.contains("Thanks for the order"));
    assert_eq!(site.requests().iter().filter(|request| request.starts_with("POST")).count(), 1);
}

#[tokio::test]
async fn g11_a_pdf_is_said_to_be_one() {
    let pdf = b"%PDF-1.1\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n\
        3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF";
    let site = Site::start([("/file.pdf", Reply::new(200, pdf.to_vec()).header("content-type", "application/pdf"))]).await;
    let mut session = Session::start().await;
    match session.navigate(&site.url("/file.pdf")).await {
        Ended::Ok(view) => {
            assert!(view.notes.contains(&Note::PdfSurface) || view.notes.contains(&Note::DownloadBlocked), "{view:?}");
        }
        other => panic!("{other:?}"),
    }
}
