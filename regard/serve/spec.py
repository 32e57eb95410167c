"""The OpenAPI description of the API, written by hand and served at /spec. A test sends what it describes."""

from collections.abc import Iterable, Mapping
from typing import Any

from regard.serve.limits import Limits
from regard.serve.worker import Worker

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_WHOLE: Schema = {"type": "integer", "minimum": 0}
_NUMBER: Schema = {"type": "number"}
_FLAG: Schema = {"type": "boolean"}


def describe(limits: Limits, translators: Iterable[str], captioners: Mapping[str, Worker]) -> Schema:
    """The OpenAPI document of a server with these limits and models."""
    models = _name_of(list(translators))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "regard",
            "version": "1",
            "description": "Translation compatible with LibreTranslate and DeepL v2, captions of pictures, and the "
            "attention of the model.",
        },
        "servers": [{"url": "/"}],
        "paths": {
            **_libre(limits, models),
            **_deepl(limits),
            **_own(limits, models),
            **_pictures(limits, captioners),
            **_about(),
        },
        "components": {
            "schemas": _SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _libre(limits: Limits, model: Schema) -> Schema:
    text = {"type": "string", "maxLength": limits.characters}
    translate = _object(
        {
            "q": {"oneOf": [text, _list(text, limits.segments)]},
            "source": {"type": "string", "description": "a code of /languages, or auto"},
            "target": {"type": "string", "description": "a code of /languages"},
            "format": {"enum": ["text", "html"], "default": "text"},
            "alternatives": {**_WHOLE, "maximum": limits.alternatives, "default": 0},
            "alignment": {**_FLAG, "description": "ours: also report which words belong together"},
            "stream": {
                **_FLAG,
                "description": "ours: answer with server-sent events while one text is written, each a JSON object "
                "with sentence, source (its place in q), translatedText so far and, when done, flags and unknown; "
                "the last event holds the whole translatedText",
            },
            "model": {**model, "description": "ours: one of /api/v1/models"},
            "api_key": _TEXT,
        },
        required=["q", "source", "target"],
    )
    suggest = _object(dict.fromkeys(("q", "s", "source", "target"), text), required=["q", "s", "source", "target"])
    detect = _object({"q": text, "api_key": _TEXT}, required=["q"])
    upload = _object(
        {"file": {"type": "string", "format": "binary"}, "source": _TEXT, "target": _TEXT, "model": model},
        required=["file", "source", "target"],
    )
    address = _object({"translatedFileUrl": _TEXT}, required=["translatedFileUrl"])
    post = _post("Translate", translate, _ref("Translated"), forms=True)
    post["responses"]["200"]["content"]["text/event-stream"] = {"schema": _TEXT}
    return {
        "/translate": {"post": post},
        "/detect": {"post": _post("Which loaded language fits a text", detect, _list(_ref("Detected")), forms=True)},
        "/translate_file": {"post": _form("Translate a file; its ending says the format", upload, address)},
        "/download_file/{name}": {
            "get": {
                **_get("A translated file", {}, content="application/octet-stream"),
                "parameters": [_in_path("name")],
            }
        },
        "/suggest": {"post": _post("Suggest a better translation", suggest, _object({"success": _FLAG}), forms=True)},
        "/languages": {"get": _get("The languages of the loaded models", _list(_ref("Language")))},
        "/frontend/settings": {"get": _get("What a form for this server needs to know", {"type": "object"})},
    }


def _deepl(limits: Limits) -> Schema:
    translate = _object(
        {
            "text": _list({"type": "string", "maxLength": limits.characters}, limits.segments, least=1),
            "target_lang": _TEXT,
            "source_lang": _TEXT,
            "tag_handling": {"enum": ["html", "xml"]},
            "ignore_tags": {**_list(_TEXT), "description": "of XML: elements that are not translated"},
            "splitting_tags": {**_list(_TEXT), "description": "of XML: elements that end a sentence"},
            "glossary_id": _TEXT,
        },
        required=["text", "target_lang"],
    )
    kind = {"name": "type", "in": "query", "schema": {"enum": ["source", "target"]}}
    translations = _object({"translations": _list(_ref("DeepLTranslation"))}, required=["translations"])
    listed = _list(_object({"language": _TEXT, "name": _TEXT}, required=["language", "name"]))
    used = _object({"character_count": _WHOLE, "character_limit": _WHOLE})
    glossary = _object(
        {
            "name": _TEXT,
            "source_lang": _TEXT,
            "target_lang": _TEXT,
            "entries": {"type": "string", "description": "source term, tab or comma, target term on each line"},
            "entries_format": {"enum": ["tsv", "csv"]},
        },
        required=["name", "source_lang", "target_lang", "entries", "entries_format"],
    )
    made = {**_post("Store terms", glossary, _ref("Glossary"), forms=True, error="Message")}
    made["responses"] = {"201": made["responses"]["200"], "default": made["responses"]["default"]}
    listing = _object({"glossaries": _list(_ref("Glossary"))}, required=["glossaries"])
    pairs = _object({"supported_languages": _list({"type": "object"})}, required=["supported_languages"])
    gone = {"summary": "Delete a glossary", "responses": {"204": {"description": "done"}, "default": _error("Message")}}
    given = {"parameters": [_in_path("id")]}
    return {
        "/v2/translate": {
            "post": _post("Translate, as DeepL does", translate, translations, forms=True, error="Message")
        },
        "/v2/languages": {"get": {**_get("Languages, as DeepL lists them", listed, "Message"), "parameters": [kind]}},
        "/v2/glossaries": {"get": _get("The glossaries of this client", listing, "Message"), "post": made},
        "/v2/glossaries/{id}": {
            "get": {**_get("A glossary", _ref("Glossary"), "Message"), **given},
            "delete": {**gone, **given},
        },
        "/v2/glossaries/{id}/entries": {
            "get": {**_get("Its terms", _TEXT, "Message", "text/tab-separated-values"), **given}
        },
        "/v2/glossary-language-pairs": {"get": _get("Languages that have glossaries", pairs, "Message")},
        "/v2/usage": {"get": _get("Characters translated since the start", used, "Message")},
    }


def _own(limits: Limits, model: Schema) -> Schema:
    pieces = _list(_TEXT, limits.tokens)
    look: Schema = {
        "model": model,
        "text": {"type": "string", "maxLength": limits.characters, "description": "one sentence"},
        "target": {
            "oneOf": [_TEXT, pieces],
            "description": "the translation to look at, as text or as pieces; by default the one of the model",
        },
        "prefix": {"oneOf": [_TEXT, pieces], "description": "text or pieces with which the translation must begin"},
        "beam": {**_WHOLE, "maximum": limits.beam},
        "changes": _list(_ref("Change"), limits.changes),
    }
    part: Schema = {
        "layers": {**_list(_WHOLE, least=1), "description": "only the attention of these layers, from 0"},
        "heads": {**_list(_WHOLE, least=1), "description": "only these heads, from 0"},
    }
    trace = {"type": "object", "description": "a trace, as regard.look.Trace reads and writes it"}
    step = {**look, "t": _WHOLE, "name": {"type": "string", "description": "attention module"}, "head": _WHOLE}
    ask = {
        **{name: look[name] for name in ("model", "text")},
        "prefix": pieces,
        "most": {**_WHOLE, "minimum": 1, "maximum": 50},
    }
    choices = _list(_object({"text": _TEXT, "piece": _TEXT, "probability": _NUMBER}, required=["piece", "probability"]))
    head = _object({"layer": _WHOLE, "head": _WHOLE, "aer": {**_NUMBER, "description": "alignment error rate"}})
    rates = _object({"sentences": _WHOLE, "heads": _list(head)}, required=["sentences", "heads"])
    body = {name: _object(fields, required=["text"]) for name, fields in (("look", {**look, **part}), ("step", step))}
    return {
        "/api/v1/models": {"get": _get("The loaded models", _object({"models": _list({"type": "object"})}))},
        "/api/v1/heads": {"get": {**_get("How well each head aligns", rates), "parameters": [_query("model", model)]}},
        "/api/v1/trace": {"post": _post("The attention of a model while it translated", body["look"], trace)},
        "/api/v1/steps": {"post": _post("The arithmetic of one step", body["step"], {"type": "object"})},
        "/api/v1/path": {"post": _post("The layers of a Transformer at one step", body["step"], {"type": "object"})},
        "/api/v1/worth": {
            "post": _post(
                "How much less likely a translation is without each head",
                body["look"],
                _object({"heads": _list(_object({"name": _TEXT, "head": _WHOLE, "drop": _NUMBER}))}),
            )
        },
        "/api/v1/beam": {"post": _post("A trace with the search tree", body["look"], trace)},
        "/api/v1/alternatives": {
            "post": _post(
                "The words that could come at a position",
                _object(ask, required=["text", "prefix"]),
                _object({"alternatives": choices}),
            )
        },
        "/api/v1/what-if": {"post": _post("A trace under changes", body["look"], trace)},
    }


def _pictures(limits: Limits, captioners: Mapping[str, Worker]) -> Schema:
    model = _name_of(list(captioners))
    pixels = "".join(f" and {worker.about['megapixels']} megapixels" for worker in list(captioners.values())[:1])
    file: Schema = {"type": "string", "format": "binary", "maxLength": limits.picture}
    words = _object(
        {
            "text": _TEXT,
            "logprob": _NUMBER,
            "gate": {**_NUMBER, "description": "beta, the share of the context that is used; for models that have it"},
            "weights": {**_list(_list(_NUMBER)), "description": "over the grid, row by row; they sum to one"},
        },
        required=["text", "logprob", "weights"],
    )
    one = _object({"text": _TEXT, "score": _NUMBER, "logprob": _NUMBER}, required=["text", "score", "logprob"])
    answer = {
        "caption": _TEXT,
        "finished": {"type": "string", "description": "end, or length where it was cut off"},
        "nbest": {**_list(one), "description": "this one first"},
        "grid": {**_list(_WHOLE, 2, least=2), "description": "rows and columns"},
        "words": _list(words),
        "trace": {"type": "object", "description": "all of it, as regard.look.Trace reads it"},
    }
    caption = {
        "summary": "Describe a picture, with the attention of each word",
        "description": f"JPEG, PNG or WebP; at most {limits.picture >> 20} MiB{pixels}. Options belong in the query.",
        "parameters": [
            _query("model", model),
            _query("nbest", {**_WHOLE, "minimum": 1, "maximum": limits.alternatives + 1, "default": 1}),
            _query("beam", {**_WHOLE, "maximum": limits.beam}),
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/octet-stream": {"schema": file},
                "multipart/form-data": {"schema": _object({"image": file}, required=["image"])},
            },
        },
        "responses": {
            "200": {"description": "done", "content": _content(_object(answer, required=list(answer)))},
            "default": _error("Error"),
        },
    }
    drawn = {
        "number": _WHOLE,
        "caption": {"type": "string", "description": "the right one"},
        "png": {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/png"},
    }
    example = _get("A picture to try a captioner on", _object(drawn, required=list(drawn)))
    number = _query("number", {**_WHOLE, "maximum": 999_999, "default": 0})
    return {
        "/api/v1/caption": {"post": caption},
        "/api/v1/example": {"get": {**example, "parameters": [_query("model", model), number]}},
    }


def _about() -> Schema:
    status = _object({"status": {"enum": ["ok", "unavailable"]}, "error": _TEXT}, required=["status"])
    health = _get("Whether every model answers", status)
    health["responses"]["503"] = {"description": "not ready, and why", "content": _content(status)}
    text = {"description": "Prometheus text", "content": {"text/plain": {"schema": _TEXT}}}
    return {
        "/health": {"get": health},
        "/metrics": {"get": {"summary": "Counters", "responses": {"200": text, "default": _error("Error")}}},
        "/spec": {"get": _get("This document", {"type": "object"})},
    }


def _post(summary: str, body: Schema, found: Schema, forms: bool = False, error: str = "Error") -> Schema:
    kinds = ["application/json", *(["application/x-www-form-urlencoded", "multipart/form-data"] if forms else [])]
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": {kind: {"schema": body} for kind in kinds}},
        "responses": {"200": {"description": "done", "content": _content(found)}, "default": _error(error)},
    }


def _get(summary: str, found: Schema, error: str = "Error", content: str = "application/json") -> Schema:
    return {
        "summary": summary,
        "responses": {
            "200": {"description": "done", "content": {content: {"schema": found}}},
            "default": _error(error),
        },
    }


def _form(summary: str, body: Schema, found: Schema) -> Schema:
    """A form with a file."""
    posted = _post(summary, body, found)
    posted["requestBody"]["content"] = {"multipart/form-data": {"schema": body}}
    return posted


def _in_path(name: str) -> Schema:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": "^[A-Za-z0-9]+$"}}


def _error(name: str) -> Schema:
    return {"description": "refused, with one sentence", "content": _content(_ref(name))}


def _content(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}


def _object(properties: Schema, required: list[str] | None = None) -> Schema:
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _list(items: Schema, most: int | None = None, least: int = 0) -> Schema:
    return {
        "type": "array",
        "items": items,
        **({"maxItems": most} if most else {}),
        **({"minItems": least} if least else {}),
    }


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _name_of(models: list[str]) -> Schema:
    return {"enum": models} if models else _TEXT


def _query(name: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "schema": schema}


def _one_or_list(schema: Schema) -> Schema:
    return {"oneOf": [schema, _list(schema)]}


_SPAN = {"type": "array", "items": _WHOLE, "minItems": 2, "maxItems": 2}
_SCHEMAS: Schema = {
    "Error": _object({"error": _TEXT}, required=["error"]),
    "Message": _object({"message": _TEXT}, required=["message"]),
    "Detected": _object(
        {"confidence": {**_NUMBER, "minimum": 0, "maximum": 100}, "language": _TEXT}, ["confidence", "language"]
    ),
    "Language": _object({"code": _TEXT, "name": _TEXT, "targets": _list(_TEXT)}, required=["code", "name", "targets"]),
    "Link": _object({"source": _SPAN, "target": _SPAN, "weight": _NUMBER}, required=["source", "target", "weight"]),
    "Note": _object(
        {"source": _SPAN, "flags": _list(_TEXT), "unknown": {**_list(_TEXT), "description": "never seen in training"}},
        required=["source", "flags", "unknown"],
    ),
    "Translated": _object(
        {
            "translatedText": _one_or_list(_TEXT),
            "detectedLanguage": _one_or_list(_ref("Detected")),
            "alternatives": {"type": "array", "items": _one_or_list(_TEXT)},
            "alignment": {"type": "array", "items": _one_or_list(_ref("Link"))},
            "notes": {
                "type": "array",
                "items": _one_or_list(_ref("Note")),
                "description": "ours: sentences with which something is not right; left out where there is none",
            },
        },
        required=["translatedText"],
    ),
    "DeepLTranslation": _object(
        {
            "detected_source_language": _TEXT,
            "text": _TEXT,
            "billed_characters": _WHOLE,
            "unplaced_terms": {**_list(_TEXT), "description": "ours: terms of the glossary that were not placed"},
        },
        required=["detected_source_language", "text"],
    ),
    "Glossary": _object(
        {"glossary_id": _TEXT, "name": _TEXT, "source_lang": _TEXT, "target_lang": _TEXT, "entry_count": _WHOLE},
        required=["glossary_id", "name", "source_lang", "target_lang", "entry_count"],
    ),
    "Change": _object(
        {
            "kind": {"enum": ["mask", "temperature", "set-row", "shift-row", "silence"]},
            "position": {**_WHOLE, "description": "source position, for mask and set-row"},
            "t": {**_WHOLE, "description": "target position, for set-row and shift-row"},
            "by": {"type": "integer", "description": "for shift-row"},
            "value": {**_NUMBER, "description": "for temperature"},
            "name": {"type": "string", "description": "attention module, for silence"},
            "head": _WHOLE,
        },
        required=["kind"],
    ),
}
