// The description of the API for people, made from /spec: it needs nothing from elsewhere.

import { get, hasToken, Refused } from "./api.js";
import { h, put } from "./dom.js";
import { askForToken } from "./token.js";

let schemas = {};

const resolve = (schema) => (schema?.$ref ? schemas[schema.$ref.split("/").at(-1)] : schema);

/** A schema in a few words. */
function kind(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  const choices = (schema.anyOf ?? schema.oneOf)?.filter((one) => one.type !== "null");
  if (choices) return choices.map(kind).join(" or ");
  if (schema.type === "array") return `list of ${kind(schema.items)}`;
  const most = schema.maximum ?? schema.maxLength;
  return `${schema.type ?? "any"}${most === undefined ? "" : `, at most ${most.toLocaleString("en")}`}`;
}

/** The schemas of the what-ifs that a field holds. */
const changes = (schema) =>
  (schema.anyOf ?? []).flatMap((one) => one.items?.oneOf ?? []).map((one) => resolve(one));

const field = (name, schema, needed) =>
  h(
    "li",
    {},
    h("code", {}, name),
    ` ${kind(schema)}${needed ? ", required" : ""}${schema.description ? `: ${schema.description}` : ""}`,
    changes(schema).map((one) => h("div", {}, h("code", {}, one.properties.kind.const), ` ${one.description}`, fields(one))),
  );

const fields = (schema) =>
  h(
    "ul",
    {},
    Object.entries(schema?.properties ?? {}).map(([name, one]) => field(name, one, schema.required?.includes(name))),
  );

/** The example of /spec as a command; a POST without a JSON example has none. */
function example(method, path, body) {
  const key = hasToken() ? " -H 'Authorization: Bearer TOKEN'" : "";
  if (method === "get") return `curl ${location.origin}${path}${key}`;
  const quoted = JSON.stringify(body).replaceAll("'", "'\\''");
  return `curl ${location.origin}${path}${key} -H 'Content-Type: application/json' \\\n  -d '${quoted}'`;
}

function operation(path, method, one) {
  const [, { schema, example: body } = {}] = Object.entries(one.requestBody?.content ?? {})[0] ?? [];
  return h(
    "section",
    { class: "card requests" },
    h("h2", {}, h("code", {}, `${method.toUpperCase()} ${path}`)),
    h("p", {}, one.description ?? one.summary),
    schema && fields(resolve(schema)),
    one.parameters &&
      h(
        "ul",
        {},
        one.parameters.map((part) => field(part.name, part.schema, part.required)),
      ),
    (body || method === "get") && h("pre", { tabindex: 0 }, example(method, path, body)),
  );
}

const place = document.querySelector("main");
try {
  const { paths, components } = await get("/spec");
  schemas = components.schemas;
  put(
    place,
    Object.entries(paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, one]) => operation(path, method, one)),
    ),
  );
} catch (error) {
  if (error instanceof Refused && (error.status === 400 || error.status === 403)) askForToken(error.message);
  else put(place, h("p", { class: "error", role: "alert" }, error.message));
}
