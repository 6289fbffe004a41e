#!/bin/sh
# gpu_tests.sh BUILD [PART...] -- everything that needs an NVIDIA GPU, in one command, on a machine that has one.
# gpu_tests.sh pack BUILD TO   -- gathers what a bare machine needs of a build (with its libraries) into the folder TO,
#                                 so that `TO/run/tools/gpu_tests.sh TO PART...` from the source tree finds it all.
# PART: devices kernels gemm lost check golden segments (cuda beside a plugin of two operations) batch session (late stops, forks, reuse) memcheck bench; default: all. Bench takes its model from the
# environment: TINYLLAMA, a GGUF file; without it that part is skipped. Ends with the number of failures.
set -u
here=$(cd "$(dirname "$0")/.." && pwd)

if [ "${1:-}" = pack ]; then
    build=$2 to=$3
    mkdir -p "$to/lib" "$to/tools" "$to/runtime/registry" "$to/tests/kernels"
    cp -L "$build/tools/minerva" "$to/tools/"
    cp -L "$build/runtime/libminerva.so.0" "$to/runtime/"
    cp "$build/runtime/minerva-build-tree" "$to/runtime/"
    cp "$build/runtime/registry/minerva-probe" "$to/runtime/registry/"
    mkdir -p "$to/tests/unit" "$to/tests/stub"
    cp "$build/tests/stub/vendor2.so" "$to/tests/stub/"
    cp "$build/tests/kernels/test_cuda" "$build/tests/kernels/test_cuda_lost" "$build/tests/kernels/bench_ahead" "$build/tests/kernels/cuda_gemm" "$to/tests/kernels/"
    cp "$build/tests/unit/test_session" "$to/tests/unit/"
    for d in plugins loaders; do
        for f in "$build/$d"/*/*.so; do
            name=$(basename "$(dirname "$f")")
            mkdir -p "$to/$d/$name" && cp "$f" "$to/$d/$name/"
        done
    done
    ldd "$to/tools/minerva" "$to/runtime/registry/minerva-probe" "$to/tests/kernels/test_cuda" "$to"/loaders/*/*.so "$to"/plugins/*/*.so | awk '$3 ~ /^\// {print $3}' | sort -u |
        grep -vE 'libminerva|/lib(c|m|dl|pthread|rt|gcc_s|stdc\+\+)\.so' | xargs -I{} cp -L {} "$to/lib/"
    chmod -R go-w "$to"
    exit 0
fi

build=$(cd "$1" && pwd) || exit 2
shift
[ $# -gt 0 ] || set -- devices kernels gemm lost check golden segments batch session memcheck bench
chmod -R go-w "$build" 2>/dev/null
export LD_LIBRARY_PATH="$build/lib:$build/runtime${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export MINERVA_BUILD_ROOT="$build" MINERVA_SOURCE_ROOT="$here" MINERVA_TEST_DATA="$here/tests/data" PYTHONDONTWRITEBYTECODE=1
minerva="$build/tools/minerva" story="$here/models/storyteller" failed=0
step() { # NAME COMMAND...
    name=$1 from=$(date +%s)
    shift
    if "$@"; then echo "PASS  $name ($(($(date +%s) - from)) s)"; else echo "FAIL  $name"; failed=$((failed + 1)); fi
}
golden() { python3 "$here/tests/golden/golden.py" "$minerva" "$@"; }

devices() {
    "$minerva" devices && "$minerva" run -m "$story" -p "Once" -n 4 --temp 0 --device auto 2>&1 &&
        { "$minerva" run -m "$story" -p "Once" -n 4 --device cuda:99; [ $? -eq 3 ]; }
}
# Every product and norm elsewhere: cuda gets a segment between each two, with boundary tensors at both ends.
segments() {
    beside=$(mktemp -d) && cp "$build/tests/stub/vendor2.so" "$beside/" && for f in llama qwen3; do
        MINERVA_PLUGIN_PATH="$beside" golden "fixture:$f" vendor2,cuda:0 || return 1
    done
    rm -rf "$beside"
}
memcheck() {
    compute-sanitizer --tool memcheck --error-exitcode 9 "$minerva" run -m "$story" -p "Once upon a time" -n 12 --temp 0 --device cuda:0 --precision exact &&
        compute-sanitizer --tool memcheck --error-exitcode 9 "$minerva" run -m "$here/tests/data/storyteller-q8_0.gguf" -p "Once upon a time" -n 12 --temp 0.8 --top-k 40 --device cuda:0
}
bench() {
    [ -n "${TINYLLAMA:-}" ] || { echo "SKIP  bench: TINYLLAMA is not set"; return 0; }
    "$minerva" bench -m "$TINYLLAMA" --device cuda:0 -p 512 -n 128 -r 5 && "$minerva" bench -m "$TINYLLAMA" --device cuda:0 -p 0 -n 128 -b 20 -r 5 &&
        MINERVA_LOG=debug "$build/tests/kernels/bench_ahead" "$TINYLLAMA" cuda:0 64 1 && MINERVA_LOG=debug "$build/tests/kernels/bench_ahead" "$TINYLLAMA" cuda:0 64 20
}

for part in "$@"; do
    case $part in
    devices) step devices devices ;;
    kernels) step kernels "$build/tests/kernels/test_cuda" ;;
    gemm) step gemm "$build/tests/kernels/cuda_gemm" ;;
    lost) step lost "$build/tests/kernels/test_cuda_lost" ;;
    check) step check "$minerva" plugins check "$build/plugins/cuda/cuda.so" ;;
    golden)
        step story golden story cuda
        for f in llama llama3-rope llama-sharded qwen2 qwen3; do step "fixture $f" golden "fixture:$f" cuda; done ;;
    segments) step segments segments ;;
    batch) step batch golden batch cuda ;;
    session) step session "$build/tests/unit/test_session" "$story" ;;
    memcheck) step memcheck memcheck ;;
    bench) step bench bench ;;
    *) echo "unknown part $part"; exit 2 ;;
    esac
done
echo "$failed failed"
exit $failed
