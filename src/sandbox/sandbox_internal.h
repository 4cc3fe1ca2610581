// The child's side of sandbox.c: everything between the fork and the command.
#ifndef SANDBOX_SANDBOX_INTERNAL_H
#define SANDBOX_SANDBOX_INTERNAL_H

#include "sandbox/sandbox.h"

#include <sys/types.h>

// Prepared before the fork, because only system calls are safe after it.
typedef struct sandbox_child {
    const char *scratch;
    char *const *argv; // NULL: only tries the confinement
    char *const *environment;
    sandbox_limits limits; // all set
    bool has_spaces;       // runs in namespaces of its own
    bool is_root;          // becomes SANDBOX_USER
    int in, out, err;      // descriptors that become 0, 1, 2
    int go, report;        // the parent's start signal; where reports are written
} sandbox_child;

typedef enum sandbox_stage {
    SANDBOX_STAGE_CONFINED, // value: sandbox_confined
    SANDBOX_STAGE_ENDED,    // value: what wait() gave for the command
    // These failed; value: errno.
    SANDBOX_STAGE_SCRATCH,
    SANDBOX_STAGE_USER,
    SANDBOX_STAGE_FORK,
    SANDBOX_STAGE_LIMITS,
    SANDBOX_STAGE_EXEC
} sandbox_stage;

typedef struct sandbox_report {
    int32_t stage, value;
} sandbox_report;

enum { SANDBOX_USER = 65534 }; // owns nothing and has no rights

// Forks into new namespaces (or none); like fork(), but without its handlers.
pid_t sandbox_fork(bool has_spaces);
void sandbox_child_run(const sandbox_child *c) __attribute__((noreturn));

#endif
