"""Put the student of a released model back into its run folder, from its graph.

    xcompress distill recipes/release.yaml          # stop it when `corpus` and, with graded pairs, `labelled` are done
    python benchmarks/release/read_back.py runs/release --model small

The weights of a run are not kept with the project, but the recipes of later models start from an earlier student. This
script writes RUN/student as `xcompress dequantize` does, and RUN/recipe.yaml and RUN/manifest.json with what is known
of the run. Without a model it only describes the run.
"""

import argparse
from pathlib import Path

import yaml

from xcompress.bundle.manifest import MANIFEST
from xcompress.console import emit, run_script, say
from xcompress.export.dequantize import read_student
from xcompress.files import read_json, whole_folder, write_json, write_text
from xcompress.recipe import load_recipe


def main() -> None:
    """Rebuild the student, compare it with the graph, and describe the run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of the run, with its steps corpus and labelled")
    parser.add_argument("--model", help="the released model that the run trained, or the folder of a bundle")
    parser.add_argument("--recipe", help="recipe of the run; by default the shipped one with the folder's name")
    arguments = parser.parse_args()
    run, facts = arguments.run, {}
    if arguments.model:
        read = read_student(arguments.model)
        with whole_folder(run / "student") as folder:
            read.student.save(folder, read.tokenizer)
        facts = {key: read.manifest[key] for key in ("recipe_hash", "student_hash", "finished", "languages")}
        say(f"lowest cosine with the graph: {read.cosine:.5f}")
    recipe = load_recipe(arguments.recipe or run.name).model_dump(mode="json")
    write_text(run / "recipe.yaml", yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True))
    with_text = ["corpus", *(["labelled"] if any(recipe["labelled"].values()) else [])]
    steps = {step: {"facts": read_json(run / step / "step.json")["facts"]} for step in with_text}
    write_json(run / MANIFEST, facts | {"steps": steps})
    emit(str(run))


if __name__ == "__main__":
    run_script(main)
