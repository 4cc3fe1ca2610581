// The table of backends. To add one, add a row here; kernels/backend_test.c then compares it with
// `ref`.
#include "kernels/backend_table.h"

#include <string.h>

const kern_backend *const kern_backend_table[KERN_BACKEND_COUNT] = {
    &kern_backend_ref, &kern_backend_cuda,
    &kern_backend_cpu, // last: its highest level is the one that tests look at most
};

const kern_backend *kern_backend_find(const char *name)
{
    for (int i = 0; i < KERN_BACKEND_COUNT; i++) {
        if (strcmp(kern_backend_table[i]->name, name) == 0) return kern_backend_table[i];
    }
    return NULL;
}
