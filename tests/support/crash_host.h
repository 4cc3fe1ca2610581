// A host over a sim_disk: every change is logged, every call that can fail is counted, and the k-th
// counted one may be made to fail as a real system fails it. One lock: threads may share it.
#ifndef SUPPORT_CRASH_HOST_H
#define SUPPORT_CRASH_HOST_H

#include "base/host.h"
#include "tests/support/sim_disk.h"

#include <pthread.h>

typedef enum crash_error {
    CRASH_EIO,
    CRASH_ENOSPC,
    CRASH_SHORT, // half of the bytes, then the end or a full disk
    CRASH_ERRORS
} crash_error;

typedef struct crash_host {
    host h;
    sim_disk *disk;
    sim_log *log; // NULL: not wanted
    pthread_mutex_t lock;
    int64_t mark;       // noted with every change
    int64_t calls;      // that could have failed, under `where`
    const char *where;  // faults strike paths that contain this
    int64_t fail_at;    // the call that fails, from 1; 0: none
    int64_t fail_count; // that many in a row
    crash_error error;
    int64_t failed; // how many did
    int64_t open_files;
    bool forgets_folder_sync, forgets_file_sync; // lies, for tests of the tests
} crash_host;

crash_host *crash_host_create(sim_disk *take); // over a disk that is destroyed with it
void crash_host_destroy(crash_host *c);

#endif
