// SentencePiece's own table of characters and what stands for them, as tokenizer.json carries it in base64:
// the length of a double-array trie in bytes, the trie, and the replacements, each ended by a zero byte.

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const graphemes = new Intl.Segmenter(undefined, { granularity: "grapheme" });
const LONGEST_GRAPHEME = 6;

/** Return a function that replaces characters as the table says. */
export function charsmap(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const size = new DataView(bytes.buffer).getUint32(0, true);
  const trie = new Uint32Array(bytes.buffer.slice(4, 4 + size));
  const texts = bytes.subarray(4 + size);
  return (text) => replaced(text, (part) => replacement(trie, texts, part));
}

/** Replace graphemes of a few bytes as a whole where the table has them, and all else character by character. */
function replaced(text, find) {
  let result = "";
  for (const { segment } of graphemes.segment(text)) {
    const whole = encoder.encode(segment);
    const found = whole.length < LONGEST_GRAPHEME ? find(whole) : null;
    if (found !== null) result += found;
    else for (const letter of segment) result += find(encoder.encode(letter)) ?? letter;
  }
  return result;
}

/** Return what stands for the shortest entry that the bytes begin with, or null. */
function replacement(trie, texts, bytes) {
  let place = offset(trie[0]);
  for (const byte of bytes) {
    if (byte === 0) return null;
    place ^= byte;
    const unit = trie[place];
    if ((unit & 0x800000ff) !== byte) return null;
    place ^= offset(unit);
    if ((unit >>> 8) & 1) return textAt(texts, trie[place] & 0x7fffffff);
  }
  return null;
}

function offset(unit) {
  return (unit >>> 10) << ((unit & 0x200) >>> 6);
}

function textAt(texts, start) {
  return decoder.decode(texts.subarray(start, texts.indexOf(0, start)));
}
