import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from small_student import make_tokenizer

from xcompress.e5s1 import dequantize_q4, read_e5s1
from xcompress.errors import InputError
from xcompress.importing import import_encoder
from xcompress.student import encode, pad

SHAPE = {
    "vocab_size": 400,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "pad_token_id": 1,
}


def save_foreign(kind: str, folder: Path) -> torch.nn.Module:
    from transformers import BertConfig, BertModel, XLMRobertaConfig, XLMRobertaModel

    torch.manual_seed(3)
    if kind == "bert":
        model = BertModel(BertConfig(**SHAPE, max_position_embeddings=80, initializer_range=0.3))
    else:
        config = XLMRobertaConfig(**SHAPE, max_position_embeddings=82, type_vocab_size=1, initializer_range=0.3)
        model = XLMRobertaModel(config)
    model.eval().save_pretrained(folder)
    make_tokenizer().save(str(folder / "tokenizer.json"))
    return model


@pytest.mark.parametrize("kind", ["bert", "xlm-roberta"])
def test_imported_encoder_gives_the_same_token_vectors(kind: str, tmp_path: Path) -> None:
    model = save_foreign(kind, tmp_path)
    student, _ = import_encoder(tmp_path, prefix="query: ", max_tokens=512)
    ids, mask = pad([[0, 5, 6, 9, 2], [0, 7, 2]], 1)
    with torch.no_grad():
        expected = model(input_ids=ids, attention_mask=mask).last_hidden_state
        tokens, sentences = student(ids, mask)
    real = mask.bool()
    torch.testing.assert_close(tokens[real], expected[real], atol=1e-5, rtol=1e-4)
    mean = torch.stack([expected[0].mean(0), expected[1, :3].mean(0)])
    torch.testing.assert_close(sentences, torch.nn.functional.normalize(mean, dim=-1), atol=1e-5, rtol=1e-4)
    assert student.config.max_tokens == 80
    assert student.config.prefix == "query: "


def test_a_model_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(InputError, match="'gpt2'; supported are bert, roberta, xlm-roberta"):
        import_encoder(tmp_path)


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    save_foreign("bert", tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match="only safetensors"):
        import_encoder(tmp_path)


def test_a_missing_weight_is_named(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    save_foreign("bert", tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["encoder.layer.1.attention.self.key.weight"]
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"unit\.1\.attention\.weight: missing"):
        import_encoder(tmp_path)


def test_four_bit_blocks_are_expanded_low_nibbles_first() -> None:
    nibbles = bytes([0x10 * high + low for low, high in zip(range(16), reversed(range(16)), strict=True)])
    values = dequantize_q4(np.float16(0.5).tobytes() + nibbles)
    assert values.tolist() == [(step - 8) * 0.5 for step in [*range(16), *reversed(range(16))]]


def quantize_q4(matrix: np.ndarray) -> bytes:
    blocks = matrix.reshape(-1, 32)
    scales = (np.abs(blocks).max(1) / 7).astype(np.float16)
    steps = np.clip(np.round(blocks / scales.astype(np.float32)[:, None]) + 8, 0, 15).astype(np.uint8)
    packed = steps[:, :16] | (steps[:, 16:] << 4)
    return b"".join(scale.tobytes() + row.tobytes() for scale, row in zip(scales, packed, strict=True))


def write_e5s1(path: Path, weights: dict[str, np.ndarray]) -> None:
    head = struct.pack("<4s4x7ifi", b"E5S1", 32, 1, 4, 64, 96, 40, 2, 1e-12, 0)
    pieces = struct.pack("<5iQ", 3, 0, 2, 1, 3, 5) + bytes(4 * 4 + 3 * 4) + b"hello"
    rest = struct.pack("<iI", 1, 2) + b"ab"
    data = [
        quantize_q4(w) if (name.endswith(".w") and w.ndim == 2) or name == "emb.word" else w.tobytes()
        for name, w in weights.items()
    ]
    directory_size = 4 + sum(2 + len(name) + 21 for name in weights)
    offset = len(head) + len(pieces) + len(rest) + directory_size
    directory = struct.pack("<i", len(weights))
    for (name, weight), raw in zip(weights.items(), data, strict=True):
        directory += (
            struct.pack("<H", len(name)) + name.encode() + struct.pack("<BIQQ", 1, weight.size, offset, len(raw))
        )
        offset += len(raw)
    path.write_bytes(head + pieces + rest + directory + b"".join(data))


def small_e5s1_weights() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)

    def matrix(*shape: int) -> np.ndarray:
        return generator.normal(size=shape).astype(np.float32)

    weights = {"emb.word": matrix(96, 32), "emb.pos": matrix(40, 32), "emb.type": matrix(2, 32)}
    weights |= {"emb.ln.w": matrix(32), "emb.ln.b": matrix(32)}
    for part in ("q", "k", "v", "ao"):
        weights |= {f"l0.{part}.w": matrix(32, 32), f"l0.{part}.b": matrix(32)}
    weights |= {"l0.fi.w": matrix(64, 32), "l0.fi.b": matrix(64), "l0.fo.w": matrix(32, 64), "l0.fo.b": matrix(32)}
    return weights | {f"l0.{norm}.{kind}": matrix(32) for norm in ("aln", "oln") for kind in ("w", "b")}


def test_an_e5s1_file_is_read_whole(tmp_path: Path) -> None:
    weights = small_e5s1_weights()
    write_e5s1(tmp_path / "small.bin", weights)
    config, read = read_e5s1(tmp_path / "small.bin")
    assert (config.hidden_size, config.unit_layers, config.vocab_size, config.pad_token_id) == (32, 1, 96, 1)
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
