// Asks a server as programs with OpenAI's npm package do: openai_client.mjs URL

import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const model = (await client.models.list()).data[0].id;
const messages = [{ role: "user", content: "Name a colour." }];
const fast = { model, messages, max_completion_tokens: 12, temperature: 0 };

const text = (await client.chat.completions.create(fast)).choices[0].message.content;
let streamed = "";
for await (const chunk of await client.chat.completions.create({ ...fast, stream: true })) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
}
assert.equal(streamed, text);

const schema = { type: "object", properties: { red: { type: "boolean" } }, required: ["red"], additionalProperties: false };
const response_format = { type: "json_schema", json_schema: { name: "colour", strict: true, schema } };
const parsed = await client.chat.completions.create({
  ...fast, response_format, max_completion_tokens: 600,
});
assert.equal(typeof JSON.parse(parsed.choices[0].message.content).red, "boolean");

const tools = [{ type: "function", function: { name: "paint", parameters: schema } }];
const runner = client.chat.completions.stream({
  ...fast, tools, tool_choice: "required", parallel_tool_calls: false, max_completion_tokens: 600,
});
const call = (await runner.finalChatCompletion()).choices[0].message.tool_calls[0];
assert.equal(call.function.name, "paint");
assert.equal(typeof JSON.parse(call.function.arguments).red, "boolean");

await assert.rejects(client.chat.completions.create({ ...fast, model: "other" }), (error) => {
  assert.equal(error.status, 404);
  assert.equal(error.code, "model_not_found");
  return true;
});
console.log("ok");
