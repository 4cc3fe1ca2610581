// Fuzz entry: any text as a list of hosts, and as what launchers put into the environment.
#include "launch/launch.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Lines "NAME=value"; the text ends with a NUL.
static const char *lookup(void *context, const char *name)
{
    static char values[16][512]; // several are looked at together
    static int next;
    char *value = values[next++ % 16];
    const size_t limit = sizeof(values[0]) - 1;
    const size_t length = strlen(name);
    for (const char *at = context; at != NULL && *at != '\0';) {
        const size_t line = strcspn(at, "\n");
        if (line > length && strncmp(at, name, length) == 0 && at[length] == '=') {
            const size_t count = line - length - 1 < limit ? line - length - 1 : limit;
            memcpy(value, at + length + 1, count);
            value[count] = '\0';
            return value;
        }
        at += line + (at[line] == '\n');
    }
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena *a = NULL;
    char *whole = malloc(size + 1);
    if (whole == NULL || arena_create("fuzz", 8 << 20, &a) != ST_OK) {
        free(whole);
        return 0;
    }
    memcpy(whole, data, size);
    whole[size] = '\0';
    file_names names = {0};
    status st = launch_hosts(a, whole, LAUNCH_HOSTS_MAX, &names);
    ASSERT(st == ST_OK || st == ST_CONFIG || st == ST_NO_MEMORY);
    if (st == ST_OK) ASSERT(names.count >= 1 && names.count <= LAUNCH_HOSTS_MAX);
    launch_place p;
    st = launch_detect(lookup, whole, &p);
    ASSERT(st == ST_OK || st == ST_CONFIG || st == ST_NO_MEMORY);
    if (st == ST_OK) ASSERT(p.rank >= 0 && p.rank < p.ranks && p.ranks <= CONTROL_RANKS_MAX);
    arena_destroy(a);
    free(whole);
    return 0;
}
