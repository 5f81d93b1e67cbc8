/* What goes on beside the main process: terminals, programs, connections to ports, files, the guest agent's calls. Each
 * is a stream with a window of its own, so that one that nobody reads holds up no other. */
#include "streams.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST 512

static struct stream streams[MOST];

struct stream *find(uint32_t id)
{
    for (int at = 0; at < MOST; at++)
        if (streams[at].id == id && id)
            return &streams[at];
    return NULL;
}

struct stream *take(uint32_t id, char kind)
{
    for (int at = 0; at < MOST; at++)
        if (!streams[at].id) {
            streams[at] = (struct stream){.id = id, .kind = kind, .from = -1, .to = -1, .credit = WINDOW};
            return &streams[at];
        }
    return NULL;
}

void close_ends(struct stream *one)
{
    if (one->from >= 0)
        close(one->from);
    if (one->to >= 0 && one->to != one->from)
        close(one->to);
    one->from = one->to = -1;
}

static void drop(struct stream *one)
{
    char draft[4200];
    close_ends(one);
    free(one->kept);
    if (one->path) { /* not complete */
        draft_of(one->path, draft, sizeof draft);
        unlink(draft);
        free(one->path);
    }
    if (one->pid > 0)
        kill(-one->pid, one->kind == 'p' ? SIGHUP : SIGTERM);
    memset(one, 0, sizeof *one);
}

void end_stream(struct stream *one, int code)
{
    int32_t told = code;
    frame(END, one->id, &told, sizeof told);
    if (one->pid <= 0 || one->kind != 'p')
        one->pid = 0;
    drop(one);
}

/* A program's stream ends when it has ended and all that it wrote is on its way. */
static void look(struct stream *one)
{
    if (one->from < 0 && one->pid <= 0 && one->kind != 'w')
        end_stream(one, one->code);
}

/* All of a file has come; returns an errno. */
static int complete_file(struct stream *one)
{
    char draft[4200];
    int failed = close(one->to);
    one->from = one->to = -1;
    draft_of(one->path, draft, sizeof draft);
    if (failed || rename(draft, one->path))
        return errno;
    free(one->path);
    one->path = NULL;
    return 0;
}

static void write_kept(struct stream *one)
{
    if (one->to >= 0 && one->kept_length) {
        ssize_t written = write(one->to, one->kept, one->kept_length);
        if (written < 0 && errno != EAGAIN && one->kind == 'w') { /* the disk is full, most likely */
            end_stream(one, errno);
            return;
        }
        if (written < 0 && errno != EAGAIN)
            written = one->kept_length; /* nobody reads it any more */
        if (written > 0) {
            uint32_t credit = written;
            one->kept_length -= written;
            memmove(one->kept, one->kept + written, one->kept_length);
            frame(CREDIT, one->id, &credit, sizeof credit);
        }
    }
    if (!one->kept_length && one->input_ends && one->to >= 0) {
        one->input_ends = 0;
        if (one->kind == 'w')
            end_stream(one, complete_file(one));
        else if (one->kind == 't' || one->kind == 'u')
            shutdown(one->to, SHUT_WR);
        else if (one->kind != 'p') {
            close(one->to);
            one->to = -1;
        }
    }
}

static void keep(struct stream *one, const unsigned char *body, size_t length)
{
    if (one->kept_length + length > WINDOW) /* more than was allowed */
        return;
    if (!one->kept)
        one->kept = malloc(WINDOW);
    memcpy(one->kept + one->kept_length, body, length);
    one->kept_length += length;
    if (!one->is_waiting)
        write_kept(one);
}

void take_frame(int type, uint32_t id, unsigned char *body, size_t length)
{
    char text[256];
    struct stream *one = find(id);
    if (type == SAY && length < sizeof text) {
        memcpy(text, body, length);
        text[length] = 0;
        take_order(text);
    } else if (type == OPEN && length) {
        char *copy = malloc(length + 1); /* ended by a zero whatever came */
        memcpy(copy, body, length);
        copy[length] = 0;
        open_stream(id, copy, length);
        free(copy);
    } else if (!one)
        return;
    else if (type == DATA)
        keep(one, body, length);
    else if (type == CREDIT && length == 4)
        one->credit += body[0] | body[1] << 8 | body[2] << 16 | (uint32_t)body[3] << 24;
    else if (type == END_OF_INPUT) {
        one->input_ends = 1;
        write_kept(one);
    } else if (type == END && one->kind != 'l')
        drop(one);
    else if (type == RESIZE && length == 4 && one->kind == 'p')
        set_size(one->from, body[0] | body[1] << 8, body[2] | body[3] << 8);
}

static void send_more(struct stream *one)
{
    unsigned char piece[FRAME_BODY];
    size_t room = one->credit < sizeof piece ? one->credit : sizeof piece;
    ssize_t got = read(one->from, piece, room);
    if (got > 0) {
        one->credit -= got;
        frame(DATA, one->id, piece, got);
    } else if (got == 0 || errno != EAGAIN) {
        int is_connection = one->kind == 't' || one->kind == 'u';
        frame(END_OF_INPUT, one->id, NULL, 0);
        if (one->from != one->to || one->kind == 'p')
            close(one->from);
        if (one->kind == 'p')
            one->to = -1;
        one->from = -1;
        if (!is_connection)
            look(one);
        else if (got < 0)
            end_stream(one, 0);
    }
}

void open_log(int file)
{
    struct stream *one = take(LOG_STREAM, 'l');
    one->from = file;
    fcntl(file, F_SETFL, O_NONBLOCK);
}

int log_is_open(void)
{
    struct stream *one = find(LOG_STREAM);
    return one && one->from >= 0;
}

void program_ended(pid_t pid, int code)
{
    for (int at = 0; at < MOST; at++)
        if (streams[at].id && streams[at].pid == pid) {
            streams[at].pid = 0, streams[at].code = code;
            look(&streams[at]);
        }
}

int poll_streams(int timeout)
{
    struct pollfd wait[2 * MOST + 3];
    int owner[2 * MOST + 3], count = 0, is_full = channel_is_full();
    wait[count] = (struct pollfd){.fd = channel, .events = POLLIN | (has_output() ? POLLOUT : 0)}, owner[count++] = -1;
    wait[count] = (struct pollfd){.fd = is_full ? -1 : listener, .events = POLLIN}, owner[count++] = -1;
    wait[count] = (struct pollfd){.fd = signals, .events = POLLIN}, owner[count++] = -1;
    for (int at = 0; at < MOST; at++) {
        struct stream *one = &streams[at];
        if (!one->id)
            continue;
        int wants_read = one->from >= 0 && one->credit && !is_full && !one->is_waiting;
        int wants_write = one->to >= 0 && (one->kept_length || one->is_waiting);
        if (wants_read)
            wait[count] = (struct pollfd){.fd = one->from, .events = POLLIN}, owner[count++] = at;
        if (wants_write)
            wait[count] = (struct pollfd){.fd = one->to, .events = POLLOUT}, owner[count++] = at;
    }
    if (poll(wait, count, timeout) > 0) {
        for (int at = 3; at < count; at++) {
            struct stream *one = &streams[owner[at]];
            if (!wait[at].revents || !one->id)
                continue;
            if (wait[at].events & POLLOUT)
                one->is_waiting ? connected(one) : write_kept(one);
            else if (one->from == wait[at].fd)
                send_more(one);
        }
        if (wait[1].revents)
            take_call();
        if (wait[0].revents & POLLIN)
            read_channel();
    }
    flush_channel(0);
    return count;
}
