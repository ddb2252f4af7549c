"""Configurations that claim sizes which no file backs: refused in one line, before memory is taken for them."""

import json
import shutil
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, processors

from tests.helpers.foreign import encoder
from tests.helpers.limits import frugal
from tests.helpers.student import CONFIG, save_student
from xcompress.errors import InputError
from xcompress.export.exporter import export
from xcompress.modeling.bounds import LARGEST
from xcompress.modeling.e5s1 import read_e5s1
from xcompress.modeling.load import import_encoder
from xcompress.modeling.st_folder import LARGEST_HEAD, read_pipeline
from xcompress.modeling.student import Student

HUGE = 10**12
BAD = [0, -1, HUGE, 10**400, 1.5, True, "12", [1], None]


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_student(tmp_path_factory.mktemp("students") / "student")


def change(folder: Path, copy: Path, **changes: object) -> Path:
    """Copy a model and change its config.json."""
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | changes))
    return copy


@pytest.mark.parametrize(
    "size",
    ["vocab_size", "hidden_size", "num_attention_heads", "unit_layers", "recurrences", "prelude_layers", "coda_layers"],
)
def test_a_student_with_an_impossible_size_is_refused(size: str, student: Path, tmp_path: Path) -> None:
    for value in BAD if size not in ("prelude_layers", "coda_layers") else BAD[1:]:  # these may be 0
        with frugal(), pytest.raises(InputError, match=rf"config\.json: .*{size} is") as caught:
            Student.load(change(student, tmp_path / "copy", **{size: value}))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, "x", None])
def test_a_student_with_an_impossible_epsilon_is_refused(value: object, student: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="layer_norm_eps"):
        Student.load(change(student, tmp_path / "copy", layer_norm_eps=value))


def test_a_student_of_no_size_is_refused(student: Path, tmp_path: Path) -> None:
    folder = change(student, tmp_path / "copy")
    config = json.loads((folder / "config.json").read_text())
    del config["vocab_size"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"config\.json: .*vocab_size"):
        Student.load(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"vocab_size": LARGEST["vocab_size"]},
        {"hidden_size": 20_000},
        {"intermediate_size": LARGEST["intermediate_size"]},
        {"unit_layers": LARGEST["unit_layers"]},
        {"max_position_embeddings": LARGEST["max_position_embeddings"]},
        {"head_size": LARGEST["head_size"]},
    ],
    ids=str,
)
def test_sizes_beyond_the_weights_file_are_refused_before_memory_is_taken(
    changes: dict[str, int], student: Path, tmp_path: Path
) -> None:
    with frugal(100), pytest.raises(InputError, match=r"model\.safetensors: .* weights, but"):
        Student.load(change(student, tmp_path / "copy", **changes))


@pytest.mark.parametrize(
    "key",
    [
        "vocab_size",
        "hidden_size",
        "num_attention_heads",
        "intermediate_size",
        "num_hidden_layers",
        "max_position_embeddings",
        "type_vocab_size",
        "pad_token_id",
    ],
)
def test_an_encoder_with_an_impossible_size_is_refused(key: str, tmp_path: Path) -> None:
    for value in (-1, HUGE, 10**400, 1.5, True, "12", [1]):
        folder = change(encoder("bert"), tmp_path / "copy", **{key: value})
        with frugal(), pytest.raises(InputError, match=rf"config\.json: .*{key}") as caught:
            import_encoder(folder)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 500


@pytest.mark.parametrize("key", ["vocab_size", "intermediate_size", "num_hidden_layers", "max_position_embeddings"])
def test_an_encoder_larger_than_its_weights_is_refused(key: str, tmp_path: Path) -> None:
    folder = change(encoder("bert"), tmp_path / "copy", **{key: 1000 if "layers" in key else 1_000_000})
    with frugal(100), pytest.raises(InputError, match="weights, but"):
        import_encoder(folder)


def test_a_huge_encoder_is_refused_by_export_in_one_line(tmp_path: Path) -> None:
    with frugal(), pytest.raises(InputError, match="num_hidden_layers is 1000000000000"):
        export(change(encoder("bert"), tmp_path / "copy", num_hidden_layers=HUGE))


@pytest.mark.parametrize("place", ["post_processor", "padding"])
def test_an_id_beyond_the_token_embeddings_is_refused_wherever_it_is(place: str, tmp_path: Path) -> None:
    folder = shutil.copytree(encoder("bert"), tmp_path / "copy")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    if place == "padding":
        tokenizer.enable_padding(pad_id=99_999)
    else:
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 99_999), ("[CLS]", 1))
    tokenizer.save(str(folder / "tokenizer.json"))
    with pytest.raises(InputError, match="the tokenizer has ids up to 99999, the token embeddings"):
        import_encoder(folder)


def test_two_thin_dense_modules_that_make_a_huge_head_are_refused(tmp_path: Path) -> None:
    modules = [{"path": "", "type": "sentence_transformers.models.Transformer"}]
    modules += [{"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]
    modules += [{"path": f"{number}_Dense", "type": "sentence_transformers.models.Dense"} for number in (2, 3)]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text("{}")
    identity = {"activation_function": "torch.nn.modules.linear.Identity"}
    for module, shape in zip(modules[2:], ((1, 300_000), (300_000, 1)), strict=True):
        (tmp_path / module["path"]).mkdir()
        (tmp_path / module["path"] / "config.json").write_text(json.dumps(identity))
        save_file({"linear.weight": torch.zeros(shape)}, tmp_path / module["path"] / "model.safetensors")
    with frugal(), pytest.raises(InputError, match="head"):
        read_pipeline(tmp_path)
    assert LARGEST_HEAD > 1024 * 768


def test_a_dense_module_of_another_shape_is_refused(tmp_path: Path) -> None:
    from xcompress.modeling.st_folder import _read_dense

    (tmp_path / "config.json").write_text("{}")
    for weight, bias in ((torch.zeros(3), torch.zeros(3)), (torch.zeros(3, 2), torch.zeros(4))):
        save_file({"linear.weight": weight, "linear.bias": bias}, tmp_path / "model.safetensors")
        with pytest.raises(InputError, match="do not fit"):
            _read_dense(tmp_path)


def write_e5s1_claims(path: Path, sizes: tuple[int, ...], entries: int = 0, weights: int = 0) -> None:
    """Write an E5S1 file whose header claims sizes, with entries of tensors that all lie in the same bytes."""
    data = b"E5S1" + bytes(4) + struct.pack("<7if", *sizes, 1e-12)
    data += struct.pack("<6iQ", 0, 0, 0, 2, 1, 3, 0) + struct.pack("<I", 0) + struct.pack("<iI", 0, 0)
    data += struct.pack("<i", entries)
    for entry in range(entries):
        name = f"l{entry // 6}.{('q', 'k', 'v', 'ao', 'fi', 'fo')[entry % 6]}.w"
        data += struct.pack("<H", len(name)) + name.encode() + struct.pack("<BIQQ", 0, weights, 0, 4 * weights)
    path.write_bytes(data + bytes(4 * weights))


@pytest.mark.parametrize("place", range(7))
def test_an_e5s1_header_that_claims_huge_sizes_is_refused(place: int, tmp_path: Path) -> None:
    for value in (2**31 - 1, -1):
        sizes = [384, 12, 12, 1536, 1000, 512, 2]
        sizes[place] = value
        write_e5s1_claims(tmp_path / "model.bin", tuple(sizes))
        with frugal(100), pytest.raises(InputError, match="damaged E5S1 file") as caught:
            read_e5s1(tmp_path / "model.bin")
        assert "\n" not in str(caught.value)


def test_e5s1_entries_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    write_e5s1_claims(tmp_path / "model.bin", (1000, 100, 4, 1000, 1000, 512, 2), entries=600, weights=1_000_000)
    with frugal(200), pytest.raises(InputError, match="too many"):
        read_e5s1(tmp_path / "model.bin")


def test_real_sizes_are_within_the_bounds() -> None:
    assert CONFIG.vocab_size < LARGEST["vocab_size"]
