#!/bin/sh
# neon.sh SOURCE BUILD -- cross-builds cpu_simd's rows for AArch64 and runs test_rows under qemu. 77 = tools missing.
set -eu
cc=aarch64-linux-gnu-gcc
for tool in $cc qemu-aarch64; do
    command -v $tool >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
src=$1/plugins/cpu_simd
out=$2/neon
mkdir -p "$out"
flags="-std=gnu11 -O2 -Wall -Wextra -D_GNU_SOURCE -ffp-contract=off -I$1/include -I$1/plugins/cpu_host -I$1/plugins/common -I$1/tools/check -I$1/dtype"
$cc $flags -c "$src/rows_generic.c" -o "$out/generic.o"
$cc $flags -c "$src/rows_neon.c" -o "$out/neon.o"
$cc $flags -march=armv8.2-a+dotprod -c "$src/rows_neon.c" -o "$out/neon_dot.o"
$cc $flags "$src/attention.c" "$src/blas.c" "$src/isa.c" "$src/linear.c" "$src/misc.c" "$src/moe.c" "$src/quant.c" "$src/table.c" \
    "$1"/tests/kernels/test_rows*.c "$1/tools/check/case_type.c" "$1/plugins/reference/row.c" "$1"/dtype/*.c \
    "$out/generic.o" "$out/neon.o" "$out/neon_dot.o" -o "$out/test_rows" -lm -lpthread
for cpu in cortex-a57 max; do # without and with the dot product instructions
    echo "qemu-aarch64 -cpu $cpu"
    qemu-aarch64 -cpu $cpu -L /usr/aarch64-linux-gnu "$out/test_rows" quick
done
