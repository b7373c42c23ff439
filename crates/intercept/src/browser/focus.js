  let r = document, e = null;
  for (let i = 0; i < 16; i++) {
    const n = r.activeElement;
    if (!n) break;
    e = n;
    if (n.shadowRoot) { r = n.shadowRoot; continue; }
    let c = null;
    if (n.tagName === 'IFRAME') { try { c = n.contentDocument; } catch (_) { c = null; } }
    if (!c) break;
    r = c;
  }
  return D(e);
