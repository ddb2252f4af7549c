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
from xcompress.demo.folder import SUPPORTED, check_tokenizer
from xcompress.demo.sentences import packaged_sentences
from xcompress.errors import InputError

PAGE = ROOT / "xcompress" / "demo" / "page"
IDS_IN_NODE = """
import { readFileSync } from "node:fs";
const { createTokenizer } = await import(process.argv[1]);
const { tokenizerJson, maxTokens, texts } = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(texts.map(createTokenizer(tokenizerJson, maxTokens))));
"""


@pytest.mark.parametrize(
    "normalizer",
    [{"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Nmt"}]}, {"type": "Nmt", "normalizers": []}],
    ids=["in a sequence", "with an entry that tokenizers ignores"],
)
def test_an_unsupported_tokenizer_is_refused(normalizer: dict[str, object], tmp_path: Path) -> None:
    file, description = tmp_path / "tokenizer.json", json.loads(tokenizer_json("unigram"))
    file.write_text(json.dumps(description), encoding="utf-8")
    check_tokenizer(file)
    file.write_text(json.dumps(description | {"normalizer": normalizer}), encoding="utf-8")
    with pytest.raises(InputError, match=r"tokenizer\.json: the demo page does not support the normalizer Nmt"):
        check_tokenizer(file)


def test_the_page_implements_every_supported_component() -> None:
    files = {"normalizer": "normalizers.js", "pre_tokenizer": "pre_tokenizers.js", "model": "models.js"}
    for component, kinds in SUPPORTED.items():
        script = (PAGE / "tokenizer" / files.get(component, "tokenizer.js")).read_text(encoding="utf-8")
        for kind in kinds:
            assert kind in script


def ids_in_node(tokenizer: Tokenizer, max_tokens: int, texts: list[str]) -> list[list[int]]:
    """Tokenize with the page's script."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    request = json.dumps({"tokenizerJson": json.loads(tokenizer.to_str()), "maxTokens": max_tokens, "texts": texts})
    command = [node, "--input-type=module", "-e", IDS_IN_NODE, (PAGE / "tokenizer" / "tokenizer.js").as_uri()]
    result = subprocess.run(command, input=request, capture_output=True, text=True, check=False, encoding="utf-8")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("kind", MAKERS)
def test_token_ids_equal_those_of_python(kind: str) -> None:
    tokenizer = Tokenizer.from_str(tokenizer_json(kind))
    tokenizer.no_padding()
    tokenizer.enable_truncation(48)
    texts = [*builtin().every(4).sentences(), *ODD]
    assert ids_in_node(tokenizer, 48, texts) == [encoding.ids for encoding in tokenizer.encode_batch(texts)]


@pytest.mark.parametrize("name", released_names() or [None])
def test_token_ids_of_released_models(name: str | None) -> None:
    if name is None:
        pytest.skip("no released model in this checkout")
    encoder, file = Encoder.released(name), released_folder(name) / "tokenizer.json"
    check_tokenizer(file)
    texts = [*(sentence.text for sentence in packaged_sentences([]).sentences), *ODD]
    prefixed = [encoder.manifest["prefix"] + text for text in texts]
    max_tokens = encoder.manifest["max_tokens"]
    assert ids_in_node(Tokenizer.from_file(str(file)), max_tokens, prefixed) == encoder.token_ids(texts)


def test_token_ids_with_further_normalizers() -> None:
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
    assert tokenizer.encode("z").ids == tokenizer.encode("a").ids, "the character map has an effect"
    assert ids_in_node(tokenizer, 5000, texts) == [encoding.ids for encoding in tokenizer.encode_batch(texts)]


def small_charsmap() -> bytes:
    """Make a character map of SentencePiece that replaces z by `a`, and あ by two letters."""
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
