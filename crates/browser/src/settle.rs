//! When a page has come to rest.
//!
//! Rest is what a reader would call it: documents complete, no navigation under way, visible text the same for a while. Animations
//! and network traffic don't count. The wait is bounded; a page that never rests is shown as it is, with `page_changing`.

use std::{sync::Arc, time::Duration};

use formation_core::{failure::Reason, limits};
use tokio::time::Instant;

use crate::{
    evaluate,
    live::{Live, Shown},
    script::{Digest, Op},
    tabs::{Tab, Tabs},
};

/// What a timer with exactly the period asked for may be late by; without it such a page would pass as being at rest.
const SLACK: Duration = Duration::from_millis(30);
/// A page that was seen changing has to keep still at least this long: its next change may be a late one of many.
const AFTER_CHANGE: Duration = Duration::from_millis(250);
/// Least time between two looks at the text.
const POLL: Duration = Duration::from_millis(40);
/// What the first look may take without putting the end of the wait off.
const FIRST_LOOK: Duration = Duration::from_millis(60);
/// How long a child frame may take to answer one.
const CHILD: Duration = Duration::from_millis(400);
/// How often a page on its way elsewhere is asked again.
const RECHECK: Duration = Duration::from_millis(250);
/// How long a page that just opened is given to load something.
const FIRST_DOCUMENT: Duration = Duration::from_secs(3);

/// What has to hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rest {
    /// Not before this.
    pub(crate) floor: Instant,
    /// Text unchanged for this long.
    pub(crate) stable: Duration,
    /// Not after this.
    pub(crate) bound: Instant,
}

/// What is compared between two looks.
#[derive(Debug, PartialEq, Eq)]
struct State {
    target: Arc<str>,
    loader: Arc<str>,
    texts: Vec<String>,
}

/// Waits for rest. `true`: the bound came first.
pub(crate) async fn settle(live: &Live, rest: Rest) -> Result<bool, Reason> {
    let first_document = Instant::now() + FIRST_DOCUMENT;
    let mut stable = rest.stable + SLACK;
    let mut seen: Option<(State, Instant)> = None;
    let mut installed = None;
    // What was seen long before the last stretch before the floor proves nothing; a look takes a moment itself.
    let first_look = rest.floor.checked_sub(stable + FIRST_LOOK).unwrap_or(rest.floor);
    tokio::time::sleep_until(first_look.min(rest.bound)).await;
    loop {
        let shown = live.shown(rest.bound).await;
        let shown = match shown {
            Err(Reason::Timeout) => return Ok(true),
            other => other?,
        };
        if shown.crashed {
            return Err(Reason::PageCrashed);
        }
        if on_its_way(live, &shown, first_document) {
            seen = None;
            if installed.as_ref() != Some(&shown.main.loader) {
                // A document that is still loading gets our side now, so that nothing waits for it afterwards.
                installed = Some(shown.main.loader.clone());
                let _ = state(live, &shown, rest.bound.min(Instant::now() + RECHECK)).await;
                continue;
            }
            if Instant::now() >= rest.bound {
                return Ok(true);
            }
            let changed =
                |tabs: &mut Tabs| (!tabs.current().is_some_and(|tab| moving(tab, tabs.remarks.opened.as_ref()))).then_some(());
            let _ = live.pump.when(rest.bound.min(Instant::now() + RECHECK), changed).await;
            continue;
        }
        let looked = Instant::now();
        match state(live, &shown, rest.bound).await {
            Some(state) => match &seen {
                Some((before, since)) if *before == state => {
                    if looked >= rest.floor && looked - *since >= stable {
                        return Ok(false);
                    }
                }
                // It may have been taken at any moment until now.
                Some(_) => {
                    stable = stable.max(AFTER_CHANGE);
                    seen = Some((state, Instant::now()));
                }
                // Taken between `looked` and now; the slack covers what a quick look leaves open.
                None => seen = Some((state, looked.max(Instant::now() - SLACK))),
            },
            None => seen = None,
        }
        let now = Instant::now();
        if now >= rest.bound {
            return Ok(true);
        }
        // A page that is slow to read is read less often; one that may be at rest is looked at the moment it is.
        let mut next = now + POLL.max(now - looked);
        if let Some((_, since)) = &seen {
            let done = (*since + stable).max(rest.floor);
            if done > now && done < next + POLL {
                next = done;
            }
        }
        tokio::time::sleep_until(next.min(rest.bound)).await;
    }
}

/// Whether the page shown is about to be another one.
fn on_its_way(live: &Live, shown: &Shown, first_document: Instant) -> bool {
    let tabs = live.pump.tabs();
    let opened = tabs.remarks.opened.as_ref().filter(|_| Instant::now() < first_document);
    tabs.tab(&shown.target).is_some_and(|tab| moving(tab, opened))
}

fn moving(tab: &Tab, opened: Option<&Arc<str>>) -> bool {
    let is_new = opened == Some(&tab.target);
    tab.main().is_some_and(|main| main.loading || main.scheduled || (is_new && is_blank(&main.url)))
}

/// Texts of all frames, unless a document isn't complete.
async fn state(live: &Live, shown: &Shown, bound: Instant) -> Option<State> {
    let frames = {
        let tabs = live.pump.tabs();
        let tab = tabs.tab(&shown.target)?;
        let mut frames = tab.in_order();
        frames.retain(|(frame, depth)| *depth <= limits::FRAME_DEPTH && !frame.crashed && (frame.world.is_some() || *depth == 0));
        frames.truncate(limits::FRAMES + 1);
        frames
    };
    let mut asked = Vec::with_capacity(frames.len());
    for (frame, _) in &frames {
        asked.push(evaluate::ask(&live.pump, frame, &Op::Digest, bound).await);
    }
    let child_bound = bound.min(Instant::now() + CHILD);
    let mut texts = Vec::with_capacity(frames.len());
    for ((frame, depth), asked) in frames.iter().zip(asked) {
        let until = if *depth == 0 { bound } else { child_bound };
        match evaluate::answer::<Digest>(&live.pump, frame, asked, &Op::Digest, until).await {
            Ok(digest) if digest.complete || *depth > 0 => texts.push(digest.hash),
            Ok(_) => return None,
            Err(_) if *depth == 0 => return None,
            Err(_) => texts.push(String::new()),
        }
    }
    let loader = frames.first()?.0.loader.clone();
    Some(State { target: shown.target.clone(), loader, texts })
}

fn is_blank(url: &str) -> bool {
    url.is_empty() || url == "about:blank"
}
