import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers.student import CONFIG, SENTENCES, make_student, make_tokenizer, save_student
from xcompress.errors import InputError
from xcompress.export.source import find_source
from xcompress.metrics import cosines
from xcompress.modeling.load import import_encoder
from xcompress.modeling.student import Student, encode

package = pytest.importorskip("sentence_transformers", reason="needs sentence-transformers")

from sentence_transformers import losses  # noqa: E402 - is there, then

from xcompress.interop.sentence_transformers import StudentModule, open_student  # noqa: E402 - needs the package

pytestmark = pytest.mark.usefixtures("offline")
# from version 6 on, classes of other packages have to be trusted by name
TRUSTED = {"trust_remote_code": True} if int(package.__version__.split(".")[0]) >= 6 else {}
TEXTS = [*SENTENCES, "", "rain " * 300, "zzz"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_student(tmp_path / "student")


def expected(folder: Path, texts: list[str] = TEXTS) -> np.ndarray:
    return encode(*Student.load(folder), texts)


def test_the_folder_opens_by_its_name(folder: Path) -> None:
    model = package.SentenceTransformer(str(folder), device="cpu", **TRUSTED)
    assert [type(module) for module in model] == [StudentModule]
    vectors = model.encode(TEXTS, batch_size=3)
    assert cosines(vectors, expected(folder)).min() > 0.9999
    np.testing.assert_allclose(vectors, expected(folder), atol=1e-5)
    assert model.get_embedding_dimension() == 24
    assert model.similarity_fn_name == "cosine"


@pytest.mark.parametrize(
    "path",
    [
        "xcompress.st_module.StudentModule",
        "xcompress.st_module.StudentTransformer",
        "xcompress.interop.sentence_transformers.StudentTransformer",
    ],
)
def test_a_folder_with_any_class_path_opens(folder: Path, path: str) -> None:
    (module,) = json.loads((folder / "modules.json").read_text())
    assert module["type"] == "xcompress.st_module.StudentModule"
    (folder / "modules.json").write_text(json.dumps([module | {"type": path}]))
    model = package.SentenceTransformer(str(folder), device="cpu", **TRUSTED)
    assert type(model[0]).__name__ == "StudentTransformer"
    assert model.config.hidden_size == CONFIG.hidden_size
    assert (model.device.type, model.dtype) == ("cpu", torch.float32)


def test_the_folder_also_opens_without_trust_remote_code(folder: Path) -> None:
    vectors = open_student(folder).encode(TEXTS)
    np.testing.assert_allclose(vectors, expected(folder), atol=1e-5)


def test_single_texts_tensors_and_similarities(folder: Path) -> None:
    model = open_student(folder)
    one, many = model.encode("rain"), model.encode(SENTENCES, convert_to_tensor=True)
    assert one.shape == (24,)
    assert many.shape == (5, 24)
    np.testing.assert_allclose(model.similarity(many, many).diagonal(), 1, atol=1e-5)
    np.testing.assert_allclose(model.similarity(one, many)[0, 3], 1, atol=1e-5)
    tokens = model.encode("rain", output_value="token_embeddings")
    assert tokens.shape == (4, 24)  # <s> query: rain </s>
    assert len(model.encode([])) == 0


def test_the_prefix_is_the_students_and_a_prompt_replaces_it(folder: Path) -> None:
    model = open_student(folder)
    same = model.encode(SENTENCES, prompt=CONFIG.prefix)
    np.testing.assert_allclose(same, model.encode(SENTENCES), atol=1e-6)
    assert np.abs(model.encode(SENTENCES, prompt="the ") - same).max() > 1e-3
    np.testing.assert_allclose(model.encode_query(SENTENCES), same, atol=1e-6)


def test_saving_round_trips_with_what_was_changed(folder: Path, tmp_path: Path) -> None:
    model = open_student(folder)
    model.max_seq_length = 6
    model.prompts["short"] = "the "
    model.save(str(tmp_path / "saved"))
    again = package.SentenceTransformer(str(tmp_path / "saved"), device="cpu", **TRUSTED)
    assert (again.max_seq_length, again.prompts["short"]) == (6, "the ")
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    assert Student.load(tmp_path / "saved")[0].config.max_tokens == 6
    np.testing.assert_allclose(expected(tmp_path / "saved"), model.encode(TEXTS), atol=1e-5)
    described = json.loads((tmp_path / "saved/modules.json").read_text())
    assert described == [
        {"idx": 0, "name": "0", "path": "", "type": "xcompress.interop.sentence_transformers.StudentTransformer"}
    ]


def test_a_saved_student_can_be_exported_and_distilled_further(folder: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    open_student(folder).save_pretrained(str(saved))
    assert find_source(saved).student == saved
    student, tokenizer = import_encoder(saved)
    np.testing.assert_allclose(encode(student, tokenizer, TEXTS), expected(folder), atol=1e-6)


def test_a_length_beyond_the_positions_is_refused(folder: Path) -> None:
    model = open_student(folder)
    assert model.max_seq_length == 128
    with pytest.raises(InputError, match="max_seq_length: 159 requested, but the student has 158 positions"):
        model.max_seq_length = 159


def test_a_folder_without_a_student_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match=r"no model\.safetensors, tokenizer\.json here"):
        open_student(tmp_path)


def test_no_pickle_is_written(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="never saved as pickles"):
        open_student(folder).save(str(tmp_path / "saved"), safe_serialization=False)


def test_their_trainer_changes_every_weight(folder: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="needs datasets")
    model = open_student(folder)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    rows = {"sentence": SENTENCES, "label": np.random.default_rng(0).normal(size=(5, 24)).tolist()}
    options = package.SentenceTransformerTrainingArguments(
        str(tmp_path / "runs"), max_steps=1, per_device_train_batch_size=5, learning_rate=1e-2, warmup_steps=0,
        report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    loss = losses.MSELoss(model)
    package.SentenceTransformerTrainer(model, options, datasets.Dataset.from_dict(rows), loss=loss).train()
    untouched = [name for name, weight in model.state_dict().items() if torch.equal(weight, before[name])]
    assert untouched == []


def test_a_loss_of_theirs_reaches_every_weight() -> None:
    module = StudentModule(make_student(), make_tokenizer())
    model = package.SentenceTransformer(modules=[module], device="cpu")
    features = model.preprocess(SENTENCES)
    losses.MSELoss(model)([features], torch.randn(5, 24)).backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []
