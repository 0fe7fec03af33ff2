// One look at this frame: a window of its text and its controls, and the table of refs that goes with them.

const TEXT_BYTES = 12_000;
const CONTROLS = 200;
const VALUE_BYTES = 200;
const LINES_BYTES = 2_000;
const OPTIONS = 50;
/// What values and options of one frame may take together.
const EXTRA_BYTES = 40_000;
const SECRET_FIELDS = /\b(new-password|current-password|one-time-code)\b/i;

/// The last look: its nonce, its text and its refs. A newer one replaces it whole.
let look = { nonce: '', first: 0, text: '', entries: [] };

function read({ nonce, first_index: first, text_offset: offset, find }) {
  const walk = new Walk(true).run();
  const wanted = find === undefined ? null : find.toLowerCase();
  const lines = walk.sink.done;
  const text = (wanted === null ? lines : lines.filter((line) => line.toLowerCase().includes(wanted))).join('\n').toWellFormed();
  const { chosen, more } = choose(walk.withLabelled(), wanted);
  look = { nonce, first, text, entries: chosen.map(({ node, role, name }) => ({ node, print: fingerprint(node, role, name) })) };
  const focus = focused();
  const budget = { left: EXTRA_BYTES, cut: false };
  const controls = chosen.map((candidate, i) => describe(candidate, first + i, focus, budget));
  return {
    document: documentId,
    url: address(),
    title: safe(oneLine(documentTitle(document)), 300),
    pdf: contentType(document) === 'application/pdf',
    window: windowOf(text, offset),
    controls,
    moreControls: more || budget.cut,
  };
}

/// Another window of the same look's text; of none, when the look is gone.
function textWindow({ nonce, text_offset: offset }) {
  return nonce === look.nonce ? windowOf(look.text, offset) : { from: 0, text: '', total: 0 };
}

function windowOf(text, offset) {
  const start = indexAtByte(text, offset);
  const rest = text.slice(start, start + TEXT_BYTES);
  return { from: bytesOf(text.slice(0, start)), text: safe(rest, TEXT_BYTES), total: bytesOf(text) };
}

/// Those in view first, each group in document order, cut to the limit; names are only worked out for what stays.
function choose(candidates, wanted) {
  const named = (candidate) => {
    candidate.role = roleOf(candidate.node, candidate.tag);
    candidate.name = nameOf(candidate.node, candidate.tag, candidate.role);
    return candidate;
  };
  const ranked = [...candidates.filter((c) => c.inView), ...candidates.filter((c) => !c.inView)];
  if (wanted === null) return { chosen: ranked.slice(0, CONTROLS).map(named), more: ranked.length > CONTROLS };
  const found = ranked.map(named).filter((c) => c.name.toLowerCase().includes(wanted));
  return { chosen: found.slice(0, CONTROLS), more: found.length > CONTROLS };
}

/// Without user-info: a password in the address is nobody's to read.
function address() {
  try {
    const url = new URL(location.href);
    url.username = '';
    url.password = '';
    return safe(url.href, 2_048);
  } catch {
    return safe(location.href, 2_048);
  }
}

/// The focused element, where this frame has the focus. The main frame keeps its word even if the window lost it.
function focused() {
  return window === window.top || hasFocus(document) ? deepActive() : null;
}

function describe({ node, tag, role, name, disabled, inView }, index, focus, budget) {
  const control = { index, role, name, inView };
  const value = valueOf(node, role);
  if (value) {
    const kept = safe(value.text, Math.min(value.limit, Math.max(budget.left, 0)));
    budget.left -= kept.length;
    budget.cut ||= kept === '' && value.text !== '';
    control.value = kept;
  }
  const options = optionsOf(node, tag);
  if (options.length) {
    control.options = options.filter((label) => (budget.left -= label.length) > 0);
    budget.cut ||= control.options.length < options.length;
  }
  const checked = checkedOf(node, role);
  if (checked !== null) control.checked = checked;
  const flag = (key, on) => {
    if (on) control[key] = true;
  };
  flag('selected', attribute(node, 'aria-selected') === 'true' || attribute(node, 'aria-current') === 'page');
  flag('expanded', isExpanded(node, tag));
  flag('disabled', disabled || matches(node, ':disabled'));
  flag('readonly', isReadonly(node));
  flag('required', node.required === true || attribute(node, 'aria-required') === 'true');
  flag('invalid', /^(true|grammar|spelling)$/.test(attribute(node, 'aria-invalid') ?? '') || matches(node, ':user-invalid'));
  flag('focused', focus !== null && focus === node);
  return control;
}

/// Fields whose value never leaves the page.
function isSecret(node) {
  return node instanceof HTMLInputElement && (node.type === 'password' || SECRET_FIELDS.test(attribute(node, 'autocomplete') ?? '')
    || getComputedStyle(node).webkitTextSecurity !== 'none');
}

function valueOf(node, role) {
  if (node instanceof HTMLInputElement) {
    if (isSecret(node) || /^(checkbox|radio|submit|reset|button|image|file|hidden)$/.test(node.type)) return null;
    return { text: node.value, limit: VALUE_BYTES };
  }
  if (node instanceof HTMLTextAreaElement) {
    return SECRET_FIELDS.test(attribute(node, 'autocomplete') ?? '') ? null : { text: node.value, limit: LINES_BYTES };
  }
  if (node instanceof HTMLSelectElement) {
    return { text: Array.from(node.selectedOptions).slice(0, OPTIONS).map(labelOf).join(', '), limit: VALUE_BYTES };
  }
  if (isEditingHost(node)) return { text: regionText(node), limit: LINES_BYTES };
  if (role === 'slider' || role === 'spinbutton' || role === 'scrollbar') {
    const text = attribute(node, 'aria-valuetext') ?? attribute(node, 'aria-valuenow');
    return text === null ? null : { text, limit: VALUE_BYTES };
  }
  return null;
}

/// As rendered, without the blank lines between blocks.
function regionText(node) {
  return innerTextOf(node).replaceAll('\u00a0', ' ').replace(/\n{2,}/g, '\n').replace(/^\n|\n$/g, '');
}

function labelOf(option) {
  return oneLine(option.label);
}

function optionsOf(node, tag) {
  if (tag !== 'select' || !(node instanceof HTMLSelectElement)) return [];
  return Array.from(node.options).slice(0, OPTIONS).map((option) => safe(labelOf(option), NAME_BYTES));
}

function checkedOf(node, role) {
  if (node instanceof HTMLInputElement && (node.type === 'checkbox' || node.type === 'radio')) return node.checked;
  const stated = attribute(node, 'aria-checked') ?? (role === 'button' ? attribute(node, 'aria-pressed') : null);
  if (stated !== null) return stated === 'true';
  return role === 'checkbox' || role === 'radio' || role === 'switch' || role === 'menuitemcheckbox' || role === 'menuitemradio' ? false : null;
}

function isExpanded(node, tag) {
  if (tag === 'summary') return parentNode(node) instanceof HTMLDetailsElement && parentNode(node).open;
  return attribute(node, 'aria-expanded') === 'true';
}

function isDisabled(node) {
  if (matches(node, ':disabled')) return true;
  for (let at = node; at; at = flatParent(at)) {
    if (nodeType(at) === ELEMENT && (attribute(at, 'aria-disabled') === 'true' || has(at, 'inert'))) return true;
  }
  const modal = openModal();
  return modal !== null && !isWithin(node, modal);
}

function isReadonly(node) {
  if (attribute(node, 'aria-readonly') === 'true') return true;
  return (node instanceof HTMLInputElement || node instanceof HTMLTextAreaElement) && node.readOnly
    && !/^(checkbox|radio|range|color|file|submit|reset|button|image)$/.test(node.type);
}

/// What makes a control the same control: a button that turned from "Save draft" into "Pay" in place is another one.
function fingerprint(node, role, name) {
  const form = node.form ?? null;
  return JSON.stringify([
    localName(node),
    role,
    name,
    node instanceof HTMLInputElement || node instanceof HTMLButtonElement ? node.type : '',
    form instanceof HTMLFormElement ? [attribute(form, 'action'), attribute(form, 'method'), attribute(form, 'id')] : null,
    attribute(node, 'formaction'),
    attribute(node, 'href'),
    attribute(node, 'onclick'),
  ]);
}

/// What is known of the tree since it was last looked at.
let calm = null;
/// Stands for the text of a tree that hasn't changed since the first question.
const UNTOUCHED = '0';

/// The visible text boiled down; carets, values and styles don't count.
///
/// The settle rule asks many times in a row and only compares. So the first answer is no hash at all, and a walk is made only
/// when the tree has changed, or the page's size has, which is how a late style sheet shows.
function digest() {
  const root = documentElement(document);
  const size = `${root?.scrollWidth}x${root?.scrollHeight}x${styleSheetsOf(document).length}`;
  if (calm && (calm.size !== size || calm.observer.takeRecords().length > 0)) calm.changed = true;
  if (!calm || calm.changed) {
    calm?.observer.disconnect();
    const hash = calm ? hashOf(new Walk(false).run().sink.done) : UNTOUCHED;
    calm = { hash, size, changed: false, observer: watchTree() };
  }
  return {
    hash: calm.hash,
    complete: readyState(document) === 'complete',
    visible: visibilityState(document) === 'visible',
  };
}

/// Notes the first change and stops: a page that changes all the time pays for one record, not for all.
function watchTree() {
  const observer = new MutationObserver(() => {
    observer.disconnect();
    if (calm?.observer === observer) calm.changed = true;
  });
  const all = { subtree: true, childList: true, characterData: true, attributes: true };
  for (const root of allRoots()) observer.observe(root, all);
  return observer;
}

function hashOf(lines) {
  let [high, low] = [0xdeadbeef, 0x41c6ce57];
  for (const line of lines) {
    for (let i = 0; i < line.length; i++) {
      const unit = line.charCodeAt(i);
      high = Math.imul(high ^ unit, 0x9e3779b1);
      low = Math.imul(low ^ unit, 0x5f356495);
    }
    high = Math.imul(high ^ 10, 0x9e3779b1);
  }
  return (high >>> 0).toString(16).padStart(8, '0') + (low >>> 0).toString(16).padStart(8, '0');
}
