// The models of tokenizer.json: functions from one split of a text to token ids.

const encoder = new TextEncoder();
const UNKNOWN_PENALTY = 10; // an unknown character scores this much less than the worst token

const models = { Unigram: unigram, WordPiece: wordPiece, BPE: bpe, WordLevel: wordLevel };

/** Make the function of a model's configuration. */
export function createModel(config) {
  const type = config.type ?? (Array.isArray(config.vocab) ? "Unigram" : config.merges ? "BPE" : "WordPiece");
  const create = models[type];
  if (!create) throw new Error(`tokenizer.json: the model ${type} is not supported`);
  return create(config);
}

function wordLevel({ vocab, unk_token: unknown }) {
  const ids = new Map(Object.entries(vocab));
  return (text) => defined([ids.get(text) ?? ids.get(unknown)]);
}

function defined(ids) {
  return ids.filter((id) => id !== undefined);
}

/** Take the longest token again and again, from the left. */
function wordPiece({ vocab, unk_token: unknown, continuing_subword_prefix: prefix, max_input_chars_per_word: longest }) {
  const ids = new Map(Object.entries(vocab));
  return (text) => {
    const characters = Array.from(text);
    if (characters.length > longest) return defined([ids.get(unknown)]);
    const result = [];
    for (let start = 0, end; start < characters.length; start = end) {
      const lead = start ? prefix : "";
      for (end = characters.length; end > start; end -= 1) {
        if (ids.has(lead + characters.slice(start, end).join(""))) break;
      }
      if (end === start) return defined([ids.get(unknown)]);
      result.push(ids.get(lead + characters.slice(start, end).join("")));
    }
    return result;
  };
}

/** Take the tokens with the highest sum of scores (Viterbi). Adjacent unknown characters become one token. */
function unigram({ vocab, unk_id: unknownId, byte_fallback: byteFallback }) {
  const ids = new Map();
  let [lowest, longest] = [Infinity, 1];
  for (const [id, [token, score]] of vocab.entries()) {
    ids.set(token, id);
    lowest = Math.min(lowest, score);
    longest = Math.max(longest, token.length);
  }
  const scoreOf = (id) => vocab[id][1];
  const unknown = { id: unknownId ?? undefined, score: lowest - UNKNOWN_PENALTY };
  const fallback = (text) => (byteFallback ? byteIds(ids, text) : undefined);
  const idsOf = (text) => (ids.has(text) ? [ids.get(text)] : (fallback(text) ?? defined([unknown.id])));
  return (text) => splitAt(text, bestPath(text, ids, scoreOf, longest, unknown)).flatMap(idsOf);
}

/** Return, for every position in the text, the last step of the best path to it. */
function bestPath(text, ids, scoreOf, longest, unknown) {
  const steps = Array.from({ length: text.length + 1 }, () => null);
  const improve = (end, step) => {
    if (!steps[end] || step.score > steps[end].score) steps[end] = step;
  };
  steps[0] = { score: 0 };
  for (let start = 0, width; start < text.length; start += width) {
    width = text.codePointAt(start) > 0xffff ? 2 : 1;
    const base = steps[start].score;
    let covered = false;
    for (let end = start + width; end <= Math.min(text.length, start + longest); end += 1) {
      const id = ids.get(text.slice(start, end));
      if (id === undefined) continue;
      improve(end, { start, id, score: base + scoreOf(id) });
      covered ||= end === start + width;
    }
    if (!covered) improve(start + width, { start, id: unknown.id, score: base + unknown.score });
  }
  return steps.map((step) => ({ ...step, unknown: step?.id === unknown.id }));
}

/** Split the text at the steps of the best path; adjacent unknown characters stay together. */
function splitAt(text, steps) {
  const tokens = [];
  let fused = "";
  for (let end = text.length; end > 0; end = steps[end].start) {
    const token = text.slice(steps[end].start, end);
    if (steps[end].unknown) {
      fused = token + fused;
      continue;
    }
    if (fused) tokens.push(fused);
    fused = "";
    tokens.push(token);
  }
  if (fused) tokens.push(fused);
  return tokens.reverse();
}

/** Return the ids of the tokens for a text's bytes, or undefined if one of them is missing. */
function byteIds(ids, text) {
  const result = Array.from(encoder.encode(text), (byte) =>
    ids.get(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`),
  );
  return result.includes(undefined) ? undefined : result;
}

/** Merge the pair of neighbours that comes first in the list of merges, until none is left. */
function bpe(config) {
  const ids = new Map(Object.entries(config.vocab));
  const ranks = new Map();
  for (const [rank, merge] of config.merges.entries()) {
    const pair = Array.isArray(merge) ? merge : merge.split(" ");
    ranks.set(pair.join("\u0000"), rank);
  }
  const prefix = config.continuing_subword_prefix ?? "";
  return (text) => {
    if (config.ignore_merges && ids.has(text)) return [ids.get(text)];
    const symbols = mergeSymbols(splitIntoSymbols(text, ids, config), ranks, prefix);
    return symbols.map((symbol) => symbol.id ?? ids.get(symbol.text));
  };
}

/** Split a word into characters. One that is not in the vocabulary becomes its bytes, or the unknown token. */
function splitIntoSymbols(text, ids, { continuing_subword_prefix: prefix, end_of_word_suffix: suffix, ...options }) {
  const { unk_token: unknown, byte_fallback: byteFallback, fuse_unk: fusesUnknown } = options;
  const characters = Array.from(text);
  const symbols = [];
  characters.forEach((character, number) => {
    const lead = number ? prefix ?? "" : "";
    const tail = number === characters.length - 1 ? suffix ?? "" : "";
    const token = lead + character + tail;
    const bytes = byteFallback && !ids.has(token) ? byteIds(ids, character) : undefined;
    if (ids.has(token)) symbols.push({ text: token });
    else if (bytes) bytes.forEach((id) => symbols.push({ text: "", id }));
    else if (unknown && !(fusesUnknown && symbols.at(-1)?.unknown)) {
      symbols.push({ text: "", id: ids.get(unknown), unknown: true });
    }
  });
  return symbols;
}

function mergeSymbols(symbols, ranks, prefix) {
  const rankAt = (position) => ranks.get(`${symbols[position].text}\u0000${symbols[position + 1].text}`) ?? Infinity;
  for (;;) {
    let [best, rank] = [-1, Infinity];
    for (let position = 0; position + 1 < symbols.length; position += 1) {
      if (rankAt(position) < rank) [best, rank] = [position, rankAt(position)];
    }
    if (best < 0) return symbols;
    const text = symbols[best].text + symbols[best + 1].text.slice(prefix.length);
    symbols.splice(best, 2, { text });
  }
}
