from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.helpers.foreign import TEXTS, save_encoder, save_pipeline
from tests.helpers.limits import frugal
from tests.helpers.student import save_student
from xcompress.errors import InputError
from xcompress.modeling.load import files_of, import_encoder
from xcompress.modeling.student import encode

pytestmark = pytest.mark.usefixtures("offline")


@pytest.mark.parametrize("place", ["", "2_Dense"])
def test_pickled_weights_are_refused(place: str, tmp_path: Path) -> None:
    save_pipeline(tmp_path, dense=["Tanh"])
    (tmp_path / place / "model.safetensors").rename(tmp_path / place / "pytorch_model.bin")
    with pytest.raises(InputError, match="only safetensors"):
        import_encoder(tmp_path)


@pytest.mark.parametrize("shape", [(), (20,), (2_000_000_000, 0), (2, 2, 2)])
def test_a_dense_weight_that_is_no_matrix_is_refused(shape: tuple[int, ...], tmp_path: Path) -> None:
    save_pipeline(tmp_path, dense=["Tanh"])
    save_file({"linear.weight": torch.zeros(shape)}, tmp_path / "2_Dense" / "model.safetensors")
    with frugal(500), pytest.raises(InputError, match=r"linear\.weight .* and linear\.bias none do not fit together"):
        import_encoder(tmp_path)


@pytest.mark.parametrize("weights", ["onnx/model.onnx", "model-q4.gguf", "pytorch_model.bin"])
def test_weights_of_another_format_are_named(weights: str, tmp_path: Path) -> None:
    save_encoder(tmp_path, "bert")
    (tmp_path / weights).parent.mkdir(exist_ok=True)
    (tmp_path / "model.safetensors").rename(tmp_path / weights)
    with pytest.raises(InputError, match=f"no such file, only {weights}; only safetensors weights are read"):
        import_encoder(tmp_path)


def test_weights_in_several_files_are_read_as_one(tmp_path: Path) -> None:
    model = save_encoder(tmp_path, "bert")
    before = encode(*import_encoder(tmp_path, pooling="mean"), TEXTS)
    (tmp_path / "model.safetensors").unlink()
    model.save_pretrained(tmp_path, max_shard_size="40KB")
    shards = sorted(tmp_path.glob("*.safetensors"))
    assert len(shards) > 2
    np.testing.assert_array_equal(encode(*import_encoder(tmp_path, pooling="mean"), TEXTS), before)
    assert set(shards) <= set(files_of(tmp_path))
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(index.read_text().replace(shards[0].name, "first.safetensors"))
    assert shards[0].rename(tmp_path / "first.safetensors") in files_of(tmp_path), "any name that the index gives"
    shards[1].unlink()
    with pytest.raises(InputError, match=f"{shards[1].name}: no such file"):
        import_encoder(tmp_path)


def test_a_folder_whose_name_ends_as_that_of_a_file_is_none(tmp_path: Path) -> None:
    save_encoder(tmp_path, "bert")
    before = files_of(tmp_path)
    (tmp_path / "notes.json").mkdir()
    assert files_of(tmp_path) == before


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.float8_e4m3fn])
def test_quantized_weights_are_refused_as_their_scales_are_not_read(dtype: torch.dtype, tmp_path: Path) -> None:
    save_encoder(tmp_path, "bert")
    weights = load_file(tmp_path / "model.safetensors")
    name = "encoder.layer.1.intermediate.dense.weight"
    save_file(weights | {name: weights[name].to(dtype)}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"unit\.1\.intermediate\.weight is stored as \w+8\w*, which means nothing"):
        import_encoder(tmp_path)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_other_widths_are_read(dtype: torch.dtype, tmp_path: Path) -> None:
    model = save_pipeline(tmp_path)
    weights = {name: weight.to(dtype) for name, weight in load_file(tmp_path / "model.safetensors").items()}
    save_file(weights, tmp_path / "model.safetensors")
    model[0].auto_model.load_state_dict({name: weight.float() for name, weight in weights.items()})
    np.testing.assert_allclose(encode(*import_encoder(tmp_path), TEXTS), model.encode(TEXTS), atol=1e-5)


def test_weights_of_two_encoders_side_by_side_are_refused(tmp_path: Path) -> None:
    save_encoder(tmp_path, "bert")
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    inner = {f"bert.{name}": weight for name, weight in weights.items()}
    save_file(inner | {f"average.bert.{name}": weight + 1 for name, weight in weights.items()}, file)
    state = import_encoder(tmp_path)[0].state_dict()
    torch.testing.assert_close(state["embeddings.word.weight"], weights["embeddings.word_embeddings.weight"])
    save_file(inner | {f"average.{name}": weight + 1 for name, weight in weights.items()}, file)
    with pytest.raises(InputError, match=r"^average\..* and bert\..*: the weights are of several encoders; open"):
        import_encoder(tmp_path)


def test_damaged_weights_are_refused(tmp_path: Path) -> None:
    save_encoder(tmp_path, "bert")
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[:5000])
    with pytest.raises(InputError, match="not a safetensors file"):
        import_encoder(tmp_path)


def test_a_missing_weight_is_named(tmp_path: Path) -> None:
    save_encoder(tmp_path, "bert")
    weights = load_file(tmp_path / "model.safetensors")
    del weights["encoder.layer.1.attention.self.key.weight"]
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"unit\.1\.attention\.weight is missing"):
        import_encoder(tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_weight_that_is_no_number_is_named(value: float, tmp_path: Path) -> None:
    save_encoder(tmp_path / "encoder", "bert")
    save_student(tmp_path / "student")
    for folder, name in {
        "encoder": "encoder.layer.1.attention.self.key.weight",
        "student": "unit.1.attention.weight",
    }.items():
        file = tmp_path / folder / "model.safetensors"
        weights = load_file(file)
        weights[name][3, 5] = value
        save_file(weights, file)
        with pytest.raises(InputError, match=r"unit\.1\.attention\.weight holds NaN or infinity"):
            import_encoder(tmp_path / folder)


@pytest.mark.parametrize("own", ["", "bert."])
def test_the_encoder_is_the_one_with_the_shortest_prefix(own: str, tmp_path: Path) -> None:
    save_encoder(tmp_path, "bert")
    before = encode(*import_encoder(tmp_path, pooling="mean"), TEXTS)
    weights = load_file(tmp_path / "model.safetensors")
    slow = {f"average.{own}{name}": torch.zeros_like(weight) for name, weight in weights.items()}
    save_file(slow | {own + name: weight for name, weight in weights.items()}, tmp_path / "model.safetensors")
    np.testing.assert_array_equal(encode(*import_encoder(tmp_path, pooling="mean"), TEXTS), before)


@pytest.mark.parametrize(
    "weight",
    [torch.tensor(1.0), torch.zeros(2, 3, 4), torch.zeros(32, 31), torch.zeros(32, 32, dtype=torch.int64)],
    ids=lambda weight: f"{weight.dtype} {tuple(weight.shape)}",
)
def test_queries_that_do_not_fit_keys_are_refused(weight: torch.Tensor, tmp_path: Path) -> None:
    save_encoder(tmp_path, "bert")
    weights = load_file(tmp_path / "model.safetensors")
    name = "encoder.layer.1.attention.self.query.weight"
    save_file(weights | {name: weight}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"unit\.1\.attention\.weight is of shape \(.*\), expected shape \(96, 32\)"):
        import_encoder(tmp_path)
