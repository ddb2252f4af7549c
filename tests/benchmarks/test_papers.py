"""benchmarks/papers.md says where each equation is; files and names have to be there."""

import ast
import re
from importlib import import_module
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from tests.helpers import ROOT
from xcompress.bench import memory
from xcompress.errors import InputError
from xcompress.files import write_json
from xcompress.recipe import load_recipe

TEXT = (ROOT / "benchmarks" / "papers.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([\w/]+\.py)`((?:,? `\w+`)+)")
PLACES = sorted({(file, name) for file, names in NAMED.findall(TEXT) for name in re.findall(r"\w+", names)})


def defined(file: str) -> set[str]:
    tree = ast.parse((ROOT / "xcompress" / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}


@pytest.mark.parametrize(("file", "name"), PLACES)
def test_code_that_papers_md_names_exists(file: str, name: str) -> None:
    assert name in defined(file)


@pytest.mark.parametrize(
    ("heading", "equations"),
    [("Multi-stage", range(1, 10)), ("Calibrated", range(1, 3)), ("Lightweight", range(1, 8))],
)
def test_every_equation_has_a_row(heading: str, equations: range) -> None:
    section = next(part for part in TEXT.split("\n## ") if part.startswith(heading))
    first_cells = re.findall(r"^\| (\d+) \|", section, re.M)
    assert sorted(set(map(int, first_cells))) == list(equations)


def test_there_are_enough_places_to_look_at() -> None:
    assert len(PLACES) > 30


def test_the_recipe_of_every_variant_loads(tmp_path: Path) -> None:
    papers = import_module("papers")
    (tmp_path / "parallel").mkdir()
    for language in papers.LANGUAGES:
        (tmp_path / "parallel" / f"anki.en-{language}.tsv.xz").touch()
    variants = [variant for part in papers.PARTS.values() for variant in part(tmp_path)]
    assert len({variant.name for variant in variants}) == len(variants)
    for variant in variants:
        assert papers.recipe_of(variant).name == variant.name
        assert variant.base is None or variant.base in {other.name for other in variants}


@pytest.mark.skipif(not memory.STATUS.exists(), reason="this system does not count a peak anew")
def test_the_memory_of_a_training_is_not_hidden_by_an_earlier_peak(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    papers = import_module("papers")

    def distill(_: object, folder: Path) -> None:
        np.ones(40_000_000, dtype=np.uint8)
        write_json(folder / "manifest.json", {"steps": {"training": {"seconds": 1.5}}})

    monkeypatch.setattr(papers, "copy_steps", lambda _, folder: folder.mkdir())
    monkeypatch.setattr(papers, "recipe_of", Mock())
    monkeypatch.setattr(papers, "distill", distill)
    np.ones(200_000_000, dtype=np.uint8)
    cost = papers.measure_layers(str(tmp_path), str(tmp_path), 2)
    assert cost == {"seconds": 1.5, "megabytes": pytest.approx(40, abs=10)}


def test_every_variant_of_the_ablation_has_a_label_and_a_recipe_that_loads(tmp_path: Path) -> None:
    ablation, report = import_module("ablation"), import_module("ablation_report")
    (tmp_path / "parallel").mkdir()
    (tmp_path / "parallel" / "anki.en-de.tsv.xz").touch()
    for seed in ablation.SEEDS:
        variants = list(ablation.variants(seed))
        assert {variant.name for variant in variants} == set(report.LABELS)
        for variant in variants:
            recipe = load_recipe(ablation.BASE, ablation.overrides(variant, tmp_path))
            assert recipe.name == variant.folder
    assert {name for _, *pair in report.CLAIMS for name in pair} <= set(report.LABELS)


def test_a_mean_has_its_confidence_interval_of_95_percent() -> None:
    report = import_module("ablation_report")
    quantile = 4.302653  # of Student's t with two degrees of freedom, at 0.975
    assert report.interval([1, 2, 3]) == pytest.approx((2, quantile / 3**0.5), rel=1e-5)
    assert (report.cell([1, 2, 3]), report.cell([2.0, 2.0]), report.cell([2.0])) == ("2.0 ± 2.5", "2.0", "2.0")


def test_a_claim_holds_only_where_the_interval_of_the_differences_is_above_0() -> None:
    verdict = import_module("ablation_report").verdict
    worse = {1: 0.0, 2: 1.0, 3: 2.0}
    assert verdict({1: 10.0, 2: 11.5, 3: 12.5}, worse).startswith("holds here, +10.3 ± ")
    assert verdict({1: 10.0, 2: -5.0, 3: 2.0}, worse).startswith("undecided here, ")
    assert verdict(worse, {1: 10.0, 2: 11.5, 3: 12.5}).startswith("does not hold here, -10.3 ± ")
    assert verdict({1: 10.0}, worse) == "one seed, no verdict: +10.0"
    assert verdict({4: 10.0}, worse) == "not measured"


def test_every_claim_names_variants_that_are_trained() -> None:
    report = import_module("papers_report")
    assert {name for _, *pair, _, _ in report.MOVING_CLAIMS for name in pair} <= {
        *report.MOVING_NAMES,
        *report.AUGMENTED,
        *report.BY_LANGUAGE,
    }
    assert {name for _, *pair, _, _ in report.DUAL_CLAIMS for name in pair} <= set(report.DUAL_NAMES)


def test_an_encoder_with_a_head_has_another_name_than_one_without() -> None:
    papers, ablation = import_module("papers_report"), import_module("ablation_report")
    with_head = {papers.DUAL_NAMES["start"], ablation.STARTS_LABELS["start"]}
    assert all("head fitted to" in name for name in with_head)
    assert not with_head & {papers.MOVING_NAMES["start"], papers.SHIPPED["start"]}
    pages = TEXT + (ROOT / "benchmarks" / "ablation.md").read_text(encoding="utf-8")
    assert all(f"| {name} |" in pages for name in (*with_head, papers.MOVING_NAMES["start"]))


def test_a_variant_that_no_part_has_is_named(tmp_path: Path) -> None:
    papers = import_module("papers")
    for name in papers.FOLDERS["shipped"]:
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(InputError, match="--only nosuch: no variant of shipped"):
        papers.main([str(tmp_path), "--part", "shipped", "--only", "nosuch"])


def test_the_pages_have_the_labels_and_claims_of_the_scripts() -> None:
    papers, ablation = import_module("papers_report"), import_module("ablation_report")
    tables = ("MOVING", "DUAL", "TOGETHER")
    labels = [*papers.BY_LANGUAGE.values(), *papers.AUGMENTED.values(), *papers.SHIPPED.values()]
    labels += [label for part in tables for label in getattr(papers, f"{part}_NAMES").values()]
    claims = [claim for claim, *_ in (*papers.MOVING_CLAIMS, *papers.DUAL_CLAIMS)]
    assert [label for label in labels if f"\n| {label} |" not in TEXT] == []
    assert [claim for claim in claims if f"\n- **{claim}:** " not in TEXT] == []
    page = (ROOT / "benchmarks" / "ablation.md").read_text(encoding="utf-8")
    assert [label for label in ablation.LABELS.values() if f"\n| {label}" not in page] == []
    assert [claim for claim, *_ in ablation.CLAIMS if f"\n- **{claim}:** " not in page] == []
