// Text to token ids in the browser, as tokenizer.json describes it: added tokens, normalizer, pre-tokenizer, model, and
// the special tokens around. The ids are those of the Python package `tokenizers`.

import { model } from "./models.js";
import { escaped, normalizer } from "./normalizers.js";
import { splitter } from "./splitters.js";

const WORD = "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}]";

/**
 * Make a function from text to token ids.
 *
 * @param {object} described - what tokenizer.json holds.
 * @param {number} most - tokens of a text, special ones included; what is longer loses its end.
 */
export function tokenizer(described, most) {
  const [normalize, split, idsOf] = [
    normalizer(described.normalizer),
    splitter(described.pre_tokenizer),
    model(described.model),
  ];
  const added = described.added_tokens ?? [];
  const raw = finder(added.filter((token) => !token.normalized));
  const late = finder(added.filter((token) => token.normalized).map((token) => normalized(token, normalize)));
  const { before, after } = around(described.post_processor);
  const pieceIds = (piece) => {
    if (piece.id !== undefined) return [piece.id];
    return split([piece]).flatMap(({ text }) => idsOf(text));
  };
  return (text) => {
    const pieces = raw({ text, first: true })
      .map((piece) => (piece.id === undefined ? { ...piece, text: normalize(piece.text) } : piece))
      .flatMap((piece) => (piece.id === undefined ? late(piece) : [piece]));
    const ids = pieces.flatMap(pieceIds).slice(0, most - before.length - after.length);
    return [...before, ...ids, ...after];
  };
}

function normalized(token, normalize) {
  return { ...token, content: normalize(token.content) };
}

/** Make a function that cuts a piece { text, first } at added tokens, which become { id }. */
function finder(tokens) {
  if (!tokens.length) return (piece) => [piece];
  const longestFirst = tokens.toSorted((left, right) => right.content.length - left.content.length);
  const matched = new RegExp(longestFirst.map(expression).join("|"), "gu");
  return ({ text, first }) => {
    const pieces = [];
    let end = 0;
    const keep = (stop) => {
      if (stop > end) pieces.push({ text: text.slice(end, stop), first: first && end === 0 });
    };
    for (const match of text.matchAll(matched)) {
      keep(match.index);
      pieces.push({ id: longestFirst.find((_, number) => match[number + 1] !== undefined).id });
      end = match.index + match[0].length;
    }
    keep(text.length);
    return pieces;
  };
}

/** Write a token as a group of an expression, with the spaces that it swallows. */
function expression({ content, single_word: single, lstrip, rstrip }) {
  const [lead, tail] = single ? [`(?<!${WORD})`, `(?!${WORD})`] : ["", ""];
  const space = "\\p{White_Space}*";
  return `${lstrip ? space : ""}${lead}(${escaped(content)})${tail}${rstrip ? space : ""}`;
}

/** Return the ids that stand before and after those of a text. */
function around(described) {
  const make = processors[described?.type ?? "None"];
  if (!make) throw new Error(`tokenizer.json: the post-processor ${described.type} is not known here`);
  return make(described);
}

const none = () => ({ before: [], after: [] });
const pair = ({ cls, sep }) => ({ before: [cls[1]], after: [sep[1]] });
const processors = {
  None: none,
  ByteLevel: none,
  BertProcessing: pair,
  RobertaProcessing: pair,
  TemplateProcessing: ({ single, special_tokens: special }) => {
    const text = single.findIndex((part) => part.Sequence);
    const idsOf = (parts) => parts.flatMap((part) => special[part.SpecialToken.id].ids);
    return { before: idsOf(single.slice(0, text)), after: idsOf(single.slice(text + 1)) };
  },
  Sequence: ({ processors: all }) => {
    const each = all.map(around);
    return {
      before: each.toReversed().flatMap(({ before }) => before),
      after: each.flatMap(({ after }) => after),
    };
  },
};
