/* How streams begin: terminals, programs, connections to ports, files, and calls of the guest agent. */
#include "streams.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define GUEST_SOCKET "/run/backendai/agent.sock"

int listener = -1;
static uint32_t next_call = 3;

static void try_port(struct stream *one)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(one->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(one->port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    while (one->tries < 2) {
        int is_four = one->tries++ == 0;
        int file = socket(is_four ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (file < 0)
            continue;
        int failed = is_four ? connect(file, (void *)&four, sizeof four) : connect(file, (void *)&six, sizeof six);
        if (!failed || errno == EINPROGRESS) {
            one->from = one->to = file, one->is_waiting = 1;
            return;
        }
        close(file);
    }
    end_stream(one, ECONNREFUSED);
}

void connected(struct stream *one)
{
    int fault = 0;
    socklen_t length = sizeof fault;
    getsockopt(one->to, SOL_SOCKET, SO_ERROR, &fault, &length);
    one->is_waiting = 0;
    if (fault) {
        close_ends(one);
        try_port(one);
    } else
        frame(OPENED, one->id, NULL, 0);
}

static void open_program(struct stream *one, char **words, int count)
{
    int input[2] = {-1, -1}, output[2] = {-1, open("/dev/null", O_WRONLY | O_CLOEXEC)};
    if (one->kind == 'x' && (pipe2(input, O_CLOEXEC) || pipe2(output, O_CLOEXEC))) {
        end_stream(one, 126);
        return;
    }
    one->pid = start_program(&launch, words, count, input[0], output[1]);
    close(output[1]);
    if (one->kind == 'x') {
        close(input[0]);
        one->from = output[0], one->to = input[1];
        fcntl(one->from, F_SETFL, O_NONBLOCK), fcntl(one->to, F_SETFL, O_NONBLOCK);
    }
    frame(OPENED, one->id, NULL, 0);
}

void draft_of(const char *path, char *draft, size_t room) { snprintf(draft, room, "%s.draft", path); }

/* words: path, mode in octal. Written beside it first: whoever reads the file sees all of it. */
static void open_file(struct stream *one, char **words)
{
    char draft[4200];
    draft_of(words[0], draft, sizeof draft);
    one->to = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, strtol(words[1], NULL, 8));
    if (one->to < 0) {
        end_stream(one, errno);
        return;
    }
    one->path = strdup(words[0]);
    frame(OPENED, one->id, NULL, 0);
}

void open_stream(uint32_t id, char *body, size_t length)
{
    char *words[1024];
    int count = 0;
    struct stream *one = find(id) || length < 2 ? NULL : take(id, body[0]);
    if (!one) {
        int32_t busy = EBUSY;
        frame(END, id, &busy, sizeof busy);
        return;
    }
    for (char *word = body + 1; word < body + length && count < 1023; word += strlen(word) + 1)
        words[count++] = word;
    words[count] = NULL;
    if (one->kind == 'p' && count > 4) {
        one->pid = start_terminal(&launch, words, count, &one->from);
        one->to = one->from;
        if (one->pid > 0)
            frame(OPENED, id, NULL, 0);
        else
            end_stream(one, 126);
    } else if ((one->kind == 'x' || one->kind == 'd') && count > 2)
        open_program(one, words, count);
    else if (one->kind == 't' && count == 1) {
        one->port = atoi(words[0]);
        try_port(one);
    } else if (one->kind == 'w' && count == 2)
        open_file(one, words);
    else
        end_stream(one, EINVAL);
}

void take_call(void)
{
    int file = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct stream *one = file < 0 ? NULL : take(next_call, 'u');
    if (!one) {
        if (file >= 0)
            close(file);
        return;
    }
    next_call += 2;
    one->from = one->to = file;
    frame(OPEN, one->id, "u", 1);
}

void listen_for_guest(const struct launch *kernel)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = GUEST_SOCKET};
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0 || bind(listener, (void *)&address, sizeof address) || listen(listener, 64)
        || chown(GUEST_SOCKET, kernel->uid, kernel->gid) || chmod(GUEST_SOCKET, 0600))
        fail("cannot listen at", GUEST_SOCKET);
}
