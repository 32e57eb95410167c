"""regard calibrate"""

from typing import Annotated

import typer
from typer import Option

from regard.cli.options import AsJson, Device, Pairs, Run
from regard.cli.progress import bar
from regard.cli.text import load, pairs_of, put, put_json
from regard.errors import RunError, counted


def calibrate(
    run: Run,
    *,
    pairs: Pairs,
    dry: Annotated[bool, Option("--dry", help="Measure only; do not change the run.")] = False,
    as_json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Fit the confidence of a translator to held-out sentences, and keep it in the run as plain numbers.

    The sentences must not be those of training: there the model is more certain than elsewhere. One or two thousand are
    enough; a fit to fewer than 200 depends much on which they are. What is printed was measured on the second half,
    after a fit on the first.
    """
    from regard.api.confidence import calibrate, keep_calibration
    from regard.evaluate.confidence import FEW
    from regard.runs.folder import is_finished
    from regard.runs.included import check_own

    if not dry:
        check_own(run)
    if not is_finished(run):
        raise RunError(f"{run} is not finished, so that its weights may change; finish it with `regard train`.")
    sources, references = pairs_of(run, pairs)
    translator = load(run, device, "translate")
    with bar("translating") as progress:
        found = calibrate(translator, sources, references, progress)
    if not dry:
        keep_calibration(run, found)
    about = found.about
    if (count := about["sentences"]) < FEW:
        typer.echo(
            f"note: {count} pairs are few: what is measured on {count - count // 2} of them after a fit to the others "
            "depends much on which pairs they are, and so does the calibration; give at least "
            f"{FEW}, better one or two thousand",
            err=True,
        )
    if about["word_error"] >= about["word_error_before"]:
        typer.echo("note: for words, the confidence is no better than the model's own probability", err=True)
    if as_json:
        return put_json(found.as_data())
    put(f"words: calibration error {about['word_error_before']:.3f} before, {about['word_error']:.3f} after")
    for name, title in (("detached_auroc", "detached sources: AUROC"), ("chrf_correlation", "chrF: correlation")):
        put(f"{title} {about[name + '_before']:.3f} by log-probability, {about[name]:.3f} by confidence")
    numbers = f"{counted(about['sentences'], 'sentence')}, {about['words']} words, {about['detached']} detached sources"
    typer.echo(f"{numbers}; {'nothing was saved' if dry else f'saved in {run}'}", err=True)
