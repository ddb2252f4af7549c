// The models of tokenizer.json: each is a function from one piece of text to token ids.

const encoder = new TextEncoder();
const PENALTY = 10;

const makers = { Unigram: unigram, WordPiece: wordPiece, BPE: bpe, WordLevel: wordLevel };

/** Make the function that a description stands for. */
export function model(described) {
  const kind = described.type ?? (Array.isArray(described.vocab) ? "Unigram" : described.merges ? "BPE" : "WordPiece");
  const make = makers[kind];
  if (!make) throw new Error(`tokenizer.json: the model ${kind} is not known here`);
  return make(described);
}

function wordLevel({ vocab, unk_token: unknown }) {
  const ids = new Map(Object.entries(vocab));
  return (text) => known([ids.get(text) ?? ids.get(unknown)]);
}

function known(ids) {
  return ids.filter((id) => id !== undefined);
}

/** Find the longest piece again and again from the left. */
function wordPiece({ vocab, unk_token: unknown, continuing_subword_prefix: prefix, max_input_chars_per_word: most }) {
  const ids = new Map(Object.entries(vocab));
  return (text) => {
    const letters = Array.from(text);
    if (letters.length > most) return known([ids.get(unknown)]);
    const found = [];
    for (let start = 0, end; start < letters.length; start = end) {
      const lead = start ? prefix : "";
      for (end = letters.length; end > start; end -= 1) {
        if (ids.has(lead + letters.slice(start, end).join(""))) break;
      }
      if (end === start) return known([ids.get(unknown)]);
      found.push(ids.get(lead + letters.slice(start, end).join("")));
    }
    return found;
  };
}

/** Find the pieces with the highest sum of scores; what no piece covers is unknown, and neighbours of it one token. */
function unigram({ vocab, unk_id: unknown, byte_fallback: fallback }) {
  const ids = new Map();
  let [lowest, longest] = [Infinity, 1];
  for (const [id, [piece, score]] of vocab.entries()) {
    ids.set(piece, id);
    lowest = Math.min(lowest, score);
    longest = Math.max(longest, piece.length);
  }
  const scoreOf = (id) => vocab[id][1];
  const unit = { id: unknown ?? undefined, score: lowest - PENALTY };
  const bytes = (part) => (fallback ? byteIds(ids, part) : undefined);
  const idsOf = (part) => (ids.has(part) ? [ids.get(part)] : (bytes(part) ?? known([unit.id])));
  return (text) => parts(text, bestPath(text, ids, scoreOf, longest, unit)).flatMap(idsOf);
}

/** Return, for every place in the text, the last step of the best way there. */
function bestPath(text, ids, scoreOf, longest, unit) {
  const steps = Array.from({ length: text.length + 1 }, () => null);
  steps[0] = { score: 0 };
  for (let start = 0, width; start < text.length; start += width) {
    width = text.codePointAt(start) > 0xffff ? 2 : 1;
    const base = steps[start].score;
    let covered = false;
    for (let end = start + width; end <= Math.min(text.length, start + longest); end += 1) {
      const id = ids.get(text.slice(start, end));
      if (id === undefined) continue;
      improve(steps, end, { start, id, score: base + scoreOf(id) });
      covered ||= end === start + width;
    }
    if (!covered) improve(steps, start + width, { start, id: unit.id, score: base + unit.score });
  }
  return steps.map((step) => ({ ...step, unknown: step?.id === unit.id }));
}

function improve(steps, end, step) {
  if (!steps[end] || step.score > steps[end].score) steps[end] = step;
}

/** Cut the text at the steps of the best way; unknown characters side by side become one part. */
function parts(text, steps) {
  const found = [];
  let fused = "";
  for (let end = text.length; end > 0; end = steps[end].start) {
    const part = text.slice(steps[end].start, end);
    if (steps[end].unknown) {
      fused = part + fused;
      continue;
    }
    if (fused) found.push(fused);
    fused = "";
    found.push(part);
  }
  if (fused) found.push(fused);
  return found.reverse();
}

/** Return the ids of the pieces that stand for a text's bytes, or nothing where one of them is missing. */
function byteIds(ids, text) {
  const found = Array.from(encoder.encode(text), (byte) =>
    ids.get(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`),
  );
  return found.includes(undefined) ? undefined : found;
}

/** Join the neighbours whose merge comes first in the list, until none is left to join. */
function bpe(described) {
  const ids = new Map(Object.entries(described.vocab));
  const ranks = new Map();
  for (const [rank, merge] of described.merges.entries()) {
    const pair = Array.isArray(merge) ? merge : merge.split(" ");
    ranks.set(pair.join("\u0000"), rank);
  }
  const prefix = described.continuing_subword_prefix ?? "";
  return (text) => {
    if (described.ignore_merges && ids.has(text)) return [ids.get(text)];
    return merged(symbols(text, ids, described), ranks, prefix).map((symbol) => symbol.id ?? ids.get(symbol.text));
  };
}

/** Split a word into its characters, or the bytes of those that are no piece, or unknown tokens. */
function symbols(text, ids, { continuing_subword_prefix: prefix, end_of_word_suffix: suffix, ...options }) {
  const { unk_token: unknown, byte_fallback: fallback, fuse_unk: fuses } = options;
  const letters = Array.from(text);
  const found = [];
  letters.forEach((letter, number) => {
    const lead = number ? prefix ?? "" : "";
    const tail = number === letters.length - 1 ? suffix ?? "" : "";
    const piece = lead + letter + tail;
    const bytes = fallback && !ids.has(piece) ? byteIds(ids, letter) : undefined;
    if (ids.has(piece)) found.push({ text: piece });
    else if (bytes) bytes.forEach((id) => found.push({ text: "", id }));
    else if (unknown && !(fuses && found.at(-1)?.unknown)) found.push({ text: "", id: ids.get(unknown), unknown: true });
  });
  return found;
}

function merged(found, ranks, prefix) {
  const rankAt = (place) => ranks.get(`${found[place].text}\u0000${found[place + 1].text}`) ?? Infinity;
  for (;;) {
    let [best, rank] = [-1, Infinity];
    for (let place = 0; place + 1 < found.length; place += 1) {
      if (rankAt(place) < rank) [best, rank] = [place, rankAt(place)];
    }
    if (best < 0) return found;
    const text = found[best].text + found[best + 1].text.slice(prefix.length);
    found.splice(best, 2, { text });
  }
}
