import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tokenizers import Tokenizer

from tests.helpers.e5s1 import small_e5s1_weights, write_e5s1
from tests.helpers.export import CALIBRATED, LITTLE, TEXT, kinds, manifest_of
from tests.helpers.files import pipe_with
from tests.helpers.foreign import save_encoder
from tests.helpers.rotary import CONFIGS as ROTARY
from tests.helpers.rotary import save_rotary
from tests.helpers.student import SENTENCES, make_student, make_tokenizer, save_student
from tests.helpers.vocabularies import make, write_word_lists
from xcompress import files
from xcompress.bench.workers.multiply_adds import bundle_multiply_adds
from xcompress.bundle.encoder import Encoder
from xcompress.bundle.engines import open_on_cpu
from xcompress.bundle.external_data import external_locations
from xcompress.bundle.integrity import check_bundle
from xcompress.bundle.manifest import GRAPHS
from xcompress.bundle.released import released_folder
from xcompress.corpus.graded import builtin
from xcompress.errors import GateError, InputError
from xcompress.export import accuracy, exporter, graph, text
from xcompress.export.config import ExportConfig, Precision
from xcompress.export.exporter import export
from xcompress.export.graph import OUTPUTS, Recurrence
from xcompress.export.matmul import matmuls
from xcompress.export.prepare import Prepared
from xcompress.export.source import SourceOptions, find_source
from xcompress.export.verify import Bounds
from xcompress.files import megabytes
from xcompress.metrics import cosines
from xcompress.modeling import centering
from xcompress.modeling.student import Student, encode

pytestmark = pytest.mark.usefixtures("little_text")
FLOAT = ExportConfig(precision="fp32")
GATE = 30
"""Points: of a handful of pairs, one that changes places costs several."""
CLOSE = {"fp32": 0.99999, "fp16": 0.9999, "int8": 0.98, "int4": 0.9}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return save_student(tmp_path / "small")


@pytest.fixture
def unigram(tmp_path: Path, empty_cache: Path, no_installed_wheels: None) -> Path:
    """Save a student whose vocabulary can be trimmed, to German or English words."""
    words = list(dict.fromkeys(word for texts in TEXT.values() for text in texts for word in text.split()))
    write_word_lists(empty_cache, {"de": words, "en": ["rain", "the", "boat"]})
    folder, tokenizer = tmp_path / "unigram", make("unigram")
    folder.mkdir()
    make_student(vocab_size=tokenizer.get_vocab_size()).save(folder, tokenizer)
    return folder


def check_close(bundle: Path, student: Student | None = None, precision: str = "auto") -> None:
    opened = Encoder(bundle, precision=precision)
    tokenizer = make_tokenizer()
    expected = encode(student or make_student(), tokenizer, SENTENCES)
    assert cosines(opened.encode(SENTENCES), expected).min() > CLOSE[opened.precision]


@pytest.fixture(scope="module")
def on_all_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Export on the package's text, graded on a twelfth of the rows of every pair of languages.

    A module's fixtures come before those that leave little text.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accuracy, "builtin", lambda: builtin().every(12))
        return export(save_student(tmp_path_factory.mktemp("all") / "small"))


def test_the_manifest_of_a_bundle_verified_on_the_packages_text(on_all_text: Path) -> None:
    manifest = manifest_of(on_all_text)
    assert (manifest["precision"], list(manifest["graphs"]), manifest["target"]) == ("int8", ["int8", "fp32"], "cpu")
    assert manifest["graphs"] == {"int8": "onnx/model_quantized.onnx", "fp32": "onnx/model.onnx"}
    assert list(manifest["graphs"]) == ["int8", "fp32"]
    assert manifest["options"] == ExportConfig().to_dict()
    assert manifest["recurrence"] == "unroll"
    why = "folding adds 0.0 MB in float32 and saves one product of 25"
    assert manifest["bottleneck"] == {"width": 16, "form": "folded", "why": why}
    assert list(manifest["levels"]) == list(matmuls(make_student()))
    assert set(manifest["levels"].values()) == {"static", "token"}
    assert manifest["calibrated_on"] > 300
    assert {"shortened", "vocabulary", "trade"}.isdisjoint(manifest)
    assert (manifest["dimension"], manifest["languages"], manifest["unverified_languages"]) == (24, [], [])
    pairs = set(builtin().language_pairs)
    assert set(manifest["graded"]["before"]) == set(manifest["graded"]["after"]) == pairs
    assert len(manifest["mean_vector"]) == 24 and 0 < np.linalg.norm(manifest["mean_vector"]) < 1
    parity = manifest["parity"]
    for precision in ("fp32", "int8"):
        languages = parity[precision]["languages"]
        assert set(languages) == {"ar", "de", "en", "es", "fr", "it", "nl", "tr"}
        assert min(one["sentences"] for one in languages.values()) > 300
    assert parity["fp32"]["max_abs_difference"] < 1e-4
    assert parity["int8"]["worst_cosine"] > 0.98


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8", "int4"])
def test_every_precision_becomes_a_bundle_that_opens(precision: str, external: bool, small: Path) -> None:
    made = export(small, options=ExportConfig(precision=precision, external_data=external))
    manifest, own = manifest_of(made), GRAPHS[precision]
    names = {own, GRAPHS["fp32"]}
    expected = {f"{name}{end}" for name in names for end in (["", "_data"] if external else [""])}
    assert {f"onnx/{file.name}" for file in (made / "onnx").iterdir()} == expected
    assert expected <= set(manifest["files"])
    assert (manifest["precision"], list(manifest["graphs"])) == (precision, list(dict.fromkeys([precision, "fp32"])))
    assert list(manifest["parity"]) == list(dict.fromkeys(["fp32", precision]))
    assert ("calibrated_on" in manifest) == (precision != "fp32")
    if precision != "fp32":
        assert manifest["calibrated_on"] == (0 if precision == "fp16" else len(CALIBRATED))
    whole = sum((made / f"{own}{end}").stat().st_size for end in (["", "_data"] if external else [""]))
    assert f"\n| {own} | {megabytes(whole)} |\n" in (made / "README.md").read_text()
    if external:
        assert external_locations(made / own) == {f"{Path(own).name}_data"}
        stored = sum(len(one.raw_data) for one in onnx.load(made / own, load_external_data=False).graph.initializer)
        assert stored < (made / f"{own}_data").stat().st_size
    check_close(made)
    check_close(made, precision="fp32")


@pytest.mark.parametrize("target", ["cpu", "openvino"])
def test_a_float32_graph_too_large_for_one_file_has_its_weights_beside_it(
    target: str, small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if target == "openvino":
        pytest.importorskip("openvino", reason="openvino is not installed")
    monkeypatch.setattr(graph, "MOST_BYTES", LITTLE)
    made = export(small, options=ExportConfig(target=target))
    split = {"model.onnx", "model.onnx_data"} if target == "cpu" else set()
    assert {file.name for file in (made / "onnx").iterdir()} == {"model_quantized.onnx", *split}
    assert capsys.readouterr().err.count("so the weights are in onnx/model.onnx_data") == bool(split)
    check_bundle(made, manifest_of(made), everything=True)
    for precision in manifest_of(made)["graphs"]:
        check_close(made, precision=precision)


def test_precision_auto_takes_graphs_too_large_for_one_file(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "MOST_BYTES", 1000)
    made = export(small, options=ExportConfig(precision="auto", gate=GATE))
    assert external_locations(made / GRAPHS["int8"]) == {"model_quantized.onnx_data"}
    check_close(made)


def test_smaller_precisions_take_fewer_bytes(small: Path) -> None:
    sizes = [
        (export(small, options=ExportConfig(precision=precision, bottleneck="keep")) / GRAPHS[precision]).stat().st_size
        for precision in ("fp32", "fp16", "int8", "int4")
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[1] < 0.6 * sizes[0]


@pytest.mark.parametrize(("target", "ort"), [("mobile", True), ("wasm", False)])
def test_targets_that_load_over_a_network_get_a_loop_and_no_float32_graph(target: str, ort: bool, small: Path) -> None:
    made = export(small, options=ExportConfig(target=target))
    manifest = manifest_of(made)
    files = ["model_quantized.onnx", *(["model_quantized.ort"] if ort else [])]
    assert sorted(path.name for path in (made / "onnx").iterdir()) == files
    assert manifest["graphs"] == {"int8": f"onnx/{files[-1]}"}
    assert (manifest["target"], manifest["recurrence"]) == (target, "loop")
    assert set(manifest["parity"]) == {"fp32", "int8"}
    assert kinds(onnx.load(made / "onnx/model_quantized.onnx").graph)["Loop"] == 1
    check_close(made)


def test_float32_alone_stays_whatever_the_target(small: Path) -> None:
    made = export(small, options=replace(FLOAT, target="wasm"))
    assert manifest_of(made)["graphs"] == {"fp32": "onnx/model.onnx"}
    check_close(made)


@pytest.mark.parametrize("external", [False, True])
def test_ort_format_is_opened_on_request(small: Path, external: bool) -> None:
    made = export(small, options=ExportConfig(ort=True, external_data=external))
    assert manifest_of(made)["graphs"] == {"int8": "onnx/model_quantized.ort", "fp32": "onnx/model.onnx"}
    assert (made / "onnx/model_quantized.onnx").is_file()
    check_close(made)


def test_the_graph_beside_ort_format_is_verified_too(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verified: list[str] = []
    verify = exporter.verify_quantized

    def note(graph: Path, *others: Any) -> dict[str, Any]:  # noqa: ANN401
        verified.append(graph.name)
        return verify(graph, *others)

    monkeypatch.setattr(exporter, "verify_quantized", note)
    export(small, options=ExportConfig(ort=True))
    assert verified == ["model_quantized.onnx", "model_quantized.ort"]


def test_ort_format_with_4_bit_embeddings(small: Path) -> None:
    made = export(small, options=ExportConfig(table="int4", target="mobile"))
    assert manifest_of(made)["graphs"] == {"int8": "onnx/model_quantized.ort"}
    check_close(made)


@pytest.mark.parametrize(("ort", "end"), [(None, "onnx"), (True, "ort")])
def test_4_bit_weights_stay_out_of_ort_format_by_default(small: Path, ort: bool | None, end: str) -> None:
    made = export(small, options=ExportConfig(precision="int4", target="mobile", ort=ort))
    assert manifest_of(made)["graphs"] == {"int4": f"onnx/model_q4.{end}"}
    check_close(made, precision="int4")


def test_ort_format_of_the_float32_graph(small: Path) -> None:
    made = export(small, options=replace(FLOAT, ort=True))
    assert manifest_of(made)["graphs"] == {"fp32": "onnx/model.ort"}


@pytest.mark.parametrize(("recurrence", "loops"), [("unroll", 0), ("loop", 1)])
@pytest.mark.parametrize("target", ["cpu", "wasm"])
def test_the_form_of_the_recurrence_can_be_chosen(small: Path, target: str, recurrence: Recurrence, loops: int) -> None:
    made = export(small, options=ExportConfig(target=target, recurrence=recurrence))
    assert kinds(onnx.load(made / GRAPHS["int8"]).graph)["Loop"] == loops
    assert manifest_of(made)["recurrence"] == recurrence


@pytest.mark.parametrize(("asked", "rows"), [("fold", 32), ("keep", 16)])
def test_the_form_of_the_bottleneck_can_be_chosen(small: Path, asked: str, rows: int) -> None:
    made = export(small, options=ExportConfig(bottleneck=asked))
    stored = {tuple(weight.dims) for weight in onnx.load(made / GRAPHS["int8"]).graph.initializer}
    assert (400, rows) in stored
    described = manifest_of(made)["bottleneck"]
    assert described["form"] == {"fold": "folded", "keep": "factored"}[asked]
    assert described["why"].startswith("asked for; ")
    check_close(made)


def test_without_a_bottleneck_none_is_described(tmp_path: Path) -> None:
    made = export(save_student(tmp_path / "wide", bottleneck=None), options=FLOAT)
    assert manifest_of(made)["bottleneck"] is None


@pytest.fixture
def spoiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure the inputs' range of one product far too narrow."""
    measured = exporter.calibrate

    def narrow(*given: Any, **also: Any) -> dict[str, Any]:  # noqa: ANN401
        found = measured(*given, **also)
        bad = found["unit.1.attention_output"]
        return found | {"unit.1.attention_output": replace(bad, low=bad.low / 1e4, high=bad.high / 1e4)}

    monkeypatch.setattr(exporter, "calibrate", narrow)


@pytest.mark.usefixtures("spoiled")
def test_precision_auto_raises_what_spoils_the_scores(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = export(small, options=ExportConfig(precision="auto", gate=GATE))
    manifest = manifest_of(made)
    assert manifest["precision"] == "int8"
    assert manifest["trade"]["raised"] == {"unit.1.attention_output": "token"}
    assert manifest["levels"]["unit.1.attention_output"] == "token"
    before, after = manifest["graded"]["before"], manifest["graded"]["after"]
    assert all(after[pair] >= before[pair] - GATE for pair in before)
    assert "in higher precision: unit.1.attention_output token" in capsys.readouterr().err
    check_close(made)


def test_precision_auto_has_a_default_gate(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds for the search of the graph, and for the files of other engines that are made from it."""

    def refuse(self: exporter.Candidate, before: object, points: float, *_: object) -> None:
        raise GateError(f"asked for {points}")

    monkeypatch.setattr(exporter.Candidate, "search", refuse)
    for gate, points in ((None, exporter.GATE), (70, 70)):
        with pytest.raises(GateError, match=f"asked for {points}"):
            export(small, options=ExportConfig(precision="auto", gate=gate))

    unused: Any = None
    rest = {"prepared": unused, "fold": False, "languages": (), "reference": unused, "before": {"de-de": 80.0}}
    rest["is_of_run"] = False
    job = exporter._Job(small, ExportConfig(precision="auto"), None, **rest)
    job.check_gate({"de-de": 79.6})
    with pytest.raises(GateError, match=r"by 0\.60 .* allowed 0\.5; use --precision fp16, or use a larger --gate"):
        job.check_gate({"de-de": 79.4})


def test_a_language_without_a_word_list_is_refused_before_the_model_is_looked_for() -> None:
    with pytest.raises(InputError, match="languages: no word frequencies for 'xx'"):
        export("org/absent", options=ExportConfig(languages=("de", "xx")))


def test_a_vocabulary_that_cannot_be_trimmed_is_refused_before_the_text_is_read(small: Path) -> None:
    with pytest.raises(InputError, match="vocabulary: the tokenizer is WordLevel"):
        export(small, options=ExportConfig(vocabulary=10, text=(Path("absent.txt"),)))


def test_a_vocabulary_for_a_language_and_a_text(unigram: Path) -> None:
    with pipe_with("\n".join(SENTENCES).encode()) as pipe:
        made = export(unigram, options=ExportConfig(languages=("de",), text=(pipe,)))
    manifest = manifest_of(made)
    assert manifest["vocabulary"]["counted"] == ["de", pipe.name]
    assert manifest["languages"] == ["de"]
    assert manifest["vocabulary"]["pieces_before"] == 900 > manifest["vocabulary"]["pieces_after"]
    assert manifest["vocab_size"] == manifest["vocabulary"]["pieces_after"]
    assert set(manifest["graded"]["before"]) == {"de-de"}
    whole, tokenizer = Student.load(unigram)
    opened = Encoder(made)
    assert cosines(opened.encode(SENTENCES[:4]), encode(whole, tokenizer, SENTENCES[:4])).min() > 0.98
    sizes = [(folder / GRAPHS["int8"]).stat().st_size for folder in (made, export(unigram, made.with_name("all")))]
    assert sizes[0] < sizes[1]


def test_shorter_vectors(small: Path) -> None:
    made = export(small, options=ExportConfig(dimension=8, shorten="slice"))
    manifest = manifest_of(made)
    assert (manifest["dimension"], manifest["shortened"]["before"], manifest["shortened"]["by"]) == (8, 24, "slice")
    assert 0 < manifest["shortened"]["kept"] < 1
    whole = encode(make_student(), make_tokenizer(), SENTENCES)[:, :8]
    found = Encoder(made).encode(SENTENCES)
    assert found.shape == (len(SENTENCES), 8)
    assert cosines(found, whole).min() > 0.97


def test_an_export_that_loses_too_much_is_refused_and_the_old_bundle_stays(small: Path) -> None:
    made = export(small)
    before = (made / "manifest.json").read_text()
    with pytest.raises(GateError, match=r"gate: .* allowed 0\.01; float32 loses this already; change --dim, or use"):
        export(small, options=ExportConfig(dimension=2, gate=0.01))
    assert (made / "manifest.json").read_text() == before
    assert sorted(path.name for path in small.parent.iterdir()) == ["small", "small-bundle"]


@pytest.mark.parametrize("precision", ["fp32", "auto"])
def test_what_other_options_cost_is_no_products_fault(
    small: Path, precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xcompress.export.accuracy.matmul_costs", lambda *_, **__: pytest.fail("costs measured"))
    monkeypatch.setattr(centering, "STEPS", 20)  # any map will do
    options = ExportConfig(precision=precision, dimension=2, center=True, gate=0.01)
    with pytest.raises(GateError, match=r"float32 loses this already; change --dim, --center, or use a larger --gate$"):
        export(small, options=options)


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_the_head_that_centres_is_in_float32(
    precision: Precision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(centering, "STEPS", 20)
    options = ExportConfig(precision=precision, center=True)
    lax = Bounds(mean_cosine=0.9, worst_cosine=0.5, similarity_correlation=0.9, invariance_cosine=0.9)
    made = export(save_student(tmp_path / "bare", head_size=None), options=options, bounds=lax)
    levels = manifest_of(made)["levels"]
    assert levels.pop("head") == "fp32" and set(levels.values()) == {"static", "token"}
    constants = {tensor.name for tensor in onnx.load(made / GRAPHS[precision]).graph.initializer}
    assert "head" in constants and "head.scales" not in constants


@pytest.mark.usefixtures("spoiled")
def test_a_smaller_graph_that_loses_too_much_names_products_and_a_closer_precision(small: Path) -> None:
    lax = Bounds(mean_cosine=-1, worst_cosine=-1, similarity_correlation=-1, invariance_cosine=-1)
    with pytest.raises(GateError, match=r"allowed 0\.01; the products that cost most .*; use --precision auto, or"):
        export(small, options=ExportConfig(gate=0.01), bounds=lax)


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        (ExportConfig(precision="fp16"), "use --precision fp32$"),
        (ExportConfig(table="int4"), "leave out --table int4, or use --precision auto, or calibrate on text"),
    ],
)
def test_a_graph_beyond_its_bounds_comes_with_advice_that_fits(small: Path, options: ExportConfig, advice: str) -> None:
    with pytest.raises(GateError, match=rf"bound 1\.1; {advice}"):
        export(small, options=options, bounds=Bounds(mean_cosine=1.1))


def test_a_search_in_vain_comes_with_advice_that_fits(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a table in 4 bits, --precision fp32 would be refused."""
    monkeypatch.setattr(accuracy, "MAX_STEPS", 1)
    options = ExportConfig(precision="auto", table="int4", recurrence="loop", gate=200)
    advice = "leave out --table int4, or use --precision fp16 without --table and --operators$"
    with pytest.raises(GateError, match=rf"in float32, .* bound 1\.1; {advice}"):
        export(small, options=options, bounds=Bounds(mean_cosine=1.1))


def test_an_e5s1_file_is_exported(tmp_path: Path) -> None:
    write_e5s1(tmp_path / "it.bin", small_e5s1_weights())
    make_tokenizer().save(str(tmp_path / "words.json"))
    options = SourceOptions(tokenizer=tmp_path / "words.json")
    made = export(tmp_path / "it.bin", options=FLOAT, source_options=options)
    check_close(made, find_source(tmp_path / "it.bin", options).open()[0])


def test_an_encoder_with_weights_in_several_files_is_exported(tmp_path: Path) -> None:
    model = save_encoder(tmp_path / "it", "bert")
    (tmp_path / "it/model.safetensors").unlink()
    model.save_pretrained(tmp_path / "it", max_shard_size="40KB")
    options = SourceOptions(pooling="mean")
    made = export(tmp_path / "it", options=FLOAT, source_options=options)
    check_close(made, find_source(tmp_path / "it", options).open()[0])


def test_a_gate_that_holds_lets_through(small: Path) -> None:
    graded = manifest_of(export(small, options=ExportConfig(gate=50)))["graded"]
    assert set(graded["before"]) == set(graded["after"]) == set(builtin().within(TEXT).language_pairs)


def test_a_gate_without_graded_pairs_is_told_once(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("xcompress.export.exporter.graded_scores", lambda *_: {})
    export(small, options=ExportConfig(gate=50))
    assert capsys.readouterr().err.count("gate was not checked") == 1


@pytest.mark.parametrize("kind", ["bert", "mpnet", "xlm-roberta", "modernbert", "gemma3_text", "qwen3", *ROTARY])
def test_a_foreign_encoder_is_exported_unchanged(kind: str, tmp_path: Path) -> None:
    if kind in ROTARY:
        save_rotary(tmp_path / kind, kind, initializer_range=0.1)
    else:
        save_encoder(tmp_path / kind, kind, initializer_range=0.1)
    pooling = "lasttoken" if kind == "qwen3" else "cls"
    options = SourceOptions(prefix="query: ", pooling=pooling)
    made = export(tmp_path / kind, source_options=options, bounds=Bounds(worst_cosine=0.9))  # of random weights
    manifest, student = manifest_of(made), find_source(tmp_path / kind, options).open()[0]
    assert (manifest["pooling"], manifest["prefix"], manifest["unit_layers"]) == (pooling, "query: ", 3)
    assert (manifest["recurrences"], manifest["student_recurrences"], manifest["bottleneck"]) == (1, 1, None)
    counted = bundle_multiply_adds(made)
    assert counted and counted.token == sum(weight.numel() for weight in student.unit.parameters() if weight.dim() == 2)
    check_close(made, student)
    check_close(made, student, "fp32")


def test_a_foreign_encoder_is_trimmed_and_shortened(tmp_path: Path, unigram: Path) -> None:
    save_encoder(tmp_path / "bert", "bert", make("unigram"), vocab_size=900)
    made = export(
        tmp_path / "bert", options=ExportConfig(languages=("de",), dimension=4, shorten="slice", target="wasm")
    )
    manifest = manifest_of(made)
    assert manifest["vocab_size"] < 900
    assert Encoder(made).encode(SENTENCES).shape == (len(SENTENCES), 4)


def test_a_users_text_that_is_missing_is_one_line(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"mine\.txt"):
        export(small, options=ExportConfig(text=(small.parent / "mine.txt",)))
    assert not (small.parent / "small-bundle").exists()


def test_a_users_text_is_read_once(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [("verify", code, line) for code, lines in TEXT.items() for line in lines]
    rows += [("calibrate", "en", line) for line in SENTENCES]
    monkeypatch.setattr(text, "_read_package", lambda _: rows)
    monkeypatch.setattr(exporter, "verification_text", text.verification_text)
    monkeypatch.setattr(exporter, "calibration_text", text.calibration_text)
    (small.parent / "mine.txt").write_bytes(b"the red boat\n\xff\n")
    export(small, options=ExportConfig(text=(small.parent / "mine.txt",), dimension=20, shorten="slice"))
    assert capsys.readouterr().err.count("1 lines are not UTF-8") == 1


def test_all_outputs_of_both_graphs_agree_with_the_manifest(small: Path) -> None:
    made = export(small)
    for name in manifest_of(made)["graphs"].values():
        session = open_on_cpu(made / name)
        assert [output.name for output in session.get_outputs()] == list(OUTPUTS) == manifest_of(made)["outputs"]
        assert session.get_outputs()[1].shape == ["batch", 24]


def test_a_bundle_that_a_killed_export_had_moved_away_is_put_back(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = export(small, options=FLOAT)
    killed = small.parent / f".{made.name}.abcd1234.tmp"
    (killed / "new" / made.name).mkdir(parents=True)
    (killed / "old").mkdir()
    made.rename(killed / "old" / made.name)
    capsys.readouterr()
    assert export(small, options=FLOAT) == made
    assert "already exported" in capsys.readouterr().err
    assert sorted(small.parent.iterdir()) == [small, made]


def test_a_second_export_to_the_same_folder_is_refused_at_once(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = small.parent / "bundle"
    with files.whole_folder(target) as temporary:
        (temporary / "first").touch()
        monkeypatch.setattr(exporter, "make_bundle", lambda *_: pytest.fail("exported"))
        with pytest.raises(InputError, match="bundle: another process is writing it; wait until it has ended"):
            export(small, target, options=FLOAT)
    assert [file.name for file in target.iterdir()] == ["first"]


@pytest.mark.parametrize("name", ["x" * 256, "file/bundle", "~nosuchuser"])
def test_a_folder_that_cannot_be_is_one_line(small: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(small.parent)
    Path("file").touch()
    with pytest.raises(InputError, match=r"^[^\n]*: (cannot be written|~ is not replaced)[^\n]*$"):
        export(small, Path(name), options=FLOAT)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file system with names of any bytes")
def test_a_path_that_is_not_utf_8_is_one_line(small: Path) -> None:
    odd = small.with_name(os.fsdecode(b"bad\xff"))
    with pytest.raises(InputError, match=r"bad\\xff: this path is not UTF-8"):
        export(small, odd, options=FLOAT)
    small.rename(odd)
    with pytest.raises(InputError, match=r"bad\\xff: this path is not UTF-8"):
        export(odd, options=FLOAT)


def test_a_sentence_with_a_token_more_in_sentencepiece_has_other_ids(tmp_path: Path) -> None:
    description = json.loads((released_folder("tiny") / "tokenizer.json").read_text(encoding="utf-8"))
    without = {"type": "Replace", "pattern": {"String": "!"}, "content": ""}
    description["normalizer"] = {"type": "Sequence", "normalizers": [description["normalizer"], without]}
    prepared = Prepared(make_student(), Tokenizer.from_str(json.dumps(description)))
    written = exporter.write_phone_tokenizer(tmp_path / "model.pte", prepared, {"en": ["a boat", "a boat!"]})
    assert written == {"file": f"{tmp_path.name}/tokenizer.model", "sentences": 2, "equal": 1}
