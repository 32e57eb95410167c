"""Average the weights of two exported models: python benchmarks/average.py EARLIER LATER --part 0.75 --out NEW

NEW has the weights (1 - part) EARLIER + part LATER, as int8, and the settings and vocabularies of LATER, which went on
from EARLIER (`--start-from`). It keeps more of what EARLIER had learned (Wortsman et al. 2022, Robust fine-tuning of
zero-shot models). Choose the part by a validation set. All three are folders as `regard export` writes them; NEW has
neither aligning head nor calibration (`regard align --choose`, `regard calibrate`).
"""

import argparse
from pathlib import Path

from regard.api.exporting import about_run
from regard.runs.folder import belongings, find_weights, pack, write_folder
from regard.runs.int8 import check_new, read_weights, shrink


def main() -> None:
    """Read both, average, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("earlier", type=Path)
    parser.add_argument("later", type=Path)
    parser.add_argument("--part", type=float, required=True, help="of LATER, from 0 to 1")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if not 0 <= given.part <= 1:
        parser.error(f"--part is from 0 to 1; got {given.part}.")
    check_new(given.out)
    before, after = (dict(read_weights(find_weights(run))) for run in (given.earlier, given.later))
    if {name: one.shape for name, one in before.items()} != {name: one.shape for name, one in after.items()}:
        parser.error(f"{given.earlier} and {given.later} have weights of different names or sizes.")
    weights = {name: before[name].float().lerp(after[name].float(), given.part) for name in after}
    kept = ("config.toml", *belongings(find_weights(given.later)))
    contents = {name: (given.later / name).read_bytes() for name in kept}
    contents["weights.safetensors"] = pack(shrink(weights))
    about = {name: value for name, value in about_run(given.later).items() if name != "best"}  # that of other weights
    size = write_folder(given.out, contents, about)
    print(f"{given.out}: {size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
