"""Decoding speed beside MarianMT's `generate`, on the same sentences and sizes: python benchmarks/decoding.py

The models are not trained, so every search is made to write the same number of tokens, END banned before the last.
A ratio of speeds is the median over rounds in which all took their turn. `pip install transformers`
adds MarianMT. On a machine with other work, `--clock cpu --threads 1` counts processor time instead of the wall's.
"""

import argparse
import importlib.util
from collections.abc import Callable

import torch
from peers import Marian
from race import Lane, machine, race, report
from torch import nn
from training import VOCABULARY, fill, sized

from regard.decode.search import decode
from regard.decode.settings import DecodeConfig
from regard.models.registry import build, preset

WORDS, TOKENS = 20, 25  # of a source sentence, END counted, and of its translation


def ours(model: nn.Module, batch: int, beam: int, device: str) -> Callable[[int], float]:
    """Search with regard."""
    config = DecodeConfig(beam=beam, min_length=TOKENS, max_ratio=0.0, max_extra=TOKENS)

    def work(number: int) -> float:
        source, lengths = sentences(batch, number, device)
        found = decode(model, source, lengths, config)  # type: ignore[arg-type]
        assert all(len(hypotheses[0].ids) == TOKENS for hypotheses in found)
        return batch

    return work


def theirs(model: Marian, batch: int, beam: int, device: str) -> Callable[[int], float]:
    """Search with transformers."""

    def work(number: int) -> float:
        source, _ = sentences(batch, number, device)
        with torch.inference_mode():
            found = model.marian.generate(
                input_ids=source,
                attention_mask=torch.ones_like(source),
                num_beams=beam,
                do_sample=False,
                min_new_tokens=TOKENS,
                max_new_tokens=TOKENS,
            )
        assert found.shape[1] == TOKENS + 1  # and its start symbol
        return batch

    return work


def sentences(batch: int, number: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Source [B, WORDS] and lengths [B], other words in every round."""
    lengths = torch.full((batch,), WORDS)
    return fill(lengths, torch.Generator().manual_seed(number)).to(device), lengths.to(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["transformer", "bahdanau", "luong"])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 5])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    print(f"{machine(options.device, options.clock)}; {WORDS} source and {TOKENS} target tokens a sentence")
    models = {name: build(name, sized(preset(name, "small"))).to(options.device).eval() for name in options.models}
    small = preset("transformer", "small")
    marian = None
    if importlib.util.find_spec("transformers"):
        marian = Marian(VOCABULARY, small.width, small.heads, small.layers, small.inner, 0.1).to(options.device).eval()
    else:
        print("MarianMT is left out: transformers is not installed.")
    for batch in options.batches:
        for beam in options.beams:
            own = [Lane(f"regard {name}", ours(model, batch, beam, options.device)) for name, model in models.items()]
            peers = []
            if marian is not None:
                peers.append(Lane("transformers MarianMT", theirs(marian, batch, beam, options.device)))
            race(own + peers, options.rounds, options.clock)
            report(f"Decoding, batch {batch}, {'greedy' if beam == 1 else f'beam {beam}'}", "sentences", own, peers)


if __name__ == "__main__":
    main()
