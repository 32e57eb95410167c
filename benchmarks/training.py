"""Training speed beside the peers, on the same batches and sizes: python benchmarks/training.py

Every contestant makes the same step: cross-entropy, gradients, clipping, Adam; ours takes the loss as `regard train`
does. Speeds are real target tokens a second, padding not counted; a ratio is the median over rounds in which all took
their turn. `pip install transformers` adds MarianMT. On a machine with other work, `--clock cpu --threads 1` counts
processor time instead of the wall's.

`--batches`: random words in sentences of nearly one length ("full"); Multi30k, prepared and batched as by
`regard train configs/multi30k.toml` ("multi30k"); or its sentences in random order, as a plain DataLoader has them, as
many in a batch as give about as many tokens ("shuffled").
"""

import argparse
import importlib.util
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from peers import Marian, TorchTransformer, TutorialBahdanau, TutorialLuong
from race import Lane, machine, race, report
from torch import Tensor, nn

from regard.config import load_toml, read
from regard.data.batching import ShardedPlan
from regard.data.pairs import PairEncoding
from regard.data.prepare import prepare
from regard.data.settings import DataConfig
from regard.models.registry import build, preset
from regard.symbols import END, PAD
from regard.training.objectives import likelihood

CONFIG = Path(__file__).parents[1] / "configs" / "multi30k.toml"
VOCABULARY, DROPOUT = 8000, 0.1
Batch = tuple[Tensor, Tensor, Tensor]


def make_batches(tokens: int, count: int, device: str) -> list[Batch]:
    """`count` batches of about `tokens` target tokens, bucketed by length as in training: 10 to 40 words a sentence."""
    generator = torch.Generator().manual_seed(1)
    batches = []
    for length in torch.linspace(12, 38, count).int().tolist():
        rows = max(1, tokens // length)
        sizes = [torch.randint(length - 2, length + 3, (rows,), generator=generator) for _ in range(2)]
        source, target = (fill(size, generator) for size in sizes)
        batches.append((source.to(device), sizes[0].to(device), target.to(device)))
    return batches


def fill(sizes: Tensor, generator: torch.Generator) -> Tensor:
    """Random words [B, longest], END last in each row, then padding."""
    words = torch.randint(4, VOCABULARY, (len(sizes), int(sizes.max())), generator=generator)
    places = torch.arange(words.shape[1])
    words[places == sizes[:, None] - 1] = END
    return words.masked_fill(places >= sizes[:, None], PAD)


def read_batches(tokens: int, count: int, device: str, shuffled: bool) -> list[Batch]:
    """`count` batches of Multi30k, from those with most padding to those with least, as an epoch has them."""
    config = read(DataConfig, load_toml(CONFIG)["data"], "data")
    with tempfile.TemporaryDirectory() as folder:
        pairs = prepare(PairEncoding(config), Path(folder) / "run").train
        plan = list(ShardedPlan(*pairs.sides, tokens, 1, 0))
        if shuffled:
            plan = np.array_split(np.random.default_rng(1).permutation(len(pairs)), len(plan))
        plan.sort(key=lambda numbers: pairs.target_lengths[numbers].mean() / pairs.target_lengths[numbers].max())
        places = [len(plan) * (2 * number + 1) // (2 * count) for number in range(count)]
        made = [pairs.batch(plan[place].tolist()) for place in places]
    print(f"{sum(int(one.target_lengths.sum()) for one in made) / sum(one.target.numel() for one in made):.0%} words")
    return [(one.source.to(device), one.source_lengths.to(device), one.target.to(device)) for one in made]


def by_logits(model: nn.Module, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
    logits = model(source, lengths, target)
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)


def as_in_training(model: nn.Module, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
    return likelihood(model, source, lengths, target)[0] / (target != PAD).sum()


def trainer(
    model: nn.Module, batches: list[Batch], device: str, bf16: bool, loss_of: Callable[..., Tensor]
) -> Callable[[int], float]:
    """One step of training a round; returns the target tokens it learned from."""
    model.to(device).train()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def step(number: int) -> float:
        batch = batches[number % len(batches)]
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            loss = loss_of(model, *batch)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        return float((batch[-1] != PAD).sum())

    return step


def transformers_() -> tuple[dict[str, nn.Module], dict[str, nn.Module]]:
    """3 + 3 layers, width 256."""
    config = replace(preset("transformer", "small"), dropout=DROPOUT)
    sizes = (VOCABULARY, config.width, config.heads, config.layers, config.inner, DROPOUT)
    peers: dict[str, nn.Module] = {"torch.nn.Transformer": TorchTransformer(*sizes)}
    if importlib.util.find_spec("transformers"):
        peers["transformers MarianMT"] = Marian(*sizes)
    else:
        print("MarianMT is left out: transformers is not installed.")
    return {"regard transformer": build("transformer", sized(config))}, peers


def bahdanaus() -> tuple[dict[str, nn.Module], dict[str, nn.Module]]:
    """One layer, width 512."""
    config = replace(preset("bahdanau", "small"), dropout=DROPOUT)
    ours = {f"regard bahdanau, {cell} cell": build("bahdanau", sized(config, cell=cell)) for cell in ("paper", "torch")}
    sizes = (VOCABULARY, config.embedding, config.width, DROPOUT)
    return ours, {
        "tutorial loop": TutorialBahdanau(*sizes, cached=False),
        "tutorial loop, keys cached": TutorialBahdanau(*sizes, cached=True),
    }


def luongs() -> tuple[dict[str, nn.Module], dict[str, nn.Module]]:
    """Two layers, width 512, input feeding, general score, global."""
    config = replace(preset("luong", "small"), dropout=DROPOUT)
    sizes = (VOCABULARY, config.width, config.layers, DROPOUT)
    return {"regard luong": build("luong", sized(config))}, {
        "tutorial loop": TutorialLuong(*sizes, cached=False),
        "tutorial loop, keys cached": TutorialLuong(*sizes, cached=True),
    }


def sized(config: object, **changes: object) -> object:
    return replace(config, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY, **changes)  # type: ignore[type-var]


FAMILIES = {"transformer": transformers_, "bahdanau": bahdanaus, "luong": luongs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--batches", choices=["full", "multi30k", "shuffled"], default="full")
    parser.add_argument("--tokens", type=int, default=4096, help="target tokens in a batch")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    print(f"{machine(options.device, options.clock)}; {options.tokens} target tokens a batch{', bf16' * options.bf16}")
    sizes = options.tokens, 3 if options.batches == "full" else options.rounds, options.device
    shuffled = options.batches == "shuffled"
    batches = make_batches(*sizes) if options.batches == "full" else read_batches(*sizes, shuffled)
    for family in options.families:
        ours, peers = (
            [Lane(name, trainer(model, batches, options.device, options.bf16, loss)) for name, model in models.items()]
            for models, loss in zip(FAMILIES[family](), (as_in_training, by_logits), strict=True)
        )
        race(ours + peers, options.rounds, options.clock)
        report(f"Training, {FAMILIES[family].__doc__}", "tokens", ours, peers)


if __name__ == "__main__":
    main()
