#!/bin/sh
# Fill a folder with what `xcompress bench --device mobile` needs to run a bundle on an emulated arm64:
#
#     sh benchmarks/arm64.sh DIR
#     export XCOMPRESS_ARM64=DIR
#
# It needs a Debian that has Python $PYTHON (3.11 where not set), apt, dpkg and pip, and no rights: packages come from
# the apt sources and wheels from the index that are set up here, and go into DIR alone. The wheels are of the versions
# that are installed beside xcompress (python3, or what $PYTHON3 names), so that both sides run the same code.
set -eu

[ "${1-}" != --help ] || { echo "usage: sh benchmarks/arm64.sh DIR"; exit; }
[ $# -eq 1 ] || { echo "usage: sh benchmarks/arm64.sh DIR" >&2; exit 2; }
python=${PYTHON:-3.11}
own_python=${PYTHON3:-python3}
mkdir -p "$1"
root=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
chmod 755 "$work"

echo "arm64: Python $python and its libraries" >&2
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/packages"
: >"$work/status"
arm64_apt() {
    apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root \
        -o Dir::State="$work/state" -o Dir::State::status="$work/status" -o Dir::Cache="$work/cache" "$@"
}
arm64_apt update
(cd "$work/packages" && arm64_apt download "python$python-minimal" "libpython$python-minimal" \
    "libpython$python-stdlib" libc6 libgcc-s1 libstdc++6 zlib1g libexpat1 libffi8)
for package in "$work/packages"/*.deb; do
    dpkg -x "$package" "$root"
done

echo "arm64: numpy, onnxruntime, tokenizers, and LiteRT if it is installed" >&2
pins=$("$own_python" -c 'from importlib.metadata import version
from importlib.util import find_spec
names = ["numpy", "onnxruntime", "tokenizers"] + ["ai-edge-litert"] * (find_spec("ai_edge_litert") is not None)
print(*(f"{name}=={version(name)}" for name in names))')
rm -rf "$root/site"
# $pins is several words
"$own_python" -m pip install --no-deps --only-binary=:all: --python-version "$python" --implementation cp \
    --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux2014_aarch64 \
    --target "$root/site" $pins

# onnxruntime learns from /proc/cpuinfo on which arm64 it runs, and ends where that describes another processor.
mkdir -p "$root/proc"
number=0
: >"$root/proc/cpuinfo"
while [ "$number" -lt "$(nproc --all)" ]; do
    printf '%s\t: %s\n' processor "$number" \
        Features "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp" \
        "CPU implementer" 0x41 "CPU architecture" 8 "CPU variant" 0x4 "CPU part" 0xd0b "CPU revision" 1
    echo
    number=$((number + 1))
done >>"$root/proc/cpuinfo"
echo "arm64: ready; export XCOMPRESS_ARM64=$root" >&2
