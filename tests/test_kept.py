"""Trained models of the tests: made once, never seen half made, and made again when the code changes."""

import contextlib
import multiprocessing
from pathlib import Path

import kept


def fill(folder: Path) -> None:
    """Take several turns, so that another process would see the folder half made."""
    folder.mkdir(parents=True)
    for name in "abc":
        (folder / name).write_text(name)
    with open(kept.ROOT / "made", "a") as file:
        file.write("x")


def use(root: Path, barrier, found) -> None:
    kept.ROOT = root
    barrier.wait()
    folder = kept.kept("thing", ["recipe"], fill)
    found.put(sorted(path.name for path in folder.iterdir()))


def test_processes_share_one_folder_that_is_made_once(tmp_path):
    context = multiprocessing.get_context("fork")
    barrier, found = context.Barrier(4), context.Queue()
    workers = [context.Process(target=use, args=(tmp_path, barrier, found)) for _ in range(4)]
    for worker in workers:
        worker.start()
    assert [found.get() for _ in workers] == [["a", "b", "c"]] * 4
    for worker in workers:
        worker.join()
    assert (tmp_path / "made").read_text() == "x"


def test_a_folder_that_was_left_half_made_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "ROOT", tmp_path)

    def die(folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "a").write_text("half")
        raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        kept.kept("thing", [], die)
    assert (kept.kept("thing", [], fill) / "a").read_text() == "a"


def test_other_code_another_recipe_another_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "ROOT", tmp_path)
    first = kept.kept("thing", [1], fill)
    assert kept.kept("thing", [1], fill) == first
    assert kept.kept("thing", [2], fill) != first
    monkeypatch.setattr(kept, "code", lambda: "other")
    assert kept.kept("thing", [1], fill) != first
    assert (tmp_path / "made").read_text() == "xxx"


def test_unused_folders_are_deleted_but_not_those_in_use(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "ROOT", tmp_path)
    first, second = (kept.kept("thing", [number], fill) for number in (1, 2))
    monkeypatch.setattr(kept, "DAYS", -1.0)
    with kept.locked(first.parent):
        kept._forget()
        assert first.exists()
    assert not second.exists()
