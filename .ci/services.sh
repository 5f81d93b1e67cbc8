# Sourced by bin/test: private services for the tests, which die with the test even when it is killed.
# They live in $SCRATCH and write to $LOGS; stop_services ends exactly those that were started here.

STARTED=() # process ids, in the order of starting
ENGINE_PID=
CONTAINERS_BEFORE=
LINK_LOCAL=/proc/sys/net/ipv6/conf/default/disable_ipv6
LINK_LOCAL_BEFORE=

free_port() {
    "$PYTHON" -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

wait_for() { # name, seconds, command...
    local name=$1 tries=$(($2 * 10))
    shift 2
    while ! "$@" >/dev/null 2>&1; do
        if [ $((tries -= 1)) -lt 0 ]; then
            echo "$name does not answer:" >&2
            tail -n 15 "$LOGS/$name.log" >&2
            return 1
        fi
        sleep 0.1
    done
}

# Runs a command in the background that is killed when this shell dies.
in_background() { # name, command...
    local name=$1
    shift
    setpriv --pdeathsig KILL -- "$@" >"$LOGS/$name.log" 2>&1 </dev/null &
    STARTED+=($!)
}

start_redis() {
    local port
    port=$(free_port)
    in_background redis redis-server --port "$port" --bind 127.0.0.1 --dir "$SCRATCH" --save "" --appendonly no
    wait_for redis 10 redis-cli -p "$port" ping
    export BACKENDAI_TEST_REDIS_URL=redis://127.0.0.1:$port/0
}

start_postgres() {
    local port bin data=$SCRATCH/postgres as=()
    bin=$(find /usr/lib/postgresql -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -n 1)
    port=$(free_port)
    mkdir "$data"
    if [ "$(id -u)" = 0 ]; then # PostgreSQL refuses root
        chown postgres "$data"
        as=(--reuid postgres --regid postgres --init-groups)
    fi
    (cd / && setpriv "${as[@]}" -- "$bin/initdb" -D "$data" -U postgres --auth=trust -E UTF8 --locale=C.UTF-8 --no-sync) \
        >"$LOGS/initdb.log" 2>&1 || {
        cat "$LOGS/initdb.log" >&2
        return 1
    }
    in_background postgres setpriv "${as[@]}" --pdeathsig INT -- "$bin/postgres" -D "$data" \
        -c "port=$port" -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=200 \
        -c fsync=off -c synchronous_commit=off -c full_page_writes=off
    wait_for postgres 20 "$bin/pg_isready" -q -h 127.0.0.1 -p "$port"
    export BACKENDAI_TEST_POSTGRES_URL=postgres://postgres@127.0.0.1:$port/postgres
}

engine_answers() {
    timeout 10 docker info >/dev/null 2>&1
}

# Uses the Docker Engine that answers; starts one where none does.
start_docker() {
    engine_answers && return 0
    if [ "$(id -u)" != 0 ]; then
        echo "No Docker Engine answers this user. Start it (sudo systemctl start docker) and join the group docker:" >&2
        echo "    sudo usermod -aG docker $(id -un)    (then sign in again)" >&2
        return 1
    fi
    mount_cgroups
    keep_addresses
    ulimit -n "$(ulimit -Hn)" || true
    local socket=/run/containerd/containerd.sock device mtu
    if ! ctr --timeout 5s version >/dev/null 2>&1; then # a process of that name may be another engine's
        in_background containerd containerd
        wait_for containerd 20 ctr --timeout 5s version
    fi
    device=$(ip -o route show default | sed -n 's/.* dev \([^ ]*\).*/\1/p' | head -n 1)
    mtu=$(cat "/sys/class/net/${device:-lo}/mtu")
    rm -f /var/run/docker.pid
    in_background dockerd dockerd --containerd "$socket" --live-restore --mtu "$((mtu > 1500 ? 1500 : mtu))" \
        --default-address-pool base=10.64.0.0/12,size=26
    ENGINE_PID=${STARTED[-1]}
    wait_for dockerd 60 docker info
    CONTAINERS_BEFORE=$(docker ps -aq --no-trunc)
}

# Else the interface of each container gets an address of its own a second later, and when addresses come and go a
# browser drops the requests that wait for a connection.
keep_addresses() {
    LINK_LOCAL_BEFORE=$(cat "$LINK_LOCAL" 2>/dev/null) || return 0
    echo 1 2>/dev/null >"$LINK_LOCAL" || LINK_LOCAL_BEFORE=
}

# Without an init system nobody has mounted the control groups.
mount_cgroups() {
    grep -q ' /sys/fs/cgroup[^ ]* cgroup' /proc/mounts && return 0
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    mkdir -p /sys/fs/cgroup/init
    local pid controller
    while read -r pid; do # a group hands controllers down only when no process is in it
        echo "$pid" >/sys/fs/cgroup/init/cgroup.procs 2>/dev/null || true
    done </sys/fs/cgroup/cgroup.procs
    for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
        echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control || true
    done
}

stop_services() {
    local index
    [ -z "$ENGINE_PID" ] || remove_new_containers
    for ((index = ${#STARTED[@]} - 1; index >= 0; index--)); do
        stop_process "${STARTED[index]}"
    done
    STARTED=()
    [ -z "$LINK_LOCAL_BEFORE" ] || echo "$LINK_LOCAL_BEFORE" >"$LINK_LOCAL"
}

# With live-restore containers would outlive the engine.
remove_new_containers() {
    local container
    for container in $(docker ps -aq --no-trunc 2>/dev/null); do
        case $CONTAINERS_BEFORE in
            *"$container"*) ;;
            *) docker rm -f "$container" >/dev/null 2>&1 || true ;;
        esac
    done
}

stop_process() {
    local signal tries
    for signal in TERM INT KILL; do
        kill -s "$signal" "$1" 2>/dev/null || return 0
        for ((tries = 0; tries < 50; tries++)); do
            kill -0 "$1" 2>/dev/null || return 0
            sleep 0.1
        done
    done
}
