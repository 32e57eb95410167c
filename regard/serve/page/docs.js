// The description of the API for people, made from /spec: it needs nothing from elsewhere.

import { get } from "./api.js";
import { h, put } from "./dom.js";

/** A schema in a few words. */
function kind(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" or ");
  if (schema.oneOf) return schema.oneOf.map(kind).join(" or ");
  if (schema.type === "array") return `list of ${kind(schema.items)}`;
  const most = schema.maximum ?? schema.maxLength;
  return `${schema.type ?? "any"}${most === undefined ? "" : `, at most ${most.toLocaleString("en")}`}`;
}

const field = (name, schema, needed) =>
  h(
    "li",
    {},
    h("code", {}, name),
    ` ${kind(schema)}${needed ? ", required" : ""}${schema.description ? `: ${schema.description}` : ""}`,
  );

const fields = (schema) =>
  h(
    "ul",
    {},
    Object.entries(schema?.properties ?? {}).map(([name, one]) => field(name, one, schema.required?.includes(name))),
  );

/** The example of /spec as a command; a POST without a JSON example has none. */
function example(method, path, body) {
  if (method === "get") return `curl ${location.origin}${path}`;
  const quoted = JSON.stringify(body).replaceAll("'", "'\\''");
  return `curl ${location.origin}${path} -H 'Content-Type: application/json' \\\n  -d '${quoted}'`;
}

function operation(path, method, one) {
  const { schema, example: body } = one.requestBody?.content["application/json"] ?? {};
  return h(
    "section",
    { class: "card requests" },
    h("h2", {}, h("code", {}, `${method.toUpperCase()} ${path}`)),
    h("p", {}, one.summary),
    schema && fields(schema),
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
  const { paths } = await get("/spec");
  put(
    place,
    Object.entries(paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, one]) => operation(path, method, one)),
    ),
  );
} catch (error) {
  put(place, h("p", { class: "error", role: "alert" }, error.message));
}
