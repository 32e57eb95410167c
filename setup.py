"""Puts the models that ship (the folder `models`) into the wheel, as regard/shipped, and addresses into the README that
PyPI shows; all else is in pyproject.toml.
"""

import re
import shutil
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent


class WithModels(build_py):
    """Copies the models beside the package; an editable install uses those of the source tree."""

    def run(self) -> None:
        super().run()
        models = ROOT / "models"
        if models.is_dir() and not self.editable_mode:
            shutil.copytree(models, Path(self.build_lib) / "regard" / "shipped", dirs_exist_ok=True)


def readme() -> str:
    """README.md with the addresses of its links and pictures, since PyPI has none of the files."""
    address = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Source"]
    text = (ROOT / "README.md").read_text("utf-8")
    return re.sub(
        r"(!?)\[([^]]*)\]\((?!https?:)",
        lambda found: f"{found[0]}{address}/{'raw' if found[1] else 'blob'}/main/",
        text,
    )


setup(cmdclass={"build_py": WithModels}, long_description=readme(), long_description_content_type="text/markdown")
