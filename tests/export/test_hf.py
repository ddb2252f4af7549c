import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.helpers.export import manifest_of
from tests.helpers.student import GEMMA, MODERNBERT, QWEN, ROTARY_BERT, SENTENCES, save_student
from xcompress.api import Run
from xcompress.bench.subjects import find_subjects
from xcompress.errors import GateError, InputError
from xcompress.export import hf
from xcompress.export.hf import checkpoint_weights, export_hf
from xcompress.export.source import find_source
from xcompress.modeling.rotary_config import ModernBertAttention
from xcompress.modeling.student import Student, encode

pytest.importorskip("sentence_transformers", reason="needs sentence-transformers")

FIRST, NEAR, FAR = (
    ModernBertAttention(1000.0, norm=False),
    ModernBertAttention(100.0, window=4),
    ModernBertAttention(1000.0),
)
RECURRENT = MODERNBERT | {"prelude_layers": 1, "unit_layers": 2, "recurrences": 2}
TEXTS = [*SENTENCES, "", "rain " * 300, "zzz"]
SHAPES = {
    "recurrent, bottleneck, head, XLM-R": ({}, "XLMRobertaModel"),
    "prelude and coda": ({"prelude_layers": 1, "unit_layers": 1, "coda_layers": 1}, "XLMRobertaModel"),
    "BERT": ({"position_offset": 0, "bottleneck": None, "head_size": None, "recurrences": 1}, "BertModel"),
    "positions of neither": ({"position_offset": 5, "prefix": "", "head_size": None}, "BertModel"),
    "first token, not normalised": ({"pooling": "cls", "normalize": False, "type_vocab_size": 1}, "XLMRobertaModel"),
    "activated head, no types": ({"head_activation": "tanh", "type_vocab_size": 0}, "XLMRobertaModel"),
    "recurrent ModernBERT": (RECURRENT, "ModernBertModel"),
    "every second layer sees all tokens": (RECURRENT | {"modernbert": (FIRST, NEAR, FAR)}, "ModernBertModel"),
    "all layers see all tokens": (RECURRENT | {"modernbert": (FIRST, FAR, FAR), "bottleneck": None}, "ModernBertModel"),
}
READ = """
import json, sys

class Refused:
    def find_spec(self, name, *_):
        if name.split(".")[0] == "xcompress":
            raise ImportError("xcompress is not here")

sys.meta_path.insert(0, Refused())
import logging
heard = []
logging.Handler.handle = lambda self, record: "Default prompt" in record.msg or heard.append(record.getMessage())
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

answers = []
for folder, texts in json.load(sys.stdin):
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    whole = SentenceTransformer(folder, device="cpu")
    answers.append({
        "model": type(model).__name__,
        "fast": tokenizer.is_fast,
        "tokens": model(**tokenizer(["rain"], return_tensors="pt")).last_hidden_state[0].tolist(),
        "vectors": whole.encode(texts).tolist(),
        "longest": whole.max_seq_length,
        "modules": [type(module).__name__ for module in whole],
        "heard": heard,
    })
assert not [name for name in sys.modules if name.startswith("xcompress")]
json.dump(answers, open(sys.argv[1], "w"))
"""


def read_elsewhere(folders: list[Path], answers: Path) -> list[dict[str, object]]:
    """Open folders in a process that cannot import xcompress."""
    work = json.dumps([(str(folder), TEXTS) for folder in folders])
    settings = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
    command = [sys.executable, "-c", READ, str(answers)]
    done = subprocess.run(command, input=work, capture_output=True, text=True, env=settings, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(answers.read_text())


@pytest.fixture(scope="module")
def students(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("hf")
    changes = {shape: changes for shape, (changes, _) in SHAPES.items()}
    return {shape: save_student(place / f"s{number}", **changes[shape]) for number, shape in enumerate(SHAPES)}


@pytest.fixture(scope="module")
def answers(students: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    folders = [export_hf(student) for student in students.values()]
    file = tmp_path_factory.mktemp("answers") / "answers.json"
    return dict(zip(students, read_elsewhere(folders, file), strict=True))


@pytest.fixture
def student(tmp_path: Path) -> Path:
    return save_student(tmp_path / "small", unit_layers=1)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_sentence_transformers_alone_gives_the_students_vectors(
    shape: str, students: dict[str, Path], answers: dict[str, dict[str, object]]
) -> None:
    found, (loaded, tokenizer) = answers[shape], Student.load(students[shape])
    expected = encode(loaded, tokenizer, TEXTS)
    scale = np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(np.array(found["vectors"]) / scale, expected / scale, atol=1e-5)
    assert (found["model"], found["fast"], found["longest"]) == (SHAPES[shape][1], True, 128)
    assert found["heard"] == []
    steps = {"Dense": loaded.head is not None, "Normalize": loaded.config.normalize}
    assert found["modules"] == ["Transformer", "Pooling", *(name for name, there in steps.items() if there)]


@pytest.mark.slow
def test_token_vectors_are_those_before_the_head(
    students: dict[str, Path], answers: dict[str, dict[str, object]]
) -> None:
    shape = next(iter(SHAPES))
    loaded, tokenizer = Student.load(students[shape])
    tokenizer.no_padding()
    ids = torch.tensor([tokenizer.encode("rain").ids])
    with torch.inference_mode():
        tokens = loaded(ids, torch.ones_like(ids))[0][0]
        found = loaded.head(torch.tensor(answers[shape]["tokens"]))
    torch.testing.assert_close(found, tokens, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_the_folder_is_complete_and_plain(students: dict[str, Path], answers: dict[str, dict[str, object]]) -> None:
    folder = Path(f"{students[next(iter(SHAPES))]}-hf")
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    tokenizer = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}
    pipeline = {"modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"}
    steps = {"1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors", "3_Normalize/config.json"}
    own = {"config.json", "model.safetensors", "README.md", "manifest.json"}
    assert found == tokenizer | pipeline | steps | own
    described = json.loads((folder / "config.json").read_text())
    assert "auto_map" not in described
    assert described["num_hidden_layers"] == 6
    assert json.loads((folder / "manifest.json").read_text())["parity"]["max_abs_difference"] <= 1e-5
    assert "XLMRobertaModel with 6 layers" in (folder / "README.md").read_text()


@pytest.mark.parametrize("types", [0, 1])
def test_a_bert_without_token_types_knows_both_that_tokenizers_give(types: int, tmp_path: Path) -> None:
    from transformers import AutoModel

    student = save_student(tmp_path / "student", unit_layers=1, recurrences=1, position_offset=0, type_vocab_size=types)
    model = AutoModel.from_pretrained(export_hf(student))
    ids = torch.tensor([[0, 7, 8, 2]])
    with torch.inference_mode():
        first, second = (model(ids, token_type_ids=ids * 0 + number).last_hidden_state for number in (0, 1))
    torch.testing.assert_close(first, second, atol=0, rtol=0)


def test_the_checkpoint_may_have_fewer_recurrences(student: Path) -> None:
    folder = export_hf(student, recurrences=2)
    assert folder == student.with_name("small-hf-r2")
    assert json.loads((folder / "config.json").read_text())["num_hidden_layers"] == 2
    with pytest.raises(InputError, match="recurrences: 4 requested, but the student has 3"):
        export_hf(student, recurrences=4)


def test_a_run_gets_the_checkpoint_beside_its_bundle_once(
    student: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = student.parent / "runs/trial"
    run.mkdir(parents=True)
    student.rename(run / "student")
    (run / "manifest.json").write_text(
        json.dumps({"name": "trial", "languages": ["en", "de"], "finished": "2024-05-01"})
    )
    monkeypatch.chdir(student.parent)
    assert export_hf() == Path("runs/trial/hf")
    written = (run / "hf/model.safetensors").stat().st_mtime_ns
    assert "language: [en, de]" in (run / "hf/README.md").read_text()
    export_hf(str(run))
    assert "already exported from trial" in capsys.readouterr().err
    assert (run / "hf/model.safetensors").stat().st_mtime_ns == written
    export_hf(run, force=True)
    assert (run / "hf/model.safetensors").stat().st_mtime_ns > written


def test_a_checkpoint_is_a_model_and_no_bundle(student: Path) -> None:
    folder = export_hf(student)
    vectors = encode(*find_source(folder).open(), TEXTS)
    np.testing.assert_allclose(vectors, encode(*Student.load(student), TEXTS), atol=1e-5)
    (subject,) = find_subjects([folder]).subjects
    assert (subject.kind, subject.broken) == ("pytorch", None)
    with pytest.raises(InputError, match="small-hf: no finished run"):
        Run.open(folder)


def test_a_student_that_the_format_cannot_express_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="and ModernBertModel have no relative attention bias, as mpnet has"):
        export_hf(save_student(tmp_path / "mpnet", relative_buckets=32))
    with pytest.raises(InputError, match="and ModernBertModel have no layers of Gemma, as gemma has"):
        export_hf(save_student(tmp_path / "gemma", **GEMMA))
    with pytest.raises(InputError, match="and ModernBertModel have no layers of Qwen3, as qwen has"):
        export_hf(save_student(tmp_path / "qwen", **QWEN))
    with pytest.raises(InputError, match="no layers of BERT with rotary positions, as gte has"):
        export_hf(save_student(tmp_path / "gte", **ROTARY_BERT))


@pytest.mark.parametrize(
    "layers",
    [
        pytest.param((FAR,), id="a norm in front of the first attention"),
        pytest.param((FIRST, replace(FAR, norm=False)), id="a later layer without one"),
        pytest.param((replace(NEAR, norm=False), NEAR), id="a window in the first layer"),
        pytest.param((FIRST, NEAR, replace(NEAR, window=8)), id="two windows"),
        pytest.param((FIRST, replace(FAR, rotary_base=100.0)), id="two rotary bases without a window"),
        pytest.param((FIRST, NEAR, FAR, FAR), id="no pattern"),
    ],
)
def test_a_modernbert_whose_layers_are_in_another_order_is_refused(
    layers: tuple[ModernBertAttention, ...], tmp_path: Path
) -> None:
    student = save_student(tmp_path / "mine", **MODERNBERT | {"modernbert": layers, "unit_layers": len(layers)})
    with pytest.raises(InputError, match=r"^export: ModernBertModel has no layers in such an order: .* --format onnx$"):
        export_hf(student)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_the_checkpoint_of_a_modernbert_is_read_as_the_student_was(tmp_path: Path) -> None:
    folder = export_hf(save_student(tmp_path / "mine", **RECURRENT))
    assert find_source(folder).open()[0].config.modernbert == (FIRST, *[NEAR] * 4)
    card = (folder / "README.md").read_text()
    assert "ModernBertModel with 5 layers" in card
    assert "pooler" not in card


def test_a_checkpoint_with_other_vectors_is_refused_and_removed(student: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def disturbed(made: Student) -> dict[str, torch.Tensor]:
        weights = checkpoint_weights(made)
        weights["encoder.layer.1.output.dense.bias"][3] += 0.01
        return weights

    monkeypatch.setattr(hf, "checkpoint_weights", disturbed)
    with pytest.raises(GateError, match=r"vectors differ from the student's by .*, bound 1e-05"):
        export_hf(student)
    assert [path.name for path in student.parent.iterdir()] == ["small"]


def test_foreign_folders_files_and_full_disks(student: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").write_text("dear")
    with pytest.raises(InputError, match="is not empty and not an export"):
        export_hf(student, tmp_path / "mine")
    with pytest.raises(InputError, match="is a file"):
        export_hf(student, tmp_path / "mine/letter.txt")
    monkeypatch.setattr("xcompress.export.folder.free_bytes", lambda _: 1000)
    with pytest.raises(InputError, match=r"0\.0 MB free, the export needs 60"):
        export_hf(student)


def test_a_folder_with_a_damaged_manifest_is_replaced_by_force(student: Path, tmp_path: Path) -> None:
    made = export_hf(student, tmp_path / "out")
    (made / "manifest.json").write_text('{"made_from": ')
    with pytest.raises(InputError, match=r"out/manifest\.json: is damaged; add --force"):
        export_hf(student, made)
    export_hf(student, made, force=True)
    assert manifest_of(made)["files"]


def test_saved_weights_share_no_memory(student: Path, tmp_path: Path) -> None:
    weights = load_file(export_hf(student, tmp_path / "out") / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.float32}
    save_file(weights, tmp_path / "again.safetensors")  # refuses weights that share memory
    assert torch.equal(weights["encoder.layer.0.output.dense.weight"], weights["encoder.layer.2.output.dense.weight"])
