// Load the model and search, in a thread of its own, so that typing never waits.

import { feedsOf, findAdapter, importRuntime, openGraph, vectorsOf } from "./graph.js";
import { createTokenizer } from "./tokenizer/tokenizer.js";

const LEAST_COSINE = 0.99; // between the page's vectors and Python's, which are stored as int8

let encoder = null;
let index = null;
let sentences = [];

/** Text to vectors: the tokenizer and the graph of a bundle. */
class Encoder {
  constructor(ort, session, tokenize, model) {
    Object.assign(this, { ort, session, tokenize, model });
  }

  /** Return the token ids of a text. Unpaired surrogates, which are not characters, become ?, as in Python. */
  tokenIds(text, prompt) {
    const ids = this.tokenize(prompt + text.replace(/\p{Cs}/gu, "?"));
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
  const { files, model, checks } = description;
  const choice = await chooseDevice(files.runtimes);
  const first = files.runtimes[choice.device];
  const [vectors, tokenizerJson, binary, graph, ...externalFiles] = await fetchFiles(files, first.wasm);
  index = new VectorIndex(new Int8Array(vectors.buffer), model.dimension);
  const tokenize = createTokenizer(parseJson(tokenizerJson), model.max_tokens);
  const externalData = externalFiles.map((data, number) => ({ path: files.external[number].name, data }));

  /** Start the runtime, open the graph and compare its vectors with those that Python computed. */
  async function open(device, wasmBinary) {
    const script = new URL(files.runtimes[device].script.path, import.meta.url);
    const ort = await importRuntime(script.href, { wasmPaths: new URL(".", script).href, wasmBinary });
    const session = await openGraph(ort, device, graph, externalData);
    encoder = new Encoder(ort, session, tokenize, model);
    return leastCosine(checks);
  }

  // On WebGPU, the graph is used only if its vectors are Python's. The runtime for WebGPU lacks operators that the one
  // for WebAssembly has, so that another has to be fetched where they are not.
  let { device, reason } = choice;
  let runtimeBytes = first.download;
  let cosine = 0;
  if (device === "webgpu") {
    try {
      cosine = await open(device, binary);
      if (!(cosine > LEAST_COSINE)) reason = `a vector has a cosine of ${cosine.toFixed(2)} with Python's there`;
    } catch (error) {
      reason = "the model does not run there";
      console.warn(error);
    }
    if (reason) {
      await encoder?.session.release();
      device = "wasm";
      runtimeBytes += files.runtimes.wasm.download;
      cosine = await open(device, await fetchFile(files.runtimes.wasm.wasm));
    }
  } else {
    cosine = await open(device, binary);
  }

  // Compare token ids with Python's.
  const isSame = ({ text, ids }) => String(encoder.tokenIds(text, model.document_prompt)) === String(ids);
  const same = checks.filter(isSame).length;
  const correct = same === checks.length && cosine > LEAST_COSINE;
  const check = { same, total: checks.length, cosine, correct, device, reason, adapter: choice.adapter };
  postMessage({ kind: "ready", seconds: (performance.now() - start) / 1000, check, runtimeBytes });
}

/**
 * Choose where the graph runs: on WebGPU if the browser has a graphics processor for it, else in WebAssembly.
 * ?device=wasm or ?device=webgpu in the page's address chooses, too; the latter takes an adapter in software.
 */
async function chooseDevice(runtimes) {
  const asked = new URLSearchParams(location.search).get("device");
  if (asked === "wasm") return { device: "wasm", reason: "the address of this page says so" };
  const adapter = runtimes.webgpu ? await findAdapter().catch(() => null) : null;
  if (!adapter) return { device: "wasm", reason: "this browser does not offer it to this page" };
  if (adapter.software && asked !== "webgpu") return { device: "wasm", reason: "this browser computes it in software" };
  return { device: "webgpu", adapter: adapter.name };
}

/** Return the least cosine between the encoder's vectors of some sentences and those that Python stored. */
async function leastCosine(checks) {
  const cosines = [];
  for (const { row, ids } of checks) cosines.push(index.cosine(row, normalize(await encoder.vector(ids))));
  return cosines.some(Number.isNaN) ? 0 : Math.min(...cosines);
}

/** Fetch the large files in parallel and report progress; the page shows the sentences as soon as they are here. */
async function fetchFiles({ sentences: sentenceFile, vectors, tokenizer, graph, external }, wasm) {
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
  const ids = encoder.tokenIds(text, encoder.model.query_prompt);
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
