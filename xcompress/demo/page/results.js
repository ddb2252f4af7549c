// The list: the nearest sentences, or some of all where nothing is asked.

import { counted, nameOf } from "./words.js";

const list = document.getElementById("found");
const head = document.getElementById("found-head");
const told = document.getElementById("told");

/** Show what is nearest. */
export function showFound({ found }, shown) {
  const { sentences, language } = shown;
  const among = language ? sentences.filter((one) => one.language === language).length : sentences.length;
  const where = language ? ` in ${nameOf(language)}` : "";
  head.textContent = `Nearest of ${counted(among)} sentences${where}`;
  told.textContent = found.length ? `${found.length} sentences found. Nearest: ${sentences[found[0].row].text}` : "";
  list.replaceChildren(...found.map(({ row, cosine }) => item(sentences[row], shown, cosine)));
}

/** Show a sentence of each language, or some of one language. */
export function showSome(shown) {
  const { sentences, language, described } = shown;
  head.textContent = sentences.length ? `Some of ${counted(sentences.length)} sentences` : "";
  told.textContent = "";
  list.replaceChildren(...some(sentences, language, described?.languages ?? []).map((one) => item(one, shown)));
}

function some(sentences, language, languages) {
  const codes = language || !languages.length ? Array(8).fill(language) : languages;
  return codes.flatMap((code, number) => {
    const own = code ? sentences.filter((one) => one.language === code) : sentences;
    return own.length > number ? [own[Math.floor((number * own.length) / codes.length)]] : [];
  });
}

/** Make one line of the list; pressed, it becomes the query. */
function item({ language, text }, { described, search }, cosine) {
  const button = element("button", cosine === undefined ? "result bare" : "result");
  button.type = "button";
  button.title = "Search for this sentence";
  const place = described.languages.indexOf(language);
  button.style.setProperty("--hue", place < 0 ? 195 : (195 + place * 137.5) % 360);
  const line = element("span", "text", text);
  line.lang = language;
  line.dir = "auto";
  button.append(element("span", "named", nameOf(language)), line);
  if (cosine !== undefined) button.append(score(cosine));
  button.addEventListener("click", () => search(text));
  const entry = element("li");
  entry.append(button);
  return entry;
}

function score(cosine) {
  const bar = element("span", "bar");
  bar.ariaHidden = "true";
  const filled = element("i");
  filled.style.setProperty("--share", Math.max(0, Math.min(1, cosine)).toFixed(3));
  bar.append(filled);
  const both = element("span", "score");
  both.append(bar, element("span", "hidden", "cosine "), element("span", "", cosine.toFixed(2)));
  return both;
}

function element(name, kind = "", text = "") {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  if (text) made.textContent = text;
  return made;
}
