"use strict";
const sessions = [...document.querySelectorAll(".session")];
const buttons = [...document.querySelectorAll("nav button")];
const search = document.getElementById("search");
const nothing = document.getElementById("nothing");
let filter = "all";

function show() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let seen = 0;
  for (const session of sessions) {
    const kind = filter === "all" || (filter === "flaky" ? session.classList.contains("flaky") : session.dataset.outcome === filter);
    const text = words.length && kind ? session.textContent.toLowerCase() : "";
    const fits = kind && words.every((word) => text.includes(word));
    session.hidden = !fits;
    seen += fits;
  }
  nothing.hidden = seen > 0;
}

for (const button of buttons) {
  button.addEventListener("click", () => {
    filter = button.dataset.filter;
    for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
    show();
  });
}
search.addEventListener("input", show);

// What a link leads to may be folded away.
function reveal() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  target.scrollIntoView({ block: "center" });
}
addEventListener("hashchange", reveal);
reveal();

function step(all, forward, focus) {
  const top = 80;
  const places = all.filter((one) => one.offsetParent !== null).map((one) => [one, one.getBoundingClientRect().top]);
  const next = forward ? places.find(([, y]) => y > top + 4) : places.filter(([, y]) => y < top - 4).pop();
  if (!next) return;
  scrollBy({ top: next[1] - top });
  focus(next[0]);
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target === search) {
    if (event.key === "Escape") { search.value = ""; show(); search.blur(); }
    return;
  }
  const differences = () => [...document.querySelectorAll(".session:not([hidden]) .difference")];
  const open = (session) => session.querySelector("summary").focus({ preventScroll: true });
  const focus = (row) => row.focus({ preventScroll: true });
  const keys = {
    "/": () => { event.preventDefault(); search.focus(); },
    j: () => step(sessions, true, open),
    k: () => step(sessions, false, open),
    n: () => step(differences(), true, focus),
    p: () => step(differences(), false, focus),
  };
  keys[event.key]?.();
});

addEventListener("beforeprint", () => { for (const one of document.querySelectorAll(".session:not([hidden])")) one.open = true; });
