"""LibreTranslate's contract, over a real server: body styles, field names, status codes and error shape."""

import re

import pytest
from serve_parts import Server, serving, shared

from regard.runs.included import find_run


@pytest.fixture(scope="module")
def server() -> Server:
    return shared()


FIELDS = {"q": "ba da fo", "source": "en", "target": "de"}


@pytest.mark.parametrize(
    "sent",
    [
        {"json": FIELDS},
        {"data": FIELDS},
        {"params": FIELDS},
        {"files": {name: (None, value) for name, value in FIELDS.items()}},
        {"json": {**FIELDS, "source": "EN", "target": "De", "api_key": "ignored here", "unknown": 1}},
        {
            "content": b'{"q":"ba da fo","source":"en","target":"de"}',
            "headers": {"content-type": "application/ld+json"},
        },
    ],
)
def test_every_body_style_is_understood(server: Server, sent: dict) -> None:
    response = server.client.post("/translate", **sent)
    assert response.status_code == 200
    assert response.json() == {"translatedText": "fo da ba"}


def test_a_batch_keeps_its_order_and_its_number(server: Server) -> None:
    texts = ["ba da", "", "lu me ko", "  ", "\U0001f600", "ti ke\nba da fo\n\n"]
    found = server.translate(texts)["translatedText"]
    assert found == ["da ba", "", "ko me lu", "  ", "\U0001f600", "ke ti\nfo da ba\n\n"]


def test_a_note_says_in_words_what_a_flag_means(server: Server) -> None:
    text = "ba da\nJe ne sais pas où est la gare."
    (found,) = server.translate(text)["notes"]
    assert text[slice(*found["source"])] == "Je ne sais pas où est la gare."
    noted = dict(zip(found["flags"], found["notes"], strict=True))
    assert noted["language"] == "the source looks like French, but the model reads English"


def test_a_repeated_form_field_is_no_batch(server: Server) -> None:
    response = server.client.post("/translate", content="q=ba+da&q=lu+me&source=en&target=de",
                                  headers={"content-type": "application/x-www-form-urlencoded"})  # fmt: skip
    assert response.json()["translatedText"] == "da ba"


def test_optional_fields_come_only_on_request(server: Server) -> None:
    assert set(server.translate("ba da")) == {"translatedText"}
    found = server.post("/translate", q="ba da", source="auto", target="de", alternatives=3).json()
    assert found["detectedLanguage"]["language"] == "en"
    assert found["detectedLanguage"]["confidence"] == 100.0
    assert 1 <= len(found["alternatives"]) <= 3
    assert len({*found["alternatives"], found["translatedText"]}) == len(found["alternatives"]) + 1
    batch = server.post("/translate", q=["ba da", "qqq xxx"], source="auto", target="de", alternatives=1).json()
    assert [each["confidence"] for each in batch["detectedLanguage"]] == [100.0, 0.0]
    assert [len(each) for each in batch["alternatives"]] == [1, 1]


def test_a_text_that_is_in_the_target_language_stays_as_it_is() -> None:
    here, there = "Where is the station?", "Où est la gare\u00a0?"
    with serving(find_run("en-fr"), find_run("fr-en")) as server:
        found = server.post("/translate", q=[here, there], source="auto", target="fr").json()
        assert found["translatedText"] == [there, there]
        assert [each["language"] for each in found["detectedLanguage"]] == ["en", "fr"]
        streamed = server.client.post("/translate", data={"q": there, "source": "auto", "target": "fr", "stream": "1"})
        assert f'"translatedText": "{there}"' in streamed.text
        deepl = server.post("/v2/translate", text=[there], target_lang="FR").json()["translations"][0]
        assert (deepl["detected_source_language"], deepl["text"]) == ("FR", there)
        for source, target in (("auto", "fr"), ("en", "en"), ("en", "fr")):
            wrong = server.post("/translate", q=here, source=source, target=target, model="fr-en")
            error = f"The model fr-en translates fr to en, not {source} to {target}."
            assert (wrong.status_code, wrong.json()) == (400, {"error": error})


def test_html_keeps_its_tags_and_escapes_what_the_model_wrote(server: Server) -> None:
    page = '<p class="x&quot;">ba <b>da fo</b></p><script>ba da</script><!-- ba --> lu &lt;me'
    found = server.translate(page, format="html", alternatives=2)
    text = found["translatedText"]
    assert re.sub("</?b>", "", text).startswith('<p class="x&quot;">fo da ba</p><script>ba da</script><!-- ba -->')
    assert re.findall("</?b>", text) == ["<b>", "</b>"]  # placed by attention: one sentence, not two pieces
    assert "<me" not in found["translatedText"]
    assert found["alternatives"] == []


def test_alignment_gives_code_points_of_both_texts(server: Server) -> None:
    text = "ba da fo\n lu me"
    found = server.translate(text, alignment=True)
    target = found["translatedText"]
    linked = [(text[slice(*each["source"])], target[slice(*each["target"])]) for each in found["alignment"]]
    assert [word for _, word in linked] == ["fo", "da", "ba", "me", "lu"]
    assert all(word in text.split() for word, _ in linked)
    assert all(word in ("lu", "me") for word, _ in linked[3:]), "the second line looks at the second line"
    assert all(0 < each["weight"] <= 1 for each in found["alignment"])


@pytest.mark.parametrize(
    ("fields", "status", "sentence"),
    [
        ({"source": "en", "target": "de"}, 400, "Invalid request: missing q parameter"),
        ({"q": "ba", "target": "de"}, 400, "Invalid request: missing source parameter"),
        ({"q": "ba", "source": "en"}, 400, "Invalid request: missing target parameter"),
        ({**FIELDS, "target": "zz"}, 400, "zz is not supported"),
        ({**FIELDS, "source": "de"}, 400, "de is not supported"),
        ({**FIELDS, "format": "xml"}, 400, "xml format is not supported"),
        ({**FIELDS, "alternatives": "x"}, 400, "Invalid request: alternatives parameter is not a number"),
        ({**FIELDS, "alternatives": None}, 400, "Invalid request: alternatives parameter is not a number"),
        ({**FIELDS, "alternatives": True}, 400, "Invalid request: alternatives parameter is not a number"),
        ({**FIELDS, "alternatives": 11}, 400, "Invalid request: alternatives parameter must be <= 10"),
        ({**FIELDS, "alternatives": -1}, 400, "Invalid request: alternatives parameter must be >= 0"),
        ({**FIELDS, "q": 5}, 400, "Invalid request: q parameter is not text"),
        ({**FIELDS, "q": ["ba", None]}, 400, "Invalid request: q parameter is not text"),
        ({**FIELDS, "model": "none"}, 404, "There is no model 'none'; GET /api/v1/models lists them."),
    ],
)
def test_errors_have_their_status_and_one_sentence(server: Server, fields: dict, status: int, sentence: str) -> None:
    response = server.post("/translate", **fields)
    assert (response.status_code, response.json()) == (status, {"error": sentence})


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"q"', b'{"q": NaN}', b"\xff\xfe", b'{"q": Infinity}'])
def test_what_is_no_json_object_is_refused(server: Server, body: bytes) -> None:
    response = server.client.post("/translate", content=body, headers={"content-type": "application/json"})
    assert (response.status_code, response.json()) == (400, {"error": "Invalid JSON format"})


def test_detect_languages_settings_and_health(server: Server) -> None:
    assert server.post("/detect", q="ba da").json() == [{"confidence": 100.0, "language": "en"}]
    assert server.client.post("/detect", data={"q": "!!"}).json() == [{"confidence": 0.0, "language": "en"}]
    languages = server.client.get("/languages").json()
    assert {"code": "en", "name": "English", "targets": ["de"]} in languages
    settings = server.client.get("/frontend/settings").json()
    assert settings["language"] == {
        "source": {"code": "en", "name": "English"},
        "target": {"code": "de", "name": "German"},
    }
    assert settings["keyRequired"] is False
    assert server.client.get("/health").json() == {"status": "ok"}


def test_a_body_on_get_is_tolerated(server: Server) -> None:
    for kind in ("application/json", "application/x-www-form-urlencoded"):
        response = server.client.request("GET", "/languages", content=b"api_key=k", headers={"content-type": kind})
        assert response.status_code == 200


def test_unknown_paths_and_methods_answer_in_json(server: Server) -> None:
    assert server.client.get("/nothing").json() == {"error": "Not found; GET /spec lists the endpoints."}
    assert server.client.get("/v2/nothing").json() == {"message": "Not found; GET /spec lists the endpoints."}
    refused = server.client.get("/translate")
    assert (refused.status_code, set(refused.json())) == (405, {"error"})


def test_nothing_in_an_answer_tells_where_the_server_lives(server: Server) -> None:
    for path in ("/", "/spec", "/metrics", "/api/v1/models", "/page/../app.py", "/page/%2e%2e/app.py", "/page/none.js"):
        answer = server.client.get(path)
        assert "/home/" not in answer.text
        assert "site-packages" not in answer.text
        assert "Traceback" not in answer.text
        assert "server" not in answer.headers
        assert "set-cookie" not in answer.headers


def test_confidence_is_answered_only_if_asked(server: Server) -> None:
    """The included models are calibrated; without the field, answers have none."""
    with serving(find_run("en-fr/bahdanau")) as other:
        plain, asked = (
            other.client.post(
                "/translate", json={"q": "Where is the station? Qxz vbk.", "source": "en", "target": "fr", **more}
            )
            for more in ({}, {"confidence": True})
        )
        answer = asked.json()
        rated = answer.pop("confidence")
        assert answer == plain.json()
        assert [one["source"] for one in rated] == [[0, 21], [22, 30]]
        assert 0 <= rated[1]["confidence"] < rated[0]["confidence"] <= 1
        assert [word for word, _ in rated[0]["words"]] == ["Où", "est", "la", "gare", "?"]
        assert answer["translatedText"].startswith("Où est la gare\u00a0? ")
        deepl = {"text": ["Where is the station?"], "target_lang": "FR", "confidence": True}
        [translation] = other.client.post("/v2/translate", json=deepl).json()["translations"]
        assert "confidence" not in translation
        trace = other.client.post("/api/v1/trace", json={"text": "Where is the station?"}).json()
        words = [token.get("confidence") for token in trace["target"]["tokens"] if not token["special"]]
        assert all(0 <= chance <= 1 for chance in words)
        streamed = {"q": "Hi", "source": "en", "target": "fr", "confidence": True, "stream": True}
        assert other.client.post("/translate", json=streamed).status_code == 400
    refused = server.client.post("/translate", json={**FIELDS, "confidence": True})
    assert refused.status_code == 400
    assert "is not calibrated; run `regard calibrate`" in refused.json()["error"]
