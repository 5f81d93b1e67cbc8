/* A libnvidia-ml.so.1 for tests on machines without a GPU, read by the real pynvml.
 *
 * FAKE_NVML names a state file, which is read again at every call, so that a test changes the machine under a running
 * program. Its lines (MiB, per cent):
 *
 *   init ERROR                                        what nvmlInit answers (9: no driver)
 *   gpu  UUID TOTAL USED UTIL ERROR NAME...           ERROR: 0, or the answer to every question about it (15: lost)
 *   mig  GPU UUID TOTAL USED PROFILE                  an instance of that GPU
 *   proc GPU PID USED UTIL
 *   xid  GPU NUMBER                                   told once per number
 *
 * With -DFEW it has only the functions of an old driver.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int R;
typedef unsigned u32;
typedef unsigned long long u64;
enum { OK, UNINIT, INVALID, UNSUPPORTED, FORBIDDEN, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10 };
#define MOST 16
#define MIG_BASE 100

struct gpu { char uuid[96], name[96]; u64 total, used; u32 util; int error; };
struct mig { u32 gpu; char uuid[96], profile[64]; u64 total, used; };
struct proc { u32 gpu, pid, util; u64 used; };
static struct gpu gpus[MOST];
static struct mig migs[MOST];
static struct proc procs[64];
static u32 n_gpus, n_migs, n_procs, ready;
static int init_error;
static u32 xid_gpu, xid;

static void load(void) {
    char line[512];
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    n_gpus = n_migs = n_procs = xid = 0;
    init_error = 0;
    while (file && fgets(line, sizeof line, file)) {
        struct gpu *g = &gpus[n_gpus];
        struct mig *m = &migs[n_migs];
        struct proc *p = &procs[n_procs];
        int at = 0;
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "init %d", &init_error) == 1 || sscanf(line, "xid %u %u", &xid_gpu, &xid) == 2) continue;
        if (sscanf(line, "gpu %95s %llu %llu %u %d %n", g->uuid, &g->total, &g->used, &g->util, &g->error, &at) == 5) {
            snprintf(g->name, 96, "%.95s", line + at);
            g->total <<= 20, g->used <<= 20, n_gpus++;
        } else if (sscanf(line, "mig %u %95s %llu %llu %63s", &m->gpu, m->uuid, &m->total, &m->used, m->profile) == 5) {
            m->total <<= 20, m->used <<= 20, n_migs++;
        } else if (sscanf(line, "proc %u %u %llu %u", &p->gpu, &p->pid, &p->used, &p->util) == 4) {
            p->used <<= 20, n_procs++;
        }
    }
    if (file) fclose(file);
}

static R put(char *buffer, u32 size, const char *text) {
    if (strlen(text) + 1 > size) return TOO_SMALL;
    strcpy(buffer, text);
    return OK;
}

/* Handles are numbers: GPUs from 1, instances from MIG_BASE. */
static R find(void *handle, struct gpu **g, struct mig **m) {
    u64 number = (u64)handle;
    if (!ready) return UNINIT;
    load();
    *m = NULL;
    if (number >= MIG_BASE) {
        if (number - MIG_BASE >= n_migs) return INVALID;
        *m = &migs[number - MIG_BASE];
        number = (*m)->gpu + 1;
    }
    if (number < 1 || number > n_gpus) return 15;
    *g = &gpus[number - 1];
    return (*g)->error;
}
#define FIND struct gpu *g; struct mig *m; R answer = find(handle, &g, &m); if (answer) return answer; (void)g, (void)m

R nvmlInitWithFlags(u32 flags) { (void)flags; load(); if (!init_error) ready = 1; return init_error; }
R nvmlShutdown(void) { ready = 0; return OK; }
const char *nvmlErrorString(R error) {
    switch (error) {
    case 9: return "Driver Not Loaded";
    case 15: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Some Error";
    }
}
R nvmlDeviceGetCount_v2(u32 *count) { if (!ready) return UNINIT; load(); if (init_error) return init_error; *count = n_gpus; return OK; }
R nvmlDeviceGetHandleByIndex_v2(u32 index, void **handle) {
    if (!ready) return UNINIT;
    load();
    if (index >= n_gpus) return INVALID;
    *handle = (void *)(u64)(index + 1);
    return gpus[index].error;
}
R nvmlDeviceGetUUID(void *handle, char *b, u32 n) { FIND; return put(b, n, m ? m->uuid : g->uuid); }
R nvmlDeviceGetName(void *handle, char *b, u32 n) {
    char name[192];
    FIND;
    snprintf(name, sizeof name, m ? "%s MIG %s" : "%s", g->name, m ? m->profile : "");
    return put(b, n, name);
}
R nvmlDeviceGetMemoryInfo(void *handle, u64 *o) {
    FIND;
    o[0] = m ? m->total : g->total, o[2] = m ? m->used : g->used, o[1] = o[0] - o[2];
    return OK;
}

#ifndef FEW
R nvmlDeviceGetUtilizationRates(void *handle, u32 *o) { FIND; if (m) return UNSUPPORTED; o[0] = g->util, o[1] = 0; return OK; }
R nvmlDeviceGetMinorNumber(void *handle, u32 *o) { FIND; if (m) return INVALID; *o = g - gpus; return OK; }
struct pci { char legacy[16]; u32 domain, bus, device, id, sub; char bus_id[32]; };
R nvmlDeviceGetPciInfo_v3(void *handle, struct pci *o) {
    FIND;
    memset(o, 0, sizeof *o);
    snprintf(o->bus_id, 32, "00000000:%02X:00.0", 0x19 + 16 * (u32)(g - gpus));
    return OK;
}
R nvmlDeviceGetMigMode(void *handle, u32 *current, u32 *pending) {
    FIND;
    if (!strstr(g->name, "H200") && !strstr(g->name, "H100")) return UNSUPPORTED;
    *current = 0;
    for (u32 i = 0; i < n_migs; i++) if (migs[i].gpu == (u32)(g - gpus)) *current = 1;
    *pending = *current;
    return OK;
}
R nvmlDeviceGetMaxMigDeviceCount(void *handle, u32 *o) { FIND; *o = 7; return OK; }
R nvmlDeviceGetMigDeviceHandleByIndex(void *handle, u32 index, void **o) {
    FIND;
    for (u32 i = 0; i < n_migs; i++)
        if (migs[i].gpu == (u32)(g - gpus) && index-- == 0) { *o = (void *)(u64)(MIG_BASE + i); return OK; }
    return NOT_FOUND;
}
struct held { u32 pid; u64 used; u32 instance, compute; };
R nvmlDeviceGetComputeRunningProcesses_v3(void *handle, u32 *count, struct held *o) {
    u32 found = 0;
    FIND;
    for (u32 i = 0; i < n_procs; i++) {
        if (procs[i].gpu != (u32)(g - gpus)) continue;
        if (o && found < *count) { memset(&o[found], 0, sizeof *o); o[found].pid = procs[i].pid, o[found].used = procs[i].used; }
        found++;
    }
    R result = found > *count ? TOO_SMALL : OK;
    *count = found;
    return result;
}
struct sample { u32 pid; u64 at; u32 sm, memory, encoder, decoder; };
R nvmlDeviceGetProcessUtilization(void *handle, struct sample *o, u32 *count, u64 since) {
    static u64 clock = 1000;
    u32 found = 0;
    FIND;
    for (u32 i = 0; i < n_procs; i++) {
        if (procs[i].gpu != (u32)(g - gpus) || !procs[i].util) continue;
        if (o && found < *count) { memset(&o[found], 0, sizeof *o); o[found].pid = procs[i].pid, o[found].sm = procs[i].util, o[found].at = ++clock; }
        found++;
    }
    (void)since;
    R result = !found ? NOT_FOUND : found > *count || !o ? TOO_SMALL : OK;
    *count = found;
    return result;
}
R nvmlDeviceGetRemappedRows(void *handle, u32 *a, u32 *b, u32 *pending, u32 *failed) { FIND; *a = *b = *pending = 0; *failed = !!strstr(g->name, "broken"); return OK; }
static u32 xid_told;
struct event { void *device; u64 type, data; u32 instance, compute; };
R nvmlEventSetCreate(void **set) { *set = (void *)1; xid_told = 0; return OK; }
R nvmlEventSetFree(void *set) { (void)set; return OK; }
R nvmlDeviceRegisterEvents(void *handle, u64 types, void *set) { (void)types, (void)set; FIND; return OK; }
R nvmlEventSetWait_v2(void *set, struct event *o, u32 milliseconds) {
    (void)set, (void)milliseconds;
    load();
    if (!xid || xid == xid_told) return TIMEOUT;
    memset(o, 0, sizeof *o);
    o->device = (void *)(u64)(xid_gpu + 1), o->type = 8, o->data = xid_told = xid;
    return OK;
}
#endif
