"""Training by the clock: settings that fit, a schedule that follows the time, and a warning where little fits."""

import itertools
from pathlib import Path

import pytest
import small
import torch

import regard
from regard.api import timed
from regard.api.training import plan
from regard.errors import ConfigError, DataError, RunError
from regard.runs.experiment import resolve
from regard.runs.settings import TrainConfig
from regard.training.clock import TOO_FEW, Clock
from regard.training.events import Noticed, Stepped
from regard.training.notices import long_warmup
from regard.training.schedules import Moment, cosine

DATA = {"corpus": "reverse", "size": 400, "max_words": 6}


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch):
    """A clock that moves by as much each time it is read, however fast the machine is."""
    looks = itertools.count()
    monkeypatch.setattr("regard.training.clock.time.monotonic", lambda: 0.05 * next(looks))


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(timed, "choose_device", lambda name: torch.device("cpu"))


def speeds(fast: float):
    """A device that trains a model of N weights at fast / N pieces a second."""

    def measure(layers, width, vocabulary, length, device):
        return fast / (12 * layers * width * width)

    return measure


def test_a_faster_device_or_more_time_gets_a_larger_model(monkeypatch: pytest.MonkeyPatch):
    def width(fast: float, minutes: float, size: int = 20_000) -> int:
        monkeypatch.setattr(timed, "measure", speeds(fast))
        monkeypatch.setattr(timed, "count", lambda config: timed.CorpusSize(size, 11.0))
        return timed.choose(DATA, minutes, {})[0]["model"]["width"]

    assert width(1e9, 5) < width(1e10, 5) < width(1e12, 5)
    assert width(1e9, 1) <= width(1e9, 5) <= width(1e9, 60)
    assert width(1.0, 5) == timed.SIZES[0][1]  # the smallest, however slow
    assert width(1e12, 5, 1_000) < width(1e12, 5)  # a thousand pairs would be learned by heart


def test_a_slow_device_is_measured_once(monkeypatch: pytest.MonkeyPatch):
    """The second size would take long: the speed of all others follows from the first."""
    measured = []

    def measure(layers, width, vocabulary, length, device):
        measured.append(width)
        return 1000.0

    monkeypatch.setattr(timed, "measure", measure)
    found = timed.speeds(timed.CorpusSize(10**6, 40.0), 8000, 255.0, torch.device("cpu"))
    assert measured == [timed.MEASURED[0][1]]
    rates = [speed for speed, _ in found.values()]
    assert rates == sorted(rates, reverse=True)
    assert max(rates) == found[timed.MEASURED[0]][0] == pytest.approx(1000.0)  # overhead does not shrink with a model


def test_the_speed_of_every_size_follows_from_two(monkeypatch: pytest.MonkeyPatch):
    def measure(layers, width, vocabulary, length, device):
        weights = timed.count_weights(layers, width)
        return 1 / (1e-5 + 1e-11 * (weights + vocabulary * width))

    monkeypatch.setattr(timed, "measure", measure)
    for (layers, width), (speed, _) in timed.speeds(
        timed.CorpusSize(10**6, 40.0), 8000, 1e9, torch.device("cpu")
    ).items():
        assert speed == pytest.approx(measure(layers, width, 8000, 40, None))


def test_what_is_chosen_is_a_complete_experiment_with_reasons(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(timed, "measure", speeds(1e10))
    chosen, reasons = timed.choose(DATA, 5, {})
    experiment = resolve({**chosen, "data": {**chosen["data"], **DATA}})
    assert experiment.train.minutes == 5
    assert experiment.train.schedule == "cosine"
    assert experiment.train.precision == "float32"
    assert "400 pairs" in reasons[0]
    assert f"width {experiment.model.width}" in reasons[1]


def test_a_larger_corpus_gets_a_larger_vocabulary():
    sizes = [timed.vocabulary_for(count) for count in (100, 5_000, 30_000, 10**6)]
    assert sizes == sorted(set(sizes))


def test_a_corpus_that_will_hardly_be_seen_is_treated_as_a_smaller_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(timed, "count", lambda config: timed.CorpusSize(10**6, 40.0))
    for fast, seen_all in ((1e9, False), (1e13, True)):
        monkeypatch.setattr(timed, "measure", speeds(fast))
        chosen = timed.choose(DATA, 5, {})[0]["data"]
        assert (chosen["vocabulary"] == timed.vocabulary_for(10**6)) == seen_all
        assert ("every" not in chosen) == seen_all


def test_a_measurement_is_a_speed(monkeypatch: pytest.MonkeyPatch):
    """Of the fastest update after the first: the clock says that they take 1, 8, 4 and 16 seconds."""
    clock = itertools.chain.from_iterable((0.0, taken) for taken in (1.0, 8.0, 4.0, 16.0))
    monkeypatch.setattr(timed.time, "monotonic", lambda: next(clock))
    assert timed.measure(1, 32, 50, 4, torch.device("cpu")) == timed.CPU.measured / 4


@pytest.mark.parametrize("setting", ["train.minutes=2", "model.name=cho", "model.preset = small", "data.corpus=tales"])
def test_a_setting_is_given_once(setting: str, tmp_path):
    given = {"corpus": "copy", "model": "luong", "preset": "tiny", "minutes": 1}
    with pytest.raises(ConfigError, match=f"and {setting.partition('=')[0].strip()} are the same setting; pass one"):
        regard.train(**given, settings=[setting], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("minutes", [0, -1, float("inf"), float("nan")])
def test_minutes_that_are_no_time_are_refused(minutes: float):
    with pytest.raises(ConfigError, match="--minutes must be above 0"):
        timed.choose(DATA, minutes, {})
    with pytest.raises(ConfigError, match="--minutes must be above 0"):
        plan(Path("none"), minutes=minutes, corpus="copy")


def test_an_empty_corpus_is_refused(tmp_path: Path):
    for side in ("en", "fr"):
        (tmp_path / f"a.{side}").write_text("")
    with pytest.raises(DataError, match="nothing to train on"):
        timed.choose({"source": str(tmp_path / "a.en"), "target": str(tmp_path / "a.fr")}, 1, {})


def test_a_cosine_ends_with_the_updates_or_with_the_time():
    config = TrainConfig(rate=1.0, schedule="cosine")
    at = lambda step, share: cosine(Moment(step, 1000, 0.0, 0, 8, share), config)  # noqa: E731
    assert at(1, 0.0) == pytest.approx(1.0, abs=1e-5)
    assert at(1, 0.5) == pytest.approx(0.5, abs=1e-5)
    assert at(500, 0.1) == pytest.approx(0.5, abs=1e-5)
    assert at(10, 1.0) == at(1000, 0.2) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.usefixtures("ticking")
def test_the_clock_ends_a_training_whose_rate_has_fallen_and_which_stays_finished(tmp_path: Path):
    events: list[object] = []
    settings = ("train.minutes=0.03", "train.epochs=0", "train.schedule=cosine", "train.validate_every=20")
    assert small.train("luong", tmp_path / "run", *settings, observe=events.append) == "time"
    rates = [event.rate for event in events if isinstance(event, Stepped)]
    assert rates[-1] < 0.1 * rates[0]
    assert regard.load(tmp_path / "run")
    again: list[object] = []
    small.train("luong", tmp_path / "run", *settings, observe=again.append)
    assert not [event for event in again if isinstance(event, Stepped)]


@pytest.mark.usefixtures("ticking")
def test_few_updates_in_the_time_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    events: list[object] = []
    monkeypatch.setattr("regard.training.loop.TOO_FEW", 10**9)
    settings = ("train.minutes=0.02", "train.epochs=0", "train.schedule=inverse-sqrt", "train.warmup=1000")
    small.train("luong", tmp_path / "run", *settings, observe=events.append)
    notices = [event.text for event in events if isinstance(event, Noticed)]
    assert sum("in 0.02 minutes at this pace, too few to learn much" in one for one in notices) == 1
    assert sum("the learning rate rises over 1,000 updates" in one for one in notices) == 1
    assert TOO_FEW == 300


def fits(monkeypatch: pytest.MonkeyPatch, laps: list[float], spent: float = 0.0, step: int = 0) -> list[int]:
    """The reports of a clock of one minute whose updates take `laps` seconds, after `step` updates in `spent`."""
    now = 100.0
    monkeypatch.setattr("regard.training.clock.time.monotonic", lambda: now)
    clock = Clock(minutes=1)
    clock.start(spent)
    clock.rest()
    found = []
    for number, lap in enumerate(laps, step + 1):
        now += lap
        clock.lap()
        found.append(clock.fit(clock.spent(), number))
    return [one for one in found if one is not None]


def test_slow_first_updates_are_not_the_pace(monkeypatch: pytest.MonkeyPatch):
    """As on a GPU, which compiles kernels for them."""
    laps = [1.0, 1.0, *[0.1] * 300]
    assert fits(monkeypatch, laps) == [pytest.approx(582, abs=3)]  # 6 s are over: 42 updates
    assert fits(monkeypatch, [7.0, *[0.1] * 300]) == [pytest.approx(530, abs=3)]  # the first alone takes a tenth
    assert fits(monkeypatch, [61.0]) == [1]


def test_a_resumed_run_reports_its_pace_once_and_with_the_updates_before(monkeypatch: pytest.MonkeyPatch):
    laps = [0.1] * 300
    assert fits(monkeypatch, laps, spent=30.0, step=300) == []  # known before it was stopped
    assert fits(monkeypatch, laps, spent=5.0, step=50) == [pytest.approx(600, abs=3)]


def test_the_time_left_does_not_count_the_first_update_which_sets_things_up(monkeypatch: pytest.MonkeyPatch):
    now = 100.0
    monkeypatch.setattr("regard.training.clock.time.monotonic", lambda: now)
    for minutes, known in ((0.0, [None, 19.6, 19.4]), (0.5, [20.0, 19.6, 19.4])):
        clock, found = Clock(minutes), list[float | None]()
        clock.start(0)
        clock.rest()
        for step, lap in enumerate((10.0, 0.2, 0.2), 1):
            now += lap
            clock.lap()
            found.append(clock.left(clock.spent(), step, 100))
        assert found == [None if one is None else pytest.approx(one) for one in known]


@pytest.mark.usefixtures("ticking")
def test_minutes_alone_train_a_translator_and_the_same_call_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(timed, "measure", speeds(1.0))
    found = regard.train(corpus="reverse", minutes=0.05, settings=["data.size=200"], out=tmp_path / "run")
    assert found.experiment.name == "transformer"
    assert found.experiment.model.width == timed.SIZES[0][1]
    assert found.experiment.data.size == 200
    monkeypatch.setattr(timed, "measure", speeds(1e12))  # a run that was begun keeps its settings
    again = regard.train(corpus="reverse", minutes=0.05, settings=["data.size=200"], out=tmp_path / "run")
    assert again.experiment.model.width == timed.SIZES[0][1]


@pytest.mark.usefixtures("ticking")
def test_minutes_more_of_a_translator_choose_how_and_keep_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    small.train("bahdanau", tmp_path / "first", "train.steps=1")
    speed = 1e-3
    monkeypatch.setattr(timed, "pace", lambda *_: speed)
    data = {"corpus": "reverse", "settings": [f"train.start_from={tmp_path / 'first'}", "data.size=100"]}
    slow = regard.train(**data, minutes=0.03, out=tmp_path / "slow").experiment
    assert slow.name == "bahdanau"
    assert (slow.train.rate, slow.train.schedule) == (timed.SMALL_CORPUS["rate"], "cosine")
    speed = 1e9
    monkeypatch.setattr(timed, "count", lambda config: timed.CorpusSize(10**6, 4.0))
    chosen, reasons = timed.choose_further(DATA, 5, str(tmp_path / "first"), {})
    assert chosen["train"]["batch_tokens"] == timed.CPU.most
    assert "at most 10 epochs; there is time for them" in reasons[1]
    with pytest.raises(RunError, match="There is no run folder nowhere"):
        timed.choose_further(DATA, 5, "nowhere", {})


def test_minutes_without_a_corpus_ask_for_one(tmp_path: Path):
    for settings in ([], ["data.held_out=5"]):
        with pytest.raises(ConfigError, match="nothing to train on; pass --source"):
            regard.train(minutes=1, settings=settings, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def further(pairs: int, speed: float, minutes: float = 3, **given):
    """What is chosen for `pairs` of 12 pieces where `speed` pieces a second are trained, and the reasons."""
    return timed.further(timed.CorpusSize(pairs, 12.0), minutes, speed, torch.device("cpu"), given)


@pytest.mark.parametrize("pairs", [20, 30, 60, 100, 300])
def test_tens_of_pairs_get_small_batches_and_a_schedule_that_fits_them(pairs: int):
    train, reasons = further(pairs, 1000.0)
    updates = train["epochs"] * pairs * 12 / train["batch_tokens"] / timed.SMALL_CORPUS["full"]
    assert 90 <= updates <= 300
    assert pairs * 12 / train["batch_tokens"] >= 3  # batches of an epoch
    assert train["batch_tokens"] >= 60  # several pairs
    assert train["epochs"] <= 20
    assert train["warmup"] <= updates / 10
    assert updates / 5 <= train["validate_every"] <= updates / 3
    assert (train["average"], train["keep"]) == (2, 2)  # not the best of a few held-out sentences
    assert f"at most {train['epochs']} epochs; there is time for them" in reasons[0]


def test_a_larger_corpus_is_trained_further_as_before():
    slow, reasons = further(2_000, 100.0)
    assert (slow["batch_tokens"], slow["epochs"], slow["rate"]) == (timed.CPU.least, 10, 0.0003)
    assert "average" not in slow
    assert "at most 10 epochs; there is time for about 39 updates" in reasons[0]
    assert further(10**6, 1e9)[0]["batch_tokens"] == timed.CPU.most


def test_what_is_chosen_fits_the_settings_that_are_given():
    train, reasons = further(30, 1000.0, batch_tokens=36, epochs=4, rate=0.001)
    assert train["warmup"] == 60 // 10  # 40 full batches
    assert train["validate_every"] == 60 // 4
    assert "batches of 36 pieces, at most 4 epochs" in reasons[0]
    assert "a learning rate of 0.001 that falls" in reasons[1]
    train, reasons = further(30, 1000.0, steps=50)
    assert train["warmup"] == 5
    assert "at most 50 updates; there is time for them" in reasons[0]
    train, reasons = further(30, 1000.0, schedule="noam", keep=1)
    assert not {"schedule", "rate", "warmup", "beta2"} & set(train) - {"schedule"}
    assert "train.rate, train.warmup, train.beta2 not chosen, since you set train.schedule" in reasons[1]
    assert train["average"] == 1  # of the one that is kept


def test_settings_leave_the_rest_of_the_choice_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    small.train("bahdanau", tmp_path / "first", "train.steps=1")
    monkeypatch.setattr(timed, "pace", lambda *_: 1000.0)
    monkeypatch.setattr(timed, "measure", speeds(1e10))
    start = f"train.start_from={tmp_path / 'first'}"
    for begins in ([start, "model.dropout=0.4"], []):
        given = [*begins, "data.size=100", "train.batch_tokens=48", "decode.beam=3"]
        found, reasons = plan(tmp_path / "run", None, None, None, given, 1, corpus="reverse")
        assert (found.train.schedule, found.train.batch_tokens, found.decode.beam) == ("cosine", 48, 3)
        assert any("batches of 48" in one for one in reasons)
        assert not begins or found.model.dropout == 0.4
    with pytest.raises(ConfigError, match="batch_tokens"):
        plan(tmp_path / "run", None, None, None, ["train.batch_tokens=0"], 1, corpus="reverse")
    _, reasons = plan(tmp_path / "run", None, "luong", "tiny", [], 1, corpus="reverse")
    assert reasons == [
        "--minutes is only a time limit: batches and schedule are those of the model, preset or file given"
    ]


def test_a_warm_up_longer_than_the_run_is_reported():
    config = TrainConfig(schedule="inverse-sqrt", warmup=4000)
    assert long_warmup(4000, config) == long_warmup(80, TrainConfig(schedule="cosine")) == []
    (said,) = long_warmup(80, config)
    assert "rises over 4,000 updates (train.warmup), but training ends after about 80" in said
    assert said.endswith("set train.warmup=8")
