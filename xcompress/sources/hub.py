"""Models of the Hugging Face hub: the local copy, or a download."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from xcompress import console
from xcompress.errors import InputError
from xcompress.files import is_disk_full
from xcompress.runtimes import GRAPH_FOLDERS
from xcompress.sources.model_folder import read_modules

OFFLINE_RECIPE = "recipes/minilm_ru3.yaml"
SECONDS = 15.0
"""How long the hub may take to answer."""
FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.py"]
"""What is fetched, in any folder. Python files are only read where a recipe sets `trust_remote_code`."""
SKIPPED = [f"{folder}/*" for folder in GRAPH_FOLDERS]
"""What is not fetched all the same."""
LARGE = 100_000
"""Bytes. Files above are fetched one by one in the thread that asks, so that Ctrl-C ends a download at once. The others
are settings, of which eight are fetched at a time."""
COMMITS_READ: dict[str, str] = {}
"""The commits of the models that `from_hub` has returned in this process, by reference."""
Result = TypeVar("Result")


def from_hub(reference: str) -> Path:
    """Return the snapshot of a hub id: the local copy if it is complete, or a download.

    Other libraries fetch parts of a model. Such a copy is completed, or taken as it is where the hub cannot be reached.

    :raises InputError: when it cannot be fetched, or has no safetensors.
    """
    advice = f"check the network, give a local folder, or use {OFFLINE_RECIPE}, which needs no hub"
    path = hub_snapshot(reference, FILES, _is_complete, advice, skipped=SKIPPED, is_usable=_has_weights)
    if not _has_weights(path):
        raise InputError(f"{reference}: has no config.json with *.safetensors weights (pickled weights are not read)")
    COMMITS_READ[reference] = path.name
    return path


def hub_snapshot(
    reference: str,
    files: Sequence[str],
    is_complete: Callable[[Path], bool],
    advice: str,
    *,
    skipped: Sequence[str] = (),
    is_usable: Callable[[Path], bool] = lambda _: False,
) -> Path:
    """Return the snapshot of a hub id: the local copy when it is complete, else a download, which may lack files.

    :param files: patterns of the files to download.
    :param is_complete: tells whether a snapshot has all that is needed.
    :param advice: what to do when the hub cannot be reached.
    :param skipped: patterns of files to leave out.
    :param is_usable: tells whether an incomplete local copy is taken where no more can be fetched.
    :raises InputError: when there is no complete local copy, and the hub cannot be reached or its cache not written.
    """
    import huggingface_hub
    from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]  # public, not listed

    path = _local_snapshot(reference)
    if path is not None and is_complete(path):
        return path
    name, _, revision = reference.partition("@")
    chosen: dict[str, Any] = {"allow_patterns": list(files), "ignore_patterns": list(skipped) or None}
    ask = partial(huggingface_hub.HfApi().repo_info, name, revision=revision or None, files_metadata=True, timeout=10)
    try:
        found = _run_within(SECONDS, ask)
        console.say(f"fetching {reference} from the hub")
        # snapshot_download has threads for all files, and whatever ends this process would wait for them
        large = [file.rfilename for file in found.siblings or () if (file.size or 0) > LARGE]
        for file in filter_repo_objects(large, **chosen):
            huggingface_hub.hf_hub_download(name, file, revision=found.sha, etag_timeout=10)
        return Path(
            huggingface_hub.snapshot_download(
                name, revision=revision or None, local_files_only=False, etag_timeout=10, **chosen
            )
        )
    except Exception as error:
        if path is not None and is_usable(path):
            kind = type(error).__name__
            console.warn(f"{reference}: files may be missing from the local copy, and could not be fetched ({kind})")
            return path
        raise InputError(_hub_reason(reference, error, advice)) from error


def cached_commit(reference: str) -> str | None:
    """Return the commit of a hub id's local copy; None where there is none. Nothing is fetched."""
    path = _local_snapshot(reference)
    return path.name if path is not None and path.parent.name == "snapshots" else None


def _local_snapshot(reference: str) -> Path | None:
    """Return the snapshot of a hub id in the hub's cache, complete or not; None where there is none."""
    import huggingface_hub

    name, _, revision = reference.partition("@")
    with suppress(Exception):  # not in the local cache, whatever the library raises for that
        # since 1.22, huggingface_hub refuses a snapshot that lacks a file of the repository: the patterns ask for none
        return Path(
            huggingface_hub.snapshot_download(name, revision=revision or None, allow_patterns=[], local_files_only=True)
        )
    return None


def _has_weights(path: Path) -> bool:
    return (path / "config.json").is_file() and any(path.rglob("*.safetensors"))


def _is_complete(path: Path) -> bool:
    """Tell whether a snapshot has all files of a sentence-transformers model; other libraries fetch some of them."""
    with suppress(InputError):  # of a modules.json that is missing or damaged
        parts = [module["path"] for module in read_modules(path) if "Normalize" not in module["type"]]
        files = [path / "tokenizer.json", *(path / part / "config.json" for part in parts)]
        return _has_weights(path) and all(file.is_file() for file in files)
    return False


def _run_within(seconds: float, action: Callable[[], Result]) -> Result:
    """Run an action in a thread and abandon it after some seconds: a silent firewall holds a socket for minutes."""
    results: list[Result] = []
    failures: list[Exception] = []

    def run() -> None:
        try:
            results.append(action())
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError(f"no answer in {seconds:.0f} s")
    if failures:
        raise failures[0]
    return results[0]


def _hub_reason(reference: str, error: Exception, advice: str) -> str:
    kind = type(error).__name__
    if kind == "GatedRepoError":
        return f"{reference}: this model is gated; ask for access on its page, then run `hf auth login`"
    if kind in ("RepositoryNotFoundError", "RevisionNotFoundError"):
        return f"{reference}: neither a local path nor a model that the hub shows you; check the name, or log in"
    if isinstance(error, OSError) and (error.filename or is_disk_full(error)):  # errors of the network name no file
        from huggingface_hub.constants import HF_HUB_CACHE

        return (
            f"{reference}: cannot be written to {HF_HUB_CACHE} ({error.strerror}); free space there, or set HF_HOME "
            "(or HF_HUB_CACHE where that is set) to another folder"
        )
    reason = str(error) if isinstance(error, TimeoutError) else kind
    return f"{reference}: no such local path, and as a hub id it could not be reached ({reason}); {advice}"
