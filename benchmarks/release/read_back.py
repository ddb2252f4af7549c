"""Put the student of a released model back into its run folder, from the graph in 4 bits.

    xcompress distill recipes/release.yaml          # stop it when `corpus` and, with graded pairs, `labelled` are done
    python benchmarks/release/read_back.py runs/release --model small

The weights of a run are not kept with the project, but the recipes of later models start from an earlier student. This
script writes RUN/student with the weights that the graph stores, as float32, and RUN/recipe.yaml and RUN/manifest.json
with what is known of the run. It compares the student's vectors of the package's sentences with those of the graph, and
exits with 3 where a cosine is under 0.999. Without a model it only describes the run.
"""

import argparse
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
import yaml
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from xcompress.bundle.encoder import Encoder
from xcompress.bundle.manifest import MANIFEST, graphs_of, read_manifest
from xcompress.bundle.released import released_folder
from xcompress.console import emit, run_script, say
from xcompress.errors import GateError
from xcompress.export.text import real_sentences
from xcompress.files import read_json, whole_folder, write_json, write_text
from xcompress.metrics import cosines
from xcompress.modeling.student import Student, StudentConfig, encode
from xcompress.recipe import load_recipe
from xcompress.tokenizer_file import read_tokenizer

Array = NDArray[np.float32]
LEAST_COSINE = {"plain": 0.999, "centered": 0.995}
"""Of the graph's vectors with the student's. Centring magnifies what 8 bits change."""


def main() -> None:
    """Rebuild the student, compare it with the graph, and describe the run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of the run, with its steps corpus and labelled")
    parser.add_argument("--model", help="the released model that the run trained, or folder of a bundle in 4 bits")
    parser.add_argument("--recipe", help="recipe of the run; by default the shipped one with the folder's name")
    arguments = parser.parse_args()
    run, facts = arguments.run, {}
    if arguments.model:
        bundle = Path(arguments.model) if Path(arguments.model).is_dir() else released_folder(arguments.model)
        student, least = read_back(bundle)
        with whole_folder(run / "student") as folder:
            student.save(folder, read_tokenizer(bundle / "tokenizer.json"))
        manifest = read_manifest(bundle)
        facts = {key: manifest[key] for key in ("recipe_hash", "student_hash", "finished", "languages")}
        say(f"least cosine with the graph: {least:.5f}")
    recipe = load_recipe(arguments.recipe or run.name).model_dump(mode="json")
    write_text(run / "recipe.yaml", yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True))
    read = ["corpus", *(["labelled"] if any(recipe["labelled"].values()) else [])]  # the steps that read text
    steps = {step: {"facts": read_json(run / step / "step.json")["facts"]} for step in read}
    write_json(run / MANIFEST, facts | {"steps": steps})
    emit(str(run))


def read_back(folder: Path) -> tuple[Student, float]:
    """Return the student that a graph in 4 bits computes, and the least cosine of their vectors.

    :raises GateError: when a cosine is under 0.999.
    """
    manifest = read_manifest(folder)
    graph = onnx.load(folder / graphs_of(folder, manifest)["int4"])
    stored = {tensor.name: tensor for tensor in graph.graph.initializer}
    values = {name: numpy_helper.to_array(tensor) for name, tensor in stored.items() if name != "word.rows"}
    weights: dict[str, Array] = {
        "embeddings.word.weight": _token_embeddings(stored["word.rows"], values["word.scales"].astype(np.float32)),
        "embeddings.position.weight": values["position.rows"] * values["position.scales"],
    }
    for name, product in _products(graph, values).items():
        weights[f"{name}.weight"] = product
    for name, value in values.items():
        if name.endswith((".bias", "norm.weight")):
            weights[f"embeddings.{name}" if name.startswith("norm.") else name] = value

    # The position embeddings hold the token type embedding, too.
    config, factored = read_json(folder / "config.json"), "embeddings.projection.weight" in weights
    student = Student(
        StudentConfig(
            vocab_size=manifest["vocab_size"],
            hidden_size=manifest["hidden_size"],
            num_attention_heads=config["num_attention_heads"],
            layer_norm_eps=config["layer_norm_eps"],
            intermediate_size=len(weights["unit.0.intermediate.bias"]),
            unit_layers=manifest["unit_layers"],
            bottleneck=weights["embeddings.word.weight"].shape[1] if factored else None,
            head_size=manifest["dimension"] if "head.bias" in weights else None,
            max_position_embeddings=manifest["max_tokens"],
            type_vocab_size=0,
            pad_token_id=manifest["pad_token_id"],
            normalize=manifest["normalize"],
            prefix=manifest["prefix"],
            max_tokens=manifest["max_tokens"],
        )
    ).eval()
    student.load_state_dict({name: torch.from_numpy(np.array(weight)) for name, weight in weights.items()})
    texts = real_sentences()[:256]
    vectors = encode(student, read_tokenizer(folder / "tokenizer.json"), texts)
    least = float(cosines(Encoder(folder, engine="onnxruntime").encode(texts), vectors).min())
    if least < LEAST_COSINE["centered" if manifest.get("centered") else "plain"]:
        raise GateError(f"{folder}: least cosine {least:.4f} between graph and student; the graph has another layout")
    return student, least


def _token_embeddings(rows: onnx.TensorProto, scales: Array) -> Array:
    """Return the token embeddings (V, B): two values of 4 bits a byte, low ones first, and a scale for 32 of them."""
    packed = np.frombuffer(rows.raw_data, dtype=np.uint8).reshape(rows.dims[0], -1)
    numbers = np.stack([packed & 15, packed >> 4], axis=2).reshape(len(packed), -1).astype(np.float32) - 8
    return numbers * np.repeat(scales, numbers.shape[1] // scales.shape[1], axis=1)


def _products(graph: onnx.ModelProto, values: dict[str, NDArray[np.generic]]) -> dict[str, Array]:
    """Return the weight (out, in) of each quantised product, by its name in the student."""
    nodes = {node.input[1]: node for node in graph.graph.node if node.op_type in ("MatMulIntegerToFloat", "QAttention")}
    unpacked = onnx.ModelProto()
    unpacked.CopyFrom(graph)
    del unpacked.graph.output[:]
    unpacked.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.INT8, None) for name in nodes)
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(unpacked.SerializeToString(), plain)
    tokens = np.ones((1, 1), dtype=np.int64)
    integers = session.run(list(nodes), {"input_ids": tokens, "attention_mask": tokens})

    weights = {}
    for matrix, (name, node) in zip(integers, nodes.items(), strict=True):
        product = name.removesuffix(".values")
        weight = matrix.astype(np.float32) * values[f"{product}.scales"]
        if f"{product}.smooth" in values:
            weight *= values[f"{product}.smooth"][:, None]
        if f"{product}.input_scale" not in values:  # inputs are scaled by token, to 255 less the zero point
            weight *= 255 - float(values[node.input[4]])
        weights[product] = np.ascontiguousarray(weight.T)
    return weights


if __name__ == "__main__":
    run_script(main)
