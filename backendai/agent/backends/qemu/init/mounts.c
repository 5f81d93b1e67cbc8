/* What is mounted in the root file system of the image. */
#include "init.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_LINKS 40 /* as Linux follows in one path */

void mount_or_fail(const char *source, const char *target, const char *type, unsigned long flags, const char *data)
{
    if (mount(source, target, type, flags, data))
        fail("cannot mount", target);
}

static void make_folders(const char *path, int links);

/* A link that leads nowhere yet leads to a new folder, as container engines have it. */
static void make_folder(const char *path, int links)
{
    char target[4096], whole[8192];
    struct stat found;
    if (!mkdir(path, 0755) || !stat(path, &found) || !links)
        return;
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length <= 0)
        return;
    target[length] = 0;
    snprintf(whole, sizeof whole, "%.*s/%s", *target == '/' ? 0 : (int)(strrchr(path, '/') - path), path, target);
    make_folders(whole, links - 1);
}

static void make_folders(const char *path, int links)
{
    char part[8192];
    snprintf(part, sizeof part, "%s", path);
    for (char *at = part + 1; *at; at++)
        if (*at == '/') {
            *at = 0;
            make_folder(part, links);
            *at = '/';
        }
    make_folder(part, links);
}

/* "source:target" of the disk; a target is a folder of the image, made where it has none. */
static void bind_folders(int scratch, char **binds)
{
    char from[4200];
    for (; binds && *binds; binds++) {
        char *target = strchr(*binds, ':');
        *target++ = 0;
        snprintf(from, sizeof from, "/proc/self/fd/%d/%s", scratch, *binds);
        make_folders(target, MOST_LINKS);
        mount_or_fail(from, target, NULL, MS_BIND, NULL);
    }
}

/* "tag:ro:target" or "tag:rw:target"; the host keeps out writes as well. */
static void mount_shares(char **shares)
{
    for (; shares && *shares; shares++) {
        char *rights = strchr(*shares, ':'), *target = strchr(rights + 1, ':');
        *rights++ = *target++ = 0;
        make_folders(target, MOST_LINKS);
        mount_or_fail(*shares, target, "virtiofs", MS_NOSUID | MS_NODEV | (*rights == 'r' && rights[1] == 'o' ? MS_RDONLY : 0), NULL);
    }
}

static void mount_kit(void)
{
    if (access("/dev/vdc", F_OK)) /* Python and tools, for images without them */
        return;
    make_folders("/run/backendai-kit", MOST_LINKS);
    mount_or_fail("/dev/vdc", "/run/backendai-kit", "squashfs", MS_RDONLY | MS_NODEV | MS_NOSUID, NULL);
}

static void mount_system(const char *shm)
{
    char size[64];
    make_folders("/dev", MOST_LINKS), make_folders("/proc", MOST_LINKS), make_folders("/sys", MOST_LINKS);
    mount_or_fail("devtmpfs", "/dev", "devtmpfs", MS_NOSUID, NULL);
    mount_or_fail("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    mount_or_fail("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    mount("sysfs", "/sys", NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    make_folders("/dev/pts", 0), make_folders("/dev/shm", 0);
    mount_or_fail("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "mode=620,ptmxmode=666,gid=5");
    unlink("/dev/ptmx");
    if (symlink("pts/ptmx", "/dev/ptmx") || symlink("/proc/self/fd", "/dev/fd") || symlink("/proc/self/fd/0", "/dev/stdin")
        || symlink("/proc/self/fd/1", "/dev/stdout") || symlink("/proc/self/fd/2", "/dev/stderr"))
        fail("cannot fill", "/dev");
    snprintf(size, sizeof size, "mode=1777,size=%s", shm);
    mount_or_fail("shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, size);
}

/* scratch: the open folder of the disk; the process is in the root of the image, so that its links stay in it. */
void fill_root(const struct launch *launch, int scratch)
{
    mount_system(launch->shm);
    mount_kit();
    bind_folders(scratch, launch->binds);
    mount_shares(launch->shares);
}
