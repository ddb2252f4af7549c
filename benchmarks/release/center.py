"""Centre the vectors of a released model: change the head in its graph, and no other weight.

    python benchmarks/release/read_back.py runs/release_mean_int4 --model small
    python benchmarks/release/center.py runs/release_mean_int4 --name small --data DIR --text TEXT/*

Fits the map of `export --center` to the student that was read back. A new export would round every weight to 4 bits
again, and lose some accuracy. Writes RUN/bundle-centered, compares it with PyTorch as an export does, scores it as
release.py does, and puts it in place of xcompress/models/<name>. Exit code 2: something is missing or not listed; 3: a
figure is beyond its bound.
"""

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

import onnx
from provenance import read_table, table_file, with_text_of_export
from release import cosine_shares, score_bundle, write_release

from xcompress.bundle.encoder import Encoder
from xcompress.bundle.engines import open_on_cpu
from xcompress.bundle.manifest import CARD, GRAPHS, MANIFEST, list_files, read_manifest, write_manifest
from xcompress.bundle.released import MODELS
from xcompress.console import bar, emit, run_script, say
from xcompress.errors import InputError
from xcompress.export.accuracy import GraphEncoder, graded_scores
from xcompress.export.calibrate import calibrate
from xcompress.export.matmul import Range, int4_weights, matmuls
from xcompress.export.prepare import Prepared, center
from xcompress.export.source import Source, find_source
from xcompress.export.text import FITTED, calibration_text, read_files, verification_text
from xcompress.export.verify import Bounds, make_reference, verify_quantized
from xcompress.export.writer import Writer
from xcompress.files import whole_folder
from xcompress.modeling.student import Student


def main() -> None:
    """Centre, compare, score and release."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the run that trained the model, with the student that was read back")
    parser.add_argument("--name", required=True, help="name of the released model: small or tiny")
    parser.add_argument("--data", type=Path, required=True, help="folder with dev sets, as in `bench --data`")
    parser.add_argument("--text", type=Path, nargs="+", default=[], help="text to fit to, as in `export --text`")
    parser.add_argument("--into", type=Path, default=MODELS, help="folder of the released models")
    arguments = parser.parse_args()
    released, bundle = arguments.into / arguments.name, arguments.run / "bundle-centered"
    table, source = read_table(table_file()), find_source(arguments.run)
    center_bundle(released, source, arguments.text, bundle)
    facts = read_manifest(released)["release"]
    command = f"python benchmarks/release/center.py runs/{arguments.run.name} --name {arguments.name} --data DIR"
    facts |= {
        "commands": [*facts["commands"], f"{command} --text TEXT/*" if arguments.text else command],
        "text": with_text_of_export(facts["text"], {"text": list(map(str, arguments.text))}, table),
        "scores": score_bundle(bundle, arguments.run, arguments.data, table),
        "cosines": cosine_shares(Encoder(bundle)),
        "limits": list(table.limits),
    }
    write_release(bundle, released, facts)
    emit(str(released / CARD))


def center_bundle(bundle: Path, source: Source, files: Sequence[Path], target: Path) -> None:
    """Write a bundle in 4 bits with the map of `export --center` in the head of its graph.

    :param source: the student that was read back from the graph.
    :param files: the user's text, as in `read_files`.
    :raises InputError: when the bundle is centred already, or has no head in 4 bits.
    :raises GateError: when the graph is too far from the centred student in PyTorch.
    """
    manifest = read_manifest(bundle)
    if "centered" in manifest:
        raise InputError(f"{bundle}: is centred already; start from the model before")
    student, tokenizer = source.open()
    if student.head is None:
        raise InputError(f"{bundle}: has no head to change; export with --center instead")
    languages = manifest["languages"]

    # Fit the map, and encode the text to compare on with PyTorch.
    centered, cosines = center(
        student, tokenizer, calibration_text(source, languages, read_files(files, languages), FITTED)
    )
    say(f"mean cosine of two different sentences: {cosines['before']:.2f} before, {cosines['after']:.2f} after")
    inputs = calibrate(student, tokenizer, calibration_text(source, languages), moments=True)["head"]
    text = verification_text(source, languages)
    with bar("encoded with PyTorch", sum(map(len, text.values()))) as ticker:
        reference = make_reference(centered, tokenizer, text, ticker.advance)

    # Write the graph with the new head, and measure it.
    with whole_folder(target) as folder:
        shutil.copytree(bundle, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST))
        file = folder / GRAPHS["int4"]
        graph = onnx.load(file)
        replace_head(graph, centered, inputs)
        onnx.save(graph, file)
        with bar("compared with PyTorch", len(reference.all_sentences)) as ticker:
            figures = verify_quantized(file, reference, Bounds.of("int4"), ticker.advance)
        after = graded_scores(GraphEncoder(Prepared(centered, tokenizer), open_on_cpu(file)), languages)
        manifest |= {
            "centered": cosines,
            "mean_vector": reference.mean_vector,
            "parity": {"int4": figures},
            "graded": {"before": manifest["graded"]["before"], "after": after},
        }
        write_manifest(folder, manifest | {"files": list_files(folder)})


def replace_head(graph: onnx.ModelProto, student: Student, inputs: Range) -> None:
    """Replace the weight and bias of a graph's head by those of a student, rounded to 4 bits with GPTQ.

    :param inputs: those of the head on calibration text.
    :raises InputError: when the graph has no such head.
    """
    matmul, writer = matmuls(student)["head"], Writer()
    weights = int4_weights(matmul.weight, inputs.moments)
    if weights.int4 is not None and matmul.bias is not None:
        weights.int4.write(writer, "head.values")
        writer.constant("head.scales", weights.scales)
        writer.constant("head.bias", matmul.bias)
    names = {"head.values.packed", "head.values.steps", "head.scales", "head.bias"}
    new = {tensor.name: tensor for tensor in writer.model([], []).graph.initializer if tensor.name in names}
    old = {tensor.name: tensor for tensor in graph.graph.initializer}
    shapes = [{name: list(of[name].dims) for name in names & of.keys()} for of in (new, old)]
    if new.keys() != names or shapes[0] != shapes[1] or "head.smooth" in old:
        raise InputError("the graph has no head in 4 bits of this layout; export with --center instead")
    for name in names:
        old[name].CopyFrom(new[name])


if __name__ == "__main__":
    run_script(main)
