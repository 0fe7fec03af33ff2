// Access to a page's tree that the page can't bend, and strings that are safe to send.
//
// The isolated world has its own prototypes, but named properties of forms and documents are the engine's and show up here
// too: `<form><input name=parentNode>` shadows `form.parentNode`. So everything generic goes through the prototypes' own
// getters. Only nodes of known, harmless classes (inputs, selects, options …) are asked directly.

const bound = (f) => Function.prototype.call.bind(f);
const getter = (proto, name) => bound(Object.getOwnPropertyDescriptor(proto, name).get);
const method = (proto, name) => bound(proto[name]);

const nodeType = getter(Node.prototype, 'nodeType');
const parentNode = getter(Node.prototype, 'parentNode');
const firstChild = getter(Node.prototype, 'firstChild');
const nextSibling = getter(Node.prototype, 'nextSibling');
const isConnected = getter(Node.prototype, 'isConnected');
const ownerDocument = getter(Node.prototype, 'ownerDocument');
const getRootNode = method(Node.prototype, 'getRootNode');
const localName = getter(Element.prototype, 'localName');
const shadowRootOf = getter(Element.prototype, 'shadowRoot');
const slotOfElement = getter(Element.prototype, 'assignedSlot');
const slotOfText = getter(Text.prototype, 'assignedSlot');
const attribute = method(Element.prototype, 'getAttribute');
const has = method(Element.prototype, 'hasAttribute');
const hasAttributes = method(Element.prototype, 'hasAttributes');
const matches = method(Element.prototype, 'matches');
const box = method(Element.prototype, 'getBoundingClientRect');
const clientRects = method(Element.prototype, 'getClientRects');
const checkVisibility = method(Element.prototype, 'checkVisibility');
const scrollTopOf = getter(Element.prototype, 'scrollTop');
const scrollLeftOf = getter(Element.prototype, 'scrollLeft');
const scrollIntoView = method(Element.prototype, 'scrollIntoView');
const innerTextOf = getter(HTMLElement.prototype, 'innerText');
const editableOf = getter(HTMLElement.prototype, 'isContentEditable');
const focusHtml = method(HTMLElement.prototype, 'focus');
const focusSvg = method(SVGElement.prototype, 'focus');
const documentTitle = getter(Document.prototype, 'title');
const documentElement = getter(Document.prototype, 'documentElement');
const readyState = getter(Document.prototype, 'readyState');
const visibilityState = getter(Document.prototype, 'visibilityState');
const contentType = getter(Document.prototype, 'contentType');
const designMode = getter(Document.prototype, 'designMode');
const bodyOf = getter(Document.prototype, 'body');
const hasFocus = method(Document.prototype, 'hasFocus');
const activeInDocument = getter(Document.prototype, 'activeElement');
const activeInShadow = getter(ShadowRoot.prototype, 'activeElement');
const fromPointInDocument = method(Document.prototype, 'elementFromPoint');
const fromPointInShadow = method(ShadowRoot.prototype, 'elementFromPoint');
const byIdInDocument = method(Document.prototype, 'getElementById');
const byIdInFragment = method(DocumentFragment.prototype, 'getElementById');
const querySelector = method(Document.prototype, 'querySelector');
const everyInDocument = method(Document.prototype, 'querySelectorAll');
const everyInFragment = method(DocumentFragment.prototype, 'querySelectorAll');
const createElement = method(Document.prototype, 'createElement');
const styleSheetsOf = getter(Document.prototype, 'styleSheets');

const isEditable = (node) => node instanceof HTMLElement && editableOf(node);

const ELEMENT = 1;
const TEXT = 3;
const FRAGMENT = 11;

/// Parent in the flat tree: slot, host, or plain parent; null above the root element.
function flatParent(node) {
  const type = nodeType(node);
  const slot = type === ELEMENT ? slotOfElement(node) : type === TEXT ? slotOfText(node) : null;
  if (slot) return slot;
  const parent = parentNode(node);
  if (!parent) return null;
  const above = nodeType(parent);
  return above === ELEMENT ? parent : above === FRAGMENT ? (parent.host ?? null) : null;
}

function isWithin(node, ancestor) {
  for (let at = node; at; at = flatParent(at)) if (at === ancestor) return true;
  return false;
}

/// Calls `f` with each child in flat-tree order: an open shadow root in place of light children, assigned nodes in a slot.
function eachChild(element, f) {
  if (localName(element) === 'slot' && element instanceof HTMLSlotElement) {
    const assigned = element.assignedNodes();
    if (assigned.length) {
      for (const node of assigned) f(node);
      return;
    }
  }
  for (let node = firstChild(shadowRootOf(element) ?? element); node; node = nextSibling(node)) f(node);
}

function byId(root, id) {
  return root instanceof Document ? byIdInDocument(root, id) : root instanceof DocumentFragment ? byIdInFragment(root, id) : null;
}

/// The document and all open shadow roots in it.
function allRoots() {
  const roots = [document];
  // Grows while it runs: roots hold hosts.
  for (const root of roots) {
    for (const element of root === document ? everyInDocument(root, '*') : everyInFragment(root, '*')) {
      const inner = shadowRootOf(element);
      if (inner) roots.push(inner);
    }
  }
  return roots;
}

/// The topmost element at a point, through open shadow roots.
function deepFromPoint(x, y) {
  let found = fromPointInDocument(document, x, y);
  while (found) {
    const root = shadowRootOf(found);
    const inner = root && fromPointInShadow(root, x, y);
    if (!inner || inner === found) break;
    found = inner;
  }
  return found;
}

/// The focused element of this document, through open shadow roots; null for none.
function deepActive() {
  let found = activeInDocument(document);
  while (found) {
    const root = shadowRootOf(found);
    const inner = root && activeInShadow(root);
    if (!inner) break;
    found = inner;
  }
  return found && found !== bodyOf(document) && found !== documentElement(document) ? found : null;
}

/// The modal dialog that makes everything outside it inert.
function openModal() {
  return querySelector(document, 'dialog:modal');
}

/// Rectangles worth aiming at: its own, or, where it makes none (`display: contents`, only floats inside), its children's.
function boxesOf(element, depth = 0) {
  const own = Array.from(clientRects(element)).filter((rect) => rect.width >= 1 && rect.height >= 1);
  if (own.length || depth > 2) return own;
  const inner = [];
  eachChild(element, (node) => {
    if (nodeType(node) === ELEMENT && inner.length < 4) inner.push(...boxesOf(node, depth + 1));
  });
  return inner;
}

// ---- strings

/// UTF-8 length of a well-formed string.
function bytesOf(text) {
  let bytes = text.length;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    // A surrogate pair is two units and four bytes.
    if (unit > 0x7f) bytes += unit > 0x7ff && (unit < 0xd800 || unit > 0xdfff) ? 2 : 1;
  }
  return bytes;
}

/// The index at byte `limit`, moved back to a character boundary.
function indexAtByte(text, limit) {
  if (text.length * 3 <= limit) return text.length;
  let bytes = 0;
  for (let i = 0; i < text.length; ) {
    const code = text.codePointAt(i);
    bytes += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    if (bytes > limit) return i;
    i += code < 0x10000 ? 1 : 2;
  }
  return text.length;
}

/// Well-formed (a lone surrogate would end the connection, a NUL is no text), at most `limit` bytes.
function safe(text, limit) {
  // Cutting units first keeps megabytes out of the way; each unit is at least a byte.
  const whole = String(text).slice(0, limit + 1).toWellFormed().replaceAll('\0', '\ufffd');
  return whole.slice(0, indexAtByte(whole, limit));
}

function oneLine(text) {
  return text.replace(/\s+/g, ' ').trim();
}
