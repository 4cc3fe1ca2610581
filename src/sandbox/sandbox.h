// Runs untrusted commands, such as programs that a model wrote: with limits of time,
// memory, processes and output, without network, and without writing outside a scratch folder.
//
// The kernel confines as much as it can; `confined` says what it did, and sandbox_missing() puts
// the rest into words. Without confinement of writes and network a command is not run.
// Commands read what the user reads, or, for the user root, what a user without rights reads.
#ifndef SANDBOX_SANDBOX_H
#define SANDBOX_SANDBOX_H

#include "base/host.h"
#include "base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sandbox_confined {
    SANDBOX_WRITES = 1,    // contents and names of files outside the scratch folder
    SANDBOX_NETWORK = 2,   // no socket; a pair of connected ones is allowed
    SANDBOX_MODES = 4,     // modes, owners and times of files outside the scratch folder
    SANDBOX_PROCESSES = 8, // other processes cannot be seen by number, nor get a signal
    SANDBOX_COUNT = 16,    // the number of processes
    SANDBOX_ALL = 31
} sandbox_confined;

// 0 takes the default, in parentheses.
typedef struct sandbox_limits {
    int64_t time_ns;      // from start to end (10 s); CPU time of each process too
    int64_t memory_bytes; // address space of each process (1 GiB)
    int64_t processes;    // processes and threads at once (32)
    int64_t file_bytes;   // largest file, and largest output (16 MiB)
    int64_t output_bytes; // kept of an output (64 KiB)
} sandbox_limits;

// A file put into the scratch folder before the command starts.
typedef struct sandbox_file {
    const char *name; // without a slash
    const char *bytes;
    int64_t count;
} sandbox_file;

typedef struct sandbox_job {
    const char *command; // for /bin/sh, in the scratch folder
    const sandbox_file *files;
    int64_t file_count;
    const char *input; // standard input
    int64_t input_bytes;
} sandbox_job;

typedef enum sandbox_end {
    SANDBOX_EXITED,   // code: its exit code
    SANDBOX_SIGNALED, // code: the signal
    SANDBOX_TIMED_OUT
} sandbox_end;

typedef struct sandbox_result {
    sandbox_end end;
    int code;
    char *out, *err; // standard output and error, NUL-terminated, at most output_bytes of each
    int64_t out_bytes, err_bytes;
    unsigned confined; // sandbox_confined
} sandbox_result;

typedef struct sandbox_spec {
    const char *parent; // folder in which scratch folders are made and removed; NULL: /tmp
    sandbox_limits limits;
    int64_t at_once; // commands; 0: 1
} sandbox_spec;

// Runs all jobs; results[i] is that of jobs[i]. A command that fails or is ended is a result;
// errors are those of the machine. `a` holds the outputs.
NODISCARD status sandbox_run(const host *h, arena *a, const sandbox_spec *spec,
                             const sandbox_job *jobs, int64_t count, sandbox_result *results);
// Tries what this machine's kernel confines.
NODISCARD status sandbox_probe(const host *h, arena *a, unsigned *confined);
// Adds what is not confined as the rest of a sentence: "is not kept from ...". Nothing if
// everything is.
NODISCARD status sandbox_missing(unsigned confined, text *out);

#ifdef __cplusplus
}
#endif
#endif
