"""Successive halving of a sweep: runs that validate worse than others at the same point are stopped early.

After 1, k, k^2, ... validations, a run continues if its loss is among the lowest 1/k of the runs that have reached that
point (ASHA, Li et al. 2018), as implemented by Optuna. The reported losses are in OUT/halving.log, which all workers
share.
"""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from regard.errors import ConfigError, counted, need
from regard.training.events import Event, Validated

LOG = "halving.log"


class Halving:
    """Observes one run of a sweep, and stops it if others do better."""

    def __init__(self, folder: Path, factor: int, run: str, validate_every: int) -> None:
        optuna = need_optuna()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(
            study_name="sweep",
            storage=optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(folder / LOG))),
            pruner=optuna.pruners.SuccessiveHalvingPruner(validate_every, factor),
            load_if_exists=True,
        )
        before = [one for one in study.get_trials(deepcopy=False) if one.user_attrs.get("run") == run]
        self.trial = optuna.trial.Trial(study, before[0].number) if before else study.ask()  # in a journal, id = number
        self.trial.set_user_attr("run", run)
        self.reported = set(before[0].intermediate_values if before else ())  # updates, before the run was resumed
        self.stopped: str = self.trial.user_attrs.get("stopped", "")  # where the run was stopped, in words

    def __call__(self, event: Event) -> bool:
        """Whether to stop the run."""
        if isinstance(event, Validated) and "loss" in event.metrics and not self.stopped:
            if event.step not in self.reported:
                self.trial.report(event.metrics["loss"], event.step)
            if self.trial.should_prune():
                self.stopped = f"after {counted(event.step, 'update')} with a loss of {event.metrics['loss']:.3f}"
                self.trial.set_user_attr("stopped", self.stopped)  # also if the process ends before it is stopped
        return bool(self.stopped)


def check_halving(factor: int, settings: Iterable[str], validate_every: set[int]) -> None:
    """Refuse a sweep whose runs cannot be compared while they train; `settings` are the differences between them."""
    need_optuna()
    if factor < 2:
        raise ConfigError(f"--halving keeps one run of N, and N is at least 2; got {factor}.")
    if data := [name for name in settings if name.startswith("data.")]:
        raise ConfigError(
            f"--halving compares losses per token, and the tokens of the runs differ ({data[0]}); leave it out."
        )
    if len(validate_every) > 1 or 0 in validate_every:
        raise ConfigError("--halving compares runs at their validations; set one train.validate_every for all.")


need_optuna = partial(need, "optuna", "--halving needs Optuna; install it: pip install 'regard[halving]'.")
