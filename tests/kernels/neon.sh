#!/bin/sh
# neon.sh SOURCE BUILD NAME|PROCESSOR|FLAGS|BODIES... -- cross-builds cpu_simd's rows for AArch64 and runs test_rows under qemu, each
# instruction set once: on CPUs that have Advanced SIMD alone and with dot products, then capped on one that has all. 77 = tools missing.
set -eu
cc=aarch64-linux-gnu-gcc
for tool in $cc qemu-aarch64; do
    command -v $tool >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
src=$1/plugins/cpu_simd
out=$2/neon
mkdir -p "$out"
flags="-std=gnu11 -O1 -Wall -Wextra -D_GNU_SOURCE -ffp-contract=off -I$1/include -I$1/plugins/cpu_host -I$1/plugins/common -I$1/tools/check -I$1/dtype -I$1/ground"
rm -f "$out"/*.o
top=$1
shift 2
unit() { # NAME PROCESSOR FLAGS BODIES, as plugins/cpu_simd/meson.build has them
    unset IFS
    optimised=
    [ "$1" = generic ] && optimised=-O0 # linked in, not run
    for body in $4; do
        $cc $flags $optimised $3 -c "$src/$body" -o "$out/$1_${body%.c}.o"
    done
}
for line; do
    case $line in *"||"* | *"|aarch64|"*) ;; *) continue ;; esac
    IFS='|'
    unit $line
done
$cc $flags "$src/attention.c" "$src/attention_distance.c" "$src/blas.c" "$src/grids.c" "$src/isa.c" "$src/lanes.c" "$src/linear.c" "$src/misc.c" "$src/moe.c" "$src/plan.c" "$src/quant.c" "$src/table.c" \
    "$top"/tests/kernels/test_rows*.c "$top/tools/check/case_type.c" "$top/plugins/reference/row.c" "$top"/dtype/*.c \
    "$out"/*.o -o "$out/test_rows" -lm -lpthread
rows() { # CPU CAP EXPECTED [MODE]
    echo "qemu-aarch64 -cpu $1, at most $2"
    qemu-aarch64 -cpu "$1" -L /usr/aarch64-linux-gnu "$out/test_rows" "${4:-quick}" "$2" > "$out/rows.txt" || { cat "$out/rows.txt"; exit 1; }
    cat "$out/rows.txt"
    grep -q "level $3," "$out/rows.txt" || { echo "expected: $3"; exit 1; }
}
rows cortex-a57 bf16 neon
rows neoverse-n1 bf16 dotprod
for isa in i8mm bf16; do
    rows max $isa $isa
done
rows max,sve-default-vector-length=32 sve256 sve256 brief # qemu calls a function for each instruction of SVE
# Rows for 256 bits would compute nonsense with other vectors: levels only.
for bytes in 16 64; do
    qemu-aarch64 -cpu max,sve-default-vector-length=$bytes -L /usr/aarch64-linux-gnu "$out/test_rows" level sve256 > "$out/rows.txt"
    grep -q "level bf16," "$out/rows.txt" || { cat "$out/rows.txt"; echo "expected: bf16"; exit 1; }
done
