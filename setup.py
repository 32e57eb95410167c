"""Puts the models that ship (the folder `models`) into the wheel, as regard/shipped; all else is in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class WithModels(build_py):
    """Copies the models beside the package; an editable install uses those of the source tree."""

    def run(self) -> None:
        super().run()
        models = Path(__file__).parent / "models"
        if models.is_dir() and not self.editable_mode:
            shutil.copytree(models, Path(self.build_lib) / "regard" / "shipped", dirs_exist_ok=True)


setup(cmdclass={"build_py": WithModels})
