import pytest
import torch

from tests.helpers.student import GATED_BERT, GEMMA, MODERNBERT, QWEN, ROTARY_BERT, make_student
from xcompress.modeling.architectures import (
    ARCHITECTURES,
    BERT_NAMES,
    E5S1_NAMES,
    WeightNames,
    from_student_names,
    to_student_names,
)

NAMES = {kind: architecture.names for kind, architecture in ARCHITECTURES.items()} | {"e5s1": E5S1_NAMES}


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("prefix", ["", "model.bert."])
def test_names_are_restored_after_both_directions(kind: str, prefix: str) -> None:
    own = {"mpnet": {"relative_buckets": 8}, "modernbert": MODERNBERT, "gemma3_text": GEMMA, "qwen3": QWEN}
    own |= {"jina_embeddings_v3": ROTARY_BERT, "nomic_bert": GATED_BERT, "gte": GATED_BERT, "new": GATED_BERT}
    changes = own.get(kind, {})
    student = make_student(**{"bottleneck": None, "head_size": None, "recurrences": 1} | changes)
    state = student.state_dict()
    weights = from_student_names(state, NAMES[kind], student.config.unit_layers)
    same = dict.fromkeys(("modernbert", "jina_embeddings_v3", "gte", "new"), 0)
    # BERT: two joint weights of a layer become six
    added = (same | {"gemma3_text": 3, "qwen3": 3, "nomic_bert": 1}).get(kind, 4)
    assert len(weights) == len(state) + added * student.config.unit_layers
    weights = {f"{prefix}{name}": weight for name, weight in weights.items()} | {"lm_head.bias": torch.zeros(2)}
    restored = to_student_names(weights, NAMES[kind], student.config.unit_layers)
    assert restored.keys() == state.keys()
    assert all(torch.equal(restored[name], weight) for name, weight in state.items())


@pytest.mark.parametrize(
    ("names", "name"), [(BERT_NAMES, "encoder.layer.1.attention.self.key.bias"), (E5S1_NAMES, "l1.k.b")]
)
def test_queries_keys_and_values_are_parts_of_the_joint_weight(names: WeightNames, name: str) -> None:
    state = {"unit.1.attention.bias": torch.arange(6.0)}
    weights = from_student_names(state, names, 2)
    assert len(weights) == 3
    assert weights[name].tolist() == [2, 3]
    del weights[name]
    assert to_student_names(weights, names, 2) == {}, "an incomplete joint weight is left out"
