// The page: what is typed goes to the worker, what comes back is shown.

import { showDescription, showFacts } from "./facts.js";
import { showFound, showSome } from "./results.js";
import { megabytes, milliseconds, nameOf } from "./words.js";

const MOST = 12;
const $ = (id) => document.getElementById(id);
const query = $("query");
const state = { described: null, sentences: [], ready: false, busy: false, stale: false, asked: 0 };

const worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
worker.onmessage = ({ data }) => {
  $("late").hidden = true;
  on[data.kind](data);
};
worker.onerror = (event) => on.trouble({ text: event.message || "the worker does not start: reload the page" });

const on = {
  described({ described }) {
    described.languages.sort((left, right) => nameOf(left).localeCompare(nameOf(right), "en"));
    state.described = described;
    showDescription(described, { search: searchFor, filter: ask });
  },
  progress({ come, total }) {
    $("progress").max = total;
    $("progress").value = come;
    const done = come === total;
    $("progress-label").textContent = done
      ? "Starting the model…"
      : `Loading the model: ${megabytes(come)} of ${megabytes(total)}`;
  },
  sentences({ sentences }) {
    state.sentences = sentences;
    show(null);
  },
  ready({ seconds, check }) {
    state.ready = true;
    document.documentElement.dataset.ready = "yes";
    $("loading").hidden = true;
    showFacts(state.described, seconds, check);
    ask();
  },
  found(reply) {
    state.busy = false;
    if (query.value.trim()) show(reply);
    if (state.stale) ask();
  },
  trouble({ text }) {
    state.busy = false;
    $("loading").hidden = true;
    $("trouble").hidden = false;
    $("trouble").textContent = `This does not work: ${text}`;
  },
};

/** Ask for what is in the field now; while an answer is awaited, only the newest question is kept. */
function ask() {
  const text = query.value.trim();
  $("clear").hidden = !query.value;
  if (!text) show(null);
  if (!state.ready || !text) return;
  state.stale = state.busy;
  if (state.busy) return;
  state.busy = true;
  state.asked += 1;
  worker.postMessage({ number: state.asked, text, language: language(), most: MOST });
}

function language() {
  return document.querySelector("#languages input:checked")?.value ?? "";
}

function searchFor(text) {
  query.value = text;
  query.focus();
  scrollTo({ top: 0, behavior: "instant" });
  ask();
}

/** Show an answer, or some of the sentences where nothing is asked. */
function show(reply) {
  const shown = { ...state, language: language(), search: searchFor };
  if (reply) showFound(reply, shown);
  else showSome(shown);
  $("took").replaceChildren(...(reply ? [bold(milliseconds(reply.milliseconds)), ` for ${reply.tokens} tokens`] : []));
  document.documentElement.dataset.answered = reply ? String(reply.number) : "";
}

function bold(text) {
  const element = document.createElement("b");
  element.textContent = text;
  return element;
}

query.addEventListener("input", ask);
$("clear").addEventListener("click", () => searchFor(""));
$("search").addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== query) {
    event.preventDefault();
    query.focus();
    query.select();
  } else if (event.key === "Escape" && query.value) {
    searchFor("");
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    move(event, event.key === "ArrowDown" ? 1 : -1);
  }
});

/** Move from the field to the results, and between them. */
function move(event, step) {
  const places = [query, ...document.querySelectorAll(".result")];
  const place = places.indexOf(document.activeElement);
  if (place < 0 || !places[place + step]) return;
  event.preventDefault();
  places[place + step].focus();
}
