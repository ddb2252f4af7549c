"""mteb takes a bundle as a model. Its own data sets are not needed: the task is made up here."""

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.student import bundle
from xcompress.bundle.encoder import Encoder
from xcompress.corpus.graded import builtin, score
from xcompress.errors import InputError

mteb = pytest.importorskip("mteb", reason="mteb is not installed")

from datasets import Dataset, DatasetDict  # noqa: E402
from mteb.abstasks.sts import AbsTaskSTS  # noqa: E402
from mteb.abstasks.task_metadata import TaskMetadata  # noqa: E402
from mteb.models.models_protocols import EncoderProtocol  # noqa: E402

from xcompress.interop import mteb as adapter  # noqa: E402
from xcompress.interop.mteb import describe, evaluate, open_model  # noqa: E402

ROWS = builtin().every(6).language_pairs["en-de"]


class GradedPairs(AbsTaskSTS):
    """Some of the package's graded pairs, as a task of mteb."""

    metadata = TaskMetadata(
        name="GradedPairs",
        description="Graded pairs of xcompress.",
        reference=None,
        dataset={"path": "none/none", "revision": "1"},
        type="STS",
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["eng-Latn", "deu-Latn"],
        main_score="cosine_spearman",
    )
    min_score = 0
    max_score = 5

    def load_data(self, **_: object) -> None:
        rows = {"sentence1": list(ROWS.first), "sentence2": list(ROWS.second), "score": list(ROWS.scores)}
        self.dataset = DatasetDict(test=Dataset.from_dict(rows))
        self.data_loaded = True


def test_mteb_evaluates_a_bundle(tmp_path: Path) -> None:
    model = open_model(bundle())
    assert isinstance(model, EncoderProtocol)
    (result,) = mteb.evaluate(model, GradedPairs(), cache=None, show_progress_bar=False).task_results
    expected = score(Encoder(bundle()).encode, builtin().every(6))["en-de"] / 100
    assert result.scores["test"][0]["cosine_spearman"] == pytest.approx(expected, abs=1e-5)


def test_scores_of_tasks_by_subset(monkeypatch: pytest.MonkeyPatch, working_folder: Path) -> None:
    monkeypatch.setenv("MTEB_CACHE", str(working_folder / "cache"))
    monkeypatch.setattr(adapter.mteb, "get_tasks", lambda names, languages: [GradedPairs()])
    (scored,) = evaluate([open_model(bundle())], ["GradedPairs"], ["de"])
    expected = score(Encoder(bundle()).encode, builtin().every(6))["en-de"] / 100
    assert (scored.model, scored.task, scored.metric) == ("xcompress/small", "GradedPairs", "cosine_spearman")
    assert scored.score == pytest.approx(expected, abs=1e-5) and list(scored.subsets) == ["default"]


def test_a_task_that_does_not_exist_is_named() -> None:
    with pytest.raises(InputError, match=r"mteb: .*'NoSuchTask' not found.*available-tasks"):
        evaluate([open_model(bundle())], ["NoSuchTask"])


def test_what_mteb_is_told() -> None:
    small = open_model("small").mteb_model_meta
    assert (small.name, small.embed_dim, small.max_tokens, small.license) == ("xcompress/small", 384, 128, "mit")
    assert {"eng-Latn", "ara-Arab", "tur-Latn"} < set(small.languages)
    assert "Tatoeba" in small.training_datasets and small.n_embedding_parameters < small.n_parameters
    own = open_model(Encoder(bundle())).mteb_model_meta
    assert own.training_datasets is None, "unknown is not the same as none"
    assert own.revision and own.use_instructions, "its prefix is an instruction to mteb"
    assert describe(Encoder(bundle()).manifest, "a/b").name == "a/b"


def test_cosines_are_those_of_the_vectors() -> None:
    model, random = open_model(bundle()), np.random.default_rng(0)
    left, right = random.normal(size=(2, 3, 24)).astype(np.float32)
    table = model.similarity(left, right)
    np.testing.assert_allclose(np.diag(table), model.similarity_pairwise(left, right), atol=1e-6)
    assert table.shape == (3, 3)


def test_a_model_that_does_not_exist_is_named() -> None:
    with pytest.raises(InputError, match="none: neither a folder nor a released model"):
        open_model("none")
