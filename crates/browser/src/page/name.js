// Roles and names of controls, after the accessible-name rules as far as they matter to someone who reads a list.

const NAME_BYTES = 160;
/// Nodes looked at for one name: a clickable card may hold half a page.
const NAME_NODES = 400;

/// Roles that make an element a control. The word goes out as it is, so only known ones do.
const CONTROL_ROLES = new Set(['button', 'link', 'textbox', 'searchbox', 'combobox', 'listbox', 'option', 'checkbox', 'radio', 'switch', 'tab',
  'menuitem', 'menuitemcheckbox', 'menuitemradio', 'slider', 'spinbutton', 'treeitem', 'scrollbar']);
/// Roles a control made by script may carry besides.
const OTHER_ROLES = new Set(['gridcell', 'cell', 'columnheader', 'rowheader', 'row', 'heading', 'img', 'listitem', 'article', 'group', 'region',
  'menu', 'menubar', 'tablist', 'tree', 'grid', 'radiogroup', 'toolbar', 'application', 'dialog', 'figure', 'paragraph']);
const TAG_ROLES = { a: 'link', button: 'button', select: 'combobox', textarea: 'textbox', summary: 'button', option: 'option', h1: 'heading',
  h2: 'heading', h3: 'heading', h4: 'heading', h5: 'heading', h6: 'heading', img: 'img', li: 'listitem', td: 'cell', th: 'columnheader', tr: 'row',
  details: 'group' };
const INPUT_ROLES = { button: 'button', submit: 'button', reset: 'button', image: 'button', checkbox: 'checkbox', radio: 'radio', range: 'slider',
  number: 'spinbutton', search: 'searchbox', file: 'button', color: 'textbox' };
/// Roles named by what they contain.
const CONTENT_ROLES = new Set(['button', 'link', 'option', 'checkbox', 'radio', 'switch', 'tab', 'menuitem', 'menuitemcheckbox', 'menuitemradio',
  'treeitem', 'generic', 'heading', 'listitem', 'cell', 'gridcell', 'columnheader', 'rowheader', 'row', 'img', 'article', 'group', 'paragraph', 'figure']);

/// The first word of the role attribute that is known; '' for none.
function statedRole(element) {
  const words = (attribute(element, 'role') ?? '').trim().toLowerCase().split(/\s+/, 4);
  return words.find((word) => CONTROL_ROLES.has(word) || OTHER_ROLES.has(word)) ?? '';
}

function roleOf(element, tag) {
  const stated = statedRole(element);
  if (stated) return stated;
  if (tag === 'input' && element instanceof HTMLInputElement) {
    return INPUT_ROLES[element.type] ?? (has(element, 'list') ? 'combobox' : 'textbox');
  }
  if (tag === 'select' && element instanceof HTMLSelectElement) return element.multiple || element.size > 1 ? 'listbox' : 'combobox';
  if (isEditingHost(element)) return 'textbox';
  return TAG_ROLES[tag] ?? 'generic';
}

function isEditingHost(element) {
  if (element === bodyOf(document) && designMode(document) === 'on') return true;
  return has(element, 'contenteditable') && isEditable(element) && !isEditable(parentNode(element));
}

/// Text inside, with the alternatives of images; what is not rendered is left out unless `hidden` asks for it.
function contentText(root, hidden = false) {
  let text = '';
  let left = NAME_NODES;
  const visit = (node, depth) => {
    if (text.length > NAME_BYTES * 2 || left-- <= 0 || depth > 40) return;
    if (nodeType(node) === TEXT) {
      text += node.data.slice(0, NAME_BYTES * 4);
      return;
    }
    if (nodeType(node) !== ELEMENT) return;
    const tag = localName(node);
    if (tag === 'script' || tag === 'style' || tag === 'noscript' || tag === 'template') return;
    if (node !== root) {
      const style = getComputedStyle(node);
      if (!hidden && (style.display === 'none' || style.display === '')) return;
      // A hidden parent may have visible children, so only its own text would go; names are short, take it or leave it whole.
      if (!hidden && style.visibility !== 'visible') return;
      if (attribute(node, 'aria-hidden') === 'true' && !hidden) return;
      const label = attribute(node, 'aria-label');
      if (label && oneLine(label)) {
        text += ` ${label} `;
        return;
      }
      if (tag === 'img' || (tag === 'input' && node.type === 'image')) {
        text += ` ${attribute(node, 'alt') ?? ''} `;
        return;
      }
      if (tag === 'input' || tag === 'select' || tag === 'textarea' || tag === 'iframe') return;
      if (tag === 'title' && node instanceof SVGElement) {
        text += ` ${node.textContent} `;
        return;
      }
      const inline = style.display === 'inline' || style.display === 'contents';
      if (!inline) text += ' ';
      eachChild(node, (child) => visit(child, depth + 1));
      if (!inline) text += ' ';
      return;
    }
    if (tag === 'img') text += attribute(node, 'alt') ?? '';
    eachChild(node, (child) => visit(child, depth + 1));
  };
  visit(root, 0);
  return oneLine(text);
}

function referencedText(element) {
  const ids = attribute(element, 'aria-labelledby');
  if (!ids) return '';
  const root = getRootNode(element);
  const texts = [];
  for (const id of ids.split(/\s+/, 8)) {
    const named = id && byId(root, id);
    if (named) texts.push(oneLine(attribute(named, 'aria-label') ?? '') || contentText(named, true));
  }
  return oneLine(texts.join(' '));
}

function labelsText(element) {
  const texts = [];
  for (const label of Array.from(element.labels ?? []).slice(0, 4)) texts.push(contentText(label));
  return oneLine(texts.join(' '));
}

function nativeName(element, tag) {
  if (tag === 'input' && element instanceof HTMLInputElement) {
    const { type } = element;
    if (type === 'submit' || type === 'reset' || type === 'button') {
      return element.value || { submit: 'Submit', reset: 'Reset', button: '' }[type];
    }
    if (type === 'image') return attribute(element, 'alt') || element.value || 'Submit';
    return labelsText(element);
  }
  if (element instanceof HTMLSelectElement || element instanceof HTMLTextAreaElement || element instanceof HTMLButtonElement) {
    return labelsText(element);
  }
  if (tag === 'img') return attribute(element, 'alt') ?? '';
  if (tag === 'details') return 'Details';
  return '';
}

/// At most NAME_BYTES, on one line.
function nameOf(element, tag, role) {
  const sources = [
    () => referencedText(element),
    () => attribute(element, 'aria-label'),
    () => nativeName(element, tag),
    () => (CONTENT_ROLES.has(role) && tag !== 'input' && !isEditingHost(element) ? contentText(element) : ''),
    () => attribute(element, 'title'),
    () => attribute(element, 'placeholder') ?? attribute(element, 'aria-placeholder') ?? attribute(element, 'data-placeholder'),
  ];
  for (const source of sources) {
    const name = oneLine(safe(source() ?? '', NAME_BYTES * 4));
    if (name) return safe(name, NAME_BYTES).trimEnd();
  }
  return '';
}
