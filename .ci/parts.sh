# Sourced by bin/test: parts of the check that run as processes of their own, some beside each other.
# A part has its own log, temporary folder and Redis database. Its log is shown when it fails.

declare -A COMMANDS=() RUNNING=() BEGUN=() # COMMANDS by name; the others by process id
QUEUE=()
FAILED=()
PARTS=0
PATIENCE=60 # seconds in which an interrupted part must have cleaned up

part() { # name, command...
    local name=$1
    shift
    COMMANDS[$name]=$(printf '%q ' "$@")
}

# Runs parts beside each other; the next one starts when one ends. A failure stops nothing: one run shows all there is
# to mend.
run_parts() { # how many at once, names...
    local places=$1 pid result
    shift
    QUEUE=("$@")
    while [ ${#QUEUE[@]} -gt 0 ] || [ ${#RUNNING[@]} -gt 0 ]; do
        while [ ${#QUEUE[@]} -gt 0 ] && [ ${#RUNNING[@]} -lt "$places" ]; do
            start_part "${QUEUE[0]}"
            QUEUE=("${QUEUE[@]:1}")
        done
        result=0
        wait -n -p pid "${!RUNNING[@]}" || result=$?
        report_part "$pid" "$result"
        unset "RUNNING[$pid]" "BEGUN[$pid]"
    done
    if [ ${#FAILED[@]} -gt 0 ]; then
        echo "FAILED: ${FAILED[*]}   ($SECONDS s)"
        exit 1
    fi
    echo "All is well.   ($SECONDS s)"
}

start_part() { # name
    local folder=$SCRATCH/t/$1
    mkdir -p "$folder" # what it leaves goes with it
    PARTS=$((PARTS + 1))
    # A process group of its own: it is interrupted once, by stop_parts or by the death of this shell, and cleans up.
    TMPDIR=$folder BACKENDAI_TEST_REDIS_URL=${BACKENDAI_TEST_REDIS_URL%/*}/$((PARTS % 16)) \
        setpriv --pdeathsig INT -- setsid -- env --default-signal=INT,QUIT bash -c "exec ${COMMANDS[$1]}" \
        >"$LOGS/part-$1.log" 2>&1 </dev/null &
    RUNNING[$!]=$1
    BEGUN[$!]=$SECONDS
}

report_part() { # process id, exit status
    local name=${RUNNING[$1]} took=$((SECONDS - BEGUN[$1]))
    if [ "$2" = 0 ]; then
        printf 'ok      %-12s %4d s   %s\n' "$name" "$took" "$(tail -n 1 "$LOGS/part-$name.log")"
        return
    fi
    FAILED+=("$name")
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
