/* Taking a folder out of the running kernel: its programs that use it are killed, and it is unmounted. */
#include "init.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static int is_on(const char *path, dev_t device)
{
    struct stat found;
    return !stat(path, &found) && found.st_dev == device;
}

static int maps(const char *process, dev_t device)
{
    char path[300], line[4400];
    unsigned int major, minor;
    int found = 0;
    snprintf(path, sizeof path, "/proc/%s/maps", process);
    FILE *file = fopen(path, "r");
    while (file && !found && fgets(line, sizeof line, file))
        found = sscanf(line, "%*s %*s %*s %x:%x", &major, &minor) == 2
                && major == ((device >> 8) & 0xfff) && minor == ((device & 0xff) | ((device >> 12) & 0xfff00));
    if (file)
        fclose(file);
    return found;
}

static int uses(const char *process, dev_t device)
{
    static const char *const links[] = {"cwd", "root", "exe"};
    char path[600];
    for (int at = 0; at < 3; at++) {
        snprintf(path, sizeof path, "/proc/%s/%s", process, links[at]);
        if (is_on(path, device))
            return 1;
    }
    snprintf(path, sizeof path, "/proc/%s/fd", process);
    DIR *files = opendir(path);
    struct dirent *entry;
    int found = 0;
    while (files && !found && (entry = readdir(files))) {
        snprintf(path, sizeof path, "/proc/%s/fd/%s", process, entry->d_name);
        found = isdigit((unsigned char)entry->d_name[0]) && is_on(path, device);
    }
    if (files)
        closedir(files);
    return found || maps(process, device);
}

int cut_folder(const char *target)
{
    struct stat folder, above;
    char parent[4200];
    int killed = 0;
    snprintf(parent, sizeof parent, "%s/..", target);
    if (stat(target, &folder) || stat(parent, &above) || folder.st_dev == above.st_dev)
        return 0;
    DIR *processes = opendir("/proc");
    struct dirent *entry;
    while (processes && (entry = readdir(processes)))
        if (isdigit((unsigned char)entry->d_name[0]) && strcmp(entry->d_name, "1") && uses(entry->d_name, folder.st_dev)
            && !kill(atoi(entry->d_name), SIGKILL))
            killed++;
    if (processes)
        closedir(processes);
    umount2(target, MNT_DETACH);
    return killed;
}
