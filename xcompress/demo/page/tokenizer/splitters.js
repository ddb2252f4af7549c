// The pre-tokenizers of tokenizer.json: each is a function from pieces of text to smaller pieces.

import { patternOf } from "./normalizers.js";

const SPACE = /\p{White_Space}/gu;
const PUNCTUATION = /[\p{P}$+<=>^`|~]/gu;
const BYTE_WORDS = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;
const WORD = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\u200c\\u200d";
const WORDS = new RegExp(`[${WORD}]+|[^${WORD}\\p{White_Space}]+`, "gu");
const encoder = new TextEncoder();
const LETTERS = byteLetters();

const makers = {
  Sequence: ({ pretokenizers }) => {
    const steps = pretokenizers.map(splitter);
    return (pieces) => steps.reduce((result, step) => step(result), pieces);
  },
  Whitespace: () => each((text) => text.match(WORDS) ?? []),
  WhitespaceSplit: () => each((text) => parted(text, SPACE, "Removed")),
  BertPreTokenizer: () =>
    each((text) => parted(text, SPACE, "Removed").flatMap((word) => parted(word, PUNCTUATION, "Isolated"))),
  Punctuation: ({ behavior }) => each((text) => parted(text, PUNCTUATION, behavior ?? "Isolated")),
  Digits: ({ individual_digits: single }) => each((text) => parted(text, single ? /\p{N}/gu : /\p{N}+/gu, "Isolated")),
  Split: ({ pattern, behavior, invert }) => {
    const matched = patternOf(pattern);
    return each((text) => parted(text, matched, behavior, invert));
  },
  Metaspace: metaspace,
  ByteLevel: byteLevel,
};

/** Make the function that a description stands for. */
export function splitter(described) {
  if (!described) return (pieces) => pieces;
  const make = makers[described.type];
  if (!make) throw new Error(`tokenizer.json: the pre-tokenizer ${described.type} is not known here`);
  return make(described);
}

function each(split) {
  return (pieces) => pieces.flatMap(({ text, first }) => marked(split(text), first));
}

/** Note which piece begins the text; empty ones are dropped. */
function marked(texts, first) {
  return texts.filter(Boolean).map((text, number) => ({ text, first: first && number === 0 }));
}

/** Split text at what matches; what becomes of the matches is told as tokenizer.json tells it. */
function parted(text, matched, behavior, invert = false) {
  const spans = [];
  let end = 0;
  for (const match of text.matchAll(matched)) {
    if (match.index > end) spans.push([text.slice(end, match.index), invert]);
    if (match[0]) spans.push([match[0], !invert]);
    end = match.index + match[0].length;
  }
  if (end < text.length) spans.push([text.slice(end), invert]);
  return joined(spans, behavior);
}

const joins = {
  Removed: () => false,
  Isolated: () => false,
  Contiguous: ([, before], [, now]) => before === now,
  MergedWithPrevious: ([, before], [, now]) => now && !before,
  MergedWithNext: ([, before], [, now]) => before && !now,
};

function joined(spans, behavior) {
  const join = joins[behavior];
  if (!join) throw new Error(`tokenizer.json: the split ${behavior} is not known here`);
  const result = [];
  let before = null;
  for (const span of spans) {
    if (before && join(before, span)) result[result.length - 1] += span[0];
    else if (behavior !== "Removed" || !span[1]) result.push(span[0]);
    before = span;
  }
  return result;
}

/** Write spaces as a visible sign, put one in front, and begin a piece at each. */
function metaspace({ replacement, prepend_scheme: scheme, add_prefix_space: legacy, split = true }) {
  const when = scheme ?? (legacy === false ? "never" : "always");
  const begins = new RegExp(`(?=${replacement})`, "u");
  return (pieces) =>
    pieces.flatMap(({ text, first }) => {
      const spaced = text.replaceAll(" ", replacement);
      const prepends = text && (when === "always" || (when === "first" && first)) && !spaced.startsWith(replacement);
      const whole = (prepends ? replacement : "") + spaced;
      return marked(split ? whole.split(begins) : [whole], first);
    });
}

/** Write each byte as a letter of its own. */
function byteLevel({ add_prefix_space: prepends, use_regex: splits = true }) {
  return each((text) => {
    const whole = prepends && !text.startsWith(" ") ? ` ${text}` : text;
    const words = splits ? whole.match(BYTE_WORDS) ?? [] : [whole];
    return words.map((word) => Array.from(encoder.encode(word), (byte) => LETTERS[byte]).join(""));
  });
}

function byteLetters() {
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => {
    const printable = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    return String.fromCharCode(printable ? byte : next++);
  });
}
