import gzip
import lzma
import re
from pathlib import Path

import pytest

from xcompress.corpus.lines import LONGEST, text_lines
from xcompress.errors import InputError


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_lines_are_decoded_and_keep_their_breaks(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.txt{suffix}"
    pack = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[suffix]
    path.write_bytes(pack(b"\xef\xbb\xbfgr\xc3\xbcn\r\n\nend"))
    assert list(text_lines(path)) == ["grün\r\n", "\n", "end"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"one\ngr\xfcn\n", "x.txt:2: not UTF-8"),
        (b"one\n" + b"a" * (LONGEST + 5), "x.txt:2: longer than 20,000 bytes"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "x.txt").write_bytes(content)
    with pytest.raises(InputError, match=re.escape(says)):
        list(text_lines(tmp_path / "x.txt"))


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_damaged_files_are_named(tmp_path: Path, suffix: str) -> None:
    pack = gzip.compress if suffix == ".gz" else lzma.compress
    packed = pack("".join(f"line {n * n}\n" for n in range(3000)).encode())
    (tmp_path / f"x{suffix}").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(InputError, match=rf"x\{suffix}: cannot be read \(cut off after line \d+ .*copy the file again"):
        list(text_lines(tmp_path / f"x{suffix}"))
