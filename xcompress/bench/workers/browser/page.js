// Run a bundle's graph with onnxruntime-web. Times are measured here, in seconds; memory is in bytes.

import { feedsOf, findAdapter, importRuntime, openGraph, vectorsOf } from "/graph.js";

// An ONNX graph with one Identity node; opening it starts the runtime and does almost nothing else.
const SMALLEST = "CAg6NwoQCgF4EgF5IghJZGVudGl0eRIBZ1oPCgF4EgoKCAgBEgQKAggBYg8KAXkSCgoICAESBAoCCAFCBAoAEA0=";

const memories = new Set();
let ort = null;
let session = null;

watchMemories();

/** Record every WebAssembly memory of this page: those made in JavaScript and those that modules export. */
function watchMemories() {
  WebAssembly.Memory = class extends WebAssembly.Memory {
    constructor(descriptor) {
      super(descriptor);
      memories.add(this);
    }
  };
  const plain = Object.getPrototypeOf(WebAssembly.Memory);
  for (const name of ["instantiate", "instantiateStreaming"]) {
    const original = WebAssembly[name];
    WebAssembly[name] = async (...args) => {
      const result = await original(...args);
      const exported = Object.values((result.instance ?? result).exports ?? {});
      exported.filter((value) => value instanceof plain).forEach((memory) => memories.add(memory));
      return result;
    };
  }
}

async function timed(work) {
  const start = performance.now();
  const result = await work();
  return [(performance.now() - start) / 1000, result];
}

function base64(numbers) {
  const bytes = new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength);
  let text = "";
  for (let start = 0; start < bytes.length; start += 4096) {
    text += String.fromCharCode(...bytes.subarray(start, start + 4096));
  }
  return btoa(text);
}

const requests = {
  /** Return the WebGPU adapter, or null. */
  async adapter() {
    return { adapter: await findAdapter() };
  },

  /** Return the bytes of WebAssembly memory; it never shrinks, so this is also its peak. */
  memory() {
    return { wasm: [...memories].reduce((sum, memory) => sum + memory.buffer.byteLength, 0) };
  },

  /** Fetch, compile and start the runtime. */
  async runtime({ script, folder, device }) {
    const bytes = Uint8Array.from(atob(SMALLEST), (letter) => letter.charCodeAt(0));
    const [seconds, smallest] = await timed(async () => {
      ort = await importRuntime(script, { wasmPaths: folder });
      return openGraph(ort, device, bytes);
    });
    await smallest.release();
    return { seconds };
  },

  /** Fetch the graph and the files of its external data, [{ path, data: URL }], and create a session. */
  async open({ graph, externalData, device }) {
    const [seconds, created] = await timed(() => openGraph(ort, device, graph, externalData));
    session = created;
    return { seconds };
  },

  /** Encode rows of token ids as one batch; padding is masked. */
  async encode({ rows, pad }) {
    const [seconds, vectors] = await timed(() => vectorsOf(session, feedsOf(ort, session, rows, pad)));
    return { seconds, vectors: base64(vectors.data), shape: vectors.dims };
  },

  /** Time calls on one batch, after `warm` untimed ones. */
  async time({ rows, calls, warm }) {
    const feeds = feedsOf(ort, session, rows, 0);
    for (let call = 0; call < warm; call += 1) await vectorsOf(session, feeds);
    const seconds = [];
    for (let call = 0; call < calls; call += 1) seconds.push((await timed(() => vectorsOf(session, feeds)))[0]);
    return { seconds };
  },

  /** Time all batches together, one after another. */
  async throughput({ batches, pad }) {
    const [seconds] = await timed(async () => {
      for (const rows of batches) await vectorsOf(session, feedsOf(ort, session, rows, pad));
    });
    return { seconds };
  },
};

/** Answer a request; an error is returned as text. */
globalThis.answer = async (name, request) => {
  try {
    return await requests[name](request);
  } catch (error) {
    return { error: String(error?.message || error) };
  }
};
