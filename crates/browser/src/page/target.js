// From a ref to a place to press: is it still the same thing, can it be seen, and what does a press at a point meet.

const OWN_LABEL = /^(checkbox|radio)$/;
const STILL_TRIES = 5;
const FRAME_MS = 100;
const POINTS = 5;

/// The entry of a ref, or why there is none.
function resolve(reference) {
  const [, nonce, index] = /^(.+)\.(\d{1,9})$/s.exec(reference) ?? [];
  const entry = nonce === look.nonce ? look.entries[Number(index) - look.first] : undefined;
  if (!entry) return { standing: 'unknown' };
  const { node } = entry;
  if (!isConnected(node) || ownerDocument(node) !== document) return { standing: 'detached' };
  const tag = localName(node);
  const role = roleOf(node, tag);
  if (fingerprint(node, role, nameOf(node, tag, role)) !== entry.print) return { standing: 'changed' };
  return { standing: 'found', node };
}

function locate({ ref }) {
  const { standing, node } = resolve(ref);
  if (!node) return { standing };
  return {
    standing,
    visible: shownBy(node).length > 0,
    disabled: isDisabled(node),
    readonly: isReadonly(node),
    kind: kindOf(node),
    file: node instanceof HTMLInputElement && node.type === 'file',
  };
}

function kindOf(node) {
  if (node instanceof HTMLInputElement) {
    if (/^(date|time|month|week|datetime-local|range|color)$/.test(node.type)) return 'assign';
    return /^(checkbox|radio|file|submit|reset|button|image|hidden)$/.test(node.type) ? 'other' : 'line';
  }
  if (node instanceof HTMLTextAreaElement) return 'lines';
  if (node instanceof HTMLSelectElement) return 'select';
  return isEditingHost(node) ? 'region' : 'other';
}

function isShown(element) {
  return checkVisibility(element, { visibilityProperty: true, contentVisibilityAuto: false }) && boxesOf(element).some((rect) => rect.width * rect.height > 1);
}

/// The elements that show a target: itself, and for a checkbox or radio its labels.
function shownBy(node) {
  const shown = isShown(node) ? [node] : [];
  if (node instanceof HTMLInputElement && OWN_LABEL.test(node.type)) {
    for (const label of Array.from(node.labels ?? [])) if (isShown(label)) shown.push(label);
  }
  return shown;
}

// ---- hit test

const isActive = (element) => matches(element, 'a[href],button,input,select,textarea,summary,label');

/// What a press at a point would do to the target: 'direct', 'nested' (something active inside it takes the press), or a cover.
function strike(node, x, y) {
  const met = deepFromPoint(x, y);
  if (!met) return 'nothing';
  let nested = false;
  let label = null;
  let between = false;
  for (let at = met; at; at = flatParent(at)) {
    if (at === node) return nested ? 'nested' : 'direct';
    if (at instanceof HTMLLabelElement && at.control === node && !between) label = at;
    if (nodeType(at) === ELEMENT && isActive(at)) {
      nested = true;
      // A link inside the label would be followed, not the label.
      if (!(at instanceof HTMLLabelElement)) between = true;
    }
  }
  if (label) return 'direct';
  // A label's own control passes the press on to the label's handlers.
  if (node instanceof HTMLLabelElement && node.control === met) return 'direct';
  if (isWithin(node, met)) return 'ancestor';
  if (localName(met) === 'iframe' || localName(met) === 'frame') return 'frame';
  return checkVisibility(met, { opacityProperty: true }) ? 'element' : 'invisible';
}

const isHit = (met) => met === 'direct' || met === 'nested';

function hit({ ref, x, y }) {
  const { standing, node } = resolve(ref);
  if (!node) return { standing, hit: false };
  const met = strike(node, x, y);
  return isHit(met) ? { standing, hit: true } : { standing, hit: false, cover: met };
}

// ---- aim

/// Resolves at the next animation frame, or after a while in a page that makes none.
function nextFrame() {
  return new Promise((done) => {
    const timer = setTimeout(done, FRAME_MS);
    requestAnimationFrame(() => {
      clearTimeout(timer);
      done();
    });
  });
}

const sameBox = (a, b) => a.x === b.x && a.y === b.y && a.width === b.width && a.height === b.height;

/// Waits until two frames in a row show it in the same place.
async function still(element) {
  let last = box(element);
  for (let i = 0; i < STILL_TRIES; i++) {
    await nextFrame();
    const now = box(element);
    if (sameBox(last, now)) return;
    last = now;
  }
}

/// The part of its bounding box that no scroller, frame or viewport cuts off, in this frame's viewport. Only the browser knows it
/// across site boundaries.
function visiblePart(element) {
  const viewport = { left: 0, top: 0, right: innerWidth, bottom: innerHeight };
  return new Promise((done) => {
    const timer = setTimeout(() => {
      observer.disconnect();
      done(viewport);
    }, FRAME_MS * 3);
    const observer = new IntersectionObserver(([entry]) => {
      clearTimeout(timer);
      observer.disconnect();
      done(entry.isIntersecting ? entry.intersectionRect : { left: 0, top: 0, right: 0, bottom: 0 });
    });
    observer.observe(element);
  });
}

function meet(rect, part) {
  const left = Math.max(rect.left, part.left, 0);
  const top = Math.max(rect.top, part.top, 0);
  const right = Math.min(rect.right, part.right, innerWidth);
  const bottom = Math.min(rect.bottom, part.bottom, innerHeight);
  return right - left >= 1 && bottom - top >= 1 ? { left, top, right, bottom } : null;
}

/// Boxes of the element as far as they can be seen. A target without a box of its own is seen through its children, which the
/// observer of the target doesn't measure.
async function visibleBoxes(element) {
  const own = box(element);
  const part = own.width >= 1 && own.height >= 1 ? await visiblePart(element) : { left: 0, top: 0, right: innerWidth, bottom: innerHeight };
  return boxesOf(element).map((rect) => meet(rect, part)).filter(Boolean);
}

/// Centre first, then four points around it.
function* pointsIn({ left, top, right, bottom }) {
  for (const [x, y] of [[0.5, 0.5], [0.25, 0.25], [0.75, 0.75], [0.25, 0.75], [0.75, 0.25]]) {
    yield { x: left + (right - left) * x, y: top + (bottom - top) * y };
  }
}

const scrollTo = (element, block) => scrollIntoView(element, { behavior: 'instant', block, inline: block === 'center' ? 'center' : 'nearest' });

async function aim({ ref }) {
  const first = resolve(ref);
  if (!first.node) return { standing: first.standing };
  const shown = shownBy(first.node);
  const facts = { standing: 'found', visible: shown.length > 0, disabled: isDisabled(first.node), points: [] };
  if (!facts.visible) return facts;
  for (const element of shown) {
    // Alternate alignments bring it out from under a bar that sticks to an edge, once, before the one press.
    for (const block of [null, 'center', 'end', 'start']) {
      if (block) scrollTo(element, block);
      await still(element);
      const boxes = await visibleBoxes(element);
      // Time has passed, and scrolling may have told the page something.
      const again = resolve(ref);
      if (!again.node) return { standing: again.standing };
      const found = pointsOn(again.node, boxes, element, facts);
      if (found.length) return { ...facts, points: found };
    }
  }
  return facts;
}

function pointsOn(node, boxes, element, facts) {
  const direct = [];
  const nested = [];
  for (const rect of boxes.slice(0, 3)) {
    for (const point of pointsIn(rect)) {
      const met = strike(node, point.x, point.y);
      if (met === 'direct') direct.push(point);
      else if (met === 'nested') nested.push(point);
      else facts.cover ??= met;
    }
  }
  return [...direct, ...nested].slice(0, POINTS);
}

// ---- frames

const isPlain = (value) => value === '' || value === 'none' || value === '1';

/// Only moved, neither scaled nor turned: a point inside a frame then has one sure place outside.
function isMovedOnly(style) {
  if (!isPlain(style.scale) || !isPlain(style.rotate) || !isPlain(style.zoom) || !isPlain(style.perspective)) return false;
  return style.transform === 'none' || /^matrix\(1, 0, 0, 1, /.test(style.transform);
}

function through(element, x, y) {
  const rect = box(element);
  const style = getComputedStyle(element);
  let sure = Math.abs(rect.width - element.offsetWidth) < 1 && Math.abs(rect.height - element.offsetHeight) < 1;
  for (let at = element; at && sure; at = flatParent(at)) sure = isMovedOnly(getComputedStyle(at));
  const point = {
    x: rect.left + element.clientLeft + parseFloat(style.paddingLeft) + x,
    y: rect.top + element.clientTop + parseFloat(style.paddingTop) + y,
  };
  const met = deepFromPoint(point.x, point.y);
  if (met === element) return { sure, ...point, hit: true };
  const cover = !met ? 'nothing' : isWithin(element, met) ? 'ancestor' : localName(met) === 'iframe' ? 'frame' : checkVisibility(met, { opacityProperty: true }) ? 'element' : 'invisible';
  return { sure, ...point, hit: false, cover };
}
