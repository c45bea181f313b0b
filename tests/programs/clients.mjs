// Encode texts with a JavaScript package, for clients.py, which calls this as
//
//     node clients.mjs PACKAGE NPM_FOLDER WORK_FOLDER
//
// It prints JSON: the package's version, and for each pattern a list of ids for each text, or an error.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";

const [name, npmFolder, work] = process.argv.slice(2);
const readJson = (...parts) => JSON.parse(readFileSync(join(...parts), "utf8"));
const library = createRequire(resolve(npmFolder, "package.json"))(name);
const { patterns, texts } = readJson(work, "texts.json");

async function load(pattern) {
  if (name === "@huggingface/tokenizers") {
    const files = ["tokenizer.json", "tokenizer_config.json"].map((file) => readJson(work, pattern, file));
    const tokenizer = new library.Tokenizer(...files);
    return (text) => tokenizer.encode(text).ids;
  }
  library.env.allowRemoteModels = false;
  library.env.localModelPath = work;
  const tokenizer = await library.AutoTokenizer.from_pretrained(pattern);
  return (text) => tokenizer.encode(text);
}

const ids = {};
for (const pattern of patterns) {
  try {
    const encode = await load(pattern);
    ids[pattern] = texts.map(encode);
  } catch (error) {
    ids[pattern] = String(error);
  }
}
const { version } = readJson(npmFolder, "node_modules", name, "package.json");
const unicode = process.versions.unicode; // that of Node, in which the regular expressions are
process.stdout.write(JSON.stringify({ name, version: `${version}, Unicode ${unicode}`, ids }));
