//! Large, restless and broken pages (cases H), and processes that die.

use std::time::{Duration, Instant};

use formation_core::failure::Reason;

use crate::support::{
    drive::{Ended, Session},
    site::{Reply, Site},
};

#[tokio::test]
async fn h1_a_page_that_never_rests_is_shown_with_its_bound() {
    let site = Site::page("<p id=c></p><button onclick=\"say('bought')\">Buy share</button><script>let n=0;setInterval(()=>{c.textContent='count '+n++},60)</script>").await;
    let mut session = Session::start().await;
    let start = Instant::now();
    assert!(session.navigate(&site.url("/")).await.ok().page_changing);
    assert!(start.elapsed() < Duration::from_secs(11));
    let start = Instant::now();
    let view = session.click("Buy share").await.ok();
    assert!(view.page_changing && start.elapsed() < Duration::from_secs(11));
    assert!(site.hears("bought").await);
    assert_eq!(site.said(), ["bought"]);
}

#[tokio::test]
async fn h3_an_endless_animation_is_rest() {
    let site = Site::page("<style>@keyframes s{to{transform:rotate(1turn)}}b{display:inline-block;animation:s 1s infinite}</style><b>o</b><button>Proceed</button>").await;
    let mut session = Session::at(&site.url("/")).await;
    assert!(!session.view.page_changing);
    let start = Instant::now();
    assert!(!session.click("Proceed").await.ok().page_changing);
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
}

#[tokio::test]
async fn h6_fifty_thousand_nodes_are_read_in_time() {
    let site = Site::page(
        "<button onclick=\"say('hit')\">Target button</button><div id=l></div><script>
         let h='';for(let i=0;i<5000;i++)h+='<div style=\"position:absolute;opacity:.5;pointer-events:none;left:'+(i%900)+'px;top:'+(100+i%500)+'px\">layer '+i+'</div>';
         for(let i=0;i<15000;i++)h+='<p><span>row '+i+'</span> <i>x</i></p>';l.innerHTML=h</script>",
    )
    .await;
    let mut session = Session::at(&site.url("/")).await;
    let start = Instant::now();
    let view = session.read().await.expect("a view");
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert!(view.truncated.text);
    session.click("Target button").await.ok();
    assert!(site.hears("hit").await);
}

#[tokio::test]
async fn h8_lone_surrogates_end_nothing() {
    let site = Site::page(
        "<p id=p></p><button id=b onclick=\"say('fine')\"></button><button onclick=\"alert('bad \\ud800 one')\">Ask</button><script>
         p.textContent='left\\ud800right \\u{1F600}';document.title='t\\udfffx';b.textContent='Fine button\\ud83d'</script>",
    )
    .await;
    let mut session = Session::at(&site.url("/")).await;
    assert!(session.view.text.contains("left\u{FFFD}right 😀"), "{:?}", session.view.text);
    assert_eq!(session.view.page.title, "t\u{FFFD}x");
    session.click("Fine button\u{FFFD}").await.ok();
    assert!(site.hears("fine").await);
    session.click("Ask").await.ok();
    assert_eq!(session.view.dialogs[0].message, "bad \u{FFFD} one");
}

#[tokio::test]
async fn a_crashed_page_is_told_at_once_and_can_be_left() {
    let site = Site::page("<p>fine</p>").await;
    let mut session = Session::at(&site.url("/")).await;
    let start = Instant::now();
    match session.navigate("http://a.localhost:1/").await {
        Ended::Failed(_) => {}
        other => panic!("{other:?}"),
    }
    let crashed = formation_browser::Effect::Navigate { url: "chrome://crash".parse().expect("a URL") };
    // The tool refuses such an address; the driver is told to take it here to have a crash at hand.
    let ended = session.run(crashed).await;
    assert!(
        matches!(ended, Ended::NotDispatched(_) | Ended::Failed(_) | Ended::Uncertain(_) | Ended::InputDispatched(_)),
        "{ended:?}"
    );
    assert!(start.elapsed() < Duration::from_secs(10));
    session.navigate(&site.url("/")).await.ok();
    assert!(session.view.text.contains("fine"));
}

#[tokio::test]
async fn a_killed_browser_is_lost_at_once() {
    let site = Site::page("<button>One</button>").await;
    let mut session = Session::at(&site.url("/")).await;
    let watch = session.live.watch();
    assert!(!watch.is_lost());
    session.browser.kill().await;
    tokio::time::timeout(Duration::from_secs(5), watch.lost()).await.expect("it is noticed");
    assert!(session.live.is_lost());
    assert_eq!(session.read().await.expect_err("gone").reason, Reason::SessionLost);
    assert_eq!(session.click("One").await.not_dispatched(), Reason::SessionLost);
}

#[tokio::test]
async fn g21_a_view_that_comes_late_is_waited_for() {
    let site = Site::start([
        ("/", Reply::html("<main id=m>Start</main><button onclick=\"fetch('/data').then(()=>{history.pushState(1,'','/orders');m.textContent='Orders view'})\">Show orders</button>")),
        ("/data", Reply::new(200, b"x".to_vec()).after(Duration::from_millis(600))),
    ])
    .await;
    let mut session = Session::at(&site.url("/")).await;
    let view = session.click("Show orders").await.ok();
    assert!(view.text.contains("Orders view"), "{view:?}");
    assert_eq!(view.page.url, site.url("/orders"));
}
