"""Settings: what is written is what is read, for every model; what does not fit is refused with what would."""

import dataclasses
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import Settings, describe, load_toml, override, parse_toml, read, setting, to_toml
from regard.data.settings import DataConfig
from regard.errors import ConfigError
from regard.models.registry import MODELS
from regard.runs.folder import read_config

ALL = [
    pytest.param(config, id=f"{name}-{label}")
    for name, entry in MODELS.items()
    for label, config in {**entry.presets, **entry.variants}.items()
]


@dataclasses.dataclass(frozen=True)
class Sample:
    """One of every kind."""

    width: int = setting(512, "a whole number")
    rate: float = setting(0.1, "a number")
    joint: bool = setting(True, "yes or no")
    cell: str = setting("paper", "a choice", ("paper", "torch"))
    name: str = setting("", "any text")
    files: tuple[str, ...] = setting((), "a list of text")
    betas: tuple[float, ...] = setting((0.9, 0.98), "a list of numbers")
    most: int | None = setting(None, "a number, or left out")


@pytest.mark.parametrize("config", ALL)
def test_settings_of_every_model_survive_toml(config):
    text = to_toml({"model": dataclasses.asdict(config)})
    assert read(type(config), tomllib.loads(text)["model"], "model") == config


@pytest.mark.parametrize("name", MODELS)
def test_every_setting_says_what_it_means_and_its_default_fits(name: str):
    section = MODELS[name].config
    rows = describe(section)
    assert [row[0] for row in rows] == [field.name for field in dataclasses.fields(section)]
    assert all(len(meaning) > 10 for _, _, meaning in rows)
    assert read(section, {key: value for key, value, _ in rows}, "model") == section()


@pytest.mark.parametrize("name", MODELS)
def test_settings_are_frozen_and_paper_is_the_default(name: str):
    entry = MODELS[name]
    with pytest.raises(dataclasses.FrozenInstanceError):
        entry.config().width = 3
    assert entry.presets["paper"] == entry.config()
    assert {"paper", "small", "tiny"} <= set(entry.presets)


def test_values_are_read_over_the_defaults_or_over_other_settings():
    assert read(Sample, {"width": 7}, "model") == Sample(width=7)
    assert read(Sample, {"width": 7}, "model", over=Sample(rate=2.0)) == Sample(width=7, rate=2.0)


def test_whole_numbers_serve_as_numbers_and_lists_as_tuples():
    found = read(Sample, {"rate": 1, "files": ["a", "b"], "betas": [0, 1.5], "most": 3}, "model")
    assert (found.rate, found.files, found.betas, found.most) == (1.0, ("a", "b"), (0, 1.5), 3)
    assert isinstance(found.rate, float)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("widht", 3, "There is no setting 'widht' in [model]. Did you mean 'width'? Known: width, rate,"),
        ("zzz", 3, "There is no setting 'zzz' in [model]. Known: width,"),
        ("width", 2.5, "model.width must be a whole number; got 2.5."),
        ("width", "512", "model.width must be a whole number; got '512'."),
        ("width", True, "model.width must be a whole number; got True."),
        ("rate", "fast", "model.rate must be a number; got 'fast'."),
        ("joint", 1, "model.joint must be true or false; got 1."),
        ("cell", "lstm", "model.cell must be one of paper, torch; got 'lstm'."),
        ("name", 3, "model.name must be text; got 3."),
        ("files", "a.en", "model.files must be a list, each text; got 'a.en'."),
        ("files", ["a", 2], "model.files must be a list, each text; got ['a', 2]."),
        ("most", "all", "model.most must be a whole number or left out; got 'all'."),
    ],
)
def test_values_that_do_not_fit(name: str, value: object, message: str):
    with pytest.raises(ConfigError) as caught:
        read(Sample, {name: value}, "model")
    assert str(caught.value).startswith(message)


@dataclasses.dataclass(frozen=True)
class Checked(Settings):
    """Settings with intervals, checked in every instance."""

    table = "data"
    share: float = setting(0.5, "a fraction", "[0, 1)")
    rate: float = setting(1.0, "a positive number", "(0, inf)")
    size: int = setting(5, "a whole number", "[1, 1e6]")
    score: str = setting("dot", "a name", ("dot", "general"))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("share", -0.1, "at least 0 and below 1"),
        ("share", 1, "at least 0 and below 1"),
        ("rate", 0, "above 0"),
        ("size", 0, "at least 1 and at most 1,000,000"),
        ("size", 1_000_001, "at least 1 and at most 1,000,000"),
        ("size", 2.0, "a whole number"),
        ("score", "sum", "one of dot, general"),
        ("rate", float("nan"), "a number between -2^63 and 2^63"),
    ],
)
def test_files_constructors_and_replace_check_the_same_bounds(name: str, value: object, expected: str):
    plain = dataclasses.make_dataclass(
        "Plain",
        [
            (one.name, one.type, setting(one.default, "", one.metadata["allowed"]))
            for one in dataclasses.fields(Checked)
        ],
    )
    makers = (
        lambda: Checked(**{name: value}),
        lambda: dataclasses.replace(Checked(), **{name: value}),
        lambda: read(Checked, {name: value}, "data"),
        lambda: read(Checked, {name: value}, "data", over=Checked()),
        lambda: read(plain, {name: value}, "data"),  # of a package whose settings are no `Settings`
    )
    for make in makers:
        with pytest.raises(ConfigError) as caught:
            make()
        assert str(caught.value) == f"data.{name} must be {expected}; got {value!r}."


def test_a_value_of_none_of_several_types_is_refused():
    for value in (3, [1], {"a": 1}, True):
        with pytest.raises(ConfigError, match=r"data\.source must be text or a list, each text; got "):
            DataConfig(source=value)


def test_the_ends_of_an_interval_belong_to_it_where_they_are_closed():
    found = Checked(share=0, rate=1e-9, size=1_000_000)
    assert found == Checked(share=0.0, rate=1e-9, size=1_000_000)
    assert isinstance(found.share, float)


@pytest.mark.parametrize("value", [[], {}, 3, True])
def test_what_is_no_text_is_none_of_the_choices_of_a_table(value: object):
    with pytest.raises(ConfigError, match=r"^model\.score must be one of dot, .*; got "):
        read(MODELS["bahdanau"].config, {"score": value}, "model")


@pytest.mark.parametrize(
    ("assignment", "key", "value"),
    [
        ("train.steps=200", "steps", 200),
        ("train.rate=2e-5", "rate", 2e-5),
        ("train.joint=true", "joint", True),
        ("train.language=no", "language", "no"),
        ('train.name="a b"', "name", "a b"),
        ("train.name=a b", "name", "a b"),
        ("train.files=['a', 'b']", "files", ["a", "b"]),
        ("train.name=a=b", "name", "a=b"),
        ("train.name=", "name", ""),
    ],
)
def test_an_override_is_toml_or_else_text(assignment: str, key: str, value: object):
    tables = {"train": {"seed": 1, key: None}, "data": {"source": "x"}}
    assert override(tables, assignment) == {"train": {"seed": 1, key: value}, "data": {"source": "x"}}
    assert tables["train"][key] is None, "the tables given stay as they are"


DOTS = "a" + ".a" * 20_000


@pytest.mark.parametrize(
    "text",
    [
        f"{DOTS} = 1",
        f"x = {{{DOTS} = 1}}",
        f"[{DOTS}]",
        f'x = {{s = """\n\'""", {DOTS} = 1}}',
        f"x = {{s = '''\n#''', {DOTS} = 1}}",
        f'x = {{s = "\\"", {DOTS} = 1}}',
        f"'\"'.{DOTS}.'\"' = 1",
    ],
)
def test_a_key_of_many_dots_in_a_run_is_refused_before_it_is_parsed(text: str, tmp_path: Path):
    (tmp_path / "config.toml").write_text(f"[train]\n{text}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"config\.toml was not written by regard: "):
        read_config(tmp_path)


def test_a_byte_order_mark_is_no_setting():
    assert parse_toml(b"\xef\xbb\xbf[train]\nsteps = 3\n", Path("x")) == {"train": {"steps": 3}}


def test_dots_in_strings_and_comments_of_a_run_are_text(tmp_path: Path):
    files, prose = [f"part.{number}.txt.gz" for number in range(200)], 'x. " \\ # ' * 200
    content = to_toml({"data": {"files": files, "prose": prose}}) + "# " + "." * 200
    (tmp_path / "config.toml").write_text(content, encoding="utf-8")
    assert read_config(tmp_path) == {"data": {"files": files, "prose": prose}}
    (tmp_path / "config.toml").write_bytes(b'a = "' + rb"\"" * 200_000 + b'"')  # in linear time
    read_config(tmp_path)


@pytest.mark.parametrize("value", ["9" * 5000, "0x" + "f" * 5000, "[" * 5000, "[" * 5000 + "]" * 5000])
def test_what_python_cannot_read_or_print_is_no_toml_of_a_run(value: str, tmp_path: Path):
    (tmp_path / "config.toml").write_text(f"task = {value}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"config\.toml is not valid TOML: "):
        read_config(tmp_path)


@pytest.mark.parametrize("assignment", ["steps=200", "train.steps", "train.=3", ".steps=3", "=3", ""])
def test_an_override_that_is_none(assignment: str):
    with pytest.raises(ConfigError, match=r"section\.key=value, as in train\.steps=200; got "):
        override({}, assignment)


def test_an_override_inside_a_single_value():
    with pytest.raises(ConfigError, match=r"task is a single value, so task\.x cannot be set; write task=3"):
        override({"task": "translate"}, "task.x=3")


def test_files_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"There is no settings file .*none\.toml; give the path"):
        load_toml(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("[model\nwidth = 3\n")
    with pytest.raises(ConfigError, match=r"bad\.toml is not valid TOML: .*line 1"):
        load_toml(tmp_path / "bad.toml")
    (tmp_path / "latin.toml").write_bytes(b'name = "caf\xe9"\n')
    with pytest.raises(ConfigError, match=r"latin\.toml could not be read as UTF-8 text"):
        load_toml(tmp_path / "latin.toml")
    with pytest.raises(ConfigError, match="could not be read"):
        load_toml(tmp_path)


values = (
    st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False)
    | st.text()
    | st.lists(st.text() | st.integers(-9, 9), max_size=3)
)


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,9}", fullmatch=True), values, max_size=4))
def test_any_plain_value_survives_toml(table: dict[str, object]):
    assert tomllib.loads(to_toml({"section": table})) == {"section": table}


def test_nothing_is_left_out_but_none():
    assert to_toml({"model": {"a": None, "b": 0}}) == "[model]\nb = 0\n"
    with pytest.raises(ConfigError, match="TOML here holds text, numbers, true/false and lists"):
        to_toml({"model": {"a": object()}})


def test_help_texts_show_choices_and_the_values_of_an_instance():
    rows = {name: (value, meaning) for name, value, meaning in describe(Sample(width=9))}
    assert rows["width"] == (9, "a whole number")
    assert rows["cell"] == ("paper", "a choice (paper | torch)")
