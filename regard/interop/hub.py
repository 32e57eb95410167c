"""Models of the Hugging Face Hub by name, as in Helsinki-NLP/opus-mt-en-de; the library keeps and resumes downloads.

HF_ENDPOINT and the other environment variables of the library apply.
"""

from pathlib import Path
from typing import Any

from regard.errors import DataError, brief, need
from regard.work import Progress

FILES = (
    "config.json", "generation_config.json", "tokenizer_config.json", "vocab.json", "target_vocab.json", "source.spm",
    "target.spm", "model.safetensors",
)  # fmt: skip
MISSING = "A model of the Hub needs huggingface_hub; install it (pip install 'regard[hub]'), or name a folder."


def fetch(name: str, mirror: str = "", progress: Progress | None = None) -> tuple[Path, str]:
    """The folder of a model in the library's cache, and its commit; `name` is OWNER/MODEL, or OWNER/MODEL@REVISION."""
    library, errors = need("huggingface_hub", MISSING), need("huggingface_hub.errors", MISSING)
    repository, _, revision = name.partition("@")
    api = library.HfApi(endpoint=mirror or None)
    try:
        about = api.model_info(repository, revision=revision or None, files_metadata=True)
        sizes = {one.rfilename: one.size or 0 for one in about.siblings}
        if "model.safetensors" not in sizes:
            pickled = "pytorch_model.bin" in sizes
            raise DataError(
                f"{name} has no model.safetensors{', only a pickle, which is never read' if pickled else ''}; name a "
                f"revision that has one, {repository}@REVISION, or write it with transformers: "
                f"MarianMTModel.from_pretrained({repository!r}).save_pretrained('DIR'), the same with MarianTokenizer, "
                f"and import DIR."
            )
        wanted = [file for file in FILES if file in sizes]
        total, done = sum(sizes[file] for file in wanted), 0
        for file in wanted:
            given = {"revision": about.sha, "endpoint": mirror or None}
            path = library.hf_hub_download(repository, file, **given, tqdm_class=_reporter(progress, done, total))
            done += sizes[file]
            if progress:
                progress(done, total)  # nothing is reported for a file that was there
        return Path(path).parent, str(about.sha)
    except errors.RevisionNotFoundError:
        raise DataError(
            f"{repository} has no revision {brief(revision)} on the Hub; name a branch or a commit."
        ) from None
    except errors.GatedRepoError:
        raise DataError(
            f"{repository} is shared on conditions; accept them on its page and log in: hf auth login."
        ) from None
    except (errors.RepositoryNotFoundError, errors.HFValidationError):
        raise DataError(
            f"There is no folder {name}, and no model of this name on the Hub ({api.endpoint}); check the name, as in "
            f"Helsinki-NLP/opus-mt-en-de."
        ) from None
    except DataError:
        raise
    except Exception as error:  # of the library, of the HTTP library it uses, or of the system
        raise DataError(
            f"{name} is not a folder, and cannot be downloaded from the Hub at {api.endpoint}: {brief(error)}; check "
            f"the connection and the proxy, or name another server with --mirror or HF_ENDPOINT."
        ) from None


def _reporter(progress: Progress | None, done: int, total: int) -> Any:
    """A class that the library takes for a progress bar: it reports bytes after those `done` and prints nothing."""

    class Reporter(need("tqdm.auto", MISSING).tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **{**settings, "disable": True})
            self.update(settings.get("initial") or 0)

        def update(self, n: float | None = 1) -> None:
            nonlocal done
            done += int(n or 0)
            if progress:
                progress(min(done, total), total)

    return Reporter
