"""`make attack`: try every promise often and print one table.

python tests/attack                        the counts of each check: hours
python tests/attack --times 10             ten times as many tries
python tests/attack --times 0.01 R1 X6     few tries of some promises
"""

import argparse
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]
os.environ.setdefault("OMP_NUM_THREADS", "1")


def main() -> int:
    """The table; the exit code is 1 where a promise was broken."""
    import durability  # noqa: F401 - each adds its checks
    import patterns  # noqa: F401
    import serving  # noqa: F401
    import shards  # noqa: F401
    import texts  # noqa: F401
    import untrusted  # noqa: F401
    from promises import CHECKS, attempt, bound

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("promises", nargs="*", help="numbers such as R1; without any, all")
    parser.add_argument("--times", type=float, default=1.0, help="multiplies the number of tries")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    known = dict.fromkeys(one.promise for one in CHECKS)
    for name in given.promises:
        if name not in known:
            parser.error(f"there is no promise {name}; known: {', '.join(known)}")
    if not given.times > 0:
        parser.error(f"--times must be above 0; got {given.times}")
    broken = []
    print("| promise | what is tried | tries | failures | rate below, at 95 % | seconds |")
    print("|---|---|---:|---:|---:|---:|", flush=True)
    for one in sorted(CHECKS, key=lambda one: (one.promise[0], int(one.promise[1:]))):
        if not given.promises or one.promise in given.promises:
            result = attempt(one, max(1, round(one.large * given.times)), given.seed)
            rate = f"{100 * bound(result.tries, result.failures):.2g} %"
            row = (one.promise, one.says, f"{result.tries:,}", str(result.failures), rate, f"{result.seconds:.0f}")
            print(f"| {' | '.join(row)} |", flush=True)
            broken += [f"{one.promise} ({one.once.__name__}): {example}" for example in result.examples]
    print("\n".join(["", *broken]) if broken else "\nEvery promise was kept.")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
