import json
import shutil
import subprocess
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, normalizers

from tests.helpers import ROOT
from tests.helpers.odd_texts import ODD
from tests.helpers.vocabularies import MAKERS, tokenizer_json
from xcompress.bundle.encoder import Encoder
from xcompress.bundle.released import released_folder, released_names
from xcompress.corpus.graded import builtin
from xcompress.demo.folder import KNOWN, check_tokenizer
from xcompress.demo.text import packaged_text
from xcompress.errors import InputError

PAGE = ROOT / "xcompress" / "demo" / "page"
IDS_IN_NODE = """
import { readFileSync } from "node:fs";
const { tokenizer } = await import(process.argv[1]);
const { described, most, texts } = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(texts.map(tokenizer(described, most))));
"""


def test_a_tokenizer_that_the_page_cannot_do() -> None:
    tokenizer = Tokenizer.from_str(tokenizer_json("unigram"))
    check_tokenizer(Path("tokenizer.json"), json.loads(tokenizer.to_str()))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Nmt()])
    with pytest.raises(InputError, match=r"tokenizer\.json: its normalizer is Nmt, which the demo's page cannot do"):
        check_tokenizer(Path("tokenizer.json"), json.loads(tokenizer.to_str()))


def test_the_page_knows_what_it_is_said_to_know() -> None:
    files = {"normalizer": "normalizers.js", "pre_tokenizer": "splitters.js", "model": "models.js"}
    for part, kinds in KNOWN.items():
        script = (PAGE / "tokenizer" / files.get(part, "tokenizer.js")).read_text(encoding="utf-8")
        for kind in kinds:
            assert kind in script


def ids_in_node(tokenizer: Tokenizer, most: int, texts: list[str]) -> list[list[int]]:
    """Let the page's script tokenise."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    given = json.dumps({"described": json.loads(tokenizer.to_str()), "most": most, "texts": texts})
    command = [node, "--input-type=module", "-e", IDS_IN_NODE, (PAGE / "tokenizer" / "tokenizer.js").as_uri()]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", MAKERS)
def test_token_ids_are_those_of_python(kind: str) -> None:
    tokenizer = Tokenizer.from_str(tokenizer_json(kind))
    tokenizer.no_padding()
    tokenizer.enable_truncation(48)
    texts = [*builtin().sentences(), *ODD]
    assert ids_in_node(tokenizer, 48, texts) == [encoding.ids for encoding in tokenizer.encode_batch(texts)]


@pytest.mark.parametrize("name", released_names() or [None])
def test_token_ids_of_released_models(name: str | None) -> None:
    if name is None:
        pytest.skip("no released model in this checkout")
    encoder, file = Encoder.released(name), released_folder(name) / "tokenizer.json"
    check_tokenizer(file, json.loads(file.read_bytes()))
    texts = [*(sentence.text for sentence in packaged_text([]).sentences), *ODD]
    given = [encoder.manifest["prefix"] + text for text in texts]
    most = encoder.manifest["max_tokens"]
    assert ids_in_node(Tokenizer.from_file(str(file)), most, given) == encoder.token_ids(texts)


def test_token_ids_of_other_normalizers() -> None:
    tokenizer = Tokenizer.from_str(tokenizer_json("unigram"))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Strip(),
            normalizers.NFD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace("(", "-"),
            normalizers.Precompiled(small_charsmap()),
        ]
    )
    texts = [*ODD, "  (Dé) caf\u00e9 \u3042 Kaffee  ", "aa b"]
    assert tokenizer.encode("z").ids == tokenizer.encode("a").ids, "the map is used"
    assert ids_in_node(tokenizer, 5000, texts) == [encoding.ids for encoding in tokenizer.encode_batch(texts)]


def small_charsmap() -> bytes:
    """Make a table of SentencePiece in which `a` stands for z, and two letters for あ."""
    units, free = [0] * 1536, count(512, 256)
    units[0] = 256 << 10
    for letter, value in {"z": 0, "\u3042": 2}.items():
        place, node = 256, 0
        for byte in letter.encode():
            node, place = place ^ byte, next(free)
            units[node] = ((node ^ place) << 10) | byte
        units[node] |= 1 << 8
        units[place] = value | 1 << 31
    trie = np.array(units, dtype="<u4").tobytes()
    return len(trie).to_bytes(4, "little") + trie + b"a\0oo\0"
