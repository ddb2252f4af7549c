// Start onnxruntime-web and run a bundle's graph. Shared by all pages that do.

const OPTIONS = { enableCpuMemArena: false, enableMemPattern: false, logSeverityLevel: 4 };
const OUTPUT = "sentence_embedding";

/**
 * Import onnxruntime-web with one thread.
 *
 * @param {string} script - URL of its module.
 * @param {object} wasm - where its WebAssembly is: { wasmPaths, wasmBinary }.
 */
export async function importRuntime(script, wasm) {
  const ort = await import(script);
  Object.assign(ort.env.wasm, { numThreads: 1, proxy: false }, wasm);
  ort.env.logLevel = "fatal";
  return ort;
}

/**
 * Open a graph.
 *
 * @param {string} device - wasm or webgpu; operators that WebGPU lacks run in WebAssembly.
 * @param {string | Uint8Array} graph - its URL or its bytes.
 * @param {object[]} externalData - files of its external data, [{ path, data }].
 */
export function openGraph(ort, device, graph, externalData = []) {
  const options = { ...OPTIONS, executionProviders: [device] };
  return ort.InferenceSession.create(graph, externalData.length ? { ...options, externalData } : options);
}

/** Return the WebGPU adapter that onnxruntime-web would use, { name, software }, or null if it cannot use any. */
export async function findAdapter() {
  const adapter = await globalThis.navigator.gpu?.requestAdapter();
  if (!adapter || !WebAssembly.Suspending) return null;
  const { vendor, architecture, description, isFallbackAdapter } = adapter.info;
  const name = [vendor, architecture, description].filter(Boolean).join(" ");
  return { name: name || "unnamed", software: Boolean(isFallbackAdapter) };
}

/** Make the graph's inputs from rows of token ids, padded to (N, L), L being the length of the longest row. */
export function feedsOf(ort, session, rows, pad) {
  const shape = [rows.length, Math.max(...rows.map((row) => row.length))];
  const ids = new BigInt64Array(shape[0] * shape[1]).fill(BigInt(pad));
  const mask = new BigInt64Array(ids.length);
  rows.forEach((row, number) => {
    row.forEach((id, column) => {
      ids[number * shape[1] + column] = BigInt(id);
    });
    mask.fill(1n, number * shape[1], number * shape[1] + row.length);
  });
  const inputs = { input_ids: ids, attention_mask: mask, token_type_ids: new BigInt64Array(ids.length) };
  return Object.fromEntries(session.inputNames.map((name) => [name, new ort.Tensor("int64", inputs[name], shape)]));
}

/** Return the sentence vectors, a tensor (N, D). */
export async function vectorsOf(session, feeds) {
  return (await session.run(feeds, [OUTPUT]))[OUTPUT];
}
