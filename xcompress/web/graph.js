// Start onnxruntime-web and feed a bundle's graph: what every page that runs one shares.

export const OPTIONS = {
  executionProviders: ["wasm"],
  enableCpuMemArena: false,
  enableMemPattern: false,
  logSeverityLevel: 4,
};
const OUTPUT = "sentence_embedding";

/**
 * Import the runtime for one thread.
 *
 * @param {string} script - address of its module.
 * @param {object} wasm - where its other files are: { wasmPaths, wasmBinary }.
 */
export async function importRuntime(script, wasm) {
  const ort = await import(script);
  Object.assign(ort.env.wasm, { numThreads: 1, proxy: false }, wasm);
  ort.env.logLevel = "fatal";
  return ort;
}

/** Make the graph's inputs of token ids, (N, L) with L that of the longest row; padding is masked. */
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
  const all = { input_ids: ids, attention_mask: mask, token_type_ids: new BigInt64Array(ids.length) };
  return Object.fromEntries(session.inputNames.map((name) => [name, new ort.Tensor("int64", all[name], shape)]));
}

/** Return the sentence vectors, a tensor (N, D). */
export async function vectorsOf(session, feeds) {
  return (await session.run(feeds, [OUTPUT]))[OUTPUT];
}
