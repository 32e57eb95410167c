"""The clients that people use, unchanged, against a real server process."""

import json
import urllib.error

import pytest
from npm_parts import node
from serve_parts import Server, shared


@pytest.fixture(scope="module")
def server() -> Server:
    return shared()


def test_libretranslatepy(server: Server) -> None:
    client = pytest.importorskip("libretranslatepy").LibreTranslateAPI(server.address, "some key")
    assert client.translate("ba da fo", "en", "de") == "fo da ba"
    assert client.detect("ba da") == [{"confidence": 100.0, "language": "en"}]
    assert [each["code"] for each in client.languages()] == ["en", "de"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        client.translate("ba", "en", "zz")
    assert refused.value.code == 400


def test_deep_translator(server: Server) -> None:
    libre = pytest.importorskip("deep_translator").LibreTranslator
    client = libre(source="en", target="de", api_key="some key", custom_url=server.address)
    assert client.translate("ba da fo") == "fo da ba"
    assert client.translate_batch(["ba da", "lu me ko"]) == ["da ba", "ko me lu"]


def test_deepl(server: Server) -> None:
    deepl = pytest.importorskip("deepl")
    client = deepl.DeepLClient("some key", server_url=server.address.rstrip("/"), send_platform_info=False)
    one = client.translate_text("ba da fo", target_lang="DE")
    assert (one.text, one.detected_source_lang, one.billed_characters) == ("fo da ba", "EN", 8)
    many = client.translate_text(["ba da", "<b>lu me</b>"], source_lang="EN", target_lang="DE", tag_handling="html")
    assert [each.text for each in many] == ["da ba", "<b>me lu</b>"]
    assert [each.code for each in client.get_source_languages()] == ["EN"]
    assert [each.code for each in client.get_target_languages()] == ["DE"]
    assert client.get_usage().character.count >= 8
    with pytest.raises(deepl.DeepLException, match="JA is not supported"):
        client.translate_text("ba", target_lang="JA")


def test_deepl_keeps_the_case_of_tags(server: Server) -> None:
    for tags in ("xml", "html"):
        found = server.post("/v2/translate", text=["<Term>ba da</Term>"], target_lang="DE", tag_handling=tags).json()
        assert found["translations"][0]["text"] == "<Term>da ba</Term>"


def test_deepl_form_and_errors(server: Server) -> None:
    form = server.client.post("/v2/translate", content="text=ba+da&text=lu+me&target_lang=DE",
                              headers={"content-type": "application/x-www-form-urlencoded"})  # fmt: skip
    assert [each["text"] for each in form.json()["translations"]] == ["da ba", "me lu"]
    for fields in ({"target_lang": "DE"}, {"text": "ba"}, {"text": ["ba"], "target_lang": "DE", "tag_handling": "tex"}):
        refused = server.post("/v2/translate", **fields)
        assert (refused.status_code, set(refused.json())) == (400, {"message"})


def test_npm_libretranslate(server: Server) -> None:
    script = """
      import { translate } from "libretranslate";
      const found = await translate({ query: "ba da fo", source: "en", target: "de", apiurl: process.argv[1] });
      console.log(JSON.stringify(found));
    """
    assert json.loads(node(script, server.address.rstrip("/"))) == "fo da ba"


def test_npm_libretranslate_ts(server: Server) -> None:
    script = """
      import all from "libretranslate-ts";
      const { libreTranslate } = all;
      libreTranslate.setApiEndpoint(process.argv[1]);
      libreTranslate.setApiKey("");
      const found = await libreTranslate.translate("ba da fo", "en", "de");
      const language = await libreTranslate.detect("ba da");
      console.log(JSON.stringify([found.translatedText, language.language]));
    """
    assert json.loads(node(script, server.address.rstrip("/"))) == ["fo da ba", "en"]


def test_npm_translate(server: Server) -> None:
    script = """
      import translate from "translate";
      translate.engine = "libre";
      translate.url = process.argv[1] + "translate";
      console.log(JSON.stringify(await translate("ba da fo", { from: "en", to: "de" })));
    """
    assert json.loads(node(script, server.address)) == "fo da ba"


def test_npm_deepl_node(server: Server) -> None:
    script = """
      import * as deepl from "deepl-node";
      const client = new deepl.DeepLClient("some key", { serverUrl: process.argv[1] });
      const one = await client.translateText("ba da fo", null, "de");
      const many = await client.translateText(["ba da", "lu me ko"], "en", "de");
      const languages = await client.getTargetLanguages();
      const usage = await client.getUsage();
      const names = [many.map((each) => each.text), languages.map((each) => each.code)];
      console.log(JSON.stringify([one.text, one.detectedSourceLang, ...names, usage.character.count > 0]));
    """
    found = json.loads(node(script, server.address.rstrip("/")))
    assert found == ["fo da ba", "en", ["da ba", "ko me lu"], ["de"], True]
