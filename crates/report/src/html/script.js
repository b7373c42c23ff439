"use strict";
const sessions = [...document.querySelectorAll(".session")];
const buttons = [...document.querySelectorAll("nav button")];
const causes = [...document.querySelectorAll(".causes button")];
const search = document.getElementById("search");
const nothing = document.getElementById("nothing");
const shown = document.getElementById("shown");
let filter = "all";
let why = "";
// What is searched, as far as it was: of thousands of sessions the words are put together once.
const texts = new Map();

function text(session) {
  let found = texts.get(session);
  if (found === undefined) texts.set(session, (found = session.textContent.toLowerCase()));
  return found;
}

function show() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let seen = 0;
  for (const session of sessions) {
    const kind = filter === "all" || (filter === "flaky" ? session.classList.contains("flaky") : session.dataset.outcome === filter);
    const fits = kind && (!why || session.dataset.why === why) && words.every((word) => text(session).includes(word));
    if (session.hidden === fits) session.hidden = !fits;
    seen += fits;
  }
  nothing.hidden = seen > 0;
  shown.textContent = seen === sessions.length ? "" : `${seen} of ${sessions.length} sessions are shown`;
  for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.filter === filter));
  for (const button of causes) button.setAttribute("aria-pressed", String(button.dataset.why === why));
}

for (const button of buttons) {
  button.addEventListener("click", () => {
    filter = button.dataset.filter;
    if (filter === "all") why = "";
    show();
  });
}
for (const button of causes) {
  button.addEventListener("click", () => {
    why = why === button.dataset.why ? "" : button.dataset.why;
    filter = "all";
    show();
  });
}
let typed;
search.addEventListener("input", () => { clearTimeout(typed); typed = setTimeout(show, sessions.length > 1000 ? 150 : 0); });

// What a link leads to may be folded away, or not shown.
function reveal() {
  let name = location.hash.slice(1);
  try { name = decodeURIComponent(name); } catch { /* as it stands */ }
  const target = name && document.getElementById(name);
  if (!target) return;
  if (target.closest(".session[hidden]")) { filter = "all"; why = search.value = ""; show(); }
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  target.scrollIntoView({ block: target.classList.contains("session") ? "start" : "center" });
}
addEventListener("hashchange", reveal);
reveal();

// The one beside that which has the focus and is to be seen; else the next below the head of the list, or above it.
function step(all, forward, focus) {
  const places = all.filter((one) => one.offsetParent !== null);
  const here = document.activeElement.getBoundingClientRect();
  const seen = here.bottom > 0 && here.top < innerHeight;
  const at = seen ? places.findIndex((one) => one.contains(document.activeElement)) : -1;
  const top = document.querySelector("nav").getBoundingClientRect().bottom + 8;
  const y = (one) => one.getBoundingClientRect().top;
  const next = at >= 0
    ? places[at + (forward ? 1 : -1)]
    : forward ? places.find((one) => y(one) > top - 4) : places.findLast((one) => y(one) < top - 4);
  if (!next) return;
  focus(next);
  scrollBy({ top: y(next) - top });
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target === search) {
    if (event.key === "Escape") { search.value = ""; show(); search.blur(); }
    return;
  }
  const differences = () => [...document.querySelectorAll(".session[open]:not([hidden]) .difference")];
  const session = (one) => one.querySelector("summary").focus({ preventScroll: true });
  const row = (one) => one.focus({ preventScroll: true });
  const keys = {
    "/": () => { event.preventDefault(); search.focus(); search.select(); },
    j: () => step(sessions, true, session),
    k: () => step(sessions, false, session),
    n: () => step(differences(), true, row),
    p: () => step(differences(), false, row),
  };
  keys[event.key]?.();
});

// On paper nothing can be unfolded: what did not pass is, and what passed is a line.
addEventListener("beforeprint", () => {
  for (const one of document.querySelectorAll(".session:not([hidden]):not(.pass)")) one.open = true;
});
