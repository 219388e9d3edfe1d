// The usual calls of gcp-metadata, and what came of each: a JSON object of call to outcome, as calls.py prints it.
import { createRequire } from "node:module";

const metadata = createRequire(`${process.argv[2]}/`)("gcp-metadata");
const calls = {
  "on gce": () => metadata.isAvailable(),
  project: () => metadata.project("project-id"),
  zone: () => metadata.instance("zone"),
  token: async () => (await metadata.instance("service-accounts/default/token")).access_token,
  "kube-env": () => metadata.instance("attributes/kube-env"),
};
const outcomes = {};
for (const [name, call] of Object.entries(calls)) {
  outcomes[name] = await call().catch((error) => error.response?.status ?? String(error));
}
console.log(JSON.stringify(outcomes));
