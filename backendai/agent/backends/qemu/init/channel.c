/* Frames over the one port: type, nothing, length (16 bits), stream (32 bits), little endian; then the body. */
#include "init.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENOUGH (64 * 1024) /* to send; what more comes waits where it is */

int channel = -1;
static unsigned char input[FRAME_HEAD + 65536], *output;
static size_t input_length, output_length, output_room;

int channel_is_full(void) { return output_length > ENOUGH; }
int has_output(void) { return output_length > 0; }

void frame(int type, uint32_t stream, const void *body, size_t length)
{
    size_t needed = output_length + FRAME_HEAD + length;
    if (needed > output_room) {
        output_room = needed + ENOUGH;
        output = realloc(output, output_room);
        if (!output)
            _exit(1);
    }
    unsigned char *at = output + output_length;
    at[0] = type, at[1] = 0, at[2] = length & 255, at[3] = length >> 8;
    for (int byte = 0; byte < 4; byte++)
        at[4 + byte] = stream >> (8 * byte);
    if (length)
        memcpy(at + FRAME_HEAD, body, length);
    output_length = needed;
}

void say(const char *text) { frame(SAY, 0, text, strlen(text)); }

/* Send what can be sent now; with patience (milliseconds) all of it. */
void flush_channel(int patience)
{
    while (output_length) {
        ssize_t sent = write(channel, output, output_length);
        if (sent > 0) {
            output_length -= sent;
            memmove(output, output + sent, output_length);
        } else {
            struct pollfd wait = {.fd = channel, .events = POLLOUT};
            if (patience <= 0 || poll(&wait, 1, patience) <= 0)
                return;
        }
    }
}

void read_channel(void)
{
    ssize_t got = read(channel, input + input_length, sizeof input - input_length);
    if (got <= 0)
        return;
    input_length += got;
    size_t at = 0;
    while (input_length - at >= FRAME_HEAD) {
        unsigned char *head = input + at;
        size_t length = head[2] | head[3] << 8;
        if (input_length - at < FRAME_HEAD + length)
            break;
        uint32_t stream = head[4] | head[5] << 8 | head[6] << 16 | (uint32_t)head[7] << 24;
        take_frame(head[0], stream, head + FRAME_HEAD, length);
        at += FRAME_HEAD + length;
    }
    input_length -= at;
    memmove(input, input + at, input_length);
}
