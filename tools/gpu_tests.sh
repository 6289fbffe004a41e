#!/bin/sh
# gpu_tests.sh BUILD [PART...] -- everything that needs an NVIDIA GPU, in one command, on a machine that has one.
# gpu_tests.sh pack BUILD TO   -- gathers what a bare machine needs of a build (with its libraries) into the folder TO,
#                                 so that `TO/run/tools/gpu_tests.sh TO PART...` from the source tree finds it all.
# PART: devices kernels gemm attention (of many rows) state (operations with a state) sweep (products by numbers of rows) lost words (steps that take turns with another plugin) check golden forms models (folders and files of every form) encoders segments (cuda beside a plugin of two operations, and beside a CPU that has experts) batch adapters session (late
# stops, forks, reuse) hybrid (sessions with states) driver (none, too old) twice (two processes) group (two cards as one) ranks (two cards as one, by two processes)
# group_stub ranks_stub (both on one card, with a stand-in for NCCL) memory (what a load takes beside its estimate) split (a card whose
# memory another process holds) experts (the same of a model with experts: GPT_OSS, a GGUF file; skipped without it)
# streamed (the CPU's experts computed on the card in prompts: fixtures; rates and the bus by GPT_OSS) memcheck racecheck bench; default: all but group and ranks, which want two cards and NCCL; on one card
# ranks takes MINERVA_CUDA_REPEAT=4, NCCL 2.30 or newer and NCCL_MULTI_RANK_GPU_ENABLE=1. Bench, memory and split take their model
# from the environment: TINYLLAMA, a GGUF file; without it bench is skipped, and the others take the storyteller.
# FIXTURES: more fixtures than the repository has. Ends with the number of failures.
set -u
here=$(cd "$(dirname "$0")/.." && pwd)

if [ "${1:-}" = pack ]; then
    build=$2 to=$3
    mkdir -p "$to/lib" "$to/tools/check" "$to/runtime/registry" "$to/tests/kernels" "$to/tests/golden"
    cp "$build/tests/golden/golden" "$build/tests/golden/adapters" "$to/tests/golden/"
    cp -L "$build/tools/minerva" "$to/tools/"
    cp "$build/tools/check/minerva-check" "$to/tools/check/"
    cp -L "$build/runtime/libminerva.so.0" "$to/runtime/"
    cp "$build/runtime/minerva-build-tree" "$to/runtime/"
    cp "$build/runtime/registry/minerva-probe" "$to/runtime/registry/"
    mkdir -p "$to/tests/unit" "$to/tests/stub"
    cp "$build/tests/stub/vendor2.so" "$build/tests/stub/libnccl_stub.so" "$build/tests/stub/test_words" "$to/tests/stub/"
    for f in test_cuda test_cuda_lost test_states bench_ahead bench_cuda sweep_cuda cuda_gemm cuda_attention cuda_state gpu_hold libold_driver.so; do
        cp "$build/tests/kernels/$f" "$to/tests/kernels/"
    done
    for f in session requests scores hybrid; do
        cp "$build/tests/unit/test_$f" "$to/tests/unit/"
    done
    for d in plugins loaders; do
        for f in "$build/$d"/*/*.so; do
            name=$(basename "$(dirname "$f")")
            mkdir -p "$to/$d/$name" && cp "$f" "$to/$d/$name/"
        done
    done
    ldd "$to/tools/minerva" "$to/tools/check/minerva-check" "$to/tests/golden/golden" "$to/runtime/registry/minerva-probe" "$to/tests/kernels/test_cuda" "$to"/loaders/*/*.so "$to"/plugins/*/*.so |
        awk '$3 ~ /^\// {print $3}' | sort -u |
        grep -vE 'libminerva|/lib(c|m|dl|pthread|rt|gcc_s|stdc\+\+)\.so' | xargs -I{} cp -L {} "$to/lib/"
    chmod -R go-w "$to"
    exit 0
fi

build=$(cd "$1" && pwd) || exit 2
shift
[ $# -gt 0 ] || set -- devices kernels gemm attention state lost words check golden forms models encoders segments batch adapters session hybrid driver twice group_stub ranks_stub memory split streamed memcheck racecheck bench
chmod -R go-w "$build" 2>/dev/null
export LD_LIBRARY_PATH="$build/lib:$build/runtime${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export MINERVA_BUILD_ROOT="$build" MINERVA_SOURCE_ROOT="$here" MINERVA_TEST_DATA="$here/tests/data" PYTHONDONTWRITEBYTECODE=1
minerva="$build/tools/minerva" story="$here/models/storyteller" failed=0
step() { # NAME COMMAND...
    name=$1 from=$(date +%s)
    shift
    if "$@"; then echo "PASS  $name ($(($(date +%s) - from)) s)"; else echo "FAIL  $name"; failed=$((failed + 1)); fi
}
golden() { # DEVICE CASE...
    device=$1
    shift
    "$build/tests/golden/golden" -d "$device" "$@"
}

devices() {
    "$minerva" devices && "$minerva" run -m "$story" -p "Once" -n 4 --temp 0 --device auto 2>&1 &&
        { "$minerva" run -m "$story" -p "Once" -n 4 --device cuda:99; [ $? -eq 3 ]; }
}
# Every product and norm elsewhere: cuda gets a segment between each two, with boundary tensors at both ends.
segments() {
    beside=$(mktemp -d) && cp "$build/tests/stub/vendor2.so" "$beside/" && for f in llama qwen3; do
        MINERVA_PLUGIN_PATH="$beside" golden vendor2,cuda:0 "fixture:$f" || return 1
    done
    rm -rf "$beside"
    # experts of the first layer, or of all, on the CPU
    for n in 1 99; do
        MINERVA_N_CPU_MOE=$n golden cuda:0,cpu_simd fixture:gpt-oss fixture:gpt-oss-mxfp4 fixture:qwen3-next fixture:mixtral fixture:nemotron-h-moe fixture:gemma4-moe || return 1
    done
}
# Every fixture; those of FIXTURES beside those of the repository.
fixtures() { # CASE
    data=$(mktemp -d) && mkdir "$data/fixtures" && for d in "$here"/tests/data/fixtures/* ${FIXTURES:+"$FIXTURES"/*}; do
        [ -d "$d" ] && ln -sfn "$d" "$data/fixtures/$(basename "$d")"
    done
    MINERVA_TEST_DATA="$data" golden cuda "$1:*"
    e=$?
    rm -rf "$data"
    return $e
}
# What the scripts of tests/golden make: packed types, files of other converters, configurations.
models() {
    for words in "packed.py mlx" "packed.py f8" "packed.py nvfp4" "packed.py compressed" "packed.py gptq" "packed.py awq" "packed.py hqq" "packed.py torchao" "few_bits.py $minerva" gguf_forms.py configs.py; do
        # shellcheck disable=SC2086 # words
        GOLDEN_DEVICES=cuda python3 "$here"/tests/golden/$words >"${TMPDIR:-/tmp}/models.said" 2>&1 || { echo "FAIL  $words"; grep -E "^(FAIL|not ok)|Error" "${TMPDIR:-/tmp}/models.said" | head -20; return 1; }
    done
}
sanitize() { # TOOL: the storyteller and the gpt-oss fixtures, in both classes
    for model in "$story" "$here"/tests/data/fixtures/gpt-oss*; do
        for class in exact a16; do
            compute-sanitizer --tool "$1" --error-exitcode 9 "$minerva" run -m "$model" --prompt-ids 1,5,9,13,2,7 -n 6 --temp 0.8 --top-k 40 --device cuda:0 \
                --precision "$class" >/dev/null || return 1
        done
    done
}
with_driver() { # LIBCUDA WORDS: that driver, or an empty file of its name
    folder=$(mktemp -d)
    cp "$1" "$folder/libcuda.so.1"
    said=$(LD_LIBRARY_PATH="$folder:$LD_LIBRARY_PATH" "$minerva" devices --no-probe-cache 2>&1)
    rm -rf "$folder"
    echo "$said" | tr -s ' \n' ' ' | grep -o "$2[^.]*"
}
driver() { with_driver /dev/null "no NVIDIA driver is installed" && with_driver "$build/tests/kernels/libold_driver.so" "the NVIDIA driver is too old"; }
generate() { timeout 300 "$minerva" run -m "${TINYLLAMA:-$story}" -p "Once upon a time" -n 32 --temp 0 --ignore-eos "$@"; }
# Two processes on one card at the same time: the same text as one.
twice() {
    out=$(mktemp -d)
    generate --device cuda:0 >"$out/alone" 2>/dev/null || return 1
    generate --device cuda:0 >"$out/1" 2>/dev/null & one=$!
    generate --device cuda:0 >"$out/2" 2>/dev/null & two=$!
    wait $one && wait $two && cmp "$out/alone" "$out/1" && cmp "$out/alone" "$out/2"
    e=$?
    rm -rf "$out"
    return $e
}
# What the card has less while COMMAND runs, in MiB, at the most.
taken() {
    fifo=$(mktemp -u) && mkfifo "$fifo" && { "$build/tests/kernels/gpu_hold" watch <"$fifo" >"$fifo.said" & } && exec 9>"$fifo" && sleep 1 || return 1
    "$@" >/dev/null 2>&1
    exec 9>&-
    wait $!
    awk '{print $1 - $6}' "$fifo.said"
    rm -f "$fifo" "$fifo.said"
}
# What a model takes at the most while it loads and runs, beside what the small storyteller does (a context of CUDA, queues):
# at most its estimate.
memory() {
    none=$(taken "$minerva" run -m "$story" -p Once -n 4 --device cuda:0)
    all=$(taken generate --device cuda:0)
    "$minerva" devices --explain -m "${TINYLLAMA:-$story}" --device cuda:0 --json 2>/dev/null | python3 -c '
import json, sys
def find(x):
    if isinstance(x, dict):
        if "weights" in x and "scratch" in x:
            yield x
        x = list(x.values())
    for y in x if isinstance(x, list) else []:
        yield from find(y)
m = max(find(json.load(sys.stdin)), key=lambda m: m["weights"])
stated = m["need"] / 2**20
taken = int(sys.argv[2]) - int(sys.argv[1])
print("taken %d MiB beside %d, stated %.0f MiB and 6 for each thread that imports" % (taken, int(sys.argv[1]), stated))
sys.exit(taken > stated + 128)' "$none" "$all"
}
# Another process leaves so many MiB of the card: the model runs on what is free, the rest of its layers on the CPU.
beside() { # MIB COMMAND...
    leave=$1 fifo=$(mktemp -u)
    shift
    mkfifo "$fifo" && { "$build/tests/kernels/gpu_hold" leave "$leave" <"$fifo" >&2 & } && exec 9>"$fifo" || return 1
    sleep 3
    "$@"
    e=$?
    exec 9>&-
    wait
    rm -f "$fifo"
    return $e
}
share() { # MIB: a row of the table: memory left, layers on the GPU, rate
    "$minerva" devices --explain -m "${TINYLLAMA:-$story}" --json 2>/dev/null >"$rows.plan" &&
        timeout 300 "$minerva" bench -m "${TINYLLAMA:-$story}" -p 0 -n 32 -r 3 -o json 2>"$rows.err" >"$rows.rate" || { tail -3 "$rows.err"; return 1; }
    python3 -c '
import json, statistics, sys
segments = json.load(open(sys.argv[2]))["placement"]["segments"]
layers = lambda s: s["layers"][1] - s["layers"][0] + 1 if s["layers"] else 0
gpu = sum(layers(s) for s in segments if s["device"].startswith("cuda"))
rate = json.loads(open(sys.argv[3]).read().splitlines()[-1])["samples_ts"]
print("| %s | %d of %d | %.0f |" % (sys.argv[1], gpu, sum(map(layers, segments)), statistics.median(rate)))' "$1" "$rows.plan" "$rows.rate"
}
# No room for a context; for a context alone; for a part of the model; for all of it. By name without room: an error with numbers.
split() {
    rows=$(mktemp) failed_rows=0
    echo "| MiB left by another process | layers on the GPU | tg32, t/s |"
    echo "|---|---|---|"
    for mib in ${SPLIT_MIB:-100 700 900 1200 1600 2000 4000}; do
        beside "$mib" share "$mib" || failed_rows=$((failed_rows + 1))
    done
    if beside 300 generate --device cuda:0 >/dev/null 2>"$rows.err"; then failed_rows=$((failed_rows + 1)); fi
    echo "by name, 300 MiB left: $(tail -1 "$rows.err")"
    rm -f "$rows"*
    return $failed_rows
}
# As asked for by FLAGS: a row of the table with what bench says of the placement, and the rates that --explain expected.
experts_row() { # MIB FLAGS...
    mib=$1
    shift
    "$minerva" devices --explain -m "$GPT_OSS" "$@" --json 2>/dev/null >"$rows.plan" &&
        timeout 300 "$minerva" bench -m "$GPT_OSS" -p 512 -n 32 -r 3 "$@" -o json 2>"$rows.err" >"$rows.rate" || { tail -3 "$rows.err"; return 1; }
    python3 -c '
import json, statistics, sys
mib, flags, plan, rate = sys.argv[1:]
place = json.load(open(plan))["placement"]
rates = {r["test"]: statistics.median(r["samples_ts"]) for r in map(json.loads, open(rate))}
expected = "%.1f / %.0f" % (place["decode_tokens_per_s"], place["prompt_tokens_per_s"])
need = ["%s %.1f GiB" % (d["device"], d["need"] / 2**30) for d in place["devices"]]
why = place["why"].split(": ")[0]
print("| %s | %s | %s | %s | %.1f | %.0f | %s |" % (mib, flags or "auto", why, ", ".join(need), rates["tg32"], rates["pp512"], expected))' \
        "$mib" "$*" "$rows.plan" "$rows.rate"
}
# A model with experts on a card with so little memory: what auto chooses, beside all experts on the CPU and beside whole layers.
experts() {
    [ -n "${GPT_OSS:-}" ] || { echo "SKIP  experts: GPT_OSS is not set"; return 0; }
    rows=$(mktemp) failed_rows=0
    echo "| MiB left by another process | flags | placement | need | tg32, t/s | pp512, t/s | expected, tg / pp |"
    echo "|---|---|---|---|---|---|---|"
    for mib in ${EXPERTS_MIB:-4000 6000 9000 12000}; do
        for flags in "" "--cpu-moe" "--n-cpu-moe 0"; do
            # shellcheck disable=SC2086 # flags
            beside "$mib" experts_row "$mib" $flags || failed_rows=$((failed_rows + 1))
        done
    done
    experts_row 0 --device cpu || failed_rows=$((failed_rows + 1))
    rm -f "$rows"*
    return $failed_rows
}
# The CPU's experts computed on the card in steps of two rows or more; then how fast, never and by the rates, at several sizes of a step.
streamed() {
    for n in cpu divided; do
        export MINERVA_STREAM_EXPERTS=2
        [ $n = cpu ] && export MINERVA_N_CPU_MOE=99 || export MINERVA_N_GPU_EXPERTS=2
        golden cuda:0,cpu_simd fixture:gpt-oss fixture:gpt-oss-mxfp4 fixture:qwen3-next fixture:mixtral fixture:deepseek-v2 fixture:nemotron-h-moe
        e=$?
        unset MINERVA_STREAM_EXPERTS MINERVA_N_CPU_MOE MINERVA_N_GPU_EXPERTS
        [ $e -eq 0 ] || return 1
    done
    for class in exact a16; do
        MINERVA_STREAM_EXPERTS=2 compute-sanitizer --tool memcheck --error-exitcode 9 "$minerva" run -m "$here/tests/data/fixtures/gpt-oss-mxfp4" --prompt-ids 1,5,9,13,2,7 -n 4 \
            --temp 0 --device cuda:0,cpu_simd --cpu-moe --precision "$class" >/dev/null || return 1
    done
    [ -n "${GPT_OSS:-}" ] || { echo "SKIP  rates: GPT_OSS is not set"; return 0; }
    "$minerva" devices --explain -m "$GPT_OSS" --device cuda:0,cpu_simd --cpu-moe 2>/dev/null | grep streamed
    echo "| stream_experts | rows | prompts, t/s |"
    echo "|---|---|---|"
    for rows in 64 128 256 512 2048; do
        for from in 0 2 -1; do
            MINERVA_BATCH=$rows MINERVA_STREAM_EXPERTS=$from "$minerva" bench -m "$GPT_OSS" -p "$rows" -n 0 -r 3 --device cuda:0,cpu_simd --cpu-moe -o json 2>/dev/null | python3 -c '
import json, statistics, sys
for r in map(json.loads, sys.stdin):
    print("| %s | %s | %.0f |" % (sys.argv[1], sys.argv[2], statistics.median(r["samples_ts"])))' "$from" "$rows" || return 1
        done
    done
}
# Each golden fixture by COMMAND... NAME, some at a time; what fails is shown.
each_fixture() {
    said=$(mktemp -d)
    ls "$here/tests/data/fixtures" | xargs -P "${PARALLEL:-4}" -I{} sh -c '
        name=$1 said=$2
        shift 2
        "$@" "$name" >"$said/$name" 2>&1; e=$?
        [ $e -eq 0 ] || [ $e -eq 77 ] || { echo "FAIL  $name"; grep -v "^ok" "$said/$name" | tail -5; exit 1; }' sh {} "$said" "$@"
    e=$?
    rm -rf "$said"
    return $e
}
# Two cards as one device: fixtures, and a batch as its sequences alone.
group() {
    export MINERVA_CUDA_GROUPS=1
    golden cuda:0+cuda:1 batch 'fixture:*'
}
# The same on one card, which is listed twice: over its own memory; through the stand-in, small sums and large ones.
group_stub() {
    export MINERVA_CUDA_REPEAT=2 MINERVA_CUDA_NCCL="$build/tests/stub/libnccl_stub.so"
    MINERVA_CUDA_COLLECTIVES=auto group && MINERVA_CUDA_COLLECTIVES=nccl group &&
        MINERVA_CUDA_COLLECTIVES=mixed MINERVA_CUDA_GROUP_SMALL_KIB=1 group
    e=$?
    unset MINERVA_CUDA_REPEAT MINERVA_CUDA_NCCL
    return $e
}
# Two processes with a card each: fixtures, the story, a batch, and processes that end or hang.
ranks() {
    export MINERVA_CUDA_GROUPS=1 RANKS_DEVICE=cuda
    test="$here/tests/stub/ranks_test.py"
    python3 "$test" "$minerva" cases 2 story && each_fixture python3 "$test" "$minerva" fixtures 2 && python3 "$test" "$minerva" run
}
ranks_stub() {
    export MINERVA_CUDA_NCCL="$build/tests/stub/libnccl_stub.so" MINERVA_CUDA_REPEAT=4
    ranks
    e=$?
    unset MINERVA_CUDA_NCCL MINERVA_CUDA_REPEAT
    return $e
}
memcheck() { sanitize memcheck; }
racecheck() { sanitize racecheck; }
bench() {
    [ -n "${TINYLLAMA:-}" ] || { echo "SKIP  bench: TINYLLAMA is not set"; return 0; }
    "$minerva" bench -m "$TINYLLAMA" --device cuda:0 -p 512 -n 128 -r 5 && "$minerva" bench -m "$TINYLLAMA" --device cuda:0 -p 0 -n 128 -b 20 -r 5 &&
        MINERVA_LOG=debug "$build/tests/kernels/bench_ahead" "$TINYLLAMA" cuda:0 64 1 && MINERVA_LOG=debug "$build/tests/kernels/bench_ahead" "$TINYLLAMA" cuda:0 64 20
}

for part in "$@"; do
    case $part in
    devices) step devices devices ;;
    kernels) step kernels "$build/tests/kernels/test_cuda" ;;
    sweep) step sweep "$build/tests/kernels/sweep_cuda" ;;
    gemm) step gemm "$build/tests/kernels/cuda_gemm" ;;
    attention) step attention "$build/tests/kernels/cuda_attention" ;;
    state)
        step "state kernels" "$build/tests/kernels/cuda_state"
        step state "$build/tests/kernels/test_states" cuda ;;
    lost) step lost "$build/tests/kernels/test_cuda_lost" ;;
    words) step words "$build/tests/stub/test_words" "$build/plugins/cuda/cuda.so" ;;
    check) step check "$minerva" plugins check "$build/plugins/cuda/cuda.so" ;;
    golden)
        step story golden cuda story
        step argmax golden cuda argmax
        step fixtures fixtures fixture
        step "fixtures a16" fixtures a16
        step encoders python3 "$here/tests/golden/encoders.py" "$minerva" cuda
        step rerankers python3 "$here/tests/golden/rerankers.py" "$minerva" cuda ;;
    forms) step types golden cuda types ;;
    models) step models models ;;
    encoders)
        step encoders python3 "$here/tests/golden/encoders.py" "$minerva" cuda
        step rerankers python3 "$here/tests/golden/rerankers.py" "$minerva" cuda ;;
    segments) step segments segments ;;
    batch) step batch golden cuda batch ;;
    adapters) step adapters "$build/tests/golden/adapters" cuda ;;
    session)
        step session "$build/tests/unit/test_session" "$story"
        step requests "$build/tests/unit/test_requests" "$story" cuda:0
        step scores "$build/tests/unit/test_scores" "$story"
        ;;
    hybrid) step hybrid "$build/tests/unit/test_hybrid" cuda:0 granite4-h qwen3-next falcon-h1 lfm2 mamba2 ;;
    driver | twice | group | group_stub | ranks | ranks_stub | memory | split | experts | streamed | memcheck | racecheck) step "$part" "$part" ;;
    bench)
        step "bench kernels" "$build/tests/kernels/bench_cuda"
        step "bench states" "$build/tests/kernels/cuda_state" bench
        step bench bench ;;
    *) echo "unknown part $part"; exit 2 ;;
    esac
done
echo "$failed failed"
exit $failed
