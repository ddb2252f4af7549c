import pytest
import torch
from torch.nn.functional import mse_loss

from tests.helpers.student import make_student
from xcompress.distillation.collapse import spread
from xcompress.distillation.losses.dual import alignment_loss
from xcompress.distillation.losses.stage import SentenceVectors, after_step, sentence_loss
from xcompress.recipe import Stage

IDS = torch.randint(5, 300, (8, 6), generator=torch.Generator().manual_seed(1))
MASK = torch.ones_like(IDS)
BATCHES = {"translations": {"input_ids": IDS, "attention_mask": MASK}}


def test_the_loss_is_the_weighted_mean_over_depths_and_the_last_one_is_checked_for_a_collapse() -> None:
    stage = Stage(train="student", objectives={"alignment": 3}, steps=1, depth_weights=(0.5, 0, 2))
    model = SentenceVectors(make_student(), stage)
    depths = model.student.at_depths(IDS, MASK)
    first, _, last = (3 * alignment_loss(*vectors.chunk(2)).item() for vectors in depths)
    assert sentence_loss(stage)(model, BATCHES).item() == pytest.approx((0.5 * first + 2 * last) / 2.5)
    assert model.collapse.first == pytest.approx(spread(depths[2].chunk(2)[1]).item())


def test_the_moving_teacher_encodes_the_sources_has_no_gradient_and_follows_slowly() -> None:
    stage = Stage(train="student", objectives={"moving_teacher": 1}, steps=10, moving_decay=0.75)
    model = SentenceVectors(make_student(), stage)
    sources, targets = model.student(IDS, MASK)[1].chunk(2)
    loss = sentence_loss(stage)(model, BATCHES)
    assert loss.item() == pytest.approx(mse_loss(targets, sources).item()), "it starts as the student"
    loss.backward()
    assert model.moving is not None
    assert all(weight.grad is None for weight in model.moving.parameters())
    assert any(weight.grad is not None for weight in model.student.parameters())
    before = model.student.unit[0].output.weight.clone()
    with torch.no_grad():
        model.student.unit[0].output.weight.add_(1)
    move = after_step(stage, model)
    assert move is not None
    move(1, 10)
    torch.testing.assert_close(model.moving.average.unit[0].output.weight.float(), before + 0.25)
