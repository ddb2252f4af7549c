// The pre-tokenizers of tokenizer.json: functions from splits of a text, [{ text, first }], to smaller splits.
// `first` marks the split at the start of the text.

import { createPattern } from "./normalizers.js";

const SPACE = /\p{White_Space}/gu;
const PUNCTUATION = /[\p{P}$+<=>^`|~]/gu;
const GPT2_WORDS = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;
const WORD = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\u200c\\u200d";
const WORDS = new RegExp(`[${WORD}]+|[^${WORD}\\p{White_Space}]+`, "gu");
const encoder = new TextEncoder();
const BYTE_LETTERS = byteLetters();

const preTokenizers = {
  Sequence: ({ pretokenizers }) => {
    const steps = pretokenizers.map(createPreTokenizer);
    return (splits) => steps.reduce((result, step) => step(result), splits);
  },
  Whitespace: () => each((text) => text.match(WORDS) ?? []),
  WhitespaceSplit: () => each((text) => splitText(text, SPACE, "Removed")),
  BertPreTokenizer: () =>
    each((text) => splitText(text, SPACE, "Removed").flatMap((word) => splitText(word, PUNCTUATION, "Isolated"))),
  Punctuation: ({ behavior }) => each((text) => splitText(text, PUNCTUATION, behavior ?? "Isolated")),
  Digits: ({ individual_digits: single }) =>
    each((text) => splitText(text, single ? /\p{N}/gu : /\p{N}+/gu, "Isolated")),
  Split: ({ pattern, behavior, invert }) => {
    const regexp = createPattern(pattern);
    return each((text) => splitText(text, regexp, behavior, invert));
  },
  Metaspace: metaspace,
  ByteLevel: byteLevel,
};

/** Make the function of a pre-tokenizer's configuration. */
export function createPreTokenizer(config) {
  if (!config) return (splits) => splits;
  const create = preTokenizers[config.type];
  if (!create) throw new Error(`tokenizer.json: the pre-tokenizer ${config.type} is not supported`);
  return create(config);
}

function each(split) {
  return (splits) => splits.flatMap(({ text, first }) => markFirst(split(text), first));
}

/** Drop empty texts and mark the one that starts the whole text. */
function markFirst(texts, first) {
  return texts.filter(Boolean).map((text, number) => ({ text, first: first && number === 0 }));
}

const joins = {
  Removed: () => false,
  Isolated: () => false,
  Contiguous: ([, previous], [, current]) => previous === current,
  MergedWithPrevious: ([, previous], [, current]) => current && !previous,
  MergedWithNext: ([, previous], [, current]) => previous && !current,
};

/** Split text at the matches of a pattern; `behavior` says what becomes of the matches, as in `tokenizers`. */
function splitText(text, pattern, behavior, invert = false) {
  const spans = []; // [text, whether it is a separator]
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > end) spans.push([text.slice(end, match.index), invert]);
    if (match[0]) spans.push([match[0], !invert]);
    end = match.index + match[0].length;
  }
  if (end < text.length) spans.push([text.slice(end), invert]);

  const join = joins[behavior];
  if (!join) throw new Error(`tokenizer.json: the split behavior ${behavior} is not supported`);
  const texts = [];
  let previous = null;
  for (const span of spans) {
    if (previous && join(previous, span)) texts[texts.length - 1] += span[0];
    else if (behavior !== "Removed" || !span[1]) texts.push(span[0]);
    previous = span;
  }
  return texts;
}

/** Replace spaces by a visible character, put one in front, and split before each. */
function metaspace({ replacement, prepend_scheme: scheme, add_prefix_space: legacy, split = true }) {
  const when = scheme ?? (legacy === false ? "never" : "always");
  const boundary = new RegExp(`(?=${replacement})`, "u");
  return (splits) =>
    splits.flatMap(({ text, first }) => {
      const replaced = text.replaceAll(" ", replacement);
      const prepends = text && (when === "always" || (when === "first" && first)) && !replaced.startsWith(replacement);
      const whole = (prepends ? replacement : "") + replaced;
      return markFirst(split ? whole.split(boundary) : [whole], first);
    });
}

/** Write each byte as one letter, as GPT-2 does. */
function byteLevel({ add_prefix_space: prepends, use_regex: splits = true }) {
  return each((text) => {
    const whole = prepends && !text.startsWith(" ") ? ` ${text}` : text;
    const words = splits ? whole.match(GPT2_WORDS) ?? [] : [whole];
    return words.map((word) => Array.from(encoder.encode(word), (byte) => BYTE_LETTERS[byte]).join(""));
  });
}

function byteLetters() {
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => {
    const printable = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    return String.fromCharCode(printable ? byte : next++);
  });
}
