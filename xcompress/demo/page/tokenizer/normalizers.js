// The normalizers of tokenizer.json: functions from text to text.

const CONTROL = /[\p{Cc}\p{Cf}\p{Co}\0\uFFFD]/u;
const IDEOGRAPHS =
  /[\u4E00-\u9FFF\u3400-\u4DBF\u{20000}-\u{2A6DF}\u{2A700}-\u{2B73F}\u{2B740}-\u{2B81F}\u{2B920}-\u{2CEAF}\uF900-\uFAFF\u{2F800}-\u{2FA1F}]/gu;
const LONGEST_GRAPHEME = 6;
const encoder = new TextEncoder();
const decoder = new TextDecoder();
const graphemes = new Intl.Segmenter(undefined, { granularity: "grapheme" });

const normalizers = {
  Sequence: ({ normalizers: steps }) => chain(steps.map(createNormalizer)),
  Precompiled: ({ precompiled_charsmap: charsmap }) => (charsmap ? precompiled(charsmap) : identity),
  Replace: ({ pattern, content }) => {
    const regexp = createPattern(pattern);
    return (text) => text.replace(regexp, () => content);
  },
  Prepend: ({ prepend }) => (text) => (text ? prepend + text : text),
  Strip: ({ strip_left: left, strip_right: right }) => {
    const start = left ? /^\p{White_Space}+/u : /^(?!)/;
    const end = right ? /\p{White_Space}+$/u : /^(?!)/;
    return (text) => text.replace(start, "").replace(end, "");
  },
  Lowercase: () => lowercase,
  StripAccents: () => (text) => text.replace(/\p{M}/gu, ""),
  NFC: () => (text) => text.normalize("NFC"),
  NFD: () => (text) => text.normalize("NFD"),
  NFKC: () => (text) => text.normalize("NFKC"),
  NFKD: () => (text) => text.normalize("NFKD"),
  BertNormalizer: bert,
};

/** Make the function of a normalizer's configuration. */
export function createNormalizer(config) {
  if (!config) return identity;
  const create = normalizers[config.type];
  if (!create) throw new Error(`tokenizer.json: the normalizer ${config.type} is not supported`);
  return create(config);
}

/** Make a regular expression from a pattern of tokenizer.json: { String } or { Regex }. */
export function createPattern({ String: plain, Regex: regexp }) {
  return new RegExp(regexp ?? escapePattern(plain), "gu");
}

/** Escape text for use in a regular expression. */
export function escapePattern(text) {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
}

function identity(text) {
  return text;
}

function chain(steps) {
  return (text) => steps.reduce((result, step) => step(result), text);
}

/** Lowercase each character by itself, so that a sigma at the end of a word does not become a final sigma. */
function lowercase(text) {
  return Array.from(text, (character) => character.toLowerCase()).join("");
}

function bert({ clean_text: cleans, handle_chinese_chars: spaces, strip_accents: strips, lowercase: lowers }) {
  const steps = [];
  if (cleans) steps.push(cleanText);
  if (spaces) steps.push((text) => text.replace(IDEOGRAPHS, " $& "));
  if (strips ?? lowers) steps.push((text) => text.normalize("NFD").replace(/\p{Mn}/gu, ""));
  if (lowers) steps.push(lowercase);
  return chain(steps);
}

/** Remove control characters, and replace all white space by plain spaces. */
function cleanText(text) {
  const kept = Array.from(text, (character) => {
    if ("\t\n\r".includes(character)) return " ";
    if (CONTROL.test(character)) return "";
    return /\p{White_Space}/u.test(character) ? " " : character;
  });
  return kept.join("");
}

/**
 * Make the function of a character map of SentencePiece, which tokenizer.json holds in base64: the size of a
 * double-array trie in bytes, the trie, and the replacements, each ended by a zero byte.
 *
 * A short grapheme that the map has is replaced as a whole; all other text is replaced character by character.
 */
function precompiled(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const size = new DataView(bytes.buffer).getUint32(0, true);
  const trie = new Uint32Array(bytes.buffer.slice(4, 4 + size));
  const replacements = bytes.subarray(4 + size);
  return (text) => {
    let result = "";
    for (const { segment } of graphemes.segment(text)) {
      const whole = encoder.encode(segment);
      const replacement = whole.length < LONGEST_GRAPHEME ? findReplacement(trie, replacements, whole) : null;
      if (replacement !== null) result += replacement;
      else {
        for (const character of segment) {
          result += findReplacement(trie, replacements, encoder.encode(character)) ?? character;
        }
      }
    }
    return result;
  };
}

/** Return the replacement of the shortest trie entry that the bytes start with, or null. */
function findReplacement(trie, replacements, bytes) {
  let node = trieOffset(trie[0]);
  for (const byte of bytes) {
    if (byte === 0) return null;
    node ^= byte;
    const unit = trie[node];
    if ((unit & 0x800000ff) !== byte) return null;
    node ^= trieOffset(unit);
    if ((unit >>> 8) & 1) {
      const start = trie[node] & 0x7fffffff;
      return decoder.decode(replacements.subarray(start, replacements.indexOf(0, start)));
    }
  }
  return null;
}

function trieOffset(unit) {
  return (unit >>> 10) << ((unit & 0x200) >>> 6);
}
