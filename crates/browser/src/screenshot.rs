//! A picture of the viewport: JPEG of 1280×720 CSS pixels, 2 MiB at most.

use base64::{Engine, engine::general_purpose::STANDARD};
use formation_core::{
    failure::{BrowserStage, Phase, Reason, Refused},
    limits::{SCREENSHOT_BYTES, VIEWPORT},
    view::{Capture, Dialog, Note, Page},
};
use tokio::time::Instant;

use crate::{
    aim,
    cdp::{self, CaptureJpeg, Clip},
    evaluate, jpeg,
    live::{Live, Shown},
    look::{self, URL_BYTES},
    pump::clipped,
};

/// Tried in turn until the picture is small enough.
const QUALITIES: [u8; 3] = [70, 50, 35];
/// Longest title of a page (browser.md 1.4).
const TITLE_BYTES: usize = 300;

/// A picture with what is said beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shot {
    /// The page.
    pub page: Page,
    /// Dialogs answered since the previous observation.
    pub dialogs: Vec<Dialog>,
    /// Fixed remarks.
    pub notes: Vec<Note>,
    /// URL of a page that opened and is the one shown.
    pub opened_page: Option<String>,
    /// URL of a page that closed.
    pub closed_page: Option<String>,
    /// The picture.
    pub capture: Capture,
}

/// Photographs the page shown, after bringing it to the front. Refs stay as they are.
pub async fn screenshot(live: &mut Live, deadline: Instant) -> Result<Shot, Refused> {
    let refused = |phase: Phase| move |reason: Reason| Refused::new(BrowserStage::Screenshot, phase, reason);
    if live.is_lost() {
        return Err(Refused::new(BrowserStage::BrowserConnection, Phase::Connect, Reason::SessionLost));
    }
    let shown = live.shown(deadline).await.map_err(refused(Phase::Attach))?;
    if shown.crashed {
        return Err(refused(Phase::Capture)(Reason::PageCrashed));
    }
    live.may_observe(&shown.main).map_err(refused(Phase::Check))?;
    aim::bring_to_front(live, &shown, deadline).await.map_err(refused(Phase::Check))?;
    let capture = capture(live, &shown, deadline).await.map_err(|reason| refused(Phase::Capture)(look::wedged(live, reason)))?;
    // What is in the picture must be what was allowed: a page can move while it is taken.
    let after = live.shown(deadline).await.map_err(refused(Phase::Attach))?;
    live.may_observe(&after.main).map_err(refused(Phase::Check))?;
    if after.target != shown.target {
        return Err(refused(Phase::Capture)(Reason::DocumentChanged));
    }
    let page = page(live, &after, deadline).await;
    let (remarks, opened_page) = look::take_remarks(live);
    Ok(Shot { page, dialogs: remarks.dialogs, notes: remarks.notes, opened_page, closed_page: remarks.closed, capture })
}

async fn capture(live: &Live, shown: &Shown, deadline: Instant) -> Result<Capture, Reason> {
    let mut clip = None;
    for quality in QUALITIES {
        let mut jpeg = jpeg(live, shown, quality, clip, deadline).await?;
        let mut size = jpeg::size(&jpeg).ok_or(Reason::ProtocolError)?;
        if size != VIEWPORT && clip.is_none() {
            // Pixels of another size than CSS pixels: scaled, with the clip in document coordinates.
            clip = Some(viewport_clip(live, shown, size, deadline).await?);
            jpeg = self::jpeg(live, shown, quality, clip, deadline).await?;
            size = jpeg::size(&jpeg).ok_or(Reason::ProtocolError)?;
        }
        if size.0 > VIEWPORT.0 || size.1 > VIEWPORT.1 {
            return Err(Reason::ViewportChanged);
        }
        if jpeg.len() <= SCREENSHOT_BYTES {
            return Ok(Capture { jpeg, width: size.0, height: size.1 });
        }
    }
    Err(Reason::ScreenshotTooLarge)
}

async fn jpeg(live: &Live, shown: &Shown, quality: u8, clip: Option<Clip>, deadline: Instant) -> Result<Vec<u8>, Reason> {
    let command = CaptureJpeg { format: "jpeg", quality, clip };
    let until = live.command_until(deadline);
    let captured = live.pump.cdp.call(Some(&shown.session), &command, until).await.map_err(cdp::CdpError::reason)?;
    STANDARD.decode(captured.data).map_err(|_| Reason::ProtocolError)
}

async fn viewport_clip(live: &Live, shown: &Shown, size: (u32, u32), deadline: Instant) -> Result<Clip, Reason> {
    let until = live.command_until(deadline);
    let metrics = live.pump.cdp.call(Some(&shown.session), &cdp::LayoutMetrics {}, until).await.map_err(cdp::CdpError::reason)?;
    let (width, height) = (f64::from(VIEWPORT.0), f64::from(VIEWPORT.1));
    let scale = (width / f64::from(size.0)).min(height / f64::from(size.1)).min(1.0);
    let viewport = metrics.css_visual_viewport;
    Ok(Clip { x: viewport.page_x, y: viewport.page_y, width, height, scale })
}

async fn page(live: &Live, shown: &Shown, deadline: Instant) -> Page {
    let until = live.command_until(deadline);
    let title = evaluate::title(&live.pump, &shown.main, until).await.unwrap_or_default();
    let mut url = url::Url::parse(&shown.main.url).ok();
    if let Some(url) = &mut url {
        // Neither fails where there is a host; where there is none there are no credentials.
        let _ = url.set_username("");
        let _ = url.set_password(None);
    }
    Page {
        url: clipped(url.as_ref().map_or(&shown.main.url, |url| url.as_str()), URL_BYTES),
        title: clipped(&title, TITLE_BYTES),
        http_status: live.pump.tabs().status(&shown.main.loader),
    }
}
