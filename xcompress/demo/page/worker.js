// Load the model and search, in a thread of its own, so that typing never waits.

import { OPTIONS, feedsOf, importRuntime, vectorsOf } from "./graph.js";
import { createTokenizer } from "./tokenizer/tokenizer.js";

let encoder = null;
let index = null;
let sentences = [];

/** Text to vectors: the tokenizer and the graph of a bundle. */
class Encoder {
  constructor(ort, session, tokenize, model) {
    Object.assign(this, { ort, session, tokenize, model });
  }

  /** Return the token ids of a text. Unpaired surrogates, which are not characters, become ?, as in Python. */
  tokenIds(text) {
    const ids = this.tokenize(this.model.prefix + text.replace(/\p{Cs}/gu, "?"));
    return ids.length ? ids : [this.model.pad_token_id];
  }

  async vector(ids) {
    const vectors = await vectorsOf(this.session, feedsOf(this.ort, this.session, [ids], this.model.pad_token_id));
    return vectors.data;
  }
}

/** The vectors of the sentences, int8 (n, D). Each row has its own scale, which does not change a cosine. */
class VectorIndex {
  constructor(values, dimension) {
    this.rows = Array.from({ length: values.length / dimension }, (_, row) =>
      values.subarray(row * dimension, (row + 1) * dimension),
    );
    this.lengths = Float32Array.from(this.rows, (row) => Math.hypot(...row) || 1);
  }

  /** Return the cosine of one row and a vector of length 1. */
  cosine(row, unit) {
    const values = this.rows[row];
    let sum = 0;
    for (let column = 0; column < values.length; column += 1) sum += values[column] * unit[column];
    return sum / this.lengths[row];
  }

  /** Return the rows nearest to a vector of length 1, as { row, cosine }, among those that `accepts` accepts. */
  nearest(unit, count, accepts) {
    const results = [];
    for (let row = 0; row < this.rows.length; row += 1) {
      if (accepts(row)) results.push({ row, cosine: this.cosine(row, unit) });
    }
    return results.sort((left, right) => right.cosine - left.cosine).slice(0, count);
  }
}

function normalize(vector) {
  const length = Math.hypot(...vector) || 1;
  return vector.map((number) => number / length);
}

async function load() {
  const start = performance.now();
  const description = parseJson(await fetchFile({ path: "demo.json" }));
  postMessage({ kind: "description", description });
  const { files, model } = description;
  const [vectors, tokenizerJson, wasmBinary, graph, ...externalFiles] = await fetchFiles(files);
  index = new VectorIndex(new Int8Array(vectors.buffer), model.dimension);

  // Start the runtime and open the graph.
  const script = new URL(files.script.path, import.meta.url);
  const ort = await importRuntime(script.href, { wasmPaths: new URL(".", script).href, wasmBinary });
  const externalData = externalFiles.map((data, number) => ({ path: files.external[number].name, data }));
  const options = externalData.length ? { ...OPTIONS, externalData } : OPTIONS;
  const session = await ort.InferenceSession.create(graph, options);
  encoder = new Encoder(ort, session, createTokenizer(parseJson(tokenizerJson), model.max_tokens), model);

  // Compare token ids with Python's, and the first sentence's vector with the one that Python stored.
  const { checks } = description;
  const same = checks.filter(({ text, ids }) => String(encoder.tokenIds(text)) === String(ids)).length;
  const vector = await encoder.vector(encoder.tokenIds(sentences[0].text));
  const check = { same, total: checks.length, cosine: index.cosine(0, normalize(vector)) };
  postMessage({ kind: "ready", seconds: (performance.now() - start) / 1000, check });
}

/** Fetch the large files in parallel and report progress; the page shows the sentences as soon as they are here. */
async function fetchFiles({ sentences: sentenceFile, vectors, tokenizer, wasm, graph, external }) {
  const files = [vectors, tokenizer, wasm, graph, ...external];
  const total = [sentenceFile, ...files].reduce((sum, { packed }) => sum + packed, 0);
  let loaded = 0;
  const advance = (bytes) => {
    loaded = Math.min(total, loaded + bytes);
    postMessage({ kind: "progress", loaded, total });
  };
  const showSentences = fetchFile(sentenceFile, advance).then((bytes) => {
    sentences = parseJson(bytes);
    postMessage({ kind: "sentences", sentences });
  });
  const [contents] = await Promise.all([Promise.all(files.map((file) => fetchFile(file, advance))), showSentences]);
  return contents;
}

/** Fetch a file and decompress it; `advance` gets the bytes of each chunk that arrives. */
async function fetchFile({ path }, advance = () => {}) {
  const response = await fetch(new URL(path, import.meta.url));
  if (!response.ok) {
    throw new Error(`${path}: the server answered ${response.status}; copy the whole folder to the server`);
  }
  const chunks = [];
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    chunks.push(value);
    advance(value.length);
  }
  // Some servers announce .gz files so that the browser decompresses them: look at the bytes, not at the name.
  const blob = new Blob(chunks);
  const [first, second] = new Uint8Array(await blob.slice(0, 2).arrayBuffer());
  const compressed = first === 0x1f && second === 0x8b;
  const stream = compressed ? blob.stream().pipeThrough(new DecompressionStream("gzip")) : blob.stream();
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function parseJson(bytes) {
  return JSON.parse(new TextDecoder().decode(bytes));
}

/** Answer a query from the page with the nearest sentences, in one language or in all. */
async function search({ number, text, language, count }) {
  const start = performance.now();
  const ids = encoder.tokenIds(text);
  const vector = normalize(await encoder.vector(ids));
  const results = index.nearest(vector, count, (row) => !language || sentences[row].language === language);
  postMessage({ kind: "results", number, results, tokens: ids.length, milliseconds: performance.now() - start });
}

async function reportErrors(work) {
  try {
    await work();
  } catch (error) {
    postMessage({ kind: "error", text: String(error?.message || error) });
  }
}

onmessage = ({ data }) => reportErrors(() => search(data));
reportErrors(load);
