// What the page says of itself: languages, examples, and what is loaded and how large it is.

import { counted, megabytes, nameOf, worded } from "./words.js";

const $ = (id) => document.getElementById(id);

/** Show the languages and the examples. */
export function showDescription({ languages, examples }, { search, filter }) {
  const many = languages.length > 1;
  const what = many
    ? `Type in any of ${worded(languages.length)} languages: what means the same is found, whatever its language.`
    : "Type a sentence: what means the same is found, in other words, too.";
  $("lead").textContent = `${what} The model runs in this page: nothing that you type leaves it.`;
  $("found").classList.toggle("unnamed", !languages.length);
  $("examples").replaceChildren(...examples.map((example) => exampleOf(example, search)));
  $("tries").hidden = !examples.length;
  $("languages").replaceChildren(...["", ...languages].map((code) => choice(code, filter)));
  $("filter").hidden = !many;
}

function exampleOf({ language, text }, search) {
  const button = document.createElement("button");
  Object.assign(button, { type: "button", className: "example", lang: language, dir: "auto", textContent: text });
  button.addEventListener("click", () => search(text));
  return button;
}

function choice(code, filter) {
  const label = document.createElement("label");
  label.className = "language";
  const input = document.createElement("input");
  Object.assign(input, { type: "radio", name: "language", value: code, checked: !code });
  input.addEventListener("change", filter);
  const name = document.createElement("span");
  name.textContent = code ? nameOf(code) : "All";
  label.append(input, name);
  return label;
}

/** Say what was loaded, and whether it does here what it did where it was written. */
export function showFacts(described, seconds, check) {
  const { model, files, count, download, onnxruntime_web: version } = described;
  const graph = [files.graph, ...files.external].reduce((sum, { bytes }) => sum + bytes, 0);
  const size = megabytes(graph + files.tokenizer.bytes);
  $("facts").replaceChildren(
    line(
      ["Model ", [model.name], `, ${model.precision}: `, [size], " with its tokenizer, "],
      [`${model.dimension} numbers a sentence. Download: `, [megabytes(download)], " in all, of which onnxruntime-web "],
      [`${version} is ${megabytes(files.wasm.packed)}; loaded and started in `, [`${seconds.toFixed(1)} s`], "."],
    ),
    line([
      `Everything runs here, on one thread. The vectors of the ${counted(count)} sentences were made beforehand; that of `,
      "your query is made as you type. The number beside a sentence is the cosine of the two: it orders sentences and ",
      "is no probability. A small model errs, most of all over negations, numbers and names.",
    ]),
    line([checkText(check)]),
  );
}

function checkText({ same, of, cosine }) {
  const fine = same === of && cosine > 0.99;
  const what = `${same} of ${of} sentences have the same tokens as in Python, and the first has the same vector to a cosine of ${cosine.toFixed(4)}`;
  return fine ? `Checked at the start: ${what}.` : `Results may be wrong in this browser: ${what}.`;
}

/** Make a paragraph; what stands in a list of its own is bold. */
function line(...parts) {
  const paragraph = document.createElement("p");
  for (const part of parts.flat()) {
    if (!Array.isArray(part)) paragraph.append(part);
    else paragraph.append(Object.assign(document.createElement("b"), { textContent: part[0] }));
  }
  return paragraph;
}
