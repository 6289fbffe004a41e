#!/bin/sh
# arm64.sh SOURCE BUILD ROOT FIXTURE... -- the whole program for AArch64: cross-built with what tools/cross/packages.sh has put below ROOT,
# plugins probed, the beginning of a story with each instruction set, fixtures in class exact, one of each kind of weight in that of auto, under qemu-user. That runs a program of the
# other architecture, but not what it starts: so the probe is a script here, as `minerva` is. 77 = tools or packages are missing.
set -eu
source=$1 build=$2/arm64 root=$3
shift 3
for tool in aarch64-linux-gnu-gcc qemu-aarch64 meson; do
    command -v $tool >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
[ -e "$root/complete" ] || { echo "skipped: $root is not there (tools/cross/packages.sh makes it)"; exit 77; }
mkdir -p "$build"
cat > "$build/cross.new" <<END
[binaries]
pkgconfig = 'pkg-config'
exe_wrapper = ['qemu-aarch64', '-L', '$root']
[built-in options]
prefer_static = true
c_link_args = ['-Wl,-rpath-link,$root/usr/lib/aarch64-linux-gnu'] # what libminerva needs: some programs do not name it
[properties]
sys_root = '$root'
pkg_config_libdir = '$root/usr/lib/aarch64-linux-gnu/pkgconfig'
END
cmp -s "$build/cross.new" "$build/cross.txt" || rm -rf "$build/build" # meson reads it once
mv "$build/cross.new" "$build/cross.txt"
probe=$build/build/runtime/registry/minerva-probe
if [ -e "$probe.arm64" ]; then mv "$probe.arm64" "$probe"; fi # ninja knows it by this name
[ -e "$build/build/build.ninja" ] || meson setup "$build/build" "$source" --cross-file "$source/tools/cross/aarch64.txt" \
    --cross-file "$build/cross.txt" -Dbuildtype=release -Doptimization=1 -Dtests=disabled -Dcuda=disabled -Dopencl=disabled > "$build/setup.txt" || { cat "$build/setup.txt"; exit 1; }
ninja -C "$build/build" > "$build/ninja.txt" || { grep -A5 FAILED "$build/ninja.txt"; exit 1; }
mv "$probe" "$probe.arm64"
emulated() { # SCRIPT PROGRAM
    printf '#!/bin/sh\nunset LD_LIBRARY_PATH\nexec qemu-aarch64 ${ARM64_CPU:+-cpu "$ARM64_CPU"} -L "%s" "%s" "$@"\n' "$root" "$2" > "$1"
    chmod +x "$1"
}
emulated "$probe" "$probe.arm64"
emulated "$build/minerva" "$build/build/tools/minerva"
# The golden driver: no test is built there, for the packages below ROOT are those of a program.
aarch64-linux-gnu-gcc -O1 -D_GNU_SOURCE -I"$source/include" -I"$root/usr/include" "$source"/tests/golden/golden*.c -o "$build/golden.arm64" \
    -L"$build/build/runtime" -lminerva -L"$root/usr/lib/aarch64-linux-gnu" -lcjson -lm -Wl,-rpath,"$build/build/runtime"
emulated "$build/golden" "$build/golden.arm64"
export MINERVA_BUILD_ROOT="$build/build" MINERVA_PROBE_TIMEOUT=100 XDG_CACHE_HOME="$build/cache" PYTHONDONTWRITEBYTECODE=1
"$build/minerva" plugins | awk 'NR > 1 && $5 != "ok" { print; bad = 1 } END { exit bad || NR < 6 }'
for cpu in cortex-a57 neoverse-n1 max; do # Advanced SIMD alone, dot products, all
    echo "qemu-aarch64 -cpu $cpu"
    ARM64_CPU=$cpu "$build/golden" story-begin auto:qwen3-moe auto:llama-mlx4 # the last two: bf16, 8-bit activations
done
"$build/golden" -i generic story-begin auto:qwen3-moe auto:llama-mlx4 -i i8mm story-begin auto:qwen3-moe auto:llama-mlx4
# Class auto takes other kernels by the type of a weight, and for experts: f32, f16, bf16, 8-bit and MXFP4, as far as they are not above.
n=$#
for name in "$@"; do
    set -- "$@" "fixture:$name"
done
shift $n
"$build/golden" "$@" &
fixtures=$!
"$build/golden" auto:llama auto:llama-sharded auto:gemma2 auto:mixtral auto:gpt-oss auto:gpt-oss-mxfp4 auto:llama-mlx8 && wait $fixtures
