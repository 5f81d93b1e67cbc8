/* Processes of the kernel's user. */
#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

/* words: folder ("" for the kernel's own), number of variables, the variables, the command. Variables are added to the
 * kernel's own; a later one counts. */
static void become(const struct launch *launch, char **words, int count)
{
    int variables = count > 1 ? atoi(words[1]) : 0;
    char **command = words + 2 + variables;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    clearenv();
    for (char **entry = launch->environ; entry && *entry; entry++)
        putenv(*entry);
    for (int at = 0; at < variables; at++)
        putenv(words[2 + at]);
    if (launch->pids > 0) {
        struct rlimit limit = {launch->pids, launch->pids};
        setrlimit(RLIMIT_NPROC, &limit);
    }
    struct rlimit core = {0, 0};
    setrlimit(RLIMIT_CORE, &core);
    FILE *score = fopen("/proc/self/oom_score_adj", "w");
    if (score) {
        fputs("0", score);
        fclose(score);
    }
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (setgroups(0, NULL) || setgid(launch->gid) || setuid(launch->uid))
        _exit(126);
    const char *folder = count > 0 && *words[0] ? words[0] : launch->folder;
    if (chdir(folder)) {
        fprintf(stderr, "The folder %s cannot be entered: %s\n", folder, strerror(errno));
        _exit(126);
    }
    execvp(command[0], command);
    fprintf(stderr, "%s cannot be started: %s\n", command[0], strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

pid_t start_program(const struct launch *launch, char **words, int count, int input, int output)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    setsid();
    if (input < 0)
        input = open("/dev/null", O_RDONLY);
    dup2(input, 0), dup2(output, 1), dup2(output, 2);
    become(launch, words, count);
    return 0;
}

pid_t start_main(const struct launch *launch, int output)
{
    char *words[66] = {"", "0"};
    int count = 2;
    for (char **word = launch->argv; word && *word && count < 65; word++)
        words[count++] = *word;
    words[count] = NULL;
    return start_program(launch, words, count, -1, output);
}

void set_size(int terminal, int rows, int columns)
{
    struct winsize size = {.ws_row = rows, .ws_col = columns};
    ioctl(terminal, TIOCSWINSZ, &size);
}

/* words: rows, columns, and what start_program takes. */
pid_t start_terminal(const struct launch *launch, char **words, int count, int *terminal)
{
    struct winsize size = {.ws_row = atoi(words[0]), .ws_col = atoi(words[1])};
    pid_t pid = forkpty(terminal, NULL, NULL, &size);
    if (pid == 0) {
        if (fchown(0, launch->uid, 5))
            _exit(126);
        become(launch, words + 2, count - 2);
    }
    if (pid > 0)
        fcntl(*terminal, F_SETFD, FD_CLOEXEC), fcntl(*terminal, F_SETFL, O_NONBLOCK);
    return pid;
}
