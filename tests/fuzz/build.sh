#!/bin/sh
# Builds everything with clang and libFuzzer, ASan and UBSan: build.sh OUT_FOLDER. Then OUT_FOLDER holds fuzz_*, the loaders they need and
# corpus/NAME with the seeds; for example:
#   cd OUT_FOLDER && ./fuzz_gguf -max_total_time=3600 -timeout=10 -malloc_limit_mb=600 -dict=dict/gguf.dict corpus/gguf
# A finding becomes tests/fuzz/corpus/NAME/crash-WHAT, which tests run from then on.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:?usage: build.sh OUT_FOLDER}
mkdir -p "$out"
out=$(cd "$out" && pwd)
build=$out/build
[ -e "$build/build.ninja" ] || CC=${CLANG:-clang} meson setup "$build" "$root" -Dfuzzing=true -Dbuildtype=debugoptimized -Db_lundef=false \
    -Db_sanitize=address,undefined -Dc_args='-fsanitize=fuzzer-no-link -fno-sanitize-recover=undefined' -Dcuda=disabled
# shellcheck disable=SC2046
ninja -C "$build" $(ninja -C "$build" -t targets all | sed -n 's/^\(tests\/fuzz\/fuzz_[a-z]*\): .*/\1/p; s/^\(loaders\/[a-z]*\/[a-z]*\.so\): .*/\1/p')
cp --remove-destination "$build"/tests/fuzz/fuzz_* "$out/" 2>/dev/null || true # folders of objects stay behind
mkdir -p "$out/dict"
cp "$root"/tests/fuzz/dict/* "$out/dict/"
cat "$root/tests/fuzz/dict/jinja.dict" >> "$out/dict/chat.dict" # templates are written in it
for loader in gguf safetensors mlx; do
    mkdir -p "$out/$loader"
    cp --remove-destination "$build/loaders/$loader/$loader.so" "$out/$loader/"
done
for target in "$out"/fuzz_*; do
    name=${target##*/fuzz_}
    python3 "$root/tests/fuzz/seeds.py" "$name" --into "$out/corpus/$name"
done
