// openai-node: every call of files, uploads, fine-tuning and models. `openai_node.mjs ROWS` prints
// the job and its model as JSON.
import assert from "node:assert/strict";
import fs from "node:fs";

import OpenAI, { toFile } from "openai";

const client = new OpenAI({ adminAPIKey: process.env.OPENAI_API_KEY });
const jobs = client.fineTuning.jobs;
const rows = process.argv[2];
const model = process.env.TUNERY_MODEL;
const ENDED = ["succeeded", "failed", "cancelled"];

const all = async (pages) => {
  const entries = [];
  for await (const entry of pages) entries.push(entry);
  return entries;
};
const ids = (entries) => entries.map((entry) => entry.id);
const until = async (look, holds) => {
  for (;;) {
    const value = await look();
    if (holds(value)) return value;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
};
const refused = (promise, status) =>
  assert.rejects(promise, (error) => error instanceof OpenAI.APIError && error.status === status);

async function files() {
  const file = await client.files.create({ file: fs.createReadStream(rows), purpose: "fine-tune" });
  await client.files.waitForProcessing(file.id, { pollInterval: 200 });
  assert.equal((await client.files.retrieve(file.id)).filename, "rows.jsonl");
  assert.ok(ids(await all(client.files.list({ purpose: "fine-tune", limit: 1 }))).includes(file.id));
  const content = await (await client.files.content(file.id)).text();
  assert.equal(content, fs.readFileSync(rows, "utf8"));
  const upload = await client.uploads.create({
    bytes: content.length, filename: "parts.jsonl", mime_type: "application/jsonl", purpose: "fine-tune",
  });
  const halves = [content.slice(0, 500), content.slice(500)];
  const parts = [];
  for (const half of halves) {
    const data = await toFile(Buffer.from(half), "part");
    parts.push((await client.uploads.parts.create(upload.id, { data })).id);
  }
  const completed = await client.uploads.complete(upload.id, { part_ids: parts });
  assert.equal((await client.files.delete(completed.file.id)).deleted, true);
  const other = await client.uploads.create({
    bytes: 5, filename: "a", mime_type: "text/plain", purpose: "fine-tune",
  });
  assert.equal((await client.uploads.cancel(other.id)).status, "cancelled");
  return file.id;
}

async function train(trainingFile) {
  const hyperparameters = { n_epochs: 8, batch_size: 1 };
  const method = { type: "supervised", supervised: { hyperparameters } };
  const body = { model, training_file: trainingFile, method, suffix: "node", metadata: { run: "node" } };
  let job = await jobs.create(body);
  const isStep = (event) => event?.type === "metrics" && event.data.step > 0;
  await until(async () => (await jobs.listEvents(job.id, { limit: 1 })).data[0], isStep);
  await jobs.pause(job.id);
  await until(() => jobs.retrieve(job.id), (seen) => seen.status === "paused");
  await jobs.resume(job.id);
  job = await until(() => jobs.retrieve(job.id), (seen) => ENDED.includes(seen.status));
  assert.equal(job.status, "succeeded", JSON.stringify(job.error));
  assert.ok((await all(jobs.listEvents(job.id, { limit: 5 }))).some(isStep));
  const text = await (await client.files.content(job.result_files[0])).text();
  assert.ok(text.startsWith("step,train_loss"));
  const options = { headers: { "Idempotency-Key": "node-again" } };
  const longer = { ...method, supervised: { hyperparameters: { n_epochs: 50 } } };
  const second = await jobs.create({ ...body, method: longer }, options);
  assert.equal((await jobs.create({ ...body, method: longer }, options)).id, second.id);
  assert.equal((await jobs.cancel(second.id)).status, "cancelled");
  assert.deepEqual(ids(await all(jobs.list({ limit: 1 }))).slice(0, 2), [second.id, job.id]);
  await refused(jobs.cancel(job.id), 409);
  return job;
}

async function checkpoints(job) {
  const [newest] = await all(jobs.checkpoints.list(job.id, { limit: 1 }));
  const name = newest.fine_tuned_model_checkpoint;
  const permissions = client.fineTuning.checkpoints.permissions;
  const [granted] = await all(permissions.create(name, { project_ids: [job.organization_id] }));
  assert.ok(ids(await all(permissions.list(name))).includes(granted.id));
  const one = { fine_tuned_model_checkpoint: name };
  assert.equal((await permissions.delete(granted.id, one)).deleted, true);
  assert.equal((await client.models.retrieve(name)).id, name);
}

const fileId = await files();
const job = await train(fileId);
await checkpoints(job);
assert.ok(ids(await all(client.models.list())).includes(job.fine_tuned_model));
assert.equal((await client.models.retrieve(job.fine_tuned_model)).object, "model");
await refused(client.models.retrieve("some/model"), 404);
const messages = [{ role: "user", content: "Who are you?" }];
const question = { model: job.fine_tuned_model, messages, temperature: 0, max_tokens: 8 };
const answer = (await client.chat.completions.create(question)).choices[0].message.content;
let streamed = "";
for await (const chunk of await client.chat.completions.create({ ...question, stream: true })) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
}
assert.equal(streamed, answer);
await refused(client.chat.completions.create({ model: job.fine_tuned_model, messages: [] }), 400);
console.log(JSON.stringify({ job: job.id, model: job.fine_tuned_model, answer }));
