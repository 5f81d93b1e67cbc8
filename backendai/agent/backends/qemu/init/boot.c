/* From the initial RAM disk to the root file system of the image. */
#include "init.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SCRATCH "/scratch"
#define ROOT "/root"

static uid_t owner;
static gid_t group;

void fail(const char *text, const char *about)
{
    char words[512];
    snprintf(words, sizeof words, "failed %s%s%s: %s", text, *about ? " " : "", about, strerror(errno));
    printf("init: %s\n", words);
    fflush(stdout);
    if (channel >= 0) {
        say(words);
        flush_channel(2000);
    }
    reboot(RB_POWER_OFF);
    _exit(1);
}

static void load_modules(void)
{
    char name[256], path[300];
    FILE *order = fopen("/modules/order", "r");
    while (order && fscanf(order, "%255s", name) == 1) {
        snprintf(path, sizeof path, "/modules/%s", name);
        int file = open(path, O_RDONLY);
        if (file < 0 || (syscall(SYS_finit_module, file, "", 0) && errno != EEXIST))
            fail("cannot load the module", name);
        close(file);
    }
    if (order)
        fclose(order);
}

static void wait_for(const char *path)
{
    for (int tries = 0; access(path, F_OK); tries++) {
        if (tries == 600)
            fail("there is no", path);
        usleep(50000);
    }
}

int open_channel(void)
{
    char path[300], name[64];
    for (int tries = 0; tries < 600; tries++) {
        DIR *ports = opendir("/sys/class/virtio-ports");
        struct dirent *entry;
        while (ports && (entry = readdir(ports))) {
            snprintf(path, sizeof path, "/sys/class/virtio-ports/%s/name", entry->d_name);
            FILE *file = fopen(path, "r");
            int is_ours = file && fgets(name, sizeof name, file) && !strncmp(name, "backendai", 9);
            if (file)
                fclose(file);
            if (is_ours) {
                snprintf(path, sizeof path, "/dev/%s", entry->d_name);
                int found = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
                if (found >= 0) {
                    closedir(ports);
                    return found;
                }
            }
        }
        if (ports)
            closedir(ports);
        usleep(20000);
    }
    return -1;
}

static int give(const char *path, const struct stat *found, int type, struct FTW *at)
{
    (void)found, (void)type, (void)at;
    if (lchown(path, owner, group))
        fail("cannot give away", path);
    return 0;
}

static void give_tree(const char *path, uid_t uid, gid_t gid)
{
    owner = uid, group = gid;
    if (!access(path, F_OK))
        nftw(path, give, 16, FTW_PHYS | FTW_MOUNT);
}

/* Files among those of root that the kernel's user reads alone: programs refuse keys that others own. */
static void give_files(const struct launch *launch)
{
    char path[512];
    for (char **name = launch->owned; name && *name; name++) {
        snprintf(path, sizeof path, SCRATCH "/%s", *name);
        if (lchown(path, launch->uid, launch->gid))
            fail("cannot give away", path);
    }
}

static char **add(char **list, char *word)
{
    size_t count = 0;
    while (list && list[count])
        count++;
    list = realloc(list, (count + 2) * sizeof *list);
    list[count] = word, list[count + 1] = NULL;
    return list;
}

static char *value_of(char *word, const char *name)
{
    size_t length = strlen(name);
    return strncmp(word, name, length) || word[length] != '=' ? NULL : word + length + 1;
}

static void read_launch(struct launch *launch, const char *path)
{
    struct stat about;
    int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &about))
        fail("cannot read", path);
    char *text = calloc(1, about.st_size + 1), *value;
    if (read(file, text, about.st_size) != about.st_size)
        fail("cannot read", path);
    close(file);
    for (char *word = text; word < text + about.st_size; word += strlen(word) + 1) {
        if ((value = value_of(word, "uid")))
            launch->uid = atoi(value);
        else if ((value = value_of(word, "gid")))
            launch->gid = atoi(value);
        else if ((value = value_of(word, "pids")))
            launch->pids = atoi(value);
        else if ((value = value_of(word, "host")))
            launch->host = value;
        else if ((value = value_of(word, "folder")))
            launch->folder = value;
        else if ((value = value_of(word, "interface")))
            launch->interfaces = add(launch->interfaces, value);
        else if ((value = value_of(word, "gateway")))
            launch->gateway = value;
        else if ((value = value_of(word, "shm")))
            launch->shm = value;
        else if ((value = value_of(word, "environ")))
            launch->environ = add(launch->environ, value);
        else if ((value = value_of(word, "argument")))
            launch->argv = add(launch->argv, value);
        else if ((value = value_of(word, "bind")))
            launch->binds = add(launch->binds, value);
        else if ((value = value_of(word, "share")))
            launch->shares = add(launch->shares, value);
        else if ((value = value_of(word, "own")))
            launch->owned = add(launch->owned, value);
    }
}

static void enter_root(void)
{
    if (chdir(ROOT) || mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".") || chdir("/"))
        fail("cannot change to", ROOT);
}

/* As on a large machine: memory is refused when it is used, and the end of a program then says why. */
static void promise_memory(void)
{
    FILE *file = fopen("/proc/sys/vm/overcommit_memory", "w");
    if (file) {
        fputs("1", file);
        fclose(file);
    }
}

void boot(struct launch *launch)
{
    umask(022);
    mount("devtmpfs", "/dev", "devtmpfs", MS_NOSUID, NULL);
    mount_or_fail("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    mount_or_fail("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    load_modules();
    if (getenv("backendai_trial"))
        reboot(RB_POWER_OFF);
    if ((channel = open_channel()) < 0)
        fail("there is no", "channel");
    say("booted");
    flush_channel(5000);
    wait_for("/dev/vda"), wait_for("/dev/vdb");
    mount_or_fail("/dev/vda", "/lower", "squashfs", MS_RDONLY | MS_NODEV, NULL);
    mount_or_fail("/dev/vdb", SCRATCH, "ext4", MS_NODEV, "noquota");
    read_launch(launch, SCRATCH "/launch");
    unlink(SCRATCH "/launch");
    give_tree(SCRATCH "/upper", 0, 0), give_tree(SCRATCH "/guest", 0, 0), give_tree(SCRATCH "/authorities", 0, 0);
    give_tree(SCRATCH "/home", launch->uid, launch->gid);
    give_files(launch);
    mount_or_fail("overlay", ROOT, "overlay", MS_NODEV, "lowerdir=/lower,upperdir=" SCRATCH "/upper,workdir=" SCRATCH "/work");
    int scratch = open(SCRATCH, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (scratch < 0)
        fail("cannot open", SCRATCH);
    enter_root();
    fill_root(launch, scratch);
    close(scratch);
    if (sethostname(launch->host, strlen(launch->host)))
        fail("cannot set the name", launch->host);
    raise_network(launch);
    promise_memory();
}
