// Everything that the page shows: the introduction, the language filter, the results, and the facts below them.

import { countSentences, formatBytes, formatLanguage, formatMilliseconds, spellNumber } from "./format.js";

const SAMPLES_OF_ONE_LANGUAGE = 8;
const $ = (id) => document.getElementById(id);

/** Show the introduction, the example queries and the language filter. */
export function showIntroduction({ languages, examples }, { search, filter }) {
  const multilingual = languages.length > 1;
  const what = multilingual
    ? `Type in any of ${spellNumber(languages.length)} languages. The search finds sentences with the same meaning in all of them.`
    : "Type a sentence. The search finds sentences with the same meaning, even in other words.";
  $("introduction").textContent = `${what} The model runs in this page: what you type never leaves it.`;
  $("results").classList.toggle("without-languages", !languages.length);
  const buttons = examples.map(({ language, text }) => {
    const button = element("button", "example", text);
    Object.assign(button, { type: "button", lang: language, dir: "auto" });
    button.addEventListener("click", () => search(text));
    return button;
  });
  $("example-list").replaceChildren(...buttons);
  $("examples").hidden = !examples.length;
  $("languages").replaceChildren(...["", ...languages].map((code) => languageChoice(code, filter)));
  $("filter").hidden = !multilingual;
}

function languageChoice(code, filter) {
  const label = element("label", "language");
  const input = document.createElement("input");
  Object.assign(input, { type: "radio", name: "language", value: code, checked: !code });
  input.addEventListener("change", filter);
  label.append(input, element("span", "", code ? formatLanguage(code) : "All"));
  return label;
}

export function showProgress(loaded, total) {
  $("progress").max = total;
  $("progress").value = loaded;
  const progress = `Loading the model: ${formatBytes(loaded)} of ${formatBytes(total)}`;
  $("progress-label").textContent = loaded === total ? "Starting the model…" : progress;
}

export function showError(text) {
  $("loading").hidden = true;
  $("error").hidden = false;
  $("error").textContent = `Error: ${text}`;
}

/** Say what was loaded, where it runs, and whether this browser computes what Python computed. */
export function showFacts(description, seconds, check, runtimeBytes) {
  const { model, files, count, download, onnxruntime_web: version } = description;
  const graphBytes = [files.graph, ...files.external].reduce((sum, { bytes }) => sum + bytes, 0);
  const comparison =
    `the tokens of ${check.same} of ${countSentences(check.total)} are the same as in Python, ` +
    `and their vectors have cosines of at least ${check.cosine.toFixed(4)} with Python's`;
  const place = {
    webgpu: `Everything runs in this page, on WebGPU (${check.adapter}).`,
    wasm: `Everything runs in this page, in WebAssembly on one thread. WebGPU is not used: ${check.reason}.`,
  };
  $("loading").hidden = true;
  $("facts").replaceChildren(
    paragraph(
      ["Model ", bold(model.name), `, ${model.precision}: `, bold(formatBytes(graphBytes + files.tokenizer.bytes))],
      [` with its tokenizer, ${model.dimension} numbers per vector. Download: `],
      [bold(formatBytes(download + runtimeBytes))],
      [` in total, of which onnxruntime-web ${version} is ${formatBytes(runtimeBytes)}. `],
      ["Loaded and started in ", bold(`${seconds.toFixed(1)} s`), "."],
    ),
    paragraph([
      `${place[check.device]} The vectors of ${countSentences(count)} were computed `,
      "in advance; your query is encoded as you type. The number beside a sentence is its cosine similarity to the ",
      "query. It ranks the sentences and is not a probability. A small model makes mistakes, most often with ",
      "negations, numbers and names.",
    ]),
    paragraph([`${check.correct ? "Checked at the start" : "Results may be wrong in this browser"}: ${comparison}.`]),
  );
}

/** Show the nearest sentences, [{ row, cosine }], and how long the search took. */
export function showResults({ results, milliseconds, tokens }, { sentences, language, ...context }) {
  const searched = language ? sentences.filter((sentence) => sentence.language === language).length : sentences.length;
  const where = language ? ` in ${formatLanguage(language)}` : "";
  $("results-heading").textContent = `Nearest of ${countSentences(searched)}${where}`;
  $("announcement").textContent = results.length
    ? `${countSentences(results.length)} found. Nearest: ${sentences[results[0].row].text}`
    : "";
  $("results").replaceChildren(...results.map(({ row, cosine }) => resultItem(sentences[row], context, cosine)));
  $("error").hidden = true; // of an earlier search
  $("timing").replaceChildren(bold(formatMilliseconds(milliseconds)), ` for ${tokens} tokens`);
}

/** Show one sentence of each language, or several where one is chosen or there are not two. */
export function showSamples({ sentences, language, ...context }) {
  const { languages } = context.description ?? { languages: [] };
  const codes = language || languages.length < 2 ? Array(SAMPLES_OF_ONE_LANGUAGE).fill(language) : languages;
  // Number n of m samples is taken n / m of the way through its language, so that samples differ in content.
  const samples = codes.flatMap((code, number) => {
    const candidates = code ? sentences.filter((sentence) => sentence.language === code) : sentences;
    return candidates.length > number ? [candidates[Math.floor((number * candidates.length) / codes.length)]] : [];
  });
  $("results-heading").textContent = sentences.length ? `A sample of ${countSentences(sentences.length)}` : "";
  $("announcement").textContent = "";
  $("results").replaceChildren(...samples.map((sentence) => resultItem(sentence, context)));
  $("timing").replaceChildren();
}

/** Make a line of the list. Pressing it searches for its sentence. */
function resultItem({ language, text }, { description, search }, cosine) {
  const button = element("button", cosine === undefined ? "result sample" : "result");
  button.type = "button";
  button.title = "Search for this sentence";
  const number = description.languages.indexOf(language);
  button.style.setProperty("--hue", number < 0 ? 195 : (195 + number * 137.5) % 360); // the golden angle
  const sentence = element("span", "text", text);
  sentence.lang = language;
  sentence.dir = "auto";
  button.append(element("span", "language-name", formatLanguage(language)), sentence);
  if (cosine !== undefined) button.append(scoreBar(cosine));
  button.addEventListener("click", () => search(text));
  const item = element("li");
  item.append(button);
  return item;
}

function scoreBar(cosine) {
  const bar = element("span", "bar");
  bar.ariaHidden = "true";
  const filled = element("i");
  filled.style.setProperty("--share", Math.max(0, Math.min(1, cosine)).toFixed(3));
  bar.append(filled);
  const score = element("span", "score");
  score.append(bar, element("span", "hidden", "cosine "), element("span", "", cosine.toFixed(2)));
  return score;
}

function paragraph(...parts) {
  const made = element("p");
  made.append(...parts.flat());
  return made;
}

function bold(text) {
  return element("b", "", text);
}

function element(name, className = "", text = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}
