import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from xcompress.errors import InputError
from xcompress.export.config import ExportConfig, TargetSettings


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"table": "int4", "precision": "fp16"}, "table: int4 needs precision int8 or int4, not fp16; change one"),
        ({"table": "int8", "precision": "fp32"}, "table: int8 needs precision int8 or int4, not fp32; change one"),
        ({"operators": "standard", "precision": "fp32"}, "operators: standard needs precision int8 or auto, not fp32"),
        ({"operators": "onnxruntime", "precision": "fp16"}, "operators: onnxruntime needs precision int8 or auto"),
        ({"vocabulary": 0, "languages": ("de",)}, "vocabulary: 0 is less than 1; give at least 1"),
        ({"dimension": 0}, "dimension: 0 is less than 2; give at least 2"),
        ({"shorten": "slice"}, "shorten: 'slice' without a dimension; say how many to keep (--dim)"),
        ({"dimension": -3}, "dimension: -3 is less than 2"),
        ({"gate": -0.1}, "gate: -0.1 is negative; give the points that may be lost, such as 0.5"),
        ({"vocabulary": 100}, "vocabulary: needs text to count tokens in; add --languages de,en or --text FILE"),
    ],
)
def test_impossible_options_are_refused_with_the_fix(asked: dict[str, object], said: str) -> None:
    with pytest.raises(InputError) as caught:
        ExportConfig(**asked)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_valid_options_pass() -> None:
    ExportConfig(vocabulary=1, languages=("de",), dimension=2, gate=0)
    ExportConfig(vocabulary=100, text=(Path("mine.txt"),))
    for precision in ("fp32", "fp16", "int8", "int4", "auto"):
        assert ExportConfig(precision=precision).precision == precision


def test_targets_settings_and_what_replaces_them() -> None:
    assert ExportConfig().settings() == TargetSettings("unroll", ort=False, float32=True)
    assert ExportConfig(target="mobile").settings() == TargetSettings("loop", ort=True, float32=False)
    assert ExportConfig(target="wasm").settings() == TargetSettings("loop", ort=False, float32=False)
    assert ExportConfig(target="mobile", precision="int4").settings() == TargetSettings(
        "loop", ort=False, float32=False
    )
    assert ExportConfig(target="mobile", precision="int4", ort=True).settings().ort
    own = ExportConfig(target="mobile", recurrence="unroll", ort=False).settings()
    assert own == TargetSettings("unroll", ort=False, float32=False)
    assert ExportConfig(recurrence="loop", ort=True).settings() == TargetSettings("loop", ort=True, float32=True)


@pytest.mark.parametrize(
    ("config", "recurs", "said"),
    [
        (ExportConfig(), True, "target cpu, recurrent unit unrolled, float32 graph kept"),
        (ExportConfig(), False, "target cpu, float32 graph kept"),
        (
            ExportConfig(target="mobile"),
            True,
            "target mobile, recurrent unit in a loop, ORT format, float32 graph left out",
        ),
        (ExportConfig(target="wasm", precision="fp32"), True, "target wasm, recurrent unit in a loop"),
        (
            ExportConfig(target="openvino"),
            False,
            "target openvino, standard operators, OpenVINO's format, float32 graph left out",
        ),
    ],
)
def test_settings_are_printed(config: ExportConfig, recurs: bool, said: str) -> None:
    assert config.summary(recurs=recurs) == said


def test_every_option_is_described_as_json_knows_it() -> None:
    options = ExportConfig(languages=("de", "en"), text=(Path("a/mine.txt"),), vocabulary=3, gate=0.5)
    described = options.to_dict()
    assert set(described) == {field.name for field in fields(ExportConfig)}
    assert json.loads(json.dumps(described)) == described
    assert (described["languages"], described["text"], described["gate"]) == (["de", "en"], ["a/mine.txt"], 0.5)


@pytest.mark.parametrize(
    ("asked", "closer"),
    [
        ({}, ["use --precision auto"]),
        ({"table": "int4"}, ["leave out --table int4", "use --precision auto"]),
        ({"precision": "int4"}, ["use --precision auto"]),
        ({"precision": "int4", "table": "int4"}, ["use --precision auto"]),
        ({"precision": "auto"}, ["use --precision fp16"]),
        (
            {"precision": "auto", "table": "int4"},
            ["leave out --table int4", "use --precision fp16 without --table and --operators"],
        ),
        ({"precision": "auto", "table": "int8"}, ["use --precision fp16 without --table and --operators"]),
        ({"precision": "fp16"}, ["use --precision fp32"]),
        ({"operators": "standard"}, ["use --precision auto"]),
        ({"operators": "standard", "precision": "auto"}, ["use --precision fp16 without --table and --operators"]),
        ({"target": "openvino", "precision": "auto"}, ["use --precision fp16"]),
        ({"precision": "fp32"}, []),
        ({"target": "litert"}, ["use --precision fp32"]),
        ({"target": "coreml"}, ["use --precision fp16"]),
        ({"target": "coreml", "precision": "fp16"}, []),
    ],
)
def test_what_to_change_for_a_closer_graph_is_what_the_other_options_allow(
    asked: dict[str, Any], closer: list[str]
) -> None:
    config = ExportConfig(**asked)
    assert config.closer_options() == closer
    for precision, without in re.findall(r"--precision (\w+)( without)?", " ".join(closer)):
        replace(config, precision=precision, **{"table": "auto", "operators": None} if without else {})
