// Languages, numbers and sizes as text.

const WORDS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];
const languageNames = new Intl.DisplayNames(["en"], { type: "language" });
const numberFormat = new Intl.NumberFormat("en");

/** Return the English name of a language code. */
export function formatLanguage(code) {
  try {
    return code ? languageNames.of(code) : "";
  } catch {
    return code;
  }
}

function formatNumber(number) {
  return numberFormat.format(number);
}

/** Write a small number as a word. */
export function spellNumber(number) {
  return WORDS[number] ?? formatNumber(number);
}

export function countSentences(number) {
  return number === 1 ? "1 sentence" : `${formatNumber(number)} sentences`;
}

export function formatBytes(bytes) {
  return `${(bytes / 1e6).toFixed(bytes < 1e6 ? 2 : 1)} MB`;
}

export function formatMilliseconds(milliseconds) {
  return `${milliseconds < 10 ? milliseconds.toFixed(1) : milliseconds.toFixed(0)} ms`;
}
