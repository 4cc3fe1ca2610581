// For tests only: where the shared reference data and scratch files lie.
#ifndef BASE_TEST_PATHS_H
#define BASE_TEST_PATHS_H

#include <stdio.h>
#include <stdlib.h>

// "<shared>/<name>": TRIREME_SHARED if set, else ../shared beside the source tree (tests run there).
static inline const char *test_shared(const char *name, char buffer[1024])
{
    const char *folder = getenv("TRIREME_SHARED");
    snprintf(buffer, 1024, "%s/%s", folder == NULL ? "../shared" : folder, name);
    return buffer;
}

// A fresh folder; the caller removes it with test_scratch_remove.
static inline char *test_scratch(char buffer[64])
{
    snprintf(buffer, 64, P_tmpdir "/trireme-test-XXXXXX");
    return mkdtemp(buffer);
}

static inline void test_scratch_remove(const char *folder)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    if (system(command) != 0) printf("could not remove %s\n", folder);
}

#endif
