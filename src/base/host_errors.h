// Counts of faults that Linux tells about this machine: errors of memory, throttled processors,
// errors of links.
#ifndef BASE_HOST_ERRORS_H
#define BASE_HOST_ERRORS_H

#include "base/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct host_errors { // since the machine was started; -1: it does not tell
    int64_t memory_corrected, memory_uncorrected; // EDAC
    int64_t throttled;                            // by heat, of all processors
    int64_t links; // InfiniBand: recoveries and symbols; Ethernet: checksums and carriers
} host_errors;
// root: "", or a folder in place of the machine's "/".
void host_errors_read(const char *root, host_errors *out);

#ifdef __cplusplus
}
#endif
#endif
