// Encode texts with transformers.js: {"opened": [[folder, dtype], ...], "texts": [...]} in, vectors as JSON out,
// both as files; one list per folder and dtype. Run it in the folder that holds node_modules.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

const installed = createRequire(join(process.cwd(), "package.json"));
const { env, pipeline } = await import(pathToFileURL(installed.resolve("@huggingface/transformers")));
const [question, answer] = process.argv.slice(2);
const { opened, texts } = JSON.parse(readFileSync(question, "utf8"));

env.allowRemoteModels = false;
env.useFSCache = false;
const vectors = {};
for (const [folder, dtype] of opened) {
  env.localModelPath = dirname(folder);
  const encode = await pipeline("feature-extraction", basename(folder), { dtype, device: "cpu" });
  const rows = [];
  for (const text of texts) {
    const found = await encode(text, { pooling: "mean", normalize: true });
    rows.push(found.tolist()[0]);
  }
  vectors[`${folder} ${dtype}`] = rows;
  await encode.dispose();
}
writeFileSync(answer, JSON.stringify(vectors));
