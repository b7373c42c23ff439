  let x = X, y = Y, r = document, e = null;
  for (let i = 0; i < 16; i++) {
    const n = r.elementFromPoint(x, y);
    if (!n || n === e) break;
    e = n;
    if (n.shadowRoot) { r = n.shadowRoot; continue; }
    let c = null;
    if (n.tagName === 'IFRAME') { try { c = n.contentDocument; } catch (_) { c = null; } }
    if (!c) break;
    const b = n.getBoundingClientRect();
    x -= b.left + n.clientLeft; y -= b.top + n.clientTop; r = c;
  }
  return D(e);
