/* The life of the kernel: start, serve, stop, tell the end, power off. */
#include "init.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BEAT_MS 2000
#define LAST_OUTPUT_MS 1000

struct launch launch = {.host = "main1", .folder = "/", .shm = "64m"};
int signals = -1;
static pid_t main_process;
static int exit_code = -1;
static long long kill_at;

long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static unsigned long long number_in(const char *path, const char *name)
{
    char word[64];
    unsigned long long value = 0;
    FILE *file = fopen(path, "r");
    while (file && fscanf(file, "%63s %llu%*[^\n]", word, &value) == 2)
        if (!strcmp(word, name)) {
            fclose(file);
            return value;
        }
    if (file)
        fclose(file);
    return 0;
}

static unsigned long long oom_kills(void) { return number_in("/proc/vmstat", "oom_kill"); }

static void tell_use(void)
{
    char words[200];
    struct statvfs disk = {0};
    unsigned long long total = number_in("/proc/meminfo", "MemTotal:"), free = number_in("/proc/meminfo", "MemAvailable:");
    statvfs("/tmp", &disk);
    snprintf(words, sizeof words, "beat %llu %llu %llu %llu", (total - free) * 1024, oom_kills(),
             (unsigned long long)disk.f_blocks * disk.f_frsize, (unsigned long long)disk.f_bavail * disk.f_frsize);
    say(words);
}

void take_order(const char *order)
{
    if (!strncmp(order, "cut ", 4)) {
        char words[32];
        snprintf(words, sizeof words, "cut %d", cut_folder(order + 4));
        say(words);
    }
    if (!strncmp(order, "stop ", 5)) {
        long long at = now_ms() + atoi(order + 5);
        if (!kill_at || at < kill_at)
            kill_at = at;
        if (main_process > 0 && exit_code < 0)
            kill(main_process, SIGTERM);
    }
}

static void reap(void)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (pid == main_process)
            exit_code = code;
        else
            program_ended(pid, code);
    }
}

static void serve(void)
{
    long long next_beat = 0;
    struct signalfd_siginfo told;
    while (exit_code < 0) {
        long long now = now_ms();
        if (now >= next_beat) {
            tell_use();
            next_beat = now + BEAT_MS;
        }
        if (kill_at && now >= kill_at)
            kill(-1, SIGKILL);
        long long until = kill_at && kill_at > now && kill_at < next_beat ? kill_at : next_beat;
        poll_streams(until > now ? (int)(until - now) : 50);
        while (read(signals, &told, sizeof told) > 0)
            continue;
        reap();
    }
}

static void end(void)
{
    char words[100];
    kill(-1, SIGKILL);
    for (long long until = now_ms() + LAST_OUTPUT_MS; log_is_open() && now_ms() < until;) {
        poll_streams(50);
        reap();
    }
    tell_use();
    snprintf(words, sizeof words, "exited %d %llu", exit_code, oom_kills());
    say(words);
    flush_channel(5000);
    reboot(RB_POWER_OFF);
}

int main(void)
{
    int output[2];
    sigset_t children;
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, NULL);
    boot(&launch);
    FILE *score = fopen("/proc/self/oom_score_adj", "w");
    if (score) {
        fputs("-1000", score);
        fclose(score);
    }
    signals = signalfd(-1, &children, SFD_NONBLOCK | SFD_CLOEXEC);
    listen_for_guest(&launch);
    if (signals < 0 || pipe2(output, O_CLOEXEC))
        fail("cannot make", "a pipe");
    main_process = start_main(&launch, output[1]);
    if (main_process < 0)
        fail("cannot start", "the main process");
    close(output[1]);
    open_log(output[0]);
    say("started");
    serve();
    end();
    for (;;)
        pause();
}
