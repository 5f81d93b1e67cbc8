/* What streams.c keeps of each stream, for openings.c. */
#ifndef STREAMS_H
#define STREAMS_H

#include "init.h"

struct stream {
    uint32_t id;
    char kind;            /* p: terminal, x: program, d: one whose output is nobody's, t: port, w: file, u: call of the guest agent, l: log */
    int from, to;         /* what is read from and written to; -1: no more */
    pid_t pid;            /* of a terminal or program while it lives */
    int code, is_waiting; /* is_waiting: a connection that is not made yet */
    int input_ends;       /* the agent sends no more */
    size_t credit;        /* bytes that may still be sent to the agent */
    unsigned char *kept;  /* from the agent, not written yet */
    size_t kept_length;
    int tries;            /* addresses of the port that were tried */
    int port;
    char *path;           /* of a file: where it is when it is complete */
};

extern int listener;

/* streams.c */
struct stream *find(uint32_t id);
struct stream *take(uint32_t id, char kind);
void close_ends(struct stream *one);
void end_stream(struct stream *one, int code);

/* openings.c */
void open_stream(uint32_t id, char *body, size_t length);
void connected(struct stream *one);
void take_call(void);
void draft_of(const char *path, char *draft, size_t room);

#endif
