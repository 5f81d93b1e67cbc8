# Sourced by bin/test: the system packages that the tests need.

PACKAGES=(redis-server postgresql chromium chromium-headless-shell bubblewrap debootstrap busybox-static tmux iptables
    iproute2 fonts-dejavu-core procps e2fsprogs docker-compose gcc git libc6-dev openssh-client openssh-server rsync)

MORE_PACKAGES=(openmpi-bin prometheus) # for the tests that bin/test itself leaves out

# Installs what is missing (as root), or fails with the line that does.
need_packages() { # packages besides
    local wanted=("${PACKAGES[@]}" "$@") missing
    command -v docker >/dev/null && engine_answers || wanted+=(docker.io)
    if ! command -v dpkg-query >/dev/null; then
        echo "Not a Debian or Ubuntu machine: make sure that these are there: ${wanted[*]}" >&2
        return 0
    fi
    missing=$(missing_packages "${wanted[@]}")
    [ -z "$missing" ] && return 0
    if [ "$(id -u)" != 0 ]; then
        echo "The tests need some system packages. Install them with:" >&2
        echo "    sudo apt-get install --no-install-recommends $missing" >&2
        return 1
    fi
    echo "Installing system packages (once): $missing"
    # shellcheck disable=SC2086  # a list of names
    install_packages $missing >"$LOGS/apt.log" 2>&1 || {
        tail -n 20 "$LOGS/apt.log" >&2
        return 1
    }
}

missing_packages() {
    comm -23 <(printf '%s\n' "$@" | sort) \
        <(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^installed //p' | sort) | xargs
}

install_packages() {
    local apt=(apt-get -y -qq -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-confold -o Acquire::Retries=3
        -o DPkg::Lock::Timeout=180)
    export DEBIAN_FRONTEND=noninteractive
    forbid_autostart
    # Package lists may be absent or older than the archive.
    "${apt[@]}" install --no-install-recommends "$@" || {
        "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "$@"
    } || {
        local result=$?
        allow_autostart
        return "$result"
    }
    allow_autostart
}

# Packages start their services when they are installed; the tests start their own.
forbid_autostart() {
    [ -e /usr/sbin/policy-rc.d ] && return 0
    POLICY_IS_OURS=1
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod +x /usr/sbin/policy-rc.d
}

allow_autostart() {
    [ -z "${POLICY_IS_OURS:-}" ] || rm -f /usr/sbin/policy-rc.d
    POLICY_IS_OURS=
}
