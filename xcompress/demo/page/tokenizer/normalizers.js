// The normalizers of tokenizer.json: each is a function from text to text.

import { charsmap } from "./charsmap.js";

const CONTROL = /[\p{Cc}\p{Cf}\p{Co}\0\uFFFD]/u;
const IDEOGRAPHS =
  /[\u4E00-\u9FFF\u3400-\u4DBF\u{20000}-\u{2A6DF}\u{2A700}-\u{2B73F}\u{2B740}-\u{2B81F}\u{2B920}-\u{2CEAF}\uF900-\uFAFF\u{2F800}-\u{2FA1F}]/gu;

const makers = {
  Sequence: ({ normalizers }) => chain(normalizers.map(normalizer)),
  Precompiled: ({ precompiled_charsmap: map }) => (map ? charsmap(map) : same),
  Replace: ({ pattern, content }) => replacing(pattern, content),
  Prepend: ({ prepend }) => (text) => (text ? prepend + text : text),
  Strip: ({ strip_left: left, strip_right: right }) => stripping(left, right),
  Lowercase: () => lowercase,
  StripAccents: () => (text) => text.replace(/\p{M}/gu, ""),
  NFC: () => (text) => text.normalize("NFC"),
  NFD: () => (text) => text.normalize("NFD"),
  NFKC: () => (text) => text.normalize("NFKC"),
  NFKD: () => (text) => text.normalize("NFKD"),
  BertNormalizer: bert,
};

/** Make the function that a description stands for. */
export function normalizer(described) {
  if (!described) return same;
  const make = makers[described.type];
  if (!make) throw new Error(`tokenizer.json: the normalizer ${described.type} is not known here`);
  return make(described);
}

/** Make a regular expression of a pattern of tokenizer.json: { String } or { Regex }. */
export function patternOf({ String: plain, Regex: expression }) {
  return new RegExp(expression ?? escaped(plain), "gu");
}

/** Write text so that a regular expression means just that text. */
export function escaped(text) {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
}

function same(text) {
  return text;
}

function chain(steps) {
  return (text) => steps.reduce((result, step) => step(result), text);
}

function replacing(pattern, content) {
  const matched = patternOf(pattern);
  return (text) => text.replace(matched, () => content);
}

function stripping(left, right) {
  const start = left ? /^\p{White_Space}+/u : /^(?!)/;
  const end = right ? /\p{White_Space}+$/u : /^(?!)/;
  return (text) => text.replace(start, "").replace(end, "");
}

/** Lower each character by itself: a sigma at the end of a word stays an ordinary one. */
function lowercase(text) {
  return Array.from(text, (letter) => letter.toLowerCase()).join("");
}

function bert({ clean_text: cleans, handle_chinese_chars: parts, strip_accents: strips, lowercase: lowers }) {
  const steps = [];
  if (cleans) steps.push(clean);
  if (parts) steps.push((text) => text.replace(IDEOGRAPHS, " $& "));
  if (strips ?? lowers) steps.push((text) => text.normalize("NFD").replace(/\p{Mn}/gu, ""));
  if (lowers) steps.push(lowercase);
  return chain(steps);
}

/** Drop control characters, and make a plain space of any other. */
function clean(text) {
  const kept = Array.from(text, (letter) => {
    if ("\t\n\r".includes(letter)) return " ";
    if (CONTROL.test(letter)) return "";
    return /\p{White_Space}/u.test(letter) ? " " : letter;
  });
  return kept.join("");
}
