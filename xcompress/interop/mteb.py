"""A bundle as a model of mteb, the library behind the Massive Text Embedding Benchmark (Muennighoff et al., 2023).

    import mteb
    from xcompress.interop.mteb import open_model

    results = mteb.evaluate(open_model("small"), mteb.get_tasks(["STS17"]))

Needs `pip install 'xcompress[mteb]'`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mteb
import numpy as np
from mteb.abstasks.abstask import AbsTask
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models import ModelMeta
from mteb.models.abs_encoder import get_prompt_name
from mteb.models.model_meta import ScoringFunction
from mteb.types import PromptType

from xcompress.bundle.encoder import Encoder
from xcompress.bundle.integrity import external_files
from xcompress.bundle.manifest import HASH, choose_graph
from xcompress.bundle.released import DEFAULT
from xcompress.errors import InputError, first_line
from xcompress.metrics import Vectors, cosine_matrix, cosines
from xcompress.runtimes import PHONE_FILES

ORGANISATION = "xcompress"
"""In front of the names of released models and folders, as mteb names models `organisation/model`."""
TASKS_OF_TEXT = {
    "stsb-": ("STSBenchmark", "STSBenchmarkMultilingualSTS"),
    "anki": ("Tatoeba",),
    "flores200": ("FloresBitextMining",),
    "pawsx": ("PawsXPairClassification",),
    "xquad-questions": ("XQuADRetrieval",),
}
"""Tasks of mteb whose texts are related to a training corpus, by the start of its name. mteb marks scores on them."""

LANGUAGES = {
    "ar": "ara-Arab",
    "de": "deu-Latn",
    "en": "eng-Latn",
    "es": "spa-Latn",
    "fr": "fra-Latn",
    "it": "ita-Latn",
    "ja": "jpn-Jpan",
    "ko": "kor-Hang",
    "nl": "nld-Latn",
    "pl": "pol-Latn",
    "pt": "por-Latn",
    "ru": "rus-Cyrl",
    "tr": "tur-Latn",
    "zh": "cmn-Hans",
}
"""Languages of the shipped recipes as mteb writes them: ISO 639-3 and the script; others are left out."""


class MtebModel:
    """An encoder with the methods that mteb calls.

    :param encoder: an open bundle.
    :param name: its name, `organisation/model`.
    """

    def __init__(self, encoder: Encoder, name: str) -> None:
        self.encoder = encoder
        self.mteb_model_meta = describe(encoder, name)
        """What mteb stores with its results."""

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        task_metadata: TaskMetadata,
        prompt_type: PromptType | None = None,
        batch_size: int = 32,
        **_: object,
    ) -> Vectors:
        """Encode the texts of mteb's batches, (N, D), with the prompts that mteb gives sentence-transformers.

        That is the bundle's prompt of the task's name or type, else that of queries or documents, else its prefix.
        """
        texts = [text for batch in inputs for text in batch["text"]]
        encoder = self.encoder
        methods = {PromptType.query: encoder.encode_query, PromptType.document: encoder.encode_document}
        encode = methods[prompt_type] if prompt_type else encoder.encode
        name = get_prompt_name(dict(encoder.prompts) or None, task_metadata, prompt_type)
        return encode(texts, batch_size=batch_size, prompt_name=name)

    def similarity(self, embeddings1: Vectors, embeddings2: Vectors) -> Vectors:
        """Return the cosines of all rows of (N, D) with all rows of (M, D), (N, M)."""
        return cosine_matrix(np.atleast_2d(embeddings1), np.atleast_2d(embeddings2))

    def similarity_pairwise(self, embeddings1: Vectors, embeddings2: Vectors) -> Vectors:
        """Return the cosine of each row of (N, D) with the same row of (N, D), (N,)."""
        return cosines(np.asarray(embeddings1), np.asarray(embeddings2)).astype(np.float32)


def open_model(source: str | Path | Encoder = DEFAULT) -> MtebModel:
    """Open a released model, the folder of a bundle, a hub id, or take an open encoder.

    :raises InputError: when there is no such model, or it cannot be opened.
    """
    encoder = source if isinstance(source, Encoder) else Encoder.from_pretrained(source)
    if isinstance(source, str) and source.count("/") == 1 and not Path(source).exists():
        return MtebModel(encoder, source)  # a hub id
    release = encoder.manifest.get("release", {})
    return MtebModel(
        encoder, f"{ORGANISATION}/{release.get('name') or Path(encoder.manifest.get('source', 'encoder')).name}"
    )


@dataclass(frozen=True)
class TaskScore:
    """The main score of a model on a task of mteb, from 0 to 1."""

    model: str
    """Its name; of models that share one, the folder, the engine and the precision."""
    task: str
    metric: str
    score: float
    """The mean over the subsets and splits, as the leaderboard has it."""
    subsets: Mapping[str, float]
    """By subset, such as a language pair; of several splits the mean."""


def evaluate(models: Sequence[MtebModel], tasks: Sequence[str], languages: Sequence[str] = ()) -> list[TaskScore]:
    """Score models on tasks of mteb, which downloads their data and keeps the results in its cache.

    :param tasks: names of tasks, such as STS17.
    :param languages: leave out subsets in other languages.
    :raises InputError: when no task is named, one does not exist or has none of the languages, or its data cannot be
        read.
    """
    chosen = _choose_tasks(tasks, languages)
    counts = Counter(model.mteb_model_meta.name for model in models)
    scores = []
    for model in models:
        name, encoder = str(model.mteb_model_meta.name), model.encoder
        label = name if counts[name] == 1 else f"{encoder.folder}, {encoder.engine} {encoder.precision}"
        for task in chosen:
            try:
                (result,) = mteb.evaluate(model, task).task_results
            except (OSError, RuntimeError, ValueError) as error:  # no network, or no such data set
                raise InputError(
                    f"mteb: {task.metadata.name}: {first_line(error)}; its data must be in reach"
                ) from error
            # mteb also returns what its cache holds of other subsets and splits
            entries = [entry for split in task.eval_splits for entry in result.scores.get(split, ())]
            subsets: dict[str, list[float]] = {}
            for entry in entries:
                if entry["hf_subset"] in task.hf_subsets:
                    subsets.setdefault(entry["hf_subset"], []).append(entry["main_score"])
            means = {subset: float(np.mean(values)) for subset, values in subsets.items()}
            score = float(np.mean([value for values in subsets.values() for value in values]))
            scores.append(TaskScore(label, task.metadata.name, task.metadata.main_score, score, means))
    return scores


def _choose_tasks(names: Sequence[str], languages: Sequence[str]) -> list[AbsTask]:
    """Return the tasks of these names, each with its subsets in the languages."""
    if not names:
        raise InputError("mteb: no task is named; give one, such as STS17")
    codes = [LANGUAGES.get(language, language) for language in languages]
    tasks = []
    for name in names:
        try:
            tasks.append(mteb.get_task(name, languages=codes or None))
        except KeyError as error:
            raise InputError(f"mteb: {error.args[0]}; `mteb available-tasks` lists all") from error
        except ValueError as error:
            raise InputError(
                f"mteb: {name} has none of {', '.join(languages)}; leave out --languages, or give its own in ISO "
                "639-3, such as swe"
            ) from error
    return tasks


def describe(encoder: Encoder, name: str) -> ModelMeta:
    """Return mteb's description of an open bundle.

    mteb finds earlier results by name and revision, so each graph and engine of a bundle has a revision of its own.
    Where the manifest does not list the training text, as for a bundle that is not a released model, mteb is told that
    it is unknown.
    """
    manifest = encoder.manifest
    release, bottleneck = manifest.get("release", {}), manifest.get("bottleneck")
    width, tokens = (bottleneck or {}).get("width", manifest.get("hidden_size")), manifest.get("vocab_size")
    corpora = [corpus["name"] for corpus in release.get("text", ())]
    related = [tasks for start, tasks in TASKS_OF_TEXT.items() if any(corpus.startswith(start) for corpus in corpora)]
    graph = PHONE_FILES.get(encoder.engine) or choose_graph(encoder.folder, manifest, encoder.precision)[1]
    weights = [encoder.folder / file for file in (graph, *external_files(encoder.folder, graph))]
    content = str(manifest.get(HASH) or manifest.get("made_from"))[:16]
    return ModelMeta(
        loader=None,
        name=name,
        revision=f"{content}-{encoder.precision}-{encoder.engine}",
        release_date=str(release["finished"])[:10] if release.get("finished") else None,
        languages=[LANGUAGES[language] for language in manifest.get("languages", ()) if language in LANGUAGES],
        n_parameters=manifest.get("parameters"),
        n_embedding_parameters=tokens * width if tokens and width else None,
        memory_usage_mb=round(sum(file.stat().st_size for file in weights) / 2**20, 1),
        max_tokens=manifest["max_tokens"],
        embed_dim=manifest["dimension"],
        license=release["licence"].lower() if release else None,
        open_weights=True,
        public_training_code=None,
        public_training_data=None,
        framework=["ONNX"],
        similarity_fn_name=ScoringFunction.COSINE,
        use_instructions=bool(manifest["prefix"] or any(encoder.prompts.values())),
        training_datasets={task for tasks in related for task in tasks} if corpora else None,
    )
