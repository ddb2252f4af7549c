// How languages, numbers and sizes are written.

const SMALL = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];
const names = new Intl.DisplayNames(["en"], { type: "language" });
const numbers = new Intl.NumberFormat("en");

/** Return a language's name in English. */
export function nameOf(code) {
  try {
    return code ? names.of(code) : "";
  } catch {
    return code;
  }
}

export function counted(number) {
  return numbers.format(number);
}

/** Write a small number as a word. */
export function worded(number) {
  return SMALL[number] ?? counted(number);
}

export function megabytes(bytes) {
  return `${(bytes / 1e6).toFixed(bytes < 1e6 ? 2 : 1)} MB`;
}

export function milliseconds(number) {
  return `${number < 10 ? number.toFixed(1) : number.toFixed(0)} ms`;
}
