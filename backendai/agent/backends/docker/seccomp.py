"""The filter of system calls that kernels get from engines whose own one is old.

Docker takes whole profiles only, and its own cannot be read from the engine. So this is a list of its own: the system
calls in the headers of Linux without those that need a capability, which no kernel has, that make namespaces or mounts,
or that have often been a way out of containers (io_uring, userfaultfd, BPF).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

_FIRST, _BETTER = 19, 25  # Docker's versions: the first ones with such profiles, and those whose own one is as strict
_FAMILIES = {
    "x86_64": {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86", "SCMP_ARCH_X32"]},
    "aarch64": {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": ["SCMP_ARCH_ARM"]},
}
_VSOCK = 40  # the family of sockets that reach services of the machine and of its hypervisor
_NEW_NAMESPACES = 0x7E020000  # flags of clone: CLONE_NEW*
_ENOSYS = 38  # the C library then uses clone, whose flags a filter can read
_PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
# Without socketcall, which makes sockets of any family in programs for 32 bits.
_ALLOWED = """
accept accept4 access adjtimex alarm arch_prctl arm_fadvise64_64 arm_sync_file_range bind breakpoint brk
cacheflush cachestat capget capset chdir chmod chown chown32 clock_getres clock_getres_time64 clock_gettime
clock_gettime64 clock_nanosleep clock_nanosleep_time64 close close_range connect copy_file_range creat dup
dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait
epoll_wait_old eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64 fadvise64_64
fallocate fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchown32 fchownat fcntl fcntl64 fdatasync
fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstat64 fstatat fstatat64 fstatfs fstatfs64 fsync
ftruncate ftruncate64 futex futex_requeue futex_time64 futex_wait futex_waitv futex_wake futimesat
get_robust_list get_thread_area getcpu getcwd getdents getdents64 getegid getegid32 geteuid geteuid32 getgid
getgid32 getgroups getgroups32 getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom
getresgid getresgid32 getresuid getresuid32 getrlimit getrusage getsid getsockname getsockopt gettid
gettimeofday getuid getuid32 getxattr getxattrat inotify_add_watch inotify_init inotify_init1 inotify_rm_watch
io_cancel io_destroy io_getevents io_pgetevents io_pgetevents_time64 io_setup io_submit ioctl ioprio_get
ioprio_set ipc kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lchown32 lgetxattr
link linkat listen listxattr listxattrat llistxattr llseek _llseek lremovexattr lseek lsetxattr lstat lstat64
madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat mlock mlock2
mlockall mmap mmap2 modify_ldt mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64
mq_timedsend mq_timedsend_time64 mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync munlock munlockall
munmap nanosleep newfstatat _newselect nice oldfstat oldlstat oldolduname oldstat olduname open openat openat2
pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll ppoll_time64 prctl
pread64 preadv preadv2 prlimit64 process_mrelease process_vm_readv process_vm_writev pselect6 pselect6_time64
ptrace pwrite64 pwritev pwritev2 read readahead readdir readlink readlinkat readv recvfrom recvmmsg
recvmmsg_time64 recvmsg remap_file_pages removexattr removexattrat rename renameat renameat2 restart_syscall
rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend
rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min
sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
sched_rr_get_interval_time64 sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield
seccomp select semctl semget semop semtimedop semtimedop_time64 sendfile sendfile64 sendmmsg sendmsg sendto
set_robust_list set_thread_area set_tid_address set_tls setfsgid setfsgid32 setfsuid setfsuid32 setgid
setgid32 setgroups setgroups32 setitimer setpgid setpriority setregid setregid32 setresgid setresgid32
setresuid setresuid32 setreuid setreuid32 setrlimit setsid setsockopt setuid setuid32 setxattr setxattrat
sgetmask shmat shmctl shmdt shmget shutdown sigaction sigaltstack signal signalfd signalfd4 sigpending
sigprocmask sigreturn sigsuspend socketpair splice ssetmask stat stat64 statfs statfs64 statx symlink
symlinkat sync sync_file_range sync_file_range2 syncfs sysinfo tee tgkill time timer_create timer_delete
timer_getoverrun timer_gettime timer_gettime64 timer_settime timer_settime64 timerfd_create timerfd_gettime
timerfd_gettime64 timerfd_settime timerfd_settime64 times tkill truncate truncate64 ugetrlimit umask uname
unlink unlinkat uretprobe utime utimensat utimensat_time64 utimes vfork vmsplice wait4 waitid waitpid write
writev
"""


@cache
def _profile() -> str:
    allow = "SCMP_ACT_ALLOW"
    rules: list[dict[str, Any]] = [
        {"names": _ALLOWED.split(), "action": allow},
        {"names": ["socket"], "action": allow, "args": [{"index": 0, "value": _VSOCK, "op": "SCMP_CMP_NE"}]},
        {
            "names": ["clone"],
            "action": allow,
            "args": [{"index": 0, "value": _NEW_NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}],
        },
        {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS},
        *(
            {"names": ["personality"], "action": allow, "args": [{"index": 0, "value": one, "op": "SCMP_CMP_EQ"}]}
            for one in _PERSONALITIES
        ),
    ]
    told = {"defaultAction": "SCMP_ACT_ERRNO", "archMap": list(_FAMILIES.values()), "syscalls": rules}
    return json.dumps(told, separators=(",", ":"))


def own_profile(info: Mapping[str, Any]) -> str:
    """Return the profile for kernels of an engine with this description; empty: the engine's own is used."""
    is_known = info.get("Architecture") in _FAMILIES and _version(info) >= _FIRST
    return _profile() if is_known and has_old_profile(info) else ""


def has_old_profile(info: Mapping[str, Any]) -> bool:
    """Return whether the engine filters by a built-in profile that allows VSOCK sockets and io_uring."""
    options = info.get("SecurityOptions") or []
    is_default = any(one.startswith("name=seccomp") and one.endswith(("=default", "=builtin")) for one in options)
    return is_default and 0 < _version(info) < _BETTER


def _version(info: Mapping[str, Any]) -> int:
    found = re.match(r"(\d+)\.", str(info.get("ServerVersion", "")))
    return int(found[1]) if found else 0
