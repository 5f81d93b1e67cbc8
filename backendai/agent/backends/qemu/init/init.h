/* The first process of a kernel that is a virtual machine: it mounts, starts the main process, and serves the agent's
 * orders over one virtio-serial port. Freestanding but for a static C library; nothing of the image is needed. */
#ifndef INIT_H
#define INIT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FRAME_HEAD 8
#define FRAME_BODY 16384
#define WINDOW (256 * 1024)
#define LOG_STREAM 1

/* As in qemu_channel.py. */
enum { OPEN = 1, DATA, CREDIT, END_OF_INPUT, END, RESIZE, SAY, OPENED };

struct launch { /* what the agent wrote on the disk: see qemu_disk.py */
    uid_t uid;
    gid_t gid;
    int pids;
    char *host, *folder, *shm;
    char *gateway; /* none: the guest reaches no other machine, or only those of its session */
    char **interfaces, **environ, **argv, **binds, **shares, **owned;
};

/* boot.c */
void boot(struct launch *launch);
int open_channel(void);
void fail(const char *text, const char *about);

/* mounts.c */
void mount_or_fail(const char *source, const char *target, const char *type, unsigned long flags, const char *data);
void fill_root(const struct launch *launch, int scratch);

/* network.c */
void raise_network(const struct launch *launch);

/* programs.c */
pid_t start_main(const struct launch *launch, int output);
pid_t start_program(const struct launch *launch, char **words, int count, int input, int output);
pid_t start_terminal(const struct launch *launch, char **words, int count, int *terminal);
void set_size(int terminal, int rows, int columns);

/* cutting.c */
int cut_folder(const char *target);

/* channel.c: frames to the agent and from it */
extern int channel;
void frame(int type, uint32_t stream, const void *body, size_t length);
void say(const char *text);
void flush_channel(int patience);
void read_channel(void);
int channel_is_full(void);
int has_output(void);

/* streams.c */
void take_frame(int type, uint32_t stream, unsigned char *body, size_t length);
void open_log(int file);
int log_is_open(void);
void listen_for_guest(const struct launch *launch);
int poll_streams(int timeout);
void program_ended(pid_t pid, int code);

/* main.c */
extern struct launch launch;
extern int signals;
void take_order(const char *order);
long long now_ms(void);

#endif
