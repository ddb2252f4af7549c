"""Weights that a student rounds to 4 bits while it trains."""

import numpy as np
import pytest
import torch
from torch import nn

from xcompress.export.int4 import quantize_rows
from xcompress.export.matmul import int4_weights
from xcompress.modeling.four_bits import RoundToFourBits, keep_rounded, round_weights
from xcompress.modeling.student import Student, StudentConfig

CONFIG = StudentConfig(vocab_size=50, hidden_size=64, num_attention_heads=4, intermediate_size=96, unit_layers=1)


@pytest.mark.parametrize("block", [16, 32])
def test_a_weight_is_rounded_as_the_export_rounds_it(block: int) -> None:
    torch.manual_seed(block)
    weight = torch.randn(40, 64)
    rows = (weight / weight.abs().amax(1, keepdim=True)).numpy()
    values, scales = quantize_rows(rows, block)
    expected = values * np.repeat(scales, block, 1).astype(np.float32)
    rounded = RoundToFourBits(block)(weight) / weight.abs().amax(1, keepdim=True)
    torch.testing.assert_close(rounded, torch.from_numpy(expected))
    assert all(len(group.unique()) <= 16 for group in rounded.reshape(-1, block))


def test_the_export_keeps_a_rounded_weight() -> None:
    torch.manual_seed(4)
    weight = torch.randn(24, 64)
    rounded = RoundToFourBits(32)(weight)
    errors = []
    for given in (weight, rounded):
        stored = int4_weights(given.T.numpy())
        errors.append(np.abs((stored.values * stored.scales).T - given.numpy()).mean())
    assert errors[1] < errors[0] / 8  # what is left comes from int8 and from steps in eighths


def test_gradients_pass_as_if_nothing_was_rounded() -> None:
    weight = torch.randn(8, 32, requires_grad=True)
    factors = torch.randn(8, 32)
    (RoundToFourBits(32)(weight) * factors).sum().backward()
    torch.testing.assert_close(weight.grad, factors)


def test_a_row_of_zeros_stays_zero() -> None:
    assert not RoundToFourBits(16)(torch.zeros(3, 32)).any()


def test_a_student_computes_with_rounded_weights_and_keeps_them() -> None:
    torch.manual_seed(3)
    student = Student(CONFIG).eval()
    before = {name: weight.clone() for name, weight in student.state_dict().items()}
    tokens = torch.randint(2, 50, (3, 7)), torch.ones(3, 7, dtype=torch.int64)
    exact = student(*tokens)[1]
    round_weights(student)
    computed = student(*tokens)[1]
    keep_rounded(student)
    after = student.state_dict()
    assert set(after) == set(before)
    torch.testing.assert_close(student(*tokens)[1], computed)
    assert not torch.equal(exact, computed)
    rounded = {name for name in before if not torch.equal(before[name], after[name])}
    products = {f"{name}.weight" for name, module in student.named_modules() if isinstance(module, nn.Linear)}
    assert rounded == {"embeddings.word.weight", *products}
    again = RoundToFourBits(32)(after["unit.0.output.weight"])
    torch.testing.assert_close(again, after["unit.0.output.weight"])


def test_widths_that_no_block_divides_stay_exact() -> None:
    student = Student(
        StudentConfig(vocab_size=9, hidden_size=24, num_attention_heads=4, intermediate_size=40, unit_layers=1)
    )
    before = {name: weight.clone() for name, weight in student.state_dict().items()}
    round_weights(student)
    keep_rounded(student)
    assert all(torch.equal(before[name], weight) for name, weight in student.state_dict().items())
