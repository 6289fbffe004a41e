#!/bin/sh
# Builds the fuzz targets with clang and libFuzzer: build.sh OUT_FOLDER. Then, for example:
#   OUT/fuzz_gguf -max_total_time=120 -max_len=4096 OUT/corpus_gguf
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:?usage: build.sh OUT_FOLDER}
mkdir -p "$out/corpus_gguf" "$out/corpus_safetensors"
flags="-g -O1 -std=gnu11 -D_GNU_SOURCE -DMN_PLUGIN_VERSION=\"0\" -I$root/include -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined"
common="$root/loaders/common/util.c $root/loaders/common/parsed.c $root/loaders/common/plugin.c"
# shellcheck disable=SC2086
${CLANG:-clang} $flags "$root/tests/fuzz/fuzz_gguf.c" "$root"/loaders/gguf/*.c $common -o "$out/fuzz_gguf"
# shellcheck disable=SC2046,SC2086
${CLANG:-clang} $flags "$root/tests/fuzz/fuzz_safetensors.c" "$root"/loaders/safetensors/*.c $common \
    $(pkg-config --cflags --libs libcjson) -lm -o "$out/fuzz_safetensors"
base=$root/runtime/base
# shellcheck disable=SC2086
${CLANG:-clang} $flags -I"$root/runtime" "$root/tests/fuzz/fuzz_note.c" "$root/runtime/registry/note.c" "$root/runtime/registry/isa.c" \
    "$base/error.c" "$base/alloc.c" "$base/number.c" "$base/utf8.c" "$base/str.c" -o "$out/fuzz_note"
# Seeds: sound files to begin from.
data=$root/tests/data
z7='\000\000\000\000\000\000\000'
{
    printf 'GGUF\003\000\000\000\001%b\002%b' "$z7" "$z7"
    printf '\024%bgeneral.architecture\010\000\000\000\005%bllama' "$z7" "$z7"
    printf '\001%ba\011\000\000\000\010\000\000\000\001%b\001%bx' "$z7" "$z7" "$z7"
    printf '\001%bt\002\000\000\000\004%b\002%b\000\000\000\000\000%b' "$z7" "$z7" "$z7" "$z7"
    head -c 160 /dev/zero
} >"$out/corpus_gguf/small"
head -c 6000 "$data/storyteller-q8_0.gguf" >"$out/corpus_gguf/head"
for d in llama llama3-rope qwen2 qwen3; do
    { printf '\000'; cat "$data/fixtures/$d/config.json"; } >"$out/corpus_safetensors/config-$d"
done
{ printf '\001'; cat "$data/fixtures/llama-sharded/model.safetensors.index.json"; } >"$out/corpus_safetensors/index"
{ printf '\003'; head -c 4000 "$data/fixtures/llama/model.safetensors"; } >"$out/corpus_safetensors/weights"
