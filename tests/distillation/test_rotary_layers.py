"""Students whose layers are those of a BERT with rotary positions: GTE, jina-embeddings-v3, nomic-embed-text."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers.foreign import TEXTS
from tests.helpers.recipe import write_recipe
from tests.helpers.rotary import CONFIGS, rotary_vectors, save_rotary
from tests.helpers.runs import CONTRAST, load_finite, run
from tests.helpers.vocabularies import make
from xcompress.bundle.encoder import Encoder
from xcompress.distillation.initialization import initial_student
from xcompress.distillation.plan import plan
from xcompress.distillation.teachers.layer_sources import import_layers
from xcompress.export.exporter import export
from xcompress.export.verify import Bounds
from xcompress.interop.sentence_transformers import open_student
from xcompress.metrics import cosines
from xcompress.modeling.load import import_encoder
from xcompress.modeling.student import Student, encode, token_ids
from xcompress.recipe import EncoderSection, StudentSection, load_recipe

AROUND = "student={prelude: [1], unit_layers: 1, layers: [2], recurrences: 2, coda: [3], bottleneck: 16}"
"""Each of the three layers has another place in the student."""
pytestmark = pytest.mark.usefixtures("offline")


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe"))


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_student_with_all_layers_has_the_vectors_of_the_encoder(kind: str, tmp_path: Path) -> None:
    folder = save_rotary(tmp_path, kind, "mean")
    assistant, tokenizer = import_layers(EncoderSection(source=str(folder)), folder, "assistant")
    section = StudentSection(unit_layers=3, recurrences=1, bottleneck=None)
    student = initial_student(assistant, section, np.ones(400, dtype=np.int64)).eval()
    ids = token_ids(tokenizer, TEXTS, student.config)
    np.testing.assert_allclose(encode(student, tokenizer, TEXTS), rotary_vectors(folder, ids), atol=1e-5)


@pytest.mark.usefixtures("little_text")
@pytest.mark.parametrize("kind", CONFIGS)
def test_its_layers_are_distilled_and_exported(kind: str, recipe_file: Path, tmp_path: Path) -> None:
    folder = save_rotary(tmp_path / "model", kind, "mean", vocab_size=900, initializer_range=0.1)
    make("unigram").save(str(folder / "tokenizer.json"))
    changes = [CONTRAST, f"assistant={{source: {folder}}}", AROUND, "vocabulary={method: trim}", "widths=equal"]
    planned = plan(load_recipe(recipe_file, changes), tmp_path / "run").student
    finished, facts = run(recipe_file, tmp_path, *changes)
    assert facts["1-contrast"]["loss"][-1]["step"] == 4

    student, source = load_finite(finished), import_encoder(folder)[0]
    assert student.config.stack == ("prelude.0", "unit.0", "unit.0", "coda.0")
    assert student.config.rotary_bert == source.config.rotary_bert
    assert student.config.vocab_size < 900
    assert planned and planned.encoder == student.sizes()["encoder"]
    assert not torch.equal(student.coda[0].output.weight, source.unit[2].output.weight)
    made = export(finished, bounds=Bounds.of("int4"))  # random weights lose more in 8 bits
    texts = ["The boat is late.", "Der Zug ist weg. " * 40]
    expected = encode(*Student.load(finished / "student"), texts)
    assert cosines(Encoder(made).encode(texts), expected).min() > 0.99
    np.testing.assert_allclose(open_student(str(finished / "student")).encode(texts), expected, atol=1e-5)
