import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.nn.functional import layer_norm, silu, softmax

from tests.helpers.student import make_student
from xcompress.distillation.losses import dual
from xcompress.distillation.losses.dual import alignment_loss, inner_products, log_partition, similarity_loss, word_loss
from xcompress.distillation.losses.stage import SentenceVectors
from xcompress.recipe import Stage

N, D, V, K = 4, 6, 11, 3
Array = NDArray[np.float64]


def array(*shape: int, seed: int = 1, scale: float = 0.6) -> Array:
    return np.random.default_rng(seed).normal(size=shape) * scale


def tensor(given: Array) -> Tensor:
    return torch.tensor(given, dtype=torch.float64, requires_grad=True)


def labels() -> tuple[NDArray[np.int64], Array]:
    """Return ids and shares of 2N sentences: all sum to 1 but the last, which has nothing to predict."""
    generator = np.random.default_rng(2)
    ids = np.stack([generator.permutation(V)[:K] for _ in range(2 * N)])
    shares = generator.dirichlet(np.ones(K), 2 * N)
    shares[:N, 0] += shares[:N, 2]
    ids[:N, 2], shares[:N, 2] = 0, 0
    ids[-1], shares[-1] = 0, 0
    return ids, shares


def softmax_of(logits: Array) -> Array:
    exponentials = np.exp(logits)
    return exponentials / exponentials.sum()


@pytest.fixture(params=[2**20, 2 * N * 3], ids=["one block", "four blocks"])
def cells(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(dual, "MAX_LOGITS", request.param)
    yield request.param


def test_equation_2_is_the_divergence_of_prediction_from_label(cells: int) -> None:
    hidden, table = array(2 * N, D), array(V, D, seed=5)
    ids, shares = labels()
    expected = 0.0
    for row in range(2 * N):
        predicted = softmax_of(table @ hidden[row])
        for word, share in zip(ids[row], shares[row], strict=True):
            if share:
                expected += share * math.log(share / predicted[word])
    loss = word_loss(tensor(hidden), tensor(table), torch.tensor(ids), torch.tensor(shares))
    assert loss.item() == pytest.approx(expected / N, rel=1e-12)


def test_equation_2_is_0_where_the_prediction_is_the_label(cells: int) -> None:
    shares = torch.tensor(np.random.default_rng(1).dirichlet(np.ones(V), 2 * N))
    ids = torch.arange(V).repeat(2 * N, 1)
    table = torch.eye(V, dtype=torch.float64)
    assert word_loss(shares.log(), table, ids, shares).item() == pytest.approx(0, abs=1e-12)
    assert word_loss(shares.log() + torch.eye(2 * N, V), table, ids, shares).item() > 0.01


def test_gradients_of_equation_2_are_right(cells: int) -> None:
    ids, shares = map(torch.tensor, labels())
    hidden, table = tensor(array(2 * N, D)), tensor(array(V, D, seed=5))
    assert gradcheck(lambda left, right: word_loss(left, right, ids, shares), (hidden, table))


def test_a_sentence_with_nothing_to_predict_has_no_gradient(cells: int) -> None:
    ids, shares = map(torch.tensor, labels())
    hidden = tensor(array(2 * N, D))
    word_loss(hidden, tensor(array(V, D, seed=5)), ids, shares).backward()
    assert hidden.grad is not None
    assert hidden.grad[-1].abs().sum() == 0 and (hidden.grad[:-1].abs().sum(-1) > 0).all()


def test_words_are_predicted_in_float32_under_bfloat16() -> None:
    ids, shares = map(torch.tensor, labels())
    hidden, table = torch.tensor(array(2 * N, D)).bfloat16(), torch.tensor(array(V, D, seed=5)).float()
    whole = word_loss(hidden.float(), table, ids, shares)
    table.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = word_loss(hidden, table, ids, shares)
        mixed.backward()
    expected = torch.autograd.grad(word_loss(hidden.float(), table, ids, shares), table)[0]
    assert mixed.dtype == torch.float32 and mixed.item() == pytest.approx(whole.item(), rel=1e-6)
    torch.testing.assert_close(table.grad, expected)


def test_a_head_with_a_transform_adds_a_bias_to_the_inner_products_with_the_embeddings() -> None:
    stage = Stage(train="student", objectives={"unified": 1}, steps=1, word_head="transform")
    model = SentenceVectors(make_student(), stage)
    assert isinstance(model.words, nn.Sequential) and model.word_bias is not None
    nn.init.normal_(model.word_bias)
    sentences = torch.randn(3, model.student.config.dimension)
    layer = model.student.embeddings
    expected = layer_norm(silu(model.words[0](sentences)), (model.student.config.hidden_size,))
    if layer.projection is not None:
        expected = expected @ layer.projection.weight
    logits = expected @ layer.word.weight.T + model.word_bias
    hidden, embeddings = model.word_factors(sentences)
    torch.testing.assert_close(hidden @ embeddings.T, logits)


@pytest.mark.parametrize("head", ["linear", "transform"])
def test_every_part_of_the_head_learns(head: Literal["linear", "transform"]) -> None:
    model = SentenceVectors(make_student(), Stage(train="student", objectives={"unified": 1}, steps=1, word_head=head))
    hidden, embeddings = model.word_factors(torch.randn(2, model.student.config.dimension))
    word_loss(hidden, embeddings, torch.tensor([[1], [2]]), torch.ones(2, 1)).backward()
    parts = [parameter for name, parameter in model.named_parameters() if name.startswith("word")]
    assert len(parts) == (5 if head == "transform" else 2)
    assert all(part.grad is not None and part.grad.abs().sum() > 0 for part in parts)


def test_the_partition_is_finite_for_large_logits(cells: int) -> None:
    hidden, table = torch.tensor([[300.0], [-300.0]]), torch.arange(V).float()[:, None]
    assert log_partition(hidden, table).tolist() == pytest.approx([3000, 0])


def test_equation_5_tells_translations_from_others_in_both_directions() -> None:
    sources, targets = array(N, D), array(N, D, seed=4)
    products = sources @ targets.T
    expected = 0.0
    for j in range(N):
        expected -= math.log(softmax_of(products[j])[j]) + math.log(softmax_of(products[:, j])[j])
    assert alignment_loss(tensor(sources), tensor(targets)).item() == pytest.approx(expected / N, rel=1e-12)


def test_equation_6_compares_similarities_within_both_languages() -> None:
    sources, targets = array(N, D), array(N, D, seed=4)
    expected = 0.0
    for j in range(N):
        left, right = softmax_of(sources @ sources[j]), softmax_of(targets @ targets[j])
        for k in range(N):
            expected -= math.log(math.cos(math.pi / 2 * (left[k] - right[k])))
    assert similarity_loss(tensor(sources), tensor(targets)).item() == pytest.approx(expected / N, rel=1e-5)


def test_equation_6_is_0_at_agreement() -> None:
    sources = tensor(array(N, D))
    rotation = torch.linalg.qr(tensor(array(D, D, seed=8)))[0].detach()
    assert similarity_loss(sources, sources @ rotation).item() == pytest.approx(0, abs=1e-25)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", [1.0, 3.0, 4.0, 30.0])
def test_equation_6_and_its_gradient_are_finite_where_distributions_are_opposite(
    dtype: torch.dtype, length: float
) -> None:
    """Sentence 0 is most like itself in one language, and most like sentence 1 in the other."""
    sources = torch.tensor([[length, 0], [0, length]], dtype=dtype, requires_grad=True)
    targets = torch.tensor([[length, 0], [3 * length, 0]], dtype=dtype, requires_grad=True)
    loss = similarity_loss(sources, targets)
    loss.backward()
    assert sources.grad is not None and targets.grad is not None
    assert loss.isfinite() and loss.item() < 14
    assert sources.grad.abs().max() < 4 * length and targets.grad.abs().max() < 12 * length
    if length == 30:
        assert loss.item() == pytest.approx(-math.log(math.cos(math.pi / 2 * (1 - 1e-6))), rel=0.01)


def test_gradients_of_equations_5_and_6_are_right() -> None:
    given = tensor(array(N, D)), tensor(array(N, D, seed=4))
    assert gradcheck(alignment_loss, given)
    assert gradcheck(similarity_loss, given)


def test_sentences_are_compared_in_float32_under_bfloat16() -> None:
    sources, targets = (torch.tensor(array(N, D, seed=seed, scale=5)).float() for seed in (1, 4))
    whole = alignment_loss(sources, targets).item(), similarity_loss(sources, targets).item()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (alignment_loss(sources, targets).item(), similarity_loss(sources, targets).item()) == whole


GROWTH = """
import runpy, sys
import torch

def most_held():
    # what getrusage says begins at the size of the process that started this one
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])

def plain(hidden, table, ids, weights):
    return -(weights * (hidden @ table.T).log_softmax(-1).gather(1, ids)).sum(-1).mean() * 2

losses, pairs, words, width = {"plain": plain, **runpy.run_path(sys.argv[3])}, int(sys.argv[2]), 50_000, 128
loss = losses[sys.argv[1]]
hidden = torch.randn(2 * pairs, width, requires_grad=True)
table = torch.randn(words, width).mul_(0.05).requires_grad_()
table.grad = torch.zeros_like(table)
ids, weights = torch.randint(words, (2 * pairs, 20)), torch.full((2 * pairs, 20), 0.05)
loss(hidden[:2], table, ids[:2], weights[:2]).backward()
before = most_held()
loss(hidden, table, ids, weights).backward()
print(most_held() - before)
"""


def growth(loss: str, pairs: int) -> int:
    """Return what a step adds to the most memory that a process of its own held, in KiB.

    glibc is told to give back what is freed at once: what it keeps differs from run to run by more than a step needs.
    """
    command = [sys.executable, "-c", GROWTH, loss, str(pairs), str(dual.__file__)]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    return int(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


@pytest.mark.exhaustive
def test_memory_does_not_grow_with_sentences_times_words() -> None:
    if not Path("/proc/self/status").is_file():
        pytest.skip("the system does not say how much memory a process held")
    plain, ours, ours_of_more = growth("plain", 256), growth("word_loss", 256), growth("word_loss", 512)
    assert ours < plain / 10
    assert ours_of_more < ours + plain / 20


def test_the_most_logits_at_one_time_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def recorded(left: Tensor, right: Tensor) -> Tensor:
        sizes.append(len(left) * len(right))
        return inner_products(left, right)

    monkeypatch.setattr(dual, "MAX_LOGITS", 5 * 40)
    monkeypatch.setattr(dual, "inner_products", recorded)
    hidden, table = torch.randn(40, D, requires_grad=True), torch.randn(101, D, requires_grad=True)
    partition = log_partition(hidden, table)
    torch.testing.assert_close(partition, (hidden @ table.T).logsumexp(-1))
    partition.sum().backward()
    assert sum(sizes) == 2 * 40 * 101 and max(sizes) == 5 * 40
    torch.testing.assert_close(table.grad, softmax(hidden @ table.T, -1).T @ hidden)
