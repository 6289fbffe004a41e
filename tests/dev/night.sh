# shellcheck shell=bash
# ./bootstrap night: what takes too long for every change, in parts; a shard is some of the parts, of at most an hour together. Read by
# bootstrap, whose functions and variables it uses.
#
# What has run on this machine is written to $XDG_STATE_HOME/minerva/night (~/.local/state), a line each: time, commit, part, result, seconds.
# With NIGHT_MINUTES no part is begun that would not end within so many minutes: it stays for another night.

SHARD_MINUTES=60
SHARDS=4 # of `today`, which .ci/run runs, and of --list

# name, and minutes of two quiet cores from a fresh clone
night_parts() {
    cat <<'EOF'
valgrind 25
pocl 12
qemu 10
oclgrind 12
tidy 13
tsan 15
reproducible 8
archive 16
archive-arm64 8
debs 16
wheel 6
fuzz 15
configs 14
clients 10
mutants-1 12
mutants-2 12
mutants-3 12
mutants-4 12
EOF
}

# "SHARD NAME MINUTES" of each part, in M shards: the longest part first, always to the shard that has least.
night_shards() { # M
    night_parts | LC_ALL=C sort -k2,2nr -k1,1 | awk -v m="$1" '{
        least = 1
        for (i = 2; i <= m; i++)
            if (sum[i] < sum[least])
                least = i
        sum[least] += $2
        print least, $1, $2
    }'
}

# At least so many shards are needed.
night_check_shards() { # M
    local most
    [[ $1 =~ ^[1-9][0-9]{0,2}$ ]] || die "night: found \"$1\" shards, expected a number from 1 to 999"
    most=$(night_shards "$1" | awk '{sum[$1] += $3} END {for (i in sum) if (sum[i] > most) most = sum[i]; print most}')
    (($1 == 1 || most <= SHARD_MINUTES)) || die "night: of $1 shards one would take $most minutes, at most $SHARD_MINUTES are meant: try $SHARDS"
}

night_record() {
    printf '%s/minerva/night\n' "${XDG_STATE_HOME:-${HOME:?}/.local/state}"
}

# Parts that no line of the record has as passed, since a date of date(1), or ever.
night_since() { # [DATE]
    local from=0 name minutes record
    if [[ ${1-} ]]; then
        from=$(date -d "$1" +%s 2>/dev/null) || die "night --since: found $1, expected a date as date(1) reads it: 2026-11-01, '2 weeks ago'"
    fi
    record=$(night_record)
    [[ -f $record ]] || record=/dev/null
    while read -r name minutes; do # a line that a full disk or a crash left half written counts as none
        awk -v part="$name" -v from="$from" 'NF == 5 && $1 ~ /^[0-9]+$/ && $5 ~ /^[0-9]+$/ && $3 == part && $1 + 0 >= from && $4 == "passed" {found = 1}
            END {exit !found}' "$record" ||
            printf '%s (%s minutes)\n' "$name" "$minutes"
    done < <(night_parts)
}

# Tests of the release build of a suite.
night_suite() { # SUITE
    local made=0
    if [[ -d $root/build/tests ]]; then compile build || made=$?; else make_tests build "$(release_options disabled)" || made=$?; fi
    test_build build "$made" "--timeout-multiplier 2 --suite $1"
}

# A command that is one test; it skips itself with status 77.
night_command() {
    "$@"
    case $? in
    0) passed=$((passed + 1)) ;;
    77) skipped=$((skipped + 1)) ;;
    *) failed=$((failed + 1)) ;;
    esac
}

# Each target for a minute, as many at once as there are processors; a finding stays in build-fuzz.
night_fuzz() {
    local found=0 target
    command -v "${CLANG:-clang}" >/dev/null || { say "skipped: clang is not installed"; skipped=$((skipped + 1)); return; }
    quietly "$root/tests/fuzz/build.sh" "$root/build-fuzz" || { failed=$((failed + 1)); return; }
    cd "$root/build-fuzz" || { failed=$((failed + 1)); return; }
    for target in fuzz_*; do printf '%s\n' "${target#fuzz_}"; done |
        xargs -P "$(nproc)" -I{} sh -c 'dict=; [ -e dict/{}.dict ] && dict=-dict=dict/{}.dict
            ./fuzz_{} -max_total_time=60 -timeout=10 -malloc_limit_mb=600 $dict corpus/{} >{}.log 2>&1 || { echo "fuzz_{} found:"; tail -n 30 {}.log; exit 1; }' ||
        found=1
    cd "$root" || return
    if ((found)); then failed=$((failed + 1)); else passed=$((passed + 1)); fi
}

# Every key of every family's config.json, by the release build.
night_configs() {
    [[ -d $root/build/tests ]] || make_tests build "$(release_options disabled)" || { failed=$((failed + 1)); return; }
    compile build || { failed=$((failed + 1)); return; }
    night_command python3 "$root/tests/loaders/config_keys.py" "$root/build/tools/minerva" "$root" --all
}

night_part() { # NAME
    case $1 in
    qemu)
        # one test needs these packages, and skips itself where they cannot be had
        ((${#cross[@]})) && quietly "$root/tools/cross/packages.sh" "$root/build/arm64-root"
        night_suite qemu ;;
    pocl | valgrind | oclgrind | tidy | clients) night_suite "$1" ;;
    tsan)
        make_tests build-tsan '-Dtests=enabled -Dcuda=disabled -Dopencl=disabled -Doptimization=1 -Ddebug=true -Dc_args=-g1 -Db_sanitize=thread -Db_lundef=false'
        TSAN_OPTIONS=exitcode=66 test_build build-tsan $? '--timeout-multiplier 10 --suite threads' ;;
    reproducible) night_command "$root/tests/dev/reproducible" -Dcuda=disabled ;;
    archive) night_command python3 "$root/tests/packages/archive_root.py" ;;
    archive-arm64) night_command python3 "$root/tests/packages/archive_arm64.py" ;;
    debs) night_command python3 "$root/tests/packages/deb_root.py" ;;
    wheel) night_command python3 "$root/tests/packages/wheel_root.py" ;;
    fuzz) night_fuzz ;;
    configs) night_configs ;;
    mutants-*) night_command python3 "$root/tests/dev/mutants.py" "$root/build-mutants" --quarter "${1#mutants-}" ;;
    esac
}

# Ends the last line of a file, if it is half written.
end_line() { # FILE
    [[ ! -s $1 || -z $(tail -c 1 -- "$1") ]] || printf '\n' >>"$1"
}

# Runs a part, and writes down what became of it.
night_run() { # NAME MINUTES
    local from=$SECONDS before=$failed ran=$((passed + failed)) result=passed record
    if [[ ${NIGHT_MINUTES-} ]] && ((SECONDS / 60 + $2 > NIGHT_MINUTES)); then
        say "night: no time is left for $1 ($2 minutes)"
        skipped=$((skipped + 1))
        return
    fi
    say "night: $1"
    night_part "$1"
    ((failed > before)) && result=failed
    ((passed + failed == ran)) && result=skipped
    record=$(night_record)
    {
        mkdir -p -- "${record%/*}" && end_line "$record" &&
            printf '%s %s %s %s %s\n' "$(date +%s)" "$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo -)" "$1" "$result" $((SECONDS - from)) >>"$record"
    } 2>/dev/null || say "night: ${record:-the record} cannot be written: --since will not know of $1"
    say "night: $1 $result after $((SECONDS - from)) s"
}

# night [N of M | today] | --list [of M] | --since [DATE]
night() {
    local shard name minutes n=1 m=1
    [[ ${NIGHT_MINUTES-} =~ ^(-?[0-9]{1,9})?$ ]] || die "night: found NIGHT_MINUTES \"$NIGHT_MINUTES\", expected minutes"
    case "$# ${1-none} ${2-none}" in
    '1 --list none' | '3 --list of')
        m=${3-$SHARDS}
        night_check_shards "$m"
        night_shards "$m" | sort -n | awk '{print "shard " $1 ": " $2 ", " $3 " minutes"}'
        return ;;
    '1 --since none' | '2 --since '*)
        night_since "${2-}"
        return ;;
    '0 none none') ;;
    '1 today none') m=$SHARDS n=$(($(date +%s) / 86400 % SHARDS + 1)) ;;
    *)
        [[ $# == 3 && $2 == of ]] || die "night: found \"$*\", expected N of M, today, --list [of M] or --since [DATE]"
        n=$1 m=$3
        night_check_shards "$m"
        [[ $n =~ ^[1-9][0-9]{0,2}$ ]] && ((n <= m)) || die "night: found shard \"$n\", expected 1 to $m" ;;
    esac
    trap summary EXIT
    [[ $(uname -m) == aarch64 ]] && cross=()
    have_packages "${needed[@]}" "${needed_by_tests[@]}" -- "${wanted[@]}" "${wanted_by_tests[@]}" "${cross[@]}" "${wanted_by_night[@]}"
    test_environment
    while read -r shard name minutes; do
        ((shard == n)) && night_run "$name" "$minutes" </dev/null # which would read the other lines
    done < <(night_shards "$m")
    ((failed)) && python3 "$root/tests/dev/failed_tests.py" "$root/build" "$root/build-tsan"
    finished=1 may_skip_all=1
    ((failed == 0))
}
