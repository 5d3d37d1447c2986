// Writes the licences of the packages that the bundle holds.
import { readFileSync, readdirSync, writeFileSync } from "node:fs";

const { packages } = JSON.parse(readFileSync("package-lock.json", "utf8"));
const texts = new Map();
for (const [folder, facts] of Object.entries(packages)) {
  if (!folder || facts.dev || facts.optional) continue;
  const name = folder.slice(folder.lastIndexOf("node_modules/") + "node_modules/".length);
  const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
  if (!file) throw new Error(`${folder} has no licence`);
  const text = readFileSync(`${folder}/${file}`, "utf8").trim();
  texts.set(text, [...(texts.get(text) ?? []), `${name} ${facts.version}`]);
}
writeFileSync(process.argv[2], [...texts].map(([text, names]) => `${names.join(", ")}\n\n${text}\n`).join(`\n${"-".repeat(80)}\n\n`));
