"""The OpenAPI description of the API, written by hand and served at /spec. A test sends what it describes."""

from collections.abc import Iterable, Mapping
from typing import Any

from regard.serve.changes import KINDS
from regard.serve.limits import Limits
from regard.serve.worker import Worker

Schema = dict[str, Any]
_KINDS: dict[str, Schema] = {
    "text": {"type": "string"},
    "whole": {"type": "integer", "minimum": 0},
    "number": {"type": "number"},
    "flag": {"type": "boolean"},
    "object": {"type": "object"},
    "file": {"type": "string", "format": "binary"},
}


def _schema(short: Any, **more: Any) -> Schema:
    """A JSON schema from its short form, with `more` keys.

    "text" and the other kinds, "#Name" of a schema below, "a|b" for one of some words, each in brackets for a list;
    what follows a colon describes it. A mapping is an object, whose names with a "!" are required; a list is one of
    several. A mapping with "type" is a schema already.
    """
    if isinstance(short, list):
        return {"oneOf": [_schema(one) for one in short], **more}
    if isinstance(short, Mapping):
        if not short or {"type", "enum", "oneOf"} & short.keys():
            return {**short, **more}
        required = [name[:-1] for name in short if name.endswith("!")]
        properties = {name.removesuffix("!"): _schema(one) for name, one in short.items()}
        return {"type": "object", "properties": properties, **({"required": required} if required else {}), **more}
    kind, _, words = short.partition(": ")
    if kind.startswith("["):
        found: Schema = {"type": "array", "items": _schema(kind[1:-1])}
    elif kind.startswith("#"):
        found = {"$ref": f"#/components/schemas/{kind[1:]}"}
    else:
        found = {"enum": kind.split("|")} if "|" in kind else _KINDS[kind]
    return {**found, **({"description": words} if words else {}), **more}


def describe(limits: Limits, translators: Iterable[str], captioners: Mapping[str, Worker]) -> Schema:
    """The OpenAPI document of a server with these limits and models."""
    models = _name_of(list(translators))
    operations = {**_libre(limits, models), **_deepl(limits), **_own(limits, models), **_pictures(limits, captioners)}
    paths: Schema = {}
    for place, operation in {**operations, **_about()}.items():
        method, path = place.split(" ")
        paths.setdefault(path, {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "regard",
            "version": "1",
            "description": "Translation compatible with LibreTranslate and DeepL v2, captions of pictures, and the "
            "attention of the model.",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": {name: _schema(short) for name, short in _SCHEMAS.items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _libre(limits: Limits, model: Schema) -> Schema:
    text = _schema("text", maxLength=limits.characters)
    translate = {
        "q!": [text, _list(text, limits.segments)],
        "source!": "text: a code of /languages, or auto",
        "target!": "text: a code of /languages",
        "format": _schema("text|html", default="text"),
        "alternatives": _schema("whole", maximum=limits.alternatives, default=0),
        "alignment": "flag: ours: also report which words belong together",
        "stream": "flag: ours: answer with server-sent events while one text is written, each a JSON object with "
        "sentence, source (its place in q), translatedText so far and, when done, flags and unknown; the last event "
        "holds the whole translatedText",
        "model": _schema(model, description="ours: one of /api/v1/models"),
        "api_key": "text",
    }
    upload = {"file!": "file", "source!": "text", "target!": "text", "glossary_id": "text", "model": model}
    post = _post("Translate", translate, "#Translated", FORMS)
    post["responses"]["200"]["content"]["text/event-stream"] = {"schema": _schema("text")}
    detect = {"q!": text, "api_key": "text"}
    suggest = dict.fromkeys(("q!", "s!", "source!", "target!"), text)
    download = _get("A translated file", {}, content="application/octet-stream")
    return {
        "POST /translate": post,
        "POST /detect": _post("Which loaded language fits a text", detect, "[#Detected]", FORMS),
        "POST /translate_file": _post(
            "Translate a file; its ending says the format", upload, {"translatedFileUrl!": "text"}, FORMS[-1:]
        ),
        "GET /download_file/{name}": {**download, "parameters": [_in_path("name")]},
        "POST /suggest": _post("Suggest a better translation", suggest, {"success": "flag"}, FORMS),
        "GET /languages": _get("The languages of the loaded models", "[#Language]"),
        "GET /frontend/settings": _get("What a form for this server needs to know", "object"),
    }


def _deepl(limits: Limits) -> Schema:
    translate = {
        "text!": _list(_schema("text", maxLength=limits.characters), limits.segments, least=1),
        "target_lang!": "text",
        "source_lang": "text",
        "tag_handling": "html|xml",
        "ignore_tags": "[text]: of XML: elements that are not translated",
        "splitting_tags": "[text]: of XML: elements that end a sentence",
        "glossary_id": "text",
    }
    glossary = {
        "name!": "text",
        "source_lang!": "text",
        "target_lang!": "text",
        "entries!": "text: source term, tab or comma, target term on each line",
        "entries_format!": "tsv|csv",
    }
    made = _post("Store terms", glossary, "#Glossary", FORMS, "Message")
    made["responses"] = {"201": made["responses"]["200"], "default": made["responses"]["default"]}
    gone = {"summary": "Delete a glossary", "responses": {"204": {"description": "done"}, "default": _error("Message")}}
    given = {"parameters": [_in_path("id")]}
    translations = {"translations!": "[#DeepLTranslation]"}
    listed = _list({"language!": "text", "name!": "text"})
    kind = {"parameters": [_query("type", "source|target")]}
    terms = _get("Its terms", "text", "Message", "text/tab-separated-values")
    used = {"character_count": "whole", "character_limit": "whole"}
    return {
        "POST /v2/translate": _post("Translate, as DeepL does", translate, translations, FORMS, "Message"),
        "GET /v2/languages": {**_get("Languages, as DeepL lists them", listed, "Message"), **kind},
        "GET /v2/glossaries": _get("The glossaries of this client", {"glossaries!": "[#Glossary]"}, "Message"),
        "POST /v2/glossaries": made,
        "GET /v2/glossaries/{id}": {**_get("A glossary", "#Glossary", "Message"), **given},
        "DELETE /v2/glossaries/{id}": {**gone, **given},
        "GET /v2/glossaries/{id}/entries": {**terms, **given},
        "GET /v2/glossary-language-pairs": _get(
            "Languages that have glossaries", {"supported_languages!": "[object]"}, "Message"
        ),
        "GET /v2/usage": _get("Characters translated since the start", used, "Message"),
    }


def _own(limits: Limits, model: Schema) -> Schema:
    pieces = _list("text", limits.tokens)
    text = _schema("text", maxLength=limits.characters, description="one sentence")
    look: Schema = {
        "model": model,
        "text!": text,
        "target": _schema(
            ["text", pieces],
            description="the translation to look at, as text or as pieces; by default the one of the model",
        ),
        "prefix": _schema(["text", pieces], description="text or pieces with which the translation must begin"),
        "beam": _schema("whole", minimum=1, maximum=limits.beam),
        "changes": {**_list("#Change", limits.changes), "description": _CHANGES},
    }
    part = {
        "layers": _schema("[whole]: only the attention of these layers, from 0", minItems=1),
        "heads": _schema("[whole]: only these heads, from 0", minItems=1),
    }
    module = "text: attention module; in the encoder, t is a word of the source"
    body, step = {**look, **part}, {**look, "t": "whole", "name": module, "head": "whole"}
    trace = "object: a trace, as regard.look.Trace reads and writes it"
    most = _schema("whole", minimum=1, maximum=50)
    ask = {"model": model, "text!": text, "prefix!": ["text", pieces], "most": most}
    choices = _list({"text": "text", "piece!": "text", "probability!": "number"})
    head = {"layer": "whole", "head": "whole", "aer": "number: alignment error rate"}
    rates = _get("How well each head aligns", {"sentences!": "whole", "heads!": _list(head)})
    worth = {"heads": _list({"name": "text", "head": "whole", "drop": "number"})}
    return {
        "GET /api/v1/models": _get("The loaded models", {"models": "[object]"}),
        "GET /api/v1/heads": {**rates, "parameters": [_query("model", model)]},
        "POST /api/v1/trace": _post("The attention of a model while it translated", body, trace),
        "POST /api/v1/steps": _post("The arithmetic of one step", step, "object"),
        "POST /api/v1/path": _post("The layers of a Transformer at one step", step, "object"),
        "POST /api/v1/worth": _post("How much less likely a translation is without each head", body, worth),
        "POST /api/v1/beam": _post("A trace with the search tree", body, trace),
        "POST /api/v1/alternatives": _post("The words that could come at a position", ask, {"alternatives": choices}),
        "POST /api/v1/what-if": _post("A trace under changes, or with a prefix", body, trace),
    }


def _pictures(limits: Limits, captioners: Mapping[str, Worker]) -> Schema:
    model = _query("model", _name_of(list(captioners)))
    pixels = "".join(f" and {worker.about['megapixels']} megapixels" for worker in list(captioners.values())[:1])
    file = _schema("file", maxLength=limits.picture)
    words = {
        "text!": "text",
        "logprob!": "number",
        "gate": "number: beta, the share of the context that is used; for models that have it",
        "weights!": "[[number]]: over the grid, row by row; they sum to one",
    }
    answer = {
        "caption!": "text",
        "finished!": "text: end, or length where it was cut off",
        "nbest!": {
            **_list({"text!": "text", "score!": "number", "logprob!": "number"}),
            "description": "this one first",
        },
        "grid!": {**_list("whole", 2, least=2), "description": "rows and columns"},
        "words!": _list(words),
        "trace!": "object: all of it, as regard.look.Trace reads it",
    }
    caption = {
        "summary": "Describe a picture, with the attention of each word",
        "description": f"JPEG, PNG or WebP; at most {limits.picture >> 20} MiB{pixels}. Options belong in the query.",
        "parameters": [
            model,
            _query("nbest", _schema("whole", minimum=1, maximum=limits.alternatives + 1, default=1)),
            _query("beam", _schema("whole", minimum=1, maximum=limits.beam)),
        ],
        "requestBody": {
            "required": True,
            "content": {**_content(file, "application/octet-stream"), **_content({"image!": file}, FORMS[-1])},
        },
        "responses": {"200": {"description": "done", "content": _content(answer)}, "default": _error("Error")},
    }
    drawn = {
        "number!": "whole",
        "caption!": "text: the right one",
        "png!": _schema("text", contentEncoding="base64", contentMediaType="image/png"),
    }
    number = _query("number", _schema("whole", maximum=999_999, default=0))
    return {
        "POST /api/v1/caption": caption,
        "GET /api/v1/example": {**_get("A picture to try a captioner on", drawn), "parameters": [model, number]},
    }


def _about() -> Schema:
    status = {"status!": "ok|unavailable", "error": "text"}
    health = _get("Whether every model answers", status)
    health["responses"]["503"] = {"description": "not ready, and why", "content": _content(status)}
    text = {"description": "Prometheus text", "content": _content("text", "text/plain")}
    return {
        "GET /health": health,
        "GET /metrics": {"summary": "Counters", "responses": {"200": text, "default": _error("Error")}},
        "GET /spec": _get("This document", "object"),
    }


FORMS = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")


def _post(summary: str, body: Any, found: Any, kinds: Iterable[str] = FORMS[:1], error: str = "Error") -> Schema:
    content = {kind: {"schema": _schema(body)} for kind in kinds}
    answer = _get(summary, found, error)["responses"]
    return {"summary": summary, "requestBody": {"required": True, "content": content}, "responses": answer}


def _get(summary: str, found: Any, error: str = "Error", content: str = "application/json") -> Schema:
    done = {"description": "done", "content": _content(found, content)}
    return {"summary": summary, "responses": {"200": done, "default": _error(error)}}


def _in_path(name: str) -> Schema:
    return {"name": name, "in": "path", "required": True, "schema": _schema("text", pattern="^[A-Za-z0-9]+$")}


def _error(name: str) -> Schema:
    return {"description": "refused, with one sentence", "content": _content(f"#{name}")}


def _content(short: Any, kind: str = "application/json") -> Schema:
    return {kind: {"schema": _schema(short)}}


def _list(items: Any, most: int | None = None, least: int = 0) -> Schema:
    bounds = {"maxItems": most, "minItems": least}
    return {"type": "array", "items": _schema(items), **{name: size for name, size in bounds.items() if size}}


def _name_of(models: list[str]) -> Schema:
    return {"enum": models} if models else _schema("text")


def _query(name: str, short: Any) -> Schema:
    return {"name": name, "in": "query", "schema": _schema(short)}


_CHANGES = (
    "what-ifs, each an object with a kind and the fields of that kind: "
    + "; ".join(f"{kind} with {', '.join(names)}" for kind, names in KINDS.items())
    + " (head is optional: all heads). position is a token of the source and t one of the target, from 0, as in "
    '[{"kind": "mask", "position": 3}, {"kind": "temperature", "value": 0.5}]'
)
_SPAN = _list("whole", 2, least=2)
_SCHEMAS: Schema = {
    "Error": {"error!": "text"},
    "Message": {"message!": "text"},
    "Detected": {"confidence!": _schema("number", minimum=0, maximum=100), "language!": "text"},
    "Language": {"code!": "text", "name!": "text", "targets!": "[text]"},
    "Link": {"source!": _SPAN, "target!": _SPAN, "weight!": "number"},
    "Note": {"source!": _SPAN, "flags!": "[text]", "unknown!": "[text]: never seen in training"},
    "Translated": {
        "translatedText!": ["text", "[text]"],
        "detectedLanguage": ["#Detected", "[#Detected]"],
        "alternatives": _list(["text", "[text]"]),
        "alignment": _list(["#Link", "[#Link]"]),
        "notes": {
            **_list(["#Note", "[#Note]"]),
            "description": "ours: sentences with which something is not right; left out where there is none",
        },
    },
    "DeepLTranslation": {
        "detected_source_language!": "text",
        "text!": "text",
        "billed_characters": "whole",
        "unplaced_terms": "[text]: ours: terms of the glossary that were not placed",
    },
    "Glossary": {
        "glossary_id!": "text",
        "name!": "text",
        "source_lang!": "text",
        "target_lang!": "text",
        "entry_count!": "whole",
    },
    "Change": {
        "kind!": "mask|temperature|set-row|shift-row|silence",
        "position": "whole: token of the source, from 0: masked, or with set-row the only one that row t attends to",
        "t": "whole: token of the target, from 0, for set-row and shift-row",
        "by": {"type": "integer", "description": "for shift-row: how far the weights of row t move to the right"},
        "value": "number: for temperature, which divides the scores; below 1 is sharper",
        "name": "text: attention module as in a trace, for silence",
        "head": "whole: only this head, for set-row, shift-row and silence",
    },
}
