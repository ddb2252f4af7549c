"""Texts, recipes, command lines and corpora that nobody would write."""

import contextlib
import gzip
import io
import lzma
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
from hypothesis import strategies as st

from tests.fuzz.tally import REFUSED, SEED, WORKED, Tally, generate
from xcompress.bundle.encoder import Encoder
from xcompress.cli.main import main
from xcompress.corpus.build import build
from xcompress.corpus.graded import builtin
from xcompress.corpus.labelled import read_entailment, read_graded
from xcompress.demo.sentences import read_sentences
from xcompress.recipe import load_recipe
from xcompress.recipe.shipped import shipped

TEXTS_AT_ONCE = 10
SENTENCES = builtin().within(["en", "de", "ar"]).sentences()[::40]
ODD = st.characters(categories=("Cc", "Cf", "Cs", "Co", "Cn", "Mn", "Me", "So", "Zl", "Zs"))
_SHORT = (
    st.text(max_size=20),
    st.text(ODD, max_size=12),
    st.tuples(st.sampled_from(SENTENCES), st.text(ODD, max_size=3)).map("".join),
)
TEXT = st.one_of(
    *_SHORT * 5, st.tuples(st.text(min_size=1, max_size=3), st.integers(1, 2000)).map(lambda pair: pair[0] * pair[1])
)
"""One text in 16 is long."""
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**20), 10**20),
        st.floats(),
        st.text(max_size=12),
        st.sampled_from(
            ["~", "null", ".inf", "-1", "1e400", "../x", "/", "{}", "[", "&a [*a]", "!!python/name:os", "9" * 5000]
        ),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
"""Values as JSON and YAML have them, of any type."""
COMMANDS = ("distill", "export", "bench", "trim", "embed", "search", "models", "demo", "recipe", "")
OPTIONS = (
    *("--json", "--help", "--output", "--model", "--precision", "--threads", "--batch-size", "--top", "--run-folder"),
    *(
        "--recipe",
        "--device",
        "--data",
        "--gate",
        "--onnx",
        "--quantize",
        "--quick",
        "--languages",
        "--max-tokens",
        "-o",
    ),
    *(
        "--text",
        "--port",
        "--no-serve",
        "--target",
        "--vocabulary",
        "--dry-run",
        "--keep",
        "--debug=1",
        "-x",
        "--",
        "-",
    ),
)
WORDS = st.one_of(
    st.sampled_from(
        ["nowhere", "..", "/", "~nosuchuser/x", "file.txt", "empty", "-1", "0", "1e30", "nan", "x" * 300, "a=b"]
    ),
    st.text(st.characters(exclude_characters="\0"), max_size=8),
)
PACKED = (("", bytes), (".gz", gzip.compress), (".xz", lzma.compress))
STRANGE_BYTES = (
    b"\0",
    b"\xff\xfe",
    b"\r",
    b"\n",
    b"\t",
    b'"',
    b"\xed\xa0\x80",
    b"\xc3",
    b"\xe2\x80\xa8",
    b"\xef\xbb\xbf",
    b"\x1b[2J",
)


def encode_texts(encoder: Encoder, how: str, count: int) -> Tally:
    """Encode texts: each gets a finite vector of length 1, near the one it gets alone."""
    tally = Tally(f"texts encoded {how}")

    def use(texts: list[str]) -> None:
        def encode() -> None:
            vectors = encoder.encode(texts)
            assert vectors.shape == (len(texts), encoder.dimension) and vectors.dtype == np.float32
            assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < 1e-3
            assert vectors[0] @ encoder.encode(texts[0]) > 1 - 1e-5

        tally.attempt(texts, encode, len(texts))

    generate(st.lists(TEXT, min_size=TEXTS_AT_ONCE, max_size=TEXTS_AT_ONCE), -(-count // TEXTS_AT_ONCE), use)
    return tally


def load_recipes(folder: Path, count: int) -> Tally:
    """Load shipped recipes with damaged text, with random values at random keys, and with random overrides."""
    tally, file = Tally("recipes loaded"), folder / "recipe.yaml"
    texts = [path.read_text(encoding="utf-8") for path in shipped().values() if "extends" not in path.read_text()]
    keys = sorted({line.split(":")[0].strip(" -") for text in texts for line in text.splitlines() if ":" in line})

    @st.composite
    def recipes(draw: st.DrawFn) -> tuple[str, list[str]]:
        text = draw(st.sampled_from(texts))
        lines = text.splitlines()
        place = draw(st.integers(0, len(lines) - 1))
        value = draw(st.one_of(VALUES, st.text(max_size=20)))
        kind = draw(st.sampled_from(["value", "line", "cut", "override"]))
        if kind == "override":
            path = ".".join(draw(st.lists(st.sampled_from(keys), min_size=1, max_size=3)))
            return text, [f"{path}={value}"]
        if kind == "cut":
            return text[: draw(st.integers(0, len(text)))], []
        lines[place] = f"{lines[place].split(':')[0]}: {value}" if kind == "value" else str(value)
        return "\n".join(lines), []

    def use(recipe: tuple[str, list[str]]) -> None:
        text, overrides = recipe
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        tally.attempt(recipe, partial(load_recipe, file, overrides))

    generate(recipes(), count, use)
    return tally


def run_command_lines(folder: Path, count: int) -> Tally:
    """Run commands with random options in a folder without models; each ends with an exit code and no traceback."""
    tally = Tally("command lines run")
    (folder / "empty").mkdir()
    (folder / "file.txt").write_text("one line\n")
    words = st.lists(st.one_of(WORDS, st.sampled_from(OPTIONS)), max_size=5)

    def use(line: tuple[str, list[str]]) -> None:
        command, arguments = line
        extra = ["--no-serve"] if command == "demo" else []
        tally.attempt(line, lambda: _run_in_process([word for word in (command, *arguments, *extra) if word]))

    with contextlib.chdir(folder):
        generate(st.tuples(st.sampled_from(COMMANDS), words), count, use)
    return tally


def _run_in_process(arguments: list[str]) -> str:
    """Run one command line in this process; return its end."""
    output, errors, argv, stdin = io.StringIO(), io.StringIO(), sys.argv, sys.stdin
    sys.argv, sys.stdin = ["xcompress", *arguments], io.TextIOWrapper(io.BytesIO(b"one line\n"))
    try:
        with redirect_stdout(output), redirect_stderr(errors):
            main()
    except SystemExit as stopped:
        code = stopped.code or 0
    finally:
        sys.argv, sys.stdin = argv, stdin
    said = errors.getvalue()
    assert code in (0, 1, 2, 3), f"exit code {code}"
    assert "Traceback" not in said and "error: unexpected" not in said, said
    assert code == 0 or said.strip() or output.getvalue().strip(), "no message"
    return WORKED if code == 0 else REFUSED


def read_corpora(folder: Path, count: int) -> Tally:
    """Build corpora, and read labelled pairs and lists of sentences, from damaged tables and catalogues."""
    tally, random = Tally("corpora read"), Random(SEED)
    english, german = (builtin().within([code]).sentences()[:60] for code in ("en", "de"))
    table = "".join(f"{left}\t{right}\n" for left, right in zip(english, german, strict=True)).encode()
    graded = "".join(
        f"{left}\t{right}\t{place % 6}\n" for place, (left, right) in enumerate(zip(english, german, strict=True))
    )
    entries = "".join(f'msgid "{left}"\nmsgstr "{right}"\n\n' for left, right in zip(english, german, strict=True))
    for number in range(count):
        place = folder / f"corpus{number}"
        (place / "locale").mkdir(parents=True)
        suffix, pack = random.choice(PACKED)
        tsv, rows, catalogue = place / f"pairs.tsv{suffix}", place / f"graded.tsv{suffix}", place / "locale/de.po"
        for path, content in ((tsv, table), (rows, graded.encode())):
            is_before = random.random() < 0.5  # damage the text, or the compressed file
            content = pack(damage(content, random)) if is_before else damage(pack(content), random)
            path.write_bytes(content)
        catalogue.write_bytes(damage(entries.encode(), random))
        sources = [("po", place / "locale")], [(tsv, "de", "table")]
        with redirect_stderr(io.StringIO()):  # warnings about lines that are left out
            tally.attempt((number, "build"), partial(build, place / "built", *sources, ["de"], holdout_sentences=5))
            for read in (read_graded, read_entailment, read_sentences):
                tally.attempt((number, read.__name__), partial(read, rows))
        shutil.rmtree(place)
    return tally


def damage(content: bytes, random: Random) -> bytes:
    """Change a few places of a file: flip bits, cut, repeat, or put in bytes that no text has."""
    for _ in range(random.randint(1, 4)):
        place = random.randrange(len(content) + 1)
        kind = random.choice(("flip", "cut", "insert", "repeat", "remove"))
        if kind == "flip" and place < len(content):
            content = flip(content, place, random.randrange(8))
        elif kind == "cut":
            content = content[:place] if random.random() < 0.3 else content
        elif kind == "insert":
            content = content[:place] + random.choice(STRANGE_BYTES) + content[place:]
        elif kind == "repeat":
            content = content[:place] + content[max(0, place - 50) : place] * random.randint(1, 200) + content[place:]
        else:
            content = content[:place] + content[place + random.randint(1, 30) :]
    return content


def flip(content: bytes, place: int, bit: int) -> bytes:
    """Flip one bit of a byte."""
    return content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]
