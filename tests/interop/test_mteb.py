"""mteb takes a bundle as a model. Its own data sets are not needed: the task is made up here."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy.stats import spearmanr

from tests.helpers.student import bundle, change_manifest
from xcompress.bundle.encoder import Encoder, Precision
from xcompress.corpus.graded import builtin
from xcompress.errors import InputError
from xcompress.metrics import cosines

GRADED = builtin().every(6)
SUBSETS = {"en-de": ["eng-Latn", "deu-Latn"], "fr-fr": ["fra-Latn"]}


@pytest.fixture(scope="module")
def interop() -> ModuleType:
    """Import what is tested, for these tests alone: mteb takes seconds, and every process collects this file."""
    pytest.importorskip("mteb", reason="mteb is not installed")
    return import_module("xcompress.interop.mteb")


@pytest.fixture(scope="module")
def graded_pairs(interop: ModuleType) -> type:
    """Some of the package's graded pairs, as a task of mteb."""
    from datasets import Dataset, DatasetDict
    from mteb.abstasks.sts import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata

    class GradedPairs(AbsTaskSTS):
        metadata = TaskMetadata(
            name="GradedPairs",
            description="Graded pairs of xcompress.",
            reference=None,
            dataset={"path": "none/none", "revision": "1"},
            type="STS",
            category="t2t",
            modalities=["text"],
            eval_splits=["test"],
            eval_langs=SUBSETS,
            main_score="cosine_spearman",
        )
        min_score = 0
        max_score = 5

        def load_data(self, **_: object) -> None:
            pairs = {subset: GRADED.language_pairs[subset] for subset in SUBSETS}
            rows = {
                subset: {"sentence1": list(of.first), "sentence2": list(of.second), "score": list(of.scores)}
                for subset, of in pairs.items()
            }
            self.dataset = {subset: DatasetDict(test=Dataset.from_dict(columns)) for subset, columns in rows.items()}
            self.data_loaded = True

    return GradedPairs


@pytest.fixture
def task(graded_pairs: type, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The name of the task, which mteb knows in this test; its results go to an empty cache."""
    monkeypatch.setitem(import_module("mteb.get_tasks")._TASKS_REGISTRY, "GradedPairs", graded_pairs)
    monkeypatch.setattr(import_module("mteb.evaluate")._DEFAULT_CACHE, "cache_path", tmp_path / "mteb")
    return "GradedPairs"


def expected(subset: str, precision: Precision = "auto") -> float:
    """Encode each side in a call of its own, as mteb does: in other batches, cosines that are nearly equal swap."""
    encoder, pairs = Encoder(bundle(), precision=precision), GRADED.language_pairs[subset]
    similarities = cosines(encoder.encode(list(pairs.first)), encoder.encode(list(pairs.second)))
    return float(spearmanr(similarities.astype(np.float32), pairs.scores).statistic)


def test_mteb_evaluates_a_bundle(interop: ModuleType, graded_pairs: type) -> None:
    from mteb.models.models_protocols import EncoderProtocol

    model = interop.open_model(bundle())
    assert isinstance(model, EncoderProtocol)
    (result,) = interop.mteb.evaluate(model, graded_pairs(), cache=None, show_progress_bar=False).task_results
    assert result.scores["test"][0]["cosine_spearman"] == pytest.approx(expected("en-de"), abs=1e-5)


def test_scores_of_tasks_by_subset(interop: ModuleType, task: str) -> None:
    (scored,) = interop.evaluate([interop.open_model(bundle())], [task])
    assert (scored.model, scored.task, scored.metric) == ("xcompress/small", "GradedPairs", "cosine_spearman")
    assert scored.subsets == pytest.approx({subset: expected(subset) for subset in SUBSETS}, abs=1e-5)
    assert scored.score == pytest.approx((expected("en-de") + expected("fr-fr")) / 2, abs=1e-5)


def test_languages_leave_out_subsets_that_the_cache_of_mteb_holds(interop: ModuleType, task: str) -> None:
    model = interop.open_model(bundle())
    interop.evaluate([model], [task], ["fr"])
    (scored,) = interop.evaluate([model], [task], ["de"])
    assert list(scored.subsets) == ["en-de"]
    assert scored.score == pytest.approx(expected("en-de"), abs=1e-5)


def test_two_graphs_of_a_bundle_have_their_own_names_and_scores(interop: ModuleType, task: str) -> None:
    models = [interop.open_model(Encoder(bundle(), precision=precision)) for precision in ("fp32", "int8")]
    fp32, int8 = interop.evaluate(models, [task], ["de"])
    assert expected("en-de", "fp32") != pytest.approx(expected("en-de", "int8"), abs=1e-4)
    assert fp32.score == pytest.approx(expected("en-de", "fp32"), abs=1e-5)
    assert int8.score == pytest.approx(expected("en-de", "int8"), abs=1e-5)
    assert (fp32.model, int8.model) == (f"{bundle()}, onnxruntime fp32", f"{bundle()}, onnxruntime int8")


@pytest.mark.parametrize("language", ["pl", "sv"])
def test_a_task_without_the_languages_is_refused(interop: ModuleType, task: str, language: str) -> None:
    with pytest.raises(InputError, match=f"GradedPairs has none of {language}; leave out --languages"):
        interop.evaluate([interop.open_model(bundle())], [task], [language])


def test_a_task_must_be_named(interop: ModuleType) -> None:
    with pytest.raises(InputError, match="no task is named; give one, such as STS17"):
        interop.evaluate([interop.open_model(bundle())], [])


def test_a_task_that_does_not_exist_is_named(interop: ModuleType) -> None:
    with pytest.raises(InputError, match=r"mteb: .*'NoSuchTask' not found.*available-tasks"):
        interop.evaluate([interop.open_model(bundle())], ["NoSuchTask"])


def test_what_mteb_is_told(interop: ModuleType) -> None:
    small = interop.open_model("small").mteb_model_meta
    assert (small.name, small.embed_dim, small.max_tokens, small.license) == ("xcompress/small", 384, 128, "mit")
    assert {"eng-Latn", "ara-Arab", "tur-Latn"} < set(small.languages)
    assert "Tatoeba" in small.training_datasets and small.n_embedding_parameters < small.n_parameters
    own = interop.open_model(Encoder(bundle())).mteb_model_meta
    assert own.training_datasets is None, "unknown is not the same as none"
    assert own.revision and own.use_instructions, "its prefix is an instruction to mteb"
    assert interop.describe(Encoder(bundle()), "a/b").name == "a/b"


@pytest.mark.parametrize(("precision", "file"), [("fp32", "model.onnx"), ("int8", "model_quantized.onnx")])
def test_only_the_open_graph_counts_as_memory(interop: ModuleType, precision: Precision, file: str) -> None:
    described = interop.describe(Encoder(bundle(), precision=precision), "a/b")
    assert described.memory_usage_mb == pytest.approx((bundle() / "onnx" / file).stat().st_size / 2**20, abs=0.05)


@pytest.mark.parametrize(
    ("prompts", "prompt_type", "prompt"),
    [
        ({"query": "rain ", "passage": "the sea "}, "query", "rain "),
        ({"query": "rain ", "passage": "the sea "}, "document", "the sea "),
        ({"query": "rain ", "passage": "the sea "}, None, "query: "),
        ({"query": "rain ", "STS": "boat "}, None, "boat "),
        ({"query": "rain ", "GradedPairs": "boat "}, "query", "boat "),
    ],
)
def test_mteb_says_which_prompt(
    interop: ModuleType,
    graded_pairs: type,
    prompts: dict[str, str],
    prompt_type: str | None,
    prompt: str,
    bundle_copy: Path,
) -> None:
    change_manifest(bundle_copy, prompts=prompts)
    kind = prompt_type and interop.PromptType(prompt_type)
    model = interop.open_model(bundle_copy)
    batches = [{"text": ["a boat", "the tide"]}]
    found = model.encode(batches, task_metadata=graded_pairs.metadata, prompt_type=kind)
    np.testing.assert_array_equal(found, model.encoder.encode(batches[0]["text"], prompt=prompt))


def test_cosines_are_those_of_the_vectors(interop: ModuleType) -> None:
    model, random = interop.open_model(bundle()), np.random.default_rng(0)
    left, right = random.normal(size=(2, 3, 24)).astype(np.float32)
    table = model.similarity(left, right)
    np.testing.assert_allclose(np.diag(table), model.similarity_pairwise(left, right), atol=1e-6)
    assert table.shape == (3, 3)


def test_a_model_that_does_not_exist_is_named(interop: ModuleType) -> None:
    with pytest.raises(InputError, match="none: neither a folder nor a released model"):
        interop.open_model("none")
