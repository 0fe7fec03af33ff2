//! Which element input may reach: stale and changed refs, covers, and elements that move (cases A and B).

use formation_core::{
    arguments::Action,
    failure::Reason,
    view::{Note, RefNonce},
};

use crate::support::{
    drive::Session,
    site::{Reply, Site, on_release},
};

#[tokio::test]
async fn a12_a_button_that_came_to_mean_something_else_is_not_pressed() {
    let site = Site::page(
        "<button id=b onclick=\"say('draft')\">Save draft</button><button onclick=\"flip()\">Other</button>
         <script>function flip(){b.textContent='Pay';b.onclick=()=>say('paid')}
         addEventListener('keydown',flip)</script>",
    )
    .await;
    let mut session = Session::at(&site.url("/")).await;
    let old = session.reference("Save draft");
    session.click("Other").await.ok();
    // The same nonce again: only the fingerprint stands between the ref and the button.
    let view = session.read().await.expect("a view");
    assert!(view.controls.iter().any(|control| control.name == "Pay"));
    assert_ne!(session.reference("Pay"), old);
    let stale = session.act(Action::Click { reference: old }).await;
    assert_eq!(stale.not_dispatched(), Reason::StaleRef);
    let reference = session.reference("Pay");
    session.press("Pay", "x").await.ok();
    let site_said = site.said();
    assert!(!site_said.contains(&"paid".to_owned()), "{site_said:?} {reference}");
}

#[tokio::test]
async fn a12_a_node_that_changes_after_the_read_is_refused() {
    let button = "<button id=b onclick=\"say('pressed')\">Save draft</button>";
    let site = Site::page(&(button.to_owned() + &on_release("b.textContent='Pay'"))).await;
    let mut session = Session::at(&site.url("/")).await;
    site.release().await;
    assert_eq!(session.click("Save draft").await.not_dispatched(), Reason::TargetChanged);
    assert_eq!(site.said(), Vec::<String>::new());
}

#[tokio::test]
async fn a8_h9_only_refs_of_the_newest_look_on_record_are_good() {
    let site = Site::page("<button onclick=\"say('one')\">One</button>").await;
    let mut session = Session::at(&site.url("/")).await;
    let first = session.reference("One");
    session.read().await.expect("a view");
    let click = |reference: &str| Action::Click { reference: reference.to_owned() };
    assert_eq!(session.act(click(&first)).await.not_dispatched(), Reason::StaleRef);
    for invented in ["", "x", "n2.", "n2.9999", "n2.4294967295", "n2.-1", "n9.0", ".0", "n2.0x"] {
        assert_eq!(session.act(click(invented)).await.not_dispatched(), Reason::StaleRef, "{invented}");
    }
    // Refused actions leave the refs as they are; an empty record leaves none.
    let good = session.reference("One");
    session.refs = None;
    assert_eq!(session.act(click(&good)).await.not_dispatched(), Reason::StaleRef);
    session.refs = Some(RefNonce::stored("n2"));
    session.act(click(&good)).await.ok();
    assert!(site.hears("one").await);
}

#[tokio::test]
async fn a11_refs_of_a_document_that_came_back_are_stale() {
    let site = Site::start([
        ("/", Reply::html("<a href=/two>Go on</a><button onclick=\"say('first')\">First</button>")),
        ("/two", Reply::html("<button onclick=\"history.back()\">Back</button>")),
    ])
    .await;
    let mut session = Session::at(&site.url("/")).await;
    let old = session.reference("First");
    let there = session.click("Go on").await.ok();
    assert!(there.page.url.ends_with("/two"), "{}", there.page.url);
    let back = session.click("Back").await.ok();
    assert_eq!(back.page.url, site.url("/"));
    let refused = session.act(Action::Click { reference: old }).await;
    assert_eq!(refused.not_dispatched(), Reason::StaleRef);
    session.click("First").await.ok();
    assert!(site.hears("first").await);
}

#[tokio::test]
async fn b4_b6_b16_covered_targets_are_refused() {
    let site = Site::start([
        (
            "/",
            Reply::html(
                "<style>body{margin:0}</style>
                 <button style='position:fixed;left:900px;top:500px' onclick=\"say('send')\">Submit order</button>
                 <iframe src=/chat style='position:fixed;left:800px;top:450px;width:300px;height:200px'></iframe>
                 <div onclick=\"say('card')\" style='position:fixed;left:50px;top:50px;width:300px;height:80px'>
                   <a href='#x' style='pointer-events:none'>Remove card</a></div>
                 <button style='position:fixed;left:50px;top:200px' onclick=\"say('menu')\">Account menu</button>
                 <div onclick=\"say('toast')\" style='position:fixed;left:0;top:180px;width:400px;height:80px;opacity:0'></div>
                 <button style='position:fixed;left:50px;top:400px' onclick=\"say('free')\">Free</button>",
            ),
        ),
        ("/chat", Reply::html("chat")),
    ])
    .await;
    let mut session = Session::at(&site.url("/")).await;
    assert_eq!(session.click("Submit order").await.not_dispatched(), Reason::TargetObscured);
    assert_eq!(session.click("Account menu").await.not_dispatched(), Reason::TargetObscured);
    let link = session.view.controls.iter().find(|control| control.role == "link").expect("it is visible").reference.clone();
    assert_eq!(session.act(Action::Click { reference: link }).await.not_dispatched(), Reason::TargetObscured);
    session.click("Free").await.ok();
    assert!(site.hears("free").await);
    assert_eq!(site.said(), ["free"]);
}

#[tokio::test]
async fn b15_a_link_over_two_lines_is_hit_on_the_link() {
    let site = Site::page(
        "<p style='width:240px;font:20px/30px monospace' onclick=\"say('paragraph')\">Words before it
         <a href='#t' onclick=\"say('link');event.stopPropagation()\">read terms</a> after</p>",
    )
    .await;
    let mut session = Session::at(&site.url("/")).await;
    session.click("read terms").await.ok();
    assert!(site.hears("link").await);
    assert_eq!(site.said(), ["link"]);
}

#[tokio::test]
async fn b17_a_press_whose_target_moves_away_is_told_and_not_repeated() {
    let site = Site::page(
        "<div id=l><button id=x onmousedown=\"say('down');l.prepend(y);x.style.marginTop='200px'\" onclick=\"say('click')\">Entry 1</button>
         <button id=y>Entry 2</button></div>",
    )
    .await;
    let mut session = Session::at(&site.url("/")).await;
    let view = session.click("Entry 1").await.ok();
    assert_eq!(view.notes, [Note::TargetDiffered]);
    assert_eq!(site.said(), ["down"]);
}

#[tokio::test]
async fn a_hover_effect_is_waited_for_before_the_press() {
    let site = Site::page(
        "<style>#h:hover i{animation:gone 40ms step-end} @keyframes gone{from{visibility:hidden}}
         #m{display:none;position:fixed;left:0;top:0;width:300px;height:40px;background:#ccc}</style>
         <p style='height:60px'></p><button id=h onclick=\"say('hit')\"><i>Reply</i></button>
         <p><button id=s onmouseenter=\"this.style.marginLeft='200px'\" onclick=\"say('shy')\">Shy</button></p>",
    )
    .await;
    let mut session = Session::at(&site.url("/")).await;
    assert_eq!(session.click("Reply").await.ok().notes, []);
    assert_eq!(session.click("Shy").await.ok().notes, []);
    assert_eq!(site.said(), ["hit", "shy"]);
}

#[tokio::test]
async fn d3_i17_disabled_and_newly_covered_targets_are_refused_at_once() {
    let page = "<button disabled onclick=\"say('off')\">Plain off</button>
         <div aria-disabled=true><button onclick=\"say('off')\">Archive all</button></div>
         <button onclick=\"say('go')\">Checkout</button>
         <div id=m onclick=\"say('modal')\" style='display:none;position:fixed;inset:0;background:#0008'></div>";
    let site = Site::page(&(page.to_owned() + &on_release("m.style.display='block'"))).await;
    let mut session = Session::at(&site.url("/")).await;
    assert_eq!(session.click("Plain off").await.not_dispatched(), Reason::TargetDisabled);
    assert_eq!(session.click("Archive all").await.not_dispatched(), Reason::TargetDisabled);
    site.release().await;
    let start = std::time::Instant::now();
    assert_eq!(session.click("Checkout").await.not_dispatched(), Reason::TargetObscured);
    assert!(start.elapsed().as_secs() < 3);
    assert_eq!(site.said(), Vec::<String>::new());
}
