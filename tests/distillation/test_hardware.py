import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")

# Allocates 32 MB five times, inside of the context and outside, and prints how many pages were new in each.
FAULTS = """
import resource
from contextlib import nullcontext
from xcompress.distillation.hardware import freed_memory_kept
for context in (freed_memory_kept(), nullcontext()):
    with context:
        b"x" * 2**25
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(5):
            b"x" * 2**25
        print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES = 2**25 // os.sysconf("SC_PAGE_SIZE")


def new_pages(**environment: str) -> list[int]:
    ran = subprocess.run(
        [sys.executable, "-c", FAULTS], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return [int(line) for line in ran.stdout.split()]


def test_a_large_tensor_gets_the_memory_of_the_one_before() -> None:
    inside, outside = new_pages()
    assert inside < PAGES
    assert outside > 4 * PAGES, "the defaults hold again"


def test_settings_from_outside_are_left_alone() -> None:
    inside, outside = new_pages(MALLOC_MMAP_THRESHOLD_="1000000")
    assert min(inside, outside) > 4 * PAGES
