r"""Is attention replaceable? BLEU, and the faithfulness of attention, with other attention in the place of Bahdanau's.

    regard corpora phrasebook --out runs/ftrain --size 10000 --max-words 8 --seed 5
    regard corpora phrasebook --out runs/ftest --size 300 --max-words 8 --seed 77
    python benchmarks/replaceable.py runs/f-bahdanau-1 runs/ftrain runs/ftest

The replacements, each of the run that is named:

- `uniform at test`: every source word gets the same weight; nothing is trained again.
- `permuted at test`: the weights of each target word are permuted at random (Jain and Wallace 2019).
- `uniform, trained`: the model trained on with uniform weights (Wiegreffe and Pinter 2019, section 3.2).
- `adversary`: the model trained on to keep its distributions and to attend elsewhere (the same, section 4):

      loss = TVD(p, p_base) - strength * KL(weights || weights_base)

  with means over target words; TVD is half the sum of |p - p_base|. KL is bounded by taking base weights below 0.0001
  as 0.0001.

The paper trains the last two from new weights; here both begin with those of the run.

Printed for each: BLEU (greedy) of all test sentences; on the references, the mean TVD of its distributions and the
Jensen-Shannon divergence of its attention from the run's (at most log 2 = 0.69); and on the first `--sentences`, how
far its attention is from a random order (0) to the oracle (1) by comprehensiveness, with erased words masked, then
removed, and its rank correlation with leaving out one word.
"""

import argparse
import copy
import json
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import regard
from regard.api.faithful import measure_faithfulness
from regard.data.batching import pad
from regard.look.change import Change, change
from regard.look.record import record
from regard.symbols import END, PAD
from regard.text.lines import read_lines
from regard.training.objectives import cross_entropy

LEAST = 1e-4  # of the base weights in KL


@dataclass(frozen=True)
class Uniform(Change):
    """The same weight for every word that can be attended to."""

    def weigh(self, weights: Tensor, first: int) -> Tensor:
        visible = (weights > 0).to(weights.dtype)
        return visible / visible.sum(-1, keepdim=True).clamp(min=1)


@dataclass(frozen=True)
class Permuted(Change):
    """The weights of each row in random order, among the words that can be attended to."""

    def weigh(self, weights: Tensor, first: int) -> Tensor:
        hidden = (weights <= 0).float()
        drawn = (torch.rand_like(weights) + 2 * hidden).argsort(-1)
        return torch.zeros_like(weights).scatter(-1, hidden.argsort(stable=True, dim=-1), weights.gather(-1, drawn))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("train", help="prefix of the files of `regard corpora`")
    parser.add_argument("test")
    parser.add_argument("--steps", type=int, default=200, help="updates of each training")
    parser.add_argument("--batch", type=int, default=100, help="sentences")
    parser.add_argument("--strength", type=float, nargs="+", default=[0.1])
    parser.add_argument("--sentences", type=int, default=30, help="whose faithfulness is measured")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    base, unchanged = (regard.load(given.run, given.device) for _ in range(2))
    read = [list(read_lines(f"{given.train}.{side}")) for side in ("source", "target")]
    test = [list(read_lines(f"{given.test}.{side}")) for side in ("source", "target")]
    pairs = [
        ([*base.encode(source).ids, END], [*base.prefix_ids(target), END]) for source, target in zip(*read, strict=True)
    ]

    def show(name: str, translator: Any, *changes: Change, faithful: bool = True) -> None:
        with change(translator.model, *changes) if changes else nullcontext():
            torch.manual_seed(given.seed)
            found = {"attention": name, "bleu": translator.score(*test, metrics=["bleu"], beam=1)["bleu"]}
            found |= compare(translator, unchanged.model, test)
            for erasing in ("masked", "removed") if faithful else ():
                some = (side[: given.sentences] for side in test)
                one = measure_faithfulness(translator, *some, methods=["attention"], erasing=erasing, sane=0).methods[0]
                assert one.reach is not None
                assert one.correlation is not None
                found |= {f"reach, {erasing}": one.reach.value, f"tau, {erasing}": one.correlation.value}
        rounded = {key: value if isinstance(value, str) else round(value, 3) for key, value in found.items()}
        print(json.dumps({"run": given.run, **rounded}), flush=True)

    show("as trained", base)
    show("uniform at test", base, Uniform())
    show("permuted at test", base, Permuted(), faithful=False)
    show("uniform, trained", fit(base, pairs, given, None), Uniform())
    for strength in given.strength:
        show(f"adversary, strength {strength:g}", fit(base, pairs, given, strength))


def fit(base: Any, pairs: list[Any], given: argparse.Namespace, strength: float | None) -> Any:
    """Train the translator's model further: as an adversary of its original attention, or with uniform weights if no
    strength is given."""
    torch.manual_seed(given.seed)
    model = copy.deepcopy(base.model).train().requires_grad_()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(given.steps):
        chosen = [pairs[at] for at in torch.randint(len(pairs), (given.batch,)).tolist()]
        (source, lengths), (target, _) = (on(base, [pair[side] for pair in chosen]) for side in (0, 1))
        if strength is None:
            with change(model, Uniform()):
                loss = cross_entropy(model(source, lengths, target), target)[0] / (target != PAD).sum()
        else:
            distance, divergence = distances(model, base.model, source, lengths, target, adverse=True)
            loss = distance - strength * divergence
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    other = copy.copy(base)
    other.model = model.eval()
    return other


def on(translator: Any, rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Padded rows and their lengths, where the model is."""
    ids, lengths = pad(rows)
    return ids.to(translator.device), lengths.to(translator.device)


def distances(
    model: Any, base: Any, source: Tensor, lengths: Tensor, target: Tensor, adverse: bool = False
) -> tuple[Tensor, Tensor]:
    """Of a model from `base`, means over target words: TVD of the distributions, and the Jensen-Shannon divergence of
    the attention, or with `adverse`, KL(weights || base weights)."""
    with torch.no_grad(), record(base) as seen:
        expected = base(source, lengths, target).softmax(-1)
    [name] = base.attention_layout.cross
    usual = seen[name].weights  # [B, T, S]
    attended: list[Tensor] = []  # as they are in the graph: `record` detaches them
    with model.get_submodule(name).register_forward_hook(lambda module, args, look: attended.append(look.weights)):
        found = model(source, lengths, target).softmax(-1)
    weights = torch.cat(attended, dim=-2)
    real = target != PAD  # [B, T]
    distance = ((found - expected).abs().sum(-1) / 2)[real].mean()

    def divergence(a: Tensor, b: Tensor) -> Tensor:
        return (a * (a.clamp(min=1e-12).log() - b.clamp(min=LEAST if adverse else 1e-12).log())).sum(-1)

    if adverse:
        return distance, divergence(weights, usual)[real].mean()
    middle = (weights + usual) / 2
    return distance, ((divergence(weights, middle) + divergence(usual, middle)) / 2)[real].mean()


@torch.no_grad()
def compare(translator: Any, base: Any, test: list[list[str]]) -> dict[str, float]:
    """The distances of a translator's model from `base` on the references."""
    (source, lengths), (target, _) = (
        on(translator, [[*encode(text), END] for text in side])
        for side, encode in zip(test, (lambda text: translator.encode(text).ids, translator.prefix_ids), strict=True)
    )
    distance, divergence = distances(translator.model, base, source, lengths, target)
    return {"tvd": float(distance), "jsd": float(divergence)}


if __name__ == "__main__":
    main()
