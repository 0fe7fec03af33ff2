// Focus, selection and values of a target, and what trusted events it really got.

/// Runs `f` on a ref's node; `done` is its answer.
function onNode({ ref }, f) {
  const { standing, node } = resolve(ref);
  return node ? { standing, done: f(node) } : { standing, done: false };
}

function hasTheFocus(node) {
  const active = deepActive();
  return active === node || (active !== null && isEditingHost(node) && isWithin(active, node));
}

const focus = (op) => onNode(op, (node) => {
  // It may scroll: the caret of a field that takes keys should be in view, as after a person's Tab.
  if (node instanceof SVGElement) focusSvg(node);
  else if (node instanceof HTMLElement) focusHtml(node);
  return hasTheFocus(node);
});

const isFocused = (op) => onNode(op, hasTheFocus);

const select = (op) => onNode(op, (node) => {
  if (node instanceof HTMLInputElement || node instanceof HTMLTextAreaElement) {
    node.select();
    // E-mail and number fields have a selection and don't tell of it.
    return hasTheFocus(node) && (node.selectionStart === null || (node.selectionStart === 0 && node.selectionEnd === node.value.length));
  }
  if (!isEditingHost(node)) return false;
  const selection = getSelection();
  if (!selection) return false;
  selection.selectAllChildren(node);
  return hasTheFocus(node) && (selection.rangeCount > 0 || shadowRootOf(node) !== null || getRootNode(node) !== document);
});

// ---- values without keys

function assign({ ref, value }) {
  const { standing, node } = resolve(ref);
  if (!node) return { standing };
  if (node instanceof HTMLSelectElement) return { standing, outcome: chooseOption(node, value) };
  if (node instanceof HTMLInputElement && kindOf(node) === 'assign') return { standing, outcome: setInput(node, value) };
  return { standing, outcome: 'refused' };
}

/// Typing replaces a whole value, so a select of several has the one option afterwards.
function chooseOption(node, wanted) {
  const options = Array.from(node.options);
  const label = oneLine(wanted);
  const labelled = options.filter((option) => labelOf(option) === label);
  const found = labelled.length ? labelled : options.filter((option) => option.value === wanted);
  if (found.length !== 1 || matches(found[0], ':disabled')) return 'refused';
  node.selectedIndex = options.indexOf(found[0]);
  tell(node);
  return node.selectedOptions.length === 1 && found[0].selected ? 'held' : 'differs';
}

function setInput(node, value) {
  const canonical = canonicalOf(node, value);
  if (canonical === null) return 'refused';
  // Set from this world, the page's own accessor on the node, if it keeps one, is not called: its tracker sees a change it
  // didn't make and hears the event.
  node.value = canonical;
  tell(node);
  return node.value === canonical ? 'held' : 'differs';
}

/// The value as the field would keep it, or null where it would not be the one asked for.
function canonicalOf(node, value) {
  const { type } = node;
  if (type === 'color') return /^#[0-9a-f]{6}$/i.test(value) ? value.toLowerCase() : null;
  if (value === '') return type === 'range' ? null : '';
  const probe = createElement(document, 'input');
  probe.type = type;
  for (const bound of ['min', 'max', 'step']) if (has(node, bound)) probe.setAttribute(bound, attribute(node, bound));
  probe.value = value;
  if (type === 'range') return value.trim() !== '' && Number(probe.value) === Number(value) ? probe.value : null;
  const { rangeUnderflow, rangeOverflow, stepMismatch } = probe.validity;
  return probe.value === '' || rangeUnderflow || rangeOverflow || stepMismatch ? null : probe.value;
}

function tell(node) {
  node.dispatchEvent(new Event('input', { bubbles: true, composed: true }));
  node.dispatchEvent(new Event('change', { bubbles: true }));
}

const rows = (text) => text.replaceAll('\u00a0', ' ').split(/\r\n|\r|\n/).map((line) => line.trimEnd()).filter(Boolean).join('\n');

const holds = (op) => onNode(op, (node) => {
  if (node instanceof HTMLInputElement) return node.value === op.text || node.value === op.text.replace(/\r\n|\r|\n/g, ' ');
  if (node instanceof HTMLTextAreaElement) return node.value === op.text.replace(/\r\n?/g, '\n');
  if (node instanceof HTMLSelectElement) return Array.from(node.selectedOptions).some((option) => labelOf(option) === oneLine(op.text) || option.value === op.text);
  return isEditingHost(node) && rows(innerTextOf(node)) === rows(op.text);
});

// ---- delivery

/// What is being listened for; one action at a time.
let watch = null;

function stopWatching() {
  for (const kind of watch?.kinds ?? []) removeEventListener(kind, watch.hear, true);
}

const listen = (op) => onNode(op, (node) => {
  stopWatching();
  const mine = { kinds: op.kinds, seen: 'nothing', hear: null };
  mine.hear = (event) => {
    if (!event.isTrusted) return;
    const target = event.composedPath()[0];
    const own = target instanceof Node && belongs(target, node);
    // One that went elsewhere is worth telling whatever came before.
    if (!own) mine.seen = 'other';
    else if (mine.seen === 'nothing') mine.seen = 'target';
  };
  for (const kind of op.kinds) addEventListener(kind, mine.hear, true);
  watch = mine;
  return true;
});

/// The target, something in it, or its label.
function belongs(target, node) {
  for (let at = target; at; at = flatParent(at)) {
    if (at === node || (at instanceof HTMLLabelElement && at.control === node)) return true;
  }
  return node instanceof HTMLLabelElement && node.control === target;
}

function delivered() {
  stopWatching();
  const seen = watch?.seen ?? 'nothing';
  watch = null;
  return { seen };
}
