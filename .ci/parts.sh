# Sourced by bin/test: parts of the check that run as processes of their own, some beside each other.
# A part has its own log, temporary folder and Redis database. Its log is shown when it fails. A few tests that failed
# beside three other parts run once more alone: those that pass then are named as unsteady.

declare -A COMMANDS=() RUNNING=() BEGUN=() # COMMANDS by name; the others by process id
declare -A ENDED=() # exit status of failed parts; of pytest 1 says that it ran all its tests
declare -A TESTED=() # parts of tests: pytest writes the failed ones into $SCRATCH/cache/NAME
MOST_UNSTEADY=3 # of a part; more are no accident
QUEUE=()
FAILED=()
PARTS=0
PATIENCE=60 # seconds in which an interrupted part must have cleaned up

part() { # name, command...
    local name=$1
    shift
    COMMANDS[$name]=$(printf '%q ' "$@")
}

part_of_tests() { # name, command... (pytest with -m)
    part "$@" -o addopts=--strict-markers -o "cache_dir=$SCRATCH/cache/$1" # by itself pytest keeps nothing here
    TESTED[$1]=yes
}

# Runs parts beside each other; the next one starts when one ends. A failure stops nothing: one run shows all there is
# to repair.
run_parts() { # how many at once, names...
    local places=$1 pid result
    shift
    QUEUE=("$@")
    while [ ${#QUEUE[@]} -gt 0 ] || [ ${#RUNNING[@]} -gt 0 ]; do
        while [ ${#QUEUE[@]} -gt 0 ] && [ ${#RUNNING[@]} -lt "$places" ]; do
            start_part "${QUEUE[0]}"
            QUEUE=("${QUEUE[@]:1}")
        done
        find_ended
        result=0
        wait "$pid" || result=$?
        report_part "$pid" "$result"
        unset "RUNNING[$pid]" "BEGUN[$pid]"
    done
    try_again
    if [ ${#FAILED[@]} -gt 0 ]; then
        echo "FAILED: ${FAILED[*]}   ($SECONDS s)"
        exit 1
    fi
    echo "All is well.   ($SECONDS s)"
}

# Sets `pid` to that of a part that has ended. `wait -n` forgets parts that end together ("no such job", bash 5.2).
find_ended() {
    while :; do
        for pid in "${!RUNNING[@]}"; do
            kill -0 "$pid" 2>/dev/null || return 0
        done
        sleep 0.2
    done
}

start_part() { # name, --last-failed for those alone
    local log=$LOGS/part-$1${2:+-again}.log
    local folder=$SCRATCH/t/$1
    mkdir -p "$folder" # what it leaves goes with it
    PARTS=$((PARTS + 1))
    # A process group of its own: it is interrupted once, by stop_parts or by the death of this shell, and cleans up.
    TMPDIR=$folder BACKENDAI_TEST_REDIS_URL=${BACKENDAI_TEST_REDIS_URL%/*}/$((PARTS % 16)) \
        setpriv --pdeathsig INT -- setsid -- env --default-signal=INT,QUIT bash -c "exec ${COMMANDS[$1]} ${2:-}" \
        >"$log" 2>&1 </dev/null &
    RUNNING[$!]=$1
    BEGUN[$!]=$SECONDS
}

# Runs the few failed tests of each failed part again, one part after the other, and keeps the part as failed unless
# they pass.
try_again() {
    local name number result log still=()
    for name in "${FAILED[@]}"; do
        number=0
        [ "${ENDED[$name]}" != 1 ] || number=$(failed_tests "$name" | wc -l)
        log=$LOGS/part-$name-again.log
        if [ "$number" -ge 1 ] && [ "$number" -le $MOST_UNSTEADY ]; then
            echo "$name: $number failed; once more, with nothing beside:"
            result=0
            start_part "$name" --last-failed
            wait $! || result=$?
            RUNNING=()
            if [ $result = 0 ]; then
                printf 'UNSTEADY %-11s          %s\n' "$name" "$(tail -n 1 "$log")"
                failed_tests "$name" | sed 's/^/  /'
                continue
            fi
            cat "$log"
        fi
        still+=("$name")
    done
    FAILED=("${still[@]}")
}

# Prints the tests of a part that failed when all ran beside each other: none where processes were left behind, which a
# platform tells at its end. Any test before may have left them, and the last one alone would pass.
failed_tests() { # name
    local kept=$SCRATCH/cache/$1/v/cache/lastfailed
    [ -n "${TESTED[$1]:-}" ] && ! grep -q '^E .* were left behind' "$LOGS/part-$1.log" || return 0
    [ -f "$kept.first" ] || { [ -f "$kept" ] && cp "$kept" "$kept.first"; } || return 0
    "$PYTHON" -c 'import json, sys; print(*json.load(open(sys.argv[1])), sep="\n")' "$kept.first"
}

report_part() { # process id, exit status
    local name=${RUNNING[$1]} took=$((SECONDS - BEGUN[$1]))
    if [ "$2" = 0 ]; then
        printf 'ok      %-12s %4d s   %s\n' "$name" "$took" "$(tail -n 1 "$LOGS/part-$name.log")"
        return
    fi
    FAILED+=("$name")
    ENDED[$name]=$2
    printf '\nFAILED  %-12s %4d s   (exit status %s)\n' "$name" "$took" "$2"
    cat "$LOGS/part-$name.log"
    echo
}

# Interrupts the parts that still run, as Ctrl-C would, and ends what has not cleaned up in time.
stop_parts() {
    local pid tries=$((PATIENCE * 10))
    for pid in "${!RUNNING[@]}"; do
        kill -INT "$pid" 2>/dev/null || true
    done
    for pid in "${!RUNNING[@]}"; do
        while kill -0 "$pid" 2>/dev/null && [ $((tries -= 1)) -gt 0 ]; do
            sleep 0.1
        done
        kill -KILL -- "-$pid" 2>/dev/null || true
    done
}
