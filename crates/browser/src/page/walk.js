// One pass over the flat tree: visible text as lines, and the elements that may be controls.
//
// It reads computed style once per element and boxes only where they decide something; nothing in here writes, so layout is
// computed at most once however large the page is. No hit tests: whether a control is covered is asked when it is used.

const SKIPPED = new Set(['script', 'style', 'noscript', 'template', 'head', 'title', 'meta', 'link', 'desc', 'defs', 'metadata', 'symbol', 'clipPath',
  'mask', 'pattern', 'marker', 'linearGradient', 'radialGradient', 'filter', 'datalist']);
/// Elements whose inside is not of the page's text: fallback content, values, other documents.
const SEALED = new Set(['iframe', 'frame', 'object', 'embed', 'video', 'audio', 'canvas', 'textarea', 'select', 'input', 'img', 'meter', 'progress']);
const INLINE = new Set(['inline', 'contents', 'ruby', 'ruby-base', 'ruby-text']);
const LISTS = new Set(['html', 'body', 'ul', 'ol', 'menu', 'table', 'tbody', 'thead', 'nav', 'main', 'form', 'fieldset', 'section', 'svg']);
const CELL_ROLES = new Set(['cell', 'gridcell', 'columnheader', 'rowheader']);
const HANDLERS = ['onclick', 'onmousedown', 'onmouseup', 'onpointerdown', 'onpointerup', 'ondblclick', 'ontouchstart'];
/// A parser nests 512 deep; a script may go on, and this recurses.
const MAX_DEPTH = 900;
/// Characters of text kept of one document.
const MAX_TEXT = 4_000_000;
const MAX_CANDIDATES = 5_000;
/// A row of short cells is one line; beyond this it is a layout table, and its cells are blocks.
const ROW_CHARACTERS = 600;

/// Where text gathers: the document, or one cell.
class Lines {
  done = [];
  line = '';
  gap = false;
  size = 0;

  text(data) {
    // Most of a table is one word.
    if (!/[ \t\n\r\f]/.test(data)) {
      this.line += this.line && this.gap ? ` ${data}` : data;
      this.gap = false;
      return;
    }
    const words = data.replace(/[ \t\n\r\f]+/g, ' ');
    if (words === ' ' || words === '') {
      this.gap ||= words !== '';
      return;
    }
    if (words.startsWith(' ')) this.gap = true;
    if (this.line && this.gap) this.line += ' ';
    this.gap = words.endsWith(' ');
    this.line += words.trim();
  }

  preserved(data) {
    const lines = data.replaceAll('\t', '  ').split(/\r\n|\r|\n/);
    lines.forEach((piece, i) => {
      if (i) this.end();
      if (this.line && this.gap) this.line += ' ';
      this.gap = false;
      this.line += piece;
    });
  }

  end() {
    const line = this.line.trimEnd();
    if (line.trim()) {
      this.done.push(line);
      this.size += line.length + 1;
    }
    this.line = '';
    this.gap = false;
  }
}

class Walk {
  constructor(collect) {
    this.collect = collect;
    this.sink = new Lines();
    this.row = null;
    this.full = false;
    this.candidates = [];
    this.labels = [];
    this.listed = new Set();
    this.root = documentElement(document);
    this.rtl = this.root && getComputedStyle(this.root).direction === 'rtl';
    // Asked once: each of these makes sure of the layout anew.
    this.view = { width: innerWidth, height: innerHeight, x: scrollX, y: scrollY, inner: this.root?.clientWidth || innerWidth };
    this.modal = collect ? openModal() : null;
  }

  run() {
    if (this.root) {
      this.visit(this.root, { depth: 0, clear: false, gone: null, scrolled: false, disabled: false, inert: this.modal !== null, pointer: false, within: false });
    }
    this.sink.end();
    return this;
  }

  visit(node, above) {
    if (nodeType(node) === TEXT) {
      this.textNode(node, above);
      return;
    }
    if (nodeType(node) !== ELEMENT || above.depth > MAX_DEPTH) return;
    const tag = localName(node);
    if (SKIPPED.has(tag)) return;
    const style = getComputedStyle(node);
    const { display } = style;
    // No display at all: not in the flat tree (an unslotted child).
    if (display === 'none' || display === '') return;

    const here = {
      element: node,
      depth: above.depth + 1,
      style,
      display,
      visible: style.visibility === 'visible',
      clear: above.clear || style.opacity === '0',
      gone: above.gone,
      scrolled: above.scrolled,
      disabled: above.disabled,
      inert: above.inert,
      pointer: false,
      within: above.within,
      aside: undefined,
      collapse: undefined,
      bare: !hasAttributes(node),
      positioned: style.position !== 'static',
      block: null,
    };
    here.block = INLINE.has(display) ? (above.block ?? null) : here;
    this.place(node, tag, here);
    if (this.collect) this.classify(node, tag, here, above);

    if (tag === 'br') {
      this.sink.end();
      return;
    }
    if (SEALED.has(tag)) {
      this.sink.gap = true;
      return;
    }
    this.children(node, tag, here);
  }

  /// What of the tree around decides whether anything in here can be seen.
  place(node, tag, here) {
    const { style } = here;
    const { positioned } = here;
    const position = positioned ? style.position : 'static';
    if (here.gone && positioned && (position === 'fixed' || (position === 'absolute' && !here.gone.holds))) here.gone = null;
    if (tag === 'html' || tag === 'body') return;
    // With one axis clipped the other computes to something else than visible too.
    const clips = style.overflowX !== 'visible';
    if (!positioned && !clips) return;
    const rect = box(node);
    if (clips && !here.gone && here.display !== 'inline' && here.display !== 'contents' && (rect.width <= 1 || rect.height <= 1)) here.gone = { holds: positioned };
    if (positioned && !here.gone && (this.outside(rect, position === 'fixed', here.scrolled) || cutAway(style, position))) here.gone = { holds: true };
    if (clips && !here.scrolled && (scrollTopOf(node) !== 0 || scrollLeftOf(node) !== 0)) here.scrolled = true;
  }

  /// Where no scrolling leads: left of and above the document's origin, or, for what is fixed, anywhere off the viewport.
  outside(rect, fixed, scrolled) {
    if (rect.width === 0 && rect.height === 0) return false;
    const { view } = this;
    const { left, top, right, bottom } = rect;
    if (fixed) return right <= 0 || bottom <= 0 || left >= view.width || top >= view.height;
    if (scrolled) return false;
    if (bottom + view.y <= 0) return true;
    return this.rtl ? left + view.x >= view.inner : right + view.x <= 0;
  }

  textNode(node, above) {
    const { data } = node;
    if (above.gone || above.clear || !above.visible || this.full) return;
    if (!/\S/.test(data)) {
      if (data) this.sink.text(' ');
      return;
    }
    above.aside ??= this.textAside(above);
    if (above.aside) return;
    // The prefix before a line break is where collapsing and keeping differ most; a plain run of words skips the question.
    if (/[\n\t]| {2}/.test(data)) {
      above.collapse ??= above.style.whiteSpaceCollapse;
      if (above.collapse === 'preserve' || above.collapse === 'break-spaces') return void this.sink.preserved(data);
      if (above.collapse === 'preserve-breaks') {
        data.split('\n').forEach((line, i) => {
          if (i) this.sink.end();
          this.sink.text(line);
        });
        return;
      }
    }
    this.sink.text(data);
  }

  /// Whether an element's own text is out of sight although the element is rendered.
  textAside(here) {
    // A cell can't leave its table, and large tables are where boxes get dear.
    if (here.display === 'contents' || here.display === 'table-cell') return false;
    const { element, style, block } = here;
    // What runs along in a block is where the block is: one box for all of it.
    if (block && block !== here && !here.positioned) {
      block.aside ??= this.textAside(block);
      return block.aside || (!here.bare && style.fontSize === '0px');
    }
    const rect = box(element);
    if (rect.width === 0 && rect.height === 0) return true;
    if (this.outside(rect, false, here.scrolled || style.position === 'fixed')) return true;
    if (here.display !== 'inline' && (parseFloat(style.textIndent) <= -500 || style.fontSize === '0px')) return true;
    if (!localName(element).includes('-') || shadowRootOf(element)) return false;
    // A custom element with a closed root may have left its text unslotted.
    const range = new Range();
    range.selectNodeContents(element);
    return range.getClientRects().length === 0;
  }

  children(node, tag, here) {
    const { display } = here;
    if (here.style.contentVisibility === 'hidden') return;
    const role = here.bare ? null : attribute(node, 'role');
    const row = display === 'table-row' || role === 'row';
    const cell = this.row !== null && (display === 'table-cell' || CELL_ROLES.has(role));
    if (row) return this.asRow(node, here);
    if (cell) return this.asCell(node, here);
    const inline = INLINE.has(display);
    const apart = !inline && display.startsWith('inline');
    if (apart) this.sink.gap = true;
    else if (!inline) this.sink.end();
    this.inside(node, tag, here);
    if (apart) this.sink.gap = true;
    else if (!inline) this.sink.end();
    if (this.sink.size > MAX_TEXT) this.full = true;
  }

  inside(node, tag, here) {
    if (tag === 'details' && node instanceof HTMLDetailsElement && !node.open) {
      for (let child = firstChild(node); child; child = nextSibling(child)) {
        if (nodeType(child) === ELEMENT && localName(child) === 'summary') return this.visit(child, here);
      }
      return;
    }
    if (tag === 'slot' || shadowRootOf(node)) return eachChild(node, (child) => this.visit(child, here));
    for (let child = firstChild(node); child; child = nextSibling(child)) this.visit(child, here);
  }

  asRow(node, here) {
    this.sink.end();
    const outer = this.row;
    const cells = [];
    this.row = cells;
    eachChild(node, (child) => this.visit(child, here));
    this.row = outer;
    this.sink.end();
    const layout = cells.some((lines) => lines.length > 1) && (cells.some((lines) => lines.some((line) => line.includes('\t')))
      || cells.reduce((sum, lines) => sum + lines.reduce((size, line) => size + line.length, 0), 0) > ROW_CHARACTERS);
    const lines = layout ? cells.flat() : [cells.map((cell) => cell.join(' ')).join('\t')];
    for (const line of lines) {
      this.sink.line = line;
      this.sink.end();
    }
    if (this.sink.size > MAX_TEXT) this.full = true;
  }

  asCell(node, here) {
    const [outer, cells] = [this.sink, this.row];
    this.sink = new Lines();
    this.row = null;
    eachChild(node, (child) => this.visit(child, here));
    this.sink.end();
    cells.push(this.sink.done);
    this.row = cells;
    this.sink = outer;
  }

  /// Notes the element if it may be a control.
  classify(node, tag, here, above) {
    if (!here.bare) {
      if (node === this.modal) here.inert = false;
      else if (has(node, 'inert')) here.inert = true;
      if (attribute(node, 'aria-disabled') === 'true') here.disabled = true;
    }
    const pointer = here.style.cursor === 'pointer';
    here.pointer = pointer && !LISTS.has(tag);
    // A list inside an entry starts over: its entries are controls of their own.
    if (LISTS.has(tag)) here.within = false;
    if (tag === 'label' && node instanceof HTMLLabelElement) {
      const control = node.control;
      if (control) {
        // The label's pointer is its control's: nothing in here is a control by its cursor.
        here.within = true;
        if (here.visible && !here.gone && !here.clear) this.labels.push({ label: node, control, at: this.candidates.length, here });
        return;
      }
    }
    const kind = controlKind(node, tag, here, above, pointer);
    if (!kind) return;
    here.within = kind !== 'region';
    const seen = here.visible && !here.gone && (!here.clear || kind === 'field');
    if (!seen || this.candidates.length >= MAX_CANDIDATES) return;
    const rect = box(node);
    if (rect.width < 1 || rect.height < 1 ? boxesOf(node).length === 0 : rect.width * rect.height <= 1) return;
    if (this.outside(rect, here.style.position === 'fixed', here.scrolled)) return;
    this.add(node, tag, here, rect);
  }

  add(node, tag, here, rect) {
    this.listed.add(node);
    this.candidates.push({
      node,
      tag,
      disabled: here.disabled || here.inert,
      inView: rect.right > 0 && rect.bottom > 0 && rect.left < this.view.width && rect.top < this.view.height,
    });
  }

  /// Checkboxes and radios that only their label shows, at the label's place.
  withLabelled() {
    let extra = 0;
    for (const { label, control, at, here } of this.labels) {
      if (this.listed.has(control) || !(control instanceof HTMLInputElement)) continue;
      if (control.type !== 'checkbox' && control.type !== 'radio') continue;
      this.add(control, 'input', here, box(label));
      this.candidates.splice(at + extra++, 0, this.candidates.pop());
    }
    return this.candidates;
  }
}

/// `clip` and `clip-path` as they hide text for the eye and keep it for screen readers.
function cutAway(style, position) {
  if ((position === 'absolute' || position === 'fixed') && style.clip !== 'auto') {
    const [top, right, bottom, left] = (style.clip.match(/-?[\d.]+/g) ?? []).map(Number);
    if (right - left <= 1 || bottom - top <= 1) return true;
  }
  return /^(inset\((50|100)%|circle\(0)/.test(style.clipPath);
}

/// 'field' for native fields, 'region' for editing hosts, 'other' for the rest, null for no control.
function controlKind(node, tag, here, above, pointer) {
  if (tag === 'input') return node instanceof HTMLInputElement && node.type !== 'hidden' ? 'field' : null;
  if (tag === 'select' || tag === 'textarea') return 'field';
  if (tag === 'button') return 'other';
  if (tag === 'summary') return parentNode(node) instanceof HTMLDetailsElement ? 'other' : null;
  if (tag === 'body' || !here.bare) {
    const kind = attributedKind(node, tag);
    if (kind) return kind;
  }
  if (here.within || !(pointer || tag === 'a') || here.style.pointerEvents === 'none') return null;
  if (tag === 'a') return has(node, 'name') ? null : 'other';
  return above.pointer || LISTS.has(tag) || tag === 'iframe' || tag === 'frame' || tag === 'option' ? null : 'other';
}

/// The same for what only attributes tell; most elements of a large page have none.
function attributedKind(node, tag) {
  if (isEditingHost(node)) return 'region';
  if (tag === 'a' && (has(node, 'href') || has(node, 'xlink:href'))) return 'other';
  if (has(node, 'role') && CONTROL_ROLES.has(statedRole(node))) return 'other';
  if (tag === 'iframe' || tag === 'frame' || tag === 'option' || tag === 'html' || tag === 'body') return null;
  if (HANDLERS.some((name) => has(node, name))) return 'other';
  const tabindex = attribute(node, 'tabindex');
  if (tabindex !== null && parseInt(tabindex, 10) >= 0) return 'other';
  return attribute(node, 'draggable') === 'true' ? 'other' : null;
}
