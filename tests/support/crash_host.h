// A host over a sim_disk. It logs every change and counts every call that can fail; the k-th
// counted call can be made to fail as on a real system. Threads may share it under its one lock.
#ifndef SUPPORT_CRASH_HOST_H
#define SUPPORT_CRASH_HOST_H

#include "base/host.h"
#include "tests/support/sim_disk.h"

#include <pthread.h>

typedef enum crash_error {
    CRASH_EIO,
    CRASH_ENOSPC,
    CRASH_SHORT, // half of the bytes, then the end of the file or a full disk
    CRASH_ERRORS
} crash_error;

typedef struct crash_host {
    host h;
    sim_disk *disk;
    sim_log *log; // NULL: no log
    pthread_mutex_t lock;
    int64_t mark;       // recorded with every change
    int64_t calls;      // calls under `where` that could have failed
    const char *where;  // faults affect only paths that contain this
    int64_t fail_at;    // the call that fails, from 1; 0: none
    int64_t fail_count; // number of consecutive calls that fail
    crash_error error;
    int64_t failed; // number of calls that have failed
    int64_t open_files;
    bool forgets_folder_sync, forgets_file_sync; // ignore syncs, for tests of the tests
} crash_host;

crash_host *crash_host_create(sim_disk *take); // owns the disk and destroys it
void crash_host_destroy(crash_host *c);

#endif
