const D = (e) => {
  if (!e || e.nodeType !== 1) return null;
  const cut = (t) => (t || '').replace(/\s+/g, ' ').trim().slice(0, 200);
  const near = e.closest('button,a[href],input,select,textarea,label,summary,option,[role],[contenteditable=""],[contenteditable="true"]');
  if (near) e = near;
  if (e.tagName === 'LABEL' && e.control) e = e.control;
  const tag = e.tagName.toLowerCase();
  const type = (e.getAttribute('type') || '').toLowerCase();
  const inputs = { button: 'button', submit: 'button', reset: 'button', image: 'button', checkbox: 'checkbox', radio: 'radio', range: 'slider', number: 'spinbutton', search: 'searchbox' };
  const tags = { a: 'link', button: 'button', select: 'combobox', textarea: 'textbox', option: 'option', img: 'img', summary: 'button', iframe: 'iframe' };
  const role = e.getAttribute('role') || (tag === 'input' ? inputs[type] || 'textbox' : tags[tag]) || tag;
  const root = e.getRootNode();
  const by = (e.getAttribute('aria-labelledby') || '').split(/\s+/).map((id) => id && root.getElementById && root.getElementById(id)).filter(Boolean);
  const labels = e.labels ? Array.from(e.labels) : [];
  const said = (l) => Array.from(l.childNodes).filter((n) => n !== e && !/^(INPUT|SELECT|TEXTAREA|SCRIPT|STYLE)$/.test(n.nodeName)).map((n) => n.textContent).join(' ');
  const own = /^(button|link|option|tab|menuitem|checkbox|radio|switch|heading|cell|treeitem)$/.test(role) || !/^(input|select|textarea|iframe|body|html)$/.test(tag);
  const name = cut(by.map((n) => n.textContent).join(' ')) || cut(e.getAttribute('aria-label')) || cut(labels.map(said).join(' ')) ||
    cut(e.getAttribute('alt')) || (tag === 'input' && role === 'button' ? cut(e.value || type) : '') || (own ? cut(e.textContent) : '') ||
    cut(e.getAttribute('title')) || cut(e.getAttribute('placeholder'));
  const one = (s) => { try { return root.querySelectorAll(s).length === 1; } catch (_) { return false; } };
  const quoted = (v) => '"' + v.replace(/["\\]/g, '\\$&') + '"';
  let selector = '';
  const tries = [e.id && '#' + CSS.escape(e.id)];
  for (const a of ['data-testid', 'data-test', 'name']) if (e.getAttribute(a)) tries.push(tag + '[' + a + '=' + quoted(e.getAttribute(a)) + ']');
  for (const t of tries) if (t && t.length <= 200 && one(t)) { selector = t; break; }
  for (let n = e, path = []; !selector && n && n.nodeType === 1; n = n.parentElement) {
    let at = 1;
    for (let s = n.previousElementSibling; s; s = s.previousElementSibling) if (s.tagName === n.tagName) at++;
    path.unshift(n.tagName.toLowerCase() + ':nth-of-type(' + at + ')');
    const joined = path.join(' > ');
    if (one(joined) || path.length >= 8) selector = joined;
  }
  const secret = type === 'password' || /password|one-time-code|cc-(number|csc|exp)/.test(e.getAttribute('autocomplete') || '');
  return { role, name, selector, secret };
};
