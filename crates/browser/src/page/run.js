// The one object this leaves behind. Its slot is a symbol: a named element of the page can't stand in its place.

/// Tells documents apart that share a loader: a frame's document after `document.open` is still this one, a new one is not.
const documentId = Array.from(crypto.getRandomValues(new Uint32Array(3)), (word) => word.toString(36)).join('');

const operations = { read, text: textWindow, digest, locate, aim, hit, focus, focused: isFocused, select, assign, holds, listen, delivered };

globalThis[slot] = {
  run(op) {
    const answer = operations[op.op](op);
    return answer instanceof Promise ? answer.then((ok) => ({ ok })) : { ok: answer };
  },
  through,
};
