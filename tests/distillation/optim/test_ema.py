import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from tests.helpers.student import make_student
from xcompress.distillation.collapse import Collapse, CollapseError, spread
from xcompress.distillation.optim import ema
from xcompress.distillation.optim.ema import MovingTeacher, decay_at
from xcompress.modeling.packing import token_positions
from xcompress.modeling.student import Student

IDS = torch.tensor([[0, 7, 8, 2], [0, 9, 2, 1], [0, 30, 31, 2]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1]])
OTHER_IDS = torch.tensor([[0, 17, 18, 2], [0, 19, 2, 1], [0, 40, 41, 2]])


class Parent(nn.Module):
    """A student with the teacher beside it, as a stage trains it."""

    def __init__(self, student: Student) -> None:
        super().__init__()
        self.student = student
        self.moving = MovingTeacher(student)


def weights(model: nn.Module) -> list[Tensor]:
    return [weight.detach().clone() for weight in model.parameters()]


def shift(student: Student, seed: int, size: float = 0.1) -> None:
    """Change all weights at random, as a step of training does."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in student.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=size)


@pytest.mark.parametrize(("step", "share"), [(0, 1.0), (1, (math.sqrt(0.5) + 1) / 2), (2, 0.5), (4, 0.0)])
def test_the_schedule_rises_from_base_to_1_as_a_cosine(step: int, share: float) -> None:
    assert decay_at(step, 4, 0.99999) == pytest.approx(1 - 0.00001 * share, rel=0, abs=1e-12)


def test_the_first_vectors_are_the_students() -> None:
    student = make_student()
    found = MovingTeacher(student)(IDS, MASK)
    assert found.dtype == torch.float32
    with torch.no_grad():  # with gradients, attention rounds otherwise
        assert torch.equal(found, student(IDS, MASK)[1])
    packed = MovingTeacher(student)(IDS, MASK, token_positions(MASK))
    torch.testing.assert_close(packed, found, atol=1e-6, rtol=0)


@pytest.mark.parametrize("block", [ema.BLOCK, 7])
def test_an_update_is_equation_2(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ema, "BLOCK", block)
    student = make_student()
    teacher = MovingTeacher(student)
    expected = [weight.double().numpy() for weight in weights(student)]
    for seed, decay in enumerate((0.9, 0.99, 0.5)):
        shift(student, seed)
        teacher.update(student, decay)
        pairs = zip(expected, weights(student), strict=True)
        expected = [decay * xi + (1 - decay) * theta.double().numpy() for xi, theta in pairs]
    for found, right in zip(weights(teacher), expected, strict=True):
        np.testing.assert_allclose(found.numpy(), right, rtol=0, atol=1e-15)


def test_a_decay_of_0_takes_the_student_and_one_of_1_stays() -> None:
    student = make_student()
    teacher = MovingTeacher(student)
    start = weights(teacher)
    shift(student, 1)
    teacher.update(student, 1.0)
    assert all(map(torch.equal, weights(teacher), start))
    teacher.update(student, 0.0)
    with torch.no_grad():
        assert torch.equal(teacher(IDS, MASK), student(IDS, MASK)[1])


def test_the_update_of_a_gpu_has_the_bits_of_that_of_a_cpu() -> None:
    student = make_student()
    teachers = [MovingTeacher(student), MovingTeacher(student)]
    shift(student, 1)
    for teacher, update in zip(teachers, (ema.update_in_blocks, ema.update_at_once), strict=True):
        with torch.no_grad():
            update(list(teacher.average.parameters()), list(student.parameters()), 0.9)
    assert all(map(torch.equal, weights(teachers[0]), weights(teachers[1])))


def test_changes_too_small_for_float32_add_up() -> None:
    student = make_student()
    teacher = MovingTeacher(student)
    averages = teacher.average.unit[0].output.weight
    theta = student.unit[0].output.weight.detach()
    start = theta.clone()
    single = theta.clone()
    with torch.no_grad():
        for weight in student.parameters():
            weight.mul_(1.002)
    for _ in range(1000):
        teacher.update(student, 1 - 1e-5)
        single.lerp_(theta, 1e-5)
    expected = (1 - (1 - 1e-5) ** 1000) * (theta.double() - start)
    torch.testing.assert_close(averages - start, expected, rtol=1e-6, atol=0)
    assert torch.equal(single, start)  # in float32, not one weight moved


def test_a_loaded_moving_teacher_encodes_with_the_loaded_weights() -> None:
    first, second = MovingTeacher(make_student()), MovingTeacher(make_student())
    shift(first.average, 1)
    expected = first(IDS, MASK)
    assert not torch.equal(second(IDS, MASK), expected)
    second.load_state_dict(first.state_dict())
    assert torch.equal(second(IDS, MASK), expected)


def test_no_gradient_reaches_the_teacher() -> None:
    student = make_student()
    teacher = MovingTeacher(student)
    assert not any(weight.requires_grad for weight in teacher.parameters())
    labels = teacher(IDS, MASK)
    assert not labels.requires_grad
    mse_loss(student(OTHER_IDS, MASK)[1], labels).backward()
    assert all(weight.grad is None for weight in teacher.parameters())
    assert student.embeddings.word.weight.grad is not None


def test_the_moving_teacher_shares_no_weights_or_gradients_with_the_student() -> None:
    student = make_student().double()  # of the teacher's own type, where a cast would make no copy
    student(IDS, MASK)[1].sum().backward()
    teacher = MovingTeacher(student)
    assert all(weight.grad is None for weight in teacher.parameters())
    own = {weight.data_ptr() for weight in teacher.parameters()}
    assert own.isdisjoint(weight.data_ptr() for weight in student.parameters())
    before = teacher(IDS, MASK)
    shift(student, 1)
    assert torch.equal(teacher(IDS, MASK), before)


def test_the_moving_teacher_stays_in_eval_mode_while_its_parent_trains() -> None:
    parent = Parent(make_student())
    parent.train()
    assert parent.student.training
    assert not any(module.training for module in parent.moving.modules())


def test_the_moving_teacher_is_saved_and_resumes_exactly(tmp_path: Path) -> None:
    whole, first = Parent(make_student()), Parent(make_student())
    for seed in range(4):
        if seed == 2:
            save_file(first.state_dict(), tmp_path / "model.safetensors")
            first = Parent(make_student(unit_layers=2))
            first.load_state_dict(load_file(tmp_path / "model.safetensors"))
        for parent in (whole, first):
            shift(parent.student, seed, 1e-6)
            parent.moving.update(parent.student, 1 - 1e-5)
    assert all(weight.dtype == torch.float64 for weight in weights(first.moving))
    assert all(map(torch.equal, weights(first.moving), weights(whole.moving)))
    assert torch.equal(first.moving(IDS, MASK), whole.moving(IDS, MASK))


def test_it_keeps_its_precision_on_another_device() -> None:
    teacher = MovingTeacher(make_student())
    teacher(IDS, MASK)
    teacher.to("meta")
    assert all(weight.is_meta and weight.dtype == torch.float64 for weight in teacher.parameters())
    assert teacher(IDS.to("meta"), MASK.to("meta")).is_meta


def test_it_encodes_under_autocast_and_leaves_no_weights_behind() -> None:
    teacher = MovingTeacher(make_student())
    with torch.autocast("cpu", torch.bfloat16):
        found = teacher(IDS, MASK).float()
    torch.testing.assert_close(found, teacher(IDS, MASK), rtol=0.1, atol=0.1)
    assert all(weight.dtype == torch.float64 for weight in teacher.parameters())


def train(decay: float, steps: int) -> float:
    """Train a student by eq. 1 alone, as a stage does; raises what `Collapse` raises, or returns the last spread."""
    student = make_student(normalize=True)
    teacher, watch = MovingTeacher(student), Collapse("stages.align")
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        sources = torch.randint(5, 200, (16, 6), generator=generator)
        targets, mask = sources + 200, torch.ones_like(sources)
        vectors = student(targets, mask)[1]
        watch.check(vectors.detach())
        optimizer.zero_grad()
        mse_loss(vectors, teacher(sources, mask)).backward()
        optimizer.step()
        teacher.update(student, decay)
    return float(spread(vectors.detach()))


def test_a_teacher_that_is_the_student_collapses_and_is_stopped() -> None:
    with pytest.raises(CollapseError, match=r"^stages.align: collapsed: all sentence vectors are nearly equal"):
        train(decay=0.0, steps=60)


def test_a_teacher_that_stays_does_not_collapse_though_the_student_is_narrow_on_its_way() -> None:
    assert 1e-5 < train(decay=1.0, steps=60) < 1e-3
