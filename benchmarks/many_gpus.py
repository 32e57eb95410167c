"""How training would scale to many GPUs, from one measured update and the bytes that are summed: an estimate.

    python benchmarks/many_gpus.py                                   # Transformer base, 860,000 tokens a second on one
    python benchmarks/many_gpus.py --model bahdanau --preset paper --speed 318000 --batch 4000

Every GPU computes its own batch; then float32 gradients are summed, first inside each machine (a ring: every GPU
sends and receives 2 (n - 1) / n of the bytes), then between machines, each GPU with its part. A captured update sums
after the backward pass, so nothing overlaps; a plain one hides most of it.
"""

import argparse
import dataclasses

import torch

from regard.models.registry import build, preset

MACHINE = 8  # GPUs of one machine
COUNTS = (1, 2, 4, 8, 16, 32, 64)


def ring(members: int, size: float, bandwidth: float) -> float:
    """Seconds to sum `size` bytes over a ring of `members`."""
    return 2 * (members - 1) / members * size / bandwidth


def reduction(gpus: int, size: float, inside: float, between: float) -> float:
    """Seconds to sum `size` bytes over `gpus`."""
    local = min(gpus, MACHINE)
    return ring(local, size, inside) + ring(gpus // local, size / local, between)


def main() -> None:
    """Print one row for each number of GPUs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="transformer")
    parser.add_argument("--preset", default="base")
    parser.add_argument("--vocabulary", type=int, default=30_000)
    parser.add_argument("--batch", type=int, default=16_384, help="target tokens of one GPU's batch")
    parser.add_argument("--speed", type=float, default=860e3, help="target tokens a second on one GPU (measured)")
    parser.add_argument("--inside", type=float, default=450e9, help="bytes/s of a GPU inside a machine (NVLink)")
    parser.add_argument("--between", type=float, default=50e9, help="bytes/s of a GPU to other machines (400 Gbit/s)")
    given = parser.parse_args()
    sizes = {"source_vocabulary": given.vocabulary, "target_vocabulary": given.vocabulary}
    with torch.device("meta"):
        model = build(given.model, dataclasses.replace(preset(given.model, given.preset), **sizes))
    weights = sum(part.numel() for part in model.parameters())
    update, size = given.batch / given.speed, 4.0 * weights
    print(f"{given.model} {given.preset}: {weights / 1e6:.1f} M weights, {size / 1e6:.0f} MB of gradients, ", end="")
    print(f"{1e3 * update:.1f} ms for {given.batch:,} tokens on one GPU\n")
    print("| GPUs | tokens an update | summing, ms | update, ms | tokens/s | efficiency |\n|---|---|---|---|---|---|")
    for gpus in COUNTS:
        summing = reduction(gpus, size, given.inside, given.between)
        speed = gpus * given.batch / (update + summing)
        row = (
            f"{gpus * given.batch:,}",
            f"{1e3 * summing:.1f}",
            f"{1e3 * (update + summing):.1f}",
            f"{speed / 1e6:.1f} M",
        )
        print(f"| {gpus} | {' | '.join(row)} | {update / (update + summing):.0%} |")


if __name__ == "__main__":
    main()
