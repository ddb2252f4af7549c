// The page: send what is typed to the worker, show what comes back.

import { formatLanguage } from "./format.js";
import { showError, showFacts, showIntroduction, showProgress, showResults, showSamples } from "./view.js";

const RESULTS = 12;
const $ = (id) => document.getElementById(id);
const query = $("query");
const state = { description: null, sentences: [], ready: false, busy: false, stale: false, requests: 0 };

const worker = new Worker(new URL(`worker.js${location.search}`, import.meta.url), { type: "module" });
worker.onmessage = ({ data }) => {
  $("hint").hidden = true;
  handlers[data.kind](data);
};
worker.onerror = (event) => handlers.error({ text: event.message || "the worker did not start; reload the page" });

const handlers = {
  description({ description }) {
    description.languages.sort((left, right) => formatLanguage(left).localeCompare(formatLanguage(right), "en"));
    state.description = description;
    showIntroduction(description, { search: searchFor, filter: search });
  },
  progress({ loaded, total }) {
    showProgress(loaded, total);
  },
  sentences({ sentences }) {
    state.sentences = sentences;
    show(null);
  },
  ready({ seconds, check, runtimeBytes }) {
    state.ready = true;
    document.documentElement.dataset.ready = "yes";
    document.documentElement.dataset.device = check.device;
    showFacts(state.description, seconds, check, runtimeBytes);
    search();
  },
  results(reply) {
    state.busy = false;
    if (query.value.trim()) show(reply);
    if (state.stale) search();
  },
  error({ text }) {
    state.busy = false;
    showError(text);
    if (state.stale) search();
  },
};

/** Search for what is in the field now. While the worker is busy, only the newest query is kept. */
function search() {
  const text = query.value.trim();
  $("clear").hidden = !query.value;
  if (!text) show(null);
  if (!state.ready || !text) return;
  state.stale = state.busy;
  if (state.busy) return;
  state.busy = true;
  state.requests += 1;
  worker.postMessage({ number: state.requests, text, language: chosenLanguage(), count: RESULTS });
}

function searchFor(text) {
  query.value = text;
  query.focus();
  scrollTo({ top: 0, behavior: "instant" });
  search();
}

function chosenLanguage() {
  return document.querySelector("#languages input:checked")?.value ?? "";
}

/** Show a reply, or a sample of the sentences when there is no query. */
function show(reply) {
  const context = { ...state, language: chosenLanguage(), search: searchFor };
  if (reply) showResults(reply, context);
  else showSamples(context);
  document.documentElement.dataset.answered = reply ? String(reply.number) : "";
}

query.addEventListener("input", search);
$("clear").addEventListener("click", () => searchFor(""));
$("search").addEventListener("submit", (event) => {
  event.preventDefault();
  search();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== query) {
    event.preventDefault();
    query.focus();
    query.select();
  } else if (event.key === "Escape" && query.value) {
    searchFor("");
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    moveFocus(event, event.key === "ArrowDown" ? 1 : -1);
  }
});

/** Move the focus between the field and the results. */
function moveFocus(event, step) {
  const targets = [query, ...document.querySelectorAll(".result")];
  const current = targets.indexOf(document.activeElement);
  if (current < 0 || !targets[current + step]) return;
  event.preventDefault();
  targets[current + step].focus();
}
