"""Does int8 pay for a recurrent model on a CPU? The Bahdanau that ships: python benchmarks/recurrent_int8.py

The linear layers of encoder, decoder and output become torch's dynamically quantised ones (activations quantised as
they come), in turns with float32 in one run. bfloat16 is measured on the largest product alone.
"""

import argparse
import warnings
from collections.abc import Callable

import torch
from race import Lane, machine, race, report, translates
from torch import nn

import regard
from regard.corpora.registry import find_builtin
from regard.evaluate.scores import score


def quantised(model: nn.Module) -> nn.Module:
    """The model with int8 weights, but for the few layers whose weights are read directly."""
    from torch.ao.quantization import quantize_dynamic

    torch.backends.quantized.engine = "onednn"
    kept = ("initial", "attention")
    names = {name for name, module in model.named_modules() if type(module) is nn.Linear}
    return quantize_dynamic(model, {name for name in names if not any(part in name for part in kept)})


def multiplies(dtype: torch.dtype) -> Callable[[int], float]:
    """The output layer for a beam of 5: [5, 512] x [512, 8000]."""
    layer, x = nn.Linear(512, 8000).to(dtype), torch.randn(5, 512).to(dtype)

    def work(number: int) -> float:
        with torch.inference_mode():
            layer(x)
        return 1

    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # the quantised layers are announced to move to another package
    pairs = find_builtin("phrasebook").generate(options.sentences, 7, 6, 14)
    texts, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    plain, small = (regard.load("en-fr/bahdanau", "cpu") for _ in range(2))
    small.model = quantised(small.model)
    print(machine("cpu", options.clock))
    for batch, beam in ((1, 1), (32, 5)):
        lanes = [Lane("int8", translates(small, texts, batch, beam))]
        peers = [Lane("float32", translates(plain, texts, batch, beam))]
        race(lanes + peers, options.rounds, options.clock)
        report(f"batch {batch}, {'greedy' if beam == 1 else f'beam {beam}'}", "sentences", lanes, peers)
    lanes, peers = [Lane("bfloat16", multiplies(torch.bfloat16))], [Lane("float32", multiplies(torch.float32))]
    race(lanes + peers, options.rounds, options.clock)
    report("one product, [5, 512] x [512, 8000]", "products", lanes, peers)
    for name, translator in (("float32", plain), ("int8", small)):
        written = [one.text for one in translator.translate(texts, beam=1, split=False)]
        print(f"{name}: {score(written, references, metrics=['bleu'])}")


if __name__ == "__main__":
    main()
