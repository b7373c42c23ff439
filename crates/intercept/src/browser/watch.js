  if (globalThis.__cofferdamWatches) return;
  globalThis.__cofferdamWatches = true;
  const tell = (ev) => {
    const e = ev.composedPath()[0];
    if (!e || e.nodeType !== 1 || !('value' in e)) return;
    const tag = e.tagName, type = (e.getAttribute('type') || '').toLowerCase();
    const ticks = tag === 'INPUT' && (type === 'checkbox' || type === 'radio');
    const chosen = tag === 'SELECT' || ticks;
    if (chosen ? ev.type !== 'change' : ev.isTrusted) return;
    const d = D(e);
    if (!d) return;
    const value = ticks ? String(e.checked) : tag === 'SELECT' ? Array.from(e.selectedOptions, (o) => o.value).join(', ') : String(e.value);
    d.value = d.secret ? '' : value.slice(0, 500);
    __cofferdam(JSON.stringify(d));
  };
  addEventListener('change', tell, true);
  addEventListener('input', tell, true);
