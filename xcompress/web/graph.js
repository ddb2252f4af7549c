// Start onnxruntime-web and run a bundle's graph. Shared by all pages that do.

export const OPTIONS = {
  executionProviders: ["wasm"],
  enableCpuMemArena: false,
  enableMemPattern: false,
  logSeverityLevel: 4,
};
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
