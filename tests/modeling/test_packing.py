"""Without padding a student has the vectors and gradients that it has with it."""

import pytest
import torch
from torch import Tensor

from xcompress.modeling import attention
from xcompress.modeling.attention import parts_by_length
from xcompress.modeling.packing import Packing, token_positions
from xcompress.modeling.rotary_config import ModernBertAttention, RotaryAttention, RotaryBertAttention
from xcompress.modeling.student import Student, StudentConfig

MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0]])
POSITIONS = token_positions(MASK)
INPUT_IDS = torch.tensor([[2, 7, 9, 5, 3], [2, 3, 1, 1, 1], [2, 8, 3, 1, 1]])
LAYERS = (ModernBertAttention(100.0), ModernBertAttention(10.0, window=1))
CONFIGS = {
    "unit applied twice": {"unit_layers": 2, "recurrences": 2, "bottleneck": 4},
    "prelude and coda": {"prelude_layers": 1, "unit_layers": 1, "recurrences": 2, "coda_layers": 1},
    "relative bias": {"unit_layers": 2, "relative_buckets": 8},
    "rotary positions": {"unit_layers": 2, "type_vocab_size": 0, "modernbert": LAYERS},
    "shared keys": {"unit_layers": 1, "type_vocab_size": 0, "gemma": (RotaryAttention(10.0, 1),), "key_value_heads": 1},
    "tokens before": {
        **{"unit_layers": 2, "type_vocab_size": 0, "qwen": (RotaryAttention(10.0),) * 2, "head_width": 6},
        "pooling": "lasttoken",
    },
    "rotary BERT": {"unit_layers": 2, "rotary_bert": (RotaryBertAttention(10.0, factor=2.0, gate="gelu"),) * 2},
    "first token and head": {"unit_layers": 1, "pooling": "cls", "head_size": 6, "head_activation": "tanh"},
}


def make_student(name: str) -> Student:
    torch.manual_seed(1)
    sizes = {"vocab_size": 12, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16}
    student = Student(StudentConfig(**sizes, max_position_embeddings=8, **CONFIGS[name])).double()
    for weight in student.parameters():
        torch.nn.init.normal_(weight)
    return student


def vectors_and_gradients(student: Student, depths: bool, positions: Tensor | None) -> tuple[Tensor, list[Tensor]]:
    student.zero_grad()
    batch = (INPUT_IDS, MASK, positions)
    vectors = torch.stack(student.at_depths(*batch) if depths else [student(*batch)[1]])
    (vectors * torch.arange(vectors.numel()).view(vectors.shape)).sum().backward()  # type: ignore[no-untyped-call]
    gradients = [weight.grad for weight in student.parameters() if weight.grad is not None]
    return vectors.detach(), gradients


@pytest.mark.parametrize("sentences_in_part", [1, 2, 32])
@pytest.mark.parametrize("depths", [False, True])
@pytest.mark.parametrize("name", CONFIGS)
def test_without_padding_vectors_and_gradients_are_the_same(
    name: str, depths: bool, sentences_in_part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "SENTENCES_IN_PART", sentences_in_part)
    student = make_student(name)
    padded, padded_gradients = vectors_and_gradients(student, depths, None)
    packed, packed_gradients = vectors_and_gradients(student, depths, POSITIONS)
    torch.testing.assert_close(packed, padded)
    torch.testing.assert_close(packed_gradients, padded_gradients)


def test_the_layers_see_no_padding() -> None:
    student, seen = make_student("unit applied twice"), []
    student.unit[0].register_forward_hook(lambda layer, inputs, output: seen.append(tuple(output.shape)))
    tokens, _ = student(INPUT_IDS, MASK, POSITIONS)
    assert seen == [(10, 8), (10, 8)]
    assert tokens.shape == (3, 5, 8)


def test_positions_number_the_tokens_of_a_batch_from_the_shortest_sentence_to_the_longest() -> None:
    assert POSITIONS.tolist() == [5, 6, 10, 11, 12, 0, 1, 2, 3, 4]


def test_attention_is_computed_on_sentences_of_similar_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "SENTENCES_IN_PART", 2)
    shorter, longest = parts_by_length(MASK, lambda mask: mask)
    assert shorter.mask.tolist() == [[1, 1, 0], [1, 1, 1]]
    assert longest.mask.tolist() == [[1, 1, 1, 1, 1]]
    assert (shorter.rows, longest.rows) == (5, 5)
    joint = torch.arange(5.0)[:, None]
    assert shorter.pad(joint)[..., 0].tolist() == [[0, 1, 0], [2, 3, 4]]
    assert torch.equal(shorter.unpad(shorter.pad(joint)), joint)


def test_unpacked_vectors_stand_where_they_were_with_zeros_between() -> None:
    packing, vectors = Packing(POSITIONS, *MASK.shape), torch.randn(3, 5, 2)
    packed = packing.pack(vectors)
    assert torch.equal(packed[:2], vectors[1, :2])
    assert torch.equal(packing.unpack(packed), vectors * MASK[..., None])
