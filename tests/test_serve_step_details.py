"""What the page computes again agrees with the model: every model, variant and score function."""

import dataclasses
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_laws import shrink

from regard.api.tracing import assemble
from regard.errors import ConfigError
from regard.look.record import record
from regard.look.tokens import as_side
from regard.look.trace_file import write
from regard.models.registry import MODELS, build
from regard.serve.inside import explain, output, watch
from regard.symbols import END

PAGE = Path(__file__).parent.parent / "regard" / "look" / "page"
WORDS, STEPS, VOCABULARY = 6, 4, 31
TRANSLATORS = ("cho", "rnnencdec", "sutskever", "bahdanau", "coverage", "luong", "britz", "pointer", "transformer")


def variants() -> Iterator[tuple[str, Any]]:
    for name in TRANSLATORS:
        tiny = MODELS[name].presets["tiny"]
        yield name, tiny
        for variant, config in MODELS[name].variants.items():
            yield f"{name} {variant}", config


def all_steps(name: str, config: Any) -> list[dict[str, Any]]:
    """Every step of a random sentence as the server returns it, with the names that the trace gives to its parts."""
    torch.manual_seed(5)
    config = dataclasses.replace(shrink(config), source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY)
    model = build(name.split(" ")[0], config).eval()
    for weights in model.parameters():
        torch.nn.init.normal_(weights, std=0.3)
    source = torch.tensor([[*range(4, 4 + WORDS - 1), END]])  # [1, S]
    target = torch.tensor([[*range(9, 9 + STEPS - 1), END]])  # [1, T]
    lengths = torch.tensor([WORDS])
    with torch.inference_mode(), record(model) as seen:
        logits = model(source, lengths, target)
    pieces = [f"w{number}" for number in range(WORDS)], [f"v{number}" for number in range(STEPS)]
    trace = assemble(model, seen, as_side(pieces[0]), as_side(pieces[1]))
    chosen, calls, again = watch(model, None, lambda: model(source, lengths, target))
    torch.testing.assert_close(again, logits)
    attended = trace.attention[chosen]
    steps = []
    for t in range(STEPS):
        for head in range(attended.heads):
            step = explain(model.get_submodule(chosen), calls, t, head)
            np.testing.assert_allclose(step["weights"], attended.weights[head, t], atol=1e-6)
            best = output(logits[0, t], int(target[0, t]), lambda index: {"piece": str(index)})
            shares = np.exp([word["logit"] - best["log_total"] for word in best["words"]])
            np.testing.assert_allclose(shares[0], logits[0, t].softmax(-1).max(), rtol=1e-5)
            assert [word["chosen"] for word in best["words"]].count(True) == 1
            steps.append({"name": name, "normalise": attended.normalise, **step})
    return steps


AGAIN = """
import { readFileSync } from "node:fs";
const { unpack } = await import(process.argv[1] + "/trace.js");
const maths = await import(process.argv[1] + "/maths.js");
const found = JSON.parse(readFileSync(0, "utf8")).steps.map((plain) => {
  const part = (name) => unpack(plain[name]);
  const formula = { ...plain.formula };
  for (const side of ["left", "right", "v"]) formula[side] = unpack(formula[side]);
  const scores = part("scores").data, weights = part("weights").data, values = part("values");
  const again = maths.score(formula, scores.length);
  const visible = again && again.map((value, s) => (Number.isFinite(scores[s]) ? value : -Infinity));
  const shares = maths.normalise(plain.normalise, scores, plain.centre, plain.half_width);
  const size = Math.max(1, ...Array.from(scores).filter(Number.isFinite).map(Math.abs));  // a float32 has 7 digits
  return [plain.name, visible && maths.difference(visible, scores) / size, shares && maths.difference(shares, weights),
    maths.difference(maths.weigh(Array.from(weights), values), part("context").data)];
});
console.log(JSON.stringify(found));
"""


def test_the_page_recomputes_scores_weights_and_context_of_every_model() -> None:
    if shutil.which("node") is None:
        pytest.skip("Node.js is not installed")
    steps = [step for name, config in variants() for step in all_steps(name, config)]
    done = subprocess.run(
        ["node", "--input-type=module", "-e", AGAIN, "--", PAGE.as_uri()],
        input=write({"steps": steps}), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    kinds = {step["formula"]["kind"] for step in steps}
    assert kinds == {"additive", "cosine", "dot", "location", "fixed"}
    for name, scores, weights, context in json.loads(done.stdout):
        assert scores is not None, f"{name}: the page does not know this score"
        assert weights is not None, f"{name}: the page does not know this normaliser"
        assert max(scores, weights, context) < 1e-5, (name, scores, weights, context)


def test_every_head_and_step_is_there_and_no_other() -> None:
    config = MODELS["transformer"].presets["tiny"]
    model = build("transformer", config).eval()
    source, target = torch.tensor([[4, 5, END]]), torch.tensor([[6, END]])
    name, calls, _ = watch(model, None, lambda: model(source, torch.tensor([3]), target))
    module: Any = model.get_submodule(name)
    with pytest.raises(ConfigError, match="There is no step 2"):
        explain(module, calls, 2, 0)
    with pytest.raises(ConfigError, match="There is no head"):
        explain(module, calls, 0, config.heads)
    with pytest.raises(ConfigError, match="There is no attention module 'none'"):
        watch(model, "none", lambda: model(source, torch.tensor([3]), target))
    assert not any(module._forward_hooks for module in model.modules())
