// The encoder and the search, in a thread of their own, so that typing never waits for them.

import { fetchFile, fetchJson } from "./files.js";
import { OPTIONS, feedsOf, importRuntime, vectorsOf } from "./graph.js";
import { Nearest, unitOf } from "./nearest.js";
import { tokenizer } from "./tokenizer/tokenizer.js";

let encoder = null;
let nearest = null;
let sentences = [];

/** Text to a vector. */
class Encoder {
  constructor(ort, session, ids, model) {
    Object.assign(this, { ort, session, ids, model });
  }

  /** Return the token ids of a text; halves of surrogate pairs, which are no characters, count as ?. */
  tokens(text) {
    const found = this.ids(this.model.prefix + text.replace(/\p{Cs}/gu, "?"));
    return found.length ? found : [this.model.pad_token_id];
  }

  async vector(tokens) {
    const vectors = await vectorsOf(this.session, feedsOf(this.ort, this.session, [tokens], this.model.pad_token_id));
    return vectors.data;
  }
}

async function load() {
  const start = performance.now();
  const described = await fetchJson({ path: "demo.json" });
  postMessage({ kind: "described", described });
  const { files, model } = described;
  const [vectors, , tokens, wasm, graph, ...external] = await fetchAll(files);
  nearest = new Nearest(new Int8Array(vectors.buffer), model.dimension);
  const ids = tokenizer(parsed(tokens), model.max_tokens);
  const { session, ort } = await open(files, wasm, graph, external);
  encoder = new Encoder(ort, session, ids, model);
  const check = await checked(described);
  postMessage({ kind: "ready", seconds: (performance.now() - start) / 1000, check });
}

/** Fetch all that is large, side by side, and say how far it is. */
function fetchAll({ vectors, sentences: lines, tokenizer: tokens, wasm, graph, external }) {
  const all = [vectors, lines, tokens, wasm, graph, ...external];
  const total = all.reduce((sum, { packed }) => sum + packed, 0);
  let come = 0;
  const advance = (bytes) => {
    come = Math.min(total, come + bytes);
    postMessage({ kind: "progress", come, total });
  };
  return Promise.all(all.map((file) => fetchFile(file, advance).then(file === lines ? tell : (bytes) => bytes)));
}

/** Let the page show sentences while the rest is on its way. */
function tell(lines) {
  sentences = parsed(lines);
  postMessage({ kind: "sentences", sentences });
}

async function open({ script, external: named }, wasmBinary, graph, external) {
  const address = new URL(script.path, import.meta.url);
  const ort = await importRuntime(address.href, { wasmPaths: new URL(".", address).href, wasmBinary });
  const externalData = external.map((data, number) => ({ path: named[number].name, data }));
  const options = externalData.length ? { ...OPTIONS, externalData } : OPTIONS;
  return { ort, session: await ort.InferenceSession.create(graph, options) };
}

/** Compare token ids with those that Python found, and the first vector with the one that it wrote. */
async function checked({ checks }) {
  const same = checks.filter(({ text, ids }) => String(encoder.tokens(text)) === String(ids)).length;
  const vector = await encoder.vector(encoder.tokens(sentences[0].text));
  return { same, of: checks.length, cosine: nearest.cosine(0, unitOf(vector)) };
}

async function search({ number, text, language, most }) {
  const start = performance.now();
  const tokens = encoder.tokens(text);
  const vector = await encoder.vector(tokens);
  const counts = (row) => !language || sentences[row].language === language;
  const found = nearest.to(vector, most, counts);
  postMessage({ kind: "found", number, found, tokens: tokens.length, milliseconds: performance.now() - start });
}

function parsed(bytes) {
  return JSON.parse(new TextDecoder().decode(bytes));
}

async function answered(work) {
  try {
    await work();
  } catch (error) {
    postMessage({ kind: "trouble", text: String(error?.message || error) });
  }
}

onmessage = ({ data }) => answered(() => search(data));
answered(load);
